# SPDX-License-Identifier: Apache-2.0
"""What is written and synced at once."""

from typing import TYPE_CHECKING, Any

from headrace.store.disk import Disk

if TYPE_CHECKING:
    from headrace.store.segment import Segment


class Piece:
    """A stretch of a group: octets of its buffer, or parts of a body, and where they go."""

    def __init__(
        self, segment: "Segment", offset: int, lo: int, hi: int, parts: list[bytes] | None
    ) -> None:
        self.segment = segment
        self.offset = offset
        self.lo = lo
        self.hi = hi
        self.parts = parts
        self.size = hi - lo if parts is None else sum(map(len, parts))


class Group:
    """A buffer with its pieces, and what streams have to write with it; a job of the writer."""

    def __init__(self, files: Any, buffer: bytearray, pieces: list[Piece], appended: int) -> None:
        self.files = files
        self.buffer = buffer
        self.pieces = pieces
        self.appended = appended  # Up to here the log is durable with it.
        self.streams: list[Any] = []

    def run(self, disk: Disk) -> None:
        """Write and sync; creates the files of new segments."""
        for stream in self.streams:
            stream.run(disk)
        handle = -1
        with memoryview(self.buffer) as view:
            for piece in self.pieces:
                if handle not in (-1, piece.segment.handle):
                    disk.sync(handle)  # Before anything of the next segment is there.
                if piece.segment.handle < 0:
                    self.files.create(piece.segment)
                handle = piece.segment.handle
                if piece.parts is not None:
                    disk.write(handle, piece.parts, piece.offset)
                else:
                    with view[piece.lo : piece.hi] as octets:
                        disk.write(handle, [octets], piece.offset)
        if handle >= 0:
            disk.sync(handle)
