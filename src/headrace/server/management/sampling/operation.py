# SPDX-License-Identifier: Apache-2.0
"""The operation ``sample``, and the lines of its answer."""

from __future__ import annotations

import base64
import sys
import time
from array import array
from typing import TYPE_CHECKING

from headrace.measures import CHANNEL, CONNECTION, LOGINS, PROTOCOL, QUEUE, TOTALS
from headrace.node_name import node_name
from headrace.server.management.forwarding import other_brokers, pass_to_broker
from headrace.server.management.operation_table import OperationTable
from headrace.server.management.sampling.rows import ROW_FIELDS, queue_static
from headrace.server.management.sampling.sampler import EndedObject, SampledObject, Sampler
from headrace.user_tags import LOOK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, JsonLine, Steps
    from headrace.server.management.sampling.queue_changes import QueueChanges
    from headrace.server.management.sampling.queue_row import QueueRow

operation = OperationTable()

STEP = 256  # Objects of a step that yields no line.
ROWS = 64  # Rows of a line.


@operation("sample", LOOK, reads=True, fields="`since`, `kinds`, `broker`")
async def sample(call: Call) -> JsonLine | Steps:
    """List the rows of ``kinds`` that changed after the scan ``since``; with 0, all rows.

    With ``broker``, list the rows of another broker of the cluster in place of this one's.
    """
    if "broker" in call.request:
        return await pass_to_broker(call, call.text("broker"))
    since = call.number("since", 0)
    kinds = read_kinds(call)
    broker = call.broker
    sampler = broker.sampler
    if not isinstance(sampler, Sampler):
        broker.sampler = sampler = Sampler(broker)
    began_s = time.monotonic()
    await sampler.scan()
    return changed_lines(call, sampler, kinds, since, began_s)


def read_kinds(call: Call) -> list[str]:
    """Return the kinds of a request, in the order of the answer; all by default."""
    kinds = call.request.get("kinds", list(ROW_FIELDS))
    if not isinstance(kinds, list) or not all(
        isinstance(kind, str) and kind in ROW_FIELDS for kind in kinds
    ):
        call.refuse("bad-request", f"kinds are {', '.join(ROW_FIELDS)}")
    return [kind for kind in ROW_FIELDS if kind in kinds]


def changed_lines(
    call: Call, sampler: Sampler, kinds: list[str], since: int, began_s: float
) -> Steps:
    """Yield the lines of objects that changed after the scan ``since``; return the last line."""
    epoch = sampler.complete
    everything = not sampler.first <= since <= epoch
    ended_objects = list(sampler.ended_objects)  # Another scan may forget some of them meanwhile.
    if everything:
        since = 0
    if QUEUE in kinds and sampler.queues is not None:
        yield from queue_lines(call, sampler.queues, since, epoch)
    for kind in kinds:
        changed: list[SampledObject] = []
        for index, sampled in enumerate(list(sampler.kinds[kind].values())):
            if since < sampled.changed and 0 < sampled.born <= epoch and sees(call, kind, sampled):
                changed.append(sampled)
            if len(changed) == ROWS:
                yield object_line(kind, changed, since)
                changed = []
            elif not index % STEP:
                yield None
        if changed:
            yield object_line(kind, changed, since)
    yield from ended_lines(call, ended_objects, kinds, since, epoch)
    took_ms = round(1000 * (time.monotonic() - began_s))
    return {
        "epoch": epoch,
        "run": sampler.run,
        "everything": everything,
        "ms": took_ms,
        "node": node_name(),
        "brokers": other_brokers(call.broker),
    }


def queue_lines(call: Call, changes: QueueChanges, since: int, epoch: int) -> Steps:
    """Yield the lines of queues that changed after the scan ``since``, up to the scan ``epoch``."""
    vhosts = call.broker.vhosts
    rows: list[tuple[Queue, QueueRow]] = []
    for queue in changes.changed_between(since, epoch, list(vhosts.values())):
        if queue is None:
            yield None
            continue
        row = changes.row(queue)
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
) -> JsonLine:
    """Return the line of up to ``ROWS`` queues; new ones have their static fields."""
    fields, names = ROW_FIELDS[QUEUE]
    new = [
        [row.number, *queue_static(queue, vhosts[row.vhost], (row.policy, row.operator_policy))]
        for queue, row in rows
        if row.static_changed > since and row.vhost in vhosts
    ]
    values = [row.values_between(0, len(names)) for _, row in rows]
    columns = zip(names, zip(*values, strict=True), strict=True) if values else ()
    return {
        "kind": QUEUE,
        "ids": pack_integers([row.number for _, row in rows]),
        "columns": {name: pack_integers(column) for name, column in columns},
        "fields": fields if new else (),
        "new": new,
        "gone": [],
    }


def ended_lines(
    call: Call, ended_objects: list[EndedObject], kinds: list[str], since: int, epoch: int
) -> Steps:
    """Yield lines with the numbers of objects that the client has received and that have ended."""
    numbers_by_kind: dict[str, list[int]] = {kind: [] for kind in kinds}
    for index, (end_epoch, kind, sampled) in enumerate(ended_objects):
        was_sent = sampled.born <= since < end_epoch <= epoch
        if was_sent and kind in numbers_by_kind and sees(call, kind, sampled):
            numbers_by_kind[kind].append(sampled.number)
        if not index % STEP:
            yield None
    for kind, numbers in numbers_by_kind.items():
        for start in range(0, len(numbers), STEP):
            yield {**object_line(kind, [], since), "gone": numbers[start : start + STEP]}
    return {}


def sees(call: Call, kind: str, sampled: SampledObject | QueueRow) -> bool:
    """Return True if the user of a call sees an object, by the same rules as in lists."""
    if isinstance(sampled, SampledObject) and kind in (CONNECTION, CHANNEL):
        return call.sees_user(sampled.user)
    return call.sees_all if kind in (TOTALS, PROTOCOL, LOGINS) else call.sees_vhost(sampled.vhost)


def object_line(kind: str, objects: list[SampledObject], since: int) -> JsonLine:
    """Return the line of up to ``ROWS`` objects; new ones have their static fields."""
    fields, names = ROW_FIELDS[kind]
    new = [
        [sampled.number, *sampled.static] for sampled in objects if sampled.static_changed > since
    ]
    values = [sampled.values for sampled in objects]
    columns = zip(names, zip(*values, strict=True), strict=True) if objects else ()
    return {
        "kind": kind,
        "ids": pack_integers([sampled.number for sampled in objects]),
        "columns": {name: pack_integers(column) for name, column in columns},
        "fields": fields if new else (),
        "new": new,
        "gone": [],
    }


def pack_integers(numbers: list[int] | tuple[int, ...]) -> str:
    """Return integers as signed 64-bit numbers, little-endian, in base64."""
    column = array("q", numbers)
    if sys.byteorder == "big":
        column.byteswap()
    return base64.b64encode(column).decode()
