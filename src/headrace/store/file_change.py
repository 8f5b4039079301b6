# SPDX-License-Identifier: Apache-2.0
"""Changes of files, as a disk that replicates them has them."""

from collections.abc import Sequence
from typing import NamedTuple

WRITE = 1  # Write octets to a file, which is created if missing.
REMOVE = 2  # Remove a file.
REMOVE_DIRECTORY = 3  # Remove a directory and its files.
TRUNCATE = 4  # Cut a file at the place, or extend it with zeros.


class Change(NamedTuple):
    """A change of a file or directory."""

    kind: int
    path: str
    at: int = 0
    pieces: Sequence[bytes | bytearray | memoryview] = ()  # Of a write.
