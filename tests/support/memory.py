# SPDX-License-Identifier: Apache-2.0
"""Measure the memory that a function retains, apart from other threads of the process."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FRAMES_MAX = 32  # Frames of a traceback. Deeper allocations are not counted.


def retained_bytes(work: Callable[[], object]) -> int:
    """Return the number of bytes that a function allocates and does not free.

    Only allocations with this module in their traceback count, as other threads, such as those of a
    Spark session, allocate memory meanwhile.
    """
    gc.collect()  # Collects objects of other tests, whose warnings would allocate memory later.
    tracemalloc.start(FRAMES_MAX)
    try:
        work()
        gc.collect()
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    own_frames = tracemalloc.Filter(True, __file__, all_frames=True)
    return sum(trace.size for trace in snapshot.filter_traces([own_frames]).traces)
