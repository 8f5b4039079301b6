# SPDX-License-Identifier: Apache-2.0
"""Small files and names that survive a crash: when a call returns, they are on the disk.

Temporary names begin with a dot, so that Spark, Arrow and others do not read them as data.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, data: str | bytes) -> None:
    """Replace a file: readers, and crashes, find the old content or the new."""
    octets = data.encode() if isinstance(data, str) else data
    other = path.with_name(f".{path.name}.{os.getpid()}")
    with other.open("wb") as file:
        file.write(octets)
        file.flush()
        os.fsync(file.fileno())
    other.replace(path)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Make what is in a file durable."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Make the names in a directory durable."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def sync_folders(folder: Path, root: Path) -> None:
    """Sync a directory and its parents, up to `root`."""
    while True:
        sync_folder(folder)
        if folder == root or root not in folder.parents:
            return
        folder = folder.parent


def _sync(path: Path, flags: int) -> None:
    number = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
