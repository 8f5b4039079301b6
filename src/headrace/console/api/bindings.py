# SPDX-License-Identifier: Apache-2.0
"""``/api/bindings``, and the bindings of one exchange or queue.

Every queue has a binding to the default exchange. The broker does not store these bindings; lists
make them from the queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Union
from urllib.parse import quote, unquote

from headrace.console.api.common.body import TABLE, Body, schema
from headrace.console.api.common.lookups import read_rows, visible_vhost
from headrace.console.api.common.schemas import OBJECT, TEXT, record
from headrace.console.api.exchanges import EXCHANGE, exchange_name
from headrace.console.broker import lists
from headrace.console.http.answers import LazyList, RowList, created
from headrace.console.http.paging import sort_rows, value_at
from headrace.console.http.routes import ACCESS, Routes
from headrace.console.http_errors import not_found
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import Table
    from headrace.management_operations import OperationName
    from headrace.management_rows import BindingRow
    from headrace.untyped import JsonObject

NO_KEY = "~"  # The properties key of an empty routing key without arguments.
ENDS = ("source", "destination")  # The broker filters bindings by these.
BINDING_ORDER = ("vhost", "source", "destination", "routing_key", "properties_key")
DESTINATIONS = {"q": "queue", "e": "exchange"}
SHOW: dict[str, OperationName] = {"queue": "show queue", "exchange": "show exchange"}
#: Columns of a queue's binding to the default exchange, with the fields of the queue.
DEFAULT_BINDING_FIELDS = {"vhost": "vhost", "destination": "name", "routing_key": "name"}
Binding = Union[int, "JsonObject"]  # A slot stands for its queue's binding to the default exchange.
BINDINGS = "/api/bindings/{vhost}/e/{source}/{kind}/{destination}"
BINDS = "write on the destination, read on the source"
BINDING = f"{BINDINGS}/{{properties_key}}"
BINDING_SCHEMA = record(
    source=TEXT,
    vhost=TEXT,
    destination=TEXT,
    destination_type={"enum": ["queue", "exchange"]},
    routing_key=TEXT,
    arguments=OBJECT,
    properties_key={"type": "string", "minLength": 1},
)
ROUTES = Routes()


@ROUTES.get_list(
    {f"{EXCHANGE}/bindings/source": "The bindings from an exchange."},
    rows=BINDING_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_bindings_of_source(
    call: HttpCall, vhost: str, exchange: str
) -> RowList | BindingRows:
    """Return the bindings from an exchange."""
    if not exchange_name(exchange):
        await existing_exchange(call, vhost, exchange)
        return await default_bindings(call, vhost)
    return await list_bindings_of_named_exchange(call, vhost, exchange)


async def list_bindings_of_named_exchange(call: HttpCall, vhost: str, exchange: str) -> RowList:
    """Return the bindings from an exchange that is not the default one."""
    name = await existing_exchange(call, vhost, exchange)
    return await find_bindings(call, vhost, source=name)


@ROUTES.get_list(
    {f"{EXCHANGE}/bindings/destination": "The bindings to an exchange."},
    rows=BINDING_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_bindings_of_destination(call: HttpCall, vhost: str, exchange: str) -> RowList:
    """Return the bindings to an exchange."""
    name = await existing_exchange(call, vhost, exchange)
    return await find_bindings(call, vhost, destination=name, destination_type="exchange")


@ROUTES.get_list(
    {"/api/queues/{vhost}/{queue}/bindings": "The bindings to a queue."},
    rows=BINDING_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_bindings_of_queue(call: HttpCall, vhost: str, queue: str) -> RowList:
    """Return the bindings to a queue."""
    await call.broker.ask("show queue", vhost=vhost, name=queue)
    listed = await find_bindings(call, vhost, destination=queue, destination_type="queue")
    return RowList((default_binding(vhost, queue), *listed.rows), BINDING_ORDER)


@ROUTES.get_list(
    {"/api/bindings": "The bindings.", "/api/bindings/{vhost}": "The bindings of a virtual host."},
    rows=BINDING_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_bindings(call: HttpCall, vhost: str | None = None) -> BindingRows:
    """Return the bindings of a virtual host, or of all that the user sees.

    Each queue has a binding to the default exchange, so rows are made only for one page.
    """
    vhost = visible_vhost(call, vhost)
    explicit: dict[str, list[JsonObject]] = {}
    for row in await explicit_bindings(call, vhost):
        explicit.setdefault(row["vhost"], []).append(row)
    table = await call.state.queues.fresh_table()
    default: dict[str, list[int]] = {}
    vhosts = table.fields.get("vhost", [])
    for slot in table.slots_in_order():
        default.setdefault(str(vhosts[slot]), []).append(slot)
    items: list[Binding] = []
    for name in sorted(explicit.keys() | default.keys()):
        if vhost in (None, name) and call.identity.sees_vhost(name):
            items += default.get(name, ())
            items += sort_rows(explicit.get(name, []), {}, BINDING_ORDER)
    return BindingRows(table, items)


@ROUTES.get_list(
    {BINDINGS: "The bindings between an exchange and a queue (`q`) or exchange (`e`)."},
    rows=BINDING_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_bindings_between(
    call: HttpCall, vhost: str, source: str, kind: str, destination: str
) -> RowList:
    """Return the bindings between an exchange and a queue or exchange."""
    return RowList(
        await find_bindings_between(call, vhost, source, kind, destination), BINDING_ORDER
    )


@ROUTES.get({BINDING: "One binding."}, tag=MANAGEMENT, permission=ACCESS, answer=BINDING_SCHEMA)
async def show_binding(
    call: HttpCall, vhost: str, source: str, kind: str, destination: str, properties_key: str
) -> JsonObject:
    """Return the binding with a properties key."""
    for row in await find_bindings_between(call, vhost, source, kind, destination):
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
    """Bind a queue or exchange; ``Location`` has the destination and the properties key."""
    body = await Body.read(call)
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
    """Bind a destination of a kind, queue or exchange; return the properties key of the binding."""
    done = await call.broker.ask(
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
async def remove_binding(
    call: HttpCall, vhost: str, source: str, kind: str, destination: str, properties_key: str
) -> None:
    """Remove the binding with a properties key."""
    row = await show_binding(call, vhost, source, kind, destination, properties_key)
    await call.broker.ask(
        "unbind",
        vhost=vhost,
        source=exchange_name(source),
        kind=destination_kind(kind),
        destination=destination,
        routing_key=row["routing_key"],
        arguments_digest=arguments_digest(row["properties_key"]),
    )


class BindingRows(LazyList[Binding]):
    """The bindings that the broker stores, and the bindings of queues to the default exchange."""

    def __init__(self, table: Table, items: Sequence[Binding]) -> None:
        """``table`` has the queues that the slots among ``items`` stand for."""
        super().__init__(items)
        self.table = table

    def row(self, item: Binding) -> JsonObject:
        """Return a binding as RabbitMQ describes it."""
        if isinstance(item, int):
            return default_binding(self.table.text("vhost", item), self.table.text("name", item))
        return item

    def name(self, item: Binding) -> str:
        """Return an empty text: bindings have no names."""
        return ""

    def sort_key(self, column: str) -> Callable[[Binding], object]:
        text, path = self.table.text, column.split(".")
        field = DEFAULT_BINDING_FIELDS.get(column)
        if field is not None:
            return lambda item: text(field, item) if isinstance(item, int) else item[column]
        if column == "properties_key":
            return lambda item: self.row(item)[column]
        default = value_at(default_binding("", ""), path)  # Equal for all queues.
        return lambda item: default if isinstance(item, int) else value_at(item, path)

    def version(self, item: Binding) -> int:
        """Return the id of a slot's queue, which changes when another queue reuses the slot."""
        return self.table.ids[item] if isinstance(item, int) else 0


async def default_bindings(call: HttpCall, vhost: str) -> BindingRows:
    """Return the bindings from the default exchange of a virtual host."""
    table = await call.state.queues.fresh_table()
    vhosts = table.fields.get("vhost", [])
    items: list[Binding] = [slot for slot in table.slots_in_order() if vhosts[slot] == vhost]
    return BindingRows(table, items)


async def explicit_bindings(call: HttpCall, vhost: str | None, **ends: str) -> list[JsonObject]:
    """Return the bindings that the user sees, without those of the default exchange.

    ``ends`` are the names of source or destination that the broker filters by.
    """
    return [describe_binding(row) for row in await read_rows(call, lists.BINDINGS, vhost, **ends)]


async def find_bindings_between(
    call: HttpCall, vhost: str, source: str, letter: str, destination: str
) -> list[JsonObject]:
    """Return the bindings between an exchange and a queue or exchange.

    Raises:
        HttpError: an object does not exist.
    """
    kind = destination_kind(letter)
    name = await existing_exchange(call, vhost, source)
    await call.broker.ask(SHOW[kind], vhost=vhost, name=destination)
    if not name:
        return [default_binding(vhost, destination)] if kind == "queue" else []
    values = {"source": name, "destination": destination, "destination_type": kind}
    rows = await explicit_bindings(call, vhost, source=name, destination=destination)
    return filter_rows(rows, values)


def destination_kind(letter: str) -> str:
    """Return the kind of destination that a letter of a path stands for.

    Raises:
        HttpError: the letter is unknown.
    """
    if letter not in DESTINATIONS:
        raise not_found("Not Found")
    return DESTINATIONS[letter]


async def existing_exchange(call: HttpCall, vhost: str, exchange: str) -> str:
    """Return the name of the exchange in a path.

    Raises:
        HttpError: the exchange does not exist.
    """
    name = exchange_name(exchange)
    await call.broker.ask("show exchange", vhost=vhost, name=name)
    return name


async def find_bindings(call: HttpCall, vhost: str, **values: str) -> RowList:
    """Return the bindings with these values, without those of the default exchange."""
    ends = {end: name for end, name in values.items() if end in ENDS}
    return RowList(filter_rows(await explicit_bindings(call, vhost, **ends), values), BINDING_ORDER)


def filter_rows(rows: list[JsonObject], values: JsonObject) -> list[JsonObject]:
    """Return the rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def describe_binding(row: BindingRow) -> JsonObject:
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
    return describe_binding(
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

    The digest is the broker's: values of several types are equal in JSON.
    """
    key = quote(routing_key, safe="").replace("~", "%7E")
    return f"{key}~{digest}" if digest else key or NO_KEY


def arguments_digest(key: str) -> str:
    """Return the digest of arguments in a properties key; "" for a binding without arguments."""
    return key.partition("~")[2]


def same_key(key: str, written: str) -> bool:
    """Return True for equal properties keys; ``written`` is a decoded segment of a path."""
    return written in (key, unquote(key))
