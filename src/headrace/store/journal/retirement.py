# SPDX-License-Identifier: Apache-2.0
"""Removing segments from the log, oldest first, when nothing in them is needed.

All messages of a removed segment are settled, or copied by compaction. Its other records that still
count are appended again; its file is removed once these, and the settlements, are durable. Because
segments are removed in order, no SETTLED record is removed before its messages.
"""

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from headrace.store.segment.record import RETIRED
from headrace.store.segment.segment_files import Recycling

if TYPE_CHECKING:
    from headrace.store.journal.journal import Journal
    from headrace.store.segment.segment import Segment

CARRIED_OCTETS = 1 << 20  # Bytes of definitions appended again in one turn.


class Retirement:
    """Removes the segments of one journal."""

    def __init__(self, journal: "Journal") -> None:
        self.journal = journal
        # With the log position that must be durable first.
        self.leaving: deque[tuple[Segment, int]] = deque()

    def retire(self) -> None:
        """Remove the oldest segments while nothing in them is needed."""
        gone: list[Segment] = []
        self.take_out(gone)
        if gone:
            journal = self.journal
            journal.append(RETIRED, journal.order[0].number.to_bytes(8, "big"))
            self.leaving.extend([(segment, journal.appended) for segment in gone])

    def take_out(self, gone: "list[Segment]") -> None:
        """Take the oldest segments out of the order while nothing in them is needed."""
        journal = self.journal
        carried = False
        while len(journal.order) > 1:
            segment = journal.order[0]
            if not segment.sealed or (segment.live and not segment.moved):
                return
            if 2 * segment.fact_octets > segment.end:
                if carried or not journal.compactor.wasteful():
                    return
                carried = True  # As much as one turn may append; the next one continues.
                journal.emptied = True
            if len(journal.order) == 2 and journal.segment.written == 0:
                journal.emptied = True  # It is removed when the next one exists:
                return  # numbers continue from the last segment on disk.
            if not journal.counts.carry(segment) or not self.carry_definitions(segment):
                journal.emptied = True
                return
            self.carry(segment)  # In order still: a segment that begins meanwhile must say so.
            journal.order.popleft()
            segment.retired = True
            if segment.live == 0:
                journal.segments.pop(segment.number, None)
            gone.append(segment)

    def carry_definitions(self, segment: "Segment") -> bool:
        """Append a segment's current definitions again; return False if more remain."""
        journal = self.journal
        left = CARRIED_OCTETS
        while segment.defined and left > 0:
            for key, value in list(islice(segment.defined.items(), 256)):
                journal.carry(key, value)
                left -= len(key) + len(value)
        return not segment.defined

    def carry(self, segment: "Segment") -> None:
        """Append a leaving segment's other current records again."""
        journal = self.journal
        if segment.reserved is not None:
            for queue_id, seq in segment.reserved.items():
                if journal.reserved.get(queue_id, 0) == seq:
                    del journal.reserved[queue_id]
                    journal.delivered(queue_id, seq)
        if segment.marks is not None:
            for runs in segment.marks:
                journal.mark(runs)
        for number in segment.shared or ():
            if any(stream.doubts(number) for stream in journal.streams):
                journal.vouch(number)
        for prepared, where in list(journal.prepared.values()):
            if where is segment:
                journal.keep(prepared)
        for key in sorted(segment.facts or ()):
            journal.fact(key, journal.facts[key])

    def recycle(self) -> None:
        """Recycle the files of segments whose removal is durable."""
        journal = self.journal
        while self.leaving and self.leaving[0][1] <= journal.synced:
            segment, _ = self.leaving.popleft()
            journal.files.forget(segment)
            journal.writer.submit(Recycling(journal.files, segment))
