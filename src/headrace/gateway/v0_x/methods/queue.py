# SPDX-License-Identifier: Apache-2.0
"""The queue class of 0-8 to 0-9-1, and the queue for an empty name.

`headrace.gateway.security.authorized_host` checks declarations and bindings by the rules of the
client's version; `headrace.model.vhost.queue_registry` declares and deletes queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.messages.direct_reply_to import REPLY_TO, is_reply_name
from headrace.gateway.v0_x import early_rules
from headrace.gateway.v0_x.host import authorized_host
from headrace.model.errors import AccessRefused, NotFound, PreconditionFailed
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
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.handlers import Handler
    from headrace.model.queue.queue import Queue

OFFSET_QUERY = "x-stream-offset-query"
COUNT_MAX = 0xFFFFFFFF


# Keeps 0-9-1/s065, 0-9-1/s071, 0-9-1/s078, 0-9-1/s081, 0-9/queue.bind.queue#empty-queue,
# 0-9/queue.purge.queue#01, 0-9/queue.delete.queue#01, 0-9/basic.consume.queue#01,
# 0-9/basic.get.queue#01, 0-9/file.consume.queue#01, 0-9/stream.consume.queue#01,
# 0-9/message.consume.queue#01, 0-9/message.get.queue#01.
def name_or_last(channel: Channel, name: str) -> str:
    """Return the name; if it is empty, the name of the channel's last declared queue.

    Binding and unbinding call this in :func:`read_binding_ends`. basic.get and message.get call
    :func:`find_queue`, as do basic.consume and message.consume in ``methods.consumers.find_source``
    and file.consume and stream.consume in ``ChannelPort.check_consumer``.
    """
    if name:
        return name
    last: str = channel.last_queue
    if not last and channel.connection.is_early:
        raise AmqpError(ReplyCode.NOT_ALLOWED, "no previously declared queue")
    if not last:
        raise AmqpError(ReplyCode.NOT_FOUND, "no previously declared queue")
    return last


def find_queue(connection: GatewayConnection, channel: Channel, name: str) -> Queue:
    """Return a queue by name; an empty name is the last that the channel declared."""
    queue: Queue = connection.vhost.find_queue(name_or_last(channel, name), connection)
    return queue


# Keeps 0-9-1/s052, 0-9-1/s050, 0-9-1/s054, 0-9/queue.declare.passive#passive,
# 0-9/queue.declare.queue#default-name.
def declare(
    connection: GatewayConnection, channel: Channel, method: QueueDeclare
) -> MethodBase | None:
    """Declare a queue, or check that it exists; it becomes the channel's last declared queue."""
    name = method.queue
    if is_reply_name(name):
        return None if method.no_wait else declare_reply_queue(connection, name)
    host = authorized_host(connection)
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


def declare_reply_queue(connection: GatewayConnection, name: str) -> QueueDeclareOk:
    """Answer a declare of a name of direct reply-to, a query whether the requester still exists.

    Raises:
        NotFound: no consumer of replies has that name.
    """
    if name != REPLY_TO and name not in connection.vhost.queues:
        raise NotFound(f"no queue '{name}' in vhost '{connection.vhost.name}'")
    return QueueDeclareOk(queue=name, message_count=0, consumer_count=1)


def bind(connection: GatewayConnection, channel: Channel, method: QueueBind) -> MethodBase | None:
    """Bind a queue to an exchange."""
    name, key = read_binding_ends(channel, method)
    authorized_host(connection).bind(method.exchange, (QUEUE, name), key, method.arguments)
    return None if method.no_wait else QueueBindOk()


def unbind(connection: GatewayConnection, channel: Channel, method: QueueUnbind) -> MethodBase:
    """Remove a binding."""
    name, key = read_binding_ends(channel, method)
    was_bound = authorized_host(connection).unbind(
        method.exchange, (QUEUE, name), key, method.arguments
    )
    if connection.is_early:
        early_rules.check_unbound(was_bound, method.exchange, connection.vhost.name)
    return QueueUnbindOk()


def refuse_binding(name: str) -> None:
    """Refuse a binding of a name of direct reply-to.

    Replies arrive through the default exchange only.

    Raises:
        AccessRefused: the name belongs to direct reply-to.
    """
    if is_reply_name(name):
        raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")


def read_binding_ends(channel: Channel, method: QueueBind | QueueUnbind) -> tuple[str, str]:
    """Return the queue and the routing key of a binding.

    An empty queue name is the channel's last declared queue; an empty key is then its name.
    """
    name = name_or_last(channel, method.queue)
    refuse_binding(name)
    key = method.routing_key
    return name, name if not method.queue and not key else key


def purge(connection: GatewayConnection, channel: Channel, method: QueuePurge) -> MethodBase | None:
    """Drop the ready messages of a queue; unacked messages stay with their consumers."""
    count = authorized_host(connection).purge_queue(name_or_last(channel, method.queue))
    return None if method.no_wait else QueuePurgeOk(message_count=min(count, COUNT_MAX))


def delete(
    connection: GatewayConnection, channel: Channel, method: QueueDelete
) -> MethodBase | None:
    """Delete a queue and its messages."""
    name = name_or_last(channel, method.queue)
    count = authorized_host(connection).delete_queue(
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
