# SPDX-License-Identifier: Apache-2.0
"""Errors, cancellations and interrupts that end a block or a wait of a client early."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
    suppress,
)
from typing import Any, TypeVar

import pytest

from headrace.client.blocking import loop_thread
from support.timeouts import PATIENCE_S

Result = TypeVar("Result")

# Ways to leave a block, each with the exception that leaves it.
ENDS: dict[str, type[BaseException] | None] = {
    "error": ZeroDivisionError,
    "cancellation": asyncio.CancelledError,
    "timeout": TimeoutError,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": SystemExit,
    "GeneratorExit": GeneratorExit,
    "none": None,
}
RAISED = [end for end in ENDS if end not in ("cancellation", "timeout")]


async def leave(end: str, block: AbstractAsyncContextManager[object]) -> None:
    """Enter a block and leave it by one of `ENDS`, whose exception must come out of it."""
    entered = asyncio.Event()

    async def inside(limit: asyncio.Timeout | None = None) -> None:
        async with block:
            entered.set()
            if limit is not None:
                limit.reschedule(asyncio.get_running_loop().time())
            error = ENDS[end]
            if end in RAISED:
                if error is not None:
                    raise error
                return
            await asyncio.get_running_loop().create_future()

    match end:
        case "none":
            await inside()
        case "cancellation":
            task = asyncio.create_task(inside())
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        case "timeout":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(PATIENCE_S) as limit:
                    await inside(limit)
        case _:
            with pytest.raises(ENDS[end] or ()):
                await inside()


class After(AbstractAsyncContextManager[None]):
    """A block that awaits `first` with the value of another block before its body."""

    def __init__(
        self,
        block: AbstractAsyncContextManager[Any],
        first: Callable[[Any], Awaitable[object]],
    ) -> None:
        self._block = block
        self._first = first

    async def __aenter__(self) -> None:
        await self._first(await self._block.__aenter__())

    async def __aexit__(self, *error: object) -> None:
        await self._block.__aexit__(*error)  # type: ignore[arg-type]


async def cancel_once_asked(task: asyncio.Task[Any]) -> None:
    """Let a task send its request, then cancel it while it waits for the answer."""
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancel_after(turns: int, work: Coroutine[object, None, Result]) -> Result | None:
    """Cancel a coroutine after some iterations of the loop; return its result, else None."""
    task = asyncio.create_task(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        return await task
    return None


def leave_blocking(end: str, block: AbstractContextManager[object]) -> None:
    """Enter a blocking block and leave it by one of `ENDS`, whose exception must come out."""
    error = ENDS[end]
    if error is None:
        with block:
            return
    with pytest.raises(error), block:
        raise error


@contextmanager
def interrupted(monkeypatch: pytest.MonkeyPatch, when: str) -> Iterator[None]:
    """Raise KeyboardInterrupt in the thread that waits for a call of the block.

    Args:
        monkeypatch: replaces the class of calls during the block.
        when: "unbegun" interrupts before the loop runs the call, "answered" after its result, and
            any other text at once.
    """
    gate = threading.Event()

    class Call(loop_thread._Call[Any]):
        def wait_result(self) -> None:
            if when == "answered":
                super().wait_result()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch:  # noqa: PT012
        patch.setattr(loop_thread, "_Call", Call)
        if when == "unbegun":
            loop_thread.LOOP.start().call_soon_threadsafe(gate.wait)
        try:
            yield
        finally:
            gate.set()
