# SPDX-License-Identifier: Apache-2.0
"""The numbers of charts, over a minute to 30 days.

``/charts/…`` returns series of counts and rates from the console's history
(:mod:`headrace.console.state.history`); the script ``charts.js`` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.console.api import exchanges, users
from headrace.console.api.channels import find_channel
from headrace.console.api.common.lookups import check_vhost_exists
from headrace.console.api.common.samples import present_counters
from headrace.console.api.connections import find_connection
from headrace.console.http.answers import Answer
from headrace.console.http.routes import Parameter
from headrace.console.http_errors import bad_request, not_found
from headrace.console.pages.charts.addresses import AMOUNTS, SPEEDS
from headrace.console.pages.charts.lines import (
    DEPTHS,
    OF_CHANNEL,
    OF_CLIENT,
    OF_GROUP,
    OF_LEASE,
    OF_NODE,
    OF_TOTALS,
    RATES,
    ROUTED,
    lines_of,
)
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.state.deltas import MS
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
    from headrace.console.http.query import Query
    from headrace.console.http.routes import Decorator
    from headrace.console.pages.charts.lines import ChartLine
    from headrace.console.state.broker_mirror import ObjectTable
    from headrace.console.state.history import Column
    from headrace.untyped import JsonObject

QUERY = (
    Parameter("span", "1m, 1h, 1d or 30d."),
    Parameter("of", f"`{AMOUNTS}` or `{SPEEDS}`: only these lines."),
)
PAGES = ResourcePages()


def chart_route(path: str, tag: str = MANAGEMENT) -> Decorator:
    """Return a decorator: the function answers with the numbers of a chart."""
    return PAGES.get({path: "The numbers of a chart."}, tag=tag, query=QUERY)


@chart_route("/charts/totals/{chart}")
async def of_totals(call: HttpCall, chart: str) -> Answer:
    """Return the numbers of all virtual hosts that the user sees."""
    lines = lines_of(OF_TOTALS, chart)
    if call.identity.sees_all:
        return await numbers(call, call.state.totals, TOTALS, [(TOTALS,)], lines)
    table = await call.state.vhosts.fresh_table()
    names = [table.text("name", slot) for slot in table.slots_in_order()]
    keys = [(name,) for name in names if call.identity.sees_vhost(name)]
    return await numbers(call, call.state.vhosts, VHOST, keys, lines)


@chart_route("/charts/node/{chart}", MONITORING)
async def of_node(call: HttpCall, chart: str) -> Answer:
    """Return the numbers of the broker's process."""
    return await numbers(call, call.state.totals, NODE, [(NODE,)], lines_of(OF_NODE, chart))


@chart_route("/charts/vhost/{vhost}")
async def of_vhost(call: HttpCall, vhost: str) -> Answer:
    """Return the numbers of a virtual host."""
    await check_vhost_exists(call, vhost)
    return await numbers(call, call.state.vhosts, VHOST, [(vhost,)], DEPTHS + RATES)


@chart_route("/charts/queue/{vhost}/{queue}")
async def of_queue(call: HttpCall, vhost: str, queue: str) -> Answer:
    """Return the numbers of a queue."""
    await check_vhost_exists(call, vhost)
    if await call.state.queues.find(vhost, queue) is None:
        raise not_found()
    return await numbers(call, call.state.queues, QUEUE, [(vhost, queue)], DEPTHS + RATES)


@chart_route("/charts/exchange/{vhost}/{exchange}")
async def of_exchange(call: HttpCall, vhost: str, exchange: str) -> Answer:
    """Return the numbers of an exchange, for one hour at most."""
    row = await exchanges.show_exchange(call, vhost, exchange)
    key = (row["vhost"], row["name"])
    return await numbers(call, call.state.exchanges, EXCHANGE, [key], ROUTED)


@chart_route("/charts/connection/{name}/{chart}")
async def of_connection(call: HttpCall, name: str, chart: str) -> Answer:
    """Return the numbers of a connection, for one hour at most."""
    lines = lines_of(OF_CLIENT, chart)
    connection = await find_connection(call, name)
    key = (connection.row["number"],)
    return await numbers(call, call.state.connections, CONNECTION, [key], lines)


@chart_route("/charts/user/{user}/{chart}", ADMINISTRATOR)
async def of_user(call: HttpCall, user: str, chart: str) -> Answer:
    """Return the numbers of all connections of a user, of closed ones, too."""
    lines = lines_of(OF_CLIENT, chart)
    await users.show_user(call, user)
    return await numbers(call, call.state.users, USER, [(user,)], lines)


@chart_route("/charts/channel/{channel}")
async def of_channel(call: HttpCall, channel: str) -> Answer:
    """Return the numbers of a channel, for ten minutes at most."""
    sampled = await find_channel(call, channel)
    key = (sampled.row["connection"], sampled.row["number"], sampled.row["name"])
    return await numbers(call, call.state.channels, CHANNEL, [key], OF_CHANNEL)


@chart_route("/charts/group/{vhost}/{stream}/{group}/{chart}")
async def of_group(call: HttpCall, vhost: str, stream: str, group: str, chart: str) -> Answer:
    """Return the numbers of a group of stream readers, for one hour at most."""
    key, lines = (vhost, stream, group), lines_of(OF_GROUP, chart)
    return await numbers_of_reader(call, call.state.groups, GROUP, key, lines)


@chart_route("/charts/lease/{vhost}/{queue}/{group}/{chart}")
async def of_lease(call: HttpCall, vhost: str, queue: str, group: str, chart: str) -> Answer:
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
    await check_vhost_exists(call, key[0])
    if await objects.find(*key) is None:
        raise not_found()
    return await numbers(call, objects, kind, [key], lines)


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
    span = span_in(call.query)
    lines = chosen_lines(call.query, lines)
    table = await objects.fresh_table()
    counters = present_counters(table)
    columns_by_line = [(line, line.columns or counters.get(line.counter, ())) for line in lines]
    columns = sorted({column for _, names in columns_by_line for column in names})
    times: list[int] = []
    sums: dict[str, Column] = {}
    for key in keys:
        times, columns_of_key = await call.state.history.series(kind, key, columns, span)
        for column, values in columns_of_key.items():
            sums[column] = add_columns(sums.get(column), values)
    series = [
        series_of(line, times, [sums.get(column, []) for column in names])
        for line, names in columns_by_line
        if names
    ]
    return Answer(200, {"times": times, "series": series})


def span_in(query: Query) -> str:
    """Return the span that a query names.

    Raises:
        HttpError: the span is unknown.
    """
    span = query.get("span", "1m")
    if span not in SPANS:
        raise bad_request(f"'span' must be one of {', '.join(SPANS)}")
    return span


def chosen_lines(query: Query, lines: tuple[ChartLine, ...]) -> tuple[ChartLine, ...]:
    """Return the lines of amounts or of rates if the query names one of these; else all.

    Raises:
        HttpError: ``of`` is unknown.
    """
    of = query.get("of", "")
    if of not in ("", AMOUNTS, SPEEDS):
        raise bad_request(f"'of' must be {AMOUNTS} or {SPEEDS}")
    return tuple(line for line in lines if not of or line.unit.endswith("/s") is (of == SPEEDS))


def series_of(line: ChartLine, times: Sequence[int], columns: Sequence[Column]) -> JsonObject:
    """Return a line as label, unit and values: the sums of its columns."""
    total = columns[0]
    for column in columns[1:]:
        total = add_columns(total, column)
    values = ages(times, total) if line.is_age else total
    return {"label": line.label, "unit": line.unit, "values": values}


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
