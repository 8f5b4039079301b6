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
    """The first offset of a stream, and the offset of its next record.

    `first` is 0 and `id` is 0 from a broker that does not tell them cheaply.
    """

    first: int
    next: int
    id: int = 0


class RangeSize(NamedTuple):
    """The octets of the records before offset `next`, from where the measuring began."""

    octets: int
    next: int


class OffsetLookup(Protocol):
    """The questions about offsets, which a broker answers."""

    def offset_at(self, stream: str, moment: datetime) -> int:
        """The offset of the first record that arrived at `moment` or later; the end if none did."""

    def first_offset(self, stream: str) -> int:
        """The offset of the oldest record."""


class Broker(OffsetLookup, Protocol):
    """The questions of a planner about its streams."""

    def identity(self) -> str:
        """Return the broker's identity; "" if it tells none."""

    def places(self) -> dict[str, StreamBounds]:
        """The streams that are to be read now, and where they are."""

    def measure(self, piece: Range, octets_max: int | None) -> RangeSize:
        """The records of a range; the first of them within a limit, or one."""

    def skipped(self, reader: str, streams: Iterable[str]) -> dict[str, int]:
        """Return the number of records of streams that tasks found lost."""


def positions(
    broker: OffsetLookup, bound: Bound, places: Mapping[str, StreamBounds]
) -> dict[str, int]:
    """The offsets that a bound means now. A number outside of a stream is refused."""
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
