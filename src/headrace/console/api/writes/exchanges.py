# SPDX-License-Identifier: Apache-2.0
"""Declaring and deleting exchanges and bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from headrace.console.api.common.schema_parts import TEXT
from headrace.console.api.reads.exchanges import (
    DESTINATIONS,
    between,
    digest_in,
    exchange_in,
    properties_key,
    same_key,
)
from headrace.console.api.writes.body import BOOLEAN, TABLE, Body, asked, schema
from headrace.console.http.answers import created, no_content, written
from headrace.console.http.errors import HttpError, not_found
from headrace.console.http.routes import Parameter, Route
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

EXCHANGE = "/api/exchanges/{vhost}/{exchange}"
BINDINGS = "/api/bindings/{vhost}/e/{source}/{kind}/{destination}"
CONFIGURE = "configure on the exchange"
BINDS = "write on the destination, read on the source"


def named(call: HttpCall) -> str:
    """Return the name of the exchange in the path.

    Raises:
        HttpError: it is the default exchange.
    """
    name = exchange_in(call, "exchange")
    if not name:
        raise HttpError(401, "operation not permitted on the default exchange")
    return name


async def put_exchange(call: HttpCall) -> object:
    """Declare an exchange; 204 if one with the same attributes exists."""
    body = await Body.of(call)
    done = await call.ask(
        "declare exchange",
        vhost=call.path["vhost"],
        name=named(call),
        type=body.text("type", "direct"),
        durable=body.flag("durable"),
        auto_delete=body.flag("auto_delete"),
        internal=body.flag("internal"),
        arguments=body.table("arguments"),
    )
    return written(done)


async def delete_exchange(call: HttpCall) -> object:
    """Delete an exchange; with ``if-unused`` only one without bindings."""
    await call.ask(
        "delete exchange",
        vhost=call.path["vhost"],
        name=named(call),
        if_unused=asked(call, "if-unused"),
    )
    return no_content()


async def post_binding(call: HttpCall) -> object:
    """Bind a queue or exchange; ``Location`` ends with the properties key of the binding."""
    body = await Body.of(call)
    done = await call.ask(
        "bind",
        **ends(call),
        routing_key=body.text("routing_key"),
        arguments=body.table("arguments"),
    )
    key = properties_key(done["routing_key"], done["arguments_digest"])
    return created(f"{quote(call.path['destination'], safe='')}/{key}")


async def delete_binding(call: HttpCall) -> object:
    """Remove the binding with a properties key."""
    wanted = call.path["properties_key"]
    for row in await between(call):
        if same_key(row["properties_key"], wanted):
            await call.ask(
                "unbind",
                **ends(call),
                routing_key=row["routing_key"],
                arguments_digest=digest_in(row["properties_key"]),
            )
            return no_content()
    raise not_found()


def ends(call: HttpCall) -> JsonObject:
    """Return the source and destination of a binding in a path.

    Raises:
        HttpError: the path has another kind of destination.
    """
    kind = DESTINATIONS.get(call.path["kind"])
    if kind is None:
        raise not_found("Not Found")
    return {
        "vhost": call.path["vhost"],
        "source": exchange_in(call, "source"),
        "kind": kind,
        "destination": call.path["destination"],
    }


ROUTES = (
    Route(
        "PUT",
        EXCHANGE,
        put_exchange,
        MANAGEMENT,
        CONFIGURE,
        "Declare an exchange: 201, or 204 if it exists.",
        body=schema(
            type=TEXT, durable=BOOLEAN, auto_delete=BOOLEAN, internal=BOOLEAN, arguments=TABLE
        ),
    ),
    Route(
        "DELETE",
        EXCHANGE,
        delete_exchange,
        MANAGEMENT,
        CONFIGURE,
        "Delete an exchange.",
        (Parameter("if-unused", "Only without bindings.", "boolean"),),
    ),
    Route(
        "POST",
        BINDINGS,
        post_binding,
        MANAGEMENT,
        BINDS,
        "Bind a queue (`q`) or exchange (`e`): 201 with `Location`.",
        body=schema(routing_key=TEXT, arguments=TABLE),
    ),
    Route(
        "DELETE",
        f"{BINDINGS}/{{properties_key}}",
        delete_binding,
        MANAGEMENT,
        BINDS,
        "Remove a binding.",
    ),
)
