# SPDX-License-Identifier: Apache-2.0
"""Disk space reserved for records that free space.

Settlements, deletes and purges are journal records too. Without free space they could not be
written, and consumed messages would never be removed. So each journal has a file ``reserve`` that
only takes space. When a write finds no room, the file is cut in half and the write is repeated.
Publishers wait until the file has its full size again.

When the first half is used up, the file is removed, and the reserve is *low*: settlements, which
may be many, stay in memory until a segment can be removed. The freed space is for the records that
let a segment be removed, and for changes of definitions.
"""

import contextlib
import os

from headrace.store.disk import Disk

NAME = "reserve"
RESERVE_MIN = 64 << 10  # Bytes.
RESERVE_MAX = 4 << 20


class Reserve:
    """The reserve of one journal; used on the writer's thread."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.path = os.path.join(directory, NAME)
        self.size = 0  # Bytes of the file.
        self.target = 0  # Bytes that it should have; 0 for a journal without segments.
        if NAME in disk.names(directory):
            handle = disk.open(self.path)
            self.size = disk.size(handle)
            disk.close(handle)
        self.is_spent = False  # A part was freed for writes and is not reserved again yet.
        self.is_low = False  # The whole reserve was freed.

    def set_target(self, allocated: int) -> None:
        """Set the size to half of the last segment's file, at least the present size."""
        self.target = max(RESERVE_MIN, min(allocated // 2, RESERVE_MAX))

    def restore(self, free: int) -> None:
        """Give the file its full size if ``free`` bytes suffice."""
        if self.size >= self.target:
            self.is_spent = self.is_low = False
            return
        if free < self.target - self.size:
            return
        with contextlib.suppress(OSError):
            handle = self.disk.open(self.path, create=True)
            try:
                self.disk.allocate(handle, self.target)
            finally:
                self.disk.close(handle)
            self.size = self.target
            self.is_spent = self.is_low = False

    def spend(self) -> bool:
        """Free half of the file, at the next call the rest; return False if it has no bytes."""
        if not self.size:
            return False
        half = self.target // 2 if not self.is_spent else 0
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
            self.is_low = True
        self.is_spent = True
        return True
