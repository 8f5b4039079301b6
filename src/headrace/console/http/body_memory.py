# SPDX-License-Identifier: Apache-2.0
"""Limits of the memory that the bodies of users' requests take.

A request acquires the bytes of its body before it reads the body, and releases them after its
answer. Small and large bodies have separate budgets, so that an import does not delay small
changes. A request waits with its body unread while too few bytes are free, and is refused after
``WAIT_S``. Bodies of requests without a login are short (:mod:`.limits`) and are not counted.
"""

from __future__ import annotations

import asyncio
from collections import deque

from headrace.console.http.limits import BODY_BYTES_MAX
from headrace.console.http_errors import RETRY_AFTER, HttpError
from headrace.heap import trim_memory

SMALL_HELD_MAX = 64 << 20  # Bytes of bodies up to BODY_BYTES_MAX.
LARGE_HELD_MAX = 32 << 20  # Bytes of larger bodies; a body above it takes the whole budget.
WAIT_S = 30.0  # The longest wait.
RETURN_S = 1.0  # The time after which the memory of large bodies is returned to the system.


class ByteBudget:
    """A number of bytes that requests acquire, first come first served, and release."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.held = 0

    async def acquire(self, size: int) -> None:
        """Acquire bytes; wait while too few are free, in the order of the calls.

        Raises:
            HttpError: the wait takes longer than ``WAIT_S``.
        """
        size = min(size, self._bytes_max)
        if not self._waiters and self._fits(size):
            self.held += size
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((size, waiter))
        try:
            async with asyncio.timeout(WAIT_S):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():  # Granted just before the error.
                self.release(size)
            self._grant()  # The next waiter may fit.
            if not isinstance(error, TimeoutError):
                raise
            size_mib = self._bytes_max >> 20
            reason = f"bodies of {size_mib} MiB are held at a time; send the request again later"
            raise HttpError(503, reason, headers=RETRY_AFTER, closes=True) from None

    def release(self, size: int) -> None:
        """Release bytes."""
        self.held -= min(size, self._bytes_max)
        self._grant()

    def _fits(self, size: int) -> bool:
        return self.held + size <= self._bytes_max

    def _grant(self) -> None:
        while self._waiters and (self._waiters[0][1].done() or self._fits(self._waiters[0][0])):
            size, waiter = self._waiters.popleft()
            if not waiter.done():
                self.held += size
                waiter.set_result(None)


class BodyMemory:
    """The memory for bodies of one port: one budget for small bodies, one for large ones."""

    def __init__(self) -> None:
        self.small = ByteBudget(SMALL_HELD_MAX)
        self.large = ByteBudget(LARGE_HELD_MAX)
        self._return_timer: asyncio.TimerHandle | None = None

    async def acquire(self, size: int) -> None:
        """Acquire the bytes of a body.

        Raises:
            HttpError: too few bytes are free for too long.
        """
        await self._budget_for(size).acquire(size)

    def release(self, size: int) -> None:
        """Release the bytes of a body."""
        budget = self._budget_for(size)
        budget.release(size)
        if budget is self.large and not budget.held and self._return_timer is None:
            self._return_timer = asyncio.get_running_loop().call_later(RETURN_S, self._return)

    def _budget_for(self, size: int) -> ByteBudget:
        return self.small if size <= BODY_BYTES_MAX else self.large

    def _return(self) -> None:
        self._return_timer = None
        trim_memory()
