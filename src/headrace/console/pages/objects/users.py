# SPDX-License-Identifier: Apache-2.0
"""The pages of users: their list, one user, and adding, changing or deleting one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import permissions, users
from headrace.console.http.routes import by_path
from headrace.console.pages.actions import Field, refuse_existing
from headrace.console.pages.columns import Column, omit_columns
from headrace.console.pages.command_lines import command_line, split_words
from headrace.console.pages.details import DetailPage
from headrace.console.pages.inner_tables import InnerTable
from headrace.console.pages.links import FormAddress, Link, path_to
from headrace.console.pages.listings import GlobalRows, ListPage
from headrace.console.pages.objects.permissions import (
    PERMISSION_COLUMNS,
    TOPIC_PERMISSION_COLUMNS,
    permission_form_address,
    topic_form_address,
)
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import compact, segment
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.console.pages.links import Charts
    from headrace.untyped import JsonObject

PARENT = ("Users", "/users")
DETAIL_PATH = "/users/{user}"
TAGS = "Separated by commas: management, policymaker, monitoring, administrator, viewer."
PAGES = ResourcePages()


def user_address(row: JsonObject) -> str:
    """Return the address of a user's page."""
    return path_to("users", row["name"])


def user_links(call: HttpCall, row: JsonObject) -> list[Link]:
    """Return the links of a user's page."""
    address = user_address(row)
    return [
        Link("Set permissions", f"/permissions/new?user={segment(row['name'])}", ADMINISTRATOR),
        Link("Change", f"{address}/edit", ADMINISTRATOR),
        Link("Delete", f"{address}/delete", ADMINISTRATOR, danger=True),
    ]


def user_charts(row: JsonObject) -> Charts:
    """Return the charts of the sums of a user's connections."""
    address = path_to("charts", "user", row["name"])
    return (
        (f"{address}/rates", "Messages/s, all connections"),
        (f"{address}/bytes", "Bytes/s, all connections"),
    )


PAGES.add(
    ListPage(
        path="/users",
        title="Users",
        rows=GlobalRows(users.list_users),
        columns=(
            Column("Name", "name"),
            Column("Tags", "tags", "json"),
            Column("Limits", "limits", "json"),
        ),
        row_address=user_address,
        actions=(Link("Add a user", "/users/new", ADMINISTRATOR),),
        tag=ADMINISTRATOR,
        command=command_line("user", "list"),
    ),
    DetailPage(
        path=DETAIL_PATH,
        kind="User",
        parent=PARENT,
        show_object=by_path(users.show_user),
        facts=(Column("Tags", "tags", "json"), Column("Limits", "limits", "json")),
        tables=(
            InnerTable(
                "Permissions",
                omit_columns(PERMISSION_COLUMNS, "User"),
                by_path(permissions.list_permissions_of_user),
                row_address=FormAddress(permission_form_address, ADMINISTRATOR),
            ),
            InnerTable(
                "Topic permissions",
                omit_columns(TOPIC_PERMISSION_COLUMNS, "User"),
                by_path(permissions.list_topic_permissions_of_user),
                row_address=FormAddress(topic_form_address, ADMINISTRATOR),
            ),
        ),
        links=user_links,
        charts=user_charts,
        tag=ADMINISTRATOR,
    ),
)


async def set_user(call: HttpCall, user: str, form: Body) -> None:
    """Add or change the user of a form; with an empty password a user keeps the present one."""
    password = form.text("password")
    await users.set_user(
        call,
        user,
        tags=form.texts("tags") or [],
        password=password,
        keep_password=None if password else True,
    )


def add_command(values: Values) -> str:
    """Return the command line that adds a user."""
    name, tags = values.get("name") or "NAME", split_words(values.get("tags"))
    return command_line("user", "add", name, tag=tags)


@PAGES.action(
    "/users/new",
    "Add a user",
    back="/users/{name}",
    notice="User {name} is added. It has no permissions yet.",
    command=add_command,
    fields=(
        Field("name", "Name", required=True),
        Field("password", "Password", "password", required=True),
        Field("tags", "Tags", help=TAGS),
    ),
    parent=PARENT,
    button="Add",
    tag=ADMINISTRATOR,
)
async def add(call: HttpCall, form: Body) -> None:
    """Add a user."""
    name = form.text("name")
    await refuse_existing(users.show_user(call, name), "the user exists")
    await set_user(call, name, form)


async def user_values(call: HttpCall, user: str) -> Mapping[str, str]:
    """Return the tags of a user."""
    row = await users.show_user(call, user)
    return {"tags": compact(row["tags"])}


def change_command(values: Values, user: str) -> str:
    """Return the command lines that set the tags of a user, and a new password if there is one."""
    tags_line = command_line("user", "tags", user, *split_words(values.get("tags")))
    password_line = command_line("user", "password", user)
    return f"{tags_line} && {password_line}" if values.get("password") else tags_line


@PAGES.action(
    f"{DETAIL_PATH}/edit",
    "Change user {user}",
    back=DETAIL_PATH,
    notice="User {user} is changed.",
    command=change_command,
    fields=(
        Field("password", "New password", "password", help="Empty: keep the current password."),
        Field("tags", "Tags", help=TAGS),
    ),
    parent=PARENT,
    tag=ADMINISTRATOR,
    values=user_values,
)
async def change(call: HttpCall, form: Body, user: str) -> None:
    """Change the user of a page."""
    await set_user(call, user, form)


def delete_command(values: Values, user: str) -> str:
    """Return the command line that deletes a user."""
    return command_line("user", "delete", user)


@PAGES.action(
    f"{DETAIL_PATH}/delete",
    "Delete user {user}",
    back="/users",
    notice="User {user} is deleted.",
    command=delete_command,
    confirm="{user}",
    parent=PARENT,
    button="Delete and close connections",
    danger=True,
    tag=ADMINISTRATOR,
)
async def delete(call: HttpCall, form: Body, user: str) -> None:
    """Delete the user of a page."""
    await users.remove_user(call, user)
