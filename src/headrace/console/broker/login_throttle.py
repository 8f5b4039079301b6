# SPDX-License-Identifier: Apache-2.0
"""Limits of simultaneous logins of one client address; further ones wait in a queue.

After failed logins the broker delays the next logins of an address, and each of them occupies a
connection to the broker meanwhile. The throttle leaves connections for other addresses. A user who
has logged in from an address before has a separate queue for it, so that guesses of other names do
not delay the user. The broker makes the delay: ``throttle`` and ``access`` of
``headrace.gateway.security``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING

from headrace.console.broker.errors import BUSY, OperationRefused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LOGINS_OF_PEER_MAX = 10  # Simultaneous logins of one queue.
WAIT_S = 10.0  # The longest wait in a queue.
USUAL_MAX = 4096  # Users with an address that they have logged in from.


class LoginQueue:
    """The logins of one address, or of one user at an address."""

    __slots__ = ("length", "turns")

    def __init__(self) -> None:
        self.length = 0  # Logins that wait or run.
        self.turns = asyncio.Semaphore(LOGINS_OF_PEER_MAX)


class LoginThrottle:
    """The queues of logins of all client addresses."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], LoginQueue] = {}
        self._usual: OrderedDict[tuple[str, str], None] = OrderedDict()

    @contextlib.asynccontextmanager
    async def turn(self, host: str, name: str) -> AsyncIterator[None]:
        """Wait for the turn of a login, which runs in the block; it fails if the block raises.

        Raises:
            OperationRefused: the wait takes longer than ``WAIT_S``.
        """
        peer_and_user = (host, name)
        key = peer_and_user if peer_and_user in self._usual else (host, "")
        queue = self._queues.setdefault(key, LoginQueue())
        queue.length += 1
        try:
            try:
                async with asyncio.timeout(WAIT_S):
                    await queue.turns.acquire()
            except TimeoutError:
                reason = f"too many logins from {host} wait; try again in a moment"
                raise OperationRefused(BUSY, reason) from None
            try:
                yield
            finally:
                queue.turns.release()
        finally:
            queue.length -= 1
            if not queue.length:
                del self._queues[key]
        if name:
            self._usual[peer_and_user] = None
            self._usual.move_to_end(peer_and_user)
            if len(self._usual) > USUAL_MAX:
                self._usual.popitem(last=False)
