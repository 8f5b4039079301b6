# SPDX-License-Identifier: Apache-2.0
"""Replacing a file that the disk failed to write.

After a failed write or sync the contents of the device are unknown. The page cache keeps showing
what was written and marks its pages clean. Writing the same places again does not help: on ext4
(kernel 6.18) the next sync succeeds, and the places read as zeros after the file system is mounted
again. The failed page may have held older records, too.

So such a file is never written again. Its contents, and what was to be written, go into a new file,
which is synced, read back from the device and compared before it takes the name. What the page
cache has of the old file is used for that: it is correct, only not durable.

A process that crashes before leaves such a file behind. After an unclean stop a start therefore
compares the last file as it was read with what the device holds.
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
PAGE = 4096  # Bytes left out where the old file cannot be read.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

Octets = bytes | bytearray | memoryview


def failed(error: OSError) -> bool:
    """Return True if a failed write may have damaged the file; one for lack of room does not."""
    return error.errno not in NO_ROOM


def write_anew(
    disk: Disk, path: str, old: int, kept: int, octets: Sequence[Octets], size: int
) -> int:
    """Replace a file that failed by a new one; return its handle.

    It has the first ``kept`` bytes of the open file ``old``, then ``octets``; room is reserved for
    ``size``.

    Raises:
        OSError: it could not be done; the name is the old file's, or the new one's.
    """
    handle, end, lost = make(disk, path, old, kept, octets, size)
    log.error(
        "%s failed to be written: all %d bytes of it are in a new file now, read back and "
        "compared; %d bytes of the old one could not be read",
        path,
        end,
        lost,
    )
    return handle


def write_whole(disk: Disk, path: str, octets: bytes) -> None:
    """Write a small file completely or not at all.

    Raises:
        OSError: it could not be done.
    """
    disk.close(make(disk, path, -1, 0, [octets], 0)[0])


def make(
    disk: Disk, path: str, old: int, kept: int, octets: Sequence[Octets], size: int
) -> tuple[int, int, int]:
    """Make a file, verify it, and give it its name; see :func:`write_anew`.

    Return its handle, its size, and how many bytes of the old one were unreadable.
    """
    made = path + NEW
    disk.remove(made)
    handle = disk.open(made, create=True)
    try:
        end = kept + sum(map(len, octets))
        disk.allocate(handle, max(size, end))
        digest = hashlib.blake2b()
        lost = 0
        for at in range(0, kept, CHUNK):
            chunk, missing = read_old(disk, old, min(CHUNK, kept - at), at)
            lost += missing
            disk.write(handle, [chunk], at)
            digest.update(chunk)
        disk.write(handle, octets, kept)
        for part in octets:
            digest.update(part)
        disk.sync(handle)
        disk.drop_cache(handle)
        actual = hashlib.blake2b()
        for at in range(0, end, CHUNK):
            actual.update(disk.read(handle, min(CHUNK, end - at), at))
        if actual.digest() != digest.digest():
            raise OSError(errno.EIO, f"{made} does not have the written content")
        disk.rename(made, path)
        disk.sync_directory(path.rpartition("/")[0])
    except BaseException:
        disk.close(handle)
        raise
    return handle, end, lost


def read_old(disk: Disk, handle: int, size: int, at: int) -> tuple[bytes, int]:
    """Read bytes of a failed file; return them, and how many are zeros because unreadable."""
    try:
        octets = disk.read(handle, size, at)
        return octets + bytes(size - len(octets)), size - len(octets)
    except OSError:
        if size <= PAGE:
            return bytes(size), size
    parts, lost = [], 0
    for place in range(at, at + size, PAGE):
        part, missing = read_old(disk, handle, min(PAGE, at + size - place), place)
        parts.append(part)
        lost += missing
    return b"".join(parts), lost


def prove(disk: Disk, path: str, handle: int, buffer: bytearray, end: int) -> bool:
    """Compare the first ``end`` bytes of a file as read with what the device holds.

    Return False if they differ; then a new file with what was read has its name. Its name is
    durable, too: a process that died may have left a new file whose name was not yet synced.

    Raises:
        OSError: no new file could be written.
    """
    with memoryview(buffer) as view, view[:end] as octets:
        try:
            disk.drop_cache(handle)
            same = all(
                disk.read(handle, min(CHUNK, end - at), at) == bytes(octets[at : at + CHUNK])
                for at in range(0, end, CHUNK)
            )
            if same:
                disk.sync_directory(os.path.dirname(path))
        except OSError:
            same = False
        if not same:
            disk.close(write_anew(disk, path, -1, 0, [octets], end))
    return same
