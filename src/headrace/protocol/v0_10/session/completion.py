# SPDX-License-Identifier: Apache-2.0
"""The completed command ids of one direction of a session (AMQP 0-10, session class).

Ids are serial numbers of 32 bits. `CompletedIds` keeps them unwrapped, as the numbers of 64 bits
that are nearest to the first incomplete id.
"""

SERIAL_MASK = 0xFFFFFFFF  # A name: as a literal it would be an object when compiled.
RANGES_MAX = 65536  # Ranges of ids done out of order.


class CompletedIds:
    """All ids below ``low``, and ranges of ids above it. Ids are unwrapped: see :meth:`unwrap`."""

    def __init__(self, start: int) -> None:
        self.low = start  # The first id that is not done.
        self.starts: list[int] = []  # Ranges above it, both ends included; none touches another.
        self.ends: list[int] = []

    def unwrap(self, number: int) -> int:
        """Return the unwrapped id of a serial number less than half a circle from ``low``."""
        distance = (number - self.low) & SERIAL_MASK
        return self.low + distance - (distance >> 31 << 32)

    def has(self, number: int) -> bool:
        """Return True if an unwrapped id is done."""
        if number < self.low:
            return True
        place = index_from(self.ends, number)
        return place < len(self.starts) and self.starts[place] <= number

    def add(self, lo: int, hi: int) -> None:
        """The ids from ``lo`` to ``hi`` are done, again or for the first time.

        Raises ValueError when that would need more than ``RANGES_MAX`` ranges.
        """
        if lo <= self.low:
            if hi < self.low:
                return
            self.low = hi + 1
            if self.starts:
                self.absorb()
            return
        starts = self.starts
        ends = self.ends
        count = len(starts)
        if count == 0 or lo > self.ends[count - 1] + 1:
            if count >= RANGES_MAX:
                raise ValueError(f"more than {RANGES_MAX} ranges of commands done out of order")
            starts.append(lo)
            ends.append(hi)
            return
        first = index_from(ends, lo - 1)  # The first range that may touch.
        end = first
        while end < count and starts[end] <= hi + 1:
            end += 1
        if first == end:
            if count >= RANGES_MAX:
                raise ValueError(f"more than {RANGES_MAX} ranges of commands done out of order")
        else:
            lo = min(lo, starts[first])
            hi = max(hi, ends[end - 1])
        starts[first:end] = [lo]
        ends[first:end] = [hi]

    def absorb(self) -> None:
        """``low`` has moved: let it pass over the ranges that it reached."""
        count = 0
        while count < len(self.starts) and self.starts[count] <= self.low:
            self.low = max(self.low, self.ends[count] + 1)
            count += 1
        del self.starts[:count]
        del self.ends[:count]

    def missing(self, lo: int, hi: int) -> list[tuple[int, int]]:
        """Return the ranges between ``lo`` and ``hi`` that are not done."""
        ranges = []
        lo = max(lo, self.low)
        place = index_from(self.ends, lo)
        while lo <= hi and place < len(self.starts) and self.starts[place] <= hi:
            if lo < self.starts[place]:
                ranges.append((lo, self.starts[place] - 1))
            lo = self.ends[place] + 1
            place += 1
        if lo <= hi:
            ranges.append((lo, hi))
        return ranges


def index_from(ends: list[int], number: int) -> int:
    """Return the place of the first of the ascending ``ends`` that is not less than ``number``."""
    low = 0
    high = len(ends)
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low
