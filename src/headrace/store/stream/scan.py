# SPDX-License-Identifier: Apache-2.0
"""Reading a segment of a stream from start to end."""

import logging

import cython

from headrace.store.segment.record import next_group
from headrace.store.segment.segment import HEADER

if not cython.compiled:
    from headrace.store.segment.record import BEGIN as C_BEGIN
    from headrace.store.segment.record import GROUP as C_GROUP
    from headrace.store.segment.record import HEAD as C_HEAD
    from headrace.store.segment.record import MESSAGE as C_MESSAGE
    from headrace.store.segment.record import check_record, find_record_from
    from headrace.store.stream.files import StreamSegment
    from headrace.wire.memory import get64

log = logging.getLogger(__name__)

INDEX_STEP = 64 << 10  # Bytes of a segment for one index entry.
if not cython.compiled:
    C_INDEX_STEP = INDEX_STEP

CONTINUES = 1 << 63  # Bit in the number of a GROUP record: the group began in the previous segment.


class StreamScan:
    """The records of a segment."""

    def __init__(self, segment: StreamSegment, *, last: bool = False) -> None:
        """``last`` is True for the last segment, whose end a crash may have torn."""
        self.segment = segment
        self.last = last
        self.index: list[tuple[int, int, int]] = []  # Offset, file offset, arrived_ms.
        self.next_offset = segment.first_offset
        self.groups = 0  # The number of the latest group.
        # The transactions of that group: number, segment and file offset of the BEGIN.
        self.group_transactions: list[tuple[int, StreamSegment, int]] = []
        self.is_whole = False  # The start of that group is in the segment.

    def read(self, buffer: bytearray, size: int) -> int:
        """Read all records of ``buffer[:size]``; return the end of the last one."""
        offset = HEADER
        end = size & ~7
        marked = 0
        next_offset = 0
        seed = self.segment.seed
        while offset < end:
            length = check_record(buffer, offset, end, seed)
            if length == 0:
                if self.last and next_group(buffer, offset, end, seed) < 0:
                    return offset
                next_offset = find_record_from(buffer, offset + 8, end, seed)
                if next_offset == end and not self.last:
                    return offset
                log.error(
                    "damaged at byte %d of %s: %d bytes are skipped",
                    offset,
                    self.segment.path,
                    next_offset - offset,
                )
                offset = next_offset
                continue
            if buffer[offset + 4] == C_MESSAGE:
                seq = get64(buffer, offset + 16)
                if offset >= marked + C_INDEX_STEP or marked == 0:
                    marked = offset
                    self.index.append((seq, offset, get64(buffer, offset + 24)))
                if seq >= self.next_offset:
                    self.next_offset = seq + 1
            else:
                self.add_marker(buffer[offset + 4], get64(buffer, offset + C_HEAD), offset)
            offset += (length + 7) & ~7
        return offset

    def add_marker(self, type: int, number: int, file_offset: int) -> None:
        """Process a GROUP or BEGIN record."""
        if type == C_BEGIN:
            self.group_transactions.append((number, self.segment, file_offset))
        elif type == C_GROUP:
            self.groups = max(self.groups, number & ~CONTINUES)
            if not number & CONTINUES:
                self.group_transactions.clear()
                self.is_whole = True
