# SPDX-License-Identifier: Apache-2.0
"""The end of a channel of 0-8 to 0-9-1, and of its consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.queue_kinds.content_lanes import home_queue
from headrace.model.queue_kinds.multi_queue import pooled_queues

if TYPE_CHECKING:
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.model.queue.destination import Consumer
    from headrace.model.vhost.virtual_host import VirtualHost


def end_channel(vhost: VirtualHost, channel: Channel) -> None:
    """End a channel: cancel its consumers and requeue its unsettled messages."""
    consumers = channel.consumers
    channel.consumers = None
    channel.get_consumers = None
    channel.tx_publishes = None
    channel.tx_settles = None
    if channel.dtx:
        vhost.branches.on_worker_end(channel)
    if consumers:
        for consumer in consumers.values():
            consumer.queue.remove_consumer(consumer)
    channel.requeue_all()
    if consumers:
        for consumer in consumers.values():
            end_consumer(vhost, consumer)


def end_consumer(vhost: VirtualHost, consumer: Consumer) -> None:
    """Remove a consumer from its queue; an auto-delete queue is deleted with its last one."""
    consumer.queue.remove_consumer(consumer)
    for queue in pooled_queues(consumer.queue):
        if queue.single_active and queue.ready_count:
            queue.drain()  # Another consumer is active now.
        home = home_queue(queue)
        if home.auto_delete and not home.deleted and not home.consumer_count():
            vhost.on_queue_unused(home)
