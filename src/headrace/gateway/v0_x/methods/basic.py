# SPDX-License-Identifier: Apache-2.0
"""The basic class of 0-8 to 0-9-1, without the publishes and acks of the hot path."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, cast

from headrace.gateway.conversion.convert import CannotConvert, Converter
from headrace.gateway.messages import direct_reply_to
from headrace.gateway.messages.consumer_timeout import find_timeout_ms
from headrace.gateway.messages.unsettled import SETTLE_ACCEPT, SETTLE_DISCARD, SETTLE_REQUEUE
from headrace.gateway.v0_x.channel.consumer import BasicConsumer, GetConsumer
from headrace.gateway.v0_x.channel.ending import end_consumer
from headrace.gateway.v0_x.host import check_access
from headrace.gateway.v0_x.methods.consumers import (
    CONSUMERS_MAX,
    enforce_timeout,
    find_consumer_channel,
    find_source,
)
from headrace.gateway.v0_x.methods.queue import find_queue
from headrace.model.arguments.consumer import ConsumerFilter
from headrace.model.errors import AccessRefused, PreconditionFailed
from headrace.model.message import KIND_MASK, Message
from headrace.model.operations.queue_view import ARGUMENT as BROWSE
from headrace.model.operations.queue_view import get_view
from headrace.model.queue_kinds.multi_queue import head_consumer
from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicRecoverSync,
    BasicRecoverSyncOk,
    BasicReject,
    MethodBase,
)
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import V0_8

if TYPE_CHECKING:
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.handlers import Handler
    from headrace.model.queue.queue import Queue
    from headrace.model.stream.stream import Stream

REFUSED_MAX = 65536  # Rejected messages of a channel that are not delivered to it again.


def qos(connection: GatewayConnection, channel: Channel, method: BasicQos) -> MethodBase:
    """Limit the unsettled deliveries: of a consumer, a channel, or the whole connection.

    ``has_room`` and ``evaluate`` of
    :class:`headrace.gateway.v0_x.channel.consumer.BasicConsumer` apply the limits.
    """
    count = method.prefetch_count
    limit_prefetch_size(channel, method.prefetch_size)
    if uses_channel_prefetch(connection):
        if method.global_ and not connection.quirks.channel_prefetch:
            connection.prefetch = count
        else:
            channel.prefetch = count
    elif method.global_:
        channel.prefetch = count
    else:
        channel.consumer_prefetch = count
    connection.refresh_all()
    return BasicQosOk()


def uses_channel_prefetch(connection: GatewayConnection) -> bool:
    """Return True if a prefetch count limits a whole channel, as in the standards."""
    return bool(
        connection.context.specification_qos
        or connection.is_early
        or connection.quirks.channel_prefetch
    )


def limit_prefetch_size(channel: Channel, size: int) -> None:
    """Limit the bytes that may be unsettled on a channel, also of its consumers; 0 is no limit.

    Queues call ``evaluate`` for each message only while there is a limit or a filter.
    """
    channel.prefetch_size = size
    for consumer in (channel.consumers or {}).values():
        selective = consumer.is_filtering or size > 0
        consumer.queue.set_selective(consumer, selective)


def consume(connection: GatewayConnection, channel: Channel, method: BasicConsume) -> None:
    """Start a consumer."""
    if method.queue == direct_reply_to.REPLY_TO:
        with direct_reply_to.queue_for_consumer(connection, channel, not method.no_ack) as queue:
            start_consumer(connection, channel, method, queue)
    else:
        start_consumer(connection, channel, method, None)


# Keeps 0-9-1/s098, 0-9-1/s100, 0-9/basic.consume.consumer-tag#01, 0-9/basic.consume.exclusive#01.
def start_consumer(
    connection: GatewayConnection, channel: Channel, method: BasicConsume, queue: Queue | None
) -> None:
    """Start a consumer of ``queue``; None is the queue of the method."""
    tag = method.consumer_tag or f"amq.ctag-{secrets.token_urlsafe(16)}"
    consumers = channel.consumers
    if consumers is None:
        consumers = channel.consumers = {}
    if tag in consumers or (
        connection.is_early and find_consumer_channel(connection, tag) is not None
    ):
        raise AmqpError(ReplyCode.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    if len(consumers) >= CONSUMERS_MAX:
        raise AmqpError(ReplyCode.RESOURCE_ERROR, f"more than {CONSUMERS_MAX} consumers")
    if queue is None:
        queue = find_source(connection, channel, method.queue, method.arguments)
    vhost = connection.vhost.name
    if queue.exclusive_consumer is not None or (
        method.exclusive and (queue.consumer_count() or queue.single_active)
    ):
        raise AccessRefused(f"queue '{queue.name}' in vhost '{vhost}' in exclusive use")
    arguments = method.arguments
    timeout_ms = 0
    if not method.no_ack:
        timeout_ms = find_timeout_ms(
            connection.vhost, queue, arguments, connection.context.consumer_timeout_ms
        )
    consumer_filter = ConsumerFilter(arguments, f"queue '{queue.name}' in vhost '{vhost}'")
    if arguments.get(BROWSE) or consumer_filter.is_browser or queue.browse_only:
        queue = get_view(queue)
    consumer = BasicConsumer(connection, channel, queue, tag, method.no_ack)
    consumer.exclusive = method.exclusive
    consumer.no_local = method.no_local
    consumer.is_filtering = bool(channel.refused)
    consumer.is_selective = method.no_local or channel.prefetch_size > 0 or consumer.is_filtering
    consumer.prefetch = 0 if method.no_ack else channel.consumer_prefetch
    consumer.arguments = arguments
    consumer_filter.apply(consumer)
    connection.vhost.check_consumer(consumer)
    if queue.is_stream:
        if uses_channel_prefetch(connection):  # Consumers have no limit of their own.
            consumer.prefetch = channel.prefetch or connection.prefetch
        stream = cast("Stream", queue)
        stream.check_consumer(consumer, connection.publishes or connection.published)
    consumers[tag] = consumer
    if not method.no_wait:
        connection.reply(channel.number, BasicConsumeOk(consumer_tag=tag))
    queue.used_ms = connection.counters.now_ms
    queue.add_consumer(consumer)
    if timeout_ms:
        enforce_timeout(connection, channel, consumer, timeout_ms)
    queue.drain()


# Keeps 0-9-1/s099, 0-9-1/basic.cancel#01, 0-9/basic.cancel#01, 0-9/basic.consume.consumer-tag#02.
def cancel(
    connection: GatewayConnection, channel: Channel, method: BasicCancel
) -> MethodBase | None:
    """End a consumer; its unsettled messages stay on the channel.

    A missing consumer is confirmed, too. ``BasicConsumer.on_cancel`` removes the consumers of a
    deleted queue.
    """
    tag = method.consumer_tag
    consumers = channel.consumers or {}
    consumer = consumers.get(tag)
    if isinstance(consumer, BasicConsumer):
        del consumers[tag]
    else:
        consumer = None  # Missing, or of another class, which has its own cancel method.
    if (
        consumer is None
        and connection.is_early
        and find_consumer_channel(connection, tag) is not None
    ):
        raise AmqpError(
            ReplyCode.NOT_ALLOWED, f"consumer tag '{tag}' is of another channel"
        )  # 0-9/basic.consume.consumer-tag#02
    if consumer is not None:
        end_consumer(connection.vhost, consumer)
    return None if method.no_wait else BasicCancelOk(consumer_tag=tag)


def cancel_ok(connection: GatewayConnection, channel: Channel, method: BasicCancelOk) -> None:
    """Do nothing: the client confirms that its consumer was cancelled."""


def get(connection: GatewayConnection, channel: Channel, method: BasicGet) -> MethodBase | None:
    """Deliver one message, or answer get-empty."""
    queue = find_queue(connection, channel, method.queue)
    check_access(connection, "read", "queue", queue.name)
    if queue.exclusive_consumer is not None:
        raise AccessRefused(
            f"queue '{queue.name}' in vhost '{connection.vhost.name}' in exclusive use"
        )
    if queue.browse_only:
        raise AccessRefused(
            f"queue '{queue.name}' in vhost '{connection.vhost.name}' is for browsing only"
        )
    if queue.is_stream:
        raise AmqpError(
            ReplyCode.NOT_IMPLEMENTED, f"basic.get is not served by stream '{queue.name}'"
        )
    queue.used_ms = connection.counters.now_ms
    get_consumers = channel.get_consumers
    if get_consumers is None:
        get_consumers = channel.get_consumers = {}
    key = (queue.name, method.no_ack)
    consumer = get_consumers.get(key)
    if consumer is None or consumer.queue is not queue:
        if len(get_consumers) > 1024:
            get_consumers.clear()
        consumer = get_consumers[key] = GetConsumer(connection, channel, queue, method.no_ack)
    while True:
        message = queue.get(consumer)
        if message is None:
            channel.tally.get_empty += 1
            return BasicGetEmpty()
        try:
            converted = converted_header(connection, channel, message)
            break
        except CannotConvert as error:
            queue.on_unconvertible(message, consumer, error.reason)
    channel.write_get_ok(message, queue.ready_count, converted, method.no_ack)
    if method.no_ack:
        queue.remove(message)
    return None


def converted_header(
    connection: GatewayConnection, channel: Channel, message: Message
) -> bytes | None:
    """Return the converted header of a message from 0-10; None for a message of 0-x.

    Raises:
        CannotConvert: 0-9-1 has no form for the header.
    """
    if not message.flags & KIND_MASK:
        return None
    if channel.converter is None:
        channel.converter = Converter(connection.frame_max - 8)
    return channel.basic_header(channel.converter, message)


def ack(connection: GatewayConnection, channel: Channel, method: BasicAck) -> None:
    """Accept deliveries; most acks take the hot path. ``Channel.check_tag`` checks the tag."""
    channel.settle(method.delivery_tag, method.multiple, SETTLE_ACCEPT)


# Keeps 0-9-1/basic.reject#02, 0-9/basic.reject#02, 0-9/basic.reject#03.
def reject(connection: GatewayConnection, channel: Channel, method: BasicReject) -> None:
    """Requeue or discard one delivery.

    In 0-8 and 0-9 the channel's consumers do not get a requeued message again. In 0-9-1
    ``Queue.requeue`` only prefers another consumer.
    """
    outcome = SETTLE_REQUEUE if method.requeue else SETTLE_DISCARD
    if connection.is_early and method.requeue and channel.is_unsettled(method.delivery_tag):
        refuse(channel, method.delivery_tag)
    channel.settle(method.delivery_tag, False, outcome)


# Keeps 0-9/basic.reject.requeue#01.
def refuse(channel: Channel, tag: int) -> None:
    """Exclude a rejected message from the channel's consumers.

    It waits for another channel's consumer or for basic.get. ``BasicConsumer.evaluate`` reads
    ``refused``.
    """
    message = channel.unsettled.find(tag)
    assert message is not None, "the tag was checked"
    if channel.refused is None or len(channel.refused) >= REFUSED_MAX:
        channel.refused = set()
    channel.refused.add(message.seq)
    for consumer in (channel.consumers or {}).values():
        consumer.queue.start_filtering(consumer)


def nack(connection: GatewayConnection, channel: Channel, method: BasicNack) -> None:
    """Requeue or discard deliveries."""
    outcome = SETTLE_REQUEUE if method.requeue else SETTLE_DISCARD
    channel.settle(method.delivery_tag, method.multiple, outcome)


# Keeps 0-9/basic.recover#02.
def recover(
    connection: GatewayConnection, channel: Channel, method: BasicRecover
) -> MethodBase | None:
    """Redeliver all unsettled messages of the channel.

    Only 0-9-1 has an answer, but some clients wait for one in 0-8.
    """
    if connection.is_early:
        check_no_tx(channel)
    redeliver(channel, method.requeue)
    if connection.is_early and not (connection.speaks_extensions and connection.version is V0_8):
        return None
    return BasicRecoverOk()


def recover_sync(
    connection: GatewayConnection, channel: Channel, method: BasicRecoverSync
) -> MethodBase:
    """Redeliver all unsettled messages of the channel, and answer."""
    check_no_tx(channel)
    redeliver(channel, method.requeue)
    return BasicRecoverSyncOk()


# Keeps 0-9/basic.recover#02, 0-9/message.recover#02.
def check_no_tx(channel: Channel) -> None:
    """Refuse to recover on a transacted channel."""
    if channel.tx:
        raise PreconditionFailed("basic.recover is not allowed on a transacted channel")


def recover_async(
    connection: GatewayConnection, channel: Channel, method: BasicRecoverAsync
) -> None:
    """Redeliver all unsettled messages of the channel, without an answer."""
    redeliver(channel, method.requeue)


# Keeps 0-9-1/s004, 0-9-1/basic.recover-async#01, 0-9-1/basic.recover#01, 0-9/basic.recover#01,
# 0-9/redelivered#implementation.
def redeliver(channel: Channel, requeue: bool) -> None:
    """Return unsettled messages to their queues, or to the same consumers.

    ``Queue.requeue`` and ``Queue.redeliver`` set the redelivered flag. Messages that the channel's
    transaction has settled stay settled.
    """
    if requeue:
        channel.requeue_all()
        return
    queues: dict[Queue, None] = {}
    for message in channel.pop_unsettled():
        consumer = message.consumer
        queue = consumer.queue
        head = head_consumer(consumer)
        alive = (
            isinstance(head, BasicConsumer)
            and channel.consumers is not None
            and channel.consumers.get(head.tag) is head
        )
        if alive:
            queue.redeliver(message)
        else:
            queue.requeue(message)
            queues[queue] = None
    for queue in queues:
        queue.drain()


HANDLERS: dict[str, Handler] = {
    "basic.qos": qos,
    "basic.consume": consume,
    "basic.cancel": cancel,
    "basic.cancel-ok": cancel_ok,
    "basic.get": get,
    "basic.ack": ack,
    "basic.reject": reject,
    "basic.nack": nack,
    "basic.recover": recover,
    "basic.recover-sync": recover_sync,
    "basic.recover-async": recover_async,
}
