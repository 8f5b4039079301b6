# SPDX-License-Identifier: Apache-2.0
"""The series of charts, over a minute to 30 days.

``/charts/…`` returns counts and rates from the console's history
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
from headrace.console.pages.charts.addresses import AMOUNTS, RATES
from headrace.console.pages.charts.lines import (
    CHANNEL_LINES,
    CLIENT_CHARTS,
    EXCHANGE_LINES,
    GROUP_CHARTS,
    LEASE_CHARTS,
    MESSAGE_LINES,
    NODE_CHARTS,
    TOTALS_CHARTS,
    find_lines,
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
    from headrace.console.pages.charts.lines import ChartLine, Lines
    from headrace.console.state.broker_mirror import ObjectTable
    from headrace.console.state.history import Column
    from headrace.untyped import JsonObject

QUERY = (
    Parameter("span", "1m, 1h, 1d or 30d."),
    Parameter("of", f"`{AMOUNTS}` or `{RATES}`: only these lines."),
)
PAGES = ResourcePages()


def chart_route(path: str, tag: str = MANAGEMENT) -> Decorator:
    """Return a decorator: the function returns the series of a chart."""
    return PAGES.get({path: "The numbers of a chart."}, tag=tag, query=QUERY)


@chart_route("/charts/totals/{chart}")
async def chart_totals(call: HttpCall, chart: str) -> Answer:
    """Return the series of all virtual hosts that the user sees."""
    lines = find_lines(TOTALS_CHARTS, chart)
    if call.identity.sees_all:
        return await sum_series(call, call.state.totals, TOTALS, [(TOTALS,)], lines)
    table = await call.state.vhosts.fresh_table()
    names = [table.text("name", slot) for slot in table.slots_in_order()]
    keys = [(name,) for name in names if call.identity.sees_vhost(name)]
    return await sum_series(call, call.state.vhosts, VHOST, keys, lines)


@chart_route("/charts/node/{chart}", MONITORING)
async def chart_node(call: HttpCall, chart: str) -> Answer:
    """Return the series of the broker's process."""
    lines = find_lines(NODE_CHARTS, chart)
    return await sum_series(call, call.state.totals, NODE, [(NODE,)], lines)


@chart_route("/charts/vhost/{vhost}")
async def chart_vhost(call: HttpCall, vhost: str) -> Answer:
    """Return the series of a virtual host."""
    await check_vhost_exists(call, vhost)
    return await sum_series(call, call.state.vhosts, VHOST, [(vhost,)], MESSAGE_LINES)


@chart_route("/charts/queue/{vhost}/{queue}")
async def chart_queue(call: HttpCall, vhost: str, queue: str) -> Answer:
    """Return the series of a queue."""
    await check_vhost_exists(call, vhost)
    if await call.state.queues.find(vhost, queue) is None:
        raise not_found()
    return await sum_series(call, call.state.queues, QUEUE, [(vhost, queue)], MESSAGE_LINES)


@chart_route("/charts/exchange/{vhost}/{exchange}")
async def chart_exchange(call: HttpCall, vhost: str, exchange: str) -> Answer:
    """Return the series of an exchange, for one hour at most."""
    row = await exchanges.show_exchange(call, vhost, exchange)
    key = (row["vhost"], row["name"])
    return await sum_series(call, call.state.exchanges, EXCHANGE, [key], EXCHANGE_LINES)


@chart_route("/charts/connection/{name}/{chart}")
async def chart_connection(call: HttpCall, name: str, chart: str) -> Answer:
    """Return the series of a connection, for one hour at most."""
    lines = find_lines(CLIENT_CHARTS, chart)
    connection = await find_connection(call, name)
    key = (connection.row["number"],)
    return await sum_series(call, call.state.connections, CONNECTION, [key], lines)


@chart_route("/charts/user/{user}/{chart}", ADMINISTRATOR)
async def chart_user(call: HttpCall, user: str, chart: str) -> Answer:
    """Return the series of all connections of a user, including closed ones."""
    lines = find_lines(CLIENT_CHARTS, chart)
    await users.show_user(call, user)
    return await sum_series(call, call.state.users, USER, [(user,)], lines)


@chart_route("/charts/channel/{channel}")
async def chart_channel(call: HttpCall, channel: str) -> Answer:
    """Return the series of a channel, for ten minutes at most."""
    sampled = await find_channel(call, channel)
    key = (sampled.row["connection"], sampled.row["number"], sampled.row["name"])
    return await sum_series(call, call.state.channels, CHANNEL, [key], CHANNEL_LINES)


@chart_route("/charts/group/{vhost}/{stream}/{group}/{chart}")
async def chart_group(call: HttpCall, vhost: str, stream: str, group: str, chart: str) -> Answer:
    """Return the series of a group of stream readers, for one hour at most."""
    key, lines = (vhost, stream, group), find_lines(GROUP_CHARTS, chart)
    return await sum_reader_series(call, call.state.groups, GROUP, key, lines)


@chart_route("/charts/lease/{vhost}/{queue}/{group}/{chart}")
async def chart_lease(call: HttpCall, vhost: str, queue: str, group: str, chart: str) -> Answer:
    """Return the series of a lease, for one hour at most."""
    key, lines = (vhost, queue, group), find_lines(LEASE_CHARTS, chart)
    return await sum_reader_series(call, call.state.leases, LEASE, key, lines)


async def sum_reader_series(
    call: HttpCall,
    objects: ObjectTable,
    kind: str,
    key: tuple[str, str, str],
    lines: Lines,
) -> Answer:
    """Return the series of a group or lease.

    Raises:
        HttpError: the object does not exist, or the user does not see it.
    """
    await check_vhost_exists(call, key[0])
    if await objects.find(*key) is None:
        raise not_found()
    return await sum_series(call, objects, kind, [key], lines)


async def sum_series(
    call: HttpCall,
    objects: ObjectTable,
    kind: str,
    keys: Sequence[tuple[str, ...]],
    lines: Lines,
) -> Answer:
    """Return the sums over objects: ``times``, and in ``series`` one series for each line.

    Raises:
        HttpError: the query has an unknown span or ``of``.
    """
    span = read_span(call.query)
    lines = select_lines(call.query, lines)
    table = await objects.fresh_table()
    counters = present_counters(table)
    lines_with_columns = [(line, line.columns or counters.get(line.counter, ())) for line in lines]
    columns = sorted({column for _, names in lines_with_columns for column in names})
    times: list[int] = []
    sums: dict[str, Column] = {}
    for key in keys:
        times, values_by_column = await call.state.history.series(kind, key, columns, span)
        for column, values in values_by_column.items():
            sums[column] = add_columns(sums.get(column), values)
    series = [
        build_series(line, times, [sums.get(column, []) for column in names])
        for line, names in lines_with_columns
        if names
    ]
    return Answer(200, {"times": times, "series": series})


def read_span(query: Query) -> str:
    """Return the span that a query names.

    Raises:
        HttpError: the span is unknown.
    """
    span = query.get("span", "1m")
    if span not in SPANS:
        raise bad_request(f"'span' must be one of {', '.join(SPANS)}")
    return span


def select_lines(query: Query, lines: Lines) -> Lines:
    """Return the lines that the query selects: amounts, rates, or all.

    Raises:
        HttpError: ``of`` is unknown.
    """
    of = query.get("of", "")
    if of not in ("", AMOUNTS, RATES):
        raise bad_request(f"'of' must be {AMOUNTS} or {RATES}")
    return tuple(line for line in lines if not of or line.unit.endswith("/s") is (of == RATES))


def build_series(line: ChartLine, times: Sequence[int], columns: Sequence[Column]) -> JsonObject:
    """Return the series of a line: label, unit, and the sums of its columns as values."""
    total = columns[0]
    for column in columns[1:]:
        total = add_columns(total, column)
    values = seconds_since(times, total) if line.is_age else total
    return {"label": line.label, "unit": line.unit, "values": values}


def add_columns(first: Column | None, second: Column) -> Column:
    """Return the sum of two columns; None counts as 0 beside a number."""
    if first is None:
        return second
    return [
        b if a is None else a if b is None else a + b for a, b in zip(first, second, strict=True)
    ]


def seconds_since(times: Sequence[int], moments_ms: Column) -> Column:
    """Return the seconds from moments to the times of a chart, at least 0; None for no moment."""
    return [
        max(0.0, time - moment / MS) if moment else None
        for time, moment in zip(times, moments_ms, strict=True)
    ]
