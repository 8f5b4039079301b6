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

RETURNED_MIN = 32 << 20  # Bytes; to return less costs more than it saves.
OUTPUT_SHARE = 4  # Outputs and inputs may take 1/4 of the memory before reads get smaller.
# Thresholds of the three generations. A connection that ended is some 30 objects in a circle, so
# that the first one bounds what waits for a collection to 1 MiB.
COLLECT_RARELY = (10_000, 20, 50)
CGROUP_MEMORY_MAX = Path("/sys/fs/cgroup/memory.max")


def raise_open_files() -> None:
    """Raise the limit of file descriptors as far as the system allows: a connection takes one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class MemoryReturn:
    """Returns memory to the system when much less is in use than before."""

    def __init__(self) -> None:
        self._peak = 0  # The highest use in bytes since memory was last returned.

    def update(self, used: int) -> bool:
        """Set the bytes in use; return True if memory was returned."""
        self._peak = max(self._peak, used)
        if self._peak - used < RETURNED_MIN or used > self._peak // 2:
            return False
        self._peak = used
        trim_memory()
        return True


def collect_rarely() -> None:
    """Have the garbage collector run rarely, also during recovery.

    It tracks no messages, only objects such as connections and channels.
    """
    gc.set_threshold(*COLLECT_RARELY)


def settle_garbage_collector() -> None:
    """Exclude the objects that live as long as the process, and collect rarely."""
    gc.collect()
    gc.freeze()
    collect_rarely()


def freeze_objects() -> None:
    """Exclude all present objects from collections, in a process that was settled.

    Called now and then while a hundred thousand queues are made, so that no collection walks all
    of them. Cyclic garbage of this moment is never collected.
    """
    if gc.get_threshold()[:2] == COLLECT_RARELY[:2]:  # Python 3.14 may know no third.
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
    """Return the memory limit in bytes: the setting, at most 40% of the available memory."""
    return min(setting, memory_available() * 2 // 5)


def limit_memory(counters: Counters, pool: BufferPool, setting: int) -> None:
    """Set the memory limits of messages, and of outputs and inputs."""
    counters.memory_max = memory_max(setting)
    pool.used_max = counters.memory_max // OUTPUT_SHARE
