# SPDX-License-Identifier: Apache-2.0
"""The log of a stream: records under offsets that are never reused, and how long they stay.

What a stream asks of its log, and a log in memory that does it. That on disk is
:mod:`headrace.store.stream.log`.
"""

import logging
from collections.abc import Callable

import cython

if not cython.compiled:
    from headrace.model.counters import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD
    from headrace.model.queue.destination import Consumer

log = logging.getLogger(__name__)

MARK_STEP = 1024  # Offsets between two that a log in memory knows the place of.


class StreamLog:
    """An append-only log with offsets that are never reused. This one lives in memory."""

    def __init__(self, max_length_bytes: int = -1, max_age_ms: int = -1) -> None:
        self.first_offset = 0  # Of the oldest message that is still there.
        self.next_offset = 0  # Of the next message to come.
        self.committed_offset = 0  # Messages below it are durable.
        self.max_length_bytes = max_length_bytes
        self.max_age_ms = max_age_ms
        self.name = ""  # Of its stream, for log lines.
        self.pinned_offset = -1  # The earliest offset that a reader still needs; -1: none.
        self.pin_octets_max = 0  # What it may hold for that beyond ``max_length_bytes``.
        self.pin_failed = False  # It could not hold it.
        self.octets = 0
        self.held = 0  # Octets of memory that it is counted with.
        self.local_max_age_ms = -1  # See :meth:`limit_local`.
        # Called when records are here that a read did not find yet.
        self.arrived: Callable[[], None] | None = None
        self.records: list[tuple[bytes, int, int, int]] = []
        self.total = 0  # Octets of all records that ever were,
        self.marks: dict[int, int] = {}  # and before each offset that is a multiple of MARK_STEP.

    def append(self, data: bytes, address_len: int, body_size: int, arrived_ms: int) -> int:
        """Append a message laid out as in Message.data; return its offset."""
        self.records.append((data, address_len, body_size, arrived_ms))
        offset = self.next_offset
        if offset % MARK_STEP == 0:
            self.marks[offset] = self.total
        self.total += len(data)
        self.octets += len(data)
        self.held += len(data) + C_MESSAGE_OVERHEAD
        self.next_offset = offset + 1
        self.committed_offset = offset + 1
        self.trim(arrived_ms)
        return offset

    def limit(self, max_length_bytes: int, max_age_ms: int) -> None:
        """Keep this much from now on; -1 is without limit."""
        self.max_length_bytes = max_length_bytes
        self.max_age_ms = max_age_ms

    def limit_local(self, max_length_bytes: int, max_age_ms: int) -> None:
        """Keep this much on this machine, and the rest in the object store; -1 is without limit.

        A log in memory has no object store.
        """

    def offload(self, now_ms: int) -> None:
        """Begin to move what is too old for this machine to the object store."""

    def limit_segments(self, octets: int) -> None:
        """Begin files of at most this size from now on; 0 is what is usual. Memory has none."""

    def trim(self, now_ms: int) -> None:
        """Drop the oldest messages beyond the retention limits, many at a time."""
        gone = 0
        octets = self.octets
        limit = self.max_length_bytes
        if limit >= 0 and octets > limit + (limit >> 3):
            while gone < len(self.records) - 1 and octets > limit:
                if self.holds_back(self.first_offset + gone + 1, octets):
                    break
                octets -= len(self.records[gone][0])
                gone += 1
        if self.max_age_ms >= 0:
            while gone < len(self.records) - 1 and self.records[gone][3] < now_ms - self.max_age_ms:
                if self.holds_back(self.first_offset + gone + 1, octets):
                    break
                octets -= len(self.records[gone][0])
                gone += 1
        if gone:
            del self.records[:gone]
            self.held -= self.octets - octets + gone * C_MESSAGE_OVERHEAD
            self.octets = octets
            self.first_offset += gone
            for mark in list(self.marks):
                if mark >= self.first_offset:
                    break
                del self.marks[mark]

    def holds_back(self, following: int, octets: int) -> bool:
        """Return True if records before ``following`` must stay for a reader.

        It must while the log holds no more than ``pin_octets_max`` beyond its limit; ``octets`` is
        what it holds.
        """
        if self.pinned_offset < 0 or following <= self.pinned_offset:
            return False
        limit = self.max_length_bytes
        if octets <= (max(0, limit)) + self.pin_octets_max:
            return True
        if not self.pin_failed:
            self.pin_failed = True
            log.warning(
                "stream %r: it may hold back %d bytes for groups; the oldest messages go unread",
                self.name,
                self.pin_octets_max,
            )
        return False

    def octets_from(self, offset: int) -> int:
        """Return roughly how many octets there are from an offset on; it costs little."""
        count = len(self.records)
        left = self.first_offset + count - max(offset, self.first_offset)
        return self.octets * left // count if left > 0 else 0

    def read(self, offset: int, octets_max: int) -> list[tuple[int, bytes, int, int, int]]:
        """Return committed messages from ``offset`` on: (offset, data, address_len, body_size,
        arrived_ms), at least one if there is one, about ``octets_max`` octets at most.
        """
        entries = []
        octets = 0
        at = offset - self.first_offset
        while at < len(self.records) and octets < octets_max:
            data, address_len, body_size, arrived_ms = self.records[at]
            entries.append((self.first_offset + at, data, address_len, body_size, arrived_ms))
            octets += len(data)
            at += 1
        return entries

    def pour(self, offset: int, end: int, consumer: Consumer) -> int:
        """Give a consumer committed messages from ``offset`` up to ``end``, as many as it takes at
        a time; return the offset to go on with, ``offset`` when there is nothing.
        """
        at = max(offset, self.first_offset) - self.first_offset
        while at < len(self.records) and self.first_offset + at < end and consumer.can():
            data, address_len, _, arrived_ms = self.records[at]
            offset = self.first_offset + at
            consumer.put_record(data, 0, address_len, len(data), offset, arrived_ms)
            at += 1
            offset += 1
        return offset

    def offset_at(self, timestamp_ms: int) -> int:
        """Return the offset of the first message that arrived at or after the time."""
        lo, hi = 0, len(self.records)
        while lo < hi:
            middle = (lo + hi) // 2
            if self.records[middle][3] < timestamp_ms:
                lo = middle + 1
            else:
                hi = middle
        return self.first_offset + lo

    def measure(self, first: int, last: int) -> int:
        """Return how many octets of the log the records of ``[first, last)`` take.

        Both are offsets from ``first_offset`` to ``next_offset``. The cost does not depend on how
        far apart they are.
        """
        if first >= last:
            return 0
        lo = -(-first // MARK_STEP) * MARK_STEP
        hi = last // MARK_STEP * MARK_STEP
        if lo >= hi or lo not in self.marks:
            return self.span(first, last)
        between = self.marks.get(hi, self.total) - self.marks[lo]
        return self.span(first, lo) + between + self.span(hi, last)

    def span(self, first: int, last: int) -> int:
        """As :meth:`measure`, record by record."""
        base = self.first_offset
        return sum([len(record[0]) for record in self.records[first - base : last - base]])

    def within(self, first: int, last: int, octets_max: int) -> int:
        """Return the offset before which records from ``first`` on take so many octets at most.

        It is ``last`` at most, and beyond ``first`` if that is before ``last``: one record is
        within any limit.
        """
        lo, hi = first + 1, last
        while lo < hi:
            middle = (lo + hi + 1) // 2
            if self.measure(first, middle) <= octets_max:
                lo = middle
            else:
                hi = middle - 1
        return min(lo, last)

    def close(self) -> None:
        """Let go of the files."""

    def delete(self) -> None:
        """The stream is no more."""
        self.records = []
        self.marks = {}
        self.held = 0
