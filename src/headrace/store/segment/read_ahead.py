# SPDX-License-Identifier: Apache-2.0
"""Read-ahead: how much is read at once when messages are loaded.

Messages of queues that page out together alternate in the file. Whether the next message is needed
depends on the readers: one queue skips the others' messages, all together skip none. So a read
begins with a single message. A read near the end of an earlier one takes twice as much as that did,
up to ``READ_AHEAD``, if at least one byte in ``WASTE_MAX`` of it was used; else half as much.
"""

READ_AHEAD = 256 << 10  # Bytes of one read, unless a message is larger.
READ_MIN = 4096  # Bytes, a page of the kernel.
STRETCHES = 4  # Reads kept, one for each sequential reader.
WASTE_MAX = 4  # Bytes read for each used one, while reads grow.


class Stretch:
    """The bytes of one read."""

    def __init__(self, file: int, lo: int, octets: bytes) -> None:
        self.file = file  # The number of the file.
        self.lo = lo  # Start in the file,
        self.hi = lo + len(octets)  # and end.
        self.octets = octets
        self.used = 0  # Bytes used.


class ReadAhead:
    """The latest reads."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []  # The latest is last.

    def find(self, file: int, at: int, size: int) -> Stretch | None:
        """Return a read with ``size`` bytes from ``at`` on, if there is one."""
        stretch: Stretch
        i = len(self.stretches)
        while i:
            i -= 1
            stretch = self.stretches[i]
            if stretch.file == file and stretch.lo <= at and at + size <= stretch.hi:
                return stretch
        return None

    def plan(self, file: int, at: int, size: int) -> int:
        """Return how many bytes to read at ``at``, where ``size`` are needed."""
        stretch: Stretch
        size = max(size, READ_MIN)
        i = len(self.stretches)
        while i:
            i -= 1
            stretch = self.stretches[i]
            length = stretch.hi - stretch.lo
            if stretch.file == file and stretch.lo <= at <= stretch.hi + length:
                del self.stretches[i]  # The new read takes its place.
                ahead = 2 * length if stretch.used * WASTE_MAX >= length else length >> 1
                return max(size, min(ahead, READ_AHEAD))
        return size

    def keep(self, file: int, lo: int, octets: bytes) -> Stretch:
        """Keep a read in place of the oldest."""
        if len(self.stretches) == STRETCHES:
            del self.stretches[0]
        stretch = Stretch(file, lo, octets)
        self.stretches.append(stretch)
        return stretch

    def clear(self) -> None:
        """Forget all reads: the file changes."""
        self.stretches = []
