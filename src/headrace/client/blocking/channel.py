# SPDX-License-Identifier: Apache-2.0
"""Channels, consumers, deliveries and transactions for programs without asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from headrace.client.blocking.backlog import Backlog, ChannelOutbox, Confirmation
from headrace.client.blocking.calls import ChannelCalls
from headrace.client.blocking.loop_thread import HANDOVER, LOOP, Result, leave_interrupted
from headrace.client.channel import batch as _batch
from headrace.client.channel import channel as _channel
from headrace.client.channel import consumer as _consumer
from headrace.client.channel import delivery as _delivery
from headrace.client.channel.channel import PREFETCH
from headrace.client.channel.closing import Closing
from headrace.client.channel.outgoing import Publication
from headrace.client.errors import Returned, UsageError
from headrace.client.message import Content, several

if TYPE_CHECKING:
    from headrace.client.channel.declarations import Arguments

_CHUNK_MESSAGES = 500  # Messages of publish_many handed to the loop at once.
_FETCH_MAX = 500  # Deliveries fetched from the loop at once.


@dataclass(slots=True, eq=False, repr=False)
class Delivery(_delivery.DeliveryBase):
    """A received message. Settle it with `ack`, `nack` or `reject`, unless consumed with `no_ack`.

    A settlement returns False when the connection of the delivery is lost; the broker redelivers
    the message. A second settlement raises UsageError.
    """

    def ack(self, *, multiple: bool = False) -> bool:
        """Ack the message; with `multiple`, also all earlier deliveries of this channel."""
        return self._settle(ack=True, multiple=multiple, requeue=False)

    def nack(self, *, requeue: bool = True, multiple: bool = False) -> bool:
        """Refuse the message: requeue it, or without `requeue` dead-letter or drop it."""
        return self._settle(ack=False, multiple=multiple, requeue=requeue)

    def reject(self, *, requeue: bool = False) -> bool:
        """Refuse the message for good: dead-letter or drop it, or with `requeue` requeue it."""
        return self._settle(ack=False, multiple=False, requeue=requeue)

    @contextmanager
    def process(self, *, requeue: bool = False) -> Iterator[Self]:
        """Ack at the end of the block; reject when the block raises an Exception.

        The error of the block is raised. KeyboardInterrupt and SystemExit are not caused by the
        message, so they requeue it.
        """
        try:
            yield self
        except Exception:
            if not self.settled:
                self.reject(requeue=requeue)
            raise
        except BaseException:
            if not self.settled:
                self.reject(requeue=True)
            raise
        if not self.settled:
            self.ack()

    def _settle(self, *, ack: bool, multiple: bool, requeue: bool) -> bool:
        if self.settled:
            raise UsageError(f"delivery {self.delivery_tag} is settled already, or no_ack")
        if not self.is_current():
            return False
        self.settled = True
        outbox = self.channel.outbox
        assert outbox is not None
        HANDOVER.add(outbox, (self, ack, multiple, requeue))
        return True


# The asyncio channel makes deliveries of this class for a blocking channel.
_DELIVERY_CLASS = cast("type[_delivery.Delivery]", Delivery)


class Consumer:
    """Messages of one queue. Iterate over it; `with` cancels it when the block ends.

    It survives reconnections: unacked messages are delivered again, marked redelivered. Iteration
    ends after `cancel`, and when the broker has sent all that was asked for (a range of a stream).
    """

    def __init__(self, source: _consumer.Consumer) -> None:
        self._source = source
        self._fetched: deque[_delivery.Delivery] = deque()

    def __enter__(self) -> Self:
        LOOP.run(self._source.__aenter__(), discard=_consumer.Consumer.abandon)
        return self

    def __exit__(self, *error: object) -> None:
        self.cancel()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        return self._next(None)

    @property
    def queue(self) -> str:
        """The name of the queue that the consumer was opened with."""
        return self._source.queue

    @property
    def tag(self) -> str:
        """The consumer tag."""
        return self._source.tag

    def receive(self, timeout_s: float | None = None) -> Delivery:
        """Wait for the next message; TimeoutError after `timeout_s` seconds."""
        try:
            return self._next(timeout_s)
        except StopIteration:
            raise UsageError(self._source.why_over()) from None

    def cancel(self) -> None:
        """Stop consuming, which ends iteration; messages not yet received are requeued."""

        async def cancel() -> None:
            undelivered = list(self._fetched)
            self._fetched.clear()
            self._source.channel.put_back(undelivered)
            await self._source.cancel()

        LOOP.run(cancel(), must_finish=True)

    def _next(self, timeout_s: float | None) -> Delivery:
        while True:
            while self._fetched:
                source = self._fetched.popleft()
                # A stale delivery will be redelivered, except with no_ack: then it is settled.
                if source.is_current() or source.settled:
                    return cast("Delivery", source)
            if not LOOP.run(self._fetch(timeout_s)):
                raise StopIteration

    async def _fetch(self, timeout_s: float | None) -> bool:
        """Fetch deliveries into `_fetched`; return False at the end of iteration.

        If the calling thread is interrupted, the next call returns them.
        """
        try:
            if not self._fetched:  # An interrupted call may have fetched deliveries just now.
                async with asyncio.timeout(timeout_s):
                    self._fetched.extend(await self._source.take(_FETCH_MAX))
            return True
        except StopAsyncIteration:  # A future cannot raise it in another thread.
            return False
        except TimeoutError:
            raise TimeoutError(f"no message within {timeout_s} s") from None


class Transaction:
    """A transaction: commits at the end of a `with` block, rolls back when the block raises.

    If mandatory messages were returned, the first Returned is raised after the commit, which has
    taken effect for the other messages. `returned` lists them all.
    """

    def __init__(self, source: _batch.Transaction, timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s

    @property
    def returned(self) -> list[Returned]:
        """Mandatory messages that no queue got; the first is raised after the commit."""
        return self._source.returned

    def __enter__(self) -> Self:
        LOOP.run(self._source.__aenter__(), self._timeout_s, discard=leave_interrupted)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        exiting = self._source.__aexit__(kind, error, traceback)
        LOOP.run(exiting, self._timeout_s, must_finish=True)


class Channel(ChannelCalls, Closing):
    """One channel of a connection. After a reconnection it is open again, as it was."""

    def __init__(self, source: _channel.Channel, timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s
        source.deliver_as(_DELIVERY_CLASS)
        self._outbox = source.outbox = ChannelOutbox(source)
        self._backlog = Backlog(source.unconfirmed_max)

    def _run(
        self,
        work: Coroutine[object, None, Result],
        *,
        must_finish: bool = False,
        discard: Callable[[Result], object] | None = None,
    ) -> Result:
        return LOOP.run(
            work, self._timeout_s, self._outbox, must_finish=must_finish, discard=discard
        )

    # --- Publishing ---------------------------------------------------------------------------

    def publish(
        self,
        message: Content,
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> None:
        """Publish a message and wait for the broker's confirm.

        Without an exchange the routing key is the name of a queue. In a transaction, and on a
        channel with `confirm=False`, it does not wait. Raises Nacked when the broker refuses the
        message, ConfirmLost when the connection is lost before the confirm, and with `mandatory`
        Returned when no queue gets it.
        """
        self.publish_soon(message, routing_key, exchange, mandatory=mandatory).wait()

    def publish_soon(
        self,
        message: Content,
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> Confirmation:
        """Publish a message and return its confirmation, to have many in flight.

        The call waits only while `unconfirmed_max` messages, or bodies of 16 MiB, are unconfirmed.
        """
        LOOP.check_other_thread()
        source = self._source
        publication = Publication(message, exchange, routing_key, mandatory, source.ticket)
        size = len(publication.body)
        self._backlog.add(size, self._timeout_s)
        confirmation = Confirmation(self._backlog, size, self._timeout_s)
        publication.outcome = confirmation
        try:
            if source.may_hand_over:
                HANDOVER.add(self._outbox, publication)
            else:  # The channel must select a mode first, or is in a transaction.
                self._run(source.send_publication(publication))
        except BaseException:
            LOOP.start().call_soon_threadsafe(confirmation.abandon)
            raise
        return confirmation

    def publish_many(
        self,
        messages: Iterable[Content],
        routing_key: str = "",
        exchange: str = "",
        *,
        mandatory: bool = False,
    ) -> int:
        """Publish messages, many in flight, and wait for all confirms; return their number.

        The first failure stops the sending. It is raised once every message sent has its outcome.
        """

        async def open_batch() -> _batch.Batch:
            return _batch.Batch(self._source, routing_key, exchange, mandatory=mandatory)

        async def add_chunk(batch: _batch.Batch, chunk: list[Content]) -> None:
            for message in chunk:
                await batch.add(message)

        batch = self._run(open_batch())
        remaining = iter(several(messages))
        while batch.failure is None and (chunk := list(islice(remaining, _CHUNK_MESSAGES))):
            self._run(add_chunk(batch, chunk))
        return self._run(batch.finish())

    def transaction(self) -> Transaction:
        """Return a context manager whose publishes and acks take effect together, or not at all.

        Entering raises UsageError on a channel that has published with confirms.
        """
        return Transaction(self._source.transaction(), self._timeout_s)

    # --- Receiving ----------------------------------------------------------------------------

    def get(self, queue: str, *, no_ack: bool = False) -> Delivery | None:
        """Fetch one message; return None when the queue is empty.

        The message must be settled unless `no_ack` is set. If the call is interrupted or takes too
        long, a message that arrives afterwards is requeued. Raises NotFound when the queue does not
        exist.
        """
        channel = self._source

        def put_back(delivery: _delivery.Delivery | None) -> None:
            if delivery is not None:
                channel.put_back([delivery])

        source = self._run(channel.get(queue, no_ack=no_ack), discard=put_back)
        return cast("Delivery | None", source)

    def consume(
        self,
        queue: str,
        *,
        prefetch: int = PREFETCH,
        no_ack: bool = False,
        exclusive: bool = False,
        priority: int | None = None,
        tag: str = "",
        arguments: Arguments | None = None,
        distinct: int = 0,
    ) -> Consumer:
        """Return a consumer of the queue: iterate over it to receive messages.

        At most `prefetch` messages are unacked at a time (1 to 65535; 0: no limit). The broker
        prefers consumers with a higher `priority`. With `distinct`, the consumer remembers the
        message ids of that many acked messages: a message with one of these ids is acked and not
        handed out.
        """

        async def consume() -> _consumer.Consumer:
            return self._source.consume(
                queue,
                prefetch=prefetch,
                no_ack=no_ack,
                exclusive=exclusive,
                priority=priority,
                tag=tag,
                arguments=arguments,
                distinct=distinct,
            )

        return Consumer(self._run(consume()))
