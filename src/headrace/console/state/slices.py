# SPDX-License-Identifier: Apache-2.0
"""Long tasks in slices, between which the console serves requests."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from headrace.console.state.deltas import Steps, WorkResult

SLICE_S = 0.002  # Time of work after which requests are served.


class Slices:
    """Yields to the event loop after each slice of work."""

    def __init__(self) -> None:
        self._until_s = time.monotonic() + SLICE_S

    async def step(self) -> None:
        """Yield to the event loop if the slice is over."""
        if time.monotonic() > self._until_s:
            await asyncio.sleep(0)
            self._until_s = time.monotonic() + SLICE_S

    async def run(self, steps: Steps[WorkResult]) -> WorkResult:
        """Run all steps of a task; return its result."""
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return cast("WorkResult", done.value)
            await self.step()
