# SPDX-License-Identifier: Apache-2.0
"""The number of a journal's last segment, kept outside of the journal.

Each segment names the one before it, so a missing one in between is noticed. The last one is named
by a file of 24 bytes: its number is written there once something in it is durable, one sync for
each segment. If that fails the previous number stays and a loss may go unnoticed; nothing is
delayed.
"""

import os

from headrace.store.disk import Disk
from headrace.store.segment.record import residue

NAME = "reached"
MAGIC = b"REACHED\n"
SIZE = 24


def read_reached(disk: Disk, directory: str) -> int:
    """Return the number of the last segment; 0 if unknown."""
    if NAME not in disk.names(directory):
        return 0
    handle = disk.open(os.path.join(directory, NAME))
    try:
        data = disk.read(handle, SIZE, 0)
    finally:
        disk.close(handle)
    if len(data) < SIZE or data[:8] != MAGIC or _check(data[:16]) != data[16:]:
        return 0
    return int.from_bytes(data[8:16], "big")


def write_reached(disk: Disk, directory: str, number: int) -> None:
    """Write the number durably.

    Raises:
        OSError: the number could not be written.
    """
    data = MAGIC + number.to_bytes(8, "big")
    new = NAME not in disk.names(directory)
    handle = disk.open(os.path.join(directory, NAME), create=True)
    try:
        disk.write(handle, [data + _check(data)], 0)
        disk.sync(handle)
    finally:
        disk.close(handle)
    if new:
        disk.sync_directory(directory)


def _check(data: bytes) -> bytes:
    return residue(0, data, 0, len(data)).to_bytes(8, "big")
