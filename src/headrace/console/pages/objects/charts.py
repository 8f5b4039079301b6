# SPDX-License-Identifier: Apache-2.0
"""The numbers of charts, over a minute to 30 days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.api import clients, exchanges, users
from headrace.console.api.common.rows import check_exists
from headrace.console.api.common.samples import counters_of
from headrace.console.http.answers import Answer
from headrace.console.http.errors import bad_request, not_found
from headrace.console.http.routes import Parameter, Route
from headrace.console.pages.texts import segment
from headrace.console.state.frames import MS
from headrace.console.state.history import SPANS
from headrace.measures import (
    CHANNEL,
    CONNECTION,
    EXCHANGE,
    GROUP,
    LEASE,
    NODE,
    QUEUE,
    TOTALS,
    USER,
    VHOST,
)
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT, MONITORING

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.http.routes import Handler
    from headrace.console.pages.details import Charts
    from headrace.console.state.broker_mirror import ObjectTable
    from headrace.console.state.history import Column
    from headrace.untyped import JsonObject

Columns = tuple[str, ...]
AMOUNTS, SPEEDS = "amounts", "rates"  # Lines without a unit, and those by the second.


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart: the sum of columns, or a counter of messages by the name of the API."""

    label: str
    columns: Columns = ()
    counter: str = ""
    unit: str = ""
    is_age: bool = False  # The column is a moment, the line the time since then.


DEPTHS = (Line("ready", ("ready",)), Line("unacked", ("unacked",)))
RATES = (
    Line("published", counter="publish", unit="/s"),
    Line("delivered", counter="deliver_get", unit="/s"),
    Line("acknowledged", counter="ack", unit="/s"),
    Line("redelivered", counter="redeliver", unit="/s"),
)
ROUTED = (
    Line("published", counter="publish_in", unit="/s"),
    Line("routed", counter="publish_out", unit="/s"),
    Line("returned", counter="return_unroutable", unit="/s"),
    Line("dropped", counter="drop_unroutable", unit="/s"),
)
OF_CHANNEL = (
    Line("unacked", ("unacked",)),
    Line("published", counter="publish", unit="/s"),
    Line("delivered", counter="deliver_get", unit="/s"),
    Line("acknowledged", counter="ack", unit="/s"),
)
OCTETS = (
    Line("from client", ("bytes_received",), unit="B/s"),
    Line("to client", ("bytes_sent",), unit="B/s"),
)
OF_CLIENT: Mapping[str, tuple[Line, ...]] = {  # Of a connection, or of all those of a user.
    "rates": (
        Line("published", ("publish",), unit="/s"),
        Line("delivered", ("deliver", "deliver_no_ack", "get", "get_no_ack"), unit="/s"),
        Line("acknowledged", ("ack",), unit="/s"),
        Line("redelivered", ("redeliver",), unit="/s"),
    ),
    "bytes": OCTETS,
}
OF_TOTALS: Mapping[str, tuple[Line, ...]] = {
    "messages": DEPTHS,
    "rates": RATES,
    "clients": (
        Line("connections", ("connections",)),
        Line("channels", ("channels",)),
        Line("consumers", ("consumers",)),
    ),
}
OF_GROUP: Mapping[str, tuple[Line, ...]] = {
    "lag": (Line("lag", ("lag",)),),
    "bytes": (Line("lag", ("lag_bytes",), unit="B"),),
    "rates": (
        Line("published", ("durable_offset",), unit="/s"),
        Line("committed", ("committed_records",), unit="/s"),
    ),
    "age": (Line("since the last commit", ("committed_ms",), unit="s", is_age=True),),
    "claimed": (Line("claimed", ("claimed",)),),
}
OF_LEASE: Mapping[str, tuple[Line, ...]] = {
    "messages": (Line("leased", ("leased",)), Line("ready", ("ready",))),
    "bytes": (Line("leased", ("leased_bytes",), unit="B"),),
    "rates": (Line("taken", ("taken",), unit="/s"), Line("settled", ("settled",), unit="/s")),
    "owned": (Line("owned", ("owned",)),),
}
OF_NODE: Mapping[str, tuple[Line, ...]] = {
    "memory": (Line("memory", ("mem_used",), unit="B"),),
    "disk": (Line("disk free", ("disk_free",), unit="B"),),
    "syncs": (Line("journal syncs", ("journal_groups",), unit="/s"),),
    "files": (Line("open files", ("fd_used",)), Line("sockets", ("sockets_used",))),
}


async def of_totals(call: HttpCall) -> object:
    """Return the numbers of all that the user sees."""
    lines = lines_of(OF_TOTALS, call.path["what"])
    if call.identity.sees_all:
        return await chart(call, call.state.totals, TOTALS, [(TOTALS,)], lines)
    table = await call.state.vhosts.fresh()
    names = [table.text("name", slot) for slot in table.ordered()]
    keys = [(name,) for name in names if call.identity.sees_vhost(name)]
    return await chart(call, call.state.vhosts, VHOST, keys, lines)


async def of_node(call: HttpCall) -> object:
    """Return the numbers of the broker's process."""
    lines = lines_of(OF_NODE, call.path["what"])
    return await chart(call, call.state.totals, NODE, [(NODE,)], lines)


async def of_vhost(call: HttpCall) -> object:
    """Return the numbers of a virtual host."""
    name = call.path["vhost"]
    await check_exists(call, name)
    return await chart(call, call.state.vhosts, VHOST, [(name,)], DEPTHS + RATES)


async def of_exchange(call: HttpCall) -> object:
    """Return the numbers of an exchange; of the last hour."""
    row = await exchanges.show_exchange(call, **call.path)
    key = (row["vhost"], row["name"])
    return await chart(call, call.state.exchanges, EXCHANGE, [key], ROUTED)


async def of_connection(call: HttpCall) -> object:
    """Return the numbers of a connection; of the last hour."""
    lines = lines_of(OF_CLIENT, call.path["what"])
    one = await clients.find_connection(call, call.path["name"])
    key = (one.row["number"],)
    return await chart(call, call.state.connections, CONNECTION, [key], lines)


async def of_user(call: HttpCall) -> object:
    """Return the numbers of all connections of a user, also of those that have ended."""
    lines = lines_of(OF_CLIENT, call.path["what"])
    await users.show_user(call, call.path["user"])
    return await chart(call, call.state.users, USER, [(call.path["user"],)], lines)


async def of_channel(call: HttpCall) -> object:
    """Return the numbers of a channel; of the last hour."""
    one = await clients.find_channel(call, call.path["channel"])
    key = (one.row["connection"], one.row["number"], one.row["name"])
    return await chart(call, call.state.channels, CHANNEL, [key], OF_CHANNEL)


async def of_queue(call: HttpCall) -> object:
    """Return the numbers of a queue."""
    vhost, name = call.path["vhost"], call.path["queue"]
    await check_exists(call, vhost)
    if await call.state.queues.find(vhost, name) is None:
        raise not_found()
    return await chart(call, call.state.queues, QUEUE, [(vhost, name)], DEPTHS + RATES)


async def of_group(call: HttpCall) -> object:
    """Return the numbers of a group of stream readers; of the last hour."""
    return await of_reader(call, call.state.groups, GROUP, "stream", OF_GROUP)


async def of_lease(call: HttpCall) -> object:
    """Return the numbers of a lease; of the last hour."""
    return await of_reader(call, call.state.leases, LEASE, "queue", OF_LEASE)


async def of_reader(
    call: HttpCall, kind: ObjectTable, name: str, source: str, known: Mapping[str, tuple[Line, ...]]
) -> Answer:
    """Return the numbers of a group or lease; ``source`` is what it reads, in the path.

    Raises:
        HttpError: there is no such object, or the user does not see it.
    """
    lines = lines_of(known, call.path["what"])
    key = (call.path["vhost"], call.path[source], call.path["group"])
    await check_exists(call, key[0])
    if await kind.find(*key) is None:
        raise not_found()
    return await chart(call, kind, name, [key], lines)


def lines_of(known: Mapping[str, tuple[Line, ...]], what: str) -> tuple[Line, ...]:
    """Return the lines of a chart.

    Raises:
        HttpError: there is no such chart.
    """
    if what not in known:
        raise not_found()
    return known[what]


async def chart(
    call: HttpCall,
    kind: ObjectTable,
    name: str,
    keys: Sequence[tuple[str, ...]],
    lines: tuple[Line, ...],
) -> Answer:
    """Return the numbers of some objects together.

    Raises:
        HttpError: the span or the lines are none of ours.
    """
    span = call.query.get("span", "1m")
    if span not in SPANS:
        raise bad_request(f"'span' must be one of {', '.join(SPANS)}")
    of = call.query.get("of", "")
    if of not in ("", AMOUNTS, SPEEDS):
        raise bad_request(f"'of' must be {AMOUNTS} or {SPEEDS}")
    if of:
        lines = tuple(line for line in lines if line.unit.endswith("/s") is (of == SPEEDS))
    table = await kind.fresh()
    counters = counters_of(table)
    wanted = [(line, line.columns or counters.get(line.counter, ())) for line in lines]
    columns = sorted({column for _, some in wanted for column in some})
    times: list[int] = []
    found: dict[str, Column] = {}
    for key in keys:
        times, series = await call.state.history.series(name, key, columns, span)
        for column, values in series.items():
            found[column] = added(found.get(column), values)
    result: JsonObject = {"times": times, "series": []}
    for line, some in wanted:
        if some:
            total: Column | None = None
            for column in some:
                total = added(total, found.get(column, []))
            if line.is_age and total is not None:
                total = ages(times, total)
            result["series"].append({"label": line.label, "unit": line.unit, "values": total})
    return Answer(200, result)


def added(one: Column | None, other: Column) -> Column:
    """Return the sum of two columns; what one of them does not know counts as nothing."""
    if one is None:
        return other
    return [b if a is None else a if b is None else a + b for a, b in zip(one, other, strict=True)]


def ages(times: Sequence[int], moments_ms: Column) -> Column:
    """Return the seconds since moments at some times; None where there was none yet."""
    return [
        max(0.0, time - moment / MS) if moment else None
        for time, moment in zip(times, moments_ms, strict=True)
    ]


def depths_and_rates(address: str) -> Charts:
    """Return two charts of the same object: what there is, and what goes through it a second."""
    return (
        (f"{address}?of={AMOUNTS}", "Messages"),
        (f"{address}?of={SPEEDS}", "Messages/s"),
    )


GROUP_CHARTS = (
    ("lag", "Lag in messages"),
    ("bytes", "Lag in bytes"),
    ("rates", "Messages/s"),
    ("age", "Time since the last commit"),
    ("claimed", "Claimed (1) or free (0)"),
)
LEASE_CHARTS = (
    ("messages", "Messages"),
    ("bytes", "Leased bytes"),
    ("rates", "Messages/s"),
    ("owned", "Owned (1) or free (0)"),
)


async def group_charts(call: HttpCall) -> Charts:
    """Return the charts of the group that a path names."""
    return await charts_of(call, call.state.groups, GROUP, "stream", GROUP_CHARTS)


async def lease_charts(call: HttpCall) -> Charts:
    """Return the charts of the lease that a path names."""
    return await charts_of(call, call.state.leases, LEASE, "queue", LEASE_CHARTS)


async def charts_of(
    call: HttpCall, kind: ObjectTable, name: str, source: str, charts: Charts
) -> Charts:
    """Return charts of the group or lease that a path names, with their addresses.

    There are none without it, or if the user does not see it.
    """
    key = [call.path[part] for part in ("vhost", source, "group")]
    if not call.identity.sees_vhost(key[0]) or await kind.find(*key) is None:
        return ()
    address = f"/charts/{name}/{'/'.join(map(segment, key))}"
    return tuple((f"{address}/{what}", title) for what, title in charts)


QUERY = (
    Parameter("span", "1m, 1h, 1d or 30d."),
    Parameter("of", f"`{AMOUNTS}` or `{SPEEDS}`: only these lines."),
)


def route(path: str, handler: Handler, tag: str = MANAGEMENT) -> Route:
    """Return the route of a chart's numbers."""
    return Route("GET", path, handler, tag, "", "The numbers of a chart.", QUERY, page=True)


ROUTES = (
    route("/charts/totals/{what}", of_totals),
    route("/charts/node/{what}", of_node, MONITORING),
    route("/charts/vhost/{vhost}", of_vhost),
    route("/charts/queue/{vhost}/{queue}", of_queue),
    route("/charts/exchange/{vhost}/{exchange}", of_exchange),
    route("/charts/connection/{name}/{what}", of_connection),
    route("/charts/user/{user}/{what}", of_user, ADMINISTRATOR),
    route("/charts/channel/{channel}", of_channel),
    route("/charts/group/{vhost}/{stream}/{group}/{what}", of_group),
    route("/charts/lease/{vhost}/{queue}/{group}/{what}", of_lease),
)
