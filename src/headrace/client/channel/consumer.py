# SPDX-License-Identifier: Apache-2.0
"""A consumer: messages of one queue as an asynchronous iterator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, Self

from headrace.client.channel.arrivals import Inbox
from headrace.client.channel.deduplicate import Deduplicator
from headrace.client.channel.delivery import ChannelPort, read_delivery
from headrace.client.errors import ClientError, ConsumerCancelled, UsageError, fresh
from headrace.protocol.codec_0_x import BasicConsume, BasicDeliver

if TYPE_CHECKING:
    from headrace.client.channel.delivery import Delivery
    from headrace.client.channel.pending_calls import Answer
    from headrace.wire.table import Value


class ConsumerPort(ChannelPort, Protocol):
    """The members of a channel that its consumers use."""

    async def start_consumer(self, consumer: Consumer) -> None:
        """Send basic.consume for a consumer, and wait for consume-ok."""

    def begin_cancel(self, consumer: Consumer) -> asyncio.Future[Answer] | None:
        """Send basic.cancel; the future is done when no more deliveries can arrive."""


class Consumer:
    """Messages of one queue. Iterate over it; `async with` cancels it when the block ends.

    It survives reconnections: unacked messages are delivered again, marked redelivered. Iteration
    ends after `cancel`, and when the broker has sent all that was asked for (a range of a stream).
    """

    def __init__(
        self,
        channel: ConsumerPort,
        queue: str,
        tag: str,
        *,
        prefetch: int,
        no_ack: bool,
        exclusive: bool,
        arguments: dict[str, Value],
        distinct: int = 0,
    ) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self.prefetch = prefetch
        self.no_ack = no_ack
        self._exclusive = exclusive
        self._arguments = arguments
        self.inbox = Inbox(self, tag, no_ack)
        self._buffer = self.inbox.deliveries
        self._changed = asyncio.Event()
        self._starting = asyncio.Lock()
        self.is_started = False  # Set by the channel when it sends basic.consume.
        self._error: ClientError | None = None
        self._is_stopped = False
        self._has_ended = False  # True if the broker has sent the last message of a range.
        self._is_counted = True  # True while backpressure counts the buffered messages.
        self.distinct = Deduplicator(distinct) if distinct else None
        self._offset: int | None = None  # The last offset received; None for a queue.

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except asyncio.CancelledError:
            self._stop()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        if self._buffer and self.distinct is None and self.is_started:
            delivery = self._buffer.popleft()
            if self._is_counted:
                self.channel.backpressure.release(len(delivery.body))
            self._offset = delivery.offset
            return delivery
        return (await self.take(1))[0]

    async def start(self) -> None:
        """Begin to consume, unless the first iteration or `receive` has begun."""
        async with self._starting:
            if not self.is_started and not self._is_stopped:
                await self.channel.start_consumer(self)

    async def receive(self) -> Delivery:
        """Wait for the next message.

        Raises ConsumerCancelled when the broker cancelled the consumer, or another ClientError when
        no more messages will arrive.
        """
        try:
            return (await self.take(1))[0]
        except StopAsyncIteration:
            raise UsageError(self.why_over()) from None

    def why_over(self) -> str:
        """Return the reason for an end of the iteration without an error, as text."""
        reason = (
            "has received all its messages" if self._has_ended else "was cancelled by this program"
        )
        return f"consumer {self.tag!r} {reason}"

    async def take(self, count_max: int) -> list[Delivery]:
        """Wait for a message, return up to `count_max`; StopAsyncIteration at the end."""
        if not self.is_started:
            await self.start()
        while True:
            deliveries = await self._take(count_max)
            if self.distinct is not None:
                deliveries = self._drop_duplicates(deliveries, self.distinct)
            if deliveries:
                return deliveries

    async def _take(self, count_max: int) -> list[Delivery]:
        while not self._buffer:
            if self._error is not None:
                raise fresh(self._error)
            if self._is_stopped:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        deliveries: list[Delivery] = []
        while self._buffer and len(deliveries) < count_max:
            deliveries.append(self._buffer.popleft())
        self._release(deliveries)
        if deliveries[-1].offset is not None:
            self._offset = deliveries[-1].offset
        return deliveries

    def _drop_duplicates(
        self, deliveries: list[Delivery], distinct: Deduplicator
    ) -> list[Delivery]:
        """Return the deliveries that are not duplicates; ack the duplicates."""
        unique: list[Delivery] = []
        for delivery in deliveries:
            if distinct.hand_out(
                delivery.delivery_tag, delivery.message_id, settled=delivery.settled
            ):
                unique.append(delivery)
            elif not delivery.settled and delivery.is_current():
                self.channel.settle_soon(delivery, ack=True, multiple=False, requeue=False)
        return unique

    async def cancel(self) -> None:
        """Stop consuming, which ends iteration; messages not yet received are requeued."""
        cancelling = self._stop()
        if cancelling is not None:
            try:
                # Shielded: deliveries arrive until cancel-ok, also when this wait is cancelled.
                await asyncio.shield(cancelling)
            except ClientError:
                pass  # The consumer has ended with its channel or connection.

    def abandon(self) -> None:
        """Stop consuming as `cancel` does, without waiting for the broker."""
        self._stop()

    def _stop(self) -> asyncio.Future[Answer] | None:
        if self._is_stopped:
            return None
        self._is_stopped = True
        self.inbox.is_open = False
        unreceived = self._clear()
        self._changed.set()
        if not self.is_started or self._error is not None:
            return None
        cancelling = self.channel.begin_cancel(self)
        self.channel.put_back(unreceived)
        return cancelling

    # --- For the channel ----------------------------------------------------------------------

    def request(self, queue: str) -> BasicConsume:
        """Return the basic.consume to send, which continues a stream after the last record."""
        arguments = dict(self._arguments)
        if self._offset is not None:
            arguments["x-stream-offset"] = self._offset + 1
        self.inbox.is_open = not self._is_stopped
        return BasicConsume(
            queue=queue,
            consumer_tag=self.tag,
            no_ack=self.no_ack,
            exclusive=self._exclusive,
            arguments=arguments,
        )

    def deliver(self, epoch: int, method: BasicDeliver, header: bytes, body: bytes) -> None:
        """Buffer a delivered message."""
        delivery = read_delivery(self.channel, epoch, method, header, body, self.no_ack)
        if self._is_stopped:
            self.channel.put_back([delivery])
            return
        self._buffer.append(delivery)
        self._changed.set()
        self.channel.backpressure.hold(len(body))

    def arrived(self, count: int, octets: int) -> None:
        """Wake the consumer: the inbox has new messages."""
        self._changed.set()
        self.channel.backpressure.hold(octets, count)

    def lost(self) -> None:
        """Discard buffered messages: the connection was lost, and the broker redelivers them."""
        if self.distinct is not None:
            self.distinct.lose()
        if not self.no_ack:
            self._clear()

    def cancelled(self) -> None:
        """End the consumer with ConsumerCancelled: the broker cancelled it."""
        self.fail(ConsumerCancelled(self.queue, self.tag))

    def ended(self) -> None:
        """End the iteration after the buffered messages: the broker has sent the whole range."""
        self._is_stopped = self._has_ended = True
        self.inbox.is_open = False
        self._changed.set()

    def fail(self, error: ClientError) -> None:
        """End the consumer with an error, raised after the messages that are not redelivered."""
        self._error = self._error or error
        self.inbox.is_open = False
        if not isinstance(error, ConsumerCancelled):
            self.lost()
        self._release(self._buffer)
        self._is_counted = False
        self._changed.set()

    def _clear(self) -> list[Delivery]:
        buffered = list(self._buffer)
        self._buffer.clear()
        self._release(buffered)
        return buffered

    def _release(self, deliveries: Iterable[Delivery]) -> None:
        """Subtract deliveries from the buffered messages of the connection."""
        if self._is_counted:
            for delivery in deliveries:
                self.channel.backpressure.release(len(delivery.body))
