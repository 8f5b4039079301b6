# SPDX-License-Identifier: Apache-2.0
"""How much of a file is read at once for messages that come back into memory.

Queues that page out together lie in the file message by message between one another. Whether what
follows a message is wanted next depends on who reads: one queue alone skips what is the others',
all of them together skip nothing. So a read takes the message alone at first. One that goes on near
the end of an earlier stretch takes twice as much as that did, up to ``READ_AHEAD``, as long as at
least one octet in ``WASTE_MAX`` of the stretch was wanted; else half as much.
"""

READ_AHEAD = 256 << 10  # Octets read at once, unless one message has more.
READ_MIN = 4096  # Octets, a page of the kernel's.
STRETCHES = 4  # Stretches that are kept, one for each reader that goes on by itself.
WASTE_MAX = 4  # Octets read for each that is wanted, while more is read ahead.


class Stretch:
    """Octets of a file that were read at once."""

    def __init__(self, file: int, lo: int, octets: bytes) -> None:
        self.file = file  # The number of the file.
        self.lo = lo  # Where in it they begin,
        self.hi = lo + len(octets)  # and end.
        self.octets = octets
        self.used = 0  # How many of them were wanted.


class ReadAhead:
    """The latest stretches that were read."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []  # The latest is last.

    def find(self, file: int, at: int, size: int) -> Stretch | None:
        """Return a stretch that has ``size`` octets from ``at`` on, if there is one."""
        stretch: Stretch
        i = len(self.stretches)
        while i:
            i -= 1
            stretch = self.stretches[i]
            if stretch.file == file and stretch.lo <= at and at + size <= stretch.hi:
                return stretch
        return None

    def plan(self, file: int, at: int, size: int) -> int:
        """Return how many octets to read at ``at``, where ``size`` are wanted."""
        stretch: Stretch
        size = max(size, READ_MIN)
        i = len(self.stretches)
        while i:
            i -= 1
            stretch = self.stretches[i]
            length = stretch.hi - stretch.lo
            if stretch.file == file and stretch.lo <= at <= stretch.hi + length:
                del self.stretches[i]  # What is read now takes its place.
                ahead = 2 * length if stretch.used * WASTE_MAX >= length else length >> 1
                return max(size, min(ahead, READ_AHEAD))
        return size

    def keep(self, file: int, lo: int, octets: bytes) -> Stretch:
        """Keep what was read, in place of the stretch that was read longest ago."""
        if len(self.stretches) == STRETCHES:
            del self.stretches[0]
        stretch = Stretch(file, lo, octets)
        self.stretches.append(stretch)
        return stretch

    def clear(self) -> None:
        """Forget what was read: the file changes."""
        self.stretches = []
