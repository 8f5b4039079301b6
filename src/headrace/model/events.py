# SPDX-License-Identifier: Apache-2.0
"""Events: what happens in a broker, told to whoever listens.

Kinds and facts have the names that RabbitMQ's event exchange gives them: ``queue.created``,
``connection.closed``, ``user.authentication.failure``. Who has something to tell asks ``heard``
first, so that nothing is put together while nobody listens::

    if events.heard:
        events.tell("queue.deleted", name=queue.name, vhost=vhost.name)

Listeners are called at once, in the middle of what happens: they note the event, or write it down,
and change nothing in the model. One that fails is logged; the others hear the event all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.model.errors import NotRecorded, ResourceError

if TYPE_CHECKING:
    from headrace.model.counters import Counters
    from headrace.model.exchange.binding import Binding
    from headrace.model.exchange.exchange import Exchange
    from headrace.model.queue.dispatch import Consumer
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

LISTENERS_MAX = 16  # Of one broker.
INTERNAL_USER = "rmq-internal"  # Who does what no user asked for.
SERVICES = "amq.headrace."  # Names of the broker's own queues: nothing is told of them.


class Event(NamedTuple):
    """Something that happened."""

    kind: str  # As ``queue.created``.
    at_ms: int  # Wall clock, milliseconds.
    facts: Mapping[str, object]  # Values of the kinds that a field table has.


class Actor(Protocol):
    """A user who does something."""

    @property
    def name(self) -> str:
        """The name of the user."""


Listener = Callable[[Event], None]


class Events:
    """The events of one broker."""

    def __init__(self, counters: Counters | None = None) -> None:
        """``counters`` is whose clock they are dated by."""
        self.heard = False  # Somebody listens.
        self.actor: Actor | None = None  # Who asked for what happens now.
        #: Says why no change may be made that is told; empty: any may.
        self.refusal: Callable[[], str] | None = None
        self._counters = counters
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call a listener with every event from now on; again is no error.

        Raises:
            ResourceError: there are ``LISTENERS_MAX`` already.
        """
        if listener in self._listeners:
            return
        if len(self._listeners) >= LISTENERS_MAX:
            raise ResourceError(f"a broker has {LISTENERS_MAX} listeners to its events at most")
        self._listeners.append(listener)
        self.heard = True

    def ignore(self, listener: Listener) -> None:
        """Call a listener no longer; it is no error when it was none."""
        if listener in self._listeners:
            self._listeners.remove(listener)
        self.heard = bool(self._listeners)

    def require(self) -> None:
        """Make sure that what somebody is about to change can be told to those who must hear it.

        Raises:
            NotRecorded: it cannot, and must not happen.
        """
        reason = "" if self.refusal is None else self.refusal()
        if reason:
            raise NotRecorded(reason)

    def tell(self, kind: str, /, **facts: object) -> None:
        """Tell the listeners what happened.

        A fact that is None is not known, and left out. Without a fact
        ``user_who_performed_action`` that is the actor.
        """
        if not self._listeners:
            return
        known = {name: value for name, value in facts.items() if value is not None}
        if "user_who_performed_action" not in known:
            actor = self.actor
            known["user_who_performed_action"] = INTERNAL_USER if actor is None else actor.name
        event = Event(kind, 0 if self._counters is None else self._counters.now_ms, known)
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception:  # A bad listener must not undo what happened.
                log.exception("a listener failed at event %s", kind)


def exchange_facts(exchange: Exchange, vhost: str) -> dict[str, object]:
    """Return what is told of a new exchange."""
    return {
        "name": exchange.name,
        "vhost": vhost,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
    }


def queue_facts(queue: Queue, vhost: str) -> dict[str, object]:
    """Return what is told of a new queue."""
    return {
        "name": queue.name,
        "vhost": vhost,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.exclusive_owner is not None,
        "type": queue.arguments.get("x-queue-type", "classic"),
        "arguments": queue.arguments,
    }


def binding_facts(binding: Binding, vhost: str) -> dict[str, object]:
    """Return what is told of a binding that is made or undone."""
    destination = binding.destination
    return {
        "source_name": binding.source.name,
        "source_kind": "exchange",
        "destination_name": destination.name,
        "destination_kind": "queue" if hasattr(destination, "ready_count") else "exchange",
        "routing_key": binding.routing_key,
        "arguments": binding.arguments or {},
        "vhost": vhost,
    }


def tell_purged(events: Events, vhost: str, queue: Queue, messages: int) -> None:
    """Tell that the ready messages of a queue were dropped at a client's wish."""
    if events.heard:
        events.tell("queue.purged", name=queue.name, vhost=vhost, messages=messages)


def consumer_facts(consumer: Consumer, vhost: str) -> dict[str, object]:
    """Return what is told of a new consumer."""
    return {
        **consumer_name(consumer, vhost),
        "exclusive": consumer.exclusive,
        "ack_required": not consumer.no_ack,
        "prefetch_count": getattr(consumer, "prefetch", None),
        "arguments": consumer.arguments,
    }


def consumer_name(consumer: Consumer, vhost: str) -> dict[str, object]:
    """Return what tells one consumer from the others."""
    connection = f"connection/{consumer.publisher}" if consumer.publisher else None
    channel = getattr(getattr(consumer, "channel", None), "number", None)
    return {
        "consumer_tag": consumer.tag,
        "connection": connection,
        "channel": None if channel is None or connection is None else f"{connection}/{channel}",
        "queue": consumer.queue.access_name,
        "vhost": vhost,
    }
