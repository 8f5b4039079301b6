# SPDX-License-Identifier: Apache-2.0
"""The blocking client's event loop: its thread, and calls to it from the program's threads."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.client.blocking.wakeup import Wakeup
from headrace.client.errors import ClientError, UsageError

if TYPE_CHECKING:
    from headrace.client.channel.delivery import Outbox, Settlement
    from headrace.client.channel.outgoing import Publication

Result = TypeVar("Result")


class LoopThread:
    """A daemon thread that runs the event loop; the first call starts it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the thread: the next call starts another."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> asyncio.AbstractEventLoop:
        """Start the thread unless it runs; return its loop."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=self._loop.run_forever, name="headrace-client", daemon=True
                )
                thread.start()
            return self._loop

    def check_other_thread(self) -> None:
        """Raise UsageError if this is the loop's own thread, which must not wait for itself."""
        if asyncio._get_running_loop() is not None and asyncio._get_running_loop() is self._loop:
            raise UsageError("a callback must not call the blocking client: it would wait forever")

    def run(
        self,
        coroutine: Coroutine[object, None, Result],
        timeout_s: float | None = None,
        outbox: Outbox | None = None,
        *,
        must_finish: bool = False,
        discard: Callable[[Result], object] | None = None,
    ) -> Result:
        """Run `coroutine` on the loop, after all items of `outbox`; return its result.

        An exception in this thread, such as KeyboardInterrupt, cancels the coroutine. With
        `must_finish`, as for a close, the coroutine is run to its end instead. If the coroutine had
        returned by then, `discard` is called with its result on the loop's thread.

        Raises:
            TimeoutError: the coroutine took more than `timeout_s` seconds.
            UsageError: the caller is a callback on the loop's own thread.
        """
        try:
            self.check_other_thread()
            loop = self.start()
            call = _Call(
                loop, coroutine, timeout_s, outbox, must_finish=must_finish, discard=discard
            )
        except BaseException:
            coroutine.close()
            raise
        try:
            loop.call_soon_threadsafe(call.start)
            return call.wait_result()
        except BaseException:
            loop.call_soon_threadsafe(call.abandon)
            raise


class _Call(Generic[Result]):
    """One coroutine that runs on the loop while a thread waits for its result.

    An exception may interrupt the thread at any step, before or after the loop received the call.
    So the thread cannot know which; `abandon`, on the loop's thread, does.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[object, None, Result],
        timeout_s: float | None,
        outbox: Outbox | None,
        *,
        must_finish: bool,
        discard: Callable[[Result], object] | None,
    ) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self._timeout_s = timeout_s
        self._outbox = outbox
        self._must_finish = must_finish
        self._discard = discard
        self._is_started = self._is_abandoned = False
        self._task: asyncio.Task[Result] | None = None
        self._results: list[Result] = []  # The result, until `_discard_results` removes it.
        self._is_finished = False
        self._finished = Wakeup()

    def wait_result(self) -> Result:
        """Wait for the end of the coroutine; return its result or raise its error."""
        self._finished.wait(lambda: self._is_finished)
        task, self._task = self._task, None
        assert task is not None
        try:
            return task.result()
        except asyncio.CancelledError:  # asyncio's error is for tasks, and this is a thread.
            raise CancelledError from None
        finally:
            del task  # The task's error refers to this frame, which would be a reference cycle.

    # --- On the loop's thread -----------------------------------------------------------------

    def start(self) -> None:
        """Start the coroutine, unless the call was abandoned before."""
        if not self._is_started:
            self._is_started = True
            self._task = self._loop.create_task(self._run_within_timeout())
            self._task.add_done_callback(self._task_done)

    def abandon(self) -> None:
        """Cancel or finish the coroutine: its thread was interrupted and gets no result."""
        self._is_abandoned = True
        if self._must_finish:
            self.start()
        elif self._task is not None:
            self._task.cancel()
        elif not self._is_started:
            self._is_started = True
            self._coroutine.close()
        self._discard_results()

    async def _run_within_timeout(self) -> Result:
        timeout = asyncio.timeout(self._timeout_s)
        try:
            async with timeout:
                if self._outbox is not None:
                    await self._outbox.drain()
                result = await self._coroutine
                self._results.append(result)
                return result
        except TimeoutError:
            if timeout.expired():
                if (
                    self._must_finish
                    and inspect.getcoroutinestate(self._coroutine) == inspect.CORO_CREATED
                ):
                    _run_in_background(self._coroutine)  # The timeout was in `drain`, before it.
                raise TimeoutError(f"no answer within {self._timeout_s} s") from None
            raise

    def _task_done(self, task: asyncio.Task[Result]) -> None:
        if not self._must_finish:
            self._coroutine.close()  # A task cancelled early has not awaited it.
        if not task.cancelled():
            task.exception()  # Read, so that asyncio does not log the error of an abandoned call.
        if self._is_abandoned:
            self._discard_results()
        self._is_finished = True
        self._finished.wake()

    def _discard_results(self) -> None:
        results, self._results = self._results, []
        if self._discard is not None:
            for result in results:
                self._discard(result)


LOOP = LoopThread()
_BACKGROUND_TASKS: set[asyncio.Task[None]] = set()  # Referenced here: asyncio's are weak.


def leave_interrupted(context: AbstractAsyncContextManager[object]) -> None:
    """Leave a context whose `with` statement was interrupted while it entered; for `discard`."""
    _run_in_background(context.__aexit__(KeyboardInterrupt, KeyboardInterrupt(), None))


def _run_in_background(coroutine: Coroutine[object, None, object]) -> None:
    """Run a coroutine that no thread waits for, and ignore its ClientError.

    Called on the loop's thread.
    """

    async def run() -> None:
        with suppress(ClientError):
            await coroutine

    task = asyncio.get_running_loop().create_task(run())
    _BACKGROUND_TASKS.add(task)
    task.add_done_callback(_BACKGROUND_TASKS.discard)


def iterate(
    source: AsyncGenerator[Result, None], timeout_s: float | None = None
) -> Iterator[Result]:
    """Yield the items of an asynchronous generator.

    Raises:
        TimeoutError: an item took more than `timeout_s` seconds.
    """
    lock = asyncio.Lock()  # `close` waits for the end of an interrupted `next_item`.

    async def next_item() -> Result | None:
        async with lock:
            return await anext(source, None)

    async def close() -> None:
        async with lock:
            await source.aclose()

    try:
        while (item := LOOP.run(next_item(), timeout_s)) is not None:
            yield item
    finally:
        LOOP.run(close(), must_finish=True)


def collect(source: AsyncIterator[Result]) -> list[Result]:
    """Return all items of an asynchronous iterator."""

    async def read_all() -> list[Result]:
        return [item async for item in source]

    return LOOP.run(read_all())


class BlockingWrapper:
    """The base of the blocking classes: each wraps an asyncio object and waits for its calls."""

    _source: object
    _timeout_s: float | None = None  # The timeout of every call in seconds; None for none.

    def __repr__(self) -> str:
        return repr(self._source)

    def _run(
        self,
        coroutine: Coroutine[object, None, Result],
        *,
        must_finish: bool = False,
        discard: Callable[[Result], object] | None = None,
    ) -> Result:
        return LOOP.run(coroutine, self._timeout_s, must_finish=must_finish, discard=discard)

    def _iterate(self, source: AsyncGenerator[Result, None]) -> Iterator[Result]:
        return iterate(source, self._timeout_s)


class Handover:
    """Passes publishes and settlements from the program's threads to the loop, in batches.

    One for all channels: items reach the outboxes of their channels in the order of `add`.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all items, and the lock."""
        self._lock = threading.Lock()
        self._items: list[tuple[Outbox, Publication | Settlement]] = []
        self._is_scheduled = False  # True while the loop has a call of `_hand_over` to run.

    def add(self, outbox: Outbox, item: Publication | Settlement) -> None:
        """Pass an item to its outbox on the loop, after all items added before."""
        with self._lock:
            self._items.append((outbox, item))
            if not self._is_scheduled:
                LOOP.start().call_soon_threadsafe(self._hand_over)
                # Set last: a thread interrupted before it may not have woken the loop.
                self._is_scheduled = True

    def _hand_over(self) -> None:
        with self._lock:
            items, self._items = self._items, []
            self._is_scheduled = False
        for outbox, item in items:
            outbox.submit(item)


HANDOVER = Handover()


def _reset_after_fork() -> None:
    """Forget the loop in a child process, where its thread does not run."""
    LOOP.reset()
    HANDOVER.reset()


os.register_at_fork(after_in_child=_reset_after_fork)
