# SPDX-License-Identifier: Apache-2.0
"""Limits of the process: memory, open files, garbage collection."""

from __future__ import annotations

import gc
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.heap import trim_memory

if TYPE_CHECKING:
    from headrace.model.counters import Counters
    from headrace.protocol.output import BufferPool

RETURNED_MIN = 32 << 20  # Bytes; returning less costs more than it saves.
OUTPUT_SHARE = 4  # Outputs and inputs may take 1/4 of the memory before reads get smaller.
# The thresholds of the collector's three generations. An ended connection is a cycle of some 30
# objects, so the first threshold bounds uncollected connections to 1 MiB.
COLLECT_RARELY = (10_000, 20, 50)
CGROUP_MEMORY_MAX = Path("/sys/fs/cgroup/memory.max")


def raise_open_files() -> None:
    """Raise the limit of file descriptors to the system's maximum; a connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class MemoryReturn:
    """Returns memory to the system when much less is in use than before."""

    def __init__(self) -> None:
        self._peak = 0  # The highest use in bytes since memory was last returned.

    def update(self, used: int) -> bool:
        """Report the bytes in use; return True if this returned memory to the system."""
        self._peak = max(self._peak, used)
        if self._peak - used < RETURNED_MIN or used > self._peak // 2:
            return False
        self._peak = used
        trim_memory()
        return True


def collect_rarely() -> None:
    """Have the garbage collector run rarely.

    It tracks objects such as connections and channels, but no messages.
    """
    gc.set_threshold(*COLLECT_RARELY)


def settle_garbage_collector() -> None:
    """Exclude the objects that live as long as the process, and collect rarely."""
    gc.collect()
    gc.freeze()
    collect_rarely()


def freeze_objects() -> None:
    """Exclude all present objects from collections, in a process with a settled collector.

    It is called repeatedly while many queues are created, so that no collection walks all of them.
    The present cyclic garbage is never collected.
    """
    if gc.get_threshold()[:2] == COLLECT_RARELY[:2]:  # Python 3.14 may have two thresholds.
        gc.freeze()


def memory_available() -> int:
    """Return the bytes of memory of the machine, or of the process's control group."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = CGROUP_MEMORY_MAX.read_text().strip()
    except OSError:  # No control groups, or those of version 1.
        return available
    return min(available, int(limit)) if limit.isdigit() else available


def memory_max(setting: int) -> int:
    """Return the memory limit in bytes: the setting, but at most 40% of the available memory."""
    return min(setting, memory_available() * 2 // 5)


def limit_memory(counters: Counters, pool: BufferPool, setting: int) -> None:
    """Set the memory limits of messages, and of outputs and inputs."""
    counters.memory_max = memory_max(setting)
    pool.used_max = counters.memory_max // OUTPUT_SHARE
