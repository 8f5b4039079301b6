# SPDX-License-Identifier: Apache-2.0
"""The delay of the event loop: the time from when a callback is due until it runs.

A timer is due every ``INTERVAL_S``; its delay is one sample. A callback that runs for longer than
the interval always delays the timer, a shorter one with a probability that grows with its length.
So the samples are distributed like the waits of clients' frames, and their cost does not depend on
the load.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left

INTERVAL_S = 0.05
BOUNDS_S = (0.002, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0)  # An idle loop is up to a millisecond late.


class LoopDelay:
    """The samples of one loop."""

    def __init__(self) -> None:
        # The numbers of samples up to each bound, and above the bound before it.
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0
        self.longest_s = 0.0

    def note(self, late_s: float) -> None:
        """Count a sample."""
        late_s = max(0.0, late_s)
        self.counts[bisect_left(BOUNDS_S, late_s)] += 1
        self.sum_s += late_s
        self.longest_s = max(self.longest_s, late_s)

    def by_bound(self) -> dict[str, int]:
        """Return the numbers of samples by bound, in seconds as text; "+Inf" is the last one."""
        return dict(zip((*map(str, BOUNDS_S), "+Inf"), self.counts, strict=True))

    async def watch(self) -> None:
        """Take samples until the task is cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            self.note(clock() - due)
