# SPDX-License-Identifier: Apache-2.0
"""Disk space reserved for records that free space.

Settlements, deletes and purges are journal records, too. On a completely full disk they could not
be written, and consumed messages would never be removed. So each journal has a file, ``reserve``,
without contents. When a write finds no room, the file is cut in half and the write repeated.
Publishers wait until the file is whole again.

When one half is used up the other is used, too, and the reserve is *low*: acks, which may be very
many, are kept in memory until a segment can be removed. The rest is for records that let it be
removed, and for changes of definitions.
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
        self.spent = False  # A part was used, and is not reserved again.
        self.low = False  # The whole reserve was used.

    def set_target(self, allocated: int) -> None:
        """Set the size to half of the last segment's file, at least the present size."""
        self.target = max(RESERVE_MIN, min(allocated // 2, RESERVE_MAX))

    def restore(self, free: int) -> None:
        """Make the file, if that many bytes are free; otherwise leave it."""
        if self.size >= self.target:
            self.spent = self.low = False
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
            self.spent = self.low = False

    def spend(self) -> bool:
        """Free half of the file, then the rest; return False if nothing is left."""
        if not self.size:
            return False
        half = self.target // 2 if not self.spent else 0
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
