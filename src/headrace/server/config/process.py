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
RETURNED_MIN = 32 << 20  # Octets; to give back less is not worth the walk through the heap.
COLLECT_RARELY = (50_000, 20, 50)  # Thresholds of the three generations.
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


def trim_memory() -> None:
    """Give the system back what is free between blocks that are in use."""
    if not sys.platform.startswith("linux"):
        return
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError) as error:  # Another C library.
        log.debug("malloc_trim is not there: %s", error)


class MemoryReturn:
    """Notices when much less memory is in use than before, and gives the rest back."""

    def __init__(self) -> None:
        self._most = 0  # Octets in use, at most, since memory was last given back.

    def look(self, used: int) -> bool:
        """Note how many octets are in use; return True if memory was given back."""
        self._most = max(self._most, used)
        if self._most - used < RETURNED_MIN or used > self._most // 2:
            return False
        self._most = used
        trim_memory()
        return True


def collect_rarely() -> None:
    """Have the garbage collector look rarely, also while all that was kept is taken up.

    Messages are not tracked, so what comes and goes is connections, channels and their like.
    """
    gc.set_threshold(*COLLECT_RARELY)


def settle_garbage_collector() -> None:
    """Leave what lives as long as the process out of every collection, and collect rarely."""
    gc.collect()
    gc.freeze()
    collect_rarely()


def keep_what_lives() -> None:
    """Leave what is there now out of every collection, too, in a process that was settled.

    Whoever makes a hundred thousand queues at once calls it now and then, so that no collection
    looks at all of them. What is garbage with cycles at this moment stays.
    """
    if gc.get_threshold() == COLLECT_RARELY:
        gc.freeze()


def memory_available() -> int:
    """Octets of memory that this process may use at most: the machine's, or its control group's."""
    octets = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = CGROUP_MEMORY_MAX.read_text().strip()
    except OSError:  # No control groups, or those of version 1.
        return octets
    return min(octets, int(limit)) if limit.isdigit() else octets
