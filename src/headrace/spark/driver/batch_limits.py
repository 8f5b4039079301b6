# SPDX-License-Identifier: Apache-2.0
"""Limits of one micro-batch in records and bytes, shared by the streams.

Every stream with a backlog gets a share if the limit allows, so that none starves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from headrace.columns.schema.offsets import ranges_between

if TYPE_CHECKING:
    from headrace.columns.positions import RangeSize
    from headrace.columns.schema.offsets import Range


class Measure(Protocol):
    """The request for the size of records at the broker."""

    def __call__(self, stream_range: Range, bytes_max: int | None) -> RangeSize:
        """Measure the first records of a range, up to a number of bytes, but at least one."""


def share_limit(demands: Mapping[str, int], limit: int) -> dict[str, int]:
    """Share `limit` among demands in proportion; no share exceeds its demand.

    Each share is at least one if `limit` allows it.
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
    """Return positions between `start` and `end`, at most `records_max` records after `start`."""
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
    """Move from `start` towards `end` by at most `bytes_max` bytes, shared by backlog.

    Every stream with a backlog advances by at least one record, however large it is.
    """
    backlogs = ranges_between(start, end)
    sizes = {backlog.stream: measure(backlog, None).size for backlog in backlogs}
    if sum(sizes.values()) <= bytes_max:
        return dict(end)
    byte_shares = share_limit(sizes, bytes_max)
    end_by_stream = dict(end)
    # A share is seldom used up, because records are not cut. The next stream gets the rest.
    remaining_bytes = 0
    for backlog in sorted(
        backlogs, key=lambda backlog: (byte_shares[backlog.stream], backlog.stream)
    ):
        remaining_bytes += byte_shares[backlog.stream]
        range_size = measure(backlog, max(remaining_bytes, 1))
        end_by_stream[backlog.stream] = min(range_size.next, backlog.last)
        remaining_bytes -= range_size.size
    return end_by_stream
