# SPDX-License-Identifier: Apache-2.0
"""Declaring and deleting exchanges and bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from headrace.console.api.common.schema_parts import TEXT
from headrace.console.api.reads.exchanges import (
    destination_kind,
    digest_in,
    exchange_name,
    properties_key,
    show_binding,
)
from headrace.console.api.writes.body import BOOLEAN, TABLE, Body, asked, schema
from headrace.console.http.answers import created, written
from headrace.console.http.errors import HttpError
from headrace.console.http.routes import Parameter, Route, by_path
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

EXCHANGE = "/api/exchanges/{vhost}/{exchange}"
BINDINGS = "/api/bindings/{vhost}/e/{source}/{kind}/{destination}"
CONFIGURE = "configure on the exchange"
BINDS = "write on the destination, read on the source"


def named(exchange: str) -> str:
    """Return the name of an exchange that a path has.

    Raises:
        HttpError: it is the default exchange.
    """
    name = exchange_name(exchange)
    if not name:
        raise HttpError(401, "operation not permitted on the default exchange")
    return name


async def put_exchange(call: HttpCall, vhost: str, exchange: str) -> Answer:
    """Declare an exchange; 204 if one with the same attributes exists."""
    body = await Body.of(call)
    is_new = await declare_exchange(
        call,
        vhost,
        named(exchange),
        kind=body.text("type", "direct"),
        durable=body.flag("durable"),
        auto_delete=body.flag("auto_delete"),
        internal=body.flag("internal"),
        arguments=body.table("arguments"),
    )
    return written(is_new=is_new)


async def declare_exchange(
    call: HttpCall,
    vhost: str,
    name: str,
    *,
    kind: str,
    durable: bool | None,
    auto_delete: bool | None,
    internal: bool | None,
    arguments: JsonObject,
) -> bool:
    """Declare an exchange; return False if one with the same attributes exists."""
    done = await call.ask(
        "declare exchange",
        vhost=vhost,
        name=name,
        type=kind,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=arguments,
    )
    return bool(done["created"])


async def delete_exchange(call: HttpCall, vhost: str, exchange: str) -> None:
    """Delete an exchange; with ``if-unused`` only one without bindings."""
    await remove_exchange(call, vhost, named(exchange), if_unused=asked(call, "if-unused"))


async def remove_exchange(call: HttpCall, vhost: str, name: str, *, if_unused: bool | None) -> None:
    """Delete an exchange; it may have to be unused."""
    await call.ask("delete exchange", vhost=vhost, name=name, if_unused=if_unused)


async def post_binding(
    call: HttpCall, vhost: str, source: str, kind: str, destination: str
) -> Answer:
    """Bind a queue or exchange; ``Location`` ends with the properties key of the binding."""
    body = await Body.of(call)
    key = await bind(
        call,
        vhost,
        exchange_name(source),
        destination_kind(kind),
        destination,
        routing_key=body.text("routing_key"),
        arguments=body.table("arguments"),
    )
    return created(f"{quote(destination, safe='')}/{key}")


async def bind(
    call: HttpCall,
    vhost: str,
    source: str,
    kind: str,
    destination: str,
    *,
    routing_key: str,
    arguments: JsonObject,
) -> str:
    """Bind a queue or exchange, as ``kind`` says; return the properties key of the binding."""
    done = await call.ask(
        "bind",
        vhost=vhost,
        source=source,
        kind=kind,
        destination=destination,
        routing_key=routing_key,
        arguments=arguments,
    )
    return properties_key(done["routing_key"], done["arguments_digest"])


async def delete_binding(
    call: HttpCall, vhost: str, source: str, kind: str, destination: str, properties_key: str
) -> None:
    """Remove the binding with a properties key."""
    row = await show_binding(call, vhost, source, kind, destination, properties_key)
    await call.ask(
        "unbind",
        vhost=vhost,
        source=exchange_name(source),
        kind=destination_kind(kind),
        destination=destination,
        routing_key=row["routing_key"],
        arguments_digest=digest_in(row["properties_key"]),
    )


ROUTES = (
    Route(
        "PUT",
        EXCHANGE,
        by_path(put_exchange),
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
        by_path(delete_exchange),
        MANAGEMENT,
        CONFIGURE,
        "Delete an exchange.",
        (Parameter("if-unused", "Only without bindings.", "boolean"),),
    ),
    Route(
        "POST",
        BINDINGS,
        by_path(post_binding),
        MANAGEMENT,
        BINDS,
        "Bind a queue (`q`) or exchange (`e`): 201 with `Location`.",
        body=schema(routing_key=TEXT, arguments=TABLE),
    ),
    Route(
        "DELETE",
        f"{BINDINGS}/{{properties_key}}",
        by_path(delete_binding),
        MANAGEMENT,
        BINDS,
        "Remove a binding.",
    ),
)
