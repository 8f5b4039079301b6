# SPDX-License-Identifier: Apache-2.0
"""Groups: records that are written and synced at once."""

from typing import TYPE_CHECKING

from headrace.store.disk import WRITE, Change, Disk
from headrace.store.replacement import may_have_damaged

if TYPE_CHECKING:
    from headrace.store.segment.segment import Segment
    from headrace.store.segment.segment_files import SegmentFiles
    from headrace.store.segment.stream_port import StreamRecords


class SegmentWrite:
    """A write of a group to one segment: a range of its buffer, or the parts of a body."""

    def __init__(
        self, segment: "Segment", offset: int, start: int, end: int, parts: list[bytes] | None
    ) -> None:
        self.segment = segment
        self.offset = offset
        self.start = start
        self.end = end
        self.parts = parts
        self.size = end - start if parts is None else sum(map(len, parts))


class WriteGroup:
    """A buffer with its writes, and the records of streams; a job of the writer.

    When the job is repeated after an error, it skips durable writes and replaces a failed file.
    """

    def __init__(
        self, files: "SegmentFiles", buffer: bytearray, writes: list[SegmentWrite], appended: int
    ) -> None:
        self.files = files
        self.buffer = buffer
        self.writes = writes
        self.appended = appended  # The log position up to which the group makes the log durable.
        self.streams: list[StreamRecords] = []
        self.is_replicated = False  # The disk has replicated the group.
        self.streams_done = 0  # Streams whose records are durable.
        self.writes_done = 0  # Durable writes.

    def run(self, disk: Disk) -> None:
        """Write and sync all records; create the files of new segments."""
        if disk.replicates and not self.is_replicated:
            disk.replicate(self.changes())
            self.is_replicated = True
        while self.streams_done < len(self.streams):
            self.streams[self.streams_done].run(disk)
            self.streams_done += 1
        while self.writes_done < len(self.writes):
            segment = self.writes[self.writes_done].segment
            stop = self.writes_done + 1
            while stop < len(self.writes) and self.writes[stop].segment is segment:
                stop += 1
            if segment.handle < 0:
                self.files.create(segment)
            if segment.is_suspect:
                self.write_to_new_file(segment, self.writes_done, stop)
            else:
                self.write(disk, segment, self.writes_done, stop)
            self.writes_done = stop  # The next segment is written only after this one is durable.
        if self.writes:
            self.files.record_reached(self.writes[len(self.writes) - 1].segment.number)

    def changes(self) -> list[Change]:
        """Return the changes that the group makes to files."""
        changes = [change for stream in self.streams for change in stream.changes()]
        view = memoryview(self.buffer)
        for write in self.writes:
            data = write.parts if write.parts is not None else [view[write.start : write.end]]
            changes.append(Change(WRITE, self.files.path(write.segment), write.offset, data))
        return changes

    def write(self, disk: Disk, segment: "Segment", first: int, stop: int) -> None:
        """Write to one segment, and sync it."""
        try:
            with memoryview(self.buffer) as view:
                for k in range(first, stop):
                    write = self.writes[k]
                    if write.offset + write.size > segment.allocated:
                        self.files.grow(segment, write.offset + write.size)
                    if write.parts is not None:
                        disk.write(segment.handle, write.parts, write.offset)
                    else:
                        with view[write.start : write.end] as data:
                            disk.write(segment.handle, [data], write.offset)
        except OSError as error:
            segment.is_suspect = segment.is_suspect or may_have_damaged(error)
            raise
        try:
            disk.sync(segment.handle)
        except OSError:
            segment.is_suspect = True
            raise

    def write_to_new_file(self, segment: "Segment", first: int, stop: int) -> None:
        """Write to a new file of a segment, after a copy of the old file."""
        data: list[bytes] = []
        for k in range(first, stop):
            write = self.writes[k]
            data += write.parts or [bytes(self.buffer[write.start : write.end])]
        self.files.replace(segment, self.writes[first].offset, data)
