# SPDX-License-Identifier: Apache-2.0
"""Division of the ready messages of a queue into parts, which are browsed without consuming.

A part has no messages that arrive later, and none that are consumed before it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.client.blocking_pipeline import take_snapshot
from headrace.client.requests import RequestRefused
from headrace.columns.options.kinds import OptionError
from headrace.columns.options.options import partitions_default
from headrace.columns.runtime.connections import Purpose, requests, run_with_retry
from headrace.columns.schema.offsets import Range

if TYPE_CHECKING:
    from headrace.client import blocking
    from headrace.client.snapshot import Snapshot
    from headrace.columns.options.options import ReadOptions

PART_MESSAGES_MIN: Final = 1000  # A task for fewer messages costs more time than it saves.
PARTS_MAX: Final = 1000


def find_queue_parts(options: ReadOptions) -> list[Range]:
    """Return parts of the queue with about equal numbers of messages; [] for an empty queue."""
    snapshot = _request_snapshot(options, 1)
    count = part_count(options, snapshot.messages)
    if count > 1:
        snapshot = _request_snapshot(options, count)
    return [Range(snapshot.queue, first, last) for first, last in snapshot.ranges() if first < last]


def part_count(options: ReadOptions, messages: int) -> int:
    """Return the number of parts for a number of messages, from 1 to `PARTS_MAX`."""
    count = options.partitions_min
    if count is None:
        count = min(partitions_default(), messages // PART_MESSAGES_MIN)
    if options.partition_records_max is not None:
        count = max(count, -(-messages // options.partition_records_max))
    return max(1, min(count, PARTS_MAX))


def _request_snapshot(options: ReadOptions, count: int) -> Snapshot:
    """Return a snapshot of the queue's ready messages in `count` parts."""

    def read_snapshot(connection: blocking.Connection) -> Snapshot:
        if not isinstance(connection.server_properties.get("headrace_id"), str):
            raise OptionError("option 'queue' of a batch read needs Headrace as the broker")
        return take_snapshot(requests(connection), options.queue, count)

    try:
        return run_with_retry(options.uri, options.reconnect_timeout_s, read_snapshot, Purpose.ASK)
    except RequestRefused as refused:
        raise OptionError(f"option 'queue': {refused.text}") from None
