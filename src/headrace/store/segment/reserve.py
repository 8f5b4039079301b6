# SPDX-License-Identifier: Apache-2.0
"""Room on the disk that is kept for what makes room.

Settlements, deletes and purges are records of the journal, too. On a disk that is filled to its
last octet they could not be written, so nothing that was consumed would ever be let go. Each
journal therefore has a file, ``reserve``, that holds nothing. When a write finds no room the file
is cut in half, and what waits is written in its place. Publishers wait until it is whole again.

When that is used up the rest goes, too, and the reserve is *low*: acks, which alone may be very
many, gather in memory until a segment can leave. What lets it leave, and what changes definitions,
has the rest to itself.
"""

import contextlib
import os

from headrace.store.disk import Disk

NAME = "reserve"
RESERVE_MIN = 64 << 10  # Octets.
RESERVE_MAX = 4 << 20


class Reserve:
    """The reserve of one journal; on the writer's thread."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.path = os.path.join(directory, NAME)
        self.size = 0  # Octets that the file holds,
        self.wanted = 0  # and should hold; a journal without a segment needs none.
        if NAME in disk.names(directory):
            handle = disk.open(self.path)
            self.size = disk.size(handle)
            disk.close(handle)
        self.spent = False  # It was needed, and is not whole again.
        self.low = False  # All of it was.

    def want(self, held: int) -> None:
        """Want half of what the last segment's file takes; what is there already is kept."""
        self.wanted = max(RESERVE_MIN, min(held // 2, RESERVE_MAX))

    def keep(self, free: int) -> None:
        """Make the file, where so many free octets allow it; it is left as it is otherwise."""
        if self.size >= self.wanted:
            self.spent = self.low = False
            return
        if free < self.wanted - self.size:
            return
        with contextlib.suppress(OSError):
            handle = self.disk.open(self.path, create=True)
            try:
                self.disk.allocate(handle, self.wanted)
            finally:
                self.disk.close(handle)
            self.size = self.wanted
            self.spent = self.low = False

    def spend(self) -> bool:
        """Give up half of the file for what has to be written, then the rest; false after that."""
        if not self.size:
            return False
        half = self.wanted // 2 if not self.spent else 0
        if 0 < half < self.size:
            handle = self.disk.open(self.path)
            try:
                self.disk.truncate(handle, half)
            finally:
                self.disk.close(handle)
            self.size = half
        else:
            self.disk.remove(self.path)
            self.size = 0
            self.low = True
        self.spent = True
        return True
