# SPDX-License-Identifier: Apache-2.0
"""A disk that passes each call on to another one, for those that change some of them."""

from collections.abc import Sequence

from headrace.store.disk import Disk


class PassingDisk(Disk):
    """See the module."""

    def __init__(self, local: Disk) -> None:
        self.local = local

    def open(self, path: str, *, create: bool = False) -> int:
        """See :class:`Disk`."""
        return self.local.open(path, create=create)

    def close(self, handle: int) -> None:
        """See :class:`Disk`."""
        self.local.close(handle)

    def sync(self, handle: int) -> None:
        """See :class:`Disk`."""
        self.local.sync(handle)

    def truncate(self, handle: int, size: int) -> None:
        """See :class:`Disk`."""
        self.local.truncate(handle, size)

    def rename(self, old: str, new: str) -> None:
        """See :class:`Disk`."""
        self.local.rename(old, new)

    def remove(self, path: str) -> None:
        """See :class:`Disk`."""
        self.local.remove(path)

    def remove_directory(self, path: str) -> None:
        """See :class:`Disk`."""
        self.local.remove_directory(path)

    def write(
        self, handle: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int
    ) -> None:
        """See :class:`Disk`."""
        self.local.write(handle, buffers, offset)

    def make_directory(self, path: str) -> None:
        """See :class:`Disk`."""
        self.local.make_directory(path)

    def is_directory(self, path: str) -> bool:
        """See :class:`Disk`."""
        return self.local.is_directory(path)

    def make_one_directory(self, path: str) -> None:
        """See :class:`Disk`."""
        self.local.make_one_directory(path)

    def names(self, path: str) -> list[str]:
        """See :class:`Disk`."""
        return self.local.names(path)

    def open_directory(self, path: str) -> int:
        """See :class:`Disk`."""
        return self.local.open_directory(path)

    def open_unnamed(self, directory: str) -> int:
        """See :class:`Disk`."""
        return self.local.open_unnamed(directory)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """See :class:`Disk`."""
        return self.local.read(handle, size, offset)

    def read_into(self, handle: int, buffer: bytearray, size: int, offset: int = 0) -> int:
        """See :class:`Disk`."""
        return self.local.read_into(handle, buffer, size, offset)

    def drop_cache(self, handle: int) -> None:
        """See :class:`Disk`."""
        self.local.drop_cache(handle)

    def sync_directory(self, path: str) -> None:
        """See :class:`Disk`."""
        self.local.sync_directory(path)

    def allocate(self, handle: int, size: int) -> None:
        """See :class:`Disk`."""
        self.local.allocate(handle, size)

    def size(self, handle: int) -> int:
        """See :class:`Disk`."""
        return self.local.size(handle)

    def is_shared(self, path: str) -> bool:
        """See :class:`Disk`."""
        return self.local.is_shared(path)

    def free(self, path: str) -> int:
        """See :class:`Disk`."""
        return self.local.free(path)

    def lock(self, handle: int) -> bool:
        """See :class:`Disk`."""
        return self.local.lock(handle)
