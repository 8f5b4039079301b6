# SPDX-License-Identifier: Apache-2.0
"""A broker and an archive of its streams, which has the records that retention dropped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.columns.options.kinds import OptionError
from headrace.columns.schema.offsets import OffsetError

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.columns.archive.index import Archive
    from headrace.columns.positions import Broker, RangeSize, StreamExtent
    from headrace.columns.schema.offsets import Range


class ArchivedBroker:
    """A `positions.Broker` whose offsets include an archive; extents are those of the broker."""

    def __init__(self, broker: Broker, archive: Archive) -> None:
        self._broker = broker
        self._archive = archive

    def identity(self) -> str:
        """Return the broker's identity; raise OptionError if the broker has none."""
        identity = self._broker.identity()
        if not identity:
            raise OptionError("option 'archive' needs Headrace as the broker")
        return identity

    def extents(self) -> dict[str, StreamExtent]:
        """Return the current extent of each stream to read, without archived records."""
        self.identity()
        return self._broker.extents()

    def offset_at(self, stream: str, moment: datetime) -> int:
        """Return the first offset that arrived at `moment` or later; the end if none did."""
        offset, oldest = self._broker.offset_at(stream, moment), self.first_offset(stream)
        if oldest >= offset or offset > self._broker.first_offset(stream):
            return offset
        archived = self._archive.offset_at(stream, moment)
        return offset if archived is None else min(offset, archived)

    def first_offset(self, stream: str) -> int:
        """Return the offset of the oldest record, archived or not."""
        offset = self._broker.first_offset(stream)
        self._archive.refresh()
        self._check_end(stream)
        archived = self._archive.first(stream)
        return offset if archived is None else min(offset, archived)

    def measure(self, stream_range: Range, bytes_max: int | None) -> RangeSize:
        """Measure records at the broker.

        No read with an archive calls this, because `archive` excludes `maxBytesPerTrigger`.
        """
        return self._broker.measure(stream_range, bytes_max)

    def skipped(self, reader: str, streams: Iterable[str]) -> dict[str, int]:
        """Return the number of lost records that tasks of `reader` reported, by stream."""
        return self._broker.skipped(reader, streams)

    def _check_end(self, stream: str) -> None:
        """Raise OffsetError if the archive ends after the stream: it is of another stream."""
        end = self._archive.end(stream)
        next_offset = self._broker.extents()[stream].next
        if end > next_offset:
            raise OffsetError(
                f"archive {self._archive.location} has offset {end - 1} of stream {stream!r}, "
                "which "
                f"ends at {next_offset}: the stream was deleted and created again, or belongs to "
                "another broker"
            )
