# SPDX-License-Identifier: Apache-2.0
"""Users and their permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.schema_parts import TEXT, TEXTS
from headrace.console.api.writes.body import Body, schema
from headrace.console.http.answers import written
from headrace.console.http.errors import bad_request
from headrace.console.http.routes import Route, by_path
from headrace.user_tags import ADMINISTRATOR

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


async def delete_user(call: HttpCall, user: str) -> None:
    """Delete a user."""
    await call.ask("delete user", name=user)


async def delete_users(call: HttpCall) -> None:
    """Delete several users; those that do not exist are passed over."""
    names = (await Body.of(call, "users")).names("users")
    if len(names) > BULK_MAX:
        raise bad_request(f"'users' has more than {BULK_MAX} names")
    known = {row["name"] for row in await call.rows("list users")}
    for name in names:
        if name in known:
            await call.ask("delete user", name=name)


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


async def delete_permission(call: HttpCall, vhost: str, user: str) -> None:
    """Remove the permissions of a user in a virtual host."""
    await call.ask("delete permission", vhost=vhost, user=user)


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
    """Restrict the routing keys of a user at a topic exchange; return False if they were."""
    done = await call.ask(
        "put topic permission", vhost=vhost, user=user, exchange=exchange, write=write, read=read
    )
    return bool(done["created"])


async def delete_topic_permission(
    call: HttpCall, vhost: str, user: str, exchange: str | None = None
) -> None:
    """Remove such restrictions, of one exchange or of all."""
    await call.ask("delete topic permission", vhost=vhost, user=user, exchange=exchange)


ROUTES = (
    Route(
        "PUT",
        USER,
        by_path(put_user),
        ADMINISTRATOR,
        "",
        "Add or change a user: 201 or 204.",
        body=schema(
            ("tags",), password=TEXT, password_hash=TEXT, hashing_algorithm=TEXT, tags=TAGS
        ),
    ),
    Route("DELETE", USER, by_path(delete_user), ADMINISTRATOR, "", "Delete a user."),
    Route(
        "POST",
        "/api/users/bulk-delete",
        delete_users,
        ADMINISTRATOR,
        "",
        "Delete several users.",
        body=schema(("users",), users=TEXTS),
    ),
    Route(
        "PUT",
        PERMISSION,
        by_path(put_permission),
        ADMINISTRATOR,
        "",
        "Set the permissions of a user in a virtual host.",
        body=schema(("configure", "write", "read"), configure=TEXT, write=TEXT, read=TEXT),
    ),
    Route(
        "DELETE",
        PERMISSION,
        by_path(delete_permission),
        ADMINISTRATOR,
        "",
        "Remove the permissions of a user in a virtual host.",
    ),
    *(
        Route(
            "PUT",
            path,
            by_path(put_topic_permission),
            ADMINISTRATOR,
            "",
            summary,
            body=schema(required, exchange=TEXT, write=TEXT, read=TEXT),
        )
        for path, required, summary in (
            (
                TOPIC,
                ("exchange", "write", "read"),
                "Restrict a user's routing keys at a topic exchange.",
            ),
            (
                TOPIC_OF_EXCHANGE,
                ("write", "read"),
                "Restrict a user's routing keys at the topic exchange in the path.",
            ),
        )
    ),
    *(
        Route("DELETE", path, by_path(delete_topic_permission), ADMINISTRATOR, "", summary)
        for path, summary in (
            (TOPIC, "Remove all topic permissions of a user in a virtual host."),
            (TOPIC_OF_EXCHANGE, "Remove the topic permissions of a user at one exchange."),
        )
    ),
)
