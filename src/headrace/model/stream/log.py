# SPDX-License-Identifier: Apache-2.0
"""The log of a stream: records under offsets that are never reused, and their retention.

`StreamLog` is the port between a stream and its log, and itself a log in memory. The log on disk is
:mod:`headrace.store.stream.log`.
"""

import logging
from collections.abc import Callable

import cython

if not cython.compiled:
    from headrace.model.counters import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD
    from headrace.model.queue.destination import Consumer

log = logging.getLogger(__name__)

MARK_STEP = 1024  # Offsets between two marks of a log in memory.

# Offset, data laid out as in Message.data, address_len, body_size, arrived_ms.
StreamRecord = tuple[int, bytes, int, int, int]


class StreamLog:
    """An append-only log with offsets that are never reused; this class is in memory."""

    def __init__(self, max_length_bytes: int = -1, max_age_ms: int = -1) -> None:
        self.first_offset = 0  # The offset of the oldest message.
        self.next_offset = 0  # The offset of the next arrival.
        self.committed_offset = 0  # Messages below it are durable.
        self.max_length_bytes = max_length_bytes
        self.max_age_ms = max_age_ms
        self.name = ""  # The stream's name, for log lines.
        self.pinned_offset = -1  # The lowest offset that a group still needs; -1 is none.
        self.pin_bytes_max = 0  # The most bytes beyond ``max_length_bytes`` for such groups.
        # True once records that a group needs were removed, until the group catches up.
        self.pin_failed = False
        self.size = 0
        self.memory = 0  # Bytes of memory counted for the log.
        self.local_max_age_ms = -1  # See :meth:`limit_local`.
        # Called when records that a read missed are available.
        self.on_arrival: Callable[[], None] | None = None
        self.records: list[tuple[bytes, int, int, int]] = []
        self.total = 0  # Bytes of all records ever appended.
        # Bytes appended before each offset that is a multiple of MARK_STEP.
        self.marks: dict[int, int] = {}

    def append(self, data: bytes, address_len: int, body_size: int, arrived_ms: int) -> int:
        """Append a message laid out as in Message.data; return its offset."""
        self.records.append((data, address_len, body_size, arrived_ms))
        offset = self.next_offset
        if offset % MARK_STEP == 0:
            self.marks[offset] = self.total
        self.total += len(data)
        self.size += len(data)
        self.memory += len(data) + C_MESSAGE_OVERHEAD
        self.next_offset = offset + 1
        self.committed_offset = offset + 1
        self.trim(arrived_ms)
        return offset

    def limit(self, max_length_bytes: int, max_age_ms: int) -> None:
        """Set the retention limits; -1 means no limit."""
        self.max_length_bytes = max_length_bytes
        self.max_age_ms = max_age_ms

    def limit_local(self, max_length_bytes: int, max_age_ms: int) -> None:
        """Set the limits of the records on this machine; -1 means no limit.

        Older records move to the object store, which a log in memory does not have.
        """

    def offload(self, now_ms: int) -> None:
        """Begin to move records beyond the local limits to the object store."""

    def limit_segments(self, size: int) -> None:
        """Set the maximum size of new segments; 0 is the default. A log in memory has none."""

    def trim(self, now_ms: int) -> None:
        """Remove the oldest messages beyond the retention limits, many at a time."""
        count = 0
        size = self.size
        limit = self.max_length_bytes
        if limit >= 0 and size > limit + (limit >> 3):
            while count < len(self.records) - 1 and size > limit:
                if self.must_keep(self.first_offset + count + 1, size):
                    break
                size -= len(self.records[count][0])
                count += 1
        if self.max_age_ms >= 0:
            while (
                count < len(self.records) - 1 and self.records[count][3] < now_ms - self.max_age_ms
            ):
                if self.must_keep(self.first_offset + count + 1, size):
                    break
                size -= len(self.records[count][0])
                count += 1
        if count:
            del self.records[:count]
            self.memory -= self.size - size + count * C_MESSAGE_OVERHEAD
            self.size = size
            self.first_offset += count
            for mark in list(self.marks):
                if mark >= self.first_offset:
                    break
                del self.marks[mark]

    def must_keep(self, following: int, size: int) -> bool:
        """Return True if records before ``following`` must stay for a group that pins the stream.

        They must stay while the log, with ``size`` bytes, is at most ``pin_bytes_max`` beyond its
        limit.
        """
        if self.pinned_offset < 0 or following <= self.pinned_offset:
            return False
        limit = self.max_length_bytes
        if size <= (max(0, limit)) + self.pin_bytes_max:
            return True
        if not self.pin_failed:
            self.pin_failed = True
            log.warning(
                "stream %r: it may hold back %d bytes for groups; the oldest messages go unread",
                self.name,
                self.pin_bytes_max,
            )
        return False

    def bytes_from(self, offset: int) -> int:
        """Return the approximate bytes of the records from an offset on, at constant cost."""
        count = len(self.records)
        retained = self.first_offset + count - max(offset, self.first_offset)
        return self.size * retained // count if retained > 0 else 0

    def read(self, offset: int, bytes_max: int) -> list[StreamRecord]:
        """Return committed messages from ``offset`` on, about ``bytes_max`` bytes at most.

        Each is (offset, data, address_len, body_size, arrived_ms). At least one message is
        returned if one exists.
        """
        entries = []
        size = 0
        index = offset - self.first_offset
        while index < len(self.records) and size < bytes_max:
            data, address_len, body_size, arrived_ms = self.records[index]
            entries.append((self.first_offset + index, data, address_len, body_size, arrived_ms))
            size += len(data)
            index += 1
        return entries

    def deliver_records(self, offset: int, end: int, consumer: Consumer) -> int:
        """Deliver committed messages from ``offset`` up to ``end`` while a consumer has room.

        Return the offset to continue with: ``offset`` if none was delivered.
        """
        index = max(offset, self.first_offset) - self.first_offset
        while index < len(self.records) and self.first_offset + index < end and consumer.has_room():
            data, address_len, _, arrived_ms = self.records[index]
            offset = self.first_offset + index
            consumer.put_record(data, 0, address_len, len(data), offset, arrived_ms)
            index += 1
            offset += 1
        return offset

    def offset_at(self, timestamp_ms: int) -> int:
        """Return the offset of the first message that arrived at or after the time."""
        low, high = 0, len(self.records)
        while low < high:
            middle = (low + high) // 2
            if self.records[middle][3] < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return self.first_offset + low

    def measure(self, first: int, last: int) -> int:
        """Return the bytes of the records of ``[first, last)``.

        Both are offsets from ``first_offset`` to ``next_offset``. The cost does not depend on how
        far apart they are.
        """
        if first >= last:
            return 0
        first_mark = -(-first // MARK_STEP) * MARK_STEP
        last_mark = last // MARK_STEP * MARK_STEP
        if first_mark >= last_mark or first_mark not in self.marks:
            return self.sum_sizes(first, last)
        between = self.marks.get(last_mark, self.total) - self.marks[first_mark]
        return self.sum_sizes(first, first_mark) + between + self.sum_sizes(last_mark, last)

    def sum_sizes(self, first: int, last: int) -> int:
        """Return the bytes of the records of ``[first, last)``, adding up each record."""
        base = self.first_offset
        return sum([len(record[0]) for record in self.records[first - base : last - base]])

    def find_end(self, first: int, last: int, bytes_max: int) -> int:
        """Return the exclusive end of the records from ``first`` on within ``bytes_max`` bytes.

        The end is at most ``last``. It is beyond ``first`` if ``first`` is before ``last``, since
        one record is within any limit.
        """
        low, high = first + 1, last
        while low < high:
            middle = (low + high + 1) // 2
            if self.measure(first, middle) <= bytes_max:
                low = middle
            else:
                high = middle - 1
        return min(low, last)

    def close(self) -> None:
        """Close the files; a log in memory has none."""

    def delete(self) -> None:
        """Remove all records, because the stream is deleted."""
        self.records = []
        self.marks = {}
        self.memory = 0
