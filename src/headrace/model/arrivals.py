# SPDX-License-Identifier: Apache-2.0
"""When messages arrived, roughly: a few thousand marks for all of a broker's messages.

Messages get their places in the order in which they arrive. So a mark, now and then, of a time and
of the place that the next message will have tells of every message between which times it came. The
journal knows better of what it has; this is for all else, and costs a message nothing.

The older marks are, the further they are apart: when there are too many, every second one of the
older half goes. What came an hour ago is known to within seconds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

MARKS_MAX = 4096


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
            half = MARKS_MAX // 2
            del self._times_ms[1:half:2]
            del self._seqs[1:half:2]

    def latest(self, seq: int, now_ms: int) -> int:
        """Return the latest time at which the message of a place can have arrived."""
        at = bisect_right(self._seqs, seq)
        return self._times_ms[at] if at < len(self._seqs) else now_ms
