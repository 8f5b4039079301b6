# SPDX-License-Identifier: Apache-2.0
"""Tracing: copies of the messages published and delivered in a virtual host.

While tracing is on, each message that a client publishes is copied to the exchange
``amq.rabbitmq.trace`` with the key ``publish.<exchange>``, and each delivery with the key
``deliver.<queue>``. A copy has the message's body; its other properties are in headers. Copies go
only to bound queues and are not traced themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.model.contents import UnreadableError
from headrace.model.interceptor.interception import Source

if TYPE_CHECKING:
    from headrace.model.host import RoutingHost
    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

TRACE = "amq.rabbitmq.trace"
FACT = b"trace"  # Tracing survives a restart.
KEY_BYTES_MAX = 255
REDELIVERED = 2  # As in headrace.model.message.

# Returns user and name of a connection by its number.
ConnectionLookup = Callable[[int], "tuple[str, str]"]


class Tracer:
    """Traces one virtual host."""

    def __init__(self, vhost: RoutingHost, node: str, lookup: ConnectionLookup) -> None:
        """``node`` is the name of this broker."""
        self.vhost = vhost
        self.node = node
        self.lookup = lookup
        self.lost = 0  # Messages that could not be copied.

    def trace_publish(self, message: Message, queues: Sequence[Queue], source: Source) -> None:
        """Copy a message that a client published to these queues."""
        exchange = self._exchange_name(message)
        self._copy(
            message,
            "publish." + exchange,
            exchange,
            {
                "vhost": self.vhost.name,
                "connection": source.connection,
                "channel": source.channel,
                "user": source.user,
                "routed_queues": [queue.name for queue in queues],
            },
        )

    def trace_release(self, message: Message, queues: Sequence[Queue]) -> None:
        """Copy a delayed message that goes to these queues now.

        The publisher is only known while it is connected.
        """
        self.trace_publish(message, queues, Source(*self.lookup(message.publisher)))

    def trace_delivery(self, queue: Queue, consumer: Consumer, message: Message) -> None:
        """Copy a message that is delivered to a consumer."""
        user, connection = self.lookup(consumer.publisher)
        self._copy(
            message,
            "deliver." + queue.access_name,
            self._exchange_name(message),
            {
                "redelivered": 1 if message.flags & REDELIVERED else 0,
                "vhost": self.vhost.name,
                "connection": connection,
                "channel": _channel_number(consumer),
                "user": user,
            },
        )

    @staticmethod
    def _exchange_name(message: Message) -> str:
        data = message.data
        if data is None:
            return ""
        raw: bytes = data[1 : 1 + data[0]]
        return raw.decode("utf-8", "replace")

    def _copy(self, message: Message, key: str, exchange: str, facts: Mapping[str, object]) -> None:
        vhost = self.vhost
        if exchange == TRACE or vhost.contents is None or not vhost.exchanges[TRACE].bindings:
            return
        key = key.encode()[:KEY_BYTES_MAX].decode("utf-8", "ignore")
        queues = vhost.route(TRACE, key, dict).queues
        if not queues:
            return
        try:
            copy = vhost.contents.make_trace(message, TRACE, key, {"node": self.node, **facts})
        except UnreadableError as error:
            self.lost += 1
            if self.lost == 1:
                log.warning("vhost %r: a message is not traced: %s", vhost.name, error)
            return
        vhost.deliver(copy, queues, False)


def _channel_number(consumer: Consumer) -> int:
    """Return the number of a consumer's channel or session; 0 if it has none."""
    channel = getattr(consumer, "channel", None)
    if channel is not None:
        return int(channel.number)
    return int(getattr(getattr(consumer, "session", None), "channel", 0))
