# SPDX-License-Identifier: Apache-2.0
"""First and last offsets of streams, and the offsets of a read's bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.columns.options.kinds import Edge, OptionError

if TYPE_CHECKING:
    from headrace.columns.options.options import Bound
    from headrace.columns.schema.offsets import Range


class StreamBounds(NamedTuple):
    """The first offset of a stream, the offset of its next record, and its id.

    `first` and `id` are 0 for a broker that would need a consumer to find them.
    """

    first: int
    next: int
    id: int = 0


class RangeSize(NamedTuple):
    """The bytes of the records from the first measured one to before offset `next`."""

    octets: int
    next: int


class OffsetLookup(Protocol):
    """Lookups of offsets at a broker."""

    def offset_at(self, stream: str, moment: datetime) -> int:
        """Return the first offset that arrived at `moment` or later; the end if none did."""

    def first_offset(self, stream: str) -> int:
        """Return the offset of the oldest record."""


class Broker(OffsetLookup, Protocol):
    """A broker, as a planner uses it."""

    def identity(self) -> str:
        """Return the broker's identity; "" if the broker has none."""

    def places(self) -> dict[str, StreamBounds]:
        """Return the streams to read now, with their bounds."""

    def measure(self, piece: Range, octets_max: int | None) -> RangeSize:
        """Measure the first records of a range, up to a number of bytes, but at least one."""

    def skipped(self, reader: str, streams: Iterable[str]) -> dict[str, int]:
        """Return the number of lost records of each stream that tasks reported."""


def positions(
    broker: OffsetLookup, bound: Bound, places: Mapping[str, StreamBounds]
) -> dict[str, int]:
    """Return the present offsets of a bound; OptionError for an offset after a stream's end."""
    bound_by_stream = bound.of(tuple(places))
    return {
        stream: _position(broker, bound, stream, at, places[stream])
        for stream, at in bound_by_stream.items()
    }


def _position(
    broker: OffsetLookup, bound: Bound, stream: str, at: Edge | int | datetime, place: StreamBounds
) -> int:
    if at is Edge.LATEST:
        return place.next
    if at is Edge.EARLIEST:
        return broker.first_offset(stream)
    if isinstance(at, datetime):
        offset = broker.offset_at(stream, at)
        if bound.strict and offset >= place.next:
            raise OptionError(
                f"option {bound.option!r}: nothing arrived in stream {stream!r} at "
                f"{at.isoformat()} or later; with option 'startingOffsetsByTimestampStrategy' "
                "'latest' reading begins at the end then"
            )
        return offset
    assert isinstance(at, int)
    if at > place.next:
        raise OptionError(
            f"option {bound.option!r} gives offset {at} for stream {stream!r}, which ends at "
            f"{place.next}"
        )
    return at
