# SPDX-License-Identifier: Apache-2.0
"""The name of the management socket, and its address for clients and the broker."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

FILE_NAME = "management.sock"  # In the data directory.
PATH_OCTETS_MAX = 107  # Longest address of a Unix socket; longer paths go by /proc.


@contextlib.contextmanager
def short_address(path: Path) -> Generator[str, None, None]:
    """An address for a path, through its directory's descriptor where the path is too long."""
    if len(os.fsencode(path)) <= PATH_OCTETS_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
