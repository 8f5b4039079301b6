# SPDX-License-Identifier: Apache-2.0
"""What the consume methods of all classes share: sources, tags, consumer timeouts.

Each method is in the module of its class, such as ``basic.consume`` in
:mod:`headrace.gateway.v0_x.methods.basic`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.messages.consumer_timeout import ConsumerTimeout, start_timer, timeout_error
from headrace.gateway.v0_x.channel.channel import Channel
from headrace.gateway.v0_x.host import check_access
from headrace.gateway.v0_x.methods.queue import find_queue
from headrace.model.queue_kinds.multi_queue import ARGUMENT as MULTIQUEUE
from headrace.model.queue_kinds.multi_queue import MultiQueue, parse_queue_names, unacked_holders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.gateway.v0_x.channel.consumer import BasicConsumer
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.model.queue.queue import Queue

CONSUMERS_MAX = 65535  # The maximum consumers of one channel.


def find_source(
    connection: GatewayConnection, channel: Channel, name: str, arguments: Mapping[str, object]
) -> Queue:
    """Return the source of a consumer: a queue, or all those that its arguments list."""
    if MULTIQUEUE not in arguments:
        queue = find_queue(connection, channel, name)
        check_access(connection, "read", "queue", queue.access_name)
        return queue
    queues = [
        connection.vhost.find_queue(name, connection) for name in parse_queue_names(arguments)
    ]
    for queue in queues:
        check_access(connection, "read", "queue", queue.access_name)
    return MultiQueue(queues)


def find_consumer_channel(connection: GatewayConnection, tag: str) -> Channel | None:
    """Return the channel that has a consumer of this tag; in 0-8 and 0-9 there is only one."""
    for channel in connection.channels.values():
        if isinstance(channel, Channel) and tag in (channel.consumers or ()):
            return channel
    return None


def enforce_timeout(
    connection: GatewayConnection, channel: Channel, consumer: BasicConsumer, timeout_ms: int
) -> None:
    """Requeue deliveries that a consumer has for longer than its timeout.

    Or close the channel (`ack_timeout_closes`).
    """

    def overdue(last: int) -> None:
        holders = [
            holder
            for holder in unacked_holders(consumer)
            if channel.unsettled.delivery_numbers(holder, last)
        ]
        if not holders:
            return
        if connection.context.consumer_timeout_closes:
            consumer.queue.remove_consumer(consumer)
            consumer.on_failure(timeout_error(channel.number, timeout_ms))
        else:
            for holder in holders:
                channel.requeue_overdue(holder, last)

    def is_active() -> bool:
        consumers = channel.consumers or {}
        return consumer.unacked > 0 or consumers.get(consumer.tag) is consumer

    timeout = ConsumerTimeout(
        consumer, timeout_ms, newest=lambda: channel.tag, overdue=overdue, is_active=is_active
    )
    start_timer(connection.vhost.scheduler, timeout, connection.counters.now_ms)
