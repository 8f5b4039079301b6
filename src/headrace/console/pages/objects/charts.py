# SPDX-License-Identifier: Apache-2.0
"""The numbers of charts: samples of the last ten minutes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.console.api.common.rows import check_exists
from headrace.console.api.common.samples import DEPTHS, counters_of
from headrace.console.api.overview import seen_sums
from headrace.console.http.answers import Answer
from headrace.console.http.errors import not_found
from headrace.console.http.routes import MANAGEMENT, Parameter, Route
from headrace.console.state.frames import MS, SAMPLE_S

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import Tracked
    from headrace.untyped import JsonObject

SPAN_S = 600  # What the samples of this process cover.
DEPTH_LABELS = {"messages_ready": "ready", "messages_unacknowledged": "unacked"}
RATE_LABELS = {"publish": "in", "deliver_get": "out", "ack": "acked"}
WHAT = ("messages", "rates")


async def totals(call: HttpCall) -> object:
    """Return the messages, or the rates, of what the user sees."""
    what = call.path["what"]
    if what not in WHAT:
        raise not_found()
    await call.state.queues.fresh()
    seen = seen_sums(call)
    return Answer(200, points(call, seen, depths=what == "messages", rates=what == "rates"))


async def of_vhost(call: HttpCall) -> object:
    """Return the numbers of a virtual host."""
    await check_exists(call, call.path["vhost"])
    return Answer(200, points(call, present(await call.state.vhosts.find(call.path["vhost"]))))


async def of_queue(call: HttpCall) -> object:
    """Return the numbers of a queue."""
    vhost, name = call.path["vhost"], call.path["queue"]
    await check_exists(call, vhost)
    return Answer(200, points(call, present(await call.state.queues.find(vhost, name))))


def present(one: Tracked | None) -> list[Tracked]:
    """Return an object that exists.

    Raises:
        HttpError: it does not.
    """
    if one is None:
        raise not_found()
    return [one]


def points(
    call: HttpCall, objects: list[Tracked], *, depths: bool = True, rates: bool = True
) -> JsonObject:
    """Return the samples of some objects together."""
    now_ms, step = call.state.queues.now_ms, SAMPLE_S * MS
    moments = [now_ms - step * back for back in range(SPAN_S // SAMPLE_S + 1)]
    series: list[JsonObject] = []
    if depths:
        series += [
            {"label": label, "values": summed(objects, DEPTHS[name], moments)[1:]}
            for name, label in DEPTH_LABELS.items()
        ]
    if rates and objects:
        known = counters_of(objects[0].table)
        for name, label in RATE_LABELS.items():
            counts = summed(objects, known.get(name, ()), moments)
            values = [(after - before) / SAMPLE_S for before, after in pairwise(counts)]
            series.append({"label": label, "unit": "/s", "values": values})
    return {"times": [at / MS for at in reversed(moments)][1:], "series": series}


def summed(objects: list[Tracked], columns: tuple[str, ...], moments: list[int]) -> list[int]:
    """Return the sum of columns of some objects at moments, the latest last."""
    found = [0] * len(moments)
    for one in objects:
        for place, value in enumerate(one.table.at(one.slot, columns, moments)):
            found[place] += value
    return found[::-1]


QUERY = (Parameter("span", "1m, 1h, 1d or 30d."),)
ROUTES = tuple(
    Route("GET", path, handler, MANAGEMENT, "", "The numbers of a chart.", QUERY, page=True)
    for path, handler in (
        ("/charts/totals/{what}", totals),
        ("/charts/vhost/{vhost}", of_vhost),
        ("/charts/queue/{vhost}/{queue}", of_queue),
    )
)
