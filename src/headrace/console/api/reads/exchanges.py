# SPDX-License-Identifier: Apache-2.0
"""``/api/exchanges`` and ``/api/bindings``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union
from urllib.parse import quote, unquote

from headrace.console.api.common.rows import check_vhost, existing_vhost, find_now, rows_of
from headrace.console.api.common.samples import message_stats
from headrace.console.http.answers import Described, Listed
from headrace.console.http.errors import not_found
from headrace.console.http.paging import found as value_at
from headrace.console.http.paging import in_order
from headrace.console.http.routes import Route, by_path
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import Table, Tracked
    from headrace.untyped import JsonObject

ACCESS = "access to the virtual host"
DEFAULT = "amq.default"  # The name of the default exchange in paths.
NO_KEY = "~"  # The properties key of an empty routing key without arguments.
ENDS = ("source", "destination")
BINDING_ORDER = ("vhost", "source", "destination", "routing_key", "properties_key")
DESTINATIONS = {"q": "queue", "e": "exchange"}
#: Fields of a queue that are columns of its binding to the default exchange.
OF_DEFAULT = {"vhost": "vhost", "destination": "name", "routing_key": "name"}
Binding = Union[int, "JsonObject"]  # A queue's slot: its binding to the default exchange.


# --- Exchanges -----------------------------------------------------------------------------------


async def list_exchanges(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the exchanges of a virtual host, or of all that the user sees."""
    vhost = await existing_vhost(call, vhost)
    rows = [
        exchange_of(one, call.query)
        for one in await call.state.exchanges.all()
        if vhost in (None, one.text("vhost")) and call.identity.sees_vhost(one.text("vhost"))
    ]
    return Listed(rows)


async def show_exchange(call: HttpCall, vhost: str, exchange: str) -> JsonObject:
    """Return one exchange."""
    if not call.identity.sees_vhost(vhost):
        raise not_found()
    one = await find_now(call, call.state.exchanges, vhost, exchange_name(exchange))
    return {**exchange_of(one, call.query), "incoming": [], "outgoing": []}


def exchange_name(exchange: str) -> str:
    """Return the name of an exchange that a path has."""
    return "" if exchange == DEFAULT else exchange


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


def properties_key(routing_key: str, digest: str) -> str:
    """Return the last segment of a binding's path: the routing key, and the digest of arguments.

    The digest is of what the broker holds: values of several types are the same in JSON.
    """
    key = quote(routing_key, safe="").replace("~", "%7E")
    return f"{key}~{digest}" if digest else key or NO_KEY


def digest_in(key: str) -> str:
    """Return the digest of arguments in a properties key; "" for a binding without arguments."""
    return key.partition("~")[2]


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
        "properties_key": properties_key(row["routing_key"], row["arguments_digest"]),
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
            "arguments_digest": "",
        }
    )


async def list_bindings(call: HttpCall, vhost: str | None = None) -> Described[Binding]:
    """Return the bindings of the virtual host, or of all that the user sees.

    Those of the default exchange are as many as the queues: only rows of a page are made of them.
    """
    vhost = check_vhost(call, vhost)
    explicit: dict[str, list[JsonObject]] = {}
    for row in await explicit_bindings(call, vhost):
        explicit.setdefault(row["vhost"], []).append(row)
    table = await call.state.queues.fresh()
    default: dict[str, list[int]] = {}
    of = table.fields.get("vhost", [])
    for slot in table.ordered():
        default.setdefault(str(of[slot]), []).append(slot)
    items: list[Binding] = []
    for one in sorted(explicit.keys() | default.keys()):
        if vhost in (None, one) and call.identity.sees_vhost(one):
            items += default.get(one, ())
            items += in_order(explicit.get(one, []), {}, BINDING_ORDER)
    rows = Bindings(table)
    return Described(items, rows.describe, rows.name, rows.key, rows.mark)


class Bindings:
    """Bindings as RabbitMQ describes them; a queue's slot is that to the default exchange."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def describe(self, item: Binding) -> JsonObject:
        """Return a binding as RabbitMQ describes it."""
        if isinstance(item, int):
            return default_binding(self._table.text("vhost", item), self._table.text("name", item))
        return item

    def name(self, item: Binding) -> str:
        """Return an empty text: bindings have no names."""
        return ""

    def key(self, column: str) -> Callable[[Binding], object]:
        """Return what bindings are sorted by, without rows being made; a missing field is 0."""
        text, path = self._table.text, column.split(".")
        field = OF_DEFAULT.get(column)
        if field is not None:
            return lambda item: text(field, item) if isinstance(item, int) else item[column]
        if column == "properties_key":
            return lambda item: self.describe(item)[column]
        same = value_at(default_binding("", ""), path)
        return lambda item: same if isinstance(item, int) else value_at(item, path)

    def mark(self, item: Binding) -> int:
        """Return another number when a slot does not stand for its queue any more."""
        return self._table.ids[item] if isinstance(item, int) else 0


async def explicit_bindings(call: HttpCall, vhost: str | None, **ends: str) -> list[JsonObject]:
    """Return the bindings that the user sees, without those of the default exchange.

    ``ends`` are the names of the source or the destination that are wanted; the broker chooses.
    """
    return [binding_of(row) for row in await rows_of(call, "list bindings", vhost, **ends)]


async def bindings_of_source(
    call: HttpCall, vhost: str, exchange: str
) -> Listed | Described[Binding]:
    """Return the bindings from an exchange."""
    if not exchange_name(exchange):
        await existing_exchange(call, vhost, exchange)
        return await list_default(call, vhost)
    return await bindings_of_named(call, vhost, exchange)


async def bindings_of_named(call: HttpCall, vhost: str, exchange: str) -> Listed:
    """Return the bindings from an exchange that is not the default one."""
    name = await existing_exchange(call, vhost, exchange)
    return await bindings_where(call, vhost, source=name)


async def bindings_of_destination(call: HttpCall, vhost: str, exchange: str) -> Listed:
    """Return the bindings to an exchange."""
    name = await existing_exchange(call, vhost, exchange)
    return await bindings_where(call, vhost, destination=name, destination_type="exchange")


async def bindings_of_queue(call: HttpCall, vhost: str, queue: str) -> Listed:
    """Return the bindings to a queue."""
    await call.ask("show queue", vhost=vhost, name=queue)
    listed = await bindings_where(call, vhost, destination=queue, destination_type="queue")
    return Listed((default_binding(vhost, queue), *listed.rows), BINDING_ORDER)


async def list_default(call: HttpCall, vhost: str) -> Described[Binding]:
    """Return the bindings from the default exchange of a virtual host."""
    table = await call.state.queues.fresh()
    of = table.fields.get("vhost", [])
    items: list[Binding] = [slot for slot in table.ordered() if of[slot] == vhost]
    rows = Bindings(table)
    return Described(items, rows.describe, rows.name, rows.key, rows.mark)


async def bindings_between(
    call: HttpCall, vhost: str, source: str, kind: str, destination: str
) -> Listed:
    """Return the bindings between an exchange and a queue or exchange."""
    return Listed(await between(call, vhost, source, kind, destination), BINDING_ORDER)


async def show_binding(
    call: HttpCall, vhost: str, source: str, kind: str, destination: str, properties_key: str
) -> JsonObject:
    """Return the binding with a properties key."""
    for row in await between(call, vhost, source, kind, destination):
        if same_key(row["properties_key"], properties_key):
            return row
    raise not_found()


def destination_kind(letter: str) -> str:
    """Return the kind of destination that a letter of a path stands for.

    Raises:
        HttpError: there is no such kind.
    """
    if letter not in DESTINATIONS:
        raise not_found("Not Found")
    return DESTINATIONS[letter]


async def between(
    call: HttpCall, vhost: str, source: str, letter: str, destination: str
) -> list[JsonObject]:
    """Return the bindings between an exchange and a queue or exchange.

    Raises:
        HttpError: one of them does not exist.
    """
    kind = destination_kind(letter)
    name = await existing_exchange(call, vhost, source)
    await call.ask(f"show {kind}", vhost=vhost, name=destination)
    if not name:
        return [default_binding(vhost, destination)] if kind == "queue" else []
    wanted = {"source": name, "destination": destination, "destination_type": kind}
    rows = await explicit_bindings(call, vhost, source=name, destination=destination)
    return matching(rows, wanted)


async def existing_exchange(call: HttpCall, vhost: str, exchange: str) -> str:
    """Return the name of an exchange that a path has.

    Raises:
        HttpError: it does not exist.
    """
    name = exchange_name(exchange)
    await call.ask("show exchange", vhost=vhost, name=name)
    return name


async def bindings_where(call: HttpCall, vhost: str, **wanted: str) -> Listed:
    """Return the bindings with these values, without those of the default exchange."""
    ends = {end: name for end, name in wanted.items() if end in ENDS}
    return Listed(matching(await explicit_bindings(call, vhost, **ends), wanted), BINDING_ORDER)


def matching(rows: list[JsonObject], wanted: JsonObject) -> list[JsonObject]:
    """Return the rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


ROUTES = (
    *(
        Route("GET", path, by_path(list_exchanges), MANAGEMENT, ACCESS, summary, paged=True)
        for path, summary in (
            ("/api/exchanges", "The exchanges."),
            ("/api/exchanges/{vhost}", "The exchanges of a virtual host."),
        )
    ),
    Route(
        "GET",
        "/api/exchanges/{vhost}/{exchange}",
        by_path(show_exchange),
        MANAGEMENT,
        ACCESS,
        "One exchange.",
    ),
    *(
        Route("GET", path, handler, MANAGEMENT, ACCESS, summary, paged=True)
        for path, handler, summary in (
            (
                "/api/exchanges/{vhost}/{exchange}/bindings/source",
                by_path(bindings_of_source),
                "The bindings from an exchange.",
            ),
            (
                "/api/exchanges/{vhost}/{exchange}/bindings/destination",
                by_path(bindings_of_destination),
                "The bindings to an exchange.",
            ),
            (
                "/api/queues/{vhost}/{queue}/bindings",
                by_path(bindings_of_queue),
                "The bindings to a queue.",
            ),
            ("/api/bindings", by_path(list_bindings), "The bindings."),
            ("/api/bindings/{vhost}", by_path(list_bindings), "The bindings of a virtual host."),
            (
                "/api/bindings/{vhost}/e/{source}/{kind}/{destination}",
                by_path(bindings_between),
                "The bindings between an exchange and a queue (`q`) or exchange (`e`).",
            ),
        )
    ),
    Route(
        "GET",
        "/api/bindings/{vhost}/e/{source}/{kind}/{destination}/{properties_key}",
        by_path(show_binding),
        MANAGEMENT,
        ACCESS,
        "One binding.",
    ),
)
