# SPDX-License-Identifier: Apache-2.0
"""The name of the management socket, its address, and a name that the console has there."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

FILE_NAME = "management.sock"  # The name of the socket in the data directory.
# The field ``agent`` of the console's own requests, which it sends for no user. It gives no rights.
CONSOLE_AGENT = "headrace console"
PATH_BYTES_MAX = 107  # The longest address of a Unix socket.


@contextlib.contextmanager
def short_address(path: Path) -> Generator[str, None, None]:
    """Return an address of a Unix socket for a path, valid inside the block.

    For a path that is too long for an address, the address is below ``/proc/self/fd``, with an open
    descriptor of the path's directory.
    """
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
