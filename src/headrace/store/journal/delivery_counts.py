# SPDX-License-Identifier: Apache-2.0
"""COUNTED records: redelivery counts of messages, and delayed retries.

A record is a list of entries, one for a message in a queue::

    0          4       5       8      16        24       32
    +----------+-------+-------+------+---------+--------+
    | queue id | count | zeros | seq  | when_ms | number |
    +----------+-------+-------+------+---------+--------+

``count`` is the redelivery count if nothing else is recorded; so an entry made at a delivery counts
as if the message returned. The message is not ready before ``when_ms`` (0: at once). Of several
entries of a message in a queue the one with the highest ``number`` counts, wherever it is in the
log.

Entries of a turn are one record. Memory keeps them by segment, with the positions of their
messages; entries that no longer count are dropped from time to time. The current ones are appended
again, some in each turn, before their segment is removed.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.store.journal.log import SegmentLog
    from headrace.store.segment.record import COUNTED as C_COUNTED
    from headrace.wire.memory import copy, cut, get32, get64, put32, put64

if TYPE_CHECKING:
    from headrace.store.segment.segment import Segment

ENTRY = 32  # Bytes.
FRESH_MAX = 64 << 10  # Bytes of entries in one record, and carried over in one turn.
SWEEP_AT = 128 << 10  # Bytes of a segment's entries in memory before the first sweep.

if not cython.compiled:
    C_ENTRY = ENTRY
    C_FRESH_MAX = FRESH_MAX


class DeliveryCounts:
    """The redelivery counts of one journal."""

    def __init__(self, log: SegmentLog, is_unsettled: Callable[[int, int], bool]) -> None:
        """``is_unsettled`` returns True if a queue has not settled the message of a position."""
        self.log = log
        self.is_unsettled = is_unsettled
        self.number = 0  # Of the last entry.
        self.fresh = bytearray(FRESH_MAX)  # Entries that are not in the log yet.
        self.positions = bytearray(FRESH_MAX >> 2)  # The positions of their messages.
        self.at = 0  # Bytes of ``fresh`` in use.

    def note(self, queue_id: int, seq: int, position: int, count: int, when_ms: int) -> None:
        """Add an entry to the next record."""
        if self.at >= C_FRESH_MAX:
            self.flush()
        at = self.at
        self.number += 1
        put32(self.fresh, at, queue_id)
        put32(self.fresh, at + 4, count << 24)
        put64(self.fresh, at + 8, seq)
        put64(self.fresh, at + 16, when_ms)
        put64(self.fresh, at + 24, self.number)
        put64(self.positions, at >> 2, position)
        self.at = at + C_ENTRY

    def flush(self) -> None:
        """Append the pending entries."""
        n = self.at
        if n:
            self.at = 0
            self.append(cut(self.fresh, 0, n), cut(self.positions, 0, n >> 2))

    def append(self, entries: bytes, positions: bytes) -> None:
        """Append a record of entries."""
        self.log.append(C_COUNTED, entries)
        self.keep(self.log.segment, entries, positions)

    def keep(self, segment: "Segment", entries: bytes, positions: bytes) -> None:
        """Keep a segment's entries in memory."""
        if segment.counts is None:
            segment.counts = bytearray()
            segment.count_positions = bytearray()
            segment.counts_room = SWEEP_AT
        assert segment.count_positions is not None
        segment.counts += entries
        segment.count_positions += positions
        if len(segment.counts) > segment.counts_room:
            self.sweep(segment)
            segment.counts_room = max(SWEEP_AT, 2 * len(segment.counts))

    def sweep(self, segment: "Segment") -> None:
        """Drop a segment's entries of settled messages and replaced entries."""
        assert segment.counts is not None and segment.count_positions is not None  # noqa: PT018
        segment.counts, segment.count_positions = self.current_entries(
            segment.counts, segment.count_positions
        )

    def current_entries(
        self, entries: bytearray, positions: bytearray
    ) -> tuple[bytearray, bytearray]:
        """Return the current entries, and the positions of their messages."""
        is_unsettled = self.is_unsettled
        newest: dict[int, dict[int, int]] = {}  # Its offset in ``entries``, by queue id and seq.
        by_seq: dict[int, int] = {}
        last = -1
        for at in range(0, len(entries), C_ENTRY):
            queue_id = get32(entries, at)
            if not is_unsettled(queue_id, get64(positions, at >> 2)):
                continue  # Most are.
            if queue_id != last:
                last = queue_id
                by_seq = newest.setdefault(queue_id, {})
            seq = get64(entries, at + 8)
            before = by_seq.get(seq, -1)
            if before < 0 or get64(entries, before + 24) < get64(entries, at + 24):
                by_seq[seq] = at
        current, current_positions = bytearray(len(entries)), bytearray(len(positions))
        n = 0
        for by_seq in newest.values():
            for at in by_seq.values():
                copy(current, n, entries, at, at + C_ENTRY)
                copy(current_positions, n >> 2, positions, at >> 2, (at >> 2) + 8)
                n += C_ENTRY
        del current[n:]
        del current_positions[n >> 2 :]
        return current, current_positions

    def carry(self, segment: "Segment") -> bool:
        """Append a leaving segment's entries again; return False if more remain."""
        counts, count_positions = segment.counts, segment.count_positions
        if counts is None or count_positions is None:
            return True
        n = min(len(counts), FRESH_MAX)
        entries, positions = self.current_entries(counts[:n], count_positions[: n >> 2])
        del counts[:n]
        del count_positions[: n >> 2]
        if entries:
            self.append(bytes(entries), bytes(positions))
            # Compaction must not count them as waste.
            self.log.segment.fact_bytes += len(entries)
        if counts:
            return False
        segment.counts = segment.count_positions = None
        return True


class RecoveredCounts:
    """The entries read by a recovery."""

    def __init__(self) -> None:
        self.number = 0  # The highest.
        self.room = SWEEP_AT // ENTRY
        #: By queue id and seq: number, count, when_ms, and the segment of the entry.
        self.entries: dict[tuple[int, int], tuple[int, int, int, Segment]] = {}

    def add(self, payload: bytes, segment: "Segment") -> bool:
        """Add the entries of a record; return True if a sweep is due."""
        entries = self.entries
        for at in range(0, len(payload), ENTRY):
            key = (get32(payload, at), get64(payload, at + 8))
            number = get64(payload, at + 24)
            before = entries.get(key)
            if before is None or before[0] < number:
                entries[key] = number, payload[at + 4], get64(payload, at + 16), segment
            self.number = max(self.number, number)
        return len(entries) > self.room

    def retain(self, entries: dict[tuple[int, int], "tuple[int, int, int, Segment]"]) -> None:
        """Keep only these entries."""
        self.entries = entries
        self.room = max(self.room, 2 * len(entries))

    def restore_to(self, counts: DeliveryCounts, positions: dict[tuple[int, int], int]) -> None:
        """Pass the entries to a journal, with the positions of their messages."""
        counts.number = self.number
        for (queue_id, seq), (number, count, when_ms, segment) in self.entries.items():
            entry = queue_id.to_bytes(4, "big") + (count << 24).to_bytes(4, "big")
            entry += seq.to_bytes(8, "big") + when_ms.to_bytes(8, "big") + number.to_bytes(8, "big")
            counts.keep(segment, entry, positions[queue_id, seq].to_bytes(8, "big"))

    def waits(self) -> dict[tuple[int, int], int]:
        """Return when delayed retries are due, by queue id and seq."""
        return {key: entry[2] for key, entry in self.entries.items() if entry[2]}
