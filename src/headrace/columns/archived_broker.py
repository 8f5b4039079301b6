# SPDX-License-Identifier: Apache-2.0
"""A broker together with an archive of its streams, as if retention had dropped nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.columns.options.kinds import OptionError
from headrace.columns.schema.offsets import OffsetError

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.columns.archive.index import Archive
    from headrace.columns.positions import Broker, RangeSize, StreamBounds
    from headrace.columns.schema.offsets import Range


class ArchivedBroker:
    """A `positions.Broker` that includes an archive; bounds of streams are the broker's."""

    def __init__(self, broker: Broker, archive: Archive) -> None:
        self._broker = broker
        self._archive = archive

    def identity(self) -> str:
        """Return the broker's identity; OptionError if the broker has none."""
        identity = self._broker.identity()
        if not identity:
            raise OptionError("option 'archive' needs Headrace as the broker")
        return identity

    def places(self) -> dict[str, StreamBounds]:
        """Return the streams to read now, with their bounds at the broker."""
        self.identity()
        return self._broker.places()

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
        self._check(stream)
        archived = self._archive.first(stream)
        return offset if archived is None else min(offset, archived)

    def measure(self, piece: Range, octets_max: int | None) -> RangeSize:
        """Measure at the broker; never called, because the options exclude each other."""
        return self._broker.measure(piece, octets_max)

    def skipped(self, reader: str, streams: Iterable[str]) -> dict[str, int]:
        """Return the number of records of streams that tasks found lost."""
        return self._broker.skipped(reader, streams)

    def _check(self, stream: str) -> None:
        """Raise OffsetError if the archive ends after the stream: it is of another stream."""
        end = self._archive.end(stream)
        following = self._broker.places()[stream].next
        if end > following:
            raise OffsetError(
                f"archive {self._archive.where} has offset {end - 1} of stream {stream!r}, which "
                f"ends at {following}: it is of a stream that was deleted and made again, or of "
                "another broker"
            )
