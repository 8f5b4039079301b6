# SPDX-License-Identifier: Apache-2.0
"""Application of a policy's changed consumer timeout to the consumers of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gateway.messages.consumer_timeout import find_timeout_ms
from headrace.gateway.v0_10.commands import message
from headrace.gateway.v0_10.session.subscription import Subscription
from headrace.gateway.v0_x.channel.consumer import BasicConsumer
from headrace.gateway.v0_x.methods import consumers
from headrace.model.queue_kinds.multi_queue import head_consumer

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost


def retime(vhost: VirtualHost, default_ms: int, queue: Queue) -> None:
    """Enforce the new timeout on the consumers of a queue; their deliveries count from now.

    ``default_ms`` is the timeout of consumers without an argument or policy.
    """
    for consumer in list(queue.consumers or ()):
        if consumer.no_ack or getattr(consumer, "automatic", False):
            continue
        enforce: Any
        arguments: tuple[Any, ...]
        head = head_consumer(consumer)
        if isinstance(head, BasicConsumer):
            enforce, arguments = consumers.enforce_timeout, (head.connection, head.channel, head)
        elif isinstance(head, Subscription):
            enforce, arguments = message.enforce_timeout, (head.session, head)
        else:
            continue
        vhost.scheduler.remove(("acks", head))
        timeout_ms = find_timeout_ms(vhost, head.queue, head.arguments or {}, default_ms)
        if timeout_ms:
            enforce(*arguments, timeout_ms)
