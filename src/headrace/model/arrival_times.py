# SPDX-License-Identifier: Apache-2.0
"""When messages arrived, roughly: a few thousand marks for all of a broker's messages.

Messages get their places in the order in which they arrive. So a mark, now and then, of a time and
of the place that the next message will have tells of every message between which times it came. The
journal knows better of what it has; this is for all else, and costs a message nothing.

The older marks are, the further they are apart: when there are too many, those go that are closer
to others than a two-hundredth of their age. So a time is known to within a hundredth of how long
ago it is, or half a second.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

MARKS_MAX = 4096  # Reached after half an hour; then about 2000 stay, after years 3000.
PART_OF_AGE = 200


class Arrivals:
    """Marks of times and places."""

    def __init__(self) -> None:
        self._times_ms = array("q")
        self._seqs = array("Q")  # The place of the first message behind each mark.

    def __len__(self) -> int:
        return len(self._seqs)

    def note(self, now_ms: int, next_seq: int) -> None:
        """Note that all places before ``next_seq`` are taken by now; called every now and then."""
        if self._seqs and self._seqs[-1] == next_seq:
            return  # Nothing came since: what comes now came later than that.
        self._times_ms.append(now_ms)
        self._seqs.append(next_seq)
        if len(self._seqs) > MARKS_MAX:
            self._thin(now_ms)

    def _thin(self, now_ms: int) -> None:
        """Let go of marks that tell little more than those beside them."""
        times_ms, seqs = array("q"), array("Q")
        kept_ms = 0
        for when_ms, seq in zip(self._times_ms, self._seqs, strict=True):
            if (when_ms - kept_ms) * PART_OF_AGE >= now_ms - when_ms:
                times_ms.append(when_ms)
                seqs.append(seq)
                kept_ms = when_ms
        self._times_ms, self._seqs = times_ms, seqs

    def latest(self, seq: int, now_ms: int) -> int:
        """Return the latest time at which the message of a place can have arrived."""
        at = bisect_right(self._seqs, seq)
        return self._times_ms[at] if at < len(self._seqs) else now_ms
