# SPDX-License-Identifier: Apache-2.0
"""A simulated disk with faults, which are the same in each run with the same seed.

Each file has a page cache, which reads return, and a platter, which survives a power cut. A sync
writes the dirty blocks of the cache to the platter. A power cut writes any of them, in any order.

A failed sync marks its blocks clean, as Linux does, and may lose each of them, as on ext4. A lost
block keeps its old contents on the platter. After the next write to it, the rest of the block
consists of zeros, even if the next sync succeeds. Reads show the loss only after the cache is
dropped.

    disk = FaultyDisk(seed=7)
    disk.capacity = 100_000       # A write beyond it is shortened, or fails with ENOSPC.
    disk.error_rate = 0.1         # One write or sync in ten fails with EIO.
    disk.sync_error_rate = 1.0    # Each sync fails with EIO.
    disk.short_write_rate = 0.5   # Half of the writes take only a part of the bytes.
    disk.kill()                   # The process ends; the page cache survives.
    disk.power_cut()              # The machine stops; each dirty block survives or is lost.
    disk.flip_bit(path)           # A bit of a file flips.
"""

import errno
import os
import random
from collections.abc import Iterator, Sequence

from headrace.store.disk import Disk

BLOCK = 512  # Bytes that reach the platter together or not at all.
UNLIMITED = 1 << 60  # Bytes of a disk that is never full.


class StoredFile:
    """A file: its page cache, its bytes on the platter, and the writes that are not synced."""

    def __init__(self) -> None:
        self.cache = bytearray()
        self.platter = bytearray()
        self.unsynced: list[tuple[int, bytes]] = []  # Offset and data of writes, oldest first.
        self.lost: set[int] = set()  # Numbers of blocks that a failed sync lost.
        self.locked = False


class FaultyDisk(Disk):
    """A disk in memory; see the module.

    A power cut removes a new directory and its files unless its parent directory was synced.
    """

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.names_now: dict[str, StoredFile] = {}
        self.names_durable: dict[str, StoredFile] = {}
        self.name_changes: list[tuple[str, StoredFile | None]] = []
        self.directories: dict[str, bool] = {}  # True: the parent was synced.
        self.handles: dict[int, StoredFile] = {}
        self.next_handle = 1000
        self.capacity = UNLIMITED  # Bytes for all files together.
        self.error_rate = 0.0
        self.sync_error_rate = 0.0
        self.sync_errno = errno.EIO
        self.short_write_rate = 0.0
        self.syncs = 0

    # --- Names ------------------------------------------------------------------------------

    def _change_name(self, path: str, file: StoredFile | None) -> None:
        """Point a name to a file; None removes the name. The change is durable after a sync."""
        if file is None:
            self.names_now.pop(path, None)
        else:
            self.names_now[path] = file
        self.name_changes.append((path, file))

    def is_directory(self, path: str) -> bool:
        return path == "/" or path in self.directories

    def make_one_directory(self, path: str) -> None:
        self.directories[path] = False

    def open_directory(self, path: str) -> int:
        return self.open(f"{path}/.", create=True)

    def names(self, path: str) -> list[str]:
        return [os.path.basename(name) for name in self.names_now if os.path.dirname(name) == path]

    def open(self, path: str, *, create: bool = False) -> int:
        file = self.names_now.get(path)
        if file is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            file = StoredFile()
            self._change_name(path, file)
        self.next_handle += 1
        self.handles[self.next_handle] = file
        return self.next_handle

    def open_unnamed(self, directory: str) -> int:
        self.next_handle += 1
        self.handles[self.next_handle] = StoredFile()
        return self.next_handle

    def close(self, handle: int) -> None:
        self.handles.pop(handle).locked = False

    def rename(self, old: str, new: str) -> None:
        file = self.names_now.get(old)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self._change_name(new, file)
        self._change_name(old, None)

    def remove(self, path: str) -> None:
        if path in self.names_now:
            self._change_name(path, None)

    def is_shared(self, path: str) -> bool:
        return False

    def remove_directory(self, path: str) -> None:
        for name in [name for name in self.names_now if os.path.dirname(name) == path]:
            self._change_name(name, None)

    def sync_directory(self, path: str) -> None:
        self._maybe_fail()
        other_changes = []
        for name, file in self.name_changes:
            if os.path.dirname(name) == path:
                self._make_durable(name, file)
            else:
                other_changes.append((name, file))
        self.name_changes = other_changes
        for name, synced in self.directories.items():
            if not synced and os.path.dirname(name) == path:
                self.directories[name] = True

    def _make_durable(self, name: str, file: StoredFile | None) -> None:
        if file is None:
            self.names_durable.pop(name, None)
        else:
            self.names_durable[name] = file

    # --- Contents ---------------------------------------------------------------------------

    def used(self) -> int:
        """Return the size of all files together, in bytes."""
        return sum(len(file.cache) for file in self.names_now.values())

    def _maybe_fail(self) -> None:
        if self.error_rate and self.random.random() < self.error_rate:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _grow(self, file: StoredFile, size: int) -> None:
        growth = size - len(file.cache)
        if growth > 0:
            if self.capacity < UNLIMITED and self.used() + growth > self.capacity:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            file.cache.extend(bytes(growth))

    def write_some(self, handle: int, pieces: Sequence[memoryview], at: int) -> int:
        file = self.handles[handle]
        data = b"".join(pieces)
        self._maybe_fail()
        rate = self.short_write_rate
        if rate and len(data) > 1 and self.random.random() < rate:
            data = data[: self.random.randrange(1, len(data))]
        if self.capacity < UNLIMITED:
            size_max = self.capacity - self.used() + len(file.cache) - at
            if size_max < len(data):
                if size_max <= 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                data = data[:size_max]
        self._grow(file, at + len(data))
        file.cache[at : at + len(data)] = data
        file.unsynced.append((at, data))
        return len(data)

    def read(self, handle: int, size: int, at: int) -> bytes:
        return bytes(self.handles[handle].cache[at : at + size])

    def read_into(self, handle: int, buffer: bytearray, size: int, at: int = 0) -> int:
        data = self.handles[handle].cache[at : at + size]
        buffer[: len(data)] = data
        return len(data)

    def sync(self, handle: int) -> None:
        self.syncs += 1
        file = self.handles[handle]
        try:
            self._maybe_fail()
            if self.sync_error_rate and self.random.random() < self.sync_error_rate:
                raise OSError(self.sync_errno, os.strerror(self.sync_errno))
        except OSError:
            self._write_some_blocks(file, mark_lost=True)
            raise
        file.platter.extend(bytes(max(0, len(file.cache) - len(file.platter))))
        if file.lost:
            for offset, block in _split_blocks(file.unsynced):
                self._write_block(file, offset, block)
        else:
            for offset, data in file.unsynced:
                file.platter[offset : offset + len(data)] = data
        file.unsynced = []

    def _write_block(self, file: StoredFile, offset: int, data: bytes) -> None:
        """Write a part of a block to the platter; a lost block becomes zeros."""
        end = offset + len(data)
        file.platter.extend(bytes(max(0, end - len(file.platter))))
        file.platter[offset:end] = data
        if offset // BLOCK in file.lost:
            block_start = offset // BLOCK * BLOCK
            block_end = min(block_start + BLOCK, len(file.platter))
            file.platter[block_start:block_end] = bytes(block_end - block_start)

    def _write_some_blocks(self, file: StoredFile, *, mark_lost: bool = False) -> None:
        """Write a random half of the dirty blocks to the platter; then no block is dirty.

        With `mark_lost` the others count as lost by a failed sync.
        """
        is_written: dict[int, bool] = {}  # By block: a sync writes all parts of a block or none.
        for offset, data in _split_blocks(file.unsynced):
            number = offset // BLOCK
            if not mark_lost or number not in is_written:
                is_written[number] = self.random.random() < 0.5
            if is_written[number]:
                self._write_block(file, offset, data)
            elif mark_lost:
                file.lost.add(number)
        file.unsynced = []

    def drop_cache(self, handle: int) -> None:
        self.sync(handle)
        file = self.handles[handle]
        file.cache[:] = file.platter
        file.lost.clear()

    def allocate(self, handle: int, size: int) -> None:
        self._maybe_fail()
        self._grow(self.handles[handle], size)

    def size(self, handle: int) -> int:
        return len(self.handles[handle].cache)

    def truncate(self, handle: int, size: int) -> None:
        file = self.handles[handle]
        self.sync(handle)
        del file.cache[size:]
        del file.platter[size:]
        file.lost = {block for block in file.lost if block * BLOCK < size}

    def free(self, path: str) -> int:
        return max(0, self.capacity - self.used())

    def lock(self, handle: int) -> bool:
        file = self.handles[handle]
        was_free = not file.locked
        file.locked = True
        return was_free

    # --- Disasters --------------------------------------------------------------------------

    def kill(self) -> None:
        """End the process: its open files and locks are gone, the page cache survives."""
        self.handles.clear()
        for file in self.names_now.values():
            file.locked = False

    def power_cut(self) -> None:
        """Stop the machine: random dirty blocks and the latest changes of names are lost."""
        self.kill()
        # Journaling file systems write changes of names in their order.
        durable_count = self.random.randint(0, len(self.name_changes))
        for name, file in self.name_changes[:durable_count]:
            self._make_durable(name, file)
        self.name_changes = []
        for path in [path for path, synced in self.directories.items() if not synced]:
            del self.directories[path]
            for name in [name for name in self.names_durable if name.startswith(f"{path}/")]:
                del self.names_durable[name]
        self.names_now = dict(self.names_durable)
        for file in {id(file): file for file in self.names_now.values()}.values():
            self._write_some_blocks(file)
            file.cache[:] = file.platter
            file.lost.clear()

    def flip_bit(self, path: str, offset: int | None = None) -> int:
        """Flip a random bit of a byte, by default of a random one; return the byte's offset."""
        file = self.names_now[path]
        if offset is None:
            offset = self.random.randrange(len(file.cache))
        file.cache[offset] ^= 1 << self.random.randrange(8)
        file.platter[offset : offset + 1] = file.cache[offset : offset + 1]
        return offset


def _split_blocks(writes: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Split writes at the bounds of blocks; yield the offset and the data of each part."""
    for offset, data in writes:
        end = offset + len(data)
        start = offset
        while start < end:
            stop = min((start // BLOCK + 1) * BLOCK, end)
            yield start, data[start - offset : stop - offset]
            start = stop
