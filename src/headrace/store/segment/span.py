# SPDX-License-Identifier: Apache-2.0
"""The messages that were appended to a journal in one turn.

Their publishers may be answered before the journal is synced once consumers have settled all of
them. A crash then loses message and settlement together, or the settlement alone: the message comes
back as redelivered, as it does after an ack that was not written.
"""

import cython

if not cython.compiled:
    from headrace.model.ports import Span, Store
    from headrace.store.segment.segment import Segment


class SegmentSpan(Span):
    """Messages of one segment, by their indexes in it."""

    def __init__(self, store: Store, segment: Segment, first: int, end: int, appended: int) -> None:
        """``appended`` is the log position before the first."""
        self.store = store
        self.segment = segment
        self.first = first  # Not known to be settled.
        self.end = end
        self.appended = appended

    def is_consumed(self) -> bool:
        segment = self.segment
        # Compaction clears what it copies, which is not settled.
        if self.store.bound_position > self.appended or segment.forward is not None:
            return False
        while self.first < self.end:
            if segment.unsettled_queues(self.first):
                return False
            self.first += 1
        return True
