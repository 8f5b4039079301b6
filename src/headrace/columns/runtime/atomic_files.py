# SPDX-License-Identifier: Apache-2.0
"""Durable writes of small files and of names, which survive a crash once the call returns.

Temporary names begin with a dot, so that Spark, Arrow and other readers ignore them.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, data: str | bytes) -> None:
    """Replace a file atomically: readers see the old or the new content, even after a crash."""
    content = data.encode() if isinstance(data, str) else data
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Make the names in a directory durable."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def sync_folders(folder: Path, root: Path) -> None:
    """Make the names in a directory and its parents durable, up to `root`."""
    while True:
        sync_folder(folder)
        if folder == root or root not in folder.parents:
            return
        folder = folder.parent


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
