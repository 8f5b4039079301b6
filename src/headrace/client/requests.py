# SPDX-License-Identifier: Apache-2.0
"""Requests to a broker as messages, in all versions of AMQP.

Headrace answers requests on the queues `amq.headrace.pipeline` (docs/reference/pipeline-service.md)
and `amq.headrace.transactions`: JSON objects, sent with a reply-to and a correlation id.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.client.channel.closing import AsyncClosing
from headrace.client.errors import ClientError, ConnectionLost, UsageError, fresh
from headrace.client.link.capabilities import is_headrace
from headrace.client.message import Message, decode_properties
from headrace.protocol.codec_0_x import BasicConsume, BasicDeliver

if TYPE_CHECKING:
    from headrace.client.channel.channel import Channel
    from headrace.client.connection.channel_source import ChannelSource

# A decoded JSON object: each kind of request has fields of its own in the answer.
Answer = dict[str, Any]

PIPELINE = "amq.headrace.pipeline"
ANSWER_S = 30.0  # The default timeout of an answer.
PENDING_MAX = 1000  # The maximum number of unanswered requests of one `Requests`.
RETRIES_MAX = 3  # The maximum number of times that a request is sent again after a lost connection.

_REPLY_TO = "amq.rabbitmq.reply-to"
_TAG = "answers"


class RequestRefused(ClientError):
    """The broker refused a request. `code`: see docs/reference/pipeline-service.md."""

    def __init__(self, code: str, text: str, request: str = "") -> None:
        super().__init__(code, text, request)
        self.code = code
        self.text = text
        self.request = request

    def __str__(self) -> str:
        return f"{self.request}: {self.text}" if self.request else self.text


class Requests(AsyncClosing):
    """Sends requests to one queue of a broker; up to 1000 may be unanswered at a time.

    The first request opens a channel; `async with`, or `close`, closes it. Requests are sent again
    after a reconnection, so they must be idempotent. The requests of `amq.headrace.pipeline` are
    idempotent; those that move or copy messages need an `id` for it. Requests wait while the broker
    blocks the connection.
    """

    def __init__(
        self, connection: ChannelSource, queue: str = PIPELINE, *, timeout_s: float = ANSWER_S
    ) -> None:
        self.queue = queue
        self.timeout_s = timeout_s
        self._connection = connection
        self._answers: _AnswerConsumer | None = None
        self._opening = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Requests to {self.queue!r} of {self._connection!r}>"

    @property
    def connection(self) -> ChannelSource:
        """The connection that carries the requests."""
        return self._connection

    async def ask(self, what: str, **fields: object) -> Answer:
        """Send a request with its fields; return the answer.

        Raises RequestRefused when the broker refuses it, TimeoutError when no answer arrives within
        `timeout_s` seconds, UsageError when the broker is not a Headrace that serves requests.
        """
        return await self.send({"do": what, **fields})

    async def send(self, request: Mapping[str, object]) -> Answer:
        """Send a request as one object, with its name as `do`; otherwise the same as `ask`."""
        body = json.dumps(request, separators=(",", ":")).encode()
        name = str(request.get("do", ""))
        exchange = asyncio.ensure_future(self._exchange(body))
        try:
            while not exchange.done():
                done, _ = await asyncio.wait([exchange], timeout=self.timeout_s)
                if not done and self._connection.blocked is None:
                    address = self._connection.address
                    text = f"{address} did not answer {name!r} within {self.timeout_s} s"
                    raise TimeoutError(text)
        finally:
            exchange.cancel()
        answer: Answer = json.loads(exchange.result())
        if "error" in answer:
            raise RequestRefused(str(answer.get("code", "")), str(answer["error"]), name)
        return answer

    async def close(self) -> None:
        """Close the channel; unanswered requests fail."""
        answers, self._answers = self._answers, None
        if answers is not None:
            answers.fail(UsageError("the requests were closed by this program"))
            await answers.channel.close()

    # --- Inside -------------------------------------------------------------------------------

    async def _exchange(self, body: bytes) -> bytes:
        for _ in range(RETRIES_MAX):
            try:
                return await self._exchange_once(body)
            except ConnectionLost:
                await self._connection.ready()
                if self._connection.is_closed:
                    raise
        return await self._exchange_once(body)

    async def _exchange_once(self, body: bytes) -> bytes:
        answers = await self._open()
        correlation_id, future = answers.expect()
        request_message = Message(
            body,
            content_type="application/json",
            reply_to=answers.reply_to,
            correlation_id=correlation_id,
            persistent=False,
        )
        try:
            await answers.channel.publish_soon(request_message, self.queue)
            return await future
        finally:
            answers.forget(correlation_id)

    async def _open(self) -> _AnswerConsumer:
        """Return the channel with a consumer for answers, opening it if necessary."""
        async with self._opening:
            if self._answers is not None:
                if self._answers.error is None:
                    return self._answers
                await self._answers.channel.close()
                self._answers = None
            channel = await self._connection.channel(confirm=False)
            try:
                if not is_headrace(self._connection.server_properties):
                    address = self._connection.address
                    raise UsageError(f"{address} is not a Headrace broker that serves requests")
                answers = _AnswerConsumer(channel, _REPLY_TO)
                request = BasicConsume(queue=_REPLY_TO, consumer_tag=_TAG, no_ack=True)
                await channel.attach(_TAG, answers, [request])
            except BaseException:
                await channel.close()
                raise
            self._answers = answers
            return answers


class _AnswerConsumer:
    """Receives the answers to requests that were sent on one channel."""

    def __init__(self, channel: Channel, reply_to: str) -> None:
        self.channel = channel
        self.reply_to = reply_to
        self.error: ClientError | None = None  # The error that ends all answers.
        self._pending: dict[str, asyncio.Future[bytes]] = {}
        self._last_id = 0

    def expect(self) -> tuple[str, asyncio.Future[bytes]]:
        """Return the correlation id of a new request, and a future of its answer."""
        if self.error is not None:
            raise fresh(self.error)
        if len(self._pending) >= PENDING_MAX:
            raise UsageError(f"{PENDING_MAX} requests wait for an answer already")
        self._last_id += 1
        correlation_id = str(self._last_id)
        future = self._pending[correlation_id] = asyncio.get_running_loop().create_future()
        return correlation_id, future

    def forget(self, correlation_id: str) -> None:
        """Ignore the answer to a request if it arrives later."""
        self._pending.pop(correlation_id, None)

    def deliver(self, epoch: int, method: BasicDeliver, header: bytes, body: bytes) -> None:
        """Set the answer of the request with the correlation id."""
        future = self._pending.get(decode_properties(header).correlation_id or "")
        if future is not None and not future.done():
            future.set_result(body)

    def cancelled(self) -> None:
        """Fail all requests: the reply queue is gone."""
        self.fail(ConnectionLost("the queue for answers is gone"))

    def ended(self) -> None:
        """Fail all requests, as after a cancellation: a reply queue has no range."""
        self.cancelled()

    def lost(self) -> None:
        """Fail all requests; `Requests` sends them again after the reconnection."""
        self.fail(ConnectionLost("the connection was lost before the answer came"))

    def fail(self, error: ClientError) -> None:
        """Fail all requests: no more answers will arrive."""
        self.error = self.error or error
        for future in self._pending.values():
            if not future.done():
                future.set_exception(fresh(error))
