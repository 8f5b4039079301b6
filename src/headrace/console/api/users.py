# SPDX-License-Identifier: Apache-2.0
"""``/api/users`` and ``/api/whoami``; :mod:`.permissions` has the permissions of users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import Body, schema
from headrace.console.api.common.schemas import FLAG, OBJECT, TEXT, TEXTS, record
from headrace.console.broker.lists import HASHED_USERS, PERMISSIONS, USER_LIMITS, USERS
from headrace.console.http.answers import RowList, created_or_no_content
from headrace.console.http.routes import Routes
from headrace.console.http_errors import bad_request
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

USER = "/api/users/{user}"
BULK_MAX = 10_000  # Users deleted by one request.
TAGS: JsonObject = {"type": ["string", "array"], "items": TEXT}
USER_SCHEMA = record(
    name=TEXT, tags=TEXTS, password_hash=TEXT, hashing_algorithm=TEXT, limits=OBJECT
)
WHOAMI_SCHEMA = record(name=TEXT, tags=TEXTS, is_internal_user=FLAG)
ROUTES = Routes()


@ROUTES.get(
    {"/api/whoami": "The user of the request, with its tags."}, tag=MANAGEMENT, answer=WHOAMI_SCHEMA
)
async def show_whoami(call: HttpCall) -> JsonObject:
    """Return the user of the request; a user with an OAuth token has no account."""
    identity = call.identity
    return {
        "name": identity.name,
        "tags": list(identity.tags),
        "is_internal_user": not identity.by_token,
    }


@ROUTES.get({USER: "One user."}, tag=ADMINISTRATOR, answer=USER_SCHEMA)
async def show_user(call: HttpCall, user: str) -> JsonObject:
    """Return one user."""
    row = await call.broker.ask("show user", name=user)
    return describe_user(row, await read_user_limits(call))


@ROUTES.get_list({"/api/users": "The users."}, rows=USER_SCHEMA, tag=ADMINISTRATOR)
async def list_users(call: HttpCall) -> RowList:
    """Return the users."""
    return RowList(await user_rows(call), ("name",))


@ROUTES.get_list(
    {"/api/users/without-permissions": "The users without permissions in any virtual host."},
    rows=USER_SCHEMA,
    tag=ADMINISTRATOR,
)
async def list_users_without_permissions(call: HttpCall) -> RowList:
    """Return the users without permissions in any virtual host."""
    permitted = {row["user"] for row in await call.broker.rows(PERMISSIONS)}
    return RowList(
        [row for row in await user_rows(call) if row["name"] not in permitted], ("name",)
    )


async def user_rows(call: HttpCall) -> list[JsonObject]:
    """Return the users with the hashes of their passwords, as RabbitMQ does."""
    limits = await read_user_limits(call)
    rows = await call.broker.rows(HASHED_USERS)
    return [describe_user({**row, "tags": row["tags"].split()}, limits) for row in rows]


async def read_user_limits(call: HttpCall) -> JsonObject:
    """Return the limits of users, by name."""
    return {row["user"]: row["value"] for row in await call.broker.rows(USER_LIMITS)}


def describe_user(row: JsonObject, limits: JsonObject) -> JsonObject:
    """Return a user as RabbitMQ describes it."""
    return {
        "name": row["name"],
        "password_hash": row.get("password_hash", ""),
        "hashing_algorithm": row.get("hashing_algorithm", ""),
        "tags": row["tags"],
        "limits": limits.get(row["name"], {}),
    }


@ROUTES.put(
    {USER: "Add or change a user: 201 or 204."},
    tag=ADMINISTRATOR,
    body=schema(("tags",), password=TEXT, password_hash=TEXT, hashing_algorithm=TEXT, tags=TAGS),
)
async def put_user(call: HttpCall, user: str) -> Answer:
    """Add or change a user; without a password or its hash, no password logs the user in."""
    body = await Body.read(call)
    is_new = await set_user(
        call,
        user,
        tags=body.texts("tags"),
        password=body.text("password"),
        password_hash=body.text("password_hash"),
        hashing_algorithm=body.text("hashing_algorithm"),
    )
    return created_or_no_content(is_new=is_new)


async def set_user(
    call: HttpCall,
    user: str,
    *,
    tags: list[str] | None,
    password: str = "",
    password_hash: str = "",
    hashing_algorithm: str = "",
    keep_password: bool | None = None,
) -> bool:
    """Add or change a user; return False if the user exists.

    A password or its hash replaces the present password, ``keep_password`` keeps it; without any of
    these, no password logs the user in.
    """
    done = await call.broker.ask(
        "put user",
        name=user,
        tags=tags,
        password=password or None,
        password_hash=password_hash or None,
        hashing_algorithm=hashing_algorithm or None,
        keep_password=keep_password,
    )
    return bool(done["created"])


@ROUTES.delete({USER: "Delete a user."}, tag=ADMINISTRATOR)
async def remove_user(call: HttpCall, user: str) -> None:
    """Delete a user."""
    await call.broker.ask("delete user", name=user)


@ROUTES.post(
    {"/api/users/bulk-delete": "Delete several users."},
    tag=ADMINISTRATOR,
    body=schema(("users",), users=TEXTS),
)
async def post_bulk_delete(call: HttpCall) -> None:
    """Delete several users; unknown names are ignored."""
    names = (await Body.read(call)).names("users")
    if len(names) > BULK_MAX:
        raise bad_request(f"'users' has more than {BULK_MAX} names")
    existing = {row["name"] for row in await call.broker.rows(USERS)}
    for name in names:
        if name in existing:
            await call.broker.ask("delete user", name=name)
