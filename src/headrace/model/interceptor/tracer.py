# SPDX-License-Identifier: Apache-2.0
"""Tracing: copies of what is published and delivered in a virtual host.

While it is on, each message that a client publishes is copied to the exchange
``amq.rabbitmq.trace`` under the key ``publish.<exchange>``, and each that is handed to a consumer
under ``deliver.<queue>``. A copy has the body of the message; what else it said is in headers.
Copies go only where they are bound to, and are not traced themselves.
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
    from headrace.model.queue.dispatch import Consumer
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

TRACE = "amq.rabbitmq.trace"
FACT = b"trace"  # Whether a virtual host is traced survives a restart.
KEY_OCTETS_MAX = 255
REDELIVERED = 2  # As headrace.model.message.

Who = Callable[[int], "tuple[str, str]"]  # User and name of a connection, by its number.


class Tracer:
    """Traces one virtual host."""

    def __init__(self, vhost: RoutingHost, node: str, who: Who) -> None:
        """``node`` is the name of this broker."""
        self.vhost = vhost
        self.node = node
        self.who = who
        self.lost = 0  # Messages that could not be copied.

    def published(self, message: Message, queues: Sequence[Queue], source: Source) -> None:
        """A client has published a message, which went to these queues."""
        exchange = self._exchange_of(message)
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

    def released(self, message: Message, queues: Sequence[Queue]) -> None:
        """A delayed message goes to these queues now: its publish shows when it is due.

        Who published it is known while he is connected.
        """
        self.published(message, queues, Source(*self.who(message.publisher)))

    def delivered(self, queue: Queue, consumer: Consumer, message: Message) -> None:
        """A message is handed to a consumer."""
        user, connection = self.who(consumer.publisher)
        self._copy(
            message,
            "deliver." + queue.access_name,
            self._exchange_of(message),
            {
                "redelivered": 1 if message.flags & REDELIVERED else 0,
                "vhost": self.vhost.name,
                "connection": connection,
                "channel": _channel_of(consumer),
                "user": user,
            },
        )

    @staticmethod
    def _exchange_of(message: Message) -> str:
        data = message.data
        if data is None:
            return ""
        raw: bytes = data[1 : 1 + data[0]]
        return raw.decode("utf-8", "replace")

    def _copy(self, message: Message, key: str, exchange: str, facts: Mapping[str, object]) -> None:
        vhost = self.vhost
        if exchange == TRACE or vhost.contents is None or not vhost.exchanges[TRACE].bindings:
            return
        key = key.encode()[:KEY_OCTETS_MAX].decode("utf-8", "ignore")
        queues = vhost.route(TRACE, key, dict).queues
        if not queues:
            return
        try:
            copy = vhost.contents.traced(message, TRACE, key, {"node": self.node, **facts})
        except UnreadableError as error:
            self.lost += 1
            if self.lost == 1:
                log.warning("vhost %r: a message is not traced: %s", vhost.name, error)
            return
        vhost.deliver(copy, queues, False)


def _channel_of(consumer: Consumer) -> int:
    """The number of the channel, or that of the session, whose consumer it is; 0: of none."""
    channel = getattr(consumer, "channel", None)
    if channel is not None:
        return int(channel.number)
    return int(getattr(getattr(consumer, "session", None), "channel", 0))
