# SPDX-License-Identifier: Apache-2.0
"""Where each record of a segment begins, and when it arrived.

A segment that moves away leaves this behind, so that offsets are found by number, time and bytes
without reading it again. Records are in groups of about 64 KiB; within a group a record is 12
bytes: what its offset, place and time (as a signed number) are beyond those of the one before it,
so that they compress well.
"""

import cython

if not cython.compiled:
    from headrace.store.segment.record import MESSAGE as C_MESSAGE
    from headrace.store.segment.record import intact, next_intact
    from headrace.wire.memory import get32, get64, put32

GROUP_STEP = 64 << 10  # Bytes of a segment for one group.
ENTRY = 12  # Bytes of a record in a group.
if not cython.compiled:
    C_GROUP_STEP = GROUP_STEP
    C_ENTRY = ENTRY


class PlaceScan:
    """Collects the records of one segment, from a window of it after another."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.groups: list[tuple[int, int, int, bytes]] = []  # First offset, place and time; rest.
        self.entries = bytearray(64 << 10)
        self.used = 0
        self.first_offset = 0
        self.first_place = 0
        self.first_ms = 0
        self.offset = 0  # Of the last record.
        self.place = 0
        self.ms = 0

    def read_group(self, window: bytes, at: int, begins: int, last: bool) -> int:
        """Read records until a group is full; return where in the window to go on.

        ``begins`` is the place of the window in the segment, ``last`` that nothing follows it. A
        result of ``at`` means that the next record is not whole in the window.
        """
        end = len(window) & ~7
        while at < end:
            length = intact(window, at, end, self.seed)
            if length == 0:
                following = next_intact(window, at + 8, end, self.seed)
                if following >= end and not last:
                    break  # Cut off by the window.
                at = following
                continue
            if window[at + 4] == C_MESSAGE:
                if self.used and begins + at >= self.first_place + C_GROUP_STEP:
                    self.end_group()
                    return at
                self.note(get64(window, at + 16), begins + at, get64(window, at + 24))
            at += (length + 7) & ~7
        return at

    def note(self, offset: int, place: int, arrived_ms: int) -> None:
        """Add a record to the present group."""
        if self.used == 0:
            self.first_offset = self.offset = offset
            self.first_place = self.place = place
            self.first_ms = self.ms = arrived_ms
        if self.used + C_ENTRY > len(self.entries):
            self.entries.extend(bytes(len(self.entries)))
        entries = self.entries
        put32(entries, self.used, offset - self.offset)
        put32(entries, self.used + 4, place - self.place)
        put32(entries, self.used + 8, (arrived_ms - self.ms) & 0xFFFFFFFF)
        self.offset = offset
        self.place = place
        self.ms = arrived_ms
        self.used += C_ENTRY

    def end_group(self) -> None:
        """Close the present group, if it has records."""
        if self.used:
            rest = bytes(self.entries[: self.used])
            self.groups.append((self.first_offset, self.first_place, self.first_ms, rest))
            self.used = 0


def find_in_group(entries: bytes, column: int, least: int, before: bool) -> tuple[int, int]:
    """Return offset and place of the first record whose column is at least a value.

    Columns are offset (0), place (1) and time (2); all numbers are beyond those of the group's
    first record. With ``before`` it is the record before that one, or the last of the group, but
    the first one at least. Otherwise both are -1 if there is none.
    """
    at = 0
    end = len(entries)
    offset = 0
    place = 0
    ms = 0
    earlier_offset = 0
    earlier_place = 0
    while at < end:
        offset += get32(entries, at)
        place += get32(entries, at + 4)
        step: int = get32(entries, at + 8)
        if step > 0x7FFFFFFF:
            step -= 0x100000000
        ms += step
        value = offset if column == 0 else (place if column == 1 else ms)
        if value >= least:
            if before:
                offset = earlier_offset
                place = earlier_place
            return offset, place
        earlier_offset = offset
        earlier_place = place
        at += C_ENTRY
    if not before:
        offset = -1
        place = -1
    return offset, place
