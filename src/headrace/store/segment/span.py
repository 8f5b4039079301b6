# SPDX-License-Identifier: Apache-2.0
"""The messages that were appended to a journal in one turn.

Once consumers have settled all of them, their publishers may be answered before the journal is
synced. A crash then loses message and settlement together, or only the settlement: the message is
redelivered, as after any settlement that was not written.
"""

import cython

if not cython.compiled:
    from headrace.model.ports import Span, Store
    from headrace.store.segment.segment import Segment


class SegmentSpan(Span):
    """Messages of one segment, by their indexes in it."""

    def __init__(self, store: Store, segment: Segment, first: int, end: int, appended: int) -> None:
        """``appended`` is the log position before the first message."""
        self.store = store
        self.segment = segment
        self.first = first  # Index of the first message that may be unsettled.
        self.end = end
        self.appended = appended

    def is_consumed(self) -> bool:
        segment = self.segment
        # Compaction clears the counts of messages that it copies, though they are not settled.
        if self.store.bound_position > self.appended or segment.forward is not None:
            return False
        while self.first < self.end:
            if segment.unsettled_queues(self.first):
                return False
            self.first += 1
        return True
