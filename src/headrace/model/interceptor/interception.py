# SPDX-License-Identifier: Apache-2.0
"""The way of a message that is looked at as it passes.

Most messages go from the wire to their queues by a route that is remembered. Where an exchange
watches what comes through (:mod:`headrace.model.interceptor.exchange_observer`), where the broker
stamps messages (:mod:`headrace.model.interceptor.stamps`) or where a virtual host is traced
(:mod:`headrace.model.interceptor.tracer`), a route has an interception, is made for one message,
and the message goes through :meth:`Interception.take`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.model.arguments.values import keeps_all
from headrace.model.contents import UnreadableError
from headrace.model.errors import PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.model.host import RoutingHost
    from headrace.model.interceptor.exchange_observer import ExchangeObserver
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.publishing_ids import Number


class Source(NamedTuple):
    """Who publishes."""

    user: str = ""
    connection: str = ""
    channel: int = 0


NOBODY = Source()


class Interception:
    """The interception of one message."""

    __slots__ = ("headers", "observers", "vhost")

    def __init__(
        self,
        vhost: RoutingHost,
        observers: Sequence[ExchangeObserver],
        headers: Callable[[], Mapping[str, object]],
    ) -> None:
        self.vhost = vhost
        self.observers = tuple(observers)
        self.headers = headers

    def is_duplicate(self) -> bool:
        """Tell whether the message was taken before: then it is dropped, and nothing is wrong."""
        if not self.observers:
            return False
        headers = self.headers()
        return any(observer.is_duplicate(headers) for observer in self.observers)

    def remembers(self) -> bool:
        """Tell whether the message may be remembered, so that it is taken once."""
        return any(observer.ids is not None for observer in self.observers)

    def keepers(self) -> list[Queue]:
        """Return the queues of exchanges that keep the message for later."""
        if not self.observers:
            return []
        headers = self.headers()
        return [
            observer.kept
            for observer in self.observers
            if observer.kept is not None and observer.keeps(headers)
        ]

    def take(
        self,
        message: Message,
        queues: Sequence[Queue],
        persistent: bool,
        *,
        number: Number | None = None,
        source: Source = NOBODY,
        inside: bool = False,
    ) -> int:
        """Take a message for its queues, and for those that keep it; return how many refused it.

        What is to be taken once, for its number or its id, is taken by all queues or by none; where
        there is no queue, it was not taken, and may come again. With ``inside`` a transaction of
        the store is open, and each queue refuses for itself.

        Raises:
            ResourceError: there is no room for what must be remembered; nothing was done.
        """
        vhost = self.vhost
        publishers = vhost.publishing_ids
        if self.is_duplicate() or (number is not None and publishers.knows(number)):
            return 0
        everybody = [*queues, *self.keepers()]
        persistent = persistent or any(keeps_all(queue.arguments) for queue in queues)
        lasting = any(queue.is_stream or (persistent and queue.durable) for queue in everybody)
        refused = 0
        if not inside:
            if lasting and vhost.store.full:
                return self._refuse(number)
            refusing = [queue for queue in queues if queue.would_reject(message.body_size)]
            refused = len(refusing)
            if refusing and (number is not None or self.remembers()):
                vhost.deliver(message.copy(), refusing, False)
                return self._refuse(number)
        if number is not None:
            publishers.check(number[0])
        for observer in self.observers:
            observer.check(lasting)
        alone = lasting and not inside
        if alone:
            vhost.store.begin()
        try:
            message = self.stamped(message)
            if vhost.tracer is not None:
                vhost.tracer.published(message, queues, source)
            if everybody:
                refused = max(refused, vhost.deliver(message, everybody, persistent))
            if number is not None:
                publishers.note(number, lasting)
            if self.observers and everybody:
                headers = self.headers()
                for observer in self.observers:
                    observer.note(headers, lasting)
        finally:
            if alone:
                vhost.store.commit()
        vhost.counters.published += 1
        return refused

    def join_branch(
        self, message: Message, queues: Sequence[Queue]
    ) -> tuple[Message, tuple[Queue, ...]]:
        """Return the message, and the queues, that a transaction branch takes instead of it.

        Raises:
            PreconditionFailed: it is to be taken once, which a branch cannot promise.
        """
        if self.remembers():
            raise PreconditionFailed(
                "a message that is deduplicated cannot be part of a distributed transaction"
            )
        return self.stamped(message), (*queues, *self.keepers())

    def stamped(self, message: Message) -> Message:
        """Return the message with what exchanges and the broker put in."""
        vhost = self.vhost
        stamps: dict[str, object] = {}
        timestamp_s: int | None = None
        if vhost.stamps is not None:
            stamps, timestamp_s = vhost.stamps.of_arrival(self.headers(), vhost.counters.now_ms)
        for observer in self.observers:
            stamps.update(observer.stamps())
        if vhost.contents is None or not (stamps or timestamp_s is not None):
            return message
        try:
            return vhost.contents.stamped(message, stamps, timestamp_s)
        except UnreadableError as error:
            raise PreconditionFailed(f"invalid message: {error}") from None

    def watched(self, message: Message) -> Message:
        """Return the message with what exchanges put in, as far as it can be said."""
        stamps: dict[str, object] = {}
        for observer in self.observers:
            stamps.update(observer.stamps())
        contents = self.vhost.contents
        if not stamps or contents is None:
            return message
        return contents.stamped(message, stamps, None)

    def _refuse(self, number: Number | None) -> int:
        if number is not None:
            self.vhost.publishing_ids.refuse(number)
        return 1
