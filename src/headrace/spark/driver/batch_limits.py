# SPDX-License-Identifier: Apache-2.0
"""Limits of one micro-batch in records and bytes, shared by the streams.

Every stream with a backlog gets a share as long as the limit allows, so that none starves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from headrace.columns.schema.offsets import ranges

if TYPE_CHECKING:
    from headrace.columns.positions import RangeSize
    from headrace.columns.schema.offsets import Range


class Measure(Protocol):
    """Measures records of a stream at the broker."""

    def __call__(self, piece: Range, octets_max: int | None) -> RangeSize:
        """Measure the first records of a range, up to a number of bytes, but at least one."""


def share_limit(demands: Mapping[str, int], most: int) -> dict[str, int]:
    """Share `most` among demands in proportion; no share exceeds its demand.

    Each share is at least one if `most` allows it.
    """
    total = sum(demands.values())
    if total <= most:
        return dict(demands)
    given = {name: most * demand // total for name, demand in demands.items()}
    spare = most - sum(given.values())
    for name in sorted(demands, key=lambda name: given[name]):
        if spare == 0:
            break
        if given[name] < demands[name]:
            given[name] += 1
            spare -= 1
    return given


def limit_records(
    start: Mapping[str, int], end: Mapping[str, int], records_max: int
) -> dict[str, int]:
    """Move from `start` towards `end` by at most `records_max` records, shared by backlog."""
    steps = share_limit(
        {backlog.stream: len(backlog) for backlog in ranges(start, end)}, records_max
    )
    return {
        stream: start[stream] + steps[stream] if stream in steps else position
        for stream, position in end.items()
    }


def limit_bytes(
    start: Mapping[str, int], end: Mapping[str, int], octets_max: int, measure: Measure
) -> dict[str, int]:
    """Move from `start` towards `end` by at most `octets_max` bytes, shared by backlog.

    Every stream with a backlog advances by at least one record, however large it is.
    """
    backlogs = ranges(start, end)
    sizes = {backlog.stream: measure(backlog, None).octets for backlog in backlogs}
    if sum(sizes.values()) <= octets_max:
        return dict(end)
    shares = share_limit(sizes, octets_max)
    reached = dict(end)
    rest = 0  # Records are not cut, so a share is seldom used up: the next stream gets the rest.
    for backlog in sorted(backlogs, key=lambda backlog: (shares[backlog.stream], backlog.stream)):
        rest += shares[backlog.stream]
        measured = measure(backlog, max(rest, 1))
        reached[backlog.stream] = min(measured.next, backlog.last)
        rest -= measured.octets
    return reached
