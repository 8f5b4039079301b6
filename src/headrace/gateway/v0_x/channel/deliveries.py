# SPDX-License-Identifier: Apache-2.0
"""Deliveries on a channel of a 0-8, 0-9 or 0-9-1 client: their tags, and what is not settled yet.

Delivery tags count up by one, so what is unsettled is a ring: the place of a tag is its distance
from ``base``. Settling out of order leaves an empty place; the ring's head moves on over such.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.gateway.connection.peer import Peer
    from headrace.gateway.v0_x.channel.content_out import ContentOut
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message
    from headrace.model.queue.ring import Ring
    from headrace.spec.ids import BASIC_GET_OK
    from headrace.wire.memory import copy, put16, put32, put64

RING_SLACK = 65536  # Places of settled deliveries that a ring keeps, beside four per unsettled one.


class Deliveries(ContentOut):
    """A channel, as far as its consumers know it."""

    def __init__(self, number: int, connection: Peer) -> None:
        ContentOut.__init__(self, number, connection)
        self.flow = True  # The client wants deliveries.
        self.tag = 0  # The latest delivery tag.
        self.base = 1  # The tag of the ring's head.
        self.ring: Any = None  # A Ring once something was delivered.
        self.held: Any = None  # {tag: message} of deliveries that were too old for the ring.
        self.unacked = 0
        self.unacked_bytes = 0
        self.prefetch = 0  # Messages on the whole channel; 0 is no limit.
        self.prefetch_size = 0  # Octets on the whole channel; 0 is no limit.
        self.refused: set[int] | None = None  # By seq: what may not come here again (0-8, 0-9).

    def skip_tag(self) -> None:
        """Spend a delivery tag on a message that needs no acknowledgement."""
        self.tag += 1
        if self.ring is None or self.ring.count == 0:
            self.base = self.tag + 1
        else:
            self.ring.push(None)
            if self.ring.count > RING_SLACK:
                self.shorten_ring()

    def remember(self, message: Message) -> None:
        """Spend a delivery tag and hold the message until it is settled."""
        self.tag += 1
        ring = self.ring
        if ring is None:
            ring = self.ring = Ring()
        ring.push(message)
        self.unacked += 1
        self.unacked_bytes += message.body_size
        self.connection.unacked += 1
        if ring.count > RING_SLACK:
            self.shorten_ring()

    def shorten_ring(self) -> None:
        """Move the oldest deliveries out of a ring that is mostly empty places behind them.

        So one delivery that is never settled does not cost a place for each that follows it.
        """
        ring = self.ring
        while ring.count > RING_SLACK + 4 * self.unacked:
            message = ring.pop()
            if message is not None:
                if self.held is None:
                    self.held = {}
                self.held[self.base] = message
            self.base += 1
            self.trim()

    def trim(self) -> None:
        """Move the ring's head over empty places."""
        ring = self.ring
        while ring.count and ring.at(0) is None:
            ring.pop()
            self.base += 1

    def write_get_ok(
        self, message: Message, ready_count: int, converted: bytes | None, no_ack: bool
    ) -> None:
        """Spend a delivery tag on a message and write basic.get-ok with its content.

        ``converted`` is the header of a message from 0-10, else None. Unless ``no_ack``, the
        message is held until it is settled.
        """
        if no_ack:
            self.skip_tag()
        else:
            self.remember(message)
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
