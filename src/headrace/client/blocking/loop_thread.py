# SPDX-License-Identifier: Apache-2.0
"""The thread of the blocking client's event loop, and how other threads call it."""

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


class Loop:
    """The thread with the event loop; started when first needed."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin without a thread."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the loop, running."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=self._loop.run_forever, name="headrace-client", daemon=True
                )
                thread.start()
            return self._loop

    def check(self) -> None:
        """Raise UsageError on the loop's own thread, which must not wait for itself."""
        if asyncio._get_running_loop() is not None and asyncio._get_running_loop() is self._loop:
            raise UsageError("a callback must not call the blocking client: it would wait forever")

    def run(
        self,
        work: Coroutine[object, None, Result],
        timeout_s: float | None = None,
        outbox: Outbox | None = None,
        *,
        lasting: bool = False,
        unwanted: Callable[[Result], object] | None = None,
    ) -> Result:
        """Run `work` on the loop, after everything in `outbox`, and wait for its outcome.

        An interruption of this thread cancels the work, but `lasting` work, such as a close, is
        completed, and begun if necessary. If the interruption comes after the result, `unwanted`
        gets the result, on the loop's thread.
        """
        try:
            self.check()
            loop = self.get()
            call = _Call(loop, work, timeout_s, outbox, lasting=lasting, unwanted=unwanted)
        except BaseException:
            work.close()
            raise
        try:
            loop.call_soon_threadsafe(call.begin)
            return call.outcome()
        except BaseException:
            loop.call_soon_threadsafe(call.leave)
            raise


class _Call(Generic[Result]):
    """Work for the loop, and its result on the way to the thread that waits for it.

    The thread may be interrupted at any step, also when it has just handed over the work. So it
    never asks whether the loop has it: `leave` finds out on the loop's thread.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[object, None, Result],
        timeout_s: float | None,
        outbox: Outbox | None,
        *,
        lasting: bool,
        unwanted: Callable[[Result], object] | None,
    ) -> None:
        self._loop = loop
        self._work = work
        self._timeout_s = timeout_s
        self._outbox = outbox
        self._lasting = lasting
        self._unwanted = unwanted
        self._begun = self._left = False
        self._task: asyncio.Task[Result] | None = None
        self._results: list[Result] = []  # Results that the thread has not received.
        self._is_over = False
        self._over = Wakeup()

    def outcome(self) -> Result:
        """Wait for the end of the work; return its result or raise its error."""
        self._over.wait(lambda: self._is_over)
        task, self._task = self._task, None
        assert task is not None
        try:
            return task.result()
        except asyncio.CancelledError:  # Asyncio's error is for tasks; this thread has none.
            raise CancelledError from None
        finally:
            del task  # Its error refers to this frame.

    # --- On the loop's thread -----------------------------------------------------------------

    def begin(self) -> None:
        """Begin the work, unless the thread has left before it."""
        if not self._begun:
            self._begun = True
            self._task = self._loop.create_task(self._run_in_time())
            self._task.add_done_callback(self._ended)

    def leave(self) -> None:
        """The thread was interrupted and does not get the result."""
        self._left = True
        if self._lasting:
            self.begin()
        elif self._task is not None:
            self._task.cancel()
        elif not self._begun:
            self._begun = True
            self._work.close()
        self._dispose()

    async def _run_in_time(self) -> Result:
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                if self._outbox is not None:
                    await self._outbox.drain()
                result = await self._work
                self._results.append(result)
                return result
        except TimeoutError:
            if limit.expired():
                if self._lasting and inspect.getcoroutinestate(self._work) == inspect.CORO_CREATED:
                    _in_background(self._work)  # The thread no longer waits for what is before it.
                raise TimeoutError(f"no answer within {self._timeout_s} s") from None
            raise

    def _ended(self, task: asyncio.Task[Result]) -> None:
        if not self._lasting:
            self._work.close()  # If it was cancelled before it began.
        if not task.cancelled():
            task.exception()  # Read it, so that asyncio does not log it when the thread has left.
        if self._left:
            self._dispose()
        self._is_over = True
        self._over.wake()

    def _dispose(self) -> None:
        results, self._results = self._results, []
        if self._unwanted is not None:
            for result in results:
                self._unwanted(result)


LOOP = Loop()
_WORKING: set[asyncio.Task[None]] = set()  # asyncio itself keeps no task alive.


def leave(entered: AbstractAsyncContextManager[object]) -> None:
    """Leave a block whose begin this thread was interrupted in; for `unwanted`."""
    _in_background(entered.__aexit__(KeyboardInterrupt, KeyboardInterrupt(), None))


def _in_background(work: Coroutine[object, None, object]) -> None:
    """Do work whose outcome no thread waits for. Called on the loop's thread."""

    async def do() -> None:
        with suppress(ClientError):
            await work

    task = asyncio.get_running_loop().create_task(do())
    _WORKING.add(task)
    task.add_done_callback(_WORKING.discard)


def each(reading: AsyncGenerator[Result, None], timeout_s: float | None = None) -> Iterator[Result]:
    """Give the items of an asynchronous generator; TimeoutError when one takes too long."""
    turn = asyncio.Lock()  # An interrupted `following` ends before `close` begins.

    async def following() -> Result | None:
        async with turn:
            return await anext(reading, None)

    async def close() -> None:
        async with turn:
            await reading.aclose()

    try:
        while (item := LOOP.run(following(), timeout_s)) is not None:
            yield item
    finally:
        LOOP.run(close(), lasting=True)


def collect(reading: AsyncIterator[Result]) -> list[Result]:
    """Return all items of an asynchronous iterator."""

    async def read_all() -> list[Result]:
        return [item async for item in reading]

    return LOOP.run(read_all())


class Blocking:
    """A blocking twin: the asyncio object that does the work, and calls that wait for it."""

    _source: object
    _timeout_s: float | None = None  # The timeout of every call.

    def __repr__(self) -> str:
        return repr(self._source)

    def _run(
        self,
        work: Coroutine[object, None, Result],
        *,
        lasting: bool = False,
        unwanted: Callable[[Result], object] | None = None,
    ) -> Result:
        return LOOP.run(work, self._timeout_s, lasting=lasting, unwanted=unwanted)

    def _each(self, reading: AsyncGenerator[Result, None]) -> Iterator[Result]:
        return each(reading, self._timeout_s)


class Handover:
    """Publishes and settlements on their way to the loop, in order and many at a time."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._waiting: list[tuple[Outbox, Publication | Settlement]] = []
        self._due = False  # Whether the loop will run `_hand_over`.

    def add(self, outbox: Outbox, outgoing: Publication | Settlement) -> None:
        """Send an item soon, after all items added before."""
        with self._lock:
            self._waiting.append((outbox, outgoing))
            if not self._due:  # An interrupted thread may not have woken the loop.
                LOOP.get().call_soon_threadsafe(self._hand_over)
                self._due = True

    def _hand_over(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._due = False
        for outbox, outgoing in waiting:
            outbox.take(outgoing)


HANDOVER = Handover()


def _reset_after_fork() -> None:
    """Forget the loop in a child process, which does not have its thread."""
    LOOP.reset()
    HANDOVER.reset()


os.register_at_fork(after_in_child=_reset_after_fork)
