# SPDX-License-Identifier: Apache-2.0
"""Which records of a stream came over the connection of one of its readers: for no-local.

A stream does not know who published its records. While a reader wants nothing of its own, what its
connection publishes is noted, as runs of offsets, until it has passed them.
"""

from bisect import bisect_right

RUNS_MAX = 65536  # Of one reader; one that has more before it is ended.


class OwnRecords:
    """The offsets that one reader is not to be shown."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []  # Exclusive.

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._starts)

    def note(self, offset: int) -> None:
        """The reader's connection published this one, which is behind all others."""
        if self._ends and self._ends[-1] == offset:
            self._ends[-1] = offset + 1
        else:
            self._starts.append(offset)
            self._ends.append(offset + 1)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset)
        return at > 0 and offset < self._ends[at - 1]

    def pass_by(self, offset: int) -> None:
        """The reader has looked at all before this offset: forget what is there."""
        done = bisect_right(self._ends, offset)
        del self._starts[:done]
        del self._ends[:done]
