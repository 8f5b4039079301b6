# SPDX-License-Identifier: Apache-2.0
"""Events of a broker, passed to listeners.

Kinds and facts have the names of RabbitMQ's event exchange: ``queue.created``,
``connection.closed``, ``user.authentication.failure``. The source of an event checks
``has_listeners`` first, so that facts are only collected if there is a listener::

    if events.has_listeners:
        events.emit("queue.deleted", name=queue.name, vhost=vhost.name)

Listeners are called immediately, in the middle of the change: they may store the event, and must
not change the model. An exception in a listener is logged, and the others are called.
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
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

LISTENERS_MAX = 16  # Listeners of one broker.
INTERNAL_USER = "rmq-internal"  # The actor of changes that the broker makes itself.
SERVICES = "amq.headrace."  # Prefix of the broker's own queues, which have no events.


class Event(NamedTuple):
    """A change in the broker that operators can subscribe to and that the audit log records."""

    kind: str  # Such as ``queue.created``.
    at_ms: int  # Wall clock in milliseconds.
    facts: Mapping[str, object]  # Values of field table types.


class Actor(Protocol):
    """A user who changes something."""

    @property
    def name(self) -> str:
        """Return the name of the user."""


Listener = Callable[[Event], None]


class Churn:
    """Counts of connections, channels and queues that clients opened and closed."""

    __slots__ = (
        *("connections_opened", "connections_closed", "channels_opened", "channels_closed"),
        *("queues_declared", "queues_created", "queues_deleted"),
    )

    def __init__(self) -> None:
        self.connections_opened = self.connections_closed = 0  # Connections to a virtual host.
        self.channels_opened = self.channels_closed = 0  # Channels, and attached sessions.
        self.queues_declared = 0  # Declarations, also of existing queues.
        self.queues_created = self.queues_deleted = 0


class Events:
    """The listeners of one broker, and counts that are kept without listeners."""

    def __init__(self, counters: Counters | None = None) -> None:
        """Take the time of events from the clock of ``counters``; without it, 0."""
        self.churn = Churn()
        self.has_listeners = False  # Sources collect facts only while it is True.
        self.actor: Actor | None = None  # The user whose request is being served.
        #: Returns the reason for which audited changes are refused; "" if they are accepted.
        self.refusal: Callable[[], str] | None = None
        self._counters = counters
        self._listeners: list[Listener] = []

    def add_listener(self, listener: Listener) -> None:
        """Call a listener with every event from now on; a repeated call is not an error.

        Raises:
            ResourceError: there are ``LISTENERS_MAX`` listeners already.
        """
        if listener in self._listeners:
            return
        if len(self._listeners) >= LISTENERS_MAX:
            raise ResourceError(
                f"a broker may have at most {LISTENERS_MAX} listeners to its events"
            )
        self._listeners.append(listener)
        self.has_listeners = True

    def remove_listener(self, listener: Listener) -> None:
        """Remove a listener; a missing one is not an error."""
        if listener in self._listeners:
            self._listeners.remove(listener)
        self.has_listeners = bool(self._listeners)

    def check_auditable(self) -> None:
        """Check that a change can be audited.

        Raises:
            NotRecorded: the change cannot be audited, so it must not be made.
        """
        reason = "" if self.refusal is None else self.refusal()
        if reason:
            raise NotRecorded(reason)

    def emit(self, kind: str, /, **facts: object) -> None:
        """Call the listeners with an event.

        Facts that are None are omitted. ``user_who_performed_action`` is the actor by default.
        """
        if not self._listeners:
            return
        fields = {name: value for name, value in facts.items() if value is not None}
        if "user_who_performed_action" not in fields:
            actor = self.actor
            fields["user_who_performed_action"] = INTERNAL_USER if actor is None else actor.name
        event = Event(kind, 0 if self._counters is None else self._counters.now_ms, fields)
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception:  # A failing listener must not break the change.
                log.exception("a listener failed at event %s", kind)


def exchange_facts(exchange: Exchange, vhost: str) -> dict[str, object]:
    """Return the facts of a new exchange."""
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
    """Return the facts of a new queue."""
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
    """Return the facts of an added or removed binding."""
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


def report_purged(events: Events, vhost: str, queue: Queue, messages: int) -> None:
    """Report that a client purged a queue."""
    if events.has_listeners:
        events.emit("queue.purged", name=queue.name, vhost=vhost, messages=messages)


def consumer_facts(consumer: Consumer, vhost: str) -> dict[str, object]:
    """Return the facts of a new consumer."""
    return {
        **consumer_name(consumer, vhost),
        "exclusive": consumer.exclusive,
        "ack_required": not consumer.no_ack,
        "prefetch_count": getattr(consumer, "prefetch", None),
        "arguments": consumer.arguments,
    }


def consumer_name(consumer: Consumer, vhost: str) -> dict[str, object]:
    """Return the facts that identify a consumer."""
    connection = f"connection/{consumer.publisher}" if consumer.publisher else None
    channel = getattr(getattr(consumer, "channel", None), "number", None)
    return {
        "consumer_tag": consumer.tag,
        "connection": connection,
        "channel": None if channel is None or connection is None else f"{connection}/{channel}",
        "queue": consumer.queue.access_name,
        "vhost": vhost,
    }
