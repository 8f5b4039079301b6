# SPDX-License-Identifier: Apache-2.0
"""Unanswered requests of one channel. The broker replies in the order of the requests."""

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
    # Called with an answer whose waiter was cancelled.
    discard: Callable[[Answer], None] | None = None


class Calls:
    """The unanswered requests of a channel."""

    def __init__(self, number: int, backpressure: Backpressure) -> None:
        self._number = number
        self._backpressure = backpressure
        self._pending: deque[PendingCall] = deque()

    def send_request(
        self, link: Link, request: MethodBase, *replies: type[MethodBase]
    ) -> PendingCall:
        """Send a request; `wait_reply` waits for one of the replies."""
        link.send(self._number, request)
        return self.expect(*replies)

    def expect(self, *replies: type[MethodBase]) -> PendingCall:
        """Expect one of these replies, after those of earlier requests."""
        call = PendingCall(replies, asyncio.get_running_loop().create_future())
        self._pending.append(call)
        return call

    def drop(self, call: PendingCall) -> None:
        """Forget a request that was not sent."""
        self._pending.remove(call)

    def is_reply(self, method: MethodBase) -> bool:
        """Return True if the method may answer the oldest request."""
        return bool(self._pending) and isinstance(method, self._pending[0].replies)

    async def wait_reply(self, call: PendingCall) -> Answer:
        """Wait for the reply; if the wait is cancelled, the call's `discard` gets the reply."""
        self._backpressure.wait_begins()
        try:
            return await call.future
        except asyncio.CancelledError:
            # The answer may have arrived in the same turn of the loop.
            if not call.future.cancelled() and call.future.exception() is None:
                _discard_answer(call, call.future.result())
            raise
        finally:
            self._backpressure.wait_ends()

    async def exchange(self, link: Link, request: MethodBase, reply: type[Reply]) -> Reply:
        """Send a request and return its reply."""
        method, _, _ = await self.wait_reply(self.send_request(link, request, reply))
        assert isinstance(method, reply)
        return method

    def handle_reply(self, method: MethodBase, header: bytes, body: bytes) -> None:
        """Set the answer of the oldest request; AmqpError when the method does not answer it."""
        if not self._pending:
            raise AmqpError(ReplyCode.COMMAND_INVALID, f"{method.NAME} without a request")
        call = self._pending[0]
        if not isinstance(method, call.replies):
            names = " or ".join(kind.NAME for kind in call.replies)
            raise AmqpError(ReplyCode.COMMAND_INVALID, f"{method.NAME} instead of {names}")
        self._pending.popleft()
        if call.future.done():
            _discard_answer(call, (method, header, body))
        else:
            call.future.set_result((method, header, body))

    def fail(self, error: ClientError) -> None:
        """Fail all requests with `error`."""
        pending, self._pending = self._pending, deque()
        for call in pending:
            if not call.future.done():
                call.future.set_exception(fresh(error))
                call.future.exception()  # Read, so that asyncio does not log an unawaited error.


def _discard_answer(call: PendingCall, answer: Answer) -> None:
    """Pass an answer whose waiter was cancelled to the call's `discard`."""
    if call.discard is not None:
        call.discard(answer)
