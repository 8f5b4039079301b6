# SPDX-License-Identifier: Apache-2.0
"""The memory that the C library keeps for the process."""

from __future__ import annotations

import ctypes
import logging
import sys

log = logging.getLogger(__name__)

M_MMAP_THRESHOLD = -3  # The constant of malloc.h.
LARGE_BLOCK = 1 << 20  # Bytes.


def return_large_blocks() -> None:
    """Have the C library return large blocks to the system as soon as they are free.

    By default the library raises its threshold for large blocks when the first one is freed, such
    as the memory of a password hash. An idle broker would keep that memory.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)
    except (OSError, AttributeError) as error:  # Another C library.
        log.debug("mallopt is missing: %s", error)


def trim_memory() -> None:
    """Return free memory between blocks in use to the system."""
    if not sys.platform.startswith("linux"):
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError) as error:  # Another C library.
        log.debug("malloc_trim is missing: %s", error)
