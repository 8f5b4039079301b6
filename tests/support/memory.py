# SPDX-License-Identifier: Apache-2.0
"""How much memory a work keeps, whatever else runs in the process."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FRAMES_MAX = 32  # From an allocation up. Where a work calls deeper, it does not count.


def kept_octets(work: Callable[[], object]) -> int:
    """Return the bytes that a work allocated and that are still there.

    Other threads, such as those of a session of Spark, allocate meanwhile: only what has a call
    from here in its traceback counts.
    """
    gc.collect()  # What other tests left would give its warnings meanwhile, and they take memory.
    tracemalloc.start(FRAMES_MAX)
    try:
        work()
        gc.collect()
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    of_work = tracemalloc.Filter(True, __file__, all_frames=True)
    return sum(trace.size for trace in snapshot.filter_traces([of_work]).traces)
