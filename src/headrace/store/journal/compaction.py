# SPDX-License-Identifier: Apache-2.0
"""Copying what is left of old segments to the end of the log.

Segments leave in order, so one message that nobody takes would hold all that came after it. When
the files hold more than twice what is still wanted, and four segments beyond that, what is left of
the oldest one is copied to the end, some of it after each group, and the file can go. A copy keeps
the message's seq and with it its place in every queue; it names the queues that still owed it.
"""

import logging
from typing import TYPE_CHECKING

from headrace.store.segment.record import MESSAGE_HEAD, intact
from headrace.store.segment.segment import file_name
from headrace.wire.memory import put32, put64

if TYPE_CHECKING:
    from headrace.store.journal.journal import Journal
    from headrace.store.segment.segment import Segment

log = logging.getLogger(__name__)

STEP_OCTETS = 256 << 10
STEP_LOOKS = 4096  # Index entries looked at in one step.
SEGMENTS_MIN = 4
FILES_MAX = 64  # Beyond twice as many files as full ones would need.
PAUSE = 32  # Groups between two looks at the whole.
LARGE = 32


class Compactor:
    """Compacts one journal, a little at a time."""

    def __init__(self, journal: "Journal") -> None:
        self.journal = journal
        self.segment: Segment | None = None  # The one being emptied.
        self.next = 0  # The index to go on with.
        self.pause = 0
        self.copied = 0  # Octets, ever.

    def wasteful(self) -> bool:
        """Tell whether the files hold far more than what is wanted."""
        journal = self.journal
        used = wanted = 0
        for segment in journal.order:
            if segment.sealed:
                used += segment.end
                wanted += segment.fact_octets
                if segment.count:
                    wanted += segment.end * segment.live // segment.count
        files = used // journal.segment_size
        if len(journal.order) > 2 * files + FILES_MAX:
            return True
        return bool(used > 2 * wanted + SEGMENTS_MIN * journal.segment_size)

    def step(self) -> None:
        """Copy a little, if there is reason to."""
        if self.segment is None or self.segment.moved:
            self.segment = None
            if self.pause:
                self.pause -= 1
                return
            oldest = self.journal.order[0]
            if (
                not oldest.sealed
                or oldest.moved
                or oldest.written < oldest.end
                or not self.wasteful()
            ):
                self.pause = PAUSE
                return
            self.segment = oldest
            self.next = 0
        self.copy_some(self.segment)

    def copy_some(self, segment: "Segment") -> None:
        """Copy the next of a segment's messages, as far as one step goes."""
        journal = self.journal
        journal.flush_settled()  # What was settled before a copy stands before it in the log.
        forward = segment.forward
        if forward is None:
            forward = segment.forward = bytearray(8 * segment.count)
        budget = STEP_OCTETS
        stop = min(segment.count, self.next + STEP_LOOKS)
        while self.next < stop and budget > 0:
            i = self.next
            self.next += 1
            if segment.owed(i):
                budget -= self.copy_one(segment, forward, i)
        if self.next >= segment.count:
            segment.moved = True
            journal.emptied = True

    def copy_one(self, segment: "Segment", forward: bytearray, i: int) -> int:
        """Copy one message; return how many octets that were."""
        journal = self.journal
        offset = segment.offset(i)
        try:
            record, own = self.read(segment, offset)
        except OSError as error:
            log.error("journal %s: %s; its message is lost", journal.name, error)
            put32(segment.heads, 8 * i + 4, 0)
            segment.live -= 1
            return 4096
        count = int.from_bytes(record[44:48], "big")
        ids = record[MESSAGE_HEAD : MESSAGE_HEAD + 4 * count]
        ids = segment.owing(i, ids)
        position = journal.append_copy(record, own, ids)
        put64(forward, 8 * i, position)
        put32(segment.heads, 8 * i + 4, 0)  # ``live`` counts it until its copy is settled.
        self.copied += len(record)
        return len(record)

    def read(self, segment: "Segment", offset: int) -> tuple[bytes, int]:
        """Return a record, checked, and where its body starts if that is kept apart, else 0."""
        journal = self.journal
        slab, at = journal.page_in.slab(segment, offset, 0)
        length = int.from_bytes(slab[at : at + 4], "big")
        size = (length + 7) & ~7
        record = slab[at : at + size]
        if len(record) < size:
            record = journal.disk.read(journal.files.handle(segment), size, offset)
            if not intact(record, 0, len(record), segment.seed):
                name = file_name(segment.number)
                raise OSError(f"damaged record at {offset} of {name}")
        if not record[54] & LARGE:
            return record, 0
        count, n = int.from_bytes(record[44:48], "big"), int.from_bytes(record[48:52], "big")
        return record, MESSAGE_HEAD + 4 * count + n
