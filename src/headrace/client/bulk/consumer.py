# SPDX-License-Identifier: Apache-2.0
"""A consumer that returns undecoded messages in batches, and acks up to a delivery tag.

It is for programs that store messages elsewhere before they ack them. It does not reconnect: the
broker redelivers unacked messages to the next consumer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.client.errors import ClientError, ConnectionLost, ConsumerCancelled, fresh
from headrace.protocol.codec_0_x import BasicConsume, BasicDeliver, BasicQos

if TYPE_CHECKING:
    from headrace.client.channel.channel import Channel
    from headrace.client.connection.connection import Connection

PREFETCH_MAX: Final = 65535
_TAG: Final = "drain"


class DrainedMessage(NamedTuple):
    """A message as received, with its properties still encoded."""

    tag: int
    redelivered: bool
    header: bytes  # The payload of the content header frame.
    body: bytes
    exchange: str
    routing_key: str


class BulkConsumer:
    """A consumer of one queue on a channel of its own."""

    def __init__(self, connection: Connection, queue: str, prefetch: int) -> None:
        """Consume from `queue` once started; at most `prefetch` messages are unacked at a time."""
        self._connection = connection
        self._queue = queue
        self._prefetch = prefetch
        self._channel: Channel | None = None
        self._messages: list[DrainedMessage] = []
        self._changed = asyncio.Event()
        self._error: ClientError | None = None

    async def start(self) -> None:
        """Open the channel and begin to consume."""
        self._channel = await self._connection.channel(confirm=False)
        requests = (
            BasicQos(prefetch_count=self._prefetch),
            BasicConsume(queue=self._queue, consumer_tag=_TAG),
        )
        try:
            await self._channel.attach(_TAG, self, requests)
        except BaseException:
            await self._channel.close()
            raise

    async def ready(self) -> int:
        """Return the number of messages to take: ready in the queue, or received and not taken."""
        assert self._channel is not None, "start() was not called"
        state = await self._channel.declare_queue(self._queue, passive=True)
        return state.message_count + len(self._messages)

    async def take(self, count_max: int, wait_s: float) -> list[DrainedMessage]:
        """Return up to `count_max` messages; an empty list when `wait_s` seconds pass without one.

        Raises ClientError when no more messages will arrive.
        """
        if not self._messages:
            try:
                async with asyncio.timeout(wait_s):
                    while not self._messages:
                        if self._error is not None:
                            raise fresh(self._error)
                        self._changed.clear()
                        await self._changed.wait()
            except TimeoutError:
                return []
        messages, self._messages = self._messages[:count_max], self._messages[count_max:]
        assert self._channel is not None
        for message in messages:
            self._channel.backpressure.release(len(message.body))
        return messages

    def ack_up_to(self, tag: int) -> None:
        """Ack all messages up to a tag, unless the connection is lost."""
        if self._channel is not None and self._error is None:
            self._channel.ack_up_to(tag)

    async def close(self) -> None:
        """Close the channel; unacked messages are requeued."""
        if self._channel is not None and self._error is None:
            await self._channel.close()

    # --- For the channel ----------------------------------------------------------------------

    def deliver(self, epoch: int, method: BasicDeliver, header: bytes, body: bytes) -> None:
        """Buffer a message for `take`."""
        self._messages.append(
            DrainedMessage(
                method.delivery_tag,
                method.redelivered,
                header,
                body,
                method.exchange,
                method.routing_key,
            )
        )
        assert self._channel is not None
        self._channel.backpressure.hold(len(body))
        self._changed.set()

    def cancelled(self) -> None:
        """End the consumer: the broker cancelled it, as when the queue is deleted."""
        self.fail(ConsumerCancelled(self._queue, _TAG))

    def ended(self) -> None:
        """End the consumer, as after a cancellation: a queue has no range."""
        self.cancelled()

    def lost(self) -> None:
        """End the consumer: without the connection, received messages cannot be acked."""
        self.fail(ConnectionLost("the connection was lost while a queue was read"))

    def fail(self, error: ClientError) -> None:
        """Make later calls of `take` raise `error`, once the received messages are taken."""
        self._error = self._error or error
        self._changed.set()
