# SPDX-License-Identifier: Apache-2.0
"""Virtual hosts and their limits; limits of users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.node import check_node
from headrace.console.api.common.schema_parts import TEXT
from headrace.console.api.writes.body import BOOLEAN, INTEGER, Body, schema
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import written
from headrace.console.http.errors import HttpError
from headrace.console.http.routes import Route, by_path
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

VHOST = "/api/vhosts/{vhost}"
VHOST_LIMIT = "/api/vhost-limits/{vhost}/{name}"
USER_LIMIT = "/api/user-limits/{user}/{name}"


async def put_vhost(call: HttpCall, vhost: str) -> Answer:
    """Add or change a virtual host; what the body does not have stays."""
    body = await Body.of(call)
    tags = body.texts("tags")
    description, default_queue_type = (
        None if body.values.get(name) is None else body.text(name)
        for name in ("description", "default_queue_type")
    )
    is_new = await set_vhost(
        call,
        vhost,
        description=description,
        tags=tags,
        default_queue_type=default_queue_type,
        tracing=body.flag("tracing"),
        protected_from_deletion=body.flag("protected_from_deletion"),
    )
    return written(is_new=is_new)


async def set_vhost(
    call: HttpCall,
    vhost: str,
    *,
    description: str | None,
    tags: list[str] | None,
    default_queue_type: str | None,
    tracing: bool | None,
    protected_from_deletion: bool | None,
) -> bool:
    """Add or change a virtual host; what is None stays. Return False if it exists."""
    done = await call.ask(
        "put vhost",
        name=vhost,
        description=description,
        default_queue_type=default_queue_type,
        tags=tags,
        tracing=tracing,
        protected_from_deletion=protected_from_deletion,
    )
    return bool(done["created"])


async def delete_vhost(call: HttpCall, vhost: str) -> None:
    """Delete a virtual host; 412 if it is protected."""
    try:
        await call.ask("delete vhost", name=vhost)
    except OperationRefused as error:
        if error.code == "precondition":
            raise HttpError(412, error.text) from None
        raise


async def protect(call: HttpCall, vhost: str) -> None:
    """Protect a virtual host from deletion."""
    await set_protection(call, vhost, True)


async def unprotect(call: HttpCall, vhost: str) -> None:
    """End the protection of a virtual host from deletion."""
    await set_protection(call, vhost, False)


async def set_protection(call: HttpCall, vhost: str, value: bool) -> None:
    """Protect a virtual host, which exists, or not."""
    await call.ask("show vhost", vhost=vhost)
    await call.ask("put vhost", name=vhost, protected_from_deletion=value)


async def start_vhost(call: HttpCall) -> None:
    """Accept to start a virtual host on this node: it runs."""
    await call.ask("show vhost", vhost=call.path["vhost"])
    check_node(call)


async def put_vhost_limit(call: HttpCall, vhost: str, name: str) -> None:
    """Set one limit of a virtual host; RabbitMQ answers 204 in any case."""
    await set_limit(call, name, await limit_in(call), vhost=vhost)


async def put_user_limit(call: HttpCall, user: str, name: str) -> None:
    """Set one limit of a user; RabbitMQ answers 204 in any case."""
    await set_limit(call, name, await limit_in(call), user=user)


async def limit_in(call: HttpCall) -> int | None:
    """Return the limit that a body has."""
    return (await Body.of(call, "value")).number("value")


async def set_limit(
    call: HttpCall,
    name: str,
    value: int | None,
    *,
    vhost: str | None = None,
    user: str | None = None,
) -> None:
    """Set one limit of a virtual host or of a user."""
    await call.ask("put limit", vhost=vhost, user=user, name=name, value=value)


async def delete_limit(
    call: HttpCall, name: str, vhost: str | None = None, user: str | None = None
) -> None:
    """Remove one limit of a virtual host or of a user."""
    await call.ask("delete limit", vhost=vhost, user=user, name=name)


TAGS: JsonObject = {"type": ["string", "array"], "items": TEXT}
VALUE = schema(("value",), value=INTEGER)
ROUTES = (
    Route(
        "PUT",
        VHOST,
        by_path(put_vhost),
        ADMINISTRATOR,
        "",
        "Add or change a virtual host: 201 or 204.",
        body=schema(
            description=TEXT,
            tags=TAGS,
            default_queue_type=TEXT,
            tracing=BOOLEAN,
            protected_from_deletion=BOOLEAN,
        ),
    ),
    Route(
        "DELETE",
        VHOST,
        by_path(delete_vhost),
        ADMINISTRATOR,
        "",
        "Delete a virtual host with all that is in it; 412 if it is protected.",
    ),
    Route(
        "POST",
        f"{VHOST}/deletion/protection",
        by_path(protect),
        ADMINISTRATOR,
        "",
        "Protect a virtual host from deletion.",
    ),
    Route(
        "DELETE",
        f"{VHOST}/deletion/protection",
        by_path(unprotect),
        ADMINISTRATOR,
        "",
        "End the protection of a virtual host from deletion.",
    ),
    Route(
        "POST",
        f"{VHOST}/start/{{node}}",
        start_vhost,
        ADMINISTRATOR,
        "",
        "204: the virtual hosts of the one node run.",
    ),
    *(
        route
        for path, put in (
            (VHOST_LIMIT, by_path(put_vhost_limit)),
            (USER_LIMIT, by_path(put_user_limit)),
        )
        for route in (
            Route("PUT", path, put, ADMINISTRATOR, "", "Set a limit.", body=VALUE),
            Route("DELETE", path, by_path(delete_limit), ADMINISTRATOR, "", "Remove a limit."),
        )
    ),
)
