# SPDX-License-Identifier: Apache-2.0
"""``/api/exchanges`` and ``/api/bindings``."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from headrace.console.api.common.rows import (
    absent,
    check_exists,
    check_vhost,
    rows_of,
    wanted_vhost,
)
from headrace.console.api.common.samples import message_stats
from headrace.console.http.answers import Listed
from headrace.console.http.errors import not_found
from headrace.console.http.routes import MANAGEMENT, Route

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import Tracked
    from headrace.untyped import JsonObject

ACCESS = "access to the virtual host"
DEFAULT = "amq.default"  # The name of the default exchange in paths.
NO_KEY = "~"  # The properties key of an empty routing key without arguments.
HASH_BYTES = 12
BINDING_ORDER = ("vhost", "source", "destination", "routing_key", "properties_key")
DESTINATIONS = {"q": "queue", "e": "exchange"}


# --- Exchanges -----------------------------------------------------------------------------------


async def list_exchanges(call: HttpCall) -> object:
    """Return the exchanges of the virtual host, or of all that the user sees."""
    vhost = wanted_vhost(call)
    if vhost is not None:
        await check_exists(call, vhost)
    rows = [
        exchange_of(one, call.query)
        for one in await call.state.exchanges.all()
        if vhost in (None, one.text("vhost")) and call.identity.sees_vhost(one.text("vhost"))
    ]
    return Listed(rows)


async def show_exchange(call: HttpCall) -> object:
    """Return one exchange."""
    vhost, name = call.path["vhost"], exchange_in(call, "exchange")
    if not call.identity.sees_vhost(vhost):
        raise not_found()
    one = await call.state.exchanges.find(vhost, name)
    if one is None:  # It may be new, and the sample older.
        call.state.forget()
        one = await call.state.exchanges.find(vhost, name)
    if one is None:
        raise not_found()
    return {**exchange_of(one, call.query), "incoming": [], "outgoing": []}


def exchange_in(call: HttpCall, parameter: str) -> str:
    """Return the name of an exchange in a path."""
    name = call.path[parameter]
    return "" if name == DEFAULT else name


def exchange_of(one: Tracked, query: Mapping[str, str]) -> JsonObject:
    """Return an exchange as RabbitMQ describes it."""
    row = one.row
    return {
        "name": row["name"],
        "vhost": row["vhost"],
        "type": row["type"],
        "durable": row["durable"],
        "auto_delete": row["auto_delete"],
        "internal": row["internal"],
        "arguments": row["arguments"] or {},
        "policy": row.get("policy") or None,
        "user_who_performed_action": row.get("user") or "",
        "message_stats": message_stats(one, query),
    }


# --- Bindings ------------------------------------------------------------------------------------


def properties_key(routing_key: str, arguments: JsonObject) -> str:
    """Return the last segment of a binding's path: the routing key, and a hash of arguments."""
    key = quote(routing_key, safe="").replace("~", "%7E")
    if not arguments:
        return key or NO_KEY
    text = json.dumps(arguments, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(text).digest()[:HASH_BYTES]
    return f"{key}~{base64.urlsafe_b64encode(digest).decode()}"


def same_key(one: str, other: str) -> bool:
    """Return True for two texts of one properties key; ``other`` is decoded by a path already."""
    return other in (one, unquote(one))


def binding_of(row: JsonObject) -> JsonObject:
    """Return a binding as RabbitMQ describes it."""
    arguments = row["arguments"] or {}
    return {
        "source": row["source"],
        "vhost": row["vhost"],
        "destination": row["destination"],
        "destination_type": row["kind"],
        "routing_key": row["routing_key"],
        "arguments": arguments,
        "properties_key": properties_key(row["routing_key"], arguments),
    }


def default_binding(vhost: str, queue: str) -> JsonObject:
    """Return the binding of a queue to the default exchange."""
    return binding_of(
        {
            "source": "",
            "vhost": vhost,
            "kind": "queue",
            "destination": queue,
            "routing_key": queue,
            "arguments": {},
        }
    )


async def bindings(call: HttpCall) -> list[JsonObject]:
    """Return the bindings that the user sees, those of the default exchange included."""
    vhost = check_vhost(call)
    found = [binding_of(row) for row in await rows_of(call, "list bindings")]
    for one in await call.state.queues.all():
        of = one.text("vhost")
        if vhost in (None, of) and call.identity.sees_vhost(of):
            found.append(default_binding(of, one.text("name")))
    return found


async def list_bindings(call: HttpCall) -> object:
    """Return the bindings of the virtual host, or of all that the user sees."""
    return Listed(await bindings(call), BINDING_ORDER)


async def bindings_of_source(call: HttpCall) -> object:
    """Return the bindings from an exchange."""
    return await bindings_where(call, source=await existing_exchange(call, "exchange"))


async def bindings_of_destination(call: HttpCall) -> object:
    """Return the bindings to an exchange."""
    name = await existing_exchange(call, "exchange")
    return await bindings_where(call, destination=name, destination_type="exchange")


async def bindings_of_queue(call: HttpCall) -> object:
    """Return the bindings to a queue."""
    name = call.path["queue"]
    with absent():
        await call.ask("show queue", vhost=call.path["vhost"], name=name)
    return await bindings_where(call, destination=name, destination_type="queue")


async def bindings_between(call: HttpCall) -> object:
    """Return the bindings between an exchange and a queue or exchange."""
    return Listed(await between(call), BINDING_ORDER)


async def show_binding(call: HttpCall) -> object:
    """Return the binding with a properties key."""
    wanted = call.path["properties_key"]
    for row in await between(call):
        if same_key(row["properties_key"], wanted):
            return row
    raise not_found()


async def between(call: HttpCall) -> list[JsonObject]:
    """Return the bindings between an exchange and a queue or exchange.

    Raises:
        HttpError: one of them does not exist.
    """
    vhost, name = call.path["vhost"], call.path["destination"]
    kind = DESTINATIONS.get(call.path["kind"])
    if kind is None:
        raise not_found("Not Found")
    source = await existing_exchange(call, "source")
    with absent():
        await call.ask(f"show {kind}", vhost=vhost, name=name)
    wanted = {"source": source, "destination": name, "destination_type": kind}
    return matching(await bindings(call), wanted)


async def existing_exchange(call: HttpCall, parameter: str) -> str:
    """Return the name of an exchange in a path.

    Raises:
        HttpError: it does not exist.
    """
    name = exchange_in(call, parameter)
    with absent():
        await call.ask("show exchange", vhost=call.path["vhost"], name=name)
    return name


async def bindings_where(call: HttpCall, **wanted: str) -> Listed:
    """Return the bindings with these values."""
    return Listed(matching(await bindings(call), wanted), BINDING_ORDER)


def matching(rows: list[JsonObject], wanted: JsonObject) -> list[JsonObject]:
    """Return the rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


ROUTES = (
    *(
        Route("GET", path, list_exchanges, MANAGEMENT, ACCESS, summary, paged=True)
        for path, summary in (
            ("/api/exchanges", "The exchanges."),
            ("/api/exchanges/{vhost}", "The exchanges of a virtual host."),
        )
    ),
    Route(
        "GET",
        "/api/exchanges/{vhost}/{exchange}",
        show_exchange,
        MANAGEMENT,
        ACCESS,
        "One exchange.",
    ),
    *(
        Route("GET", path, handler, MANAGEMENT, ACCESS, summary, paged=True)
        for path, handler, summary in (
            (
                "/api/exchanges/{vhost}/{exchange}/bindings/source",
                bindings_of_source,
                "The bindings from an exchange.",
            ),
            (
                "/api/exchanges/{vhost}/{exchange}/bindings/destination",
                bindings_of_destination,
                "The bindings to an exchange.",
            ),
            (
                "/api/queues/{vhost}/{queue}/bindings",
                bindings_of_queue,
                "The bindings to a queue.",
            ),
            ("/api/bindings", list_bindings, "The bindings."),
            ("/api/bindings/{vhost}", list_bindings, "The bindings of a virtual host."),
            (
                "/api/bindings/{vhost}/e/{source}/{kind}/{destination}",
                bindings_between,
                "The bindings between an exchange and a queue (`q`) or exchange (`e`).",
            ),
        )
    ),
    Route(
        "GET",
        "/api/bindings/{vhost}/e/{source}/{kind}/{destination}/{properties_key}",
        show_binding,
        MANAGEMENT,
        ACCESS,
        "One binding.",
    ),
)
