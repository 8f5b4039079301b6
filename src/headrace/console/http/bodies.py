# SPDX-License-Identifier: Apache-2.0
"""How many bytes of bodies of users' requests the console holds at a time.

A request holds the bytes of its body from before it is read until it is answered. Large bodies and
others are counted apart, so that an import does not keep back small changes. What does not fit
waits in line, unread, and is refused after a while. Strangers' bodies are short
(`headrace.console.http.limits`), and are not counted.
"""

from __future__ import annotations

import asyncio
from collections import deque

from headrace.console.http.errors import HttpError
from headrace.console.http.limits import BODY_BYTES_MAX
from headrace.heap import trim_memory

SMALL_HELD_MAX = 64 << 20  # Bytes of bodies of BODY_BYTES_MAX at most.
LARGE_HELD_MAX = 32 << 20  # Of larger ones; a body larger than this is held alone.
LINE_S = 30.0  # Longest wait.
RETURN_S = 1.0  # After large bodies their memory goes back to the system.


class Purse:
    """Bytes that are taken and given back."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.held = 0

    async def take(self, size: int) -> None:
        """Hold bytes, in the order in which they are asked for.

        Raises:
            HttpError: it takes too long.
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
            if turn.done() and not turn.cancelled():  # It came in the same moment.
                self.give(size)
            self._serve()  # Those behind it may fit.
            if not isinstance(error, TimeoutError):
                raise
            most = self._most >> 20
            reason = f"bodies of {most} MiB are held at a time; send the request again later"
            headers = {"Retry-After": "5"}
            raise HttpError(503, reason, headers=headers, closes=True) from None

    def give(self, size: int) -> None:
        """Give bytes back."""
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


class Bodies:
    """The bodies of one port."""

    def __init__(self) -> None:
        self.small = Purse(SMALL_HELD_MAX)
        self.large = Purse(LARGE_HELD_MAX)
        self._returning: asyncio.TimerHandle | None = None

    async def take(self, size: int) -> None:
        """Hold the bytes of a body.

        Raises:
            HttpError: others hold too many for too long.
        """
        await self._of(size).take(size)

    def give(self, size: int) -> None:
        """Give back what was taken for a body."""
        purse = self._of(size)
        purse.give(size)
        if purse is self.large and not purse.held and self._returning is None:
            self._returning = asyncio.get_running_loop().call_later(RETURN_S, self._return)

    def _of(self, size: int) -> Purse:
        return self.small if size <= BODY_BYTES_MAX else self.large

    def _return(self) -> None:
        self._returning = None
        trim_memory()
