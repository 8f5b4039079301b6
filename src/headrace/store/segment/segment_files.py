# SPDX-License-Identifier: Apache-2.0
"""The files of segments: creating, growing, opening and recycling them.

A file starts small and is doubled as it fills, so that a small journal needs little space.

The file of a removed segment is renamed to ``.spare`` and used for a later segment, because its
space is already reserved. Its old records are invalid in the later segment, which has another seed
(:mod:`headrace.store.segment.record`).
"""

import contextlib
import os
from collections import deque
from collections.abc import Sequence

from headrace.store.disk import Disk
from headrace.store.replacement import NO_ROOM, BytesLike, replace_file
from headrace.store.segment.reached import write_reached
from headrace.store.segment.segment import Segment, file_name

SPARES_MAX = 2  # Recycled files kept for later segments.
GROW_FROM = 64 << 10  # Bytes reserved in a new file.
GROW_STEP = 4096  # Bytes reserved where the disk has no room to double the file.
HANDLES_MAX = 64  # Files of old segments kept open.


class SegmentFiles:
    """The files of one log in one directory."""

    def __init__(self, disk: Disk, directory: str, segment_size: int) -> None:
        self.disk = disk
        self.directory = directory
        self.segment_size = segment_size
        self.spares: list[str] = []
        self.open: deque[Segment] = deque()  # Old segments whose files may be open.
        self.replaced_handles: deque[int] = deque()  # Open files that were replaced.
        self.reached = 0  # The last segment, as in the file ``reached``.

    def path(self, segment: Segment) -> str:
        """Return the path of a segment's file."""
        return os.path.join(self.directory, file_name(segment.number))

    def create(self, segment: Segment) -> None:
        """Create the file of a new segment; on the writer's thread."""
        if segment.handle >= 0:
            return
        path = self.path(segment)
        spare = None
        if self.spares and segment.size == self.segment_size:
            spare = self.spares[-1]
            self.disk.rename(os.path.join(self.directory, spare), path)
            self.spares.pop()
        handle = self.disk.open(path, create=True)
        try:
            if spare is None:
                segment.allocated = self.reserve_room(handle, min(GROW_FROM, segment.size))
            else:
                segment.allocated = self.disk.size(handle)
            self.disk.sync_directory(self.directory)
        except OSError:
            self.disk.close(handle)
            raise
        segment.handle = handle

    def reserve_room(self, handle: int, size: int) -> int:
        """Reserve room in a new file, at least the minimum; return the bytes reserved."""
        try:
            self.disk.allocate(handle, size)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            size = GROW_STEP
            self.disk.allocate(handle, size)
        return size

    def grow(self, segment: Segment, end: int) -> None:
        """Reserve room up to ``end``, and more if possible; on the writer's thread."""
        size = max(segment.allocated, GROW_FROM)  # A spare may have lost unsynced bytes.
        while size < end:
            size *= 2
        try:
            self.disk.allocate(segment.handle, max(end, min(size, segment.size)))
            segment.allocated = max(end, min(size, segment.size))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            size = (end + GROW_STEP - 1) // GROW_STEP * GROW_STEP
            self.disk.allocate(segment.handle, size)
            segment.allocated = size

    def record_reached(self, number: int) -> None:
        """Record, once, that a segment has durable records; on the writer's thread."""
        if number > self.reached:
            self.reached = number
            with contextlib.suppress(OSError):
                write_reached(self.disk, self.directory, number)

    def replace(self, segment: Segment, kept_size: int, data: Sequence[BytesLike]) -> None:
        """Replace a failed file by a new one that also has ``data``; on the writer's thread."""
        path = self.path(segment)
        handle = replace_file(self.disk, path, segment.handle, kept_size, data, segment.allocated)
        self.replaced_handles.append(segment.handle)  # A reader may be using it.
        segment.handle = handle
        segment.allocated = self.disk.size(handle)
        segment.is_suspect = False

    def close_replaced(self) -> None:
        """Close replaced files; on the reading thread."""
        while self.replaced_handles:
            self.disk.close(self.replaced_handles.popleft())

    def handle(self, segment: Segment) -> int:
        """Return the open file of a written segment."""
        if segment.handle < 0:
            segment.handle = self.disk.open(self.path(segment))
            self.open.append(segment)
            self.close_oldest()
        return segment.handle

    def close(self, segment: Segment) -> None:
        """Close the file of a segment."""
        if segment.handle >= 0:
            self.disk.close(segment.handle)
            segment.handle = -1

    def close_oldest(self) -> None:
        """Close files beyond ``HANDLES_MAX``."""
        while len(self.open) > HANDLES_MAX:
            self.close(self.open.popleft())

    def close_removed(self, segment: Segment) -> None:
        """Close the file of a segment that is no longer read."""
        self.close(segment)
        if segment in self.open:  # This also releases the segment's index.
            self.open.remove(segment)


class Recycling:
    """Recycles or removes the file of a segment; a job of the writer."""

    def __init__(self, files: SegmentFiles, segment: Segment) -> None:
        self.files = files
        self.segment = segment
        self.is_renamed = False

    def run(self, disk: Disk) -> None:
        """Rename or remove the file."""
        files, path = self.files, self.files.path(self.segment)
        if not self.is_renamed:
            if (
                self.segment.size == files.segment_size
                and len(files.spares) < SPARES_MAX
                and not disk.is_shared(path)  # A backup of it is being made.
                and disk.free(files.directory) >= self.segment.allocated  # Leave room for others.
            ):
                name = f"{self.segment.number:010d}.spare"
                disk.rename(path, os.path.join(files.directory, name))
                files.spares.append(name)
            else:
                disk.remove(path)
            self.is_renamed = True
        disk.sync_directory(files.directory)
