# SPDX-License-Identifier: Apache-2.0
"""The log of a stream: segments of numbered messages, read by many readers from any offset.

Segments and records have the journal's form (:mod:`headrace.store.segment.segment`, where
``first_seq`` is the first offset, and :mod:`headrace.store.segment.record`, where ``seq`` is the
offset). Records are appended to a buffer that is written and synced with the next group of the
virtual host's journal, so one watermark releases the confirms of both.

Memory has an index of the segments (:mod:`headrace.store.stream.index`). Readers continue at the
position of their last read (:mod:`headrace.store.stream.reader`).

Transactions. A stream is written before the journal, whose COMMIT decides. So a stream's log has a
BEGIN record with the transaction's number before the transaction's records. At a start, the last
group is cut back to the first BEGIN whose COMMIT the journal lacks: no later record was confirmed.
Earlier groups need no check, because the journal was written before the next group began. A GROUP
record that continues a group in a new segment has the bit ``CONTINUES``.

Retention removes whole segments, oldest first, but not the last one, so that offsets are not reused
even when all records are removed. For the case that the last segment is lost, a definition in the
journal has the stream's durable offset and an upper bound of its offsets. It is appended to the
group that begins a segment or exceeds the bound, so it costs no sync. A log that ends before the
durable offset continues after the bound, in a new segment.
"""

import logging
from collections import deque
from collections.abc import Iterator

import cython

from headrace.model.stream.log import StreamRecord
from headrace.store.journal.definition_records import read_stream, stream_key, stream_value
from headrace.store.offload.block_cache import BlockPending
from headrace.store.offload.tier import Tier
from headrace.store.segment.record import segment_seed
from headrace.store.segment.segment import HEADER, header
from headrace.store.stream.files import FileRemoval, StreamFiles
from headrace.store.stream.offloading import Offloading
from headrace.store.stream.recovery import StreamRecovery
from headrace.store.stream.scan import CONTINUES

if not cython.compiled:
    from headrace.model.queue.destination import Consumer
    from headrace.model.stream.log import StreamLog
    from headrace.store.journal.journal import Journal
    from headrace.store.segment.record import BEGIN as C_BEGIN
    from headrace.store.segment.record import GROUP as C_GROUP
    from headrace.store.segment.record import HEAD as C_HEAD
    from headrace.store.segment.record import MESSAGE as C_MESSAGE
    from headrace.store.segment.record import MESSAGE_HEAD as C_MESSAGE_HEAD
    from headrace.store.segment.record import seal
    from headrace.store.stream.files import StreamGroup, StreamSegment
    from headrace.store.stream.index import StreamIndex
    from headrace.store.stream.reader import StreamReader
    from headrace.store.stream.scan import INDEX_STEP as C_INDEX_STEP
    from headrace.wire.memory import copy, put16, put32, put64

log = logging.getLogger(__name__)

BUFFER_SIZE = 64 << 10  # Bytes of an empty group buffer.
BUFFER_KEPT = 4 << 20  # Bytes of the largest buffer that is used again.
BUFFER_USED = 4  # The maximum ratio of a buffer to its last group for which it is used again.
SEGMENT_MIN = 64 << 10  # Bytes of the smallest segment size.


class DiskStreamLog(StreamLog):
    """The durable log of one stream."""

    def __init__(
        self,
        directory: str,
        journal: Journal,
        *,
        segment_size: int,
        max_length_bytes: int = -1,
        max_age_ms: int = -1,
        tier: Tier | None = None,
    ) -> None:
        """Open the log and recover it; ``tier`` is the object store for its segments.

        Raises:
            StoreError, OSError: the log cannot be read.
        """
        StreamLog.__init__(self, max_length_bytes, max_age_ms)
        self.journal = journal
        self.files = StreamFiles(journal.disk, directory)
        self.segments: list[StreamSegment] = []
        self.stream_index = StreamIndex(self.files, self.segments)
        self.reader = StreamReader(self.files, self.stream_index)
        self.segment_size_usual = segment_size
        self.segment_size_max = segment_size
        self.offloading = (
            None
            if tier is None
            else Offloading(self, self.files, self.segments, self.reader, journal.writer, tier)
        )
        self.set_segment_size()
        self.tail = 0  # Bytes at the end of a record's data that readers do not see.
        self.buffer = bytearray(BUFFER_SIZE)
        self.capacity = BUFFER_SIZE
        self.spare_buffer: bytearray | None = None
        self.buffer_end = 0
        self.writes: list[tuple[StreamSegment, int, int, int]] = []
        self.write_start = 0
        self.write_offset = 0
        self.file_offset = 0  # The file offset of the next record.
        self.indexed = 0  # The file offset of the last index entry.
        self.index: list[tuple[int, int, int]] = []  # The index of the last segment.
        self.groups = 0  # The number of the latest group.
        self.begun_transaction = 0  # The number in the last BEGIN.
        # The group and number of transactions whose COMMIT a recovery would need.
        self.uncertain_transactions: deque[tuple[int, int]] = deque()
        # The transactions of the last group, from the start until :meth:`resolve`.
        self.group_transactions: list[tuple[int, StreamSegment, int]] = []
        self.seed = 0
        self.roll_after_ms = 0  # The time after which the next message begins a segment.
        self.newest_ms = 0
        self.is_dirty = False
        self.key = stream_key(directory)
        self.announced = (0, 0, 0)  # The definition in the journal; see :func:`stream_value`.
        self.lost_number = 0  # The number of the last segment if it is lost; the next is higher.
        journal.disk.make_directory(directory)
        self.load_segments()
        if journal.is_recovered:
            self.group_transactions = []
        journal.streams.append(self)

    # --- Appending --------------------------------------------------------------------------

    def append(self, data: bytes, address_len: int, body_size: int, arrived_ms: int) -> int:
        n = len(data)
        length = C_MESSAGE_HEAD + n
        size = (length + 7) & ~7
        if not self.is_dirty:
            self.begin_group(arrived_ms)
        if self.journal.transaction != 0 and self.journal.transaction != self.begun_transaction:
            self.begin_transaction(self.journal.transaction)
        full = self.file_offset + size + 32 > self.segment_size or arrived_ms > self.roll_after_ms
        if full and self.file_offset > HEADER + 64:
            self.roll(arrived_ms)
        if self.buffer_end + size + 128 > self.capacity:
            self.grow(size)
        buffer = self.buffer
        base = self.buffer_end
        offset = self.next_offset
        put64(buffer, base + size - 8, 0)
        put64(buffer, base + 16, offset)
        put64(buffer, base + 24, arrived_ms)
        put64(buffer, base + 32, 0)
        put32(buffer, base + 40, body_size)
        put32(buffer, base + 44, 0)
        put32(buffer, base + 48, n)
        put16(buffer, base + 52, address_len)
        buffer[base + 54] = 1
        buffer[base + 55] = 0
        copy(buffer, base + C_MESSAGE_HEAD, data, 0, n)
        seal(buffer, base, self.seed, length, C_MESSAGE)
        if self.file_offset >= self.indexed + C_INDEX_STEP or self.indexed == 0:
            self.indexed = self.file_offset
            self.index.append((offset, self.file_offset, arrived_ms))
        self.buffer_end = base + size
        self.file_offset += size
        self.size += size
        self.journal.appended += size
        self.journal.required_position = self.journal.appended
        self.newest_ms = arrived_ms
        self.next_offset = offset + 1
        return offset

    def active_segment(self) -> StreamSegment:
        """Return the segment for appending."""
        return self.segments[len(self.segments) - 1]

    def grow(self, size: int) -> None:
        """Copy the buffer to a larger one: views of failed writes may refer to the old one."""
        more = self.capacity
        while self.buffer_end + size + 128 > self.capacity + more:
            more *= 2
        self.buffer = self.buffer + bytes(more)
        self.capacity += more

    def begin_group(self, arrived_ms: int) -> None:
        """Begin the records of the journal's next group."""
        self.is_dirty = True
        self.journal.dirty_streams.append(self)
        if self.lost_number and self.segments:
            old = self.active_segment()
            old.is_sealed = True
            self.files.open.append(old)
        if self.lost_number or not self.segments:
            self.begin_segment(self.lost_number + 1, arrived_ms, False)
            self.lost_number = 0
            return
        self.write_start = self.buffer_end
        self.write_offset = self.file_offset
        self.mark_group(False)

    def begin_transaction(self, number: int) -> None:
        """Append a BEGIN; the records after it are valid only with the journal's COMMIT."""
        self.begun_transaction = number
        self.journal.spans_streams = True
        self.uncertain_transactions.append((self.groups, number))
        if self.buffer_end + 128 > self.capacity:
            self.grow(128)
        put64(self.buffer, self.buffer_end + C_HEAD, number)
        seal(self.buffer, self.buffer_end, self.seed, C_HEAD + 8, C_BEGIN)
        self.buffer_end += C_HEAD + 8
        self.file_offset += C_HEAD + 8
        self.size += C_HEAD + 8

    def needs_commit(self, number: int) -> bool:
        """Return True if a recovery would need the COMMIT of a transaction."""
        return any(segment_number == number for _, segment_number in self.uncertain_transactions)

    def mark_group(self, continues: bool) -> None:
        """Append a GROUP record, which proves that the previous group was written.

        With ``continues`` the record continues the previous group in a new segment.
        """
        if not continues:
            self.groups += 1
        buffer = self.buffer
        put64(buffer, self.buffer_end + C_HEAD, self.groups | (CONTINUES if continues else 0))
        seal(buffer, self.buffer_end, self.seed, C_HEAD + 8, C_GROUP)
        self.buffer_end += C_HEAD + 8
        self.file_offset += C_HEAD + 8
        self.size += C_HEAD + 8

    def begin_segment(self, number: int, arrived_ms: int, continues: bool) -> None:
        """Begin a segment in the buffer; the writer makes its file."""
        self.seed = segment_seed(self.files.secret, number)
        segment = StreamSegment(
            self.files.path(number), number, self.seed, self.next_offset, arrived_ms
        )
        self.index = segment.index = []
        self.segments.append(segment)
        self.set_roll_time(arrived_ms)
        oldest, secret = self.segments[0].number, self.files.secret
        first = header(number, secret, self.next_offset, oldest, arrived_ms)
        copy(self.buffer, self.buffer_end, first, 0, HEADER)
        self.write_start = self.buffer_end
        self.write_offset = 0
        self.buffer_end += HEADER
        self.file_offset = HEADER
        self.size += HEADER
        self.indexed = 0
        self.mark_group(continues)

    def limit_segments(self, size: int) -> None:
        self.segment_size_max = size or self.segment_size_usual
        self.set_segment_size()

    def limit(self, max_length_bytes: int, max_age_ms: int) -> None:
        StreamLog.limit(self, max_length_bytes, max_age_ms)
        self.set_segment_size()
        if self.segments:
            self.set_roll_time(self.active_segment().begun_ms)

    def limit_local(self, max_length_bytes: int, max_age_ms: int) -> None:
        if self.offloading is None:
            if max_length_bytes >= 0 or max_age_ms >= 0:
                log.warning(
                    "stream %r: its segments stay on this machine: the broker has no stream_store",
                    self.name,
                )
            return
        self.offloading.max_length_bytes = max_length_bytes
        self.local_max_age_ms = self.offloading.max_age_ms = max_age_ms
        self.set_segment_size()
        if self.segments:
            self.set_roll_time(self.active_segment().begun_ms)
            self.offloading.start_moves(self.newest_ms)

    def offload(self, now_ms: int) -> None:
        if self.offloading is not None:
            self.offloading.start_moves(now_ms)

    def set_segment_size(self) -> None:
        """Set the segment size to a fraction of the length limits, so that retention has effect."""
        size = self.segment_size_max
        if self.max_length_bytes >= 0:
            size = min(size, self.max_length_bytes // 8)
        if self.offloading is not None and self.offloading.max_length_bytes >= 0:
            size = min(size, self.offloading.max_length_bytes // 8)
        self.segment_size = max(size, SEGMENT_MIN)

    def set_roll_time(self, begun_ms: int) -> None:
        """Set the time of the next segment by the age limits, so that retention has effect."""
        ages = [age for age in (self.max_age_ms, self.local_max_age_ms) if age >= 0]
        self.roll_after_ms = begun_ms + min(ages) // 4 if ages else 1 << 62

    def roll(self, arrived_ms: int) -> None:
        """Continue in a new segment."""
        old = self.active_segment()
        self.end_write()
        old.is_sealed = True
        self.files.open.append(old)
        if self.buffer_end + 256 > self.capacity:
            self.grow(256)
        self.begin_segment(old.number + 1, arrived_ms, True)

    def end_write(self) -> None:
        """End a run of bytes that is contiguous in the file."""
        segment = self.active_segment()
        segment.end = self.file_offset
        if self.buffer_end > self.write_start:
            self.writes.append((segment, self.write_offset, self.write_start, self.buffer_end))
        self.write_start = self.buffer_end
        self.write_offset = self.file_offset

    def hand_over(self) -> StreamGroup:
        """Pass the appended records to the journal's next group."""
        self.end_write()
        group = StreamGroup(
            self.files,
            self.on_durable,
            self.buffer,
            self.writes,
            self.next_offset,
            self.groups,
        )
        self.writes = []
        self.buffer = self.spare_buffer if self.spare_buffer is not None else bytearray(BUFFER_SIZE)
        self.spare_buffer = None
        self.capacity = len(self.buffer)
        self.buffer_end = 0
        self.is_dirty = False
        return group

    def announce(self, ahead: int) -> None:
        """Record the durable offset in the journal, and a bound that is ``ahead`` higher."""
        if not self.segments or self.lost_number:
            return
        number, _, end = self.announced
        announced = (self.active_segment().number, self.next_offset, self.next_offset + ahead)
        if announced == self.announced or (
            ahead and number == announced[0] and self.next_offset <= end
        ):
            return
        self.announced = announced
        self.journal.append_definition(self.key, stream_value(*announced))

    def on_durable(self, group: StreamGroup) -> None:
        """Record that a group is durable; apply retention and offloading."""
        self.files.close_replaced()
        self.committed_offset = group.next_offset
        while self.uncertain_transactions and self.uncertain_transactions[0][0] < group.number:
            self.uncertain_transactions.popleft()
        used = group.writes[len(group.writes) - 1][3] if group.writes else 0
        if len(group.buffer) <= min(BUFFER_KEPT, max(BUFFER_SIZE, BUFFER_USED * used)):
            self.spare_buffer = group.buffer
        if len(self.segments) > 1:
            self.trim(self.newest_ms)
            if self.offloading is not None:
                self.offloading.start_moves(self.newest_ms)
        if self.files.is_deleted:
            self.close()
        self.files.close_oldest()

    # --- Retention --------------------------------------------------------------------------

    def trim(self, now_ms: int) -> None:
        """Remove the oldest segments beyond the limits."""
        removed_count = 0
        segments = self.segments
        size = self.size
        while (
            removed_count < len(segments) - 1
            and segments[removed_count].written == segments[removed_count].end
        ):
            next_segment = segments[removed_count + 1]
            if next_segment.first_offset > self.committed_offset:
                break
            too_long = 0 <= self.max_length_bytes < size
            too_old = self.max_age_ms >= 0 and next_segment.begun_ms < now_ms - self.max_age_ms
            if not too_long and not too_old:
                break
            if self.must_keep(next_segment.first_offset, size):
                break
            size -= segments[removed_count].end
            removed_count += 1
        if not removed_count:
            return
        self.remove_oldest(removed_count)
        self.first_offset = segments[0].first_offset

    def remove_oldest(self, count: int) -> None:
        """Remove the oldest segments."""
        dropped = self.segments[:count]
        del self.segments[:count]
        for segment in dropped:
            self.size -= segment.end
            self.files.close(segment)
            if self.offloading is not None:
                self.offloading.drop(segment)
        self.reader.clear()
        self.journal.writer.submit(FileRemoval([segment.path for segment in dropped], None))

    # --- Reading ----------------------------------------------------------------------------

    def read(self, offset: int, bytes_max: int) -> list[StreamRecord]:
        if offset < self.first_offset:
            offset = self.first_offset
        if offset >= self.committed_offset:
            return []
        try:
            return self.reader.read(offset, self.committed_offset, bytes_max)
        except BlockPending:
            return []

    def deliver_records(self, offset: int, end: int, consumer: Consumer) -> int:
        if offset < self.first_offset:
            offset = self.first_offset
        if offset >= end or not consumer.has_room():
            return offset
        try:
            next_offset = self.reader.deliver_records(offset, end, self.tail, consumer)
        except BlockPending:
            return offset
        if next_offset == offset:
            return self.deliver_one_by_one(offset, end, consumer)
        return next_offset

    def deliver_one_by_one(self, offset: int, end: int, consumer: Consumer) -> int:
        """Deliver records that are large, follow damage, or need conversion."""
        for seq, data, address_len, _, arrived_ms in self.read(offset, 1):
            if seq >= end or not consumer.has_room():
                break
            consumer.put_record(data, 0, address_len, len(data), seq, arrived_ms)
            offset = seq + 1
        return offset

    def offset_at(self, timestamp_ms: int) -> int:
        if not self.segments:
            return self.next_offset
        offset = self.stream_index.offset_before(timestamp_ms)
        while offset < self.committed_offset:
            record_offset, next_offset = self.stream_index.find_time(offset, timestamp_ms)
            if record_offset >= 0:
                return record_offset
            if next_offset >= 0:
                offset = next_offset
                continue
            batch = self.read(offset, 1 << 18)
            if not batch:
                break
            for record in batch:
                if record[4] >= timestamp_ms:
                    return record[0]
            offset = batch[len(batch) - 1][0] + 1
        return self.committed_offset

    # --- Measuring --------------------------------------------------------------------------

    def bytes_from(self, offset: int) -> int:
        """See :class:`StreamLog`; where there is an index, exact to about one of its entries."""
        return self.stream_index.estimate_bytes_from(offset, self.file_offset, self.next_offset)

    def measure(self, first: int, last: int) -> int:
        """See :class:`StreamLog`; the bytes include the heads of records."""
        last = min(last, self.committed_offset)
        if first >= last:
            return 0
        return self.bytes_before(last) - self.bytes_before(first)

    def bytes_before(self, offset: int) -> int:
        """Return the bytes of the existing segments before a record."""
        if offset >= self.committed_offset:
            return self.stream_index.total_bytes()
        return self.stream_index.bytes_before(offset)

    def find_end(self, first: int, last: int, bytes_max: int) -> int:
        last = min(last, self.committed_offset)
        if first + 1 >= last:
            return last
        stop = self.bytes_before(first) + bytes_max
        if self.bytes_before(last) <= stop:
            return last
        boundary = self.stream_index.offset_ending_after(stop)
        return last if boundary < 0 else max(first + 1, min(boundary, last))

    # --- The start --------------------------------------------------------------------------

    def load_segments(self) -> None:
        """Load the existing segments."""
        recovery = StreamRecovery(self.files)
        self.segments[:] = recovery.segments
        self.size = recovery.size
        self.groups = max(self.groups, recovery.groups)
        self.group_transactions = recovery.group_transactions
        self.uncertain_transactions = deque(
            (self.groups, number) for number, _, _ in recovery.group_transactions
        )
        self.open_offloaded(recovery)
        announced = self.journal.definitions.get(self.key)
        if announced is not None:
            self.announced = read_stream(announced)
        if recovery.last is None:
            if self.segments:
                self.continue_after_loss()
            self.skip_lost_offsets()
            self.first_offset = self.segments[0].first_offset if self.segments else self.next_offset
            return
        last = recovery.last.segment
        self.first_offset = self.segments[0].first_offset
        self.next_offset = self.committed_offset = recovery.last.next_offset
        self.index = recovery.last.index
        self.seed = last.seed
        self.set_roll_time(last.begun_ms)
        self.file_offset = last.end
        self.indexed = self.index[len(self.index) - 1][1] if self.index else 0
        self.skip_lost_offsets()

    def open_offloaded(self, recovery: StreamRecovery) -> None:
        """Open the readers of segments in the object store, if this log has one."""
        if self.offloading is None:
            return
        for segment in self.segments:
            if segment.offloaded is not None:
                recovered = segment.offloaded
                segment.offloaded = self.offloading.open_offloaded(
                    segment, recovered.sidecar, recovered.groups
                )
        for number in recovery.retired_numbers:
            self.offloading.tier.delete([self.offloading.name(number)])

    def continue_after_loss(self) -> None:
        """Continue after the segments in the object store, because all local segments are lost."""
        last = self.active_segment()
        assert last.offloaded is not None
        index = last.offloaded.record_index()
        log.error(
            "damaged: all segments of %s behind %d are lost", self.files.directory, last.number
        )
        self.next_offset = self.committed_offset = max(
            last.first_offset, -1 if index is None else index.end_offset()
        )
        self.lost_number = last.number

    def skip_lost_offsets(self) -> None:
        """Continue after all possible offsets if the last records are lost."""
        number, durable, end = self.announced
        if self.next_offset >= durable:
            return
        log.error(
            "damaged: the stream in %s ends before offset %d, but offsets before %d were durable: "
            "the end of its segment %d is lost, or all of it; the stream continues with offset %d",
            *(self.files.directory, self.next_offset, durable, number, end),
        )
        self.next_offset = self.committed_offset = end
        self.lost_number = max(number, self.active_segment().number if self.segments else 0)
        self.group_transactions = []  # Later records proved the last transaction.
        self.uncertain_transactions.clear()

    def resolve(self, committed: set[int] | None, clean: bool) -> None:
        """Cut off an uncommitted transaction and all records after it.

        If the journal is damaged, nothing is cut. Unless the journal was closed
        regularly (``clean``), verify that the last segment is durable.
        """
        begun, self.group_transactions = self.group_transactions, []
        if self.segments and not clean and self.active_segment().offloaded is None:
            self.files.verify_or_replace(self.active_segment())
        if committed is None:
            return
        for number, segment, file_offset in begun:
            if number not in committed:
                self.cut_back(segment, file_offset)
                return

    def cut_back(self, segment: StreamSegment, file_offset: int) -> None:
        """Cut the log at a file offset, and load its segments again."""
        disk = self.files.disk
        while self.active_segment() is not segment:
            later = self.segments.pop()
            self.files.close(later)
            disk.remove(later.path)
            disk.sync_directory(self.files.directory)
        disk.truncate(self.files.handle(segment), file_offset)
        for remaining in self.segments:
            self.files.close(remaining)
        self.files.open.clear()
        self.reader.clear()
        self.load_segments()
        self.group_transactions = []

    def unfinished_files(self) -> Iterator[tuple[str, int]]:
        """Yield the unfinished files, with their durable bytes."""
        for segment in self.segments:
            if not segment.is_sealed or segment.written < segment.end:
                yield segment.path, segment.written

    # --- The end ----------------------------------------------------------------------------

    def close(self) -> None:
        if self.offloading is not None:
            self.offloading.close()
        if self in self.journal.streams:
            self.journal.streams.remove(self)
        self.files.close_replaced()
        for segment in self.segments:
            self.files.close(segment)

    def delete_objects(self) -> None:
        """Delete the stream's objects in the object store."""
        if self.offloading is not None:
            self.offloading.delete()

    def delete(self) -> None:
        self.files.is_deleted = True
        if self.journal.is_recovered and self.journal.definitions.get(self.key) is not None:
            self.journal.define(self.key, None)
        if self in self.journal.dirty_streams:
            self.journal.dirty_streams.remove(self)
        busy = self.journal.busy
        paths = [segment.path for segment in self.segments]
        self.delete_objects()
        self.journal.writer.submit(FileRemoval(paths, self.files.directory))
        in_use = False
        if busy is not None:
            for group in busy.streams:
                in_use = in_use or group.files is self.files
        if not in_use:
            self.close()  # Otherwise ``on_durable`` closes it after the write.
