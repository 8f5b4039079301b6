# SPDX-License-Identifier: Apache-2.0
"""A log of records in segments, appended on the event loop and synced in groups.

Records are written straight into a buffer on the event loop's thread, without an object for each.
At the end of a turn :meth:`SegmentLog.hand_over` passes the buffer to the writer's thread, which
writes and syncs it as one group while the next buffer fills. So groups grow with the latency of the
disk. When a group is durable, ``synced`` advances and ``notify`` is called. The streams' records of
a group are written before the group itself.

Full disk. The writer repeats a group until it succeeds. In the meantime ``full`` is set, and no
publish is confirmed.
"""

import logging
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import cython

from headrace.store.disk import Disk
from headrace.store.segment.record import segment_seed
from headrace.store.segment.segment import HEADER, SEAL_ROOM, header
from headrace.store.segment.segment_files import SegmentFiles
from headrace.store.segment.writer import ReportedJob, Writer

if not cython.compiled:
    from headrace.model.ports import Store
    from headrace.store.segment.group import SegmentWrite, WriteGroup
    from headrace.store.segment.record import COUNTED as C_COUNTED
    from headrace.store.segment.record import GROUP as C_GROUP
    from headrace.store.segment.record import HEAD as C_HEAD
    from headrace.store.segment.record import MARKED as C_MARKED
    from headrace.store.segment.record import MESSAGE_HEAD as C_MESSAGE_HEAD
    from headrace.store.segment.record import MOVED as C_MOVED
    from headrace.store.segment.record import RESERVED as C_RESERVED
    from headrace.store.segment.record import RETURNED as C_RETURNED
    from headrace.store.segment.record import SEALED as C_SEALED
    from headrace.store.segment.record import SETTLED as C_SETTLED
    from headrace.store.segment.record import seal, seal_with_parts
    from headrace.store.segment.segment import Segment
    from headrace.wire.memory import copy, put64

if TYPE_CHECKING:
    from headrace.store.segment.stream_port import JournaledStream

log = logging.getLogger(__name__)

BUFFER_SIZE = 1 << 20  # Bytes of an empty group buffer.
BUFFER_KEPT = 8 << 20  # Bytes of the largest buffer that is used again.
BUFFER_USED = 4  # The maximum ratio of a buffer to its last group for which it is used again.
AHEAD = 1 << 16  # Offsets by which the recorded bound of a stream exceeds its next offset.
# Types of records that only annotate messages. Answers to publishes do not wait for them.
NOTES = (1 << C_SETTLED) | (1 << C_MARKED) | (1 << C_RESERVED) | (1 << C_COUNTED) | (1 << C_GROUP)


class SegmentLog(Store):
    """The log of one directory; begin a segment and a group before appending."""

    def __init__(
        self,
        directory: str,
        disk: Disk,
        *,
        segment_size: int,
        free_min: int,
        threaded: bool,
        name: str,
    ) -> None:
        Store.__init__(self)
        self.durable = True
        self.directory = directory
        self.name = name  # The virtual host's name, for log messages.
        self.disk = disk
        self.segment_size = segment_size
        self.secret = 0
        self.files = SegmentFiles(disk, directory, segment_size)
        self.segments: dict[int, Segment] = {}  # All segments that positions may refer to.
        self.segment = Segment(0, 0, 0)  # The last segment.
        self.order: deque[Segment] = deque()  # Segments that have a file, oldest first.
        self.buffer = bytearray(BUFFER_SIZE)
        self.capacity = BUFFER_SIZE
        self.spare_buffer: bytearray | None = bytearray(BUFFER_SIZE)
        self.buffer_end = 0
        self.floor = 0  # The value of ``buffer_end`` without records.
        self.writes: list[SegmentWrite] = []
        self.write_start = 0
        self.write_offset = 0
        # The log position of the last record that is neither a message nor in ``NOTES``.
        self.required_position = 0
        self.offset = 0  # In the file of the last segment.
        self.group_number = 0
        self.busy: WriteGroup | None = None
        self.dirty_streams: list[JournaledStream] = []  # Logs of streams with records to write.
        self.closed = False
        disk.make_directory(directory)
        self.writer = Writer(disk, directory, free_min=free_min, threaded=threaded)
        self.wake_fd = self.writer.wake_fd

    # --- Appending --------------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        """Make room for ``size`` bytes in the buffer and the segment."""
        if self.offset + size + 2 * C_HEAD > self.segment.size:
            self.roll(size)
        if self.buffer_end + size + 64 > self.capacity:
            more = self.capacity
            while self.buffer_end + size + 64 > self.capacity + more:
                more *= 2
            self.grow(more)

    def grow(self, more: int) -> None:
        """Copy the buffer to a larger one: views of failed writes may refer to the old one."""
        self.buffer = self.buffer + bytes(more)
        self.capacity += more

    def append(self, type: int, payload: bytes) -> None:
        """Append a record other than a message."""
        n = len(payload)
        length = C_HEAD + n
        size = (length + 7) & ~7
        self.reserve(size)
        buffer = self.buffer
        base = self.buffer_end
        put64(buffer, base + size - 8, 0)
        copy(buffer, base + C_HEAD, payload, 0, n)
        seal(buffer, base, self.segment.seed, length, type)
        self.buffer_end += size
        self.offset += size
        self.segment.end = self.offset
        self.appended += size
        if not NOTES >> type & 1:
            self.required_position = self.appended

    def append_large(self, type: int, head: bytes, parts: list[bytes], queue_ids: bytes) -> int:
        """Append a message without copying its body; return its position."""
        length = C_HEAD + len(head) + sum(map(len, parts))
        size = (length + 7) & ~7
        if size > length:
            parts.append(bytes(size - length))
        head_size = C_HEAD + len(head)
        if self.offset + size + 2 * C_HEAD > self.segment.size:
            self.roll(size)
        self.reserve(head_size)
        buffer = self.buffer
        base = self.buffer_end
        copy(buffer, base + C_HEAD, head, 0, len(head))
        seal_with_parts(buffer, base, self.segment.seed, length, type, head_size, parts)
        i = self.segment.add_message(self.offset, len(queue_ids) >> 2, queue_ids)
        self.buffer_end += head_size
        self.offset += head_size
        self.end_write()
        body = SegmentWrite(self.segment, self.offset, 0, 0, parts)
        self.writes.append(body)
        self.offset += body.size
        self.write_offset = self.offset
        self.segment.end = self.offset
        self.appended += size
        position = self.segment.number
        return (position << 32) | i

    def append_copy(self, record: bytes, body_offset: int, queue_ids: bytes) -> int:
        """Append a copy of a message for the queues that have not settled it.

        ``body_offset`` is the offset of the body in a record that is not copied whole, else 0.
        """
        q = 4 * int.from_bytes(record[44:48], "big")
        length = int.from_bytes(record[:4], "big")
        count = len(queue_ids) >> 2
        head = record[16:44] + count.to_bytes(4, "big") + record[48:56] + queue_ids
        if body_offset:
            data = record[C_MESSAGE_HEAD + q : body_offset]
            return self.append_large(C_MOVED, head + data, [record[body_offset:length]], queue_ids)
        data = record[C_MESSAGE_HEAD + q : length]
        size = (C_HEAD + len(head) + len(data) + 7) & ~7
        self.reserve(size)
        i = self.segment.add_message(self.offset, count, queue_ids)
        self.append(C_RETURNED if record[4] == C_RETURNED else C_MOVED, head + data)
        position = self.segment.number
        return (position << 32) | i

    def end_write(self) -> None:
        """End a run of bytes that is contiguous in the file."""
        if self.buffer_end > self.write_start:
            self.writes.append(
                SegmentWrite(
                    self.segment, self.write_offset, self.write_start, self.buffer_end, None
                )
            )
        self.write_start = self.buffer_end
        self.write_offset = self.offset

    def roll(self, size: int) -> None:
        """Seal the last segment and begin the next, with room for ``size`` bytes."""
        old = self.segment
        if self.buffer_end + 256 > self.capacity:
            self.grow(self.capacity)
        buffer = self.buffer
        seal(buffer, self.buffer_end, old.seed, C_HEAD, C_SEALED)
        self.buffer_end += C_HEAD
        self.offset += C_HEAD
        old.end = self.offset
        self.appended += C_HEAD
        self.end_write()
        old.is_sealed = True
        self.begin_segment(
            old.number + 1, max(self.segment_size, size + HEADER + 4 * SEAL_ROOM + 64)
        )

    def begin_segment(self, number: int, size: int) -> None:
        """Begin a segment in the buffer; the writer makes its file."""
        segment = Segment(number, segment_seed(self.secret, number), size)
        oldest = self.order[0].number if self.order else number
        previous = self.order[len(self.order) - 1].number if self.order else 0
        self.segment = segment
        self.segments[number] = segment
        self.order.append(segment)
        first = header(number, self.secret, self.last_seq + 1, oldest, previous=previous)
        copy(self.buffer, self.buffer_end, first, 0, HEADER)
        self.write_start = self.buffer_end
        self.write_offset = 0
        self.buffer_end += HEADER
        self.offset = HEADER
        segment.end = HEADER

    # --- Groups -----------------------------------------------------------------------------

    def is_dirty(self) -> bool:
        """Return True if there are records to write."""
        return self.buffer_end > self.floor or bool(self.writes) or bool(self.dirty_streams)

    def hand_over(self) -> None:
        """Pass the buffer to the writer and continue in the spare buffer."""
        for stream in self.dirty_streams:
            stream.announce(AHEAD)
        self.end_write()
        group = WriteGroup(self.files, self.buffer, self.writes, self.appended)
        if self.dirty_streams:
            group.streams = [stream.hand_over() for stream in self.dirty_streams]
            self.dirty_streams = []
        self.busy = group
        self.writes = []
        self.buffer = self.spare_buffer if self.spare_buffer is not None else bytearray(BUFFER_SIZE)
        self.spare_buffer = None
        self.capacity = len(self.buffer)
        self.buffer_end = 0
        self.write_start = 0
        self.begin_group()
        self.writer.submit(group)

    def begin_group(self) -> None:
        """Put a GROUP record at the start of the buffer; alone it is not written."""
        appended = self.appended
        self.group_number += 1
        self.append(C_GROUP, self.group_number.to_bytes(8, "big"))
        self.appended = appended
        self.floor = self.buffer_end

    def woken(self) -> None:
        """Handle finished groups; called on the event loop when ``wake_fd`` is readable."""
        if self.closed:
            return
        self.writer.woken()
        has_changed = self.handle_finished()
        full = self.is_full()
        if full != self.full:
            self.full = full
            self.report_full()
            has_changed = True
        self.start_write()
        if has_changed and self.notify is not None:
            self.notify()

    def handle_finished(self) -> bool:
        """Process finished groups; return True if ``synced`` advanced."""
        has_advanced = False
        self.files.close_replaced()
        while self.writer.finished:
            job = self.writer.finished.popleft()
            if not isinstance(job, WriteGroup):
                if isinstance(job, ReportedJob):
                    job.finish()
                continue
            used = 0
            for write in job.writes:
                used = max(used, write.end)
                segment = write.segment
                segment.written = write.offset + write.size
                if segment.is_sealed and segment.written == segment.end:
                    self.files.open.append(segment)
            for stream in job.streams:
                stream.finish()
            self.synced = job.appended
            has_advanced = True
            if len(job.buffer) <= min(BUFFER_KEPT, max(BUFFER_SIZE, BUFFER_USED * used)):
                self.spare_buffer = job.buffer
            self.busy = None
        return has_advanced

    def wait(self) -> bool:
        """Wait until the writer has finished a group; return False if the disk fails."""
        if not self.writer.wait():
            return False
        self.handle_finished()
        return True

    def finish(self) -> None:
        """Write all appended records, as far as the disk allows."""
        while self.busy is not None or self.is_dirty():
            if self.busy is None:
                self.hand_over()
            if not self.wait():
                log.error("journal %s: closed without writing its end", self.name)
                break

    # --- A full disk ------------------------------------------------------------------------

    def is_failing(self) -> bool:
        return self.writer.is_failing()

    def is_full(self) -> bool:
        """Return True if publishers must wait: the disk is full or failing."""
        return bool(self.writer.is_failing() or self.writer.is_short)

    def report_full(self) -> None:
        """Log why publishers wait, or that they no longer wait."""
        if not self.full:
            log.warning("journal %s: writing again", self.name)
        elif self.writer.is_failing():
            log.error(
                "journal %s: cannot write, retrying: %s; nothing is confirmed meanwhile",
                self.name,
                self.writer.trouble,
            )
        else:
            log.error(
                "journal %s: less than %d bytes free in %s; publishers wait",
                self.name,
                self.writer.free_min,
                self.directory,
            )

    # --- Unwritten records ------------------------------------------------------------------

    def pending_writes(self) -> Iterator[SegmentWrite]:
        """Yield the writes that may not have reached the disk."""
        if self.busy is not None:
            yield from self.busy.writes
        yield from self.writes

    def pending(self, segment: "Segment", offset: int) -> tuple[bytearray, int]:
        """Return the buffer with a record that is not written yet, and its offset there."""
        if self.busy is not None:
            for write in self.busy.writes:
                if write.segment is segment and write.offset <= offset < write.offset + write.size:
                    return self.busy.buffer, write.start + offset - write.offset
        for write in self.writes:
            if write.segment is segment and write.offset <= offset < write.offset + write.size:
                return self.buffer, write.start + offset - write.offset
        return self.buffer, self.write_start + offset - self.write_offset
