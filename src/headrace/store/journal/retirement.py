# SPDX-License-Identifier: Apache-2.0
"""Segments leave the log: the oldest first, when nothing in them is wanted any more.

All messages of a segment that leaves are settled, or were copied by the compaction. What else it
says and what still holds is said again at the end of the log; its file goes when that, and what
settled the messages, is durable. Since segments leave in order, no SETTLED record can go before the
messages it speaks of.
"""

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from headrace.store.segment.record import RETIRED
from headrace.store.segment.segment_files import Recycling

if TYPE_CHECKING:
    from headrace.store.journal.journal import Journal
    from headrace.store.segment.segment import Segment

CARRIED_OCTETS = 1 << 20  # Of definitions that one turn says again.


class Retirement:
    """Lets the segments of one journal go."""

    def __init__(self, journal: "Journal") -> None:
        self.journal = journal
        self.leaving: deque[tuple[Segment, int]] = deque()  # With what must be durable first.

    def look(self) -> None:
        """Have the oldest segments leave while nothing in them is wanted any more."""
        gone: list[Segment] = []
        self.take_out(gone)
        if gone:
            journal = self.journal
            journal.append(RETIRED, journal.order[0].number.to_bytes(8, "big"))
            self.leaving.extend([(segment, journal.appended) for segment in gone])

    def take_out(self, gone: "list[Segment]") -> None:
        """Take the oldest segments out of the order, as long as nothing in them is wanted."""
        journal = self.journal
        carried = False
        while len(journal.order) > 1:
            segment = journal.order[0]
            if not segment.sealed or (segment.live and not segment.moved):
                return
            if 2 * segment.fact_octets > segment.end:
                if carried or not journal.compactor.wasteful():
                    return
                carried = True  # As much as one turn may take; another one will look again.
                journal.emptied = True
            if len(journal.order) == 2 and journal.segment.written == 0:
                journal.emptied = True  # It goes when the next one is there:
                return  # numbers go on from the last segment on the disk.
            if not journal.counts.carry(segment) or not self.carry_definitions(segment):
                journal.emptied = True
                return
            journal.order.popleft()
            segment.retired = True
            self.carry(segment)
            if segment.live == 0:
                journal.segments.pop(segment.number, None)
            gone.append(segment)

    def carry_definitions(self, segment: "Segment") -> bool:
        """Say again the definitions that stand in a segment; False when it takes another turn."""
        journal = self.journal
        left = CARRIED_OCTETS
        while segment.defined and left > 0:
            for key, value in list(islice(segment.defined.items(), 256)):
                journal.carry(key, value)
                left -= len(key) + len(value)
        return not segment.defined

    def carry(self, segment: "Segment") -> None:
        """Say again what a segment that leaves said and what still holds."""
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

    def let_go(self) -> None:
        """Give up the files of segments whose end is durable."""
        journal = self.journal
        while self.leaving and self.leaving[0][1] <= journal.synced:
            segment, _ = self.leaving.popleft()
            journal.files.forget(segment)
            journal.writer.submit(Recycling(journal.files, segment))
