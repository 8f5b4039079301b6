# SPDX-License-Identifier: Apache-2.0
"""The pages of permissions and topic permissions: their lists, and setting or removing them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.console.api import permissions
from headrace.console.pages.actions import Field, refuse_existing
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import command_line
from headrace.console.pages.links import FormAddress, Link, path_to
from headrace.console.pages.listings import GlobalRows, ListPage
from headrace.console.pages.resource_pages import ResourcePages
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.untyped import JsonObject

PARENT, TOPIC_PARENT = ("Permissions", "/permissions"), ("Topic permissions", "/topic-permissions")
PERMISSION_PATH = "/permissions/{vhost}/{user}"
TOPIC_PERMISSION_PATH = "/topic-permissions/{vhost}/{user}/{exchange}"
PATTERNS, TOPIC_PATTERNS = ("configure", "write", "read"), ("write", "read")
PERMISSION_COLUMNS = (
    Column("User", "user"),
    Column("Virtual host", "vhost"),
    Column("Configure", "configure"),
    Column("Write", "write"),
    Column("Read", "read"),
)
TOPIC_PERMISSION_COLUMNS = (
    Column("User", "user"),
    Column("Virtual host", "vhost"),
    Column("Exchange", "exchange"),
    Column("Write", "write"),
    Column("Read", "read"),
)
HELP = "A regular expression; it may match a part of the name unless anchored with ^ and $."
FIELDS = (
    Field("configure", "Configure", help=HELP),
    Field("write", "Write"),
    Field("read", "Read", help="An empty pattern allows nothing."),
)
TOPIC_FIELDS = (Field("write", "Write", help=HELP), FIELDS[-1])
PAGES = ResourcePages()


def permission_form_address(row: JsonObject) -> str:
    """Return the address of the page that changes permissions."""
    return f"{path_to('permissions', row['vhost'], row['user'])}/edit"


def topic_form_address(row: JsonObject) -> str:
    """Return the address of the page that changes topic permissions."""
    return f"{path_to('topic-permissions', row['vhost'], row['user'], row['exchange'])}/edit"


PAGES.add(
    ListPage(
        path="/permissions",
        title="Permissions",
        rows=GlobalRows(permissions.list_permissions),
        columns=PERMISSION_COLUMNS,
        row_address=FormAddress(permission_form_address, ADMINISTRATOR),
        actions=(Link("Set permissions", "/permissions/new", ADMINISTRATOR),),
        tag=ADMINISTRATOR,
        command=command_line("permission", "list"),
        search_fields=("user", "vhost"),
    ),
    ListPage(
        path="/topic-permissions",
        title="Topic permissions",
        rows=GlobalRows(permissions.list_topic_permissions),
        columns=TOPIC_PERMISSION_COLUMNS,
        row_address=FormAddress(topic_form_address, ADMINISTRATOR),
        actions=(Link("Restrict routing keys", "/topic-permissions/new", ADMINISTRATOR),),
        tag=ADMINISTRATOR,
        about="Topic permissions restrict the routing keys of a user at a topic exchange.",
        command=command_line("permission", "topic", "list"),
        search_fields=("user", "vhost", "exchange"),
    ),
)


# --- Permissions ---------------------------------------------------------------------------------


async def set_permission(call: HttpCall, vhost: str, user: str, form: Body) -> None:
    """Set the permissions of a form; an empty pattern allows nothing."""
    patterns = {name: form.text(name) for name in PATTERNS}
    await permissions.set_permission(call, vhost, user, **patterns)


def add_command(values: Values) -> str:
    """Return the command line that sets the permissions of the user of the form."""
    vhost, user = str(values.get("vhost") or ""), str(values.get("user") or "USER")
    return set_command(values, vhost, user)


def set_command(values: Values, vhost: str, user: str) -> str:
    """Return the command line that sets permissions."""
    patterns = (values.get(name) or "" for name in PATTERNS)
    return command_line("permission", "set", user, *patterns, vhost=vhost)


@PAGES.action(
    "/permissions/new",
    "Set permissions",
    back="/users/{user}",
    notice="Permissions of user {user} are set.",
    command=add_command,
    fields=(
        Field("user", "User", required=True),
        Field("vhost", "Virtual host", default="/", required=True),
        *(replace(field, default=".*") for field in FIELDS),
    ),
    parent=PARENT,
    tag=ADMINISTRATOR,
)
async def add(call: HttpCall, form: Body) -> None:
    """Give permissions to a user who has none in a virtual host."""
    vhost, user = form.text("vhost"), form.text("user")
    present = permissions.show_permission(call, vhost, user)
    await refuse_existing(present, "the user has permissions in the virtual host")
    await set_permission(call, vhost, user, form)


async def permission_values(call: HttpCall, vhost: str, user: str) -> Mapping[str, str]:
    """Return the present permissions of a user."""
    row = await permissions.show_permission(call, vhost, user)
    return {name: row[name] for name in PATTERNS}


def removal_link(vhost: str, user: str) -> list[Link]:
    """Return the link that removes permissions."""
    address = path_to("permissions", vhost, user)
    return [Link("Remove", address, ADMINISTRATOR, danger=True)]


@PAGES.action(
    f"{PERMISSION_PATH}/edit",
    "Change permissions of {user} in {vhost}",
    back="/users/{user}",
    notice="Permissions of user {user} are changed.",
    command=set_command,
    fields=FIELDS,
    parent=PARENT,
    tag=ADMINISTRATOR,
    values=permission_values,
    links=removal_link,
)
async def change(call: HttpCall, form: Body, vhost: str, user: str) -> None:
    """Change the permissions of a page."""
    await set_permission(call, vhost, user, form)


def clear_command(values: Values, vhost: str, user: str) -> str:
    """Return the command line that removes permissions."""
    return command_line("permission", "clear", user, vhost=vhost)


@PAGES.action(
    PERMISSION_PATH,
    "Remove permissions of {user} in {vhost}",
    back="/permissions",
    notice="User {user} no longer has access to the virtual host.",
    command=clear_command,
    confirm="{user}",
    parent=PARENT,
    button="Remove",
    danger=True,
    tag=ADMINISTRATOR,
)
async def remove(call: HttpCall, form: Body, vhost: str, user: str) -> None:
    """Remove the permissions of a page."""
    await permissions.remove_permission(call, vhost, user)


# --- Topic permissions ---------------------------------------------------------------------------


async def set_topic_permission(
    call: HttpCall, vhost: str, user: str, exchange: str, form: Body
) -> None:
    """Set the topic permissions of a form; an empty pattern allows nothing."""
    patterns = {name: form.text(name) for name in TOPIC_PATTERNS}
    await permissions.set_topic_permission(call, vhost, user, exchange, **patterns)


def add_topic_command(values: Values) -> str:
    """Return the command line that restricts routing keys."""
    user, exchange = values.get("user") or "USER", values.get("exchange") or "amq.topic"
    patterns = (values.get(name) or ".*" for name in TOPIC_PATTERNS)
    vhost = values.get("vhost")
    return command_line("permission", "topic", "set", user, exchange, *patterns, vhost=vhost)


@PAGES.action(
    "/topic-permissions/new",
    "Restrict routing keys",
    back="/topic-permissions",
    notice="Topic permissions of user {user} are set.",
    command=add_topic_command,
    fields=(
        Field("user", "User", required=True),
        Field("vhost", "Virtual host", default="/", required=True),
        Field("exchange", "Exchange", default="amq.topic"),
        *(replace(field, default=".*") for field in TOPIC_FIELDS),
    ),
    parent=TOPIC_PARENT,
    tag=ADMINISTRATOR,
)
async def add_topic(call: HttpCall, form: Body) -> None:
    """Restrict a user's routing keys at an exchange that has no restriction for the user yet."""
    vhost, user, exchange = (form.text(name) for name in ("vhost", "user", "exchange"))
    present = permissions.show_topic_permission(call, vhost, user, exchange)
    await refuse_existing(present, "the user's routing keys are restricted at the exchange")
    await set_topic_permission(call, vhost, user, exchange, form)


async def topic_values(call: HttpCall, vhost: str, user: str, exchange: str) -> Mapping[str, str]:
    """Return the present topic permissions of a user."""
    row = await permissions.show_topic_permission(call, vhost, user, exchange)
    return {name: row[name] for name in TOPIC_PATTERNS}


def topic_removal_link(vhost: str, user: str, exchange: str) -> list[Link]:
    """Return the link that removes topic permissions."""
    address = path_to("topic-permissions", vhost, user, exchange)
    return [Link("Remove", address, ADMINISTRATOR, danger=True)]


def change_topic_command(values: Values, vhost: str, user: str, exchange: str) -> str:
    """Return the command line that changes topic permissions."""
    patterns = (str(values.get(name) or "") for name in TOPIC_PATTERNS)
    return command_line("permission", "topic", "set", user, exchange, *patterns, vhost=vhost)


@PAGES.action(
    f"{TOPIC_PERMISSION_PATH}/edit",
    "Change topic permissions of {user} on {exchange}",
    back="/topic-permissions",
    notice="Topic permissions of user {user} are changed.",
    command=change_topic_command,
    fields=TOPIC_FIELDS,
    parent=TOPIC_PARENT,
    tag=ADMINISTRATOR,
    values=topic_values,
    links=topic_removal_link,
)
async def change_topic(call: HttpCall, form: Body, vhost: str, user: str, exchange: str) -> None:
    """Change the topic permissions of a page."""
    await set_topic_permission(call, vhost, user, exchange, form)


def clear_topic_command(values: Values, vhost: str, user: str, exchange: str) -> str:
    """Return the command line that removes topic permissions."""
    return command_line("permission", "topic", "clear", user, exchange, vhost=vhost)


@PAGES.action(
    TOPIC_PERMISSION_PATH,
    "Remove topic permissions of {user} on {exchange}",
    back="/topic-permissions",
    notice="Topic permissions of user {user} are removed.",
    command=clear_topic_command,
    confirm="{user}",
    parent=TOPIC_PARENT,
    button="Remove",
    danger=True,
    tag=ADMINISTRATOR,
)
async def remove_topic(call: HttpCall, form: Body, vhost: str, user: str, exchange: str) -> None:
    """Remove the topic permissions of a page."""
    await permissions.remove_topic_permission(call, vhost, user, exchange)
