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
    from headrace.store.segment.record import intact, next_intact
    from headrace.store.stream.files import StreamSegment
    from headrace.wire.memory import get64

log = logging.getLogger(__name__)

INDEX_STEP = 64 << 10  # Bytes of a segment for one index entry.
if not cython.compiled:
    C_INDEX_STEP = INDEX_STEP

GOES_ON = 1 << 63  # Bit in the number of a GROUP record: the group began in the previous segment.


class StreamScan:
    """The records of a segment."""

    def __init__(self, segment: StreamSegment, *, last: bool = False) -> None:
        """``last``: a crash may have torn its end."""
        self.segment = segment
        self.last = last
        self.index: list[tuple[int, int, int]] = []  # Offset, file offset, arrived_ms.
        self.next_offset = segment.first_offset
        self.groups = 0  # Number of the latest group.
        self.begun: list[tuple[int, StreamSegment, int]] = []  # Transactions of that group.
        self.whole = False  # The start of that group was found.

    def read(self, d: bytearray, size: int) -> int:
        """Read all records; return where they end."""
        at = HEADER
        end = size & ~7
        marked = 0
        following = 0
        seed = self.segment.seed
        while at < end:
            length = intact(d, at, end, seed)
            if length == 0:
                if self.last and next_group(d, at, end, seed) < 0:
                    return at
                following = next_intact(d, at + 8, end, seed)
                if following == end and not self.last:
                    return at
                log.error(
                    "damaged at byte %d of %s: %d bytes are skipped",
                    at,
                    self.segment.path,
                    following - at,
                )
                at = following
                continue
            if d[at + 4] == C_MESSAGE:
                seq = get64(d, at + 16)
                if at >= marked + C_INDEX_STEP or marked == 0:
                    marked = at
                    self.index.append((seq, at, get64(d, at + 24)))
                if seq >= self.next_offset:
                    self.next_offset = seq + 1
            else:
                self.note(d[at + 4], get64(d, at + C_HEAD), at)
            at += (length + 7) & ~7
        return at

    def note(self, type: int, number: int, file_offset: int) -> None:
        """Note a GROUP or BEGIN record."""
        if type == C_BEGIN:
            self.begun.append((number, self.segment, file_offset))
        elif type == C_GROUP:
            self.groups = max(self.groups, number & ~GOES_ON)
            if not number & GOES_ON:
                self.begun.clear()
                self.whole = True
