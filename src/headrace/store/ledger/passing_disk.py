# SPDX-License-Identifier: Apache-2.0
"""A disk that passes every call to another disk; subclasses override some calls."""

from collections.abc import Sequence

from headrace.store.disk import Disk


class PassingDisk(Disk):
    """Passes every call to the disk ``local``."""

    def __init__(self, local: Disk) -> None:
        self.local = local

    def open(self, path: str, *, create: bool = False) -> int:
        return self.local.open(path, create=create)

    def close(self, handle: int) -> None:
        self.local.close(handle)

    def sync(self, handle: int) -> None:
        self.local.sync(handle)

    def truncate(self, handle: int, size: int) -> None:
        self.local.truncate(handle, size)

    def rename(self, old: str, new: str) -> None:
        self.local.rename(old, new)

    def remove(self, path: str) -> None:
        self.local.remove(path)

    def remove_directory(self, path: str) -> None:
        self.local.remove_directory(path)

    def write(
        self, handle: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int
    ) -> None:
        self.local.write(handle, buffers, offset)

    def make_directory(self, path: str) -> None:
        self.local.make_directory(path)

    def is_directory(self, path: str) -> bool:
        return self.local.is_directory(path)

    def make_one_directory(self, path: str) -> None:
        self.local.make_one_directory(path)

    def names(self, path: str) -> list[str]:
        return self.local.names(path)

    def open_directory(self, path: str) -> int:
        return self.local.open_directory(path)

    def open_unnamed(self, directory: str) -> int:
        return self.local.open_unnamed(directory)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        return self.local.read(handle, size, offset)

    def read_into(self, handle: int, buffer: bytearray, size: int, offset: int = 0) -> int:
        return self.local.read_into(handle, buffer, size, offset)

    def drop_cache(self, handle: int) -> None:
        self.local.drop_cache(handle)

    def sync_directory(self, path: str) -> None:
        self.local.sync_directory(path)

    def allocate(self, handle: int, size: int) -> None:
        self.local.allocate(handle, size)

    def size(self, handle: int) -> int:
        return self.local.size(handle)

    def is_shared(self, path: str) -> bool:
        return self.local.is_shared(path)

    def free(self, path: str) -> int:
        return self.local.free(path)

    def lock(self, handle: int) -> bool:
        return self.local.lock(handle)
