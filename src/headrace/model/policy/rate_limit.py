# SPDX-License-Identifier: Apache-2.0
"""A rate: how long whoever takes part has to wait after what they did."""

from __future__ import annotations

BURST_MS = 100.0  # What may come at once after a pause, as time at the rate.


class RateLimit:
    """So many a second on average, for all that share it; nothing is refused, only waited for."""

    def __init__(self, rate: int) -> None:
        """``rate`` is at least 1."""
        self.rate = rate
        self._due_ms = 0.0  # When all that was done so far is paid for.

    def spend(self, count: int, now_ms: int) -> int:
        """Note that so many were done; return how many milliseconds to wait before the next."""
        if not count:
            return 0
        self._due_ms = max(self._due_ms, now_ms - BURST_MS) + count * 1000.0 / self.rate
        return max(0, int(self._due_ms - now_ms))
