# SPDX-License-Identifier: Apache-2.0
"""The extents of streams at a broker, and the offsets at which a read begins and ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.columns.options.kinds import Edge, OptionError

if TYPE_CHECKING:
    from headrace.columns.options.options import Bound
    from headrace.columns.schema.offsets import Range


class StreamExtent(NamedTuple):
    """The first offset of a stream, the offset of its next record, and its id.

    `first` and `id` are 0 at brokers other than Headrace, which do not report them.
    """

    first: int
    next: int
    id: int = 0


class RangeSize(NamedTuple):
    """The size in bytes of the measured records, and the offset `next` after the last one."""

    size: int
    next: int


class OffsetLookup(Protocol):
    """Lookups of single offsets in streams at a broker."""

    def offset_at(self, stream: str, moment: datetime) -> int:
        """Return the first offset that arrived at `moment` or later; the end if none did."""

    def first_offset(self, stream: str) -> int:
        """Return the offset of the oldest record."""


class Broker(OffsetLookup, Protocol):
    """The requests of a planner to the broker of its streams."""

    def identity(self) -> str:
        """Return the broker's identity; "" if the broker has none."""

    def extents(self) -> dict[str, StreamExtent]:
        """Return the current extent of each stream to read, by name."""

    def measure(self, stream_range: Range, bytes_max: int | None) -> RangeSize:
        """Measure the first records of a range: at least one, then up to `bytes_max` bytes.

        If `bytes_max` is None, measure all records.
        """

    def skipped(self, reader: str, streams: Iterable[str]) -> dict[str, int]:
        """Return the number of lost records that tasks of `reader` reported, by stream."""


def resolve_bound(
    broker: OffsetLookup, bound: Bound, extents: Mapping[str, StreamExtent]
) -> dict[str, int]:
    """Return the offset of a bound in each stream.

    Raises:
        OptionError: an offset is after the end of its stream, or a strict bound has no record.
    """
    position_by_stream = bound.for_streams(tuple(extents))
    return {
        stream: _resolve_position(broker, bound, stream, position, extents[stream])
        for stream, position in position_by_stream.items()
    }


def _resolve_position(
    broker: OffsetLookup,
    bound: Bound,
    stream: str,
    position: Edge | int | datetime,
    extent: StreamExtent,
) -> int:
    """Return the offset of one position; see `resolve_bound`."""
    if position is Edge.LATEST:
        return extent.next
    if position is Edge.EARLIEST:
        return broker.first_offset(stream)
    if isinstance(position, datetime):
        offset = broker.offset_at(stream, position)
        if bound.strict and offset >= extent.next:
            raise OptionError(
                f"option {bound.option!r}: nothing arrived in stream {stream!r} at "
                f"{position.isoformat()} or later; with option "
                "'startingOffsetsByTimestampStrategy' 'latest' reading begins at the end then"
            )
        return offset
    assert isinstance(position, int)
    if position > extent.next:
        raise OptionError(
            f"option {bound.option!r} gives offset {position} for stream {stream!r}, which ends at "
            f"{extent.next}"
        )
    return position
