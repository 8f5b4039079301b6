# SPDX-License-Identifier: Apache-2.0
"""``/api/exchanges`` and ``/api/bindings``: what routes messages, and what changes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union
from urllib.parse import quote, unquote

from headrace.console.api.common.body import BOOLEAN, TABLE, Body, asked, schema
from headrace.console.api.common.rows import check_vhost, existing_vhost, find_now, rows_of
from headrace.console.api.common.samples import message_stats
from headrace.console.api.common.schema_parts import TEXT
from headrace.console.http.answers import Described, Listed, created, written
from headrace.console.http.errors import HttpError, not_found
from headrace.console.http.paging import found as value_at
from headrace.console.http.paging import in_order
from headrace.console.http.routes import ACCESS, Parameter, Routes
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import SampledObject, Table
    from headrace.untyped import JsonObject

DEFAULT = "amq.default"  # The name of the default exchange in paths.
NO_KEY = "~"  # The properties key of an empty routing key without arguments.
ENDS = ("source", "destination")
BINDING_ORDER = ("vhost", "source", "destination", "routing_key", "properties_key")
DESTINATIONS = {"q": "queue", "e": "exchange"}
#: Fields of a queue that are columns of its binding to the default exchange.
OF_DEFAULT = {"vhost": "vhost", "destination": "name", "routing_key": "name"}
Binding = Union[int, "JsonObject"]  # A queue's slot: its binding to the default exchange.
EXCHANGE = "/api/exchanges/{vhost}/{exchange}"
BINDINGS = "/api/bindings/{vhost}/e/{source}/{kind}/{destination}"
CONFIGURE = "configure on the exchange"
BINDS = "write on the destination, read on the source"
BINDING = f"{BINDINGS}/{{properties_key}}"
ROUTES = Routes()


# --- Exchanges -----------------------------------------------------------------------------------


@ROUTES.get(
    {
        "/api/exchanges": "The exchanges.",
        "/api/exchanges/{vhost}": "The exchanges of a virtual host.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_exchanges(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the exchanges of a virtual host, or of all that the user sees."""
    vhost = await existing_vhost(call, vhost)
    rows = []
    for exchange in await call.state.exchanges.all():
        name = exchange.text("vhost")
        if vhost in (None, name) and call.identity.sees_vhost(name):
            rows.append(exchange_of(exchange, call.query))
    return Listed(rows)


@ROUTES.get({EXCHANGE: "One exchange."}, tag=MANAGEMENT, permission=ACCESS)
async def show_exchange(call: HttpCall, vhost: str, exchange: str) -> JsonObject:
    """Return one exchange."""
    if not call.identity.sees_vhost(vhost):
        raise not_found()
    sampled = await find_now(call, call.state.exchanges, vhost, exchange_name(exchange))
    return {**exchange_of(sampled, call.query), "incoming": [], "outgoing": []}


@ROUTES.put(
    {EXCHANGE: "Declare an exchange: 201, or 204 if it exists."},
    tag=MANAGEMENT,
    permission=CONFIGURE,
    body=schema(type=TEXT, durable=BOOLEAN, auto_delete=BOOLEAN, internal=BOOLEAN, arguments=TABLE),
)
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


@ROUTES.delete(
    {EXCHANGE: "Delete an exchange."},
    tag=MANAGEMENT,
    permission=CONFIGURE,
    query=(Parameter("if-unused", "Only without bindings.", "boolean"),),
)
async def delete_exchange(call: HttpCall, vhost: str, exchange: str) -> None:
    """Delete an exchange; with ``if-unused`` only one without bindings."""
    await remove_exchange(call, vhost, named(exchange), if_unused=asked(call, "if-unused"))


async def remove_exchange(call: HttpCall, vhost: str, name: str, *, if_unused: bool | None) -> None:
    """Delete an exchange; it may have to be unused."""
    await call.ask("delete exchange", vhost=vhost, name=name, if_unused=if_unused)


def named(exchange: str) -> str:
    """Return the name of an exchange that a path has.

    Raises:
        HttpError: it is the default exchange.
    """
    name = exchange_name(exchange)
    if not name:
        raise HttpError(401, "operation not permitted on the default exchange")
    return name


def exchange_name(exchange: str) -> str:
    """Return the name of an exchange that a path has."""
    return "" if exchange == DEFAULT else exchange


def exchange_of(exchange: SampledObject, query: Mapping[str, str]) -> JsonObject:
    """Return an exchange as RabbitMQ describes it."""
    row = exchange.row
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
        "message_stats": message_stats(exchange, query),
    }


# --- Bindings ------------------------------------------------------------------------------------


@ROUTES.get(
    {f"{EXCHANGE}/bindings/source": "The bindings from an exchange."},
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
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


@ROUTES.get(
    {f"{EXCHANGE}/bindings/destination": "The bindings to an exchange."},
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def bindings_of_destination(call: HttpCall, vhost: str, exchange: str) -> Listed:
    """Return the bindings to an exchange."""
    name = await existing_exchange(call, vhost, exchange)
    return await bindings_where(call, vhost, destination=name, destination_type="exchange")


@ROUTES.get(
    {"/api/queues/{vhost}/{queue}/bindings": "The bindings to a queue."},
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def bindings_of_queue(call: HttpCall, vhost: str, queue: str) -> Listed:
    """Return the bindings to a queue."""
    await call.ask("show queue", vhost=vhost, name=queue)
    listed = await bindings_where(call, vhost, destination=queue, destination_type="queue")
    return Listed((default_binding(vhost, queue), *listed.rows), BINDING_ORDER)


@ROUTES.get(
    {"/api/bindings": "The bindings.", "/api/bindings/{vhost}": "The bindings of a virtual host."},
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
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
    for name in sorted(explicit.keys() | default.keys()):
        if vhost in (None, name) and call.identity.sees_vhost(name):
            items += default.get(name, ())
            items += in_order(explicit.get(name, []), {}, BINDING_ORDER)
    rows = Bindings(table)
    return Described(items, rows.describe, rows.name, rows.key, rows.mark)


@ROUTES.get(
    {BINDINGS: "The bindings between an exchange and a queue (`q`) or exchange (`e`)."},
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def bindings_between(
    call: HttpCall, vhost: str, source: str, kind: str, destination: str
) -> Listed:
    """Return the bindings between an exchange and a queue or exchange."""
    return Listed(await between(call, vhost, source, kind, destination), BINDING_ORDER)


@ROUTES.get({BINDING: "One binding."}, tag=MANAGEMENT, permission=ACCESS)
async def show_binding(
    call: HttpCall, vhost: str, source: str, kind: str, destination: str, properties_key: str
) -> JsonObject:
    """Return the binding with a properties key."""
    for row in await between(call, vhost, source, kind, destination):
        if same_key(row["properties_key"], properties_key):
            return row
    raise not_found()


@ROUTES.post(
    {BINDINGS: "Bind a queue (`q`) or exchange (`e`): 201 with `Location`."},
    tag=MANAGEMENT,
    permission=BINDS,
    body=schema(routing_key=TEXT, arguments=TABLE),
)
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


@ROUTES.delete({BINDING: "Remove a binding."}, tag=MANAGEMENT, permission=BINDS)
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


async def list_default(call: HttpCall, vhost: str) -> Described[Binding]:
    """Return the bindings from the default exchange of a virtual host."""
    table = await call.state.queues.fresh()
    of = table.fields.get("vhost", [])
    items: list[Binding] = [slot for slot in table.ordered() if of[slot] == vhost]
    rows = Bindings(table)
    return Described(items, rows.describe, rows.name, rows.key, rows.mark)


async def explicit_bindings(call: HttpCall, vhost: str | None, **ends: str) -> list[JsonObject]:
    """Return the bindings that the user sees, without those of the default exchange.

    ``ends`` are the names of the source or the destination that are wanted; the broker chooses.
    """
    return [binding_of(row) for row in await rows_of(call, "list bindings", vhost, **ends)]


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


def destination_kind(letter: str) -> str:
    """Return the kind of destination that a letter of a path stands for.

    Raises:
        HttpError: there is no such kind.
    """
    if letter not in DESTINATIONS:
        raise not_found("Not Found")
    return DESTINATIONS[letter]


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


def properties_key(routing_key: str, digest: str) -> str:
    """Return the last segment of a binding's path: the routing key, and the digest of arguments.

    The digest is of what the broker holds: values of several types are the same in JSON.
    """
    key = quote(routing_key, safe="").replace("~", "%7E")
    return f"{key}~{digest}" if digest else key or NO_KEY


def digest_in(key: str) -> str:
    """Return the digest of arguments in a properties key; "" for a binding without arguments."""
    return key.partition("~")[2]


def same_key(key: str, written: str) -> bool:
    """Return True for two texts of one properties key; ``written`` is decoded by a path already."""
    return written in (key, unquote(key))
