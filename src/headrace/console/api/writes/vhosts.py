# SPDX-License-Identifier: Apache-2.0
"""Virtual hosts and their limits; limits of users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.node import check_node
from headrace.console.api.common.schema_parts import TEXT
from headrace.console.api.writes.body import BOOLEAN, INTEGER, Body, schema
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import no_content, written
from headrace.console.http.errors import HttpError
from headrace.console.http.routes import Route
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

VHOST = "/api/vhosts/{vhost}"
VHOST_LIMIT = "/api/vhost-limits/{vhost}/{name}"
USER_LIMIT = "/api/user-limits/{user}/{name}"


async def put_vhost(call: HttpCall) -> object:
    """Add or change a virtual host; what the body does not have stays."""
    body = await Body.of(call)
    tags = body.texts("tags")
    fields: JsonObject = {
        name: None if body.values.get(name) is None else body.text(name)
        for name in ("description", "default_queue_type")
    }
    done = await call.ask(
        "put vhost",
        name=call.path["vhost"],
        **fields,
        tags=tags,
        tracing=body.flag("tracing"),
        protected_from_deletion=body.flag("protected_from_deletion"),
    )
    return written(done)


async def delete_vhost(call: HttpCall) -> object:
    """Delete a virtual host; 412 if it is protected."""
    try:
        await call.ask("delete vhost", name=call.path["vhost"])
    except OperationRefused as error:
        if error.code == "precondition":
            raise HttpError(412, error.text) from None
        raise
    return no_content()


async def protect(call: HttpCall) -> object:
    """Protect a virtual host from deletion."""
    return await set_protection(call, True)


async def unprotect(call: HttpCall) -> object:
    """End the protection of a virtual host from deletion."""
    return await set_protection(call, False)


async def set_protection(call: HttpCall, value: bool) -> object:
    """Protect a virtual host, which exists, or not."""
    await call.ask("show vhost", vhost=call.path["vhost"])
    await call.ask("put vhost", name=call.path["vhost"], protected_from_deletion=value)
    return no_content()


async def start_vhost(call: HttpCall) -> object:
    """Accept to start a virtual host on this node: it runs."""
    await call.ask("show vhost", vhost=call.path["vhost"])
    check_node(call)
    return no_content()


async def put_vhost_limit(call: HttpCall) -> object:
    """Set one limit of a virtual host."""
    return await put_limit(call, {"vhost": call.path["vhost"]})


async def put_user_limit(call: HttpCall) -> object:
    """Set one limit of a user."""
    return await put_limit(call, {"user": call.path["user"]})


async def put_limit(call: HttpCall, whose: JsonObject) -> object:
    """Set one limit; RabbitMQ answers 204 in any case."""
    body = await Body.of(call, "value")
    await call.ask("put limit", **whose, name=call.path["name"], value=body.number("value"))
    return no_content()


async def delete_vhost_limit(call: HttpCall) -> object:
    """Remove one limit of a virtual host."""
    return await delete_limit(call, {"vhost": call.path["vhost"]})


async def delete_user_limit(call: HttpCall) -> object:
    """Remove one limit of a user."""
    return await delete_limit(call, {"user": call.path["user"]})


async def delete_limit(call: HttpCall, whose: JsonObject) -> object:
    """Remove one limit."""
    await call.ask("delete limit", **whose, name=call.path["name"])
    return no_content()


TAGS: JsonObject = {"type": ["string", "array"], "items": TEXT}
VALUE = schema(("value",), value=INTEGER)
ROUTES = (
    Route(
        "PUT",
        VHOST,
        put_vhost,
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
        delete_vhost,
        ADMINISTRATOR,
        "",
        "Delete a virtual host with all that is in it; 412 if it is protected.",
    ),
    Route(
        "POST",
        f"{VHOST}/deletion/protection",
        protect,
        ADMINISTRATOR,
        "",
        "Protect a virtual host from deletion.",
    ),
    Route(
        "DELETE",
        f"{VHOST}/deletion/protection",
        unprotect,
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
    Route("PUT", VHOST_LIMIT, put_vhost_limit, ADMINISTRATOR, "", "Set a limit.", body=VALUE),
    Route("DELETE", VHOST_LIMIT, delete_vhost_limit, ADMINISTRATOR, "", "Remove a limit."),
    Route("PUT", USER_LIMIT, put_user_limit, ADMINISTRATOR, "", "Set a limit.", body=VALUE),
    Route("DELETE", USER_LIMIT, delete_user_limit, ADMINISTRATOR, "", "Remove a limit."),
)
