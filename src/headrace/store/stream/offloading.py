# SPDX-License-Identifier: Apache-2.0
"""Offloading: moving the segments of a stream to the object store.

A sealed segment moves when the local segments exceed ``local_max_length_bytes`` or it is older than
``local_max_age_ms``; the two newest stay. First its object and its sidecar are made durable, then
the sidecar gets its final name, then the segment's file is removed. A start that finds both sidecar
and file removes the file.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headrace.store.disk import Disk
from headrace.store.offload.block_cache import OffloadedSegment
from headrace.store.offload.sidecar import Sidecar, rename_sidecar, sidecar_path
from headrace.store.offload.tier import Tier, Upload
from headrace.store.segment.segment import file_name
from headrace.store.segment.writer import ReportedJob
from headrace.store.stream.files import FileRemoval, StreamSegment

if TYPE_CHECKING:
    from headrace.model.stream.log import StreamLog
    from headrace.store.segment.writer import Writer
    from headrace.store.stream.files import StreamFiles
    from headrace.store.stream.reader import StreamReader

log = logging.getLogger(__name__)

KEPT_SEGMENTS = 2  # Newest segments that never move.
MOVING_MAX = 2  # Segments of a stream that move at a time.


class Offloading:
    """Moves the segments of one stream; used on the loop's thread."""

    def __init__(
        self,
        log: "StreamLog",
        files: "StreamFiles",
        segments: list[StreamSegment],
        reader: "StreamReader",
        writer: "Writer",
        tier: Tier,
    ) -> None:
        """``segments`` is the log's list, oldest first, which the log changes."""
        self.log = log
        self.files = files
        self.segments = segments
        self.reader = reader
        self.writer = writer
        self.tier = tier
        self.now_ms = 0  # The time of the last call of :meth:`start_moves`.
        self.max_length_bytes = -1
        self.max_age_ms = -1
        self.moving: dict[StreamSegment, Upload] = {}
        self.is_ended = False

    @property
    def prefix(self) -> str:
        """The common prefix of the names of the stream's objects."""
        return self.tier.prefix(self.files.directory.rpartition("/")[2], self.files.secret)

    def name(self, number: int) -> str:
        """Return the name of the object of a segment."""
        return self.prefix + file_name(number)

    def start_moves(self, now_ms: int) -> None:
        """Start the uploads of segments beyond the limits."""
        self.now_ms = now_ms
        if self.is_ended or (self.max_length_bytes < 0 and self.max_age_ms < 0):
            return
        local = [segment for segment in self.segments if segment.offloaded is None]
        size = sum(segment.end for segment in local if segment not in self.moving)
        for k, segment in enumerate(local[:-KEPT_SEGMENTS]):
            if len(self.moving) >= MOVING_MAX:
                return
            if segment in self.moving:
                continue
            next_segment = local[k + 1]
            if segment.written != segment.end or next_segment.written == 0:
                return
            too_long = 0 <= self.max_length_bytes < size
            too_old = self.max_age_ms >= 0 and next_segment.begun_ms < now_ms - self.max_age_ms
            if not too_long and not too_old:
                return
            size -= segment.end
            self.move(segment)

    def move(self, segment: StreamSegment) -> None:
        """Upload a segment."""
        upload = Upload(partial(self.finish_upload, segment))
        self.moving[segment] = upload
        disk, path = self.files.disk, segment.path
        name = self.name(segment.number)
        self.tier.upload(
            disk, name, path, self.sidecar(segment).path, segment.end, segment.seed, upload
        )

    def sidecar(self, segment: StreamSegment) -> Sidecar:
        """Return the sidecar of a segment."""
        return Sidecar(self.files.disk, sidecar_path(segment.path))

    def finish_upload(self, segment: StreamSegment, durable: bool) -> None:
        """Continue a move if the object is ``durable``: give the sidecar its final name."""
        if not durable or self.is_ended:  # Another upload follows, or the stream is deleted.
            self.moving.pop(segment, None)
        elif segment not in self.segments:
            self.moving.pop(segment, None)
            self.tier.delete([self.name(segment.number)])
        else:
            job = SidecarRename(self.sidecar(segment).path, partial(self.finish_move, segment))
            self.writer.submit(job)

    def finish_move(self, segment: StreamSegment) -> None:
        """Finish a move: read the segment from the object store, and remove its file."""
        self.moving.pop(segment, None)
        if self.is_ended:
            return
        sidecar = self.sidecar(segment)
        if segment not in self.segments:  # Retention has removed the segment meanwhile.
            self.remove(sidecar.path, self.name(segment.number))
            return
        segment.offloaded = self.open_offloaded(segment, sidecar, sidecar.read_head().groups)
        segment.index = None
        self.files.close(segment)
        if segment in self.files.open:
            self.files.open.remove(segment)
        self.reader.clear()
        self.writer.submit(FileRemoval([segment.path], None))
        self.start_moves(self.now_ms)

    def open_offloaded(
        self, segment: StreamSegment, sidecar: Sidecar, groups: int
    ) -> OffloadedSegment:
        """Return the reader of a segment in the object store."""
        name, disk = self.name(segment.number), self.files.disk
        cache, size = self.tier.cache, segment.end
        return OffloadedSegment(
            cache, disk, name, segment.path, sidecar, size, groups, self.wake_readers
        )

    def wake_readers(self) -> None:
        """Wake the stream's readers when blocks have been fetched."""
        if not self.is_ended and self.log.on_arrival is not None:
            self.log.on_arrival()

    def drop(self, segment: StreamSegment) -> None:
        """Remove the object and the sidecar of a segment that retention removes."""
        upload = self.moving.get(segment)
        if upload is not None:
            upload.is_abandoned = True
        if segment.offloaded is not None:
            self.tier.cache.remove_segment(segment.offloaded)
            self.remove(self.sidecar(segment).path, self.name(segment.number))

    def remove(self, sidecar: str, name: str) -> None:
        """Remove a sidecar durably, then its object."""
        then = partial(self.tier.delete, [name])
        self.writer.submit(SidecarRemoval(sidecar, then))

    def close(self) -> None:
        """Abandon the uploads and start no others."""
        self.is_ended = True
        for upload in self.moving.values():
            upload.is_abandoned = True
        for segment in self.segments:
            if segment.offloaded is not None:
                segment.offloaded.close()

    def delete(self) -> None:
        """Delete the objects of a deleted stream."""
        has_objects = bool(self.moving)
        for segment in self.segments:
            if segment.offloaded is not None:
                has_objects = True
                self.tier.cache.remove_segment(segment.offloaded)
        self.close()
        if has_objects:
            self.tier.delete_all(self.prefix)


class SidecarRename(ReportedJob):
    """Gives a sidecar its final name; a job of the writer."""

    def __init__(self, path: str, then: Callable[[], None]) -> None:
        self.path = path
        self.then = then

    def run(self, disk: Disk) -> None:
        """Rename the sidecar durably; a repeated job accepts that it is renamed."""
        try:
            rename_sidecar(disk, self.path)
        except FileNotFoundError:
            disk.close(disk.open(self.path))

    def finish(self) -> None:
        self.then()


class SidecarRemoval(ReportedJob):
    """Removes a sidecar durably; a job of the writer."""

    def __init__(self, path: str, then: Callable[[], None]) -> None:
        self.path = path
        self.then = then

    def run(self, disk: Disk) -> None:
        """Remove the sidecar and sync its directory."""
        disk.remove(self.path)
        disk.sync_directory(self.path.rpartition("/")[0])

    def finish(self) -> None:
        self.then()
