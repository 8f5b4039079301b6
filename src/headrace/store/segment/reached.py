# SPDX-License-Identifier: Apache-2.0
"""The file ``reached``: the number of a journal's last segment.

Each segment names the previous one, so a start notices a missing segment between two others. This
file of 24 bytes names the last one. Its number is written once a record of the segment is durable,
with one sync for each segment. If that fails, nothing is delayed: the previous number stays, and a
start may not notice that the last segment is lost.
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
