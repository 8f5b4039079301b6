# SPDX-License-Identifier: Apache-2.0
"""Users, and their permissions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.console.api import users
from headrace.console.http.routes import by_path
from headrace.console.pages.actions import Action, Field, refuse_known
from headrace.console.pages.commands import line, listed
from headrace.console.pages.details import DetailPage
from headrace.console.pages.listings import Column, Link, ListPage, everywhere
from headrace.console.pages.parts import Part
from headrace.console.pages.texts import compact, plain, segment
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.console.pages.details import Charts
    from headrace.untyped import JsonObject

USERS = ("Users", "/users")
PERMISSIONS, TOPICS = ("Permissions", "/permissions"), ("Topic permissions", "/topic-permissions")
PERMISSION_COLUMNS = (
    Column("User", "user"),
    Column("Virtual host", "vhost"),
    Column("Configure", "configure"),
    Column("Write", "write"),
    Column("Read", "read"),
)
TOPIC_COLUMNS = (*PERMISSION_COLUMNS[:2], Column("Exchange", "exchange"), *PERMISSION_COLUMNS[3:])
PATTERN = "A regular expression; it may match a part of the name unless anchored with ^ and $."
PERMISSION_FIELDS = (
    Field("configure", "Configure", help=PATTERN),
    Field("write", "Write"),
    Field("read", "Read", help="An empty pattern allows nothing."),
)
TOPIC_FIELDS = (Field("write", "Write", help=PATTERN), PERMISSION_FIELDS[-1])
TAGS = "Separated by commas: management, policymaker, monitoring, administrator, viewer."


def user_address(row: JsonObject) -> str:
    """Return the address of a user's page."""
    return f"/users/{segment(row['name'])}"


def permission_address(row: Mapping[str, str]) -> str:
    """Return the address of the page that removes permissions."""
    return f"/permissions/{segment(row['vhost'])}/{segment(row['user'])}"


def permission_form(row: JsonObject) -> str:
    """Return the address of the page that changes permissions."""
    return f"{permission_address(row)}/edit"


def topic_address(row: Mapping[str, str]) -> str:
    """Return the address of the page that removes topic permissions."""
    at = f"{segment(row['vhost'])}/{segment(row['user'])}"
    return f"/topic-permissions/{at}/{segment(row['exchange'])}"


def topic_form(row: JsonObject) -> str:
    """Return the address of the page that changes topic permissions."""
    return f"{topic_address(row)}/edit"


def user_links(call: HttpCall, row: JsonObject) -> list[Link]:
    """Return what can be done with a user."""
    at = user_address(row)
    return [
        Link("Set permissions", f"/permissions/new?user={segment(row['name'])}", ADMINISTRATOR),
        Link("Change", f"{at}/edit", ADMINISTRATOR),
        Link("Delete", f"{at}/delete", ADMINISTRATOR, danger=True),
    ]


def user_charts(row: JsonObject) -> Charts:
    """Return the charts of what a user's connections do together."""
    at = f"/charts/user/{segment(row['name'])}"
    return (
        (f"{at}/rates", "Messages/s, all connections"),
        (f"{at}/bytes", "Bytes/s, all connections"),
    )


async def user_values(call: HttpCall) -> Mapping[str, str]:
    """Return what is set for a user."""
    row = await users.show_user(call, **call.path)
    return {"tags": compact(row["tags"])}


def change_user_command(call: HttpCall, values: Values) -> str:
    """Return the commands that give a user tags, and a password where there is a new one."""
    tags = line("user", "tags", call.path["user"], *listed(values.get("tags")))
    password = line("user", "password", call.path["user"])
    return f"{tags} && {password}" if values.get("password") else tags


async def set_user(call: HttpCall, user: str, form: Body) -> None:
    """Add or change a user; without a password an existing user keeps the one it has."""
    password = form.text("password")
    await users.set_user(
        call,
        user,
        tags=form.texts("tags") or [],
        password=password,
        keep_password=None if password else True,
    )


async def add_user(call: HttpCall, form: Body) -> None:
    """Add a user."""
    name = form.text("name")
    await refuse_known(users.show_user(call, name), "the user exists")
    await set_user(call, name, form)


async def add_permission(call: HttpCall, form: Body) -> None:
    """Give permissions to a user that has none in a virtual host."""
    vhost, user = form.text("vhost"), form.text("user")
    shown = users.show_permission(call, vhost, user)
    await refuse_known(shown, "the user has permissions in the virtual host")
    await set_permission(call, vhost, user, form)


async def add_topic_permission(call: HttpCall, form: Body) -> None:
    """Restrict a user's routing keys at an exchange where they are not restricted."""
    vhost, user, exchange = (form.text(name) for name in ("vhost", "user", "exchange"))
    shown = users.show_topic_permission(call, vhost, user, exchange)
    await refuse_known(shown, "the user's routing keys are restricted at the exchange")
    await set_topic_permission(call, vhost, user, exchange, form)


async def permission_values(call: HttpCall) -> Mapping[str, str]:
    """Return the permissions that a user has."""
    row = await users.show_permission(call, **call.path)
    return {name: row[name] for name in ("configure", "write", "read")}


async def topic_values(call: HttpCall) -> Mapping[str, str]:
    """Return the topic permissions that a user has."""
    row = await users.show_topic_permission(call, **call.path)
    return {name: row[name] for name in ("write", "read")}


async def set_permission(call: HttpCall, vhost: str, user: str, form: Body) -> None:
    """Set permissions; an empty pattern allows nothing."""
    configure, write, read = (form.text(name) for name in ("configure", "write", "read"))
    await users.set_permission(call, vhost, user, configure=configure, write=write, read=read)


async def set_topic_permission(
    call: HttpCall, vhost: str, user: str, exchange: str, form: Body
) -> None:
    """Set topic permissions; an empty pattern allows nothing."""
    write, read = form.text("write"), form.text("read")
    await users.set_topic_permission(call, vhost, user, exchange, write=write, read=read)


LISTS = (
    ListPage(
        "/users",
        "Users",
        everywhere(users.list_users),
        (
            Column("Name", "name"),
            Column("Tags", "tags", "json"),
            Column("Limits", "limits", "json"),
        ),
        user_address,
        (Link("Add a user", "/users/new", ADMINISTRATOR),),
        tag=ADMINISTRATOR,
        command=line("user", "list"),
    ),
    ListPage(
        "/permissions",
        "Permissions",
        everywhere(users.list_permissions),
        PERMISSION_COLUMNS,
        permission_form,
        (Link("Set permissions", "/permissions/new", ADMINISTRATOR),),
        tag=ADMINISTRATOR,
        command=line("permission", "list"),
        searched=("user", "vhost"),
    ),
    ListPage(
        "/topic-permissions",
        "Topic permissions",
        everywhere(users.list_topic_permissions),
        TOPIC_COLUMNS,
        topic_form,
        (Link("Restrict routing keys", "/topic-permissions/new", ADMINISTRATOR),),
        tag=ADMINISTRATOR,
        about="Topic permissions restrict the routing keys of a user at a topic exchange.",
        command=line("permission", "topic", "list"),
        searched=("user", "vhost", "exchange"),
    ),
)
PAGES = (
    DetailPage(
        "/users/{user}",
        "User",
        USERS,
        by_path(users.show_user),
        lambda row: row["name"],
        (Column("Tags", "tags", "json"), Column("Limits", "limits", "json")),
        (
            Part(
                "Permissions",
                PERMISSION_COLUMNS[1:],
                by_path(users.permissions_of_user),
                link=permission_form,
            ),
            Part(
                "Topic permissions",
                TOPIC_COLUMNS[1:],
                by_path(users.topic_permissions_of_user),
                link=topic_form,
            ),
        ),
        user_links,
        user_charts,
        tag=ADMINISTRATOR,
    ),
)
ACTIONS = (
    Action(
        "/users/new",
        "Add a user",
        add_user,
        lambda call, values: f"/users/{segment(values['name'])}",
        lambda call, values: (
            f"User {plain(str(values['name']))} is added. It has no permissions yet."
        ),
        (
            Field("name", "Name", required=True),
            Field("password", "Password", "password", required=True),
            Field("tags", "Tags", help=TAGS),
        ),
        command=lambda call, values: line(
            "user", "add", values.get("name") or "NAME", tag=listed(values.get("tags"))
        ),
        parent=USERS,
        button="Add",
        tag=ADMINISTRATOR,
    ),
    Action(
        "/users/{user}/edit",
        "Change user {user}",
        lambda call, form: set_user(call, **call.path, form=form),
        lambda call, values: f"/users/{segment(call.path['user'])}",
        lambda call, values: f"User {plain(call.path['user'])} is changed.",
        (
            Field("password", "New password", "password", help="Empty: keep the current password."),
            Field("tags", "Tags", help=TAGS),
        ),
        command=change_user_command,
        parent=USERS,
        tag=ADMINISTRATOR,
        values=user_values,
    ),
    Action(
        "/users/{user}/delete",
        "Delete user {user}",
        lambda call, form: users.delete_user(call, **call.path),
        lambda call, values: "/users",
        lambda call, values: f"User {plain(call.path['user'])} is deleted.",
        command=lambda call, values: line("user", "delete", call.path["user"]),
        confirm=lambda call: plain(call.path["user"]),
        parent=USERS,
        button="Delete and close connections",
        danger=True,
        tag=ADMINISTRATOR,
    ),
    Action(
        "/permissions/new",
        "Set permissions",
        add_permission,
        lambda call, values: f"/users/{segment(values['user'])}",
        lambda call, values: f"Permissions of user {plain(str(values['user']))} are set.",
        (
            Field("user", "User", required=True),
            Field("vhost", "Virtual host", default="/", required=True),
            *(replace(one, default=".*") for one in PERMISSION_FIELDS),
        ),
        command=lambda call, values: line(
            "permission",
            "set",
            values.get("user") or "USER",
            *(values.get(one) or "" for one in ("configure", "write", "read")),
            vhost=values.get("vhost"),
        ),
        parent=PERMISSIONS,
        tag=ADMINISTRATOR,
    ),
    Action(
        "/permissions/{vhost}/{user}/edit",
        "Change permissions of {user} in {vhost}",
        lambda call, form: set_permission(call, **call.path, form=form),
        lambda call, values: f"/users/{segment(call.path['user'])}",
        lambda call, values: f"Permissions of user {plain(call.path['user'])} are changed.",
        PERMISSION_FIELDS,
        command=lambda call, values: line(
            *("permission", "set", call.path["user"]),
            *(str(values.get(one) or "") for one in ("configure", "write", "read")),
            vhost=call.path["vhost"],
        ),
        parent=PERMISSIONS,
        tag=ADMINISTRATOR,
        values=permission_values,
        links=lambda call: [
            Link("Remove", permission_address(call.path), ADMINISTRATOR, danger=True)
        ],
    ),
    Action(
        "/permissions/{vhost}/{user}",
        "Remove permissions of {user} in {vhost}",
        lambda call, form: users.delete_permission(call, **call.path),
        lambda call, values: "/permissions",
        lambda call, values: (
            f"User {plain(call.path['user'])} no longer has access to the virtual host."
        ),
        command=lambda call, values: line(
            "permission", "clear", call.path["user"], vhost=call.path["vhost"]
        ),
        confirm=lambda call: plain(call.path["user"]),
        parent=PERMISSIONS,
        button="Remove",
        danger=True,
        tag=ADMINISTRATOR,
    ),
    Action(
        "/topic-permissions/new",
        "Restrict routing keys",
        add_topic_permission,
        lambda call, values: "/topic-permissions",
        lambda call, values: f"Topic permissions of user {plain(str(values['user']))} are set.",
        (
            Field("user", "User", required=True),
            Field("vhost", "Virtual host", default="/", required=True),
            Field("exchange", "Exchange", default="amq.topic"),
            *(replace(one, default=".*") for one in TOPIC_FIELDS),
        ),
        command=lambda call, values: line(
            *(
                "permission",
                "topic",
                "set",
                values["user"] or "USER",
                values["exchange"] or "amq.topic",
            ),
            *(values["write"] or ".*", values["read"] or ".*"),
            vhost=values["vhost"],
        ),
        parent=TOPICS,
        tag=ADMINISTRATOR,
    ),
    Action(
        "/topic-permissions/{vhost}/{user}/{exchange}/edit",
        "Change topic permissions of {user} on {exchange}",
        lambda call, form: set_topic_permission(call, **call.path, form=form),
        lambda call, values: "/topic-permissions",
        lambda call, values: f"Topic permissions of user {plain(call.path['user'])} are changed.",
        TOPIC_FIELDS,
        command=lambda call, values: line(
            *("permission", "topic", "set", call.path["user"], call.path["exchange"]),
            *(str(values.get(one) or "") for one in ("write", "read")),
            vhost=call.path["vhost"],
        ),
        parent=TOPICS,
        tag=ADMINISTRATOR,
        values=topic_values,
        links=lambda call: [Link("Remove", topic_address(call.path), ADMINISTRATOR, danger=True)],
    ),
    Action(
        "/topic-permissions/{vhost}/{user}/{exchange}",
        "Remove topic permissions of {user} on {exchange}",
        lambda call, form: users.delete_topic_permission(call, **call.path),
        lambda call, values: "/topic-permissions",
        lambda call, values: f"Topic permissions of user {plain(call.path['user'])} are removed.",
        confirm=lambda call: plain(call.path["user"]),
        command=lambda call, values: line(
            *("permission", "topic", "clear", call.path["user"], call.path["exchange"]),
            vhost=call.path["vhost"],
        ),
        parent=TOPICS,
        button="Remove",
        danger=True,
        tag=ADMINISTRATOR,
    ),
)
