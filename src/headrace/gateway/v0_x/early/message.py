# SPDX-License-Identifier: Apache-2.0
"""The message class of 0-9: its methods, and transfers to the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.gateway.connection.plug_in_state import ensure_state
from headrace.gateway.conversion.headers import shortstr
from headrace.gateway.conversion.neutral_basic import write_basic
from headrace.gateway.conversion.neutral_message import read_message
from headrace.gateway.conversion.neutral_values import CannotConvert
from headrace.gateway.messages.consumer_timeout import find_timeout_ms
from headrace.gateway.messages.direct_reply_to import REPLY_TO, queue_for_consumer
from headrace.gateway.v0_x.channel.consumer import GetConsumer
from headrace.gateway.v0_x.channel.ending import end_consumer
from headrace.gateway.v0_x.early.message_transfers import (
    ChannelTransfers,
    MessageConsumer,
    channel_transfers,
    deliver,
)
from headrace.gateway.v0_x.early.references import Checkpoints
from headrace.gateway.v0_x.host import check_access, check_topic
from headrace.gateway.v0_x.methods.basic import check_no_tx, limit_prefetch_size, redeliver
from headrace.gateway.v0_x.methods.consumers import (
    CONSUMERS_MAX,
    enforce_timeout,
    find_consumer_channel,
    find_source,
)
from headrace.gateway.v0_x.methods.queue import find_queue
from headrace.model.arguments.consumer import ConsumerFilter
from headrace.model.errors import AccessRefused
from headrace.model.operations.queue_view import ARGUMENT as BROWSE
from headrace.model.operations.queue_view import get_view
from headrace.protocol.codec_0_x import (
    MessageAppend,
    MessageCancel,
    MessageCheckpoint,
    MessageClose,
    MessageConsume,
    MessageEmpty,
    MessageGet,
    MessageOffset,
    MessageOk,
    MessageOpen,
    MessageQos,
    MessageRecover,
    MessageReject,
    MessageResume,
    MessageTransfer,
    MethodBase,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.frames import FRAME_BODY, FRAME_HEADER, make_frame
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.early.references import Key, Reference
    from headrace.gateway.v0_x.handlers import Handler
    from headrace.model.queue.queue import Queue
    from headrace.model.stream.stream import Stream

INLINE_BODY_MAX = 65536  # The maximum bytes of a body in one piece; larger ones are in parts.
IMMEDIATE = 2  # The bit of basic.publish.
REJECT_GENERIC = 0
REJECT_IMMEDIATE = 1


def transfer(connection: GatewayConnection, channel: Channel, method: MessageTransfer) -> None:
    """Publish a message; one by reference when the reference is closed."""
    transfers = channel_transfers(connection, channel)
    check_access(connection, "write", "exchange", method.destination or "amq.default")
    check_topic(connection, "write", method.destination, method.routing_key)
    connection.vhost.check_publishable(method.destination)
    if method.body.is_reference:
        transfers.references.find(method.body.data).transfers.append(method)
        return
    publish(transfers, method, [method.body.data] if method.body.data else [])


# Keeps 0-9/message.transfer.immediate#01, 0-9/message.transfer#01, 0-9/reject-code#01.
def publish(transfers: ChannelTransfers, method: MessageTransfer, parts: list[bytes]) -> None:
    """Publish a message and answer its transfer."""
    connection, channel = transfers.connection, transfers.channel
    size = sum(map(len, parts))
    if size > connection.body_max:
        raise AmqpError(
            ReplyCode.CONTENT_TOO_LARGE,
            f"a body of {size} bytes exceeds the {connection.body_max} that are allowed",
        )
    properties = read_message(method)
    if properties.timestamp_s is None:  # "Set on arrival by the broker" (0-9).
        properties.timestamp_s = connection.counters.now_ms // 1000
    try:
        header = write_basic(properties, size)
    except CannotConvert as error:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, error.reason) from None
    address = shortstr(method.destination) + shortstr(method.routing_key)
    bits = IMMEDIATE if method.immediate else 0
    start = address + bytes((bits, 0xCE)) + make_frame(FRAME_HEADER, channel.number, header)
    large: tuple[bytes, ...] | None = None
    if size > INLINE_BODY_MAX:
        large = tuple(parts)
    elif size:
        limit = connection.frame_max - 8
        body = b"".join(parts)
        start += b"".join(
            [
                make_frame(FRAME_BODY, channel.number, body[position : position + limit])
                for position in range(0, size, limit)
            ]
        )
    refused = connection.publish_receiver.publish_content(channel, start, len(address), size, large)
    if refused < 0:
        text = "no consumer takes it at once"
        transfers.answer(MessageReject(code=REJECT_IMMEDIATE, text=text))
    elif refused:
        transfers.answer(MessageReject(code=REJECT_GENERIC, text="a queue has no room for it"))
    else:
        connection.reply_when_durable(channel, MessageOk())


def consume(connection: GatewayConnection, channel: Channel, method: MessageConsume) -> None:
    """Start a consumer, whose destination is its tag."""
    transfers = channel_transfers(connection, channel)
    if method.queue == REPLY_TO:
        with queue_for_consumer(connection, channel, not method.no_ack) as queue:
            start_consumer(connection, channel, method, transfers, queue)
    else:
        queue = find_source(connection, channel, method.queue, method.filter)
        start_consumer(connection, channel, method, transfers, queue)


# Keeps 0-9/message.consume.destination#01.
def start_consumer(
    connection: GatewayConnection,
    channel: Channel,
    method: MessageConsume,
    transfers: ChannelTransfers,
    queue: Queue,
) -> None:
    """Start a consumer of a queue."""
    tag = method.destination
    consumers = channel.consumers
    if consumers is None:
        consumers = channel.consumers = {}
    if tag in consumers or (tag and find_consumer_channel(connection, tag) is not None):
        raise AmqpError(ReplyCode.NOT_ALLOWED, f"attempt to reuse destination '{tag}'")
    if len(consumers) >= CONSUMERS_MAX:
        raise AmqpError(ReplyCode.RESOURCE_ERROR, f"more than {CONSUMERS_MAX} consumers")
    check_exclusive(queue, exclusive=method.exclusive)
    refuse_stream(queue, method)
    subject = f"queue '{queue.name}' in vhost '{connection.vhost.name}'"
    consumer_filter = ConsumerFilter(method.filter, subject)
    if method.filter.get(BROWSE) or consumer_filter.is_browser or queue.browse_only:
        queue = get_view(queue)
    timeout_ms = 0
    if not method.no_ack:
        timeout_ms = find_timeout_ms(
            connection.vhost, queue, method.filter, connection.context.consumer_timeout_ms
        )
    consumer = MessageConsumer(transfers, queue, tag, method.no_ack)
    consumer.exclusive = method.exclusive
    consumer.no_local = method.no_local
    consumer.is_selective = method.no_local or channel.prefetch_size > 0
    consumer.prefetch = 0 if method.no_ack else channel.consumer_prefetch
    consumer.arguments = method.filter
    consumer_filter.apply(consumer)
    connection.vhost.check_consumer(consumer)
    if queue.is_stream:
        consumer.prefetch = channel.prefetch or connection.prefetch
        stream = cast("Stream", queue)
        stream.check_consumer(consumer, connection.publishes or connection.published)
    consumers[tag] = consumer
    transfers.answer(MessageOk())
    queue.used_ms = connection.counters.now_ms
    queue.add_consumer(consumer)
    if timeout_ms:
        enforce_timeout(connection, channel, consumer, timeout_ms)
    queue.drain()


# Keeps 0-9/message.consume.exclusive#01.
def check_exclusive(queue: Queue, *, exclusive: bool) -> None:
    """Refuse a queue that has an exclusive consumer, or that cannot have one."""
    others = queue.consumer_count() or queue.single_active
    if queue.exclusive_consumer is not None or (exclusive and others):
        raise AccessRefused(f"queue '{queue.name}' is in exclusive use")


def refuse_stream(queue: Queue, method: MethodBase) -> None:
    """Refuse a stream: a transfer has no field for an offset."""
    if queue.is_stream:
        raise AmqpError(
            ReplyCode.NOT_IMPLEMENTED, f"{method.NAME} is not served by stream '{queue.name}'"
        )


# Keeps 0-9/message.consume.destination#02, 0-9/message.cancel#01.
def cancel(connection: GatewayConnection, channel: Channel, method: MessageCancel) -> None:
    """End a consumer; its unsettled messages stay on the channel.

    A missing consumer is confirmed, too. ``MessageConsumer.on_cancel`` removes the consumers of a
    deleted queue.
    """
    tag = method.destination
    consumer = channel.consumers.pop(tag, None) if channel.consumers else None
    if consumer is None and tag and find_consumer_channel(connection, tag) is not None:
        raise AmqpError(
            ReplyCode.NOT_ALLOWED, f"destination '{tag}' is of another channel"
        )  # 0-9/message.consume.destination#02
    if consumer is not None:
        end_consumer(connection.vhost, consumer)
    channel_transfers(connection, channel).answer(MessageOk())


def get(connection: GatewayConnection, channel: Channel, method: MessageGet) -> None:
    """Transfer one message to the destination that the client names."""
    transfers = channel_transfers(connection, channel)
    queue = find_queue(connection, channel, method.queue)
    check_access(connection, "read", "queue", queue.access_name)
    check_exclusive(queue, exclusive=False)
    refuse_stream(queue, method)
    if queue.browse_only:
        raise AccessRefused(f"queue '{queue.name}' is for browsing only")
    queue.used_ms = connection.counters.now_ms
    consumer = GetConsumer(connection, channel, queue, method.no_ack)
    while True:
        message = queue.get(consumer)
        if message is None:
            channel.tally.get_empty += 1
            transfers.answer(MessageEmpty())
            return
        if deliver(transfers, message, consumer, method.destination, method.no_ack):
            channel.count_get(method.no_ack)
            break
    if method.no_ack:
        queue.remove(message)
    transfers.answer(MessageOk())


# Keeps 0-9/message.recover#02, 0-9/message.recover#01.
def recover(connection: GatewayConnection, channel: Channel, method: MessageRecover) -> None:
    """Redeliver all unsettled messages of the channel.

    ``Queue.requeue`` and ``Queue.redeliver`` set the redelivered flag.
    """
    check_no_tx(channel)
    transfers = channel_transfers(connection, channel)
    transfers.remove_transfers()
    redeliver(channel, method.requeue)
    transfers.answer(MessageOk())


def qos(connection: GatewayConnection, channel: Channel, method: MessageQos) -> None:
    """Limit the unsettled messages of the channel, or of the whole connection."""
    limit_prefetch_size(channel, method.prefetch_size)
    if method.global_:
        connection.prefetch = method.prefetch_count
    else:
        channel.prefetch = method.prefetch_count
    connection.refresh_all()
    channel_transfers(connection, channel).answer(MessageOk())


# --- References ---------------------------------------------------------------------------------


def open_(connection: GatewayConnection, channel: Channel, method: MessageOpen) -> None:
    """Open a reference, to which later methods append a body."""
    transfers = channel_transfers(connection, channel)
    transfers.references.open(method.reference)
    transfers.answer(MessageOk())


def append(connection: GatewayConnection, channel: Channel, method: MessageAppend) -> None:
    """Append to a reference."""
    transfers = channel_transfers(connection, channel)
    transfers.references.append(transfers.references.find(method.reference), method.data)
    transfers.answer(MessageOk())


# Keeps 0-9/message.close#01.
def close(connection: GatewayConnection, channel: Channel, method: MessageClose) -> None:
    """Close a reference, and publish the messages that were transferred by it."""
    transfers = channel_transfers(connection, channel)
    reference = transfers.references.close(method.reference)
    if reference.checkpoint is not None:
        broker_checkpoints(connection).remove(reference.checkpoint)
    transfers.answer(MessageOk())
    parts = reference.body()
    for deferred in reference.transfers:
        publish(transfers, deferred, parts)


def checkpoint(connection: GatewayConnection, channel: Channel, method: MessageCheckpoint) -> None:
    """Keep the present body of a reference, in case the connection is lost."""
    transfers = channel_transfers(connection, channel)
    reference = transfers.references.find(method.reference)
    reference.checkpoint = checkpoint_key(connection, method.identifier)
    checkpoints = broker_checkpoints(connection)
    now_ms = connection.counters.now_ms
    checkpoints.add(reference.checkpoint, reference, now_ms)
    next_expiry_ms = checkpoints.expire(now_ms)
    if next_expiry_ms:
        connection.vhost.scheduler.put(checkpoints, next_expiry_ms, checkpoints.expire)
    transfers.answer(MessageOk())


# Keeps 0-9/message.resume.reference#01.
def resume(connection: GatewayConnection, channel: Channel, method: MessageResume) -> None:
    """Open a reference with the body of its checkpoint; empty if there is no checkpoint."""
    transfers = channel_transfers(connection, channel)
    key = checkpoint_key(connection, method.identifier)
    reference: Reference = transfers.references.open(method.reference)
    reference.checkpoint = key
    for part in broker_checkpoints(connection).resume(key, connection.counters.now_ms):
        transfers.references.append(reference, part)
    transfers.answer(MessageOffset(value=reference.size))


def broker_checkpoints(connection: GatewayConnection) -> Checkpoints:
    """Return the checkpoints of references that this broker keeps."""
    return ensure_state(connection.context, Checkpoints, Checkpoints)


def checkpoint_key(connection: GatewayConnection, identifier: str) -> Key:
    """Return the key of a checkpoint, which includes its user: only that user resumes it."""
    return connection.vhost.name, connection.user.name, identifier


# --- Answers ------------------------------------------------------------------------------------


def ok(connection: GatewayConnection, channel: Channel, method: MessageOk) -> None:
    """Settle the oldest delivery or method that awaits an answer."""
    channel_transfers(connection, channel).accept_oldest()


# Keeps 0-9/reject-code#01.
def reject(connection: GatewayConnection, channel: Channel, method: MessageReject) -> None:
    """Discard the delivery that a client rejects.

    Raises:
        AmqpError: the code is none of the standard's (0-9/reject-code#01).
    """
    if method.code not in (REJECT_GENERIC, REJECT_IMMEDIATE):
        raise AmqpError(ReplyCode.SYNTAX_ERROR, f"unknown reject code {method.code}")
    channel_transfers(connection, channel).reject_oldest()


def refuse_answer(connection: GatewayConnection, channel: Channel, method: MethodBase) -> None:
    """Refuse an answer to a method that was not sent."""
    raise AmqpError(ReplyCode.COMMAND_INVALID, f"{method.NAME} answers nothing")


HANDLERS: dict[str, Handler] = {
    "message.transfer": transfer,
    "message.consume": consume,
    "message.cancel": cancel,
    "message.get": get,
    "message.recover": recover,
    "message.qos": qos,
    "message.open": open_,
    "message.append": append,
    "message.close": close,
    "message.checkpoint": checkpoint,
    "message.resume": resume,
    "message.ok": ok,
    "message.reject": reject,
    "message.empty": refuse_answer,
    "message.offset": refuse_answer,
}
