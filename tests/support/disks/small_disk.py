# SPDX-License-Identifier: Apache-2.0
"""A file system that is soon full."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MiB, which root alone can mount."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = os.geteuid() == 0
    if mounted:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", place], check=True)
    yield place
    if mounted:
        subprocess.run(["umount", "-l", place], check=True)


def fill(place: Path) -> None:
    """Take the last octet of a file system; of one that is not small, as much as we may."""
    with (place / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.tell() < 64 << 20:
            file.write(bytes(4096))
