# SPDX-License-Identifier: Apache-2.0
"""Charts: the addresses of their numbers, and the numbers over a minute to 30 days.

``/charts/…`` returns series of counts and rates from the console's history
(:mod:`headrace.console.state.history`); the script ``charts.js`` draws them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.api import exchanges, users
from headrace.console.api.channels import find_channel
from headrace.console.api.common.lookups import check_exists
from headrace.console.api.common.samples import counters_of
from headrace.console.api.connections import find_connection
from headrace.console.http.answers import Answer
from headrace.console.http.routes import Parameter, Routes
from headrace.console.http_errors import bad_request, not_found
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
    from headrace.console.http.routes import Decorator
    from headrace.console.pages.details import Charts
    from headrace.console.state.broker_mirror import ObjectTable
    from headrace.console.state.history import Column
    from headrace.untyped import JsonObject

Columns = tuple[str, ...]
AMOUNTS, SPEEDS = "amounts", "rates"  # Values of ``of``: lines of amounts, or of rates.
QUERY = (
    Parameter("span", "1m, 1h, 1d or 30d."),
    Parameter("of", f"`{AMOUNTS}` or `{SPEEDS}`: only these lines."),
)
ROUTES = Routes()


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line of a chart: the sum of columns, or a counter of messages by the name of the API."""

    label: str
    columns: Columns = ()
    counter: str = ""
    unit: str = ""
    is_age: bool = False  # The column is a time, the line the seconds since then.


DEPTHS = (ChartLine("ready", ("ready",)), ChartLine("unacked", ("unacked",)))
RATES = (
    ChartLine("published", counter="publish", unit="/s"),
    ChartLine("delivered", counter="deliver_get", unit="/s"),
    ChartLine("acknowledged", counter="ack", unit="/s"),
    ChartLine("redelivered", counter="redeliver", unit="/s"),
)
ROUTED = (
    ChartLine("published", counter="publish_in", unit="/s"),
    ChartLine("routed", counter="publish_out", unit="/s"),
    ChartLine("returned", counter="return_unroutable", unit="/s"),
    ChartLine("dropped", counter="drop_unroutable", unit="/s"),
)
OF_CHANNEL = (
    ChartLine("unacked", ("unacked",)),
    ChartLine("published", counter="publish", unit="/s"),
    ChartLine("delivered", counter="deliver_get", unit="/s"),
    ChartLine("acknowledged", counter="ack", unit="/s"),
)
BYTES = (
    ChartLine("from client", ("bytes_received",), unit="B/s"),
    ChartLine("to client", ("bytes_sent",), unit="B/s"),
)
OF_CLIENT: Mapping[str, tuple[ChartLine, ...]] = {  # A connection, or the connections of a user.
    "rates": (
        ChartLine("published", ("publish",), unit="/s"),
        ChartLine("delivered", ("deliver", "deliver_no_ack", "get", "get_no_ack"), unit="/s"),
        ChartLine("acknowledged", ("ack",), unit="/s"),
        ChartLine("redelivered", ("redeliver",), unit="/s"),
    ),
    "bytes": BYTES,
}
OF_TOTALS: Mapping[str, tuple[ChartLine, ...]] = {
    "messages": DEPTHS,
    "rates": RATES,
    "clients": (
        ChartLine("connections", ("connections",)),
        ChartLine("channels", ("channels",)),
        ChartLine("consumers", ("consumers",)),
    ),
}
OF_GROUP: Mapping[str, tuple[ChartLine, ...]] = {
    "lag": (ChartLine("lag", ("lag",)),),
    "bytes": (ChartLine("lag", ("lag_bytes",), unit="B"),),
    "rates": (
        ChartLine("published", ("durable_offset",), unit="/s"),
        ChartLine("committed", ("committed_records",), unit="/s"),
    ),
    "age": (ChartLine("since the last commit", ("committed_ms",), unit="s", is_age=True),),
    "claimed": (ChartLine("claimed", ("claimed",)),),
}
OF_LEASE: Mapping[str, tuple[ChartLine, ...]] = {
    "messages": (ChartLine("leased", ("leased",)), ChartLine("ready", ("ready",))),
    "bytes": (ChartLine("leased", ("leased_bytes",), unit="B"),),
    "rates": (
        ChartLine("taken", ("taken",), unit="/s"),
        ChartLine("settled", ("settled",), unit="/s"),
    ),
    "owned": (ChartLine("owned", ("owned",)),),
}
OF_NODE: Mapping[str, tuple[ChartLine, ...]] = {
    "memory": (ChartLine("memory", ("mem_used",), unit="B"),),
    "disk": (ChartLine("disk free", ("disk_free",), unit="B"),),
    "syncs": (ChartLine("journal syncs", ("journal_groups",), unit="/s"),),
    "files": (ChartLine("open files", ("fd_used",)), ChartLine("sockets", ("sockets_used",))),
}


def chart_route(path: str, tag: str = MANAGEMENT) -> Decorator:
    """Return a decorator: the function answers with the numbers of a chart."""
    return ROUTES.get({path: "The numbers of a chart."}, tag=tag, query=QUERY, page=True)


@chart_route("/charts/totals/{chart}")
async def of_totals(call: HttpCall, chart: str) -> object:
    """Return the numbers of all virtual hosts that the user sees."""
    lines = lines_of(OF_TOTALS, chart)
    if call.identity.sees_all:
        return await numbers(call, call.state.totals, TOTALS, [(TOTALS,)], lines)
    table = await call.state.vhosts.fresh()
    names = [table.text("name", slot) for slot in table.ordered()]
    keys = [(name,) for name in names if call.identity.sees_vhost(name)]
    return await numbers(call, call.state.vhosts, VHOST, keys, lines)


@chart_route("/charts/node/{chart}", MONITORING)
async def of_node(call: HttpCall, chart: str) -> object:
    """Return the numbers of the broker's process."""
    return await numbers(call, call.state.totals, NODE, [(NODE,)], lines_of(OF_NODE, chart))


@chart_route("/charts/vhost/{vhost}")
async def of_vhost(call: HttpCall, vhost: str) -> object:
    """Return the numbers of a virtual host."""
    await check_exists(call, vhost)
    return await numbers(call, call.state.vhosts, VHOST, [(vhost,)], DEPTHS + RATES)


@chart_route("/charts/queue/{vhost}/{queue}")
async def of_queue(call: HttpCall, vhost: str, queue: str) -> object:
    """Return the numbers of a queue."""
    await check_exists(call, vhost)
    if await call.state.queues.find(vhost, queue) is None:
        raise not_found()
    return await numbers(call, call.state.queues, QUEUE, [(vhost, queue)], DEPTHS + RATES)


@chart_route("/charts/exchange/{vhost}/{exchange}")
async def of_exchange(call: HttpCall, vhost: str, exchange: str) -> object:
    """Return the numbers of an exchange, for one hour at most."""
    row = await exchanges.show_exchange(call, vhost, exchange)
    key = (row["vhost"], row["name"])
    return await numbers(call, call.state.exchanges, EXCHANGE, [key], ROUTED)


@chart_route("/charts/connection/{name}/{chart}")
async def of_connection(call: HttpCall, name: str, chart: str) -> object:
    """Return the numbers of a connection, for one hour at most."""
    lines = lines_of(OF_CLIENT, chart)
    connection = await find_connection(call, name)
    key = (connection.row["number"],)
    return await numbers(call, call.state.connections, CONNECTION, [key], lines)


@chart_route("/charts/user/{user}/{chart}", ADMINISTRATOR)
async def of_user(call: HttpCall, user: str, chart: str) -> object:
    """Return the numbers of all connections of a user, of closed ones, too."""
    lines = lines_of(OF_CLIENT, chart)
    await users.show_user(call, user)
    return await numbers(call, call.state.users, USER, [(user,)], lines)


@chart_route("/charts/channel/{channel}")
async def of_channel(call: HttpCall, channel: str) -> object:
    """Return the numbers of a channel, for ten minutes at most."""
    sampled = await find_channel(call, channel)
    key = (sampled.row["connection"], sampled.row["number"], sampled.row["name"])
    return await numbers(call, call.state.channels, CHANNEL, [key], OF_CHANNEL)


@chart_route("/charts/group/{vhost}/{stream}/{group}/{chart}")
async def of_group(call: HttpCall, vhost: str, stream: str, group: str, chart: str) -> object:
    """Return the numbers of a group of stream readers, for one hour at most."""
    key, lines = (vhost, stream, group), lines_of(OF_GROUP, chart)
    return await numbers_of_reader(call, call.state.groups, GROUP, key, lines)


@chart_route("/charts/lease/{vhost}/{queue}/{group}/{chart}")
async def of_lease(call: HttpCall, vhost: str, queue: str, group: str, chart: str) -> object:
    """Return the numbers of a lease, for one hour at most."""
    key, lines = (vhost, queue, group), lines_of(OF_LEASE, chart)
    return await numbers_of_reader(call, call.state.leases, LEASE, key, lines)


async def numbers_of_reader(
    call: HttpCall,
    objects: ObjectTable,
    kind: str,
    key: tuple[str, str, str],
    lines: tuple[ChartLine, ...],
) -> Answer:
    """Return the numbers of a group or a lease.

    Raises:
        HttpError: the object does not exist, or the user does not see it.
    """
    await check_exists(call, key[0])
    if await objects.find(*key) is None:
        raise not_found()
    return await numbers(call, objects, kind, [key], lines)


def lines_of(charts: Mapping[str, tuple[ChartLine, ...]], chart: str) -> tuple[ChartLine, ...]:
    """Return the lines of a chart.

    Raises:
        HttpError: the chart does not exist.
    """
    if chart not in charts:
        raise not_found()
    return charts[chart]


async def numbers(
    call: HttpCall,
    objects: ObjectTable,
    kind: str,
    keys: Sequence[tuple[str, ...]],
    lines: tuple[ChartLine, ...],
) -> Answer:
    """Return the sums of some objects as ``times`` and one series for each line.

    Raises:
        HttpError: the query has an unknown span or ``of``.
    """
    span = call.query.get("span", "1m")
    if span not in SPANS:
        raise bad_request(f"'span' must be one of {', '.join(SPANS)}")
    of = call.query.get("of", "")
    if of not in ("", AMOUNTS, SPEEDS):
        raise bad_request(f"'of' must be {AMOUNTS} or {SPEEDS}")
    if of:
        lines = tuple(line for line in lines if line.unit.endswith("/s") is (of == SPEEDS))
    table = await objects.fresh()
    counters = counters_of(table)
    columns_by_line = [(line, line.columns or counters.get(line.counter, ())) for line in lines]
    columns = sorted({column for _, names in columns_by_line for column in names})
    times: list[int] = []
    sums: dict[str, Column] = {}
    for key in keys:
        times, series = await call.state.history.series(kind, key, columns, span)
        for column, values in series.items():
            sums[column] = add_columns(sums.get(column), values)
    answer: JsonObject = {"times": times, "series": []}
    for line, names in columns_by_line:
        if names:
            total: Column | None = None
            for column in names:
                total = add_columns(total, sums.get(column, []))
            if line.is_age and total is not None:
                total = ages(times, total)
            answer["series"].append({"label": line.label, "unit": line.unit, "values": total})
    return Answer(200, answer)


def add_columns(first: Column | None, second: Column) -> Column:
    """Return the sum of two columns; None counts as 0 beside a number."""
    if first is None:
        return second
    return [
        b if a is None else a if b is None else a + b for a, b in zip(first, second, strict=True)
    ]


def ages(times: Sequence[int], moments_ms: Column) -> Column:
    """Return the seconds from moments to the times of a chart; None before the first moment."""
    return [
        max(0.0, time - moment / MS) if moment else None
        for time, moment in zip(times, moments_ms, strict=True)
    ]


def depths_and_rates(address: str) -> Charts:
    """Return two charts of an object: its messages, and its rates."""
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


async def group_charts(call: HttpCall, vhost: str, stream: str, group: str) -> Charts:
    """Return the charts of a group."""
    return await charts_of(call, call.state.groups, GROUP, (vhost, stream, group), GROUP_CHARTS)


async def lease_charts(call: HttpCall, vhost: str, queue: str, group: str) -> Charts:
    """Return the charts of a lease."""
    return await charts_of(call, call.state.leases, LEASE, (vhost, queue, group), LEASE_CHARTS)


async def charts_of(
    call: HttpCall, objects: ObjectTable, kind: str, key: tuple[str, str, str], charts: Charts
) -> Charts:
    """Return the charts of a group or lease; none if the user does not see it."""
    if not call.identity.sees_vhost(key[0]) or await objects.find(*key) is None:
        return ()
    address = f"/charts/{kind}/{'/'.join(map(segment, key))}"
    return tuple((f"{address}/{chart}", title) for chart, title in charts)
