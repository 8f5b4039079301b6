# SPDX-License-Identifier: Apache-2.0
"""Work of several steps that is done once it has begun, whether its caller waits or not."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Generic, TypeVar

Result = TypeVar("Result")


class ShieldedTask(Generic[Result]):
    """A task that cancellation does not end: the broker expects the rest of its methods."""

    def __init__(self, work: Coroutine[object, None, Result]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(_read)

    async def outcome(self) -> Result:
        """Wait for its outcome; a cancelled wait leaves the work as it is."""
        return await asyncio.shield(self._task)


def _read(task: asyncio.Task[Result]) -> None:
    """Read the error, so that asyncio does not log it when no caller waits."""
    if not task.cancelled():
        task.exception()
