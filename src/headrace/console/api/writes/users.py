# SPDX-License-Identifier: Apache-2.0
"""Users and their permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.schema_parts import TEXT, TEXTS
from headrace.console.api.writes.body import Body, schema
from headrace.console.http.answers import no_content, written
from headrace.console.http.errors import bad_request
from headrace.console.http.routes import Route
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

USER = "/api/users/{user}"
PERMISSION = "/api/permissions/{vhost}/{user}"
TOPIC = "/api/topic-permissions/{vhost}/{user}"
TOPIC_OF_EXCHANGE = f"{TOPIC}/{{exchange}}"
BULK_MAX = 10_000  # Users deleted by one request.
TAGS: JsonObject = {"type": ["string", "array"], "items": TEXT}


async def put_user(call: HttpCall) -> object:
    """Add or change a user. Without a password, or with its hash "", there is no login by one."""
    body = await Body.of(call, "tags")
    done = await call.ask(
        "put user",
        name=call.path["user"],
        tags=body.texts("tags"),
        password=body.text("password") or None,
        password_hash=body.text("password_hash") or None,
        hashing_algorithm=body.text("hashing_algorithm") or None,
    )
    return written(done)


async def delete_user(call: HttpCall) -> object:
    """Delete a user."""
    await call.ask("delete user", name=call.path["user"])
    return no_content()


async def delete_users(call: HttpCall) -> object:
    """Delete several users; those that do not exist are passed over."""
    names = (await Body.of(call, "users")).names("users")
    if len(names) > BULK_MAX:
        raise bad_request(f"'users' has more than {BULK_MAX} names")
    known = {row["name"] for row in await call.rows("list users")}
    for name in names:
        if name in known:
            await call.ask("delete user", name=name)
    return no_content()


async def put_permission(call: HttpCall) -> object:
    """Set the permissions of a user in a virtual host."""
    body = await Body.of(call, "configure", "write", "read")
    given: JsonObject = {name: body.text(name) for name in ("configure", "write", "read")}
    done = await call.ask("put permission", **of_both(call), **given)
    return written(done)


async def delete_permission(call: HttpCall) -> object:
    """Remove the permissions of a user in a virtual host."""
    await call.ask("delete permission", **of_both(call))
    return no_content()


async def put_topic_permission(call: HttpCall) -> object:
    """Restrict the routing keys of a user at a topic exchange, of the path or of the body."""
    in_path = call.path.get("exchange")
    body = await Body.of(call, *(("exchange",) if in_path is None else ()), "write", "read")
    exchange = body.text("exchange", in_path or "")
    if in_path not in (None, exchange):
        raise bad_request("'exchange' in the body differs from the one in the path")
    given: JsonObject = {name: body.text(name) for name in ("write", "read")}
    given["exchange"] = exchange
    done = await call.ask("put topic permission", **of_both(call), **given)
    return written(done)


async def delete_topic_permission(call: HttpCall) -> object:
    """Remove such restrictions, of one exchange or of all."""
    await call.ask("delete topic permission", **of_both(call), exchange=call.path.get("exchange"))
    return no_content()


def of_both(call: HttpCall) -> JsonObject:
    """Return the virtual host and the user of a path."""
    return {"vhost": call.path["vhost"], "user": call.path["user"]}


ROUTES = (
    Route(
        "PUT",
        USER,
        put_user,
        ADMINISTRATOR,
        "",
        "Add or change a user: 201 or 204.",
        body=schema(
            ("tags",), password=TEXT, password_hash=TEXT, hashing_algorithm=TEXT, tags=TAGS
        ),
    ),
    Route("DELETE", USER, delete_user, ADMINISTRATOR, "", "Delete a user."),
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
        put_permission,
        ADMINISTRATOR,
        "",
        "Set the permissions of a user in a virtual host.",
        body=schema(("configure", "write", "read"), configure=TEXT, write=TEXT, read=TEXT),
    ),
    Route(
        "DELETE",
        PERMISSION,
        delete_permission,
        ADMINISTRATOR,
        "",
        "Remove the permissions of a user in a virtual host.",
    ),
    *(
        Route(
            "PUT",
            path,
            put_topic_permission,
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
        Route("DELETE", path, delete_topic_permission, ADMINISTRATOR, "", summary)
        for path, summary in (
            (TOPIC, "Remove all topic permissions of a user in a virtual host."),
            (TOPIC_OF_EXCHANGE, "Remove the topic permissions of a user at one exchange."),
        )
    ),
)
