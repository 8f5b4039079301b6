# SPDX-License-Identifier: Apache-2.0
"""Removing segments from the log, oldest first, when nothing in them is needed.

All messages of a removed segment are settled, or copied by compaction. Its other records that still
count are appended again; its file is removed once these, and the settlements, are durable. Because
segments are removed in order, no SETTLED record is removed before its messages.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.store.segment.record import RETIRED
from headrace.store.segment.segment_files import Recycling

if TYPE_CHECKING:
    from headrace.store.journal.log import SegmentLog
    from headrace.store.segment.segment import Segment


class Retirement:
    """Removes the segments of one journal."""

    def __init__(
        self,
        journal: "SegmentLog",
        wasteful: Callable[[], bool],
        carry: Callable[["Segment"], bool],
    ) -> None:
        """``wasteful`` returns True if the files hold far more than is needed.

        ``carry`` appends a leaving segment's current records again, as many as one turn may; it
        returns False if more remain.
        """
        self.journal = journal
        self.wasteful = wasteful
        self.carry = carry
        # Removed segments, each with the log position that must be durable first.
        self.leaving: deque[tuple[Segment, int]] = deque()

    def retire(self) -> bool:
        """Remove the oldest segments while nothing in them is needed.

        Return True if the next turn may remove more.
        """
        retired: list[Segment] = []
        more = self.collect(retired)
        if retired:
            journal = self.journal
            journal.append(RETIRED, journal.order[0].number.to_bytes(8, "big"))
            self.leaving.extend([(segment, journal.appended) for segment in retired])
        return more

    def collect(self, retired: "list[Segment]") -> bool:
        """Take the oldest segments out of the order while nothing in them is needed."""
        journal = self.journal
        carried = False
        while len(journal.order) > 1:
            segment = journal.order[0]
            if not segment.sealed or (segment.live and not segment.moved):
                return carried
            if 2 * segment.fact_bytes > segment.end:
                if carried or not self.wasteful():
                    return carried
                carried = True  # As much as one turn may append; the next one continues.
            if len(journal.order) == 2 and journal.segment.written == 0:
                # Removed when the next one exists: numbers continue from the last one on disk.
                return True
            # It is in the order still: the header of a segment that begins meanwhile names it.
            if not self.carry(segment):
                return True
            journal.order.popleft()
            segment.retired = True
            if segment.live == 0:
                journal.segments.pop(segment.number, None)
            retired.append(segment)
        return carried

    def recycle(self) -> None:
        """Recycle the files of segments whose removal is durable."""
        journal = self.journal
        while self.leaving and self.leaving[0][1] <= journal.synced:
            segment, _ = self.leaving.popleft()
            journal.files.forget(segment)
            journal.writer.submit(Recycling(journal.files, segment))
