# SPDX-License-Identifier: Apache-2.0
"""Migration: move the messages of queues and streams from one broker to another.

A message is acknowledged to the old broker when the new one has confirmed it. Publishing ids let
the new broker ignore repeated messages; see :mod:`.state` for the state of an interrupted run.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from headrace.cli.migrate.state import DIGESTS_MAX, MigrationStart, MigrationState, message_digest
from headrace.client import (
    Channel,
    Connection,
    Delivery,
    Message,
    NotFound,
    UsageError,
)
from headrace.client.requests import RequestRefused, Requests

if TYPE_CHECKING:
    from headrace.client import QueueState, Stream
    from headrace.client.channel.consumer import Consumer

PUBLISHER = "amq.headrace.migrate."  # And a digest of broker and queue.
PREFETCH = 1000  # Unacked messages of the old broker; fewer than DIGESTS_MAX.
BATCH = 250  # Messages that are sent and confirmed together.
EMPTY_CHECK_S = 0.25  # Seconds without a delivery before the queue's length is read.
EMPTY_CHECKS = 2  # Lengths of 0 that mean an empty queue: quorum queues count late.
DELIVERY_S = 30.0  # The longest time for a ready message to arrive.
assert PREFETCH < DIGESTS_MAX

#: Headers that the old broker adds, and that are not part of the message.
FOREIGN_HEADERS = frozenset({"x-delivery-count", "x-stream-offset"})
ORIGIN_EXCHANGE, ORIGIN_KEY = "x-migrated-exchange", "x-migrated-routing-key"
FIELDS = tuple(field.name for field in fields(Message))
Progress = Callable[[str, int, int], None]  # Queue, moved, of how many.


@dataclass(slots=True)
class QueueResult:
    """The result of one queue or stream; counts are in messages."""

    queue: str
    kind: str  # queue or stream.
    source_first: int  # Messages of the old queue at the beginning.
    source_last: int  # Messages of the old queue at the end.
    target_first: int
    target_last: int
    moved: int = 0  # Over all runs.
    suppressed: int = 0  # Of this run: redelivered, and recognised.
    repeated: int = 0  # Redelivered, and perhaps duplicates.
    note: str = ""

    @property
    def is_complete(self) -> bool:
        """True if the counts agree."""
        return not self.note


class Migration:
    """Moves messages between two connections."""

    def __init__(
        self,
        source: Connection,
        target: Connection,
        state: MigrationState,
        *,
        origin: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """With ``origin``, exchange and routing key are kept in headers."""
        self._source = source
        self._target = target
        self._state = state
        self._origin = origin
        self._progress = progress

    def publisher(self, queue: str) -> str:
        """Return the publisher name of a queue's publishing ids."""
        origin = f"{self._source.address}\0{queue}".encode()
        return PUBLISHER + hashlib.blake2b(origin, digest_size=16).hexdigest()

    async def last_publishing_id(self, publisher: str) -> int:
        """Return the highest publishing id of the new broker; -1 for none."""
        async with Requests(self._target) as requests:
            return int((await requests.ask("publisher.last", name=publisher))["last"])

    # --- Queues --------------------------------------------------------------------------------

    async def queue(self, name: str) -> QueueResult:
        """Move all messages of a queue, in their order.

        Raises:
            ClientError: a connection is lost, or the new broker refuses a message; unconfirmed
                messages stay in the old queue.
        """
        async with self._source.channel(confirm=False) as source, self._target.channel() as target:
            source_count = (await source.declare_queue(name, passive=True)).message_count
            target_count = (await queue_state(target, name)).message_count
            publisher = self.publisher(name)
            last = await self.last_publishing_id(publisher)
            start = self._state.start(publisher)
            if start is None:
                if not source_count:
                    return QueueResult(name, "queue", 0, 0, target_count, target_count)
                start = MigrationStart(last + 1, source_count, target_count)
                self._state.begin(publisher, start)
            result = QueueResult(name, "queue", start.source_first, 0, start.target_first, 0)
            consumer = source.consume(name, prefetch=PREFETCH, exclusive=True)
            drain = _QueueDrain(self, consumer, source, target, result, publisher, start, last)
            await drain.resend(source_count)
            await drain.move_remaining()
            await consumer.cancel()
            result.source_last = (await source.declare_queue(name, passive=True)).message_count
            state = await queue_state(target, name)
        result.target_last = state.message_count
        result.moved = drain.next - start.base
        check(result, state.consumer_count)
        if result.is_complete:
            self._state.finish(publisher)
            async with Requests(self._target) as requests:
                # A user without the right leaves the publisher's last id at the broker.
                with contextlib.suppress(RequestRefused):
                    await requests.ask("publisher.forget", name=publisher)
        return result

    # --- Streams -------------------------------------------------------------------------------

    async def stream(self, name: str) -> QueueResult:
        """Copy the records of a stream that the new stream lacks; the old stream stays unchanged.

        Raises:
            ClientError: as for queues.
        """
        source = self._source.stream(name)
        first, end = await source.first_offset(), await source.last_offset()
        copy = self._target.stream(name)
        publisher = self.publisher(name)
        at = max(first, await self.last_publishing_id(publisher) + 1)
        start = self._state.start(publisher)
        if start is None:
            start = MigrationStart(at, end - first, await length(copy))
            self._state.begin(publisher, start)
        result = QueueResult(name, "stream", end - first, end - first, start.target_first, 0)
        async with self._target.channel() as target:
            await queue_state(target, name)
            if at < end:
                async with aclosing(source.read(at, end, batch_max=BATCH)) as batches:
                    async for batch in batches:
                        messages = [
                            (
                                record.offset,
                                self.copy_message(
                                    record.message(), record.exchange, record.routing_key
                                ),
                            )
                            for record in batch
                        ]
                        await publish(target, name, publisher, messages)
                        result.moved += len(batch)
                        if self._progress is not None:
                            self._progress(name, batch[-1].offset + 1 - first, end - first)
        result.target_last = await length(copy)
        if result.target_last - start.target_first != end - max(start.base, first):
            result.note = "the new stream has another number of records"
        else:
            self._state.finish(publisher)
        return result

    def copy_message(self, message: Message, exchange: str, routing_key: str) -> Message:
        """Return a message to publish on the new broker."""
        headers = {
            name: value for name, value in message.headers.items() if name not in FOREIGN_HEADERS
        }
        if self._origin:
            headers[ORIGIN_EXCHANGE], headers[ORIGIN_KEY] = exchange, routing_key
        values = {field: getattr(message, field) for field in FIELDS}
        return Message(**{**values, "headers": headers})

    def record_sent(self, publisher: str, messages: list[tuple[int, Message]]) -> None:
        """Record the messages that are sent next."""
        sent = [(number, message_digest(message)) for number, message in messages]
        self._state.record_sent(publisher, sent)

    def sent_digests(self, publisher: str, first: int, last: int) -> list[bytes]:
        """Return the digests of the messages that were sent under some ids."""
        return self._state.sent_digests(publisher, first, last)

    def report_progress(self, result: QueueResult, count: int, remaining: int) -> None:
        """Report how many messages of a queue are moved, and how many remain."""
        if self._progress is not None:
            self._progress(result.queue, count, count + remaining)


class _QueueDrain:
    """Moves the messages of one queue, in one run of the command."""

    def __init__(
        self,
        owner: Migration,
        consumer: Consumer,
        source: Channel,
        target: Channel,
        result: QueueResult,
        publisher: str,
        start: MigrationStart,
        last: int,
    ) -> None:
        self.next = last + 1  # The id of the next message that was never sent.
        self._owner = owner
        self._consumer = consumer
        self._source = source
        self._target = target
        self._result = result
        self._publisher = publisher
        self._start = start

    async def resend(self, count: int) -> None:
        """Send again the messages that an interrupted run sent and did not acknowledge.

        The counts give their number, if the old queue has no other consumer. The messages keep
        their ids if all are redelivered and match the recorded digests, which all differ.
        Otherwise they get new ids. ``count`` is the length of the old queue.
        """
        taken = self.next - self._start.base
        tail = taken - (self._start.source_first - count)
        if taken <= 0 or tail <= 0 or not count:
            return
        sent = self._owner.sent_digests(self._publisher, self.next - tail, self.next - 1)
        deliveries: list[Delivery] = []
        while len(deliveries) < min(tail, count, PREFETCH):
            deliveries += await self._take_batch(min(tail, PREFETCH) - len(deliveries)) or []
            if not deliveries[-1:] or not deliveries[-1].redelivered:
                break
        if not deliveries:
            return
        messages = [self._copy_message(delivery) for delivery in deliveries]
        matches = [message_digest(message) for message in messages] == sent
        # Equal digests do not identify a message.
        matches = matches and len(set(sent)) == len(sent)
        if matches and all(delivery.redelivered for delivery in deliveries):
            numbered = list(zip(range(self.next - tail, self.next), messages, strict=True))
            self._result.suppressed = tail
        else:
            numbered = list(
                zip(range(self.next, self.next + len(deliveries)), messages, strict=True)
            )
            self._result.repeated = min(taken, sum(delivery.redelivered for delivery in deliveries))
            self.next += len(deliveries)
        await self._send(numbered)
        await deliveries[-1].ack(multiple=True)

    async def move_remaining(self) -> None:
        """Move the remaining messages of the queue."""
        while deliveries := await self._take_batch(BATCH):
            messages = [self._copy_message(delivery) for delivery in deliveries]
            await self._send(
                list(zip(range(self.next, self.next + len(deliveries)), messages, strict=True))
            )
            self.next += len(deliveries)
            await deliveries[-1].ack(multiple=True)

    def _copy_message(self, delivery: Delivery) -> Message:
        return self._owner.copy_message(delivery, delivery.exchange, delivery.routing_key)

    async def _send(self, numbered: list[tuple[int, Message]]) -> None:
        self._owner.record_sent(self._publisher, numbered)
        await publish(self._target, self._result.queue, self._publisher, numbered)
        sent = numbered[-1][0] + 1 - self._start.base
        remaining = max(0, self._start.source_first - sent)
        self._owner.report_progress(self._result, sent, remaining)

    async def _take_batch(self, maximum: int) -> list[Delivery] | None:
        """Return the next deliveries, up to ``maximum``; None when the queue is empty.

        Raises:
            UsageError: ready messages are not delivered.
        """
        waited_s, empty_checks = 0.0, 0
        while True:
            try:
                return await asyncio.wait_for(self._consumer.take(maximum), EMPTY_CHECK_S)
            except TimeoutError:
                waited_s += EMPTY_CHECK_S
            except StopAsyncIteration:
                return None
            state = await self._source.declare_queue(self._result.queue, passive=True)
            empty_checks = 0 if state.message_count else empty_checks + 1
            if empty_checks == EMPTY_CHECKS:
                return None
            if waited_s >= DELIVERY_S:
                text = f"queue '{self._result.queue}': {state.message_count} messages do not come"
                raise UsageError(f"{text}: does another consumer use it?")


async def publish(
    channel: Channel, queue: str, publisher: str, messages: list[tuple[int, Message]]
) -> None:
    """Publish messages to a queue under their ids; return when all are confirmed."""
    futures = []
    for number, message in messages:
        headers = {**message.headers, "x-publisher-name": publisher, "x-publishing-id": number}
        numbered = replace(message, headers=headers)
        futures.append(await channel.publish_soon(numbered, queue, mandatory=True))
    for outcome in await asyncio.gather(*futures, return_exceptions=True):
        if outcome is not None:
            raise outcome


async def queue_state(channel: Channel, queue: str) -> QueueState:
    """Return the state of a queue of the new broker.

    Raises:
        NotFound: the queue does not exist: its definition was not imported.
    """
    try:
        return await channel.declare_queue(queue, passive=True)
    except NotFound as error:
        text = f"the new broker has no queue '{queue}': import its definitions first"
        raise NotFound(error.code, text) from None


async def length(stream: Stream) -> int:
    """Return the number of records of a stream."""
    return await stream.last_offset() - await stream.first_offset()


def check(result: QueueResult, consumers: int) -> None:
    """Compare the counts of a moved queue; set ``note`` to the reason of a difference."""
    if result.source_last:
        result.note = f"{result.source_last} messages came to the old queue meanwhile; run it again"
    elif result.moved < result.source_first:
        result.note = (
            f"{result.source_first - result.moved} messages of the old queue went elsewhere"
        )
    elif result.target_last != result.target_first + result.moved and not consumers:
        expected = result.target_first + result.moved
        result.note = f"the new queue has {result.target_last} messages, not {expected}: " + (
            "other publishers used it during the move"
            if result.target_last > expected
            else "its length limit or time to live removed the others; compare its arguments "
            "and policies with those of the old queue, and look in its dead letter queue"
        )
