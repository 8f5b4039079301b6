# SPDX-License-Identifier: Apache-2.0
"""The exchange ``amq.rabbitmq.event``: events as messages.

Its routing keys are the kinds of events, ``queue.created``; the facts are headers, the body is
empty. Only the broker publishes to it. Without bindings no events are created.

Events are queued as they happen, and published at the end of the turn of the event loop. Publishing
an event is not an event, so events do not multiply. When ``EVENTS_MAX`` of them wait, further ones
are dropped and counted; the first is logged.
"""

from __future__ import annotations

import logging
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from headrace.gateway.conversion.headers import shortstr
from headrace.model.exchange.topic import TopicExchange
from headrace.model.message import new_message
from headrace.protocol.codec_0_x import BasicProperties, encode_content_header
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.frames import FRAME_HEADER, make_frame
from headrace.spec.tables import V0_9_1

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.model.events import Event, Events
    from headrace.model.exchange.binding import Binding
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.wire.table import Table

log = logging.getLogger(__name__)

NAME = "amq.rabbitmq.event"
EVENTS_MAX = 10_000  # Events that may wait to be published.
TIMESTAMP_IN_MS = "timestamp_in_ms"
_BASIC = 60


class EventExchange(TopicExchange):
    """A topic exchange that reports whether it has bindings, after each change of them."""

    lingers = False

    def __init__(self, on_change: Callable[[bool], None]) -> None:
        """``on_change`` is called with True if the exchange has bindings."""
        super().__init__(NAME, durable=True, internal=True)
        self._on_change = on_change

    def bind(self, binding: Binding) -> bool:
        new = super().bind(binding)
        self._on_change(bool(self.bindings))
        return new

    def unbind(self, binding: Binding) -> bool:
        gone = super().unbind(binding)
        self._on_change(bool(self.bindings))
        return gone


class EventPublisher:
    """Publishes a broker's events in one virtual host, at the end of the turn."""

    def __init__(self, vhost: VirtualHost, events: Events) -> None:
        self.vhost = vhost
        self.events = events
        self.dropped = 0  # Events that were not published: too many waited, or one was malformed.
        self._waiting: deque[Event] = deque()

    def set_listening(self, listening: bool) -> None:
        """Start or stop listening to the broker's events."""
        if listening:
            self.events.add_listener(self.queue_event)
        else:
            self.events.remove_listener(self.queue_event)

    def close(self) -> None:
        """Stop, because the virtual host was deleted."""
        self.events.remove_listener(self.queue_event)

    def queue_event(self, event: Event) -> None:
        """Queue an event for the end of the turn; beyond ``EVENTS_MAX`` it is dropped."""
        if len(self._waiting) >= EVENTS_MAX:
            self.dropped += 1
            if self.dropped == 1:
                log.warning("events come faster than they are published: some are dropped")
            return
        if not self._waiting:
            self.vhost.counters.to_drain.append(self)
        self._waiting.append(event)

    def drain(self) -> None:
        """Publish the queued events, at the end of the turn."""
        while self._waiting:
            self.publish(self._waiting.popleft())

    def publish(self, event: Event) -> None:
        """Publish an event, if it is routed to a queue."""
        raise NotImplementedError


class RabbitEventPublisher(EventPublisher):
    """Publishes events with the names and headers of RabbitMQ's."""

    def __init__(self, vhost: VirtualHost, events: Events) -> None:
        """Make the exchange, before the virtual host restores its bindings."""
        super().__init__(vhost, events)
        vhost.exchanges[NAME] = EventExchange(self.set_listening)

    def publish(self, event: Event) -> None:
        vhost = self.vhost
        queues = vhost.route(NAME, event.kind, lambda: event.facts).queues
        if not queues:
            return
        properties = BasicProperties(
            headers={**cast("Table", event.facts), TIMESTAMP_IN_MS: event.at_ms},
            delivery_mode=2,
            timestamp=datetime.fromtimestamp(event.at_ms // 1000, UTC),
        )
        try:
            header = encode_content_header(V0_9_1, _BASIC, 0, properties)
        except (ValueError, TypeError, AmqpError) as error:
            self.dropped += 1
            log.warning("event %s cannot be published: %s", event.kind, error)
            return
        address = shortstr(NAME) + shortstr(event.kind)
        data = b"".join((address, b"\x00\x00", make_frame(FRAME_HEADER, 0, header)))
        vhost.deliver(new_message(data, len(address), 0), queues, not vhost.store.full)
