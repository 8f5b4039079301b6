# SPDX-License-Identifier: Apache-2.0
"""What a broker that has a process of its own sets up in it."""

import ctypes
import gc
import logging
import os
import resource
import sys
from pathlib import Path

log = logging.getLogger(__name__)

M_MMAP_THRESHOLD = -3  # Of malloc.h.
LARGE_BLOCK = 1 << 20  # Octets.
CGROUP_MEMORY_MAX = Path("/sys/fs/cgroup/memory.max")


def raise_open_files() -> None:
    """Take as many file descriptors as the system gives: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def return_large_blocks() -> None:
    """Have the C library give large blocks back to the system as soon as they are free.

    Left alone it learns from the first large block, such as the memory that hashing a password
    takes, to keep all that are not larger; idle brokers would hold on to it.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)
    except (OSError, AttributeError) as error:  # Another C library.
        log.debug("mallopt is not there: %s", error)


def settle_garbage_collector() -> None:
    """Leave what lives as long as the process out of every collection, and collect rarely.

    Messages are not tracked, so what comes and goes is connections, channels and their like.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def memory_available() -> int:
    """Octets of memory that this process may use at most: the machine's, or its control group's."""
    octets = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = CGROUP_MEMORY_MAX.read_text().strip()
    except OSError:  # No control groups, or those of version 1.
        return octets
    return min(octets, int(limit)) if limit.isdigit() else octets
