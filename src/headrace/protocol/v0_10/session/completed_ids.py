# SPDX-License-Identifier: Apache-2.0
"""The completed command ids of one direction of a session (AMQP 0-10, session class).

Ids are serial numbers of 32 bits. `CompletedIds` keeps them unwrapped, as the numbers of 64 bits
that are nearest to the first incomplete id.
"""

SERIAL_MASK = 0xFFFFFFFF  # A name: as a literal it would be an object when compiled.
RANGES_MAX = 65536  # The maximum ranges of ids that are completed out of order.


class CompletedIds:
    """All ids below ``low``, and ranges of ids above it; all are unwrapped, see :meth:`unwrap`."""

    def __init__(self, start: int) -> None:
        self.low = start  # The first id that is not completed.
        # The ranges above ``low``, both ends included, in order and with gaps.
        self.starts: list[int] = []
        self.ends: list[int] = []

    def unwrap(self, number: int) -> int:
        """Return the unwrapped id of a serial number less than half a circle from ``low``."""
        distance = (number - self.low) & SERIAL_MASK
        return self.low + distance - (distance >> 31 << 32)

    def has(self, number: int) -> bool:
        """Return True if an unwrapped id is completed."""
        if number < self.low:
            return True
        index = index_from(self.ends, number)
        return index < len(self.starts) and self.starts[index] <= number

    def add(self, first_id: int, last_id: int) -> None:
        """Add the ids from ``first_id`` to ``last_id``, some of which may be completed already.

        Raises:
            ValueError: the ids would need more than ``RANGES_MAX`` ranges.
        """
        if first_id <= self.low:
            if last_id < self.low:
                return
            self.low = last_id + 1
            if self.starts:
                self.absorb()
            return
        starts = self.starts
        ends = self.ends
        count = len(starts)
        if count == 0 or first_id > self.ends[count - 1] + 1:
            if count >= RANGES_MAX:
                raise ValueError(f"more than {RANGES_MAX} ranges of commands done out of order")
            starts.append(first_id)
            ends.append(last_id)
            return
        first = index_from(ends, first_id - 1)  # The first range that may touch.
        end = first
        while end < count and starts[end] <= last_id + 1:
            end += 1
        if first == end:
            if count >= RANGES_MAX:
                raise ValueError(f"more than {RANGES_MAX} ranges of commands done out of order")
        else:
            first_id = min(first_id, starts[first])
            last_id = max(last_id, ends[end - 1])
        starts[first:end] = [first_id]
        ends[first:end] = [last_id]

    def absorb(self) -> None:
        """Move ``low`` over the ranges that it has reached, and remove these."""
        count = 0
        while count < len(self.starts) and self.starts[count] <= self.low:
            self.low = max(self.low, self.ends[count] + 1)
            count += 1
        del self.starts[:count]
        del self.ends[:count]

    def missing(self, first_id: int, last_id: int) -> list[tuple[int, int]]:
        """Return the ranges from ``first_id`` to ``last_id`` that are not completed."""
        ranges = []
        first_id = max(first_id, self.low)
        index = index_from(self.ends, first_id)
        while first_id <= last_id and index < len(self.starts) and self.starts[index] <= last_id:
            if first_id < self.starts[index]:
                ranges.append((first_id, self.starts[index] - 1))
            first_id = self.ends[index] + 1
            index += 1
        if first_id <= last_id:
            ranges.append((first_id, last_id))
        return ranges


def index_from(ends: list[int], number: int) -> int:
    """Return the index of the first of the ascending ``ends`` that is not below ``number``."""
    low = 0
    high = len(ends)
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low
