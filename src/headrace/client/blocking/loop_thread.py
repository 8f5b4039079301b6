# SPDX-License-Identifier: Apache-2.0
"""The thread of the blocking client's event loop, and how other threads call it."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.client.blocking.waiting import outcome
from headrace.client.errors import UsageError

if TYPE_CHECKING:
    from headrace.client.blocking.backlog import Line, Settlement
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
        line: Line | None = None,
        *,
        lasting: bool = False,
        unwanted: Callable[[Result], object] | None = None,
    ) -> Result:
        """Run `work` on the loop, after everything in `line`, and wait for its outcome.

        Work that is `lasting` goes on when this thread is interrupted; other work is cancelled.
        `unwanted` gets a result that this thread was interrupted before it had; it is called on the
        loop's thread.
        """
        loop = self.get()
        try:
            self.check()
        except UsageError:
            work.close()
            raise
        handing = _Handing(unwanted)
        bounded = _bounded(work, timeout_s, line, handing)
        try:
            future = asyncio.run_coroutine_threadsafe(bounded, loop)
            try:
                return outcome(future)
            finally:
                if not lasting:
                    future.cancel()  # If this thread was interrupted while it waited.
        except BaseException:
            loop.call_soon_threadsafe(handing.interrupted)
            if not lasting:
                # Once a cancelled task has run, what it had not begun can be thrown away.
                loop.call_soon_threadsafe(loop.call_soon, _discard, bounded, work)
            raise


class _Handing(Generic[Result]):
    """The result of a call on its way to a thread. Used on the loop's thread."""

    def __init__(self, unwanted: Callable[[Result], object] | None) -> None:
        self._unwanted = unwanted
        self._results: list[Result] = []
        self._is_interrupted = False

    def made(self, result: Result) -> None:
        """The call has a result."""
        self._results.append(result)
        if self._is_interrupted:
            self.interrupted()

    def interrupted(self) -> None:
        """The thread does not get a result."""
        self._is_interrupted = True
        results, self._results = self._results, []
        if self._unwanted is not None:
            for result in results:
                self._unwanted(result)


def _discard(*unfinished: Coroutine[object, None, object]) -> None:
    for coroutine in unfinished:
        if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            coroutine.close()


async def _bounded(
    work: Coroutine[object, None, Result],
    timeout_s: float | None,
    line: Line | None,
    handing: _Handing[Result],
) -> Result:
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            if line is not None:
                await line.emptied()
            result = await work
            handing.made(result)
            return result
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"no answer within {timeout_s} s") from None
        raise


LOOP = Loop()


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
        LOOP.run(close())


def collect(reading: AsyncIterator[Result]) -> list[Result]:
    """Return all items of an asynchronous iterator."""

    async def read_all() -> list[Result]:
        return [item async for item in reading]

    return LOOP.run(read_all())


class Blocking:
    """A blocking twin: the asyncio object that does the work, and calls that wait for it."""

    _source: object
    _timeout_s: float | None = None  # Of every call.

    def __repr__(self) -> str:
        return repr(self._source)

    def _run(self, work: Coroutine[object, None, Result]) -> Result:
        return LOOP.run(work, self._timeout_s)

    def _each(self, reading: AsyncGenerator[Result, None]) -> Iterator[Result]:
        return each(reading, self._timeout_s)


class Handover:
    """Publishes and settlements on their way to the loop, in order and many at a time."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._waiting: list[tuple[Line, Publication | Settlement]] = []
        self._due = False  # Whether the loop was asked to take them.

    def add(self, line: Line, errand: Publication | Settlement) -> None:
        """Send it soon, after everything added before."""
        with self._lock:
            self._waiting.append((line, errand))
            if not self._due:  # Also after a thread that was interrupted before it asked.
                LOOP.get().call_soon_threadsafe(self._hand_over)
                self._due = True

    def _hand_over(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._due = False
        for line, errand in waiting:
            line.take(errand)


HANDOVER = Handover()


def _forked() -> None:
    """Forget the loop in a child process, which does not have its thread."""
    LOOP.reset()
    HANDOVER.reset()


os.register_at_fork(after_in_child=_forked)
