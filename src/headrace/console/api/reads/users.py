# SPDX-License-Identifier: Apache-2.0
"""``/api/whoami``, ``/api/users`` and ``/api/permissions``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.rows import only
from headrace.console.http.answers import Listed
from headrace.console.http.errors import not_found
from headrace.console.http.routes import Route, by_path
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject


async def whoami(call: HttpCall) -> JsonObject:
    """Return the user of the request; one with an OAuth token is no account of the broker."""
    identity = call.identity
    return {
        "name": identity.name,
        "tags": list(identity.tags),
        "is_internal_user": not identity.by_token,
    }


async def list_users(call: HttpCall) -> Listed:
    """Return the users."""
    return Listed(await users(call), ("name",))


async def users_without_permissions(call: HttpCall) -> Listed:
    """Return the users that may open no virtual host."""
    given = {row["user"] for row in await call.rows("list permissions")}
    return Listed([row for row in await users(call) if row["name"] not in given], ("name",))


async def show_user(call: HttpCall, user: str) -> JsonObject:
    """Return one user."""
    row = await call.ask("show user", name=user)
    return user_of(row, await limits_of_users(call))


async def users(call: HttpCall) -> list[JsonObject]:
    """Return the users with the hashes of their passwords, as RabbitMQ does."""
    limits = await limits_of_users(call)
    found = await call.rows("list users", hashes=True)
    return [user_of({**row, "tags": row["tags"].split()}, limits) for row in found]


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


# --- Permissions ---------------------------------------------------------------------------------


async def list_permissions(call: HttpCall, user: str | None = None) -> Listed:
    """Return the permissions of all users, or of one."""
    return await given(call, "list permissions", user, ("vhost", "user"))


async def list_topic_permissions(call: HttpCall, user: str | None = None) -> Listed:
    """Return the topic permissions of all users, or of one."""
    return await given(call, "list topic permissions", user, ("vhost", "user", "exchange"))


async def given(call: HttpCall, do: str, user: str | None, order: tuple[str, ...]) -> Listed:
    """Return permissions of all users, or of one, who exists."""
    if user is not None:
        await call.ask("show user", name=user)
    return Listed(await call.rows(do, user=user), order)


async def show_permission(call: HttpCall, vhost: str, user: str) -> JsonObject:
    """Return the permissions of a user in a virtual host."""
    return only(await of_both(call, "list permissions", vhost, user))


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
    return only(list((await topic_permissions_of(call, vhost, user, exchange)).rows))


async def of_both(call: HttpCall, do: str, vhost: str, user: str) -> list[JsonObject]:
    """Return the rows of a user in a virtual host; both exist."""
    await call.ask("show vhost", vhost=vhost)
    await call.ask("show user", name=user)
    return await call.rows(do, vhost=vhost, user=user)


ROUTES = (
    Route("GET", "/api/whoami", whoami, MANAGEMENT, "", "The user of the request, with its tags."),
    Route("GET", "/api/users/{user}", by_path(show_user), ADMINISTRATOR, "", "One user."),
    *(
        Route("GET", path, handler, ADMINISTRATOR, "", summary, paged=True)
        for path, handler, summary in (
            ("/api/users", list_users, "The users."),
            (
                "/api/users/without-permissions",
                users_without_permissions,
                "The users that may open no virtual host.",
            ),
            (
                "/api/users/{user}/permissions",
                by_path(list_permissions),
                "The permissions of a user.",
            ),
            (
                "/api/users/{user}/topic-permissions",
                by_path(list_topic_permissions),
                "The topic permissions of a user.",
            ),
            ("/api/permissions", list_permissions, "The permissions."),
            ("/api/topic-permissions", list_topic_permissions, "The topic permissions."),
            (
                "/api/topic-permissions/{vhost}/{user}",
                by_path(topic_permissions_of),
                "The topic permissions of a user in a virtual host; 404 without any.",
            ),
            (
                "/api/topic-permissions/{vhost}/{user}/{exchange}",
                by_path(topic_permissions_of),
                "That of one exchange, as a list.",
            ),
        )
    ),
    Route(
        "GET",
        "/api/permissions/{vhost}/{user}",
        by_path(show_permission),
        ADMINISTRATOR,
        "",
        "The permissions of a user in a virtual host.",
    ),
)
