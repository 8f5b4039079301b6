# SPDX-License-Identifier: Apache-2.0
"""Reading a stream from any offset, by many readers.

A reader that continues after its last read needs no search. Readers that are close to each other
share their reads.
"""

import logging
from collections import OrderedDict, deque

import cython

from headrace.model.stream.log import StreamRecord
from headrace.store.segment.segment import HEADER
from headrace.store.stream.files import StreamFiles

if not cython.compiled:
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.queue.destination import Consumer
    from headrace.store.segment.record import HEAD as C_HEAD
    from headrace.store.segment.record import MESSAGE as C_MESSAGE
    from headrace.store.segment.record import MESSAGE_HEAD as C_MESSAGE_HEAD
    from headrace.store.segment.record import check_head, check_record, find_record_from
    from headrace.store.stream.files import StreamSegment
    from headrace.store.stream.index import StreamIndex
    from headrace.wire.memory import cut, get16, get32, get64

log = logging.getLogger(__name__)

POSITIONS_MAX = 4096  # Positions of readers in memory.
READ_SIZE = 256 << 10  # Bytes read at a time for one reader.
RECENT = 8  # Reads in memory for other readers.


class StreamReader:
    """Reads the durable records of one stream."""

    def __init__(self, files: StreamFiles, index: StreamIndex) -> None:
        self.files = files
        self.disk = files.disk
        self.index = index
        self.positions: OrderedDict[int, tuple[StreamSegment, int]] = OrderedDict()
        # Offset, maximum of bytes, and records of each of the latest reads.
        self.recent: deque[tuple[int, int, list[StreamRecord]]] = deque(maxlen=RECENT)

    def clear(self) -> None:
        """Remove all positions and reads, because segments were removed."""
        self.recent.clear()
        self.positions.clear()

    def read(self, offset: int, committed: int, bytes_max: int) -> list[StreamRecord]:
        """Return records as :class:`~headrace.model.stream.log.StreamLog` does.

        ``offset`` exists, and is below ``committed``.
        """
        for first, earlier_max, earlier in self.recent:
            if first == offset and earlier_max == bytes_max:
                return list(earlier)
        segment, file_offset = self.find(offset)
        records: list[StreamRecord] = []
        while not records:
            if file_offset >= segment.written:
                next_segment = self.index.find_next_segment(segment, offset)
                if next_segment is None:
                    return []
                segment, file_offset = next_segment, HEADER
                continue
            read_end = self.read_records(
                segment, file_offset, offset, committed, bytes_max, records
            )
            if read_end == file_offset and not records:
                return []
            file_offset = read_end
        last = records[len(records) - 1][0]
        self.remember(last + 1, segment, file_offset)
        self.recent.append((offset, bytes_max, records))
        return list(records)

    def deliver_records(self, offset: int, end: int, tail: int, consumer: Consumer) -> int:
        """See :class:`~headrace.model.stream.log.StreamLog`.

        Records are written straight to the consumer's output. The last ``tail`` bytes of each
        record are omitted. If the method returns ``offset``, the next record is large, damaged, or
        needs conversion.
        """
        first_offset = offset
        segment, file_offset = self.find(offset)
        while offset == first_offset:
            if file_offset >= segment.written:
                next_segment = self.index.find_next_segment(segment, offset)
                if next_segment is None:
                    return offset
                segment, file_offset = next_segment, HEADER
                continue
            left = segment.written - file_offset
            chunk = self.files.read_at(segment, min(READ_SIZE + 4096, left), file_offset)
            stop = len(chunk) & ~7
            seed = segment.seed
            base = 0
            while base < stop and offset < end:
                length = check_record(chunk, base, stop, seed)
                if length == 0:
                    break  # Cut off by this read, or damaged.
                if chunk[base + 4] == C_MESSAGE:
                    seq = get64(chunk, base + 16)
                    if seq >= end:
                        break
                    if seq >= offset:
                        if not consumer.has_room():
                            break
                        start = base + C_MESSAGE_HEAD
                        end_of_data = start + get32(chunk, base + 48) - tail
                        if tail and chunk[end_of_data + 16] & (C_KIND_MASK | C_REDELIVERED):
                            break  # It needs conversion.
                        consumer.put_record(
                            chunk,
                            start,
                            get16(chunk, base + 52),
                            end_of_data,
                            seq,
                            get64(chunk, base + 24),
                        )
                        offset = seq + 1
                base += (length + 7) & ~7
            if base == 0:
                return offset
            file_offset += base
        self.remember(offset, segment, file_offset)
        return offset

    def remember(self, offset: int, segment: StreamSegment, file_offset: int) -> None:
        """Store the file offset at which a reader will continue with ``offset``."""
        self.positions[offset] = (segment, file_offset)
        while len(self.positions) > POSITIONS_MAX:
            self.positions.popitem(last=False)

    def find(self, offset: int) -> tuple[StreamSegment, int]:
        """Return a segment and a file offset at or before an offset."""
        position = self.positions.pop(offset, None)
        return position if position is not None else self.index.find(offset)

    def read_records(
        self,
        segment: StreamSegment,
        file_offset: int,
        offset: int,
        committed: int,
        bytes_max: int,
        records: list[StreamRecord],
    ) -> int:
        """Read records from ``offset`` on, starting at a file offset.

        Return the file offset at which to continue.
        """
        left = segment.written - file_offset
        chunk = self.files.read_at(segment, min(bytes_max + 4096, left), file_offset)
        end = len(chunk) & ~7
        if end == 0:
            return segment.written  # The file has become shorter.
        base = 0
        size = 0
        seed = segment.seed
        while base < end and size < bytes_max:
            length = check_record(chunk, base, end, seed)
            if length == 0:
                if base and end < left:
                    break  # Cut off by this read, or damaged, as the next read will show.
                length = check_head(chunk, base, left, seed) if end - base >= C_HEAD else 0
                if length > end and end < left:
                    chunk = self.files.read_at(segment, (length + 7) & ~7, file_offset)
                    end = len(chunk) & ~7
                    if check_record(chunk, 0, end, seed):
                        continue
                log.error(
                    "damaged record in %s near byte %d is left out", segment.path, file_offset
                )
                base = find_record_from(chunk, base + 8, end, seed)
                continue
            if chunk[base + 4] == C_MESSAGE:
                seq = get64(chunk, base + 16)
                if seq >= committed:
                    break
                if seq >= offset:
                    start = base + C_MESSAGE_HEAD
                    n = get32(chunk, base + 48)
                    records.append(
                        (
                            seq,
                            cut(chunk, start, start + n),
                            get16(chunk, base + 52),
                            get32(chunk, base + 40),
                            get64(chunk, base + 24),
                        )
                    )
                    size += n
            base += (length + 7) & ~7
        return file_offset + base
