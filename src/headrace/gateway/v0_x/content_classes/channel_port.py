# SPDX-License-Identifier: Apache-2.0
"""A channel of 0-8 or 0-9 as the file and stream classes use it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from headrace.gateway.content_classes.lanes import apply_arguments
from headrace.gateway.content_classes.port import ContentClassPort
from headrace.gateway.conversion.headers import shortstr
from headrace.gateway.v0_x.channel.ending import end_consumer
from headrace.gateway.v0_x.connection.routing import make_route
from headrace.gateway.v0_x.host import check_access
from headrace.gateway.v0_x.methods.consumers import CONSUMERS_MAX, find_consumer_channel
from headrace.gateway.v0_x.methods.queue import find_queue
from headrace.gateway.v0_x.resumable_state import ResumableState
from headrace.model.errors import ResourceLocked
from headrace.model.queue_kinds.content_lanes import get_lane
from headrace.protocol import codec_0_x
from headrace.protocol.codec_0_x import (
    FileCancel,
    FileConsume,
    MethodBase,
    StreamCancel,
    StreamConsume,
    decode_content_header,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.channel import BUSY, OPEN
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.gateway.content_classes.port import CancelMethod, ConsumeMethod
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue


class ChannelPort(ContentClassPort, ResumableState):
    """A content class on a channel."""

    connection: GatewayConnection
    channel: Channel
    codec = codec_0_x

    def link(self) -> GatewayConnection:
        return self.connection

    def reply(self, method: object) -> None:
        assert isinstance(method, MethodBase)
        if not self.ended and not self.connection.ended:
            self.connection.reply(self.channel.number, method)

    def ready(self, lane: Queue) -> bool:
        connection, channel = self.connection, self.channel
        if connection.ended:
            return False  # The channel may be resumed over another one.
        if connection.is_full():
            connection.starve(lane)
            return False
        return bool(channel.flow) and channel.state in (OPEN, BUSY)

    def find_queues(self, exchange: str, routing_key: str, header: bytes) -> Iterable[Queue]:
        address = shortstr(exchange) + shortstr(routing_key)
        route = make_route(self.connection.context, self.connection, address, header)[0]
        queues: Iterable[Queue] = route.queues
        return queues

    def read_priority(self, header: bytes) -> int:
        properties = decode_content_header(self.connection.version, header)[2]
        return getattr(properties, "priority", None) or 0

    def consumers(self) -> Iterable[Consumer]:
        return (self.channel.consumers or {}).values()

    def remove_consumer(self, consumer: Consumer) -> None:
        if self.channel.consumers is not None:
            self.channel.consumers.pop(consumer.tag, None)

    # Keeps 0-9/file.consume.consumer-tag#01, 0-9/file.consume.exclusive#01,
    # 0-9/stream.consume.consumer-tag#01, 0-9/stream.consume.exclusive#01.
    def check_consumer(self, method: ConsumeMethod, content_class: int) -> tuple[Queue, str]:
        connection, channel = self.connection, self.channel
        queue = find_queue(connection, channel, method.queue or "")
        check_access(connection, "read", "queue", queue.name)
        tag = method.consumer_tag or f"amq.ctag-{secrets.token_urlsafe(16)}"
        if find_consumer_channel(connection, tag) is not None:
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
        return get_lane(queue, content_class), tag

    def add_consumer(self, consumer: Consumer, method: ConsumeMethod, confirm: object) -> None:
        assert isinstance(method, FileConsume | StreamConsume)
        consumer.exclusive = method.exclusive
        consumer.no_local = method.no_local
        apply_arguments(consumer, method.arguments)
        self.connection.vhost.check_consumer(consumer)
        consumers = self.channel.consumers
        assert consumers is not None  # Set by `check_consumer`.
        consumers[consumer.tag] = consumer
        if not method.no_wait:
            self.reply(confirm)
        consumer.queue.add_consumer(consumer)
        consumer.queue.drain()

    def cancel_consumer(self, tag: str | None, consumer_class: type[Consumer]) -> None:
        consumers = self.channel.consumers or {}
        consumer = consumers.get(tag or "")
        if isinstance(consumer, consumer_class):
            del consumers[consumer.tag]
            end_consumer(self.connection.vhost, consumer)

    def send_cancel_ok(self, method: CancelMethod, name: str) -> None:
        assert isinstance(method, FileCancel | StreamCancel)
        if not method.no_wait:
            self.reply(getattr(self.codec, name)(consumer_tag=method.consumer_tag))
