# SPDX-License-Identifier: Apache-2.0
"""The delay of the event loop: the time from the readiness of a callback to its step.

A timer is due every ``INTERVAL_S``; how late it runs is one sample. A step that holds the loop for
longer than the interval is seen for certain, a shorter one by a share of its length. So samples
show the wait of a client's frame, and cost the same under any load.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left

INTERVAL_S = 0.05
BOUNDS_S = (0.002, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0)  # A sleep ends up to a millisecond late.


class LoopDelay:
    """The samples of one loop."""

    def __init__(self) -> None:
        # Numbers of samples by the first bound that they do not exceed.
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
        """Return the samples between each bound, in seconds, and the one before."""
        return dict(zip((*map(str, BOUNDS_S), "+Inf"), self.counts, strict=True))

    async def watch(self) -> None:
        """Take samples until it is cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            self.note(clock() - due)
