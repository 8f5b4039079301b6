# SPDX-License-Identifier: Apache-2.0
"""The port to files: all system calls of the store go through it.

Tests use a disk that tears writes, runs full, loses power or corrupts data
(:mod:`headrace.testing.disk`), with the same methods.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Sequence
from typing import NamedTuple

BUFFERS_MAX = 512  # Buffers in one system call; the kernel allows 1,024.
# The operations of changes.
WRITE = 1  # Write bytes to a file, which is created if missing.
REMOVE = 2  # Remove a file.
REMOVE_DIRECTORY = 3  # Remove a directory and its files.
TRUNCATE = 4  # Cut a file at the offset, or extend it with zeros.


class Change(NamedTuple):
    """A change of a file or directory."""

    operation: int  # WRITE, REMOVE, REMOVE_DIRECTORY or TRUNCATE.
    path: str
    offset: int = 0
    buffers: Sequence[bytes | bytearray | memoryview] = ()  # The buffers of a write.


class Disk:
    """The disk of this machine; tests replace it. Calls block and raise OSError."""

    #: True if :meth:`replicate` must have the changes of a group before they are written.
    replicates = False

    def replicate(self, changes: Sequence[Change]) -> None:
        """Make the changes of a group durable on other machines; a plain disk does nothing."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents durably, readable by the owner only."""
        parent = os.path.dirname(path)
        if parent and not self.is_directory(parent):
            self.make_directory(parent)  # os.makedirs would leave it open to others.
        if not self.is_directory(path):
            self.make_one_directory(path)
            try:
                self.sync_directory(parent or ".")
            except PermissionError:  # A file may be writable and not readable.
                os.sync()

    def is_directory(self, path: str) -> bool:
        """Return True if a path is a directory."""
        return os.path.isdir(path)

    def make_one_directory(self, path: str) -> None:
        """Create a directory whose parent exists; an existing directory is not an error."""
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def names(self, path: str) -> list[str]:
        """List the names in a directory."""
        return os.listdir(path)

    def open(self, path: str, *, create: bool = False) -> int:
        """Open a file for reading and writing."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return os.open(path, flags, 0o600)

    def open_directory(self, path: str) -> int:
        """Open a directory, to lock it."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def open_unnamed(self, directory: str) -> int:
        """Open a file without a name, which the system removes when it is closed."""
        try:
            return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
        path = os.path.join(directory, f"scratch-{os.getpid()}-{id(self)}")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.unlink(path)
        return handle

    def close(self, handle: int) -> None:
        """Close a file."""
        os.close(handle)

    def write(
        self, handle: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int
    ) -> None:
        """Write all buffers, one after the other, from ``offset`` on."""
        for first in range(0, len(buffers), BUFFERS_MAX):
            batch = [memoryview(buffer) for buffer in buffers[first : first + BUFFERS_MAX]]
            try:
                while batch:
                    written = self.write_some(handle, batch, offset)
                    offset += written
                    while batch and written >= len(batch[0]):
                        written -= len(batch[0])
                        batch.pop(0).release()
                    if written:
                        remaining = batch[0][written:]
                        batch[0].release()
                        batch[0] = remaining
            finally:
                for view in batch:
                    view.release()

    def write_some(self, handle: int, buffers: Sequence[memoryview], offset: int) -> int:
        """Write with one system call; return the number of bytes written, perhaps not all."""
        return os.pwritev(handle, buffers, offset)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """Read up to ``size`` bytes; fewer only at the end of the file."""
        data = os.pread(handle, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        size_read = len(data)
        while size_read < size:
            data = os.pread(handle, size - size_read, offset + size_read)
            if not data:
                break
            parts.append(data)
            size_read += len(data)
        return b"".join(parts)

    def read_into(self, handle: int, buffer: bytearray, size: int, offset: int = 0) -> int:
        """Read up to ``size`` bytes from ``offset`` on into a buffer; return how many were read."""
        size_read = 0
        with memoryview(buffer) as view:
            while size_read < size:
                with view[size_read:size] as remaining:
                    count = os.preadv(handle, [remaining], offset + size_read)
                if not count:
                    break
                size_read += count
        return size_read

    def sync(self, handle: int) -> None:
        """Make the contents of a file durable."""
        os.fdatasync(handle)

    def drop_cache(self, handle: int) -> None:
        """Make the next read of a file come from the device, where the system can."""
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def allocate(self, handle: int, size: int) -> None:
        """Reserve room for a file of ``size`` bytes."""
        try:
            os.posix_fallocate(handle, 0, size)
        except OSError as error:  # A file system without reservation can still write.
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            os.ftruncate(handle, size)

    def size(self, handle: int) -> int:
        """Return the size of a file in bytes."""
        return os.fstat(handle).st_size

    def truncate(self, handle: int, size: int) -> None:
        """Cut a file durably."""
        os.ftruncate(handle, size)
        os.fsync(handle)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing an existing one; durable after :meth:`sync_directory`."""
        os.rename(old, new)

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_directory(self, path: str) -> None:
        """Remove a directory with its contents."""
        shutil.rmtree(path, ignore_errors=True)

    def is_shared(self, path: str) -> bool:
        """Return True if a file has another hard link."""
        try:
            return os.stat(path).st_nlink > 1
        except FileNotFoundError:
            return False

    def free(self, path: str) -> int:
        """Return the free bytes on the file system of a directory."""
        space = os.statvfs(path)
        return space.f_bavail * space.f_frsize

    def lock(self, handle: int) -> bool:
        """Lock a file for this process; return False if another process has the lock."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
