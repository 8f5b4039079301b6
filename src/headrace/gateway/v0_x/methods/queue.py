# SPDX-License-Identifier: Apache-2.0
"""The queue class of 0-8 to 0-9-1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.messages.direct_reply_to import is_reply_name
from headrace.gateway.v0_x import early_rules
from headrace.gateway.v0_x.direct_reply_to import declared, refuse_binding
from headrace.gateway.v0_x.host import host_of
from headrace.gateway.v0_x.methods.basic import last_or
from headrace.model.errors import PreconditionFailed
from headrace.model.exchange.binding import QUEUE
from headrace.model.stream.stream import Stream
from headrace.protocol.codec_0_x import (
    MethodBase,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)

if TYPE_CHECKING:
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.handlers import Handler

OFFSET_QUERY = "x-stream-offset-query"
COUNT_MAX = 0xFFFFFFFF


# Keeps 0-9-1/s052, 0-9/queue.declare.passive#passive.
def declare(
    connection: GatewayConnection, channel: Channel, method: QueueDeclare
) -> MethodBase | None:
    """Make a queue, or check that it exists; the channel remembers it as its last."""
    name = method.queue
    if is_reply_name(name):
        return None if method.no_wait else declared(connection, name)
    host = host_of(connection)
    if method.passive:
        host.check_any(QUEUE, name)
        queue = connection.vhost.declare_queue(name, passive=True, owner=connection)
    else:
        kept = method.exclusive and method.durable and connection.quirks.keeps_exclusive
        queue = host.declare_queue(
            name,
            durable=method.durable,
            exclusive=method.exclusive,
            auto_delete=method.auto_delete,
            arguments=method.arguments,
            kept=kept,
            session=channel,
        )
    channel.last_queue = queue.name
    if method.no_wait:
        return None
    if method.passive and OFFSET_QUERY in method.arguments:
        if not isinstance(queue, Stream):
            raise PreconditionFailed(
                f"inequivalent arg 'x-queue-type' for queue '{name}' in vhost "
                f"'{connection.vhost.name}': only a stream has offsets"
            )
        offset = queue.resolve(method.arguments[OFFSET_QUERY])
        messages, consumers = offset & COUNT_MAX, offset >> 32
    else:
        messages, consumers = min(queue.message_count(), COUNT_MAX), queue.consumer_count()
    return QueueDeclareOk(queue=queue.name, message_count=messages, consumer_count=consumers)


def bind(connection: GatewayConnection, channel: Channel, method: QueueBind) -> MethodBase | None:
    """Bind a queue to an exchange."""
    name, key = ends_of(channel, method)
    host_of(connection).bind(method.exchange, (QUEUE, name), key, method.arguments)
    return None if method.no_wait else QueueBindOk()


def unbind(connection: GatewayConnection, channel: Channel, method: QueueUnbind) -> MethodBase:
    """Undo a binding."""
    name, key = ends_of(channel, method)
    undone = host_of(connection).unbind(method.exchange, (QUEUE, name), key, method.arguments)
    if connection.early:
        early_rules.check_undone(undone, method.exchange, connection.vhost.name)
    return QueueUnbindOk()


def ends_of(channel: Channel, method: QueueBind | QueueUnbind) -> tuple[str, str]:
    """Return the queue and the routing key of a binding.

    Without a queue name it is the channel's last; without any name its name is the key as well.
    """
    name = last_or(channel, method.queue)
    refuse_binding(name)
    key = method.routing_key
    return name, name if not method.queue and not key else key


def purge(connection: GatewayConnection, channel: Channel, method: QueuePurge) -> MethodBase | None:
    """Drop the ready messages of a queue; unacked messages stay with their consumers."""
    count = host_of(connection).purge_queue(last_or(channel, method.queue))
    return None if method.no_wait else QueuePurgeOk(message_count=min(count, COUNT_MAX))


def delete(
    connection: GatewayConnection, channel: Channel, method: QueueDelete
) -> MethodBase | None:
    """Delete a queue and its messages."""
    name = last_or(channel, method.queue)
    count = host_of(connection).delete_queue(
        name, if_unused=method.if_unused, if_empty=method.if_empty
    )
    return None if method.no_wait else QueueDeleteOk(message_count=min(count, COUNT_MAX))


HANDLERS: dict[str, Handler] = {
    "queue.declare": declare,
    "queue.bind": bind,
    "queue.unbind": unbind,
    "queue.purge": purge,
    "queue.delete": delete,
}
