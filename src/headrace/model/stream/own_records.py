# SPDX-License-Identifier: Apache-2.0
"""Records that a reader's own connection published, for no-local.

A stream does not know the publishers of its records. While a reader with no-local is subscribed,
the offsets of its connection's publishes are noted as runs, until the reader has passed them.
"""

from bisect import bisect_right

RUNS_MAX = 65536  # Of one reader; beyond it the reader is closed.


class OwnRecords:
    """The offsets that one reader has to skip."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # Exclusive.

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._starts)

    def note(self, offset: int) -> None:
        """Note the offset of a record from the reader's connection; offsets increase."""
        if self._ends and self._ends[-1] == offset:
            self._ends[-1] = offset + 1
        else:
            self._starts.append(offset)
            self._ends.append(offset + 1)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset)
        return at > 0 and offset < self._ends[at - 1]

    def pass_by(self, offset: int) -> None:
        """Drop the runs before an offset that the reader has passed."""
        done = bisect_right(self._ends, offset)
        del self._starts[:done]
        del self._ends[:done]
