# SPDX-License-Identifier: Apache-2.0
"""Requests of one channel whose replies are awaited. Replies come in the order of the requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from headrace.client.errors import ClientError, fresh
from headrace.protocol.codec_0_x import MethodBase
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from headrace.client.link.backpressure import Backpressure
    from headrace.client.link.link_0_x import Link

Answer = tuple[MethodBase, bytes, bytes]  # A method, and the header and body of its content.
Reply = TypeVar("Reply", bound=MethodBase)


@dataclass(slots=True, eq=False)
class PendingCall:
    """One request: the methods that may answer it, and a future of the answer."""

    replies: tuple[type[MethodBase], ...]
    future: asyncio.Future[Answer]
    # Takes an answer whose waiter was cancelled.
    unwanted: Callable[[Answer], None] | None = None


class Calls:
    """The unanswered requests of a channel."""

    def __init__(self, number: int, backpressure: Backpressure) -> None:
        self._number = number
        self._backpressure = backpressure
        self._waiting: deque[PendingCall] = deque()

    def ask(self, link: Link, request: MethodBase, *replies: type[MethodBase]) -> PendingCall:
        """Send a request without waiting for its reply."""
        link.send(self._number, request)
        return self.expect(*replies)

    def expect(self, *replies: type[MethodBase]) -> PendingCall:
        """Expect one of these replies, after those of earlier requests."""
        call = PendingCall(replies, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        return call

    def drop(self, call: PendingCall) -> None:
        """Forget a request that was not sent."""
        self._waiting.remove(call)

    def answers(self, method: MethodBase) -> bool:
        """Return True if the method is an expected reply."""
        return bool(self._waiting) and isinstance(method, self._waiting[0].replies)

    async def answer(self, call: PendingCall) -> Answer:
        """Wait for a reply."""
        self._backpressure.wait_begins()
        try:
            return await call.future
        except asyncio.CancelledError:
            # The answer may have come in the same turn of the loop.
            if not call.future.cancelled() and call.future.exception() is None:
                _abandon(call, call.future.result())
            raise
        finally:
            self._backpressure.wait_ends()

    async def exchange(self, link: Link, request: MethodBase, reply: type[Reply]) -> Reply:
        """Send a request and return its reply."""
        method, _, _ = await self.answer(self.ask(link, request, reply))
        assert isinstance(method, reply)
        return method

    def replied(self, method: MethodBase, header: bytes, body: bytes) -> None:
        """Take a reply; AmqpError when it answers no request, or not the oldest."""
        if not self._waiting:
            raise AmqpError(ReplyCode.COMMAND_INVALID, f"{method.NAME} without a request")
        call = self._waiting[0]
        if not isinstance(method, call.replies):
            names = " or ".join(kind.NAME for kind in call.replies)
            raise AmqpError(ReplyCode.COMMAND_INVALID, f"{method.NAME} instead of {names}")
        self._waiting.popleft()
        if call.future.done():
            _abandon(call, (method, header, body))
        else:
            call.future.set_result((method, header, body))

    def fail(self, error: ClientError) -> None:
        """Fail all requests with `error`."""
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            if not call.future.done():
                call.future.set_exception(fresh(error))
                call.future.exception()  # Read it, so that asyncio does not log an unawaited error.


def _abandon(call: PendingCall, answer: Answer) -> None:
    """Take an answer whose waiter was cancelled."""
    if call.unwanted is not None:
        call.unwanted(answer)
