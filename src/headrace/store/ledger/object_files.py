# SPDX-License-Identifier: Apache-2.0
"""Files of a directory that are objects of a ledger: bodies of file messages.

Such a file gets its name when it is complete and durable, and never changes. Names are not reused.
So a file with the name and the size of an object is a copy of the object.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from headrace.store.ledger.port import Gap
from headrace.store.replacement import NEW

if TYPE_CHECKING:
    from headrace.store.disk import Disk
    from headrace.store.ledger.port import Objects

log = logging.getLogger(__name__)

PART_BYTES = 1 << 20  # Bytes of a part of an object.


class ObjectFiles:
    """The files of one directory, and the objects of the same names. Used by one thread."""

    def __init__(self, disk: Disk, objects: Objects, directory: str, suffix: str) -> None:
        """Files whose names end with ``suffix`` are objects; other files stay on this machine."""
        self.disk = disk
        self.objects = objects
        self.directory = directory
        self.suffix = suffix

    def send(self, name: str) -> None:
        """Store a file as an object of the ledger; return when the object is durable.

        Raises:
            LedgerLost: another broker owns the ledger.
            OSError: the object may or may not be durable; call again.
        """
        handle = self.disk.open(os.path.join(self.directory, name))
        try:
            size = self.disk.size(handle)
            for number, offset in enumerate(range(0, size, PART_BYTES)):
                data = self.disk.read(handle, min(PART_BYTES, size - offset), offset)
                self.objects.put(name, number, data)
            self.objects.complete(name, size)
        finally:
            self.disk.close(handle)

    def remove(self, name: str) -> None:
        """Remove the object of a local file from the ledger; errors as :meth:`send`."""
        self.objects.remove(name)

    def close(self) -> None:
        """Release the connection to the engine."""
        self.objects.close()

    def send_all(self) -> None:
        """Store the local files in an empty ledger; errors as :meth:`send`."""
        for name in sorted(self.local_sizes()):
            self.send(name)

    def synchronize(self) -> None:
        """Fetch missing objects and remove files without an object.

        Raises:
            Gap: the ledger lacks a part of an object.
            OSError: the engine does not answer; try again.
        """
        sizes = self.objects.sizes()
        local_sizes = self.local_sizes()
        if sizes == local_sizes:
            return
        self.disk.make_directory(self.directory)
        for name in self.disk.names(self.directory):
            is_stale = name in local_sizes and sizes.get(name) != local_sizes[name]
            if is_stale or name.endswith(self.suffix + NEW):
                self.disk.remove(os.path.join(self.directory, name))
        for name in sorted(sizes):
            if sizes[name] != local_sizes.get(name):
                self.fetch(name, sizes[name])
        self.disk.sync_directory(self.directory)

    def local_sizes(self) -> dict[str, int]:
        """Return the sizes of the local files by name."""
        if not self.disk.is_directory(self.directory):
            return {}
        sizes = {}
        for name in self.disk.names(self.directory):
            if name.endswith(self.suffix):
                handle = self.disk.open(os.path.join(self.directory, name))
                sizes[name] = self.disk.size(handle)
                self.disk.close(handle)
        return sizes

    def fetch(self, name: str, size: int) -> None:
        """Copy an object from the ledger, unless the object was removed."""
        path = os.path.join(self.directory, name)
        handle = self.disk.open(path + NEW, create=True)
        copied = number = 0
        try:
            while copied < size and (data := self.objects.part(name, number)):
                self.disk.write(handle, [data], copied)
                copied += len(data)
                number += 1
            self.disk.sync(handle)
        finally:
            self.disk.close(handle)
        if copied == size:
            self.disk.rename(path + NEW, path)
            return
        self.disk.remove(path + NEW)
        if name in self.objects.sizes():
            raise Gap(f"the ledger has {copied} bytes of {name}, not {size}: the engine lost some")
        log.debug("%s was removed while it was copied", path)
