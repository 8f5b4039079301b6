# SPDX-License-Identifier: Apache-2.0
"""Deliveries on a channel of a 0-8, 0-9 or 0-9-1 client: delivery tags and unsettled messages."""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.gateway.messages.unsettled import Unsettled
    from headrace.gateway.v0_x.channel.content_out import ContentOut
    from headrace.gateway.v0_x.peer import Peer
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message
    from headrace.model.tallies import ChannelTally
    from headrace.spec.ids import BASIC_GET_OK
    from headrace.wire.memory import copy, put16, put32, put64

if TYPE_CHECKING:
    from headrace.model.queue.destination import Consumer

TAG_BITS = 64  # Of a delivery tag.


class Deliveries(ContentOut):
    """The port of a channel's consumers to it."""

    def __init__(self, number: int, connection: Peer) -> None:
        ContentOut.__init__(self, number, connection)
        self.tally = ChannelTally()
        self.untagged = 0  # Deliveries without a tag.
        self.flow = True  # The client wants deliveries.
        self.tag = 0  # The latest delivery tag.
        self.unsettled = Unsettled(TAG_BITS)
        self.unacked = 0  # Deliveries that count towards the prefetch limits; overdue ones, too.
        self.unacked_bytes = 0
        self.prefetch = 0  # Messages on the whole channel; 0 is no limit.
        self.prefetch_size = 0  # Octets on the whole channel; 0 is no limit.
        self.refused: set[int] | None = None  # By seq: what may not come here again (0-8, 0-9).
        self.consumers: dict[str, Consumer] | None = None  # By tag.

    # Keeps 0-9-1/s002, 0-9/delivery-tag#non-zero.
    def remember(self, message: Message) -> None:
        """Assign a delivery tag and keep the message until it is settled."""
        self.tag += 1
        self.unsettled.add(self.tag, message)
        self.tally.deliver += 1
        self.unacked += 1
        self.unacked_bytes += message.body_size
        self.connection.unacked += 1

    def count_get(self, no_ack: bool) -> None:
        """Count the latest delivery as one that the client asked for."""
        if no_ack:
            self.tally.get_no_ack += 1
        else:
            self.tally.deliver -= 1
            self.tally.get += 1

    def tallied(self) -> ChannelTally:
        """Return the channel's tally, up to date."""
        tally = self.tally
        others = tally.deliver + tally.get + tally.get_no_ack
        tally.deliver_no_ack = self.tag + self.untagged - others
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
            self.remember(message)
        self.count_get(no_ack)
        connection = self.connection
        data = message.data
        address_len = message.address_len
        content = address_len + 2
        end = len(data) if converted is None else content
        connection.reserve(25 + address_len + end - content)
        out = connection.buffer
        at = connection.tail
        out[at] = 1
        put16(out, at + 1, self.number)
        put32(out, at + 3, 17 + address_len)
        put32(out, at + 7, BASIC_GET_OK)
        put64(out, at + 11, self.tag)
        out[at + 19] = 1 if message.flags & C_REDELIVERED else 0
        copy(out, at + 20, data, 0, address_len)
        at += 20 + address_len
        put32(out, at, min(ready_count, 0xFFFFFFFF))
        out[at + 4] = 0xCE
        connection.tail = at + 5
        if converted is not None:
            self.write_converted(converted, message)
            return
        self.write_content(data, content, end)
        if message.parts is not None:
            connection.write_parts(self.number, message.parts, connection.frame_max)
