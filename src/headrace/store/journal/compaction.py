# SPDX-License-Identifier: Apache-2.0
"""Compaction: copying the unsettled messages of old segments to the end of the log.

Segments are removed oldest first, so a single unsettled message would retain all later segments.
When the files have more than twice the needed bytes plus four segments, the messages of the oldest
segment are copied to the end, some of them after each group, and its file is removed. A copy has
the seq of the message, and so its position in every queue. It names the queues that have not
settled the message.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.store.segment.record import MESSAGE_HEAD, check_record
from headrace.store.segment.segment import file_name
from headrace.wire.memory import put32, put64

if TYPE_CHECKING:
    from headrace.store.journal.log import SegmentLog
    from headrace.store.journal.page_in import PageIn
    from headrace.store.segment.segment import Segment

log = logging.getLogger(__name__)

STEP_SIZE = 256 << 10  # Bytes copied in one step.
STEP_ENTRIES = 4096  # Index entries scanned in one step.
SEGMENTS_MIN = 4  # Segments that the log may exceed twice the needed bytes by.
FILES_MAX = 64  # Files that the log may exceed twice the needed number by.
PAUSE = 32  # Groups between two checks of the whole log.
LARGE = 32


class Compactor:
    """Compacts one journal in small steps."""

    def __init__(
        self, journal: "SegmentLog", page_in: "PageIn", flush_settled: Callable[[], None]
    ) -> None:
        self.journal = journal
        self.page_in = page_in
        self.flush_settled = flush_settled  # Appends the journal's pending settlements.
        self.segment: Segment | None = None  # The segment that is being copied.
        self.next_index = 0  # The index of the next message in ``segment``.
        self.pause = 0  # Groups left until the next check of the log.
        self.copied_bytes = 0

    def is_wasteful(self) -> bool:
        """Return True if the files have far more bytes than needed."""
        journal = self.journal
        used = needed = 0
        for segment in journal.order:
            if segment.is_sealed:
                used += segment.end
                needed += segment.fact_bytes
                if segment.count:
                    needed += segment.end * segment.live // segment.count
        files = used // journal.segment_size
        if len(journal.order) > 2 * files + FILES_MAX:
            return True
        return bool(used > 2 * needed + SEGMENTS_MIN * journal.segment_size)

    def step(self) -> bool:
        """Copy some messages if the log is wasteful; return True if a segment is fully copied."""
        if self.segment is None or self.segment.is_moved:
            self.segment = None
            if self.pause:
                self.pause -= 1
                return False
            oldest = self.journal.order[0]
            if (
                not oldest.is_sealed
                or oldest.is_moved
                or oldest.written < oldest.end
                or not self.is_wasteful()
            ):
                self.pause = PAUSE
                return False
            self.segment = oldest
            self.next_index = 0
        self.copy_batch(self.segment)
        return self.segment.is_moved

    def copy_batch(self, segment: "Segment") -> None:
        """Copy the next messages of a segment."""
        self.flush_settled()  # Settlements before the copy must precede it in the log.
        forward = segment.forward
        if forward is None:
            forward = segment.forward = bytearray(8 * segment.count)
        budget = STEP_SIZE
        stop = min(segment.count, self.next_index + STEP_ENTRIES)
        while self.next_index < stop and budget > 0:
            i = self.next_index
            self.next_index += 1
            if segment.unsettled_queues(i):
                budget -= self.copy_message(segment, forward, i)
        if self.next_index >= segment.count:
            segment.is_moved = True

    def copy_message(self, segment: "Segment", forward: bytearray, i: int) -> int:
        """Copy one message; return its size in bytes."""
        journal = self.journal
        offset = segment.offset(i)
        try:
            record, body_offset = self.read(segment, offset)
        except OSError as error:
            log.error("journal %s: %s; its message is lost", journal.name, error)
            put32(segment.heads, 8 * i + 4, 0)
            segment.live -= 1
            return 4096
        count = int.from_bytes(record[44:48], "big")
        ids = record[MESSAGE_HEAD : MESSAGE_HEAD + 4 * count]
        ids = segment.unsettled_ids(i, ids)
        position = journal.append_copy(record, body_offset, ids)
        put64(forward, 8 * i, position)
        put32(segment.heads, 8 * i + 4, 0)  # ``live`` counts it until its copy is settled.
        self.copied_bytes += len(record)
        return len(record)

    def read(self, segment: "Segment", offset: int) -> tuple[bytes, int]:
        """Return a verified record, and the offset of its body if the body is large, else 0."""
        journal = self.journal
        data, start = self.page_in.read_record(segment, offset, 0)
        length = int.from_bytes(data[start : start + 4], "big")
        size = (length + 7) & ~7
        record = data[start : start + size]
        if len(record) < size:
            record = journal.disk.read(journal.files.handle(segment), size, offset)
            if not check_record(record, 0, len(record), segment.seed):
                name = file_name(segment.number)
                raise OSError(f"damaged record at {offset} of {name}")
        if not record[54] & LARGE:
            return record, 0
        count, n = int.from_bytes(record[44:48], "big"), int.from_bytes(record[48:52], "big")
        return record, MESSAGE_HEAD + 4 * count + n
