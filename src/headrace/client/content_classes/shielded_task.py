# SPDX-License-Identifier: Apache-2.0
"""A coroutine that runs to its end even if its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Generic, TypeVar

Result = TypeVar("Result")


class ShieldedTask(Generic[Result]):
    """A task that a cancelled caller does not end: the broker expects the rest of its methods."""

    def __init__(self, coroutine: Coroutine[object, None, Result]) -> None:
        self._task = asyncio.get_running_loop().create_task(coroutine)
        self._task.add_done_callback(_read_error)

    async def outcome(self) -> Result:
        """Wait for the task and return its result; a cancelled wait does not cancel the task."""
        return await asyncio.shield(self._task)


def _read_error(task: asyncio.Task[Result]) -> None:
    """Read the error, so that asyncio does not log it when no caller waits."""
    if not task.cancelled():
        task.exception()
