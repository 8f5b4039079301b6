# SPDX-License-Identifier: Apache-2.0
"""The files of a stream, one for each segment, written with the groups of the journal."""

import logging
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.store.disk import WRITE, Change, Disk
from headrace.store.replacement import (
    may_have_damaged,
    read_failed_file,
    replace_file,
    verify_or_replace,
)
from headrace.store.segment.segment import file_name

if TYPE_CHECKING:
    from headrace.store.offload.block_cache import OffloadedSegment

log = logging.getLogger(__name__)

# A file has as many reserved bytes as written bytes, within these bounds.
ALLOCATE_MIN = 64 << 10
ALLOCATE_MAX = 1 << 20
HANDLES_MAX = 16  # Files of old segments that one stream keeps open.


class StreamSegment:
    """A segment file of a stream: its range of offsets, and how much of it is written."""

    def __init__(self, path: str, number: int, seed: int, first_offset: int, begun_ms: int) -> None:
        self.path = path
        self.number = number
        self.seed = seed
        self.first_offset = first_offset
        self.begun_ms = begun_ms
        self.end = 0  # End of the last appended record.
        self.written = 0  # End of the durable records in the file.
        self.allocated = 0
        # Entries of offset, file offset and arrived_ms; None until the first use.
        self.index: list[tuple[int, int, int]] | None = None
        self.handle = -1
        self.is_suspect = False  # A write failed: see headrace.store.replacement.
        self.has_logged_damage = False
        self.is_sealed = False
        self.offloaded: OffloadedSegment | None = None  # Its reader, if it is in the object store.


class StreamFiles:
    """The files of one stream in its directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self.secret = 0  # A part of each segment's header, and of the names of its objects.
        self.open: deque[StreamSegment] = deque()  # Old segments whose files may be open.
        self.replaced_handles: deque[int] = deque()  # Open files that were replaced.
        self.is_deleted = False  # The stream is deleted; its files will be removed.

    def path(self, number: int) -> str:
        """Return the path of a segment."""
        return os.path.join(self.directory, file_name(number))

    def create(self, segment: StreamSegment) -> None:
        """Open the file of a segment for writing; on the writer's thread."""
        if self.is_deleted:
            self.disk.make_directory(self.directory)  # The writer removes it after this write.
        handle = self.disk.open(segment.path, create=True)
        try:
            self.disk.sync_directory(self.directory)
        except OSError:
            self.disk.close(handle)
            raise
        segment.handle = handle

    def handle(self, segment: StreamSegment) -> int:
        """Return the open file of a written segment."""
        if segment.handle < 0:
            segment.handle = self.disk.open(segment.path)
            self.open.append(segment)
            self.close_oldest()
        return segment.handle

    def read(self, segment: StreamSegment) -> tuple[bytearray, int]:
        """Return a buffer with the written part of a segment, and its size."""
        buffer = bytearray(segment.written)
        try:
            size = self.disk.read_into(self.handle(segment), buffer, segment.written)
            self.log_if_shorter(segment, size)
        except OSError:
            data = self.read_at(segment, segment.written, 0)
            size = len(data)
            buffer[:size] = data
        return buffer, size

    def read_at(self, segment: StreamSegment, size: int, file_offset: int) -> bytes:
        """Return bytes of a segment: zeros where it cannot be read, fewer at its end.

        Raises:
            BlockPending: the bytes are being fetched from the object store.
        """
        if segment.offloaded is not None:
            return self.read_offloaded(segment, size, file_offset)
        data = b""
        try:
            handle = self.handle(segment)
            try:
                data = self.disk.read(handle, size, file_offset)
            except OSError as error:
                self.log_damage(
                    segment, "damaged: %s cannot be read whole: %s", segment.path, error
                )
                data = read_failed_file(self.disk, handle, size, file_offset)[0]
        except OSError as error:
            self.log_damage(segment, "damaged: %s is left out: %s", segment.path, error)
        if len(data) < size:
            self.log_if_shorter(segment, file_offset + len(data))
        return data

    def read_offloaded(self, segment: StreamSegment, size: int, file_offset: int) -> bytes:
        """Read a segment that is in the object store; see :meth:`read_at`."""
        assert segment.offloaded is not None
        try:
            return segment.offloaded.read(size, file_offset)
        except OSError as error:
            self.log_damage(segment, "damaged: %s is left out: %s", segment.path, error)
            return b""

    def log_if_shorter(self, segment: StreamSegment, end: int) -> None:
        """Log damage if a segment has become shorter."""
        missing = segment.written - end
        if missing > 0:
            text = "damaged: %s ends at byte %d: %d bytes behind it are missing"
            self.log_damage(segment, text, segment.path, end, missing)

    def log_damage(self, segment: StreamSegment, text: str, *values: object) -> None:
        """Log damage to a segment, once for each segment."""
        if not segment.has_logged_damage:
            segment.has_logged_damage = True
            log.error(text, *values)

    def verify_or_replace(self, segment: StreamSegment) -> None:
        """Verify that a segment of an earlier process is durable; replace its file if it is not."""
        buffer, size = self.read(segment)
        if not verify_or_replace(self.disk, segment.path, self.handle(segment), buffer, size):
            self.close(segment)  # The path names a new file now.
            segment.handle = self.disk.open(segment.path)

    def close(self, segment: StreamSegment) -> None:
        """Close the file of a segment."""
        if segment.handle >= 0:
            self.disk.close(segment.handle)
            segment.handle = -1

    def close_replaced(self) -> None:
        """Close replaced files; on the reading thread."""
        while self.replaced_handles:
            self.disk.close(self.replaced_handles.popleft())

    def close_oldest(self) -> None:
        """Close files beyond ``HANDLES_MAX``."""
        while len(self.open) > HANDLES_MAX:
            segment = self.open.popleft()
            if segment.written == segment.end:
                self.close(segment)
            else:
                self.open.append(segment)
                return


class StreamGroup:
    """The records of a stream in one group of the journal."""

    def __init__(
        self,
        files: StreamFiles,
        on_durable: Callable[["StreamGroup"], None],
        buffer: bytearray,
        writes: list[tuple[StreamSegment, int, int, int]],
        next_offset: int,
        number: int,
    ) -> None:
        """``on_durable`` is called on the loop's thread once the group is durable."""
        self.files = files
        self.on_durable = on_durable
        self.number = number
        self.buffer = buffer
        self.writes = writes
        self.writes_done = 0  # Durable writes.
        self.next_offset = next_offset

    def changes(self) -> list[Change]:
        """Return the changes of files."""
        view = memoryview(self.buffer)
        return [
            Change(WRITE, segment.path, file_offset, [view[start:stop]])
            for segment, file_offset, start, stop in self.writes
        ]

    def run(self, disk: Disk) -> None:
        """Write and sync on the writer's thread, skipping durable writes."""
        with memoryview(self.buffer) as view:
            while self.writes_done < len(self.writes):
                segment, file_offset, start, stop = self.writes[self.writes_done]
                if segment.handle < 0:
                    self.files.create(segment)
                end = file_offset + stop - start
                with view[start:stop] as data:
                    if segment.is_suspect:
                        self.rewrite(disk, segment, file_offset, data)
                    else:
                        self.write(disk, segment, file_offset, data)
                if segment.is_sealed and end == segment.end:
                    self.cut(disk, segment)
                self.writes_done += 1

    def write(self, disk: Disk, segment: StreamSegment, file_offset: int, data: memoryview) -> None:
        """Write to one segment, and sync it."""
        end = file_offset + len(data)
        try:
            if end > segment.allocated:
                size = end + min(max(end, ALLOCATE_MIN), ALLOCATE_MAX)
                disk.allocate(segment.handle, size)
                segment.allocated = size
            disk.write(segment.handle, [data], file_offset)
        except OSError as error:
            segment.is_suspect = segment.is_suspect or may_have_damaged(error)
            raise
        try:
            disk.sync(segment.handle)
        except OSError:
            segment.is_suspect = True
            raise

    def cut(self, disk: Disk, segment: StreamSegment) -> None:
        """Cut the reserved bytes behind a sealed segment's records."""
        try:
            disk.truncate(segment.handle, segment.end)
        except OSError:
            segment.is_suspect = True
            raise

    def rewrite(
        self, disk: Disk, segment: StreamSegment, file_offset: int, data: memoryview
    ) -> None:
        """Copy a suspect segment to a new file, and write there."""
        handle = replace_file(disk, segment.path, segment.handle, file_offset, [data], 0)
        self.files.replaced_handles.append(segment.handle)  # A reader may be using it.
        segment.handle = handle
        segment.allocated = disk.size(handle)
        segment.is_suspect = False

    def finish(self) -> None:
        """Record that the group is durable; called on the loop's thread."""
        for segment, file_offset, start, stop in self.writes:
            segment.written = file_offset + stop - start
        self.on_durable(self)


class FileRemoval:
    """Removes files; a job of the writer."""

    def __init__(self, paths: list[str], directory: str | None) -> None:
        self.paths = paths
        self.directory = directory  # A directory to remove afterwards; None for none.

    def run(self, disk: Disk) -> None:
        """Remove the files, oldest first."""
        for path in self.paths:
            disk.remove(path)
        if self.directory is not None:
            disk.remove_directory(self.directory)
