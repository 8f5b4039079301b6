# SPDX-License-Identifier: Apache-2.0
"""Limits of one micro-batch in records and bytes, divided among the streams.

Every stream with a backlog gets a share if the limit is large enough, so that no stream starves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from headrace.columns.schema.offsets import ranges_between

if TYPE_CHECKING:
    from headrace.columns.positions import RangeSize
    from headrace.columns.schema.offsets import Range


class Measure(Protocol):
    """The request for the size of records at the broker; see `positions.Broker.measure`."""

    def __call__(self, stream_range: Range, bytes_max: int | None) -> RangeSize:
        """Measure the first records of a range: at least one, then up to `bytes_max` bytes."""


def share_limit(demands: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide `limit` in proportion to the demands; no share exceeds its demand.

    Each share is at least 1 if `limit` is at least the number of demands.
    """
    total = sum(demands.values())
    if total <= limit:
        return dict(demands)
    shares = {name: limit * demand // total for name, demand in demands.items()}
    remainder = limit - sum(shares.values())
    for name in sorted(demands, key=lambda name: shares[name]):
        if remainder == 0:
            break
        if shares[name] < demands[name]:
            shares[name] += 1
            remainder -= 1
    return shares


def limit_records(
    start: Mapping[str, int], end: Mapping[str, int], records_max: int
) -> dict[str, int]:
    """Return the end positions of a batch of at most `records_max` records after `start`."""
    record_shares = share_limit(
        {stream_range.stream: len(stream_range) for stream_range in ranges_between(start, end)},
        records_max,
    )
    return {
        stream: start[stream] + record_shares[stream] if stream in record_shares else position
        for stream, position in end.items()
    }


def limit_bytes(
    start: Mapping[str, int], end: Mapping[str, int], bytes_max: int, measure: Measure
) -> dict[str, int]:
    """Return the end positions of a batch of about `bytes_max` bytes after `start`.

    The bytes are divided in proportion to the backlogs. Every stream with a backlog advances by at
    least one record, however large the record is.
    """
    backlogs = ranges_between(start, end)
    sizes = {backlog.stream: measure(backlog, None).size for backlog in backlogs}
    if sum(sizes.values()) <= bytes_max:
        return dict(end)
    byte_shares = share_limit(sizes, bytes_max)
    end_by_stream = dict(end)
    # A batch has whole records, so a share is seldom used up. The next stream gets the remainder.
    remaining_bytes = 0
    for backlog in sorted(
        backlogs, key=lambda backlog: (byte_shares[backlog.stream], backlog.stream)
    ):
        remaining_bytes += byte_shares[backlog.stream]
        range_size = measure(backlog, max(remaining_bytes, 1))
        end_by_stream[backlog.stream] = min(range_size.next, backlog.last)
        remaining_bytes -= range_size.size
    return end_by_stream
