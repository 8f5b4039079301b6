# SPDX-License-Identifier: Apache-2.0
"""The files of a stream: one for each segment, written with the groups of the journal."""

import os
from collections import deque
from typing import Any

from headrace.store.disk import Disk
from headrace.store.segment import file_name

ALLOCATE_STEP = 1 << 20
HANDLES_MAX = 16  # Files of old segments that one stream keeps open.


class StreamSegment:
    """One file of a stream."""

    def __init__(self, path: str, number: int, seed: int, first_offset: int, begun_ms: int) -> None:
        self.path = path
        self.number = number
        self.seed = seed
        self.first_offset = first_offset
        self.begun_ms = begun_ms
        self.end = 0  # Where the last record that was appended ends.
        self.written = 0  # Up to here the file holds what was appended, durably.
        self.allocated = 0
        self.index: list[tuple[int, int, int]] | None = None  # (offset, place, arrived_ms)
        self.handle = -1
        self.sealed = False


class StreamFiles:
    """The files of one stream, in a directory of their own."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self.open: deque[StreamSegment] = deque()  # Old segments whose files may be open.
        self.deleted = False  # The stream is no more; its files will be removed.

    def path(self, number: int) -> str:
        """Return where a segment is."""
        return os.path.join(self.directory, file_name(number))

    def create(self, segment: StreamSegment) -> None:
        """Open the file of a segment that is being written; on the writer's thread."""
        if self.deleted:
            self.disk.make_directory(self.directory)  # The removal comes after this.
        segment.handle = self.disk.open(segment.path, create=True)
        self.disk.sync_directory(self.directory)

    def handle(self, segment: StreamSegment) -> int:
        """Return the open file of a segment that is on the disk."""
        if segment.handle < 0:
            segment.handle = self.disk.open(segment.path)
            self.open.append(segment)
            self.close_some()
        return segment.handle

    def read(self, segment: StreamSegment) -> tuple[bytearray, int]:
        """Return a buffer with all that is written of a segment, and how much that is."""
        buffer = bytearray(segment.written)
        return buffer, self.disk.read_into(self.handle(segment), buffer, segment.written)

    def close(self, segment: StreamSegment) -> None:
        """Close the file of a segment."""
        if segment.handle >= 0:
            self.disk.close(segment.handle)
            segment.handle = -1

    def close_some(self) -> None:
        """Keep few files of old segments open."""
        while len(self.open) > HANDLES_MAX:
            segment = self.open.popleft()
            if segment.written == segment.end:
                self.close(segment)
            else:
                self.open.append(segment)
                return


class StreamGroup:
    """What a stream has to write with one group of the journal."""

    def __init__(
        self,
        log: Any,
        buffer: bytearray,
        pieces: list[tuple[StreamSegment, int, int, int]],
        next_offset: int,
        number: int,
    ) -> None:
        self.log = log
        self.number = number
        self.buffer = buffer
        self.pieces = pieces
        self.next_offset = next_offset

    def run(self, disk: Disk) -> None:
        """Write and sync; on the writer's thread."""
        with memoryview(self.buffer) as view:
            for segment, place, lo, hi in self.pieces:
                if segment.handle < 0:
                    self.log.files.create(segment)
                end = place + hi - lo
                if end > segment.allocated:
                    disk.allocate(segment.handle, end + ALLOCATE_STEP)
                    segment.allocated = end + ALLOCATE_STEP
                with view[lo:hi] as octets:
                    disk.write(segment.handle, [octets], place)
                disk.sync(segment.handle)
                if segment.sealed and end == segment.end:
                    disk.truncate(segment.handle, end)

    def finish(self) -> None:
        """It is durable; on the loop's thread."""
        for segment, place, lo, hi in self.pieces:
            segment.written = place + hi - lo
        self.log.finished(self)


class Removal:
    """Removes files; a job of the writer."""

    def __init__(self, paths: list[str], directory: str | None) -> None:
        self.paths = paths
        self.directory = directory  # Removed too, when given.

    def run(self, disk: Disk) -> None:
        """Remove them, the oldest first."""
        for path in self.paths:
            disk.remove(path)
        if self.directory is not None:
            disk.remove_directory(self.directory)
