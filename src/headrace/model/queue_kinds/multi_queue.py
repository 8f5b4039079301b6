# SPDX-License-Identifier: Apache-2.0
"""One consumer of several queues: the consumer argument ``x-multiqueue``, which Qpid's broker has.

To its client it is one consumer, with one tag, one prefetch count or credit, and one cancel. Each
queue has a :class:`Feeder` that passes on what it gets; a message is held by its feeder, so that
what the client says of it reaches the queue that it came from. The :class:`MultiQueue` stands where
the one queue of other consumers stands. Queues take turns when there is room for few messages only.

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
QUEUES_MAX = 64  # Of one consumer.


def names_in(arguments: Mapping[str, object]) -> list[str]:
    """Return the names of the queues that a consumer lists: an array, or a text with commas.

    Raises:
        PreconditionFailed: it lists none, too many, or something else than names.
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
    """Takes from one queue for a consumer of several. What it does not know its consumer does."""

    def __init__(self, pool: MultiQueue, queue: Queue, head: Any) -> None:
        super().__init__(queue, head.tag, head.no_ack)
        self.pool = pool
        self.head = head
        self.exclusive = head.exclusive
        self.no_local = head.no_local
        self.selector = head.selector
        self.auto_close = head.auto_close
        self.filters = head.filters
        self.selective = True  # What its consumer has room for changes.
        self.priority = head.priority
        self.publisher = head.publisher
        self.arguments = head.arguments

    def __getattr__(self, name: str) -> Any:
        return getattr(self.head, name)

    def can(self) -> bool:
        """Return True if the consumer has room; otherwise every feeder is notified when it has."""
        if self.head.can():
            return True
        self.head.parked = True
        return False

    def accepts(self, message: Message) -> int:
        """Return what the consumer answers, see ``Consumer.accepts``: 0, 1 or 2."""
        verdict: int = self.head.accepts(message)
        if verdict == 2:
            self.head.parked = True
        return verdict

    def deliver(self, message: Message) -> None:
        """Pass a message on; it is this feeder's."""
        self.pool.passing = self
        self.head.deliver(message)

    def redelivers(self) -> None:
        self.head.redelivers()

    def hold(self, position: int) -> None:
        """Let the consumer hold back what follows."""
        self.head.hold(position)

    def put(
        self, d: bytes | bytearray, lo: int, address_len: int, end: int, redelivered: int
    ) -> int:
        """Pass a message on straight from a buffer."""
        self.pool.passing = self
        accepted: int = self.head.put(d, lo, address_len, end, redelivered)
        return accepted

    def cancelled(self) -> None:
        """The queue is gone."""
        if self.pool.lose(self):
            self.head.cancelled()

    def looked(self) -> None:
        """This queue has been looked through."""
        if self.head.looking and not any(feeder.looking for feeder in self.pool.feeders):
            self.head.looking = False
            self.head.looked()

    def ended(self) -> None:
        """This queue has no more for the consumer."""
        if self.pool.lose(self):
            self.head.ended()

    def failed(self, error: Exception) -> None:
        """The consumer cannot go on."""
        self.pool.remove_consumer(self.head)
        self.head.failed(error)


class MultiQueue(Queue):
    """Several queues, as their one consumer sees them."""

    def __init__(self, sources: Sequence[Queue]) -> None:
        """The queues are ordinary ones, of one virtual host.

        Raises:
            PreconditionFailed: one of them is a stream, or is there only to be looked at.
        """
        first = sources[0]
        names = ", ".join(queue.name for queue in sources)
        super().__init__(names, store=first.store, counters=first.counters, vhost=first.vhost)
        self.is_hidden = True
        self.sources = tuple(sources)
        self.feeders: list[Feeder] = []
        self.passing: Feeder | None = None  # Who passes a message on just now.
        for queue in sources:
            if queue.is_stream or queue.browse_only:
                raise PreconditionFailed(
                    f"invalid arg '{ARGUMENT}': messages are not taken from '{queue.name}'"
                )
            self.single_active = self.single_active or queue.single_active
            if queue.exclusive_consumer is not None:
                self.exclusive_consumer = queue.exclusive_consumer

    def consumer_count(self) -> int:
        """How many consumers the queues have."""
        return sum(queue.consumer_count() for queue in self.sources)

    def add_consumer(self, consumer: Consumer) -> None:
        """Let the consumer take from every queue; the caller drains them afterwards."""
        for queue in self.sources:
            if not queue.deleted:
                feeder = Feeder(self, queue, consumer)
                self.feeders.append(feeder)
                queue.used_ms = self.counters.now_ms
                queue.add_consumer(feeder)

    def remove_consumer(self, consumer: Consumer) -> None:
        """End the consumer's part in every queue; what it holds unsettled stays its own."""
        feeders, self.feeders = self.feeders, []
        for feeder in feeders:
            feeder.queue.remove_consumer(feeder)

    def lose(self, feeder: Feeder) -> bool:
        """A queue has no consumer any more; tell whether it was the last one."""
        if feeder not in self.feeders:
            return False
        self.feeders.remove(feeder)
        self.deleted = not self.feeders
        return self.deleted

    def unpark(self, consumer: Consumer) -> None:
        """The consumer has room again: each time another queue comes first."""
        consumer.parked = False
        feeders = self.feeders
        if feeders:
            feeders.append(feeders.pop(0))
        for feeder in list(feeders):
            feeder.queue.unpark(feeder)

    def drain(self) -> None:
        """Let every queue hand out what it has."""
        for feeder in list(self.feeders):
            feeder.queue.drain()
        for feeder in self.feeders:
            if feeder.looking:
                feeder.head.looking = True

    def start_filtering(self, consumer: Consumer) -> None:
        """Let the consumer choose from now on."""
        for feeder in self.feeders:
            feeder.queue.start_filtering(feeder)

    def unconvertible(self, message: Message, consumer: Consumer, text: str) -> None:
        """The consumer cannot say a message that is passed on just now."""
        if self.passing is not None:
            self.passing.queue.unconvertible(message, self.passing, text)


def parts_of(queue: Any) -> tuple[Queue, ...]:
    """Return the queues of a pool; any other queue is its own."""
    return queue.sources if isinstance(queue, MultiQueue) else (queue,)


def head_of(consumer: Consumer) -> Any:
    """Return the consumer that a feeder takes for; any other one is its own."""
    return consumer.head if isinstance(consumer, Feeder) else consumer


def holders_of(consumer: Consumer) -> Sequence[Consumer]:
    """Return who holds the messages of a consumer: itself, or its feeders."""
    pool = consumer.queue
    return list(pool.feeders) if isinstance(pool, MultiQueue) else [consumer]


def give_credit(consumer: Consumer) -> None:
    """The consumer of a feeder, one of class basic, holds one message less."""
    if isinstance(consumer, Feeder):
        consumer.head.unacked -= 1


def go_on(consumer: Consumer) -> None:
    """The consumer of a feeder may have room again."""
    if isinstance(consumer, Feeder) and consumer.head.parked:
        consumer.pool.unpark(consumer.head)
