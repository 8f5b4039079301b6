# SPDX-License-Identifier: Apache-2.0
"""The memory that bodies of users' requests take at a time.

A request acquires the bytes of its body before it reads the body, and releases them after its
answer. Small and large bodies have budgets of their own, so that an import does not delay small
changes. A request that does not fit waits in line, unread, and is refused after ``LINE_S``. Bodies
of strangers are short (:mod:`.limits`) and are not counted.
"""

from __future__ import annotations

import asyncio
from collections import deque

from headrace.console.http.limits import BODY_BYTES_MAX
from headrace.console.http_errors import RETRY_AFTER, HttpError
from headrace.heap import trim_memory

SMALL_HELD_MAX = 64 << 20  # Bytes of bodies of BODY_BYTES_MAX at most.
LARGE_HELD_MAX = 32 << 20  # Of larger ones; a body larger than this is held alone.
LINE_S = 30.0  # Longest wait.
RETURN_S = 1.0  # After large bodies their memory goes back to the system.


class ByteBudget:
    """A number of bytes that requests acquire and release, in the order of their requests."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.held = 0

    async def acquire(self, size: int) -> None:
        """Acquire bytes; wait in line while too few are free.

        Raises:
            HttpError: the wait takes longer than ``LINE_S``.
        """
        size = min(size, self._most)
        if not self._line and self._fits(size):
            self.held += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size, turn))
        try:
            async with asyncio.timeout(LINE_S):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # Granted in the same moment.
                self.release(size)
            self._serve()  # The next in line may fit.
            if not isinstance(error, TimeoutError):
                raise
            most = self._most >> 20
            reason = f"bodies of {most} MiB are held at a time; send the request again later"
            raise HttpError(503, reason, headers=RETRY_AFTER, closes=True) from None

    def release(self, size: int) -> None:
        """Release bytes."""
        self.held -= min(size, self._most)
        self._serve()

    def _fits(self, size: int) -> bool:
        return self.held + size <= self._most

    def _serve(self) -> None:
        while self._line and (self._line[0][1].done() or self._fits(self._line[0][0])):
            size, turn = self._line.popleft()
            if not turn.done():
                self.held += size
                turn.set_result(None)


class BodyMemory:
    """The memory for bodies of one port: one budget for small bodies, one for large ones."""

    def __init__(self) -> None:
        self.small = ByteBudget(SMALL_HELD_MAX)
        self.large = ByteBudget(LARGE_HELD_MAX)
        self._returning: asyncio.TimerHandle | None = None

    async def acquire(self, size: int) -> None:
        """Acquire the bytes of a body.

        Raises:
            HttpError: too few bytes are free for too long.
        """
        await self._of(size).acquire(size)

    def release(self, size: int) -> None:
        """Release the bytes of a body."""
        budget = self._of(size)
        budget.release(size)
        if budget is self.large and not budget.held and self._returning is None:
            self._returning = asyncio.get_running_loop().call_later(RETURN_S, self._return)

    def _of(self, size: int) -> ByteBudget:
        return self.small if size <= BODY_BYTES_MAX else self.large

    def _return(self) -> None:
        self._returning = None
        trim_memory()
