# SPDX-License-Identifier: Apache-2.0
"""One consumer of several queues: the consumer argument ``x-multiqueue``, which Qpid's broker has.

To its client it is one consumer, with one tag, one prefetch count or credit, and one cancel. Each
queue has a :class:`Feeder` that passes its deliveries on; an unacked message belongs to its feeder,
so that the client's settlement reaches the right queue. The :class:`MultiQueue` takes the place of
the one queue of other consumers. Queues take turns while there is room for few messages only.

A queue that is deleted leaves the pool; with the last one the consumer is cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.model.arguments.values import as_list
from headrace.model.errors import PreconditionFailed
from headrace.model.queue.destination import Consumer
from headrace.model.queue.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.model.message import Message

ARGUMENT = "x-multiqueue"
QUEUES_MAX = 64  # Queues of one consumer.


def names_in(arguments: Mapping[str, object]) -> list[str]:
    """Return the names of the queues that a consumer lists: an array, or a text with commas.

    Raises:
        PreconditionFailed: the list is empty or too long, or an item is not a name.
    """
    value = as_list(arguments[ARGUMENT])
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise PreconditionFailed(f"invalid arg '{ARGUMENT}': expected the names of queues")
    names = list(dict.fromkeys(value))
    if not 0 < len(names) <= QUEUES_MAX:
        raise PreconditionFailed(
            f"invalid arg '{ARGUMENT}': {len(names)} queues; a consumer has 1 to {QUEUES_MAX}"
        )
    return names


class Feeder(Consumer):
    """The part of a consumer of several queues in one of them."""

    def __init__(self, pool: MultiQueue, queue: Queue, head: Any) -> None:
        super().__init__(queue, head.tag, head.no_ack)
        self.pool = pool
        self.head = head
        self.exclusive = head.exclusive
        self.no_local = head.no_local
        self.selector = head.selector
        self.auto_close = head.auto_close
        self.filters = head.filters
        self.selective = True  # The room of its consumer changes with every queue.
        self.priority = head.priority
        self.publisher = head.publisher
        self.arguments = head.arguments

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the consumer that gateways read, such as its channel."""
        return getattr(self.head, name)

    def can_take(self) -> bool:
        """Return True if the consumer has room; else its feeders are unparked once it has."""
        if self.head.can_take():
            return True
        self.head.parked = True
        return False

    def accepts(self, message: Message) -> int:
        """Return the answer of the consumer, as ``Consumer.accepts``: 0, 1 or 2."""
        verdict: int = self.head.accepts(message)
        if verdict == 2:
            self.head.parked = True
        return verdict

    def deliver(self, message: Message) -> None:
        """Deliver a message to the consumer; it is unacked by this feeder."""
        self.pool.passing = self
        self.head.deliver(message)

    def on_redelivery(self) -> None:
        self.head.on_redelivery()

    def hold(self, position: int) -> None:
        """Delay the later deliveries of the consumer."""
        self.head.hold(position)

    def put(
        self, d: bytes | bytearray, start: int, address_len: int, end: int, redelivered: int
    ) -> int:
        """Deliver a message to the consumer straight from a buffer."""
        self.pool.passing = self
        accepted: int = self.head.put(d, start, address_len, end, redelivered)
        return accepted

    def on_cancel(self) -> None:
        """Leave the pool; the last feeder cancels the consumer."""
        if self.pool.lose(self):
            self.head.on_cancel()

    def on_scan_end(self) -> None:
        """Note that this queue was read; after the last one, call the consumer."""
        if self.head.scanning and not any(feeder.scanning for feeder in self.pool.feeders):
            self.head.scanning = False
            self.head.on_scan_end()

    def on_queue_end(self) -> None:
        """Leave the pool; the last feeder ends the consumer."""
        if self.pool.lose(self):
            self.head.on_queue_end()

    def on_failure(self, error: Exception) -> None:
        """Remove the consumer from all queues; it failed."""
        self.pool.remove_consumer(self.head)
        self.head.on_failure(error)


class MultiQueue(Queue):
    """Several queues, as their one consumer sees them."""

    def __init__(self, sources: Sequence[Queue]) -> None:
        """The queues are ordinary ones, of one virtual host.

        Raises:
            PreconditionFailed: a queue is a stream, or for browsing only.
        """
        first = sources[0]
        names = ", ".join(queue.name for queue in sources)
        super().__init__(names, store=first.store, counters=first.counters, vhost=first.vhost)
        self.is_hidden = True
        self.sources = tuple(sources)
        self.feeders: list[Feeder] = []
        self.passing: Feeder | None = None  # The feeder that is delivering.
        for queue in sources:
            if queue.is_stream or queue.browse_only:
                raise PreconditionFailed(
                    f"invalid arg '{ARGUMENT}': messages are not taken from '{queue.name}'"
                )
            self.single_active = self.single_active or queue.single_active
            if queue.exclusive_consumer is not None:
                self.exclusive_consumer = queue.exclusive_consumer

    def consumer_count(self) -> int:
        """Return the number of consumers of all queues."""
        return sum(queue.consumer_count() for queue in self.sources)

    def add_consumer(self, consumer: Consumer) -> None:
        """Add the consumer to every queue; the caller drains them afterwards."""
        for queue in self.sources:
            if not queue.deleted:
                feeder = Feeder(self, queue, consumer)
                self.feeders.append(feeder)
                queue.used_ms = self.counters.now_ms
                queue.add_consumer(feeder)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove the consumer from every queue; its unacked messages stay unacked."""
        feeders, self.feeders = self.feeders, []
        for feeder in feeders:
            feeder.queue.remove_consumer(feeder)

    def lose(self, feeder: Feeder) -> bool:
        """Remove the feeder of a queue; return True if it was the last one."""
        if feeder not in self.feeders:
            return False
        self.feeders.remove(feeder)
        self.deleted = not self.feeders
        return self.deleted

    def unpark(self, consumer: Consumer) -> None:
        """Called when the consumer has room again; another queue comes first each time."""
        consumer.parked = False
        feeders = self.feeders
        if feeders:
            feeders.append(feeders.pop(0))
        for feeder in list(feeders):
            feeder.queue.unpark(feeder)

    def drain(self) -> None:
        """Drain every queue."""
        for feeder in list(self.feeders):
            feeder.queue.drain()
        for feeder in self.feeders:
            if feeder.scanning:
                feeder.head.scanning = True

    def start_filtering(self, consumer: Consumer) -> None:
        """Let the consumer pass messages over from now on."""
        for feeder in self.feeders:
            feeder.queue.start_filtering(feeder)

    def unconvertible(self, message: Message, consumer: Consumer, text: str) -> None:
        """Handle a message of the delivering feeder that cannot be converted."""
        if self.passing is not None:
            self.passing.queue.unconvertible(message, self.passing, text)


def pooled_queues(queue: Any) -> tuple[Queue, ...]:
    """Return the queues of a pool; any other queue is its own."""
    return queue.sources if isinstance(queue, MultiQueue) else (queue,)


def head_consumer(consumer: Consumer) -> Any:
    """Return the consumer of a feeder; any other consumer is its own."""
    return consumer.head if isinstance(consumer, Feeder) else consumer


def unacked_holders(consumer: Consumer) -> Sequence[Consumer]:
    """Return the consumers that have the unacked messages of a consumer: itself, or its feeders."""
    pool = consumer.queue
    return list(pool.feeders) if isinstance(pool, MultiQueue) else [consumer]


def give_credit(consumer: Consumer) -> None:
    """Count one unacked message less for a feeder's consumer, which is of class basic."""
    if isinstance(consumer, Feeder):
        consumer.head.unacked -= 1


def unpark_head(consumer: Consumer) -> None:
    """Unpark a feeder's consumer, which may have room again."""
    if isinstance(consumer, Feeder) and consumer.head.parked:
        consumer.pool.unpark(consumer.head)
