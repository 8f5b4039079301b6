# SPDX-License-Identifier: Apache-2.0
"""COUNTED records: redelivery counts of messages, and delayed retries.

A record is a list of entries, one for a message in a queue::

    0          4       5       8      16        24       32
    +----------+-------+-------+------+---------+--------+
    | queue id | count | zeros | seq  | when_ms | number |
    +----------+-------+-------+------+---------+--------+

``count`` is the redelivery count unless the message is settled, so an entry made at a delivery
counts as a requeue. The message is not ready before ``when_ms`` (0: at once). If a message has
several entries in a queue, the entry with the highest ``number`` counts, wherever it is in the log.

The entries of a turn are one record. Memory has them by segment, with the positions of their
messages; sweeps drop the entries that no longer count. Before a segment is removed its current
entries are appended again, some in each turn.
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
RECORD_BYTES_MAX = 64 << 10  # Bytes of entries in one record, and appended again in one turn.
SWEEP_AT = 128 << 10  # Bytes of a segment's entries in memory before the first sweep.

if not cython.compiled:
    C_ENTRY = ENTRY
    C_RECORD_BYTES_MAX = RECORD_BYTES_MAX


class DeliveryCounts:
    """The redelivery counts of one journal."""

    def __init__(self, log: SegmentLog, is_unsettled: Callable[[int, int], bool]) -> None:
        """``is_unsettled`` returns True if a queue has not settled the message at a position."""
        self.log = log
        self.is_unsettled = is_unsettled
        self.number = 0  # The number of the last entry.
        self.pending_entries = bytearray(RECORD_BYTES_MAX)  # Entries that are not in the log yet.
        self.pending_positions = bytearray(RECORD_BYTES_MAX >> 2)  # Positions of their messages.
        self.pending_bytes = 0  # Bytes of ``pending_entries`` in use.

    def add(self, queue_id: int, seq: int, position: int, count: int, when_ms: int) -> None:
        """Add an entry to the next record."""
        if self.pending_bytes >= C_RECORD_BYTES_MAX:
            self.flush()
        offset = self.pending_bytes
        self.number += 1
        put32(self.pending_entries, offset, queue_id)
        put32(self.pending_entries, offset + 4, count << 24)
        put64(self.pending_entries, offset + 8, seq)
        put64(self.pending_entries, offset + 16, when_ms)
        put64(self.pending_entries, offset + 24, self.number)
        put64(self.pending_positions, offset >> 2, position)
        self.pending_bytes = offset + C_ENTRY

    def flush(self) -> None:
        """Append the pending entries."""
        n = self.pending_bytes
        if n:
            self.pending_bytes = 0
            self.append(cut(self.pending_entries, 0, n), cut(self.pending_positions, 0, n >> 2))

    def append(self, entries: bytes, positions: bytes) -> None:
        """Append a record of entries."""
        self.log.append(C_COUNTED, entries)
        self.add_to_segment(self.log.segment, entries, positions)

    def add_to_segment(self, segment: "Segment", entries: bytes, positions: bytes) -> None:
        """Add the entries of a record in a segment to the segment's entries in memory."""
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
        """Remove replaced entries and entries of settled messages from a segment's entries."""
        assert segment.counts is not None and segment.count_positions is not None  # noqa: PT018
        segment.counts, segment.count_positions = self.current_entries(
            segment.counts, segment.count_positions
        )

    def current_entries(
        self, entries: bytearray, positions: bytearray
    ) -> tuple[bytearray, bytearray]:
        """Return the current entries, and the positions of their messages."""
        is_unsettled = self.is_unsettled
        newest: dict[int, dict[int, int]] = {}  # Offsets in ``entries`` by queue id and seq.
        by_seq: dict[int, int] = {}
        last = -1
        for offset in range(0, len(entries), C_ENTRY):
            queue_id = get32(entries, offset)
            if not is_unsettled(queue_id, get64(positions, offset >> 2)):
                continue  # Most messages are settled.
            if queue_id != last:
                last = queue_id
                by_seq = newest.setdefault(queue_id, {})
            seq = get64(entries, offset + 8)
            before = by_seq.get(seq, -1)
            if before < 0 or get64(entries, before + 24) < get64(entries, offset + 24):
                by_seq[seq] = offset
        current, current_positions = bytearray(len(entries)), bytearray(len(positions))
        n = 0
        for by_seq in newest.values():
            for offset in by_seq.values():
                copy(current, n, entries, offset, offset + C_ENTRY)
                copy(current_positions, n >> 2, positions, offset >> 2, (offset >> 2) + 8)
                n += C_ENTRY
        del current[n:]
        del current_positions[n >> 2 :]
        return current, current_positions

    def carry(self, segment: "Segment") -> bool:
        """Append a segment's current entries again before its removal; False: more remain."""
        counts, count_positions = segment.counts, segment.count_positions
        if counts is None or count_positions is None:
            return True
        n = min(len(counts), RECORD_BYTES_MAX)
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
        self.number = 0  # The highest number of an entry.
        self.capacity = SWEEP_AT // ENTRY
        #: Number, count, when_ms and segment of the current entry, by queue id and seq.
        self.entries: dict[tuple[int, int], tuple[int, int, int, Segment]] = {}

    def add(self, payload: bytes, segment: "Segment") -> bool:
        """Add the entries of a record; return True if a sweep is due."""
        entries = self.entries
        for offset in range(0, len(payload), ENTRY):
            key = (get32(payload, offset), get64(payload, offset + 8))
            number = get64(payload, offset + 24)
            before = entries.get(key)
            if before is None or before[0] < number:
                entries[key] = number, payload[offset + 4], get64(payload, offset + 16), segment
            self.number = max(self.number, number)
        return len(entries) > self.capacity

    def retain(self, entries: dict[tuple[int, int], "tuple[int, int, int, Segment]"]) -> None:
        """Replace the entries by those that are still current."""
        self.entries = entries
        self.capacity = max(self.capacity, 2 * len(entries))

    def pass_to(self, counts: DeliveryCounts, positions: dict[tuple[int, int], int]) -> None:
        """Pass the entries to a journal, with the positions of their messages."""
        counts.number = self.number
        for (queue_id, seq), (number, count, when_ms, segment) in self.entries.items():
            entry = queue_id.to_bytes(4, "big") + (count << 24).to_bytes(4, "big")
            entry += seq.to_bytes(8, "big") + when_ms.to_bytes(8, "big") + number.to_bytes(8, "big")
            counts.add_to_segment(segment, entry, positions[queue_id, seq].to_bytes(8, "big"))

    def retry_times(self) -> dict[tuple[int, int], int]:
        """Return the times (ms) of delayed retries, by queue id and seq."""
        return {key: entry[2] for key, entry in self.entries.items() if entry[2]}
