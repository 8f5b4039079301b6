# SPDX-License-Identifier: Apache-2.0
"""Removing segments from the log, oldest first, when none of their records is needed.

All messages of a removed segment are settled, or copied by compaction. Its other current records
are appended again first. The file is removed once these records and the settlements are durable.
Because segments are removed in order, a message is removed before its SETTLED record.
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
        is_wasteful: Callable[[], bool],
        carry: Callable[["Segment"], bool],
    ) -> None:
        """Set the callbacks of the journal.

        Args:
            journal: the log whose segments are removed.
            is_wasteful: returns True if the files have far more bytes than needed.
            carry: appends current records of a segment again, up to the limit of one turn; returns
                False if more remain.
        """
        self.journal = journal
        self.is_wasteful = is_wasteful
        self.carry = carry
        # Removed segments, each with the log position that must be durable first.
        self.pending_removals: deque[tuple[Segment, int]] = deque()

    def retire(self) -> bool:
        """Remove the oldest segments that are not needed.

        Return True if the next turn may remove more.
        """
        retired: list[Segment] = []
        more = self.collect(retired)
        if retired:
            journal = self.journal
            journal.append(RETIRED, journal.order[0].number.to_bytes(8, "big"))
            self.pending_removals.extend([(segment, journal.appended) for segment in retired])
        return more

    def collect(self, retired: "list[Segment]") -> bool:
        """Move the oldest segments that are not needed from the log's order to ``retired``."""
        journal = self.journal
        has_carried = False
        while len(journal.order) > 1:
            segment = journal.order[0]
            if not segment.is_sealed or (segment.live and not segment.is_moved):
                return has_carried
            if 2 * segment.fact_bytes > segment.end:
                if has_carried or not self.is_wasteful():
                    return has_carried
                has_carried = True  # One turn appends the records of one such segment.
            if len(journal.order) == 2 and journal.segment.written == 0:
                # Wait until the last segment has a file: numbers continue from the last file.
                return True
            # The segment stays in ``order``: the header of a segment that begins here names it.
            if not self.carry(segment):
                return True
            journal.order.popleft()
            segment.is_retired = True
            if segment.live == 0:
                journal.segments.pop(segment.number, None)
            retired.append(segment)
        return has_carried

    def recycle(self) -> None:
        """Recycle the files of segments whose removal is durable."""
        journal = self.journal
        while self.pending_removals and self.pending_removals[0][1] <= journal.synced:
            segment, _ = self.pending_removals.popleft()
            journal.files.close_removed(segment)
            journal.writer.submit(Recycling(journal.files, segment))
