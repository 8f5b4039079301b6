# SPDX-License-Identifier: Apache-2.0
"""The file offset and arrival time of each record of a segment.

When a segment is offloaded, its record groups stay on disk, so that records are found by offset,
time and bytes without fetching the segment. A group has the records of about 64 KiB of the segment,
12 bytes each: the differences of offset, file offset and time (signed) to the previous record,
which compress well.
"""

import cython

if not cython.compiled:
    from headrace.store.segment.record import MESSAGE as C_MESSAGE
    from headrace.store.segment.record import check_record, find_record_from
    from headrace.wire.memory import get32, get64, put32

GROUP_STEP = 64 << 10  # Bytes of a segment for one group.
ENTRY = 12  # Bytes of a record in a group.
if not cython.compiled:
    C_GROUP_STEP = GROUP_STEP
    C_ENTRY = ENTRY


class GroupScan:
    """Collects the records of one segment, which is read window by window."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        # First offset, file offset and time; entries.
        self.groups: list[tuple[int, int, int, bytes]] = []
        self.entries = bytearray(64 << 10)
        self.used = 0
        self.first_offset = 0
        self.first_file_offset = 0
        self.first_ms = 0
        self.offset = 0  # The offset of the last record.
        self.file_offset = 0
        self.ms = 0

    def read_group(self, window: bytes, position: int, window_offset: int, last: bool) -> int:
        """Read records until a group is full; return the position in the window to continue at.

        ``window_offset`` is the file offset of the window; ``last`` is True if nothing follows it.
        If ``position`` is returned, the window has only a part of the next record.
        """
        end = len(window) & ~7
        while position < end:
            length = check_record(window, position, end, self.seed)
            if length == 0:
                following = find_record_from(window, position + 8, end, self.seed)
                if following >= end and not last:
                    break  # Cut off by the window.
                position = following
                continue
            if window[position + 4] == C_MESSAGE:
                if self.used and window_offset + position >= self.first_file_offset + C_GROUP_STEP:
                    self.end_group()
                    return position
                self.add_record(
                    get64(window, position + 16),
                    window_offset + position,
                    get64(window, position + 24),
                )
            position += (length + 7) & ~7
        return position

    def add_record(self, offset: int, file_offset: int, arrived_ms: int) -> None:
        """Add a record to the present group."""
        if self.used == 0:
            self.first_offset = self.offset = offset
            self.first_file_offset = self.file_offset = file_offset
            self.first_ms = self.ms = arrived_ms
        if self.used + C_ENTRY > len(self.entries):
            self.entries.extend(bytes(len(self.entries)))
        entries = self.entries
        put32(entries, self.used, offset - self.offset)
        put32(entries, self.used + 4, file_offset - self.file_offset)
        put32(entries, self.used + 8, (arrived_ms - self.ms) & 0xFFFFFFFF)
        self.offset = offset
        self.file_offset = file_offset
        self.ms = arrived_ms
        self.used += C_ENTRY

    def end_group(self) -> None:
        """End the present group if it has records."""
        if self.used:
            entries = bytes(self.entries[: self.used])
            self.groups.append((self.first_offset, self.first_file_offset, self.first_ms, entries))
            self.used = 0


def find_in_group(entries: bytes, column: int, minimum: int, before: bool) -> tuple[int, int]:
    """Return offset and file offset of the first record whose column is at least ``minimum``.

    Columns are offset (0), file offset (1) and time (2); all numbers are beyond those of the
    group's first record. With ``before`` it is the record before that one, or the last of the
    group, but the first one at least. Otherwise both are -1 if there is none.
    """
    position = 0
    end = len(entries)
    offset = 0
    file_offset = 0
    ms = 0
    earlier_offset = 0
    earlier_file_offset = 0
    while position < end:
        offset += get32(entries, position)
        file_offset += get32(entries, position + 4)
        step: int = get32(entries, position + 8)
        if step > 0x7FFFFFFF:
            step -= 0x100000000
        ms += step
        value = offset if column == 0 else (file_offset if column == 1 else ms)
        if value >= minimum:
            if before:
                offset = earlier_offset
                file_offset = earlier_file_offset
            return offset, file_offset
        earlier_offset = offset
        earlier_file_offset = file_offset
        position += C_ENTRY
    if not before:
        offset = -1
        file_offset = -1
    return offset, file_offset
