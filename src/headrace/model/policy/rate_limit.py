# SPDX-License-Identifier: Apache-2.0
"""A rate limit shared by publishers."""

from __future__ import annotations

BURST_MS = 100.0  # The burst after a pause: the units of this time at the rate.


class RateLimit:
    """An average rate per second; excess is delayed, not refused."""

    def __init__(self, rate: int) -> None:
        """``rate`` is at least 1."""
        self.rate = rate
        self._due_ms = 0.0  # The time at which the work so far is within the rate.

    def spend(self, count: int, now_ms: int) -> int:
        """Count ``count`` units; return the milliseconds to wait before the next unit."""
        if not count:
            return 0
        self._due_ms = max(self._due_ms, now_ms - BURST_MS) + count * 1000.0 / self.rate
        return max(0, int(self._due_ms - now_ms))
