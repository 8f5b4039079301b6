# SPDX-License-Identifier: Apache-2.0
"""Publishing through observers, stamps and traces.

Most messages take a cached route straight to their queues. Where an exchange observes messages
(:mod:`headrace.model.interceptor.exchange_observer`), the broker stamps them
(:mod:`headrace.model.interceptor.stamps`) or the virtual host is traced
(:mod:`headrace.model.interceptor.tracer`), each message gets a new route with an interception, and
:meth:`Interception.publish` publishes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.model.arguments.values import stores_all
from headrace.model.contents import UnreadableError
from headrace.model.errors import PreconditionFailed
from headrace.model.message import copy_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.model.contents import Contents
    from headrace.model.counters import Counters
    from headrace.model.exchange.exchange import Observer
    from headrace.model.interceptor.stamps import Stamps
    from headrace.model.message import Message
    from headrace.model.ports import Store
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.publishing_ids import PublishingId, PublishingIds


class Source(NamedTuple):
    """The user, connection and channel of a publish, for traces."""

    user: str = ""
    connection: str = ""
    channel: int = 0


NO_SOURCE = Source()


class PublishTracer(Protocol):
    """A tracer, as publishing uses it."""

    def trace_publish(self, message: Message, queues: Sequence[Queue], source: Source) -> None:
        """Copy a message that a client published to these queues."""


class InterceptingHost(Protocol):
    """The parts of a virtual host that observe, stamp, trace and deliver a message."""

    counters: Counters
    store: Store
    contents: Contents | None
    stamps: Stamps | None
    publishing_ids: PublishingIds

    @property
    def tracer(self) -> PublishTracer | None:
        """The tracer, while the virtual host is traced."""

    def deliver(
        self, message: Message, queues: Iterable[Queue], persistent: bool, *, promised: bool = False
    ) -> int:
        """Enqueue a message, and return how many queues refused it."""


class Interception:
    """The observers of one message's route."""

    __slots__ = ("headers", "observers", "vhost")

    def __init__(
        self,
        vhost: InterceptingHost,
        observers: Sequence[Observer],
        headers: Callable[[], Mapping[str, object]],
    ) -> None:
        self.vhost = vhost
        self.observers = tuple(observers)
        self.headers = headers

    def is_duplicate(self) -> bool:
        """Return True if the message is a duplicate, which is dropped silently."""
        if not self.observers:
            return False
        headers = self.headers()
        return any(observer.is_duplicate(headers) for observer in self.observers)

    def deduplicates(self) -> bool:
        """Return True if an exchange deduplicates the message."""
        return any(observer.ids is not None for observer in self.observers)

    def history_queues(self) -> list[Queue]:
        """Return the hidden queues that keep the message for later bindings."""
        if not self.observers:
            return []
        headers = self.headers()
        return [
            observer.kept
            for observer in self.observers
            if observer.kept is not None and observer.must_keep(headers)
        ]

    def publish(
        self,
        message: Message,
        queues: Sequence[Queue],
        persistent: bool,
        *,
        publishing_id: PublishingId | None = None,
        source: Source = NO_SOURCE,
        in_transaction: bool = False,
    ) -> int:
        """Enqueue a message in its queues and in history queues; return the number of refusals.

        A numbered or deduplicated message is enqueued in all queues or in none. Without a queue it
        does not count as accepted and may be published again. With ``in_transaction`` a store
        transaction is open, which has checked the disk and the publisher.

        Raises:
            ResourceError: the id cannot be stored; no queue has the message.
        """
        vhost = self.vhost
        publishers = vhost.publishing_ids
        if self.is_duplicate() or (
            publishing_id is not None and publishers.is_duplicate(publishing_id)
        ):
            return 0
        targets = [*queues, *self.history_queues()]
        persistent = persistent or any(stores_all(queue.arguments) for queue in queues)
        is_stored = any(queue.is_stream or (persistent and queue.durable) for queue in targets)
        if is_stored and vhost.store.full and not in_transaction:
            return self._refuse(publishing_id)
        refusing = [queue for queue in queues if queue.would_reject(message.body_size)]
        refused = len(refusing)
        if refusing and (publishing_id is not None or self.deduplicates()):
            vhost.deliver(copy_message(message), refusing, False)
            return self._refuse(publishing_id)
        if publishing_id is not None and not in_transaction:
            publishers.check(publishing_id[0])
        for observer in self.observers:
            observer.check(is_stored)
        own_transaction = is_stored and not in_transaction
        if own_transaction:
            vhost.store.begin()
        try:
            message = self.stamp(message)
            if vhost.tracer is not None:
                vhost.tracer.trace_publish(message, queues, source)
            if targets:
                refused = max(refused, vhost.deliver(message, targets, persistent))
            if publishing_id is not None and targets:
                publishers.record(publishing_id, is_stored)
            if self.observers and targets:
                headers = self.headers()
                for observer in self.observers:
                    observer.record_id(headers, is_stored)
        finally:
            if own_transaction:
                vhost.store.commit()
        vhost.counters.count_publish(message.body_size)
        return refused

    def join_branch(
        self, message: Message, queues: Sequence[Queue]
    ) -> tuple[Message, tuple[Queue, ...]]:
        """Return the stamped message and the queues for a transaction branch.

        Raises:
            PreconditionFailed: an exchange deduplicates the message, which a branch cannot
                guarantee.
        """
        if self.deduplicates():
            raise PreconditionFailed(
                "a message that is deduplicated cannot be part of a distributed transaction"
            )
        return self.stamp(message), (*queues, *self.history_queues())

    def stamp(self, message: Message) -> Message:
        """Return the message with the headers of exchanges and broker added."""
        vhost = self.vhost
        stamps: dict[str, object] = {}
        timestamp_s: int | None = None
        if vhost.stamps is not None:
            stamps, timestamp_s = vhost.stamps.make_arrival_stamps(
                self.headers(), vhost.counters.now_ms
            )
        for observer in self.observers:
            stamps.update(observer.stamps())
        if vhost.contents is None or not (stamps or timestamp_s is not None):
            return message
        try:
            return vhost.contents.stamp(message, stamps, timestamp_s)
        except UnreadableError as error:
            raise PreconditionFailed(f"invalid message: {error}") from None

    def stamp_for_exchanges(self, message: Message) -> Message:
        """Return the message with the headers of exchanges added, where possible."""
        stamps: dict[str, object] = {}
        for observer in self.observers:
            stamps.update(observer.stamps())
        contents = self.vhost.contents
        if not stamps or contents is None:
            return message
        return contents.stamp(message, stamps, None)

    def _refuse(self, publishing_id: PublishingId | None) -> int:
        if publishing_id is not None:
            self.vhost.publishing_ids.refuse(publishing_id)
        return 1
