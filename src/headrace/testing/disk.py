# SPDX-License-Identifier: Apache-2.0
"""A disk in memory that fails the way disks do, the same way each time for the same seed.

It keeps apart what a program reads back (the page cache) and what is on the platter. Writes reach
the platter with a sync, or, block by block and in any order, when power fails. A sync that fails
leaves its blocks clean, as Linux does, and each of them may be lost, as on ext4: it keeps what it
had until it is written again, and is zeros after that, whatever the sync says. What is read shows
nothing of that until the cache is dropped.

    disk = FaultyDisk(seed=7)
    disk.capacity = 100_000     # Beyond it: ENOSPC, after writing what fits.
    disk.errors = 0.1           # One write or sync in ten: EIO.
    disk.sync_errors = 1.0      # Each sync: EIO.
    disk.short_writes = 0.5     # Half of the writes take only a part.
    disk.kill()                 # The process dies; what was written stays.
    disk.power_cut()            # The machine dies; what was not synced may be there or not.
    disk.rot(path)              # A bit flips.
"""

import errno
import os
import random
from collections.abc import Iterator, Sequence

from headrace.store.disk import Disk

BLOCK = 512  # Bytes that reach the platter together.
UNLIMITED = 1 << 60  # Bytes.


class StoredFile:
    """A file: its readable bytes, its durable bytes, and the writes between them."""

    def __init__(self) -> None:
        self.cache = bytearray()
        self.platter = bytearray()
        self.unsynced: list[tuple[int, bytes]] = []  # Writes, in their order.
        self.lost: set[int] = set()  # Blocks that only the cache has.
        self.locked = False


class FaultyDisk(Disk):
    """A simulated disk. A directory and its files are lost unless its parent was synced."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.names_now: dict[str, StoredFile] = {}
        self.names_durable: dict[str, StoredFile] = {}
        self.name_changes: list[tuple[str, StoredFile | None]] = []
        self.directories: dict[str, bool] = {}  # True: the parent was synced.
        self.handles: dict[int, StoredFile] = {}
        self.next_handle = 1000
        self.capacity = UNLIMITED  # Bytes for all files together.
        self.errors = 0.0
        self.sync_errors = 0.0
        self.sync_errno = errno.EIO
        self.short_writes = 0.0
        self.syncs = 0

    # --- Names ------------------------------------------------------------------------------

    def _name(self, path: str, file: StoredFile | None) -> None:
        if file is None:
            self.names_now.pop(path, None)
        else:
            self.names_now[path] = file
        self.name_changes.append((path, file))

    def is_directory(self, path: str) -> bool:
        """See :class:`Disk`."""
        return path == "/" or path in self.directories

    def make_one_directory(self, path: str) -> None:
        """See :class:`Disk`."""
        self.directories[path] = False

    def open_directory(self, path: str) -> int:
        """See :class:`Disk`."""
        return self.open(f"{path}/.", create=True)

    def names(self, path: str) -> list[str]:
        """See :class:`Disk`."""
        return [os.path.basename(name) for name in self.names_now if os.path.dirname(name) == path]

    def open(self, path: str, *, create: bool = False) -> int:
        """See :class:`Disk`."""
        file = self.names_now.get(path)
        if file is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            file = StoredFile()
            self._name(path, file)
        self.next_handle += 1
        self.handles[self.next_handle] = file
        return self.next_handle

    def open_unnamed(self, directory: str) -> int:
        """See :class:`Disk`."""
        self.next_handle += 1
        self.handles[self.next_handle] = StoredFile()
        return self.next_handle

    def close(self, handle: int) -> None:
        """See :class:`Disk`."""
        self.handles.pop(handle).locked = False

    def rename(self, old: str, new: str) -> None:
        """See :class:`Disk`."""
        file = self.names_now.get(old)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self._name(new, file)
        self._name(old, None)

    def remove(self, path: str) -> None:
        """See :class:`Disk`."""
        if path in self.names_now:
            self._name(path, None)

    def is_shared(self, path: str) -> bool:
        """See :class:`Disk`."""
        return False

    def remove_directory(self, path: str) -> None:
        """See :class:`Disk`."""
        for name in [name for name in self.names_now if os.path.dirname(name) == path]:
            self._name(name, None)

    def sync_directory(self, path: str) -> None:
        """See :class:`Disk`."""
        self._maybe_fail()
        kept = []
        for name, file in self.name_changes:
            if os.path.dirname(name) == path:
                self._make_durable(name, file)
            else:
                kept.append((name, file))
        self.name_changes = kept
        for name, synced in self.directories.items():
            if not synced and os.path.dirname(name) == path:
                self.directories[name] = True

    def _make_durable(self, name: str, file: StoredFile | None) -> None:
        if file is None:
            self.names_durable.pop(name, None)
        else:
            self.names_durable[name] = file

    # --- Octets -----------------------------------------------------------------------------

    def used(self) -> int:
        """Return the size of all files."""
        return sum(len(file.cache) for file in self.names_now.values())

    def _maybe_fail(self) -> None:
        if self.errors and self.random.random() < self.errors:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _grow(self, file: StoredFile, size: int) -> None:
        more = size - len(file.cache)
        if more > 0:
            if self.capacity < UNLIMITED and self.used() + more > self.capacity:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            file.cache.extend(bytes(more))

    def write_some(self, handle: int, pieces: Sequence[memoryview], at: int) -> int:
        """See :class:`Disk`."""
        file = self.handles[handle]
        data = b"".join(pieces)
        self._maybe_fail()
        if self.short_writes and len(data) > 1 and self.random.random() < self.short_writes:
            data = data[: self.random.randrange(1, len(data))]
        if self.capacity < UNLIMITED:
            room = self.capacity - self.used() + len(file.cache) - at
            if room < len(data):
                if room <= 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                data = data[:room]
        self._grow(file, at + len(data))
        file.cache[at : at + len(data)] = data
        file.unsynced.append((at, data))
        return len(data)

    def read(self, handle: int, size: int, at: int) -> bytes:
        """See :class:`Disk`."""
        return bytes(self.handles[handle].cache[at : at + size])

    def read_into(self, handle: int, buffer: bytearray, size: int, at: int = 0) -> int:
        """See :class:`Disk`."""
        data = self.handles[handle].cache[at : at + size]
        buffer[: len(data)] = data
        return len(data)

    def sync(self, handle: int) -> None:
        """See :class:`Disk`."""
        self.syncs += 1
        file = self.handles[handle]
        try:
            self._maybe_fail()
            if self.sync_errors and self.random.random() < self.sync_errors:
                raise OSError(self.sync_errno, os.strerror(self.sync_errno))
        except OSError:
            self._lose_some(file, for_good=True)
            raise
        file.platter.extend(bytes(max(0, len(file.cache) - len(file.platter))))
        if file.lost:
            for at, block in _blocks(file.unsynced):
                self._keep(file, at, block)
        else:
            for at, data in file.unsynced:
                file.platter[at : at + len(data)] = data
        file.unsynced = []

    def _keep(self, file: StoredFile, at: int, block: bytes) -> None:
        """Write a block to the platter, which is zeros after that where one was lost."""
        end = at + len(block)
        file.platter.extend(bytes(max(0, end - len(file.platter))))
        file.platter[at:end] = block
        if at // BLOCK in file.lost:
            lo = at // BLOCK * BLOCK
            hi = min(lo + BLOCK, len(file.platter))
            file.platter[lo:hi] = bytes(hi - lo)

    def _lose_some(self, file: StoredFile, *, for_good: bool = False) -> None:
        """Write each dirty block to the platter or lose it; then no block is dirty."""
        reached: dict[int, bool] = {}  # One sync writes a block once, however it came to be.
        for at, block in _blocks(file.unsynced):
            number = at // BLOCK
            if not for_good or number not in reached:
                reached[number] = self.random.random() < 0.5
            if reached[number]:
                self._keep(file, at, block)
            elif for_good:
                file.lost.add(number)
        file.unsynced = []

    def drop_cache(self, handle: int) -> None:
        """See :class:`Disk`."""
        self.sync(handle)
        file = self.handles[handle]
        file.cache[:] = file.platter
        file.lost.clear()

    def allocate(self, handle: int, size: int) -> None:
        """See :class:`Disk`."""
        self._maybe_fail()
        self._grow(self.handles[handle], size)

    def size(self, handle: int) -> int:
        """See :class:`Disk`."""
        return len(self.handles[handle].cache)

    def truncate(self, handle: int, size: int) -> None:
        """See :class:`Disk`."""
        file = self.handles[handle]
        self.sync(handle)
        del file.cache[size:]
        del file.platter[size:]
        file.lost = {block for block in file.lost if block * BLOCK < size}

    def free(self, path: str) -> int:
        """See :class:`Disk`."""
        return max(0, self.capacity - self.used())

    def lock(self, handle: int) -> bool:
        """See :class:`Disk`."""
        file = self.handles[handle]
        free = not file.locked
        file.locked = True
        return free

    # --- Disasters --------------------------------------------------------------------------

    def kill(self) -> None:
        """Lose the process: open files are gone, the page cache stays."""
        self.handles.clear()
        for file in self.names_now.values():
            file.locked = False

    def power_cut(self) -> None:
        """Lose the machine: any part of what was not synced may have reached the platter."""
        self.kill()
        survived = self.random.randint(0, len(self.name_changes))
        for name, file in self.name_changes[:survived]:  # Journaling file systems keep the order.
            self._make_durable(name, file)
        self.name_changes = []
        for path in [path for path, synced in self.directories.items() if not synced]:
            del self.directories[path]
            for name in [name for name in self.names_durable if name.startswith(f"{path}/")]:
                del self.names_durable[name]
        self.names_now = dict(self.names_durable)
        for file in {id(file): file for file in self.names_now.values()}.values():
            self._lose_some(file)
            file.cache[:] = file.platter
            file.lost.clear()

    def rot(self, path: str, at: int | None = None) -> int:
        """Flip a bit of a file; return in which octet."""
        file = self.names_now[path]
        if at is None:
            at = self.random.randrange(len(file.cache))
        file.cache[at] ^= 1 << self.random.randrange(8)
        file.platter[at : at + 1] = file.cache[at : at + 1]
        return at


def _blocks(writes: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Return writes in parts that reach the platter together."""
    for at, data in writes:
        end = at + len(data)
        lo = at
        while lo < end:
            hi = min((lo // BLOCK + 1) * BLOCK, end)
            yield lo, data[lo - at : hi - at]
            lo = hi
