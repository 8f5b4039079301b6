# SPDX-License-Identifier: Apache-2.0
"""The operation ``sample``."""

from __future__ import annotations

import base64
import sys
import time
from array import array
from typing import TYPE_CHECKING

from headrace.measures import CHANNEL, CONNECTION, LOGINS, PROTOCOL, QUEUE, TOTALS
from headrace.server.management.operation_table import OperationTable
from headrace.server.management.sampling.rows import SHAPES, queue_static
from headrace.server.management.sampling.sampler import Gone, Sampler, Track
from headrace.user_tags import LOOK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Answered, Call, Steps
    from headrace.server.management.sampling.queue_looks import QueueLooks
    from headrace.server.management.sampling.queue_row import QueueRow

operation = OperationTable()

LOOKED_AT = 256  # Objects of a step without a line,
ROWS = 64  # and rows of a line.


@operation("sample", LOOK, fields="`since`, `kinds`")
async def sample(call: Call) -> Steps:
    """Tell the rows of ``kinds`` that changed after the look ``since``; 0: all of them."""
    since = call.number("since", 0)
    kinds = kinds_of(call)
    broker = call.broker
    sampler = broker.sampler
    if not isinstance(sampler, Sampler):
        broker.sampler = sampler = Sampler(broker)
    began_s = time.monotonic()
    await sampler.look()
    return changed_lines(call, sampler, kinds, since, began_s)


def kinds_of(call: Call) -> list[str]:
    """Return the kinds of a request, in the order of the answer; all by default."""
    wanted = call.request.get("kinds", list(SHAPES))
    if not isinstance(wanted, list) or not all(
        isinstance(kind, str) and kind in SHAPES for kind in wanted
    ):
        call.refuse("bad-request", f"kinds are {', '.join(SHAPES)}")
    return [kind for kind in SHAPES if kind in wanted]


def changed_lines(
    call: Call, sampler: Sampler, kinds: list[str], since: int, began_s: float
) -> Steps:
    """Yield the lines of what changed after the look ``since``; return the end of the answer."""
    epoch = sampler.complete
    everything = not sampler.first <= since <= epoch
    gone = list(sampler.gone)  # Another look may forget some of them meanwhile.
    if everything:
        since = 0
    if QUEUE in kinds and sampler.queues is not None:
        yield from queue_lines(call, sampler.queues, since, epoch)
    for kind in kinds:
        changed: list[Track] = []
        for at, track in enumerate(list(sampler.kinds[kind].values())):
            if since < track.changed and 0 < track.born <= epoch and sees(call, kind, track):
                changed.append(track)
            if len(changed) == ROWS:
                yield line(kind, changed, since)
                changed = []
            elif not at % LOOKED_AT:
                yield None
        if changed:
            yield line(kind, changed, since)
    yield from ended_lines(call, gone, kinds, since, epoch)
    took_ms = round(1000 * (time.monotonic() - began_s))
    return {"epoch": epoch, "run": sampler.run, "everything": everything, "ms": took_ms}


def queue_lines(call: Call, looks: QueueLooks, since: int, epoch: int) -> Steps:
    """Yield the lines of queues that changed after the look ``since``, up to the look ``epoch``."""
    vhosts = call.broker.vhosts
    rows: list[tuple[Queue, QueueRow]] = []
    for queue in looks.changed(since, epoch, list(vhosts.values())):
        if queue is None:
            yield None
            continue
        row = looks.row(queue)
        if row is not None and call.sees_vhost(row.vhost):
            rows.append((queue, row))
        if len(rows) == ROWS:
            yield queue_line(rows, vhosts, since)
            rows = []
    if rows:
        yield queue_line(rows, vhosts, since)
    return {}


def queue_line(
    rows: list[tuple[Queue, QueueRow]], vhosts: Mapping[str, VirtualHost], since: int
) -> Answered:
    """Return the line of some queues."""
    fields, names = SHAPES[QUEUE]
    new = [
        [row.number, *queue_static(queue, vhosts[row.vhost], (row.policy, row.operator_policy))]
        for queue, row in rows
        if row.told > since and row.vhost in vhosts
    ]
    values = [row.part(0, len(names)) for _, row in rows]
    columns = zip(names, zip(*values, strict=True), strict=True) if values else ()
    return {
        "kind": QUEUE,
        "ids": packed([row.number for _, row in rows]),
        "columns": {name: packed(column) for name, column in columns},
        "fields": fields if new else (),
        "new": new,
        "gone": [],
    }


def ended_lines(call: Call, gone: list[Gone], kinds: list[str], since: int, epoch: int) -> Steps:
    """Yield the numbers of the objects that the client knows and that are gone."""
    ended: dict[str, list[int]] = {kind: [] for kind in kinds}
    for at, (when, kind, track) in enumerate(gone):
        known = track.born <= since < when <= epoch
        if known and kind in ended and sees(call, kind, track):
            ended[kind].append(track.number)
        if not at % LOOKED_AT:
            yield None
    for kind, numbers in ended.items():
        for at in range(0, len(numbers), LOOKED_AT):
            yield {**line(kind, [], since), "gone": numbers[at : at + LOOKED_AT]}
    return {}


def sees(call: Call, kind: str, track: Track | QueueRow) -> bool:
    """Return True if the user of a call sees an object, by the rules of lists."""
    if isinstance(track, Track) and kind in (CONNECTION, CHANNEL):
        return call.sees_user(track.user)
    return call.sees_all if kind in (TOTALS, PROTOCOL, LOGINS) else call.sees_vhost(track.vhost)


def line(kind: str, tracks: list[Track], since: int) -> Answered:
    """Return the line of some rows."""
    fields, names = SHAPES[kind]
    new = [[track.number, *track.static] for track in tracks if track.told > since]
    values = [track.values for track in tracks]
    columns = zip(names, zip(*values, strict=True), strict=True) if tracks else ()
    return {
        "kind": kind,
        "ids": packed([track.number for track in tracks]),
        "columns": {name: packed(column) for name, column in columns},
        "fields": fields if new else (),
        "new": new,
        "gone": [],
    }


def packed(numbers: list[int] | tuple[int, ...]) -> str:
    """Return signed integers of 64 bits, little-endian, in base64."""
    column = array("q", numbers)
    if sys.byteorder == "big":
        column.byteswap()
    return base64.b64encode(column).decode()
