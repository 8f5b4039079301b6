# SPDX-License-Identifier: Apache-2.0
"""The queue class: declare, bind, unbind, purge, delete, and the permissions each asks for."""

from __future__ import annotations

from typing import Any

from headrace.gateway.messages.direct_reply_to import is_reply_name
from headrace.gateway.v0_x import early_rules
from headrace.gateway.v0_x.direct_reply_to import declared, refuse_binding
from headrace.gateway.v0_x.methods.basic import check_access, check_topic, last_or, queue_of
from headrace.gateway.v0_x.methods.exchange import check_any_access, unbind_from
from headrace.model.exchange.binding import QUEUE, Binding
from headrace.model.exchange.exchange import TopicExchange
from headrace.model.policy.unknown_arguments import DEAD_LETTERS, dead_letter_queue
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

ELSEWHERE = ("x-dead-letter-exchange", "alternate-exchange")  # Where a queue's messages may go.
OFFSET_QUERY = "x-stream-offset-query"
COUNT_MAX = 0xFFFFFFFF


def declare(connection: Any, channel: Any, method: QueueDeclare) -> MethodBase | None:
    """Make a queue, or make sure that it is there; the channel remembers it as its last."""
    vhost = connection.vhost
    name = method.queue
    if is_reply_name(name):
        return None if method.no_wait else declared(connection, name)
    if method.passive:
        known = vhost.queues.get(name)
        check_any_access(connection, "queue", name if known is None else known.access_name)
    elif name:
        check_access(connection, "configure", "queue", name)
    arguments = method.arguments
    if not method.passive and name not in vhost.queues:
        if not name:
            check_access(connection, "configure", "queue", "amq.gen-")
        arguments = vhost.understand(arguments, name)
        if arguments.get(DEAD_LETTERS) == 1:
            check_access(connection, "configure", "queue", dead_letter_queue(name))
        quotas, user = connection.context.quotas, connection.user.name
        quotas.check_queue(connection.context.vhosts.values(), user, name)
        for argument in ELSEWHERE:
            exchange = arguments.get(argument)
            if isinstance(exchange, str):
                check_access(connection, "read", "queue", name)
                letters = argument == ELSEWHERE[0]
                key = arguments.get("x-dead-letter-routing-key") if letters else None
                connection.context.access.check_elsewhere(
                    connection.user, vhost, exchange, key, letters=letters
                )
    if connection.early and not method.passive:
        early_rules.check_new_queue(vhost, name)
    queue = vhost.declare_queue(
        name,
        passive=method.passive,
        durable=method.durable,
        exclusive=method.exclusive,
        auto_delete=method.auto_delete,
        arguments=arguments,
        owner=connection,
        kept=method.exclusive and method.durable and connection.quirks.keeps_exclusive,
        sticky=connection.early or connection.quirks.redeclares,
        user=connection.user.name,
        session=channel,
    )
    channel.last_queue = queue.name
    if method.no_wait:
        return None
    if method.passive and queue.is_stream and OFFSET_QUERY in method.arguments:
        offset = queue.resolve(method.arguments[OFFSET_QUERY])
        return QueueDeclareOk(
            queue=queue.name, message_count=offset & COUNT_MAX, consumer_count=offset >> 32
        )
    count = queue.message_count()
    return QueueDeclareOk(
        queue=queue.name,
        message_count=min(count, COUNT_MAX),
        consumer_count=queue.consumer_count(),
    )


def bind(connection: Any, channel: Any, method: QueueBind) -> MethodBase | None:
    """Bind a queue to an exchange."""
    name, routing_key = ends_of(connection, channel, method)
    if connection.early:
        early_rules.check_binding(connection.vhost, method.exchange, name)
    connection.vhost.bind(
        method.exchange, (QUEUE, name), routing_key, method.arguments, owner=connection
    )
    if connection.quirks.rebinds:
        replace_binding(connection, method.exchange, name, routing_key, method.arguments)
    return None if method.no_wait else QueueBindOk()


def replace_binding(
    connection: Any, exchange: str, name: str, routing_key: str, arguments: dict[str, Any]
) -> None:
    """Undo the bindings of a queue to a topic exchange that the last one is to replace.

    So JMS changes the selector of a durable subscription.
    """
    vhost = connection.vhost
    source, queue = vhost.exchanges[exchange], vhost.queues[name]
    if source.type != TopicExchange.type:
        return
    latest = Binding(source, queue, routing_key, arguments)
    for binding in vhost.bindings_to(queue):
        if binding.source is source and binding.routing_key == routing_key and binding != latest:
            vhost.unbind(exchange, (QUEUE, name), routing_key, binding.arguments, owner=connection)


def unbind(connection: Any, channel: Any, method: QueueUnbind) -> MethodBase:
    """Undo a binding."""
    name, routing_key = ends_of(connection, channel, method)
    undone = unbind_from(connection, method.exchange, (QUEUE, name), routing_key, method.arguments)
    if connection.early:
        early_rules.check_undone(undone, method.exchange, connection.vhost.name)
    return QueueUnbindOk()


def ends_of(connection: Any, channel: Any, method: QueueBind | QueueUnbind) -> tuple[str, str]:
    """Return the queue and routing key that are meant, if the user may connect them.

    Without a queue name it is the channel's last; without any name its name is the key as well.
    """
    name = last_or(channel, method.queue)
    routing_key = method.routing_key
    if not method.queue and not routing_key:
        routing_key = name
    refuse_binding(name)
    check_access(connection, "write", "queue", name)
    check_access(connection, "read", "exchange", method.exchange)
    check_topic(connection, "read", method.exchange, routing_key)
    return name, routing_key


def purge(connection: Any, channel: Any, method: QueuePurge) -> MethodBase | None:
    """Drop what is ready in a queue; what consumers hold stays theirs."""
    check_access(connection, "read", "queue", last_or(channel, method.queue))
    queue = queue_of(connection, channel, method.queue)
    if queue.is_stream:
        raise AmqpError(
            ReplyCode.NOT_IMPLEMENTED,
            f"purge of stream '{queue.name}' in vhost '{connection.vhost.name}' is not served",
        )
    count = connection.vhost.purge_queue(queue)
    return None if method.no_wait else QueuePurgeOk(message_count=min(count, COUNT_MAX))


def delete(connection: Any, channel: Any, method: QueueDelete) -> MethodBase | None:
    """Delete a queue with what is in it."""
    name = last_or(channel, method.queue)
    check_access(connection, "configure", "queue", name)
    if connection.early:
        early_rules.check_exists("queue", name, connection.vhost.queues, connection.vhost.name)
    count = connection.vhost.delete_queue(
        name, if_unused=method.if_unused, if_empty=method.if_empty, owner=connection
    )
    return None if method.no_wait else QueueDeleteOk(message_count=min(count, COUNT_MAX))


HANDLERS: dict[str, Any] = {
    "queue.declare": declare,
    "queue.bind": bind,
    "queue.unbind": unbind,
    "queue.purge": purge,
    "queue.delete": delete,
}
