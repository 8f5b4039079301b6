# SPDX-License-Identifier: Apache-2.0
"""``/api/users`` and ``/api/permissions``: who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import Body, schema
from headrace.console.api.common.rows import only
from headrace.console.api.common.schema_parts import TEXT, TEXTS
from headrace.console.http.answers import Listed, written
from headrace.console.http.errors import bad_request, not_found
from headrace.console.http.routes import Routes
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

USER = "/api/users/{user}"
PERMISSION = "/api/permissions/{vhost}/{user}"
TOPIC = "/api/topic-permissions/{vhost}/{user}"
TOPIC_OF_EXCHANGE = f"{TOPIC}/{{exchange}}"
BULK_MAX = 10_000  # Users deleted by one request.
TAGS: JsonObject = {"type": ["string", "array"], "items": TEXT}
BY_VHOST, BY_EXCHANGE = ("vhost", "user"), ("vhost", "user", "exchange")
ROUTES = Routes()


@ROUTES.get({"/api/whoami": "The user of the request, with its tags."}, tag=MANAGEMENT)
async def whoami(call: HttpCall) -> JsonObject:
    """Return the user of the request; one with an OAuth token is no account of the broker."""
    identity = call.identity
    return {
        "name": identity.name,
        "tags": list(identity.tags),
        "is_internal_user": not identity.by_token,
    }


# --- Users ---------------------------------------------------------------------------------------


@ROUTES.get({USER: "One user."}, tag=ADMINISTRATOR)
async def show_user(call: HttpCall, user: str) -> JsonObject:
    """Return one user."""
    row = await call.ask("show user", name=user)
    return user_of(row, await limits_of_users(call))


@ROUTES.get({"/api/users": "The users."}, tag=ADMINISTRATOR, paged=True)
async def list_users(call: HttpCall) -> Listed:
    """Return the users."""
    return Listed(await users(call), ("name",))


@ROUTES.get(
    {"/api/users/without-permissions": "The users that may open no virtual host."},
    tag=ADMINISTRATOR,
    paged=True,
)
async def users_without_permissions(call: HttpCall) -> Listed:
    """Return the users that may open no virtual host."""
    given = {row["user"] for row in await call.rows("list permissions")}
    return Listed([row for row in await users(call) if row["name"] not in given], ("name",))


async def users(call: HttpCall) -> list[JsonObject]:
    """Return the users with the hashes of their passwords, as RabbitMQ does."""
    limits = await limits_of_users(call)
    rows = await call.rows("list users", hashes=True)
    return [user_of({**row, "tags": row["tags"].split()}, limits) for row in rows]


async def limits_of_users(call: HttpCall) -> JsonObject:
    """Return the limits of users, by name."""
    return {row["user"]: row["value"] for row in await call.rows("list limits", of="users")}


def user_of(row: JsonObject, limits: JsonObject) -> JsonObject:
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
    """Add or change a user. Without a password, or with its hash "", there is no login by one."""
    body = await Body.of(call, "tags")
    is_new = await set_user(
        call,
        user,
        tags=body.texts("tags"),
        password=body.text("password"),
        password_hash=body.text("password_hash"),
        hashing_algorithm=body.text("hashing_algorithm"),
    )
    return written(is_new=is_new)


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
    """Add or change a user, with a password, its hash, the one it has, or none.

    Return False if the user exists.
    """
    done = await call.ask(
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
async def delete_user(call: HttpCall, user: str) -> None:
    """Delete a user."""
    await call.ask("delete user", name=user)


@ROUTES.post(
    {"/api/users/bulk-delete": "Delete several users."},
    tag=ADMINISTRATOR,
    body=schema(("users",), users=TEXTS),
)
async def delete_users(call: HttpCall) -> None:
    """Delete several users; those that do not exist are passed over."""
    names = (await Body.of(call, "users")).names("users")
    if len(names) > BULK_MAX:
        raise bad_request(f"'users' has more than {BULK_MAX} names")
    known = {row["name"] for row in await call.rows("list users")}
    for name in names:
        if name in known:
            await call.ask("delete user", name=name)


# --- Permissions ---------------------------------------------------------------------------------


@ROUTES.get({f"{USER}/permissions": "The permissions of a user."}, tag=ADMINISTRATOR, paged=True)
async def permissions_of_user(call: HttpCall, user: str) -> Listed:
    """Return the permissions of a user, who exists."""
    return await of_user(call, "list permissions", user, BY_VHOST)


@ROUTES.get(
    {f"{USER}/topic-permissions": "The topic permissions of a user."}, tag=ADMINISTRATOR, paged=True
)
async def topic_permissions_of_user(call: HttpCall, user: str) -> Listed:
    """Return the topic permissions of a user, who exists."""
    return await of_user(call, "list topic permissions", user, BY_EXCHANGE)


async def of_user(call: HttpCall, do: str, user: str, order: tuple[str, ...]) -> Listed:
    """Return the rows of a user, who exists."""
    await call.ask("show user", name=user)
    return Listed(await call.rows(do, user=user), order)


@ROUTES.get({"/api/permissions": "The permissions."}, tag=ADMINISTRATOR, paged=True)
async def list_permissions(call: HttpCall) -> Listed:
    """Return the permissions of all users."""
    return Listed(await call.rows("list permissions"), BY_VHOST)


@ROUTES.get({"/api/topic-permissions": "The topic permissions."}, tag=ADMINISTRATOR, paged=True)
async def list_topic_permissions(call: HttpCall) -> Listed:
    """Return the topic permissions of all users."""
    return Listed(await call.rows("list topic permissions"), BY_EXCHANGE)


@ROUTES.get(
    {
        TOPIC: "The topic permissions of a user in a virtual host; 404 without any.",
        TOPIC_OF_EXCHANGE: "That of one exchange, as a list.",
    },
    tag=ADMINISTRATOR,
    paged=True,
)
async def topic_permissions_of(
    call: HttpCall, vhost: str, user: str, exchange: str | None = None
) -> Listed:
    """Return the topic permissions of a user in a virtual host, of all exchanges or of one.

    Raises:
        HttpError: there are none.
    """
    rows = await of_both(call, "list topic permissions", vhost, user)
    if exchange is not None:
        rows = [row for row in rows if row["exchange"] == exchange]
    if not rows:  # As RabbitMQ: clients look whether what they removed is gone.
        raise not_found()
    return Listed(rows, ("exchange",))


async def show_topic_permission(call: HttpCall, vhost: str, user: str, exchange: str) -> JsonObject:
    """Return the topic permissions of a user at an exchange.

    Raises:
        HttpError: there are none.
    """
    return (await topic_permissions_of(call, vhost, user, exchange)).rows[0]


@ROUTES.get({PERMISSION: "The permissions of a user in a virtual host."}, tag=ADMINISTRATOR)
async def show_permission(call: HttpCall, vhost: str, user: str) -> JsonObject:
    """Return the permissions of a user in a virtual host."""
    return only(await of_both(call, "list permissions", vhost, user))


async def of_both(call: HttpCall, do: str, vhost: str, user: str) -> list[JsonObject]:
    """Return the rows of a user in a virtual host; both exist."""
    await call.ask("show vhost", vhost=vhost)
    await call.ask("show user", name=user)
    return await call.rows(do, vhost=vhost, user=user)


@ROUTES.put(
    {PERMISSION: "Set the permissions of a user in a virtual host."},
    tag=ADMINISTRATOR,
    body=schema(("configure", "write", "read"), configure=TEXT, write=TEXT, read=TEXT),
)
async def put_permission(call: HttpCall, vhost: str, user: str) -> Answer:
    """Set the permissions of a user in a virtual host."""
    body = await Body.of(call, "configure", "write", "read")
    configure, write, read = (body.text(name) for name in ("configure", "write", "read"))
    is_new = await set_permission(call, vhost, user, configure=configure, write=write, read=read)
    return written(is_new=is_new)


async def set_permission(
    call: HttpCall, vhost: str, user: str, *, configure: str, write: str, read: str
) -> bool:
    """Set the permissions of a user in a virtual host; return False if the user had some."""
    done = await call.ask(
        "put permission", vhost=vhost, user=user, configure=configure, write=write, read=read
    )
    return bool(done["created"])


@ROUTES.delete(
    {PERMISSION: "Remove the permissions of a user in a virtual host."}, tag=ADMINISTRATOR
)
async def delete_permission(call: HttpCall, vhost: str, user: str) -> None:
    """Remove the permissions of a user in a virtual host."""
    await call.ask("delete permission", vhost=vhost, user=user)


@ROUTES.put(
    {TOPIC: "Restrict a user's routing keys at a topic exchange."},
    tag=ADMINISTRATOR,
    body=schema(("exchange", "write", "read"), exchange=TEXT, write=TEXT, read=TEXT),
)
@ROUTES.put(
    {TOPIC_OF_EXCHANGE: "Restrict a user's routing keys at the topic exchange in the path."},
    tag=ADMINISTRATOR,
    body=schema(("write", "read"), exchange=TEXT, write=TEXT, read=TEXT),
)
async def put_topic_permission(
    call: HttpCall, vhost: str, user: str, exchange: str | None = None
) -> Answer:
    """Restrict the routing keys of a user at a topic exchange, of the path or of the body."""
    body = await Body.of(call, *(("exchange",) if exchange is None else ()), "write", "read")
    name = body.text("exchange", exchange or "")
    if exchange not in (None, name):
        raise bad_request("'exchange' in the body differs from the one in the path")
    write, read = body.text("write"), body.text("read")
    is_new = await set_topic_permission(call, vhost, user, name, write=write, read=read)
    return written(is_new=is_new)


async def set_topic_permission(
    call: HttpCall, vhost: str, user: str, exchange: str, *, write: str, read: str
) -> bool:
    """Restrict the routing keys of a user at a topic exchange; return False if they had been."""
    done = await call.ask(
        "put topic permission", vhost=vhost, user=user, exchange=exchange, write=write, read=read
    )
    return bool(done["created"])


@ROUTES.delete(
    {
        TOPIC: "Remove all topic permissions of a user in a virtual host.",
        TOPIC_OF_EXCHANGE: "Remove the topic permissions of a user at one exchange.",
    },
    tag=ADMINISTRATOR,
)
async def delete_topic_permission(
    call: HttpCall, vhost: str, user: str, exchange: str | None = None
) -> None:
    """Remove such restrictions, of one exchange or of all."""
    await call.ask("delete topic permission", vhost=vhost, user=user, exchange=exchange)
