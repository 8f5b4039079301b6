# SPDX-License-Identifier: Apache-2.0
"""Files and stream packets on a channel of 0-8 or 0-9: what both classes do with it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from headrace.gateway.content_classes.desk import Desk
from headrace.gateway.content_classes.lanes import choose
from headrace.gateway.conversion.headers import shortstr
from headrace.gateway.v0_x.methods.basic import (
    CONSUMERS_MAX,
    check_access,
    end_consumer,
    owner_of,
    queue_of,
)
from headrace.model.errors import ResourceLocked
from headrace.model.queue.content_lanes import lane_of
from headrace.protocol import codec_0_x
from headrace.protocol.codec_0_x import MethodBase, decode_content_header
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.channel import BUSY, OPEN
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.model.queue.dispatch import Consumer
    from headrace.model.queue.queue import Queue


class OnChannel(Desk):
    """A desk whose client speaks over a channel."""

    connection: Any
    channel: Any
    codec = codec_0_x

    def ready(self, lane: Queue) -> bool:
        return client_takes(self.connection, self.channel, lane)

    def find_queues(self, exchange: str, routing_key: str, header: bytes) -> Iterable[Queue]:
        address = shortstr(exchange) + shortstr(routing_key)
        route = self.connection.context.make_route(self.connection, address, header)[0]
        queues: Iterable[Queue] = route.queues
        return queues

    def priority_of(self, header: bytes) -> int:
        properties: Any = decode_content_header(self.connection.version, header)[2]
        return properties.priority or 0

    def consumers(self) -> Iterable[Consumer]:
        return (self.channel.consumers or {}).values()

    def consumer_gone(self, consumer: Consumer) -> None:
        if self.channel.consumers is not None:
            self.channel.consumers.pop(consumer.tag, None)


def client_takes(connection: Any, channel: Any, lane: Queue) -> bool:
    """Tell whether a client takes deliveries on a channel; if not, ``lane`` is drained later."""
    if connection.ended:
        return False  # The channel may be resumed over another one.
    if connection.is_full():
        connection.starve(lane)
        return False
    return bool(channel.flow) and channel.state in (OPEN, BUSY)


def check_consumer(connection: Any, channel: Channel, method: Any, kind: int) -> tuple[Any, str]:
    """Return the lane that a consumer of this kind of content is for, and its tag."""
    queue = queue_of(connection, channel, method.queue)
    check_access(connection, "read", "queue", queue.name)
    tag = method.consumer_tag or f"amq.ctag-{secrets.token_urlsafe(16)}"
    if owner_of(connection, tag) is not None:
        raise AmqpError(ReplyCode.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    if channel.consumers is None:
        channel.consumers = {}
    if len(channel.consumers) >= CONSUMERS_MAX:
        raise AmqpError(ReplyCode.RESOURCE_ERROR, f"more than {CONSUMERS_MAX} consumers")
    if queue.exclusive_consumer is not None or (method.exclusive and queue.consumer_count()):
        raise ResourceLocked(
            f"queue '{queue.name}' in vhost '{connection.vhost.name}' in exclusive use"
        )
    queue.used_ms = connection.counters.now_ms
    return lane_of(queue, kind), tag


def add_consumer(
    connection: Any, channel: Any, consumer: Consumer, method: Any, confirm: MethodBase
) -> None:
    """Start a consumer."""
    consumer.exclusive = method.exclusive
    consumer.no_local = method.no_local
    choose(consumer, method.arguments)
    connection.vhost.check_consumer(consumer)
    channel.consumers[consumer.tag] = consumer
    if not method.no_wait:
        connection.reply(channel.number, confirm)
    consumer.queue.add_consumer(consumer)
    consumer.queue.drain()


def cancel_consumer(connection: Any, channel: Any, tag: str, kind: type[Consumer]) -> None:
    """End a consumer of one class; a tag that is no such consumer's is no error."""
    consumer = (channel.consumers or {}).get(tag)
    if isinstance(consumer, kind):
        del channel.consumers[tag]
        end_consumer(connection, consumer)
