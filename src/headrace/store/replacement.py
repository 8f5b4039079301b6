# SPDX-License-Identifier: Apache-2.0
"""Replacing a file that the disk failed to write.

After a failed write or sync the contents of the device are unknown. The page cache keeps the
written bytes and marks its pages clean. Writing the same places again does not help: on ext4
(kernel 6.18) the next sync succeeds, and the places read as zeros after the file system is mounted
again. The failed page may have held older records, too.

So such a file is never written again. Its contents, and the bytes to be written, go into a new
file, which is synced, read back from the device and compared before it replaces the old file. The
contents are read from the page cache, which is correct, though not durable.

A process that crashes before that leaves the failed file behind. So after an unclean stop a start
compares the last file, as read from the page cache, with the contents of the device.
"""

import errno
import hashlib
import logging
import os
from collections.abc import Sequence

from headrace.store.disk import Disk

log = logging.getLogger(__name__)

NEW = ".new"  # Suffix of an incomplete file.
CHUNK = 1 << 20  # Bytes copied and compared at a time.
PAGE = 4096  # Bytes that are skipped at each unreadable place of the old file.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

BytesLike = bytes | bytearray | memoryview


def may_have_damaged(error: OSError) -> bool:
    """Return True if a failed write may have damaged the file, as lack of room does not."""
    return error.errno not in NO_ROOM


def replace_file(
    disk: Disk, path: str, old_handle: int, kept_size: int, data: Sequence[BytesLike], size: int
) -> int:
    """Replace a failed file by a new file; return the handle of the new file.

    The new file has the first ``kept_size`` bytes of the open file ``old_handle``, then ``data``.
    ``size`` bytes are reserved for it.

    Raises:
        OSError: it is unknown whether the path names the old file or the new one.
    """
    handle, end, lost = make_verified_file(disk, path, old_handle, kept_size, data, size)
    log.error(
        "%s failed to be written: all %d bytes of it are in a new file now, read back and "
        "compared; %d bytes of the old one could not be read",
        path,
        end,
        lost,
    )
    return handle


def write_whole(disk: Disk, path: str, data: bytes) -> None:
    """Write a small file completely or not at all.

    Raises:
        OSError: the file could not be written.
    """
    disk.close(make_verified_file(disk, path, -1, 0, [data], 0)[0])


def make_verified_file(
    disk: Disk, path: str, old_handle: int, kept_size: int, data: Sequence[BytesLike], size: int
) -> tuple[int, int, int]:
    """Write a new file, verify it, and rename it to ``path``; see :func:`replace_file`.

    Return its handle, its size, and the number of unreadable bytes of the old file.
    """
    new_path = path + NEW
    disk.remove(new_path)
    handle = disk.open(new_path, create=True)
    try:
        end = kept_size + sum(map(len, data))
        disk.allocate(handle, max(size, end))
        digest = hashlib.blake2b()
        lost = 0
        for offset in range(0, kept_size, CHUNK):
            chunk, missing = read_failed_file(
                disk, old_handle, min(CHUNK, kept_size - offset), offset
            )
            lost += missing
            disk.write(handle, [chunk], offset)
            digest.update(chunk)
        disk.write(handle, data, kept_size)
        for part in data:
            digest.update(part)
        disk.sync(handle)
        disk.drop_cache(handle)
        actual = hashlib.blake2b()
        for offset in range(0, end, CHUNK):
            actual.update(disk.read(handle, min(CHUNK, end - offset), offset))
        if actual.digest() != digest.digest():
            raise OSError(errno.EIO, f"{new_path} does not have the written content")
        disk.rename(new_path, path)
        disk.sync_directory(path.rpartition("/")[0])
    except BaseException:
        disk.close(handle)
        raise
    return handle, end, lost


def read_failed_file(disk: Disk, handle: int, size: int, offset: int) -> tuple[bytes, int]:
    """Read bytes of a failed file; return them, and how many are unreadable and so zeros."""
    try:
        data = disk.read(handle, size, offset)
        return data + bytes(size - len(data)), size - len(data)
    except OSError:
        if size <= PAGE:
            return bytes(size), size
    pages, lost = [], 0
    for page_offset in range(offset, offset + size, PAGE):
        page, missing = read_failed_file(
            disk, handle, min(PAGE, offset + size - page_offset), page_offset
        )
        pages.append(page)
        lost += missing
    return b"".join(pages), lost


def verify_or_replace(disk: Disk, path: str, handle: int, buffer: bytearray, end: int) -> bool:
    """Compare the first ``end`` bytes of ``buffer`` with the file on the device.

    If they differ, replace the file by a new one with the bytes of the buffer, and return False.
    In both cases the file's name is durable: a process that crashed may have left it unsynced.

    Raises:
        OSError: no new file could be written.
    """
    with memoryview(buffer) as view, view[:end] as data:
        try:
            disk.drop_cache(handle)
            same = all(
                disk.read(handle, min(CHUNK, end - offset), offset)
                == bytes(data[offset : offset + CHUNK])
                for offset in range(0, end, CHUNK)
            )
            if same:
                disk.sync_directory(os.path.dirname(path))
        except OSError:
            same = False
        if not same:
            disk.close(replace_file(disk, path, -1, 0, [data], end))
    return same
