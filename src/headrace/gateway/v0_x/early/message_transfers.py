# SPDX-License-Identifier: Apache-2.0
"""Transfers of 0-9 to a client, its consumers of messages, and the order of answers.

The answers of the class (ok, reject, offset, empty) do not identify a method: their order counts. A
peer answers methods in the order in which it finished them. A transfer by reference is finished
when its reference is closed (0-9/message.close#01), so its answer follows the answer of the close.
The broker sends the ok to a transfer when the message is durable in its queues.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, cast

from headrace.gateway.connection.plug_in_state import ChannelState, ensure_state
from headrace.gateway.conversion.contents import header_segment
from headrace.gateway.conversion.convert import join_body_frames
from headrace.gateway.conversion.headers import header_payload, message_address
from headrace.gateway.conversion.neutral_basic import read_basic
from headrace.gateway.conversion.neutral_message import write_message
from headrace.gateway.conversion.neutral_transfer import read_transfer
from headrace.gateway.conversion.neutral_values import CannotConvert
from headrace.gateway.messages.unsettled import SETTLE_ACCEPT, SETTLE_DISCARD
from headrace.gateway.v0_x.channel.consumer import BasicConsumer, GetConsumer
from headrace.gateway.v0_x.early.references import References
from headrace.model.message import KIND_MASK, REDELIVERED, Message
from headrace.model.queue.destination import ACCEPTED, NEVER
from headrace.model.queue_kinds.multi_queue import head_consumer
from headrace.protocol.codec_0_x import (
    MessageAppend,
    MessageCancel,
    MessageClose,
    MessageOpen,
    MethodBase,
    encode_method,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.channel import CLOSING
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import V0_9
from headrace.wire.memory import get32

if TYPE_CHECKING:
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.model.queue.queue import Queue

METHOD_OK = 0  # In place of a delivery tag: the ok to a method other than a transfer.
_APPEND_HEAD = 64  # The maximum bytes of an append without its data.
_BODY_HEAD = 5  # The bytes of a body's type and size.


class ChannelTransfers(ChannelState):
    """The transfers of one channel, and the answers that are awaited."""

    def __init__(self, connection: GatewayConnection, channel: Channel) -> None:
        self.channel = channel
        self.references = References(connection.counters, connection.body_max)
        self.awaited: deque[int] = deque()  # Delivery tags, or METHOD_OK.
        self.sent = 0  # References that the broker has opened.

    @property
    def connection(self) -> GatewayConnection:
        """The connection of the channel; channel.resume may change it."""
        return cast("GatewayConnection", self.channel.connection)

    def answer(self, method: MethodBase) -> None:
        """Send an answer to the client."""
        self.connection.reply(self.channel.number, method)

    # --- Answers of the client ------------------------------------------------------------------

    def accept_oldest(self) -> None:
        """Settle the oldest delivery or method that awaits an answer: the client sent ok."""
        if self.awaited:
            self.settle(self.awaited.popleft(), SETTLE_ACCEPT)

    def reject_oldest(self) -> None:
        """Discard the oldest transfer that awaits an answer.

        Raises:
            AmqpError: every transfer is answered.
        """
        for tag in self.awaited:
            if tag != METHOD_OK:
                self.awaited.remove(tag)
                self.settle(tag, SETTLE_DISCARD)
                return
        raise AmqpError(ReplyCode.COMMAND_INVALID, "message.reject answers nothing")

    def settle(self, tag: int, outcome: int) -> None:
        """Settle a delivery, unless basic.ack has settled it."""
        if tag != METHOD_OK and self.channel.is_unsettled(tag):
            self.channel.settle(tag, False, outcome)

    def remove_transfers(self) -> None:
        """Remove the awaited answers to transfers, whose messages are requeued."""
        self.awaited = deque([tag for tag in self.awaited if tag == METHOD_OK])

    # --- Transfers out --------------------------------------------------------------------------

    def transfer_head(self, message: Message, destination: str) -> bytes:
        """Return the encoded message.transfer of a message, up to its body.

        Raises:
            CannotConvert: 0-9 has no form for the message, or the transfer exceeds a frame.
        """
        if message.flags & KIND_MASK:
            properties = read_transfer(header_segment(message))
        else:
            properties = read_basic(header_payload(message))
        exchange, routing_key = message_address(message)
        head = write_message(
            properties,
            destination.encode(),
            exchange.encode(),
            routing_key.encode(),
            redelivered=bool(message.flags & REDELIVERED),
            expiration_s=message.deadline_ms // 1000,
            plain=not self.connection.speaks_extensions,
        )
        room = self.connection.frame_max - 8 - _BODY_HEAD - _APPEND_HEAD
        if len(head) > room:
            raise CannotConvert(
                f"the header of the transfer has {len(head)} bytes, which exceeds the {room} that "
                "the client takes in one frame"
            )
        return head

    # Keeps 0-9/message.close#01.
    def transfer(self, head: bytes, message: Message, tag: int) -> None:
        """Send a message, its body by reference if it is too large for one frame.

        ``tag`` is the delivery that the answer settles; ``METHOD_OK`` for none.
        """
        connection, number = self.connection, self.channel.number
        chunks = body_chunks(message)
        if len(head) + _BODY_HEAD + message.body_size <= connection.frame_max - 8:
            size = message.body_size.to_bytes(4, "big")
            connection.write_frame(1, number, b"".join((head, b"\x00", size, *chunks)))
            if tag != METHOD_OK:
                self.awaited.append(tag)
            return
        self.sent += 1
        name = b"headrace-%d" % self.sent
        self.send_method(MessageOpen(reference=name))
        size = len(name).to_bytes(4, "big")
        connection.write_frame(1, number, b"".join((head, b"\x01", size, name)))
        limit = connection.frame_max - 8 - _APPEND_HEAD
        for chunk in chunks:
            for position in range(0, len(chunk), limit):
                self.send_method(
                    MessageAppend(reference=name, data=chunk[position : position + limit])
                )
        self.send_method(MessageClose(reference=name))
        if tag != METHOD_OK:
            self.awaited.append(tag)

    def send_method(self, method: MethodBase) -> None:
        """Send a method that the client answers with an ok."""
        self.awaited.append(METHOD_OK)
        self.connection.write_frame(1, self.channel.number, encode_method(V0_9, method))

    def end(self) -> None:
        """Drop references and awaited answers, as the channel has ended."""
        self.references.end()
        self.awaited.clear()


class MessageConsumer(BasicConsumer):
    """A consumer of the message class.

    It acknowledges to its queue even if its client does not: messages without acknowledgement are
    settled once they are sent.
    """

    def __init__(
        self, transfers: ChannelTransfers, queue: Queue, destination: str, automatic: bool
    ) -> None:
        BasicConsumer.__init__(
            self, transfers.connection, transfers.channel, queue, destination, False
        )
        self.transfers = transfers
        self.automatic = automatic

    def has_room(self) -> bool:
        """Return True if one more message may be sent; prefetch does not limit automatic ones."""
        if not self.automatic:
            return BasicConsumer.has_room(self)
        connection = self.transfers.connection
        if connection.is_full():
            connection.starve(self.queue)
            return False
        return bool(self.channel.flow)

    def evaluate(self, message: Message) -> int:
        """Return ACCEPTED if this message may be sent now, else NEVER or NO_ROOM."""
        if self.automatic:
            return NEVER if self.no_local and self.publisher == message.publisher else ACCEPTED
        return BasicConsumer.evaluate(self, message)

    # Keeps 0-9/message#09, 0-9/message#10.
    def deliver(self, message: Message) -> None:
        """Send a message by message.transfer."""
        deliver(self.transfers, message, self, self.tag, self.automatic)
        holder = message.consumer
        if self.automatic and holder is not None and head_consumer(holder) is self:
            holder.queue.settle(message)

    # Keeps 0-9/message.cancel#01.
    def on_cancel(self) -> None:
        """Remove the consumer of a deleted queue."""
        self.leave_channel()

    def on_queue_end(self) -> None:
        """Send message.cancel after the last record of a range; the client requested it."""
        self.on_cancel()
        if self.channel.state != CLOSING:
            self.transfers.awaited.append(METHOD_OK)
            self.transfers.connection.reply(
                self.channel.number, MessageCancel(destination=self.tag)
            )


def deliver(
    transfers: ChannelTransfers,
    message: Message,
    consumer: BasicConsumer | GetConsumer,
    destination: str,
    automatic: bool,
) -> bool:
    """Send a message to its destination; return False if 0-9 has no form for it."""
    try:
        head = transfers.transfer_head(message, destination)
    except CannotConvert as error:
        consumer.queue.on_unconvertible(message, consumer, error.reason)
        return False
    tag = METHOD_OK
    if automatic:
        transfers.channel.untagged += 1
    else:
        transfers.channel.record_delivery(message)
        if isinstance(consumer, BasicConsumer):
            consumer.unacked += 1
        tag = transfers.channel.tag
    transfers.transfer(head, message, tag)
    return True


def body_chunks(message: Message) -> list[bytes]:
    """Return the chunks of a message's body."""
    data = message.data
    assert data is not None, "the message is paged out"
    position = message.address_len + 2
    if message.flags & KIND_MASK:
        body = data[position + 4 + get32(data, position) :]
    else:
        position += 8 + get32(data, position + 3)
        body = join_body_frames(data, position, len(data))
    chunks = [body] if body else []
    return [*chunks, *(message.parts or ())]


def channel_transfers(connection: GatewayConnection, channel: Channel) -> ChannelTransfers:
    """Return the transfers of a channel."""
    return ensure_state(channel, ChannelTransfers, partial(ChannelTransfers, connection, channel))
