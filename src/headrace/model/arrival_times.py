# SPDX-License-Identifier: Apache-2.0
"""Approximate arrival times of messages, from a few thousand marks of a broker.

Messages get increasing seqs. A mark is a time and the next seq at that time. Two marks are the
bounds of the interval in which a message arrived. The journal has the exact times of its messages.
Marks serve all other messages, without memory for each message.

When there are too many marks, those that are closer to others than a 200th of their age are
removed. A time is exact to a 100th of the message's age, or half a second.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

MARKS_MAX = 4096  # Reached after half an hour; then about 2000 marks stay, 3000 after years.
AGE_PARTS = 200  # Marks closer to others than their age divided by this are removed.


class ArrivalTimes:
    """Marks of times and seqs."""

    def __init__(self) -> None:
        self._times_ms = array("q")
        self._seqs = array("Q")  # The next seq at the time of each mark.

    def __len__(self) -> int:
        return len(self._seqs)

    def add_mark(self, now_ms: int, next_seq: int) -> None:
        """Add a mark: all messages before ``next_seq`` have arrived; called regularly."""
        if self._seqs and self._seqs[-1] == next_seq:
            return  # No message arrived since the last mark.
        self._times_ms.append(now_ms)
        self._seqs.append(next_seq)
        if len(self._seqs) > MARKS_MAX:
            self._thin(now_ms)

    def _thin(self, now_ms: int) -> None:
        """Remove marks that are close to others."""
        times_ms, seqs = array("q"), array("Q")
        kept_ms = 0
        for mark_ms, seq in zip(self._times_ms, self._seqs, strict=True):
            if (mark_ms - kept_ms) * AGE_PARTS >= now_ms - mark_ms:
                times_ms.append(mark_ms)
                seqs.append(seq)
                kept_ms = mark_ms
        self._times_ms, self._seqs = times_ms, seqs

    def covers(self, seq: int) -> bool:
        """Return True if a message with this seq arrived after the first mark was set."""
        return bool(self._seqs) and seq >= self._seqs[0]

    def latest(self, seq: int, now_ms: int) -> int:
        """Return the latest time at which a message with this seq can have arrived."""
        index = bisect_right(self._seqs, seq)
        return self._times_ms[index] if index < len(self._seqs) else now_ms
