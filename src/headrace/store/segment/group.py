# SPDX-License-Identifier: Apache-2.0
"""Groups: records that are written and synced at once."""

from typing import TYPE_CHECKING

from headrace.store.disk import WRITE, Change, Disk
from headrace.store.replacement import failed

if TYPE_CHECKING:
    from headrace.store.segment.segment import Segment
    from headrace.store.segment.segment_files import SegmentFiles
    from headrace.store.segment.stream_port import StreamRecords


class Piece:
    """A part of a group: a range of its buffer, or the parts of a body, and where it goes."""

    def __init__(
        self, segment: "Segment", offset: int, lo: int, hi: int, parts: list[bytes] | None
    ) -> None:
        self.segment = segment
        self.offset = offset
        self.lo = lo
        self.hi = hi
        self.parts = parts
        self.size = hi - lo if parts is None else sum(map(len, parts))


class WriteGroup:
    """A buffer with its pieces, and the records of streams; a job of the writer.

    Repeated after an error, it skips what is durable, and replaces a file that failed.
    """

    def __init__(
        self, files: "SegmentFiles", buffer: bytearray, pieces: list[Piece], appended: int
    ) -> None:
        self.files = files
        self.buffer = buffer
        self.pieces = pieces
        self.appended = appended  # The log is durable up to here with it.
        self.streams: list[StreamRecords] = []
        self.replicated = False  # The disk has it elsewhere.
        self.streams_done = 0  # Durable parts of streams,
        self.done = 0  # and durable pieces.

    def run(self, disk: Disk) -> None:
        """Write and sync; make the files of new segments."""
        if disk.replicates and not self.replicated:
            disk.replicate(self.changes())
            self.replicated = True
        while self.streams_done < len(self.streams):
            self.streams[self.streams_done].run(disk)
            self.streams_done += 1
        while self.done < len(self.pieces):
            segment = self.pieces[self.done].segment
            stop = self.done + 1
            while stop < len(self.pieces) and self.pieces[stop].segment is segment:
                stop += 1
            if segment.handle < 0:
                self.files.create(segment)
            if segment.suspect:
                self.write_anew(segment, self.done, stop)
            else:
                self.write(disk, segment, self.done, stop)
            self.done = stop  # Nothing of the next segment may be written before this.
        if self.pieces:
            self.files.reach(self.pieces[len(self.pieces) - 1].segment.number)

    def changes(self) -> list[Change]:
        """Return the changes of files that the group makes."""
        changes = [change for stream in self.streams for change in stream.changes()]
        view = memoryview(self.buffer)
        for piece in self.pieces:
            octets = piece.parts if piece.parts is not None else [view[piece.lo : piece.hi]]
            changes.append(Change(WRITE, self.files.path(piece.segment), piece.offset, octets))
        return changes

    def write(self, disk: Disk, segment: "Segment", first: int, stop: int) -> None:
        """Write pieces of one segment, and sync it."""
        try:
            with memoryview(self.buffer) as view:
                for k in range(first, stop):
                    piece = self.pieces[k]
                    if piece.offset + piece.size > segment.allocated:
                        self.files.grow(segment, piece.offset + piece.size)
                    if piece.parts is not None:
                        disk.write(segment.handle, piece.parts, piece.offset)
                    else:
                        with view[piece.lo : piece.hi] as octets:
                            disk.write(segment.handle, [octets], piece.offset)
        except OSError as error:
            segment.suspect = segment.suspect or failed(error)
            raise
        try:
            disk.sync(segment.handle)
        except OSError:
            segment.suspect = True
            raise

    def write_anew(self, segment: "Segment", first: int, stop: int) -> None:
        """Write pieces to a new file of a segment, after a copy of the old file."""
        octets: list[bytes] = []
        for k in range(first, stop):
            piece = self.pieces[k]
            octets += piece.parts or [bytes(self.buffer[piece.lo : piece.hi])]
        self.files.begin_anew(segment, self.pieces[first].offset, octets)
