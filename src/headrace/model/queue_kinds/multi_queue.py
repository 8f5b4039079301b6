# SPDX-License-Identifier: Apache-2.0
"""One consumer of several queues: Broker-J's consumer argument ``x-multiqueue``.

The client sees one consumer, with one tag, one prefetch count or credit, and one cancel. Each queue
has a :class:`Feeder`, which passes deliveries on to that consumer, the head. An unacked message
belongs to its feeder, so that the client's settlement reaches the right queue. The head's queue is
a :class:`MultiQueue`, the pool. Queues take turns while the head has room for few messages.

A deleted queue is removed from the pool. With the last queue the consumer is cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.model.arguments.values import as_list
from headrace.model.errors import PreconditionFailed
from headrace.model.queue.destination import NO_ROOM, Consumer
from headrace.model.queue.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.model.message import Message

ARGUMENT = "x-multiqueue"
QUEUES_MAX = 64  # Queues of one consumer.


def parse_queue_names(arguments: Mapping[str, object]) -> list[str]:
    """Return the queue names in a consumer's arguments: an array, or a text with commas.

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
    """The consumer of one queue that passes its deliveries on to the head consumer."""

    def __init__(self, pool: MultiQueue, queue: Queue, head: Any) -> None:
        super().__init__(queue, head.tag, head.no_ack)
        self.pool = pool
        self.head = head
        self.exclusive = head.exclusive
        self.no_local = head.no_local
        self.selector = head.selector
        self.auto_close = head.auto_close
        self.is_filtering = head.is_filtering
        self.is_selective = True  # Deliveries of other queues change the room of the head.
        self.priority = head.priority
        self.publisher = head.publisher
        self.arguments = head.arguments

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the head that gateways read, such as its channel."""
        return getattr(self.head, name)

    def has_room(self) -> bool:
        """Return True if the head has room; otherwise park it, so that it reports room again."""
        if self.head.has_room():
            return True
        self.head.is_parked = True
        return False

    def evaluate(self, message: Message) -> int:
        """Return the result of the head's ``evaluate``."""
        verdict: int = self.head.evaluate(message)
        if verdict == NO_ROOM:
            self.head.is_parked = True
        return verdict

    def deliver(self, message: Message) -> None:
        """Deliver a message to the head; it is unacked by this feeder."""
        self.pool.delivering_feeder = self
        self.head.deliver(message)

    def on_redelivery(self) -> None:
        self.head.on_redelivery()

    def delay_deliveries(self, position: int) -> None:
        """Delay later deliveries to the head."""
        self.head.delay_deliveries(position)

    def put(
        self, buffer: bytes | bytearray, start: int, address_len: int, end: int, redelivered: int
    ) -> int:
        """Deliver a message to the head from a buffer."""
        self.pool.delivering_feeder = self
        accepted: int = self.head.put(buffer, start, address_len, end, redelivered)
        return accepted

    def on_cancel(self) -> None:
        """Remove this feeder from the pool; with the last one cancel the head."""
        if self.pool.remove_feeder(self):
            self.head.on_cancel()

    def on_scan_end(self) -> None:
        """Report the end of the scan to the head once all queues were read."""
        if self.head.is_scanning and not any(feeder.is_scanning for feeder in self.pool.feeders):
            self.head.is_scanning = False
            self.head.on_scan_end()

    def on_queue_end(self) -> None:
        """Remove this feeder from the pool; with the last one end the head."""
        if self.pool.remove_feeder(self):
            self.head.on_queue_end()

    def on_failure(self, error: Exception) -> None:
        """Remove the head from all queues, and report its failure."""
        self.pool.remove_consumer(self.head)
        self.head.on_failure(error)


class MultiQueue(Queue):
    """Several queues, as their one consumer, the head, sees them."""

    def __init__(self, sources: Sequence[Queue]) -> None:
        """Make a pool of queues of one virtual host.

        Raises:
            PreconditionFailed: a queue is a stream or browse-only.
        """
        first = sources[0]
        names = ", ".join(queue.name for queue in sources)
        super().__init__(names, store=first.store, counters=first.counters, vhost=first.vhost)
        self.is_hidden = True
        self.sources = tuple(sources)
        self.feeders: list[Feeder] = []
        self.delivering_feeder: Feeder | None = None  # The feeder that is delivering.
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
        """Add the head to every queue; the caller drains the queues afterwards."""
        for queue in self.sources:
            if not queue.deleted:
                feeder = Feeder(self, queue, consumer)
                self.feeders.append(feeder)
                queue.used_ms = self.counters.now_ms
                queue.add_consumer(feeder)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove the head from every queue; its unacked messages stay unacked."""
        feeders, self.feeders = self.feeders, []
        for feeder in feeders:
            feeder.queue.remove_consumer(feeder)

    def remove_feeder(self, feeder: Feeder) -> bool:
        """Remove the feeder of a queue; return True if it was the last one."""
        if feeder not in self.feeders:
            return False
        self.feeders.remove(feeder)
        self.deleted = not self.feeders
        return self.deleted

    def unpark(self, consumer: Consumer) -> None:
        """Called when the head has room again; another queue is served first each time."""
        consumer.is_parked = False
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
            if feeder.is_scanning:
                feeder.head.is_scanning = True

    def start_filtering(self, consumer: Consumer) -> None:
        """Let the head pass messages over from now on."""
        for feeder in self.feeders:
            feeder.queue.start_filtering(feeder)

    def on_unconvertible(self, message: Message, consumer: Consumer, text: str) -> None:
        """Handle a message of the delivering feeder that cannot be converted."""
        if self.delivering_feeder is not None:
            self.delivering_feeder.queue.on_unconvertible(message, self.delivering_feeder, text)


def pooled_queues(queue: Any) -> tuple[Queue, ...]:
    """Return the queues of a pool, or any other queue itself."""
    return queue.sources if isinstance(queue, MultiQueue) else (queue,)


def head_consumer(consumer: Consumer) -> Any:
    """Return the head of a feeder, or any other consumer itself."""
    return consumer.head if isinstance(consumer, Feeder) else consumer


def unacked_holders(consumer: Consumer) -> Sequence[Consumer]:
    """Return the consumers that own a consumer's unacked messages: itself, or its feeders."""
    pool = consumer.queue
    return list(pool.feeders) if isinstance(pool, MultiQueue) else [consumer]


def restore_credit(consumer: Consumer) -> None:
    """Decrement the unacked count of a feeder's head, which is of class basic."""
    if isinstance(consumer, Feeder):
        consumer.head.unacked -= 1


def unpark_head(consumer: Consumer) -> None:
    """Unpark the head of a feeder; it may have room again."""
    if isinstance(consumer, Feeder) and consumer.head.is_parked:
        consumer.pool.unpark(consumer.head)
