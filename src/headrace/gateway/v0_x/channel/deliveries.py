# SPDX-License-Identifier: Apache-2.0
"""Deliveries on a channel of a 0-8, 0-9 or 0-9-1 client: delivery tags and unsettled messages."""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.gateway.messages.unsettled import Unsettled
    from headrace.gateway.v0_x.channel.content_writer import ContentWriter
    from headrace.gateway.v0_x.peer import Peer
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message
    from headrace.model.tallies import ChannelTally
    from headrace.protocol.v0_x.frames import ARGUMENTS_AT as C_ARGUMENTS_AT
    from headrace.protocol.v0_x.frames import CHANNEL_AT as C_CHANNEL_AT
    from headrace.protocol.v0_x.frames import FRAME_END as C_END
    from headrace.protocol.v0_x.frames import FRAME_METHOD as C_METHOD
    from headrace.protocol.v0_x.frames import OVERHEAD as C_OVERHEAD
    from headrace.protocol.v0_x.frames import PAYLOAD_AT as C_PAYLOAD_AT
    from headrace.protocol.v0_x.frames import PUBLISH_END_LEN as C_PUBLISH_END_LEN
    from headrace.protocol.v0_x.frames import SIZE_AT as C_SIZE_AT
    from headrace.protocol.v0_x.frames import TAG_AND_FLAG_LEN as C_TAG_AND_FLAG_LEN
    from headrace.protocol.v0_x.frames import TAG_LEN as C_TAG_LEN
    from headrace.spec.ids import BASIC_GET_OK
    from headrace.wire.memory import copy, put16, put32, put64

if TYPE_CHECKING:
    from headrace.model.queue.destination import Consumer

TAG_BITS = 64  # The bits of a delivery tag.
# The bytes of basic.get-ok without its address: ids, tag, redelivered, message count.
GET_OK_LEN = 17
COUNT_LEN = 4  # The bytes of the message count.
COUNT_MAX = 0xFFFFFFFF
if not cython.compiled:
    C_GET_OK_LEN = GET_OK_LEN
    C_COUNT_LEN = COUNT_LEN


class Deliveries(ContentWriter):
    """The base class of a channel that delivers: delivery tags, unsettled messages, prefetch."""

    def __init__(self, number: int, connection: Peer) -> None:
        ContentWriter.__init__(self, number, connection)
        self.tally = ChannelTally()
        self.untagged = 0  # Deliveries without a tag.
        # Keeps 0-9-1/channel.flow#01, 0-9/channel.flow#initial-state.
        self.flow = True  # False after channel.flow with ``active`` false.
        self.tag = 0  # The latest delivery tag.
        self.unsettled = Unsettled(TAG_BITS)
        self.unacked = 0  # Deliveries that count towards the prefetch limits; overdue ones, too.
        self.unacked_bytes = 0
        self.prefetch = 0  # The limit of unacked messages on the channel; 0 is no limit.
        self.prefetch_size = 0  # The limit of unacked bytes on the channel; 0 is no limit.
        #: Seqs of rejected messages that the channel does not get again (0-8, 0-9).
        self.refused: set[int] | None = None
        self.consumers: dict[str, Consumer] | None = None  # The consumers by tag.

    # Keeps 0-9-1/s002, 0-9/delivery-tag#non-zero.
    def record_delivery(self, message: Message) -> None:
        """Assign a delivery tag and keep the message until it is settled."""
        self.tag += 1
        self.unsettled.add(self.tag, message)
        self.tally.deliver += 1
        self.unacked += 1
        self.unacked_bytes += message.body_size
        self.connection.unacked += 1

    def count_get(self, no_ack: bool) -> None:
        """Count the latest delivery as one by basic.get."""
        if no_ack:
            self.tally.get_no_ack += 1
        else:
            self.tally.deliver -= 1
            self.tally.get += 1

    def update_tally(self) -> ChannelTally:
        """Bring the channel's tally up to date and return it."""
        tally = self.tally
        tagged_count = tally.deliver + tally.get + tally.get_no_ack
        tally.deliver_no_ack = self.tag + self.untagged - tagged_count
        return tally

    def write_get_ok(
        self, message: Message, ready_count: int, converted: bytes | None, no_ack: bool
    ) -> None:
        """Assign a delivery tag to a message and write basic.get-ok with its content.

        ``converted`` is the header of a message from 0-10, else None. Unless ``no_ack``, the
        message is held until it is settled.
        """
        if no_ack:
            self.tag += 1
        else:
            self.record_delivery(message)
        self.count_get(no_ack)
        connection = self.connection
        data = message.data
        address_len = message.address_len
        content = address_len + C_PUBLISH_END_LEN
        end = len(data) if converted is None else content
        connection.reserve(C_OVERHEAD + C_GET_OK_LEN + address_len + end - content)
        out = connection.buffer
        position = connection.tail
        out[position] = C_METHOD
        put16(out, position + C_CHANNEL_AT, self.number)
        put32(out, position + C_SIZE_AT, C_GET_OK_LEN + address_len)
        put32(out, position + C_PAYLOAD_AT, BASIC_GET_OK)
        position += C_ARGUMENTS_AT
        put64(out, position, self.tag)
        out[position + C_TAG_LEN] = 1 if message.flags & C_REDELIVERED else 0
        position += C_TAG_AND_FLAG_LEN
        copy(out, position, data, 0, address_len)
        position += address_len
        put32(out, position, min(ready_count, COUNT_MAX))
        position += C_COUNT_LEN
        out[position] = C_END
        connection.tail = position + 1
        if converted is not None:
            self.write_converted(converted, message)
            return
        self.write_content(data, content, end)
        if message.parts is not None:
            connection.write_parts(self.number, message.parts, connection.frame_max)
