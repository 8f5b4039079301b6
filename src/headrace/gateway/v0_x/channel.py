# SPDX-License-Identifier: Apache-2.0
"""A channel of a 0-8, 0-9 or 0-9-1 client in the broker: deliveries, settlement, confirms.

Delivery tags count up by one, so what is unsettled is a ring: the place of a tag is its distance
from ``base``. Settling out of order leaves an empty place; the ring's head moves on over such.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.gateway.conversion.convert import Converter
    from headrace.gateway.outcome import ANSWER_NACK as C_ANSWER_NACK
    from headrace.gateway.outcome import SETTLE_ACCEPT as C_ACCEPT
    from headrace.gateway.outcome import SETTLE_REQUEUE as C_REQUEUE
    from headrace.gateway.peer import Peer
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message
    from headrace.model.queue import Queue
    from headrace.model.ring import Ring
    from headrace.model.served import Consumer
    from headrace.protocol.content import Channel as ProtocolChannel
    from headrace.wire.memory import copy, cut, get16, get32, put16, put32, put64

from headrace.gateway.conversion.neutral_values import CannotConvert
from headrace.gateway.plain import plain_header
from headrace.model.errors import PreconditionFailed
from headrace.model.pool import give_credit, go_on, head_of
from headrace.protocol.connection_0_x import framed
from headrace.wire.properties import with_header_entry, without_header_entry

HEADERS = 0x2000  # The property flag.
# What a stream adds to the headers of a record, with room for the two numbers.
ENTRIES = b"\x0fx-stream-offsetl" + bytes(8) + b"\x13x-stream-arrival-msl" + bytes(8)
ENTRIES_LEN = 54
RECORD_ROOM = 64  # Octets that a record grows by at most.
RING_SLACK = 65536  # Places of settled deliveries that a ring keeps, beside four per unsettled one.


class BasicConsumer(Consumer):
    """A consumer of the basic class."""

    def __init__(
        self,
        connection: Peer,
        channel: "Channel",
        queue: Queue,
        tag: str,
        no_ack: bool,
    ) -> None:
        Consumer.__init__(self, queue, tag, no_ack)
        self.connection = connection
        self.channel = channel
        self.publisher = connection.number
        self.prefetch = 0  # Messages; 0 is no limit.
        self.unacked = 0
        raw = tag.encode()
        self.converter: Converter | None = None  # For messages from 0-10.
        self.prefix = b"\x00\x3c\x00\x3c" + bytes((len(raw),)) + raw
        self.prefix_len = len(self.prefix)

    def can(self) -> bool:
        connection = self.connection
        if connection.tail - connection.head + connection.chained > connection.output_max:
            connection.starve(self.queue)
            return False
        channel = self.channel
        if not channel.flow:
            return False
        if self.no_ack:
            return True
        if self.prefetch and self.unacked >= self.prefetch:
            return False
        if channel.prefetch and channel.unacked >= channel.prefetch:
            return False
        if connection.prefetch and connection.unacked >= connection.prefetch:
            return False
        return not channel.prefetch_size or channel.unacked_bytes < channel.prefetch_size

    def accepts(self, message: Message) -> int:
        if self.no_local and self.publisher == message.publisher:
            return 0
        channel = self.channel
        if channel.refused is not None and message.seq in channel.refused:
            return 0
        if (
            channel.prefetch_size
            and not self.no_ack
            and channel.unacked
            and channel.unacked_bytes + message.body_size > channel.prefetch_size
        ):
            return 2
        return 1

    def deliver(self, message: Message) -> None:
        if message.flags & C_KIND_MASK:
            self.deliver_transfer(message)
            return
        channel = self.channel
        if self.no_ack:
            channel.skip_tag()
        else:
            channel.remember(message)
            self.unacked += 1
        redelivered = 1 if message.flags & C_REDELIVERED else 0
        if self.queue.is_stream:
            data = with_offset(message.data, message.address_len, message.seq, message.deadline_ms)
            self.write(data, 0, message.address_len, len(data), 0)
        elif message.parts is not None:
            self.put_large(message, redelivered)
        else:
            data = message.data
            self.write(data, 0, message.address_len, len(data), redelivered)

    def deliver_transfer(self, message: Message) -> None:
        """Deliver a message from 0-10, or let the queue know that it cannot be said here."""
        channel = self.channel
        if self.converter is None:
            self.converter = Converter(self.connection.frame_max - 8)
        try:
            header = channel.basic_header(self.converter, message)
        except CannotConvert as error:
            self.queue.unconvertible(message, self, error.reason)
            return
        if self.no_ack:
            channel.skip_tag()
        else:
            channel.remember(message)
            self.unacked += 1
        redelivered = 1 if message.flags & C_REDELIVERED else 0
        data = message.data
        self.write(data, 0, message.address_len, message.address_len + 2, redelivered)
        channel.write_converted(header, message)

    def put(
        self, d: bytes | bytearray, lo: int, address_len: int, end: int, redelivered: int
    ) -> int:
        self.channel.skip_tag()
        self.write(d, lo, address_len, end, redelivered)
        return 0

    def write(
        self, d: bytes | bytearray, lo: int, address_len: int, end: int, redelivered: int
    ) -> int:
        """Write basic.deliver with its content; the tag is the channel's latest."""
        connection = self.connection
        channel = self.channel
        prefix_len = self.prefix_len
        content = lo + address_len + 2
        connection.reserve(17 + prefix_len + address_len + end - content)
        out = connection.buffer
        at = connection.tail
        number = channel.number
        out[at] = 1
        put16(out, at + 1, number)
        put32(out, at + 3, prefix_len + 9 + address_len)
        copy(out, at + 7, self.prefix, 0, prefix_len)
        at += 7 + prefix_len
        put64(out, at, channel.tag)
        out[at + 8] = redelivered
        copy(out, at + 9, d, lo, lo + address_len)
        at += 9 + address_len
        out[at] = 0xCE
        connection.tail = at + 1
        channel.write_content(d, content, end)
        return 0

    def pours(self) -> bool:
        return self.no_ack and not self.connection.early

    def put_record(
        self,
        d: bytes | bytearray,
        lo: int,
        address_len: int,
        end: int,
        offset: int,
        arrived_ms: int,
    ) -> int:
        """Write a record of a stream, with its offset and time of arrival in the headers."""
        connection = self.connection
        channel = self.channel
        content = lo + address_len + 2
        size = get32(d, content + 3)
        first = content + 19  # Of the properties.
        flags = get16(d, content + 19)
        at = first + 2
        stop = content + 7 + size
        if flags & 0x8000:
            at += 1 + d[at]
        if flags & 0x4000:
            at += 1 + d[at]
        table = 0  # Octets of the entries that are there.
        behind = at  # Where the properties after the headers begin.
        if flags & HEADERS:
            table = get32(d, at)
            behind = at + 4 + table
        channel.skip_tag()
        if (
            flags & 1
            or end - content + RECORD_ROOM > connection.frame_max
            or mentions_stream(d, at, behind)
        ):
            data = with_offset(cut(d, lo, end), address_len, offset, arrived_ms)
            self.write(data, 0, address_len, len(data), 0)
            return 1
        prefix_len = self.prefix_len
        connection.reserve(17 + prefix_len + address_len + RECORD_ROOM + end - content)
        out = connection.buffer
        tail = connection.tail
        number = channel.number
        out[tail] = 1
        put16(out, tail + 1, number)
        put32(out, tail + 3, prefix_len + 9 + address_len)
        copy(out, tail + 7, self.prefix, 0, prefix_len)
        tail += 7 + prefix_len
        put64(out, tail, channel.tag)
        out[tail + 8] = 0
        copy(out, tail + 9, d, lo, lo + address_len)
        tail += 9 + address_len
        out[tail] = 0xCE
        out[tail + 1] = 2
        put16(out, tail + 2, number)
        put32(out, tail + 4, size + ENTRIES_LEN + (0 if flags & HEADERS else 4))
        tail += 8
        copy(out, tail, d, content + 7, at)
        put16(out, tail + 12, flags | HEADERS)
        tail += at - content - 7
        put32(out, tail, table + ENTRIES_LEN)
        tail += 4
        if table:
            copy(out, tail, d, at + 4, behind)
            tail += table
        copy(out, tail, ENTRIES, 0, ENTRIES_LEN)
        put64(out, tail + 17, offset)
        put64(out, tail + 46, arrived_ms)
        tail += ENTRIES_LEN
        copy(out, tail, d, behind, stop + 1)
        tail += stop + 1 - behind
        lo = stop + 1
        copy(out, tail, d, lo, end)
        while lo < end:
            put16(out, tail + 1, number)
            size = get32(d, lo + 3) + 8
            lo += size
            tail += size
        connection.tail = tail
        return 1

    def put_large(self, message: Message, redelivered: int) -> None:
        """Write basic.deliver for a body that is kept in parts."""
        connection = self.connection
        data = message.data
        self.write(data, 0, message.address_len, len(data), redelivered)
        connection.write_parts(self.channel.number, message.parts, connection.frame_max)

    def hold(self, position: int) -> None:
        self.connection.hold(self.queue.store, position)

    def cancelled(self) -> None:
        self.connection.consumer_cancelled(self)

    def ended(self) -> None:
        self.connection.consumer_ended(self)

    def failed(self, error: Exception) -> None:
        self.connection.consumer_failed(self, error)


class Getter(Consumer):
    """Stands for basic.get: it holds what was got and is in no queue's round."""

    def __init__(self, connection: Peer, channel: Any, queue: Queue, no_ack: bool) -> None:
        Consumer.__init__(self, queue, "", no_ack)
        self.connection = connection
        self.channel = channel
        self.publisher = connection.number

    def hold(self, position: int) -> None:
        self.connection.hold(self.queue.store, position)


class Channel(ProtocolChannel):
    """A channel of one connection."""

    def __init__(self, number: int, connection: Peer) -> None:
        ProtocolChannel.__init__(self, number)
        self.connection = connection
        self.flow = True  # The client wants deliveries.
        self.tag = 0  # The latest delivery tag.
        self.base = 1  # The tag of the ring's head.
        self.ring: Any = None  # A Ring once something was delivered.
        self.held: Any = None  # {tag: message} of deliveries that were too old for the ring.
        self.late: Any = None  # {tag: (consumer, octets)} of what returned, being overdue.
        self.unacked = 0
        self.unacked_bytes = 0
        self.prefetch = 0  # Messages on the whole channel; 0 is no limit.
        self.prefetch_size = 0  # Octets on the whole channel; 0 is no limit.
        self.consumer_prefetch = 0  # Messages, for consumers to come.
        self.consumers: dict[str, BasicConsumer] | None = None
        self.getters: dict[tuple[str, bool], Getter] | None = None
        self.converter: Converter | None = None  # For what is got and came from 0-10.
        self.message_side: Any = None  # Its part in the message class of 0-9.
        self.last_queue = ""
        self.refused: set[int] | None = None  # By seq: what may not come here again (0-8, 0-9).
        self.id: bytes | None = None  # What channel.resume of 0-9 knows it by.
        self.ticket = 0  # The access ticket of the last publish with one,
        self.ticket_address: bytes | None = None  # and where that went.
        self.reply_queue: Queue | None = None  # Where answers by direct reply-to come.
        self.confirms = False
        self.seq = 0  # Publishes seen in confirm mode.
        self.confirmed = 0  # Confirmed to the client.
        self.queued = 0  # Put in the confirm line.
        self.unflushed = False  # Publishes of this read are not in the line yet.
        self.tx = False
        self.tx_publishes: list[Any] | None = None
        self.tx_settles: dict[int, int] | None = None
        self.tx_octets = 0
        self.dtx = False  # In a mode of transactions, too: those that a coordinator decides.
        self.work: Any = None  # Of the transaction branch that the channel works for.
        self.files: Any = None  # A FileDesk, once used.
        self.packets: Any = None  # Likewise for the stream class.
        self.owed: Any = None  # Answers that wait while the channel is busy.

    # --- Deliveries ---------------------------------------------------------------------------

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

    def basic_header(self, converter: Converter, message: Message) -> bytes:
        """Return the payload of a header frame for a message from 0-10.

        Raises:
            CannotConvert: with the reason.
        """
        data = message.data
        at = message.address_len + 2
        return converter.header_for_basic(
            data, message.address_len, at + 4, get32(data, at), message.body_size
        )

    def write_converted(self, header: bytes, message: Message) -> None:
        """Write header and body frames of a message from 0-10."""
        connection = self.connection
        if connection.early and get16(header, 12) & HEADERS and not connection.speaks_more:
            header = self.plain(header)
        connection.write_frame(2, self.number, header)
        data = message.data
        at = message.address_len + 2
        at += 4 + get32(data, at)
        end = len(data)
        limit = connection.frame_max - 8
        while at < end:
            piece = min(limit, end - at)
            connection.reserve(piece + 8)
            out = connection.buffer
            tail = connection.tail
            out[tail] = 3
            put16(out, tail + 1, self.number)
            put32(out, tail + 3, piece)
            copy(out, tail + 7, data, at, at + piece)
            out[tail + 7 + piece] = 0xCE
            connection.tail = tail + 8 + piece
            at += piece
        if message.parts is not None:
            connection.write_parts(self.number, message.parts, connection.frame_max)

    def write_get_ok(self, message: Message, ready_count: int, converted: bytes | None) -> None:
        """Write basic.get-ok with its content; the tag is the channel's latest.

        ``converted`` is the header of a message from 0-10, else None.
        """
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
        put32(out, at + 7, 0x003C0047)
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

    def write_content(self, d: bytes | bytearray, lo: int, end: int) -> None:
        """Write header and body frames from ``d[lo:end]``, renumbered for this channel.

        Room for them is reserved unless a frame must be split for a peer with smaller frames.
        """
        connection = self.connection
        if (
            connection.early
            and lo < end
            and get16(d, lo + 19) & HEADERS
            and not connection.speaks_more
        ):
            self.write_plain(d, lo, end)
            return
        self.write_frames(d, lo, end)

    def write_frames(self, d: bytes | bytearray, lo: int, end: int) -> None:
        """Write frames as they are, renumbered."""
        connection = self.connection
        number = self.number
        if end - lo > connection.frame_max and self.must_split(d, lo, end):
            self.write_split(d, lo, end)
            return
        out = connection.buffer
        at = connection.tail
        copy(out, at, d, lo, end)
        connection.tail = at + end - lo
        while lo < end:
            put16(out, at + 1, number)
            size = get32(d, lo + 3) + 8
            lo += size
            at += size

    def write_plain(self, d: bytes | bytearray, lo: int, end: int) -> None:
        """Write header and body frames for a client that knows few types of header values."""
        connection = self.connection
        size = get32(d, lo + 3)
        header = self.plain(cut(d, lo + 7, lo + 7 + size))
        connection.write_frame(2, self.number, header)
        lo += 8 + size
        if lo < end:
            connection.reserve(end - lo)
            self.write_frames(d, lo, end)

    def plain(self, payload: bytes) -> bytes:
        """Return a content header with plain types; the last one is remembered."""
        connection = self.connection
        if payload != connection.plain_from:
            connection.plain_to = plain_header(payload)
            connection.plain_from = payload
        return connection.plain_to

    def must_split(self, d: bytes | bytearray, lo: int, end: int) -> bool:
        """Tell whether a frame is larger than the peer takes."""
        while lo < end:
            size = get32(d, lo + 3) + 8
            if size > self.connection.frame_max:
                return True
            lo += size
        return False

    def write_split(self, d: bytes | bytearray, lo: int, end: int) -> None:
        """Write the content in frames of the size that the peer takes.

        A header is one frame by the standard (0-9-1/4.2.6.1), so it goes whole whatever its size.
        """
        connection = self.connection
        limit = connection.frame_max - 8
        while lo < end:
            kind = d[lo]
            size = get32(d, lo + 3)
            at = lo + 7
            stop = at + size
            while True:
                piece = stop - at if kind == 2 else min(limit, stop - at)
                connection.reserve(piece + 8)
                out = connection.buffer
                tail = connection.tail
                out[tail] = kind
                put16(out, tail + 1, self.number)
                put32(out, tail + 3, piece)
                copy(out, tail + 7, d, at, at + piece)
                out[tail + 7 + piece] = 0xCE
                connection.tail = tail + 8 + piece
                at += piece
                if at >= stop:
                    break
            lo = stop + 1

    # --- Settlement ---------------------------------------------------------------------------

    def holds(self, tag: int) -> bool:
        """Tell whether a delivery tag names something unsettled."""
        ring = self.ring
        known = ring is not None and self.base <= tag < self.base + ring.count
        if known:
            known = ring.at(tag - self.base) is not None
        if self.held is not None and tag in self.held:
            known = True
        if known and self.tx_settles is not None and tag in self.tx_settles:
            known = False
        return known

    def check_tag(self, tag: int) -> None:
        """Refuse a delivery tag that names nothing unsettled."""
        if not self.holds(tag):
            raise PreconditionFailed(f"unknown delivery tag {tag}")

    def settle(self, tag: int, multiple: bool, outcome: int) -> None:
        """Settle one delivery, or all up to it; tag 0 with ``multiple`` means all there are."""
        if multiple and tag == 0:
            if not self.unacked:
                return
            tag = self.base + self.ring.count - 1
        else:
            ring = self.ring
            if (
                ring is None
                or tag < self.base
                or tag >= self.base + ring.count
                or ring.at(tag - self.base) is None
                or self.tx
            ):
                if self.late is None or tag not in self.late:
                    self.check_tag(tag)
                elif not multiple:
                    self.settle_late(tag)
                    return
        if self.tx:
            self.note_settles(tag, multiple, outcome)
        elif multiple:
            self.settle_range(tag, outcome)
        else:
            self.settle_one(tag, outcome)

    def settle_one(self, tag: int, outcome: int) -> None:
        """Settle the delivery with this tag, which is known."""
        ring = self.ring
        if tag < self.base:
            message = self.held.pop(tag)
        else:
            message = ring.at(tag - self.base)
            ring.clear_at(tag - self.base)
            self.trim()
        consumer = message.consumer
        self.apply(message, consumer, outcome)
        self.refresh(consumer)

    def settle_range(self, tag: int, outcome: int) -> None:
        """Settle every unsettled delivery up to this tag."""
        ring = self.ring
        last: Any = None
        if self.late:
            for old in sorted(self.late):
                if old <= tag:
                    self.settle_late(old)
        if self.held:
            for old in sorted(self.held):
                if old <= tag:
                    self.settle_one(old, outcome)
        while ring.count and self.base <= tag:
            message = ring.pop()
            self.base += 1
            if message is None:
                continue
            consumer = message.consumer
            if consumer is not last:
                if last is not None:
                    self.refresh(last)
                last = consumer
            self.apply(message, consumer, outcome)
        self.trim()
        if last is not None:
            self.refresh(last)

    def trim(self) -> None:
        """Move the ring's head over empty places."""
        ring = self.ring
        while ring.count and ring.at(0) is None:
            ring.pop()
            self.base += 1

    def apply(self, message: Message, consumer: Consumer, outcome: int) -> None:
        """Give one message its outcome."""
        self.unacked -= 1
        self.unacked_bytes -= message.body_size
        self.connection.unacked -= 1
        fed = False
        if isinstance(consumer, BasicConsumer):
            self.release_credit(consumer)
        elif not isinstance(consumer, Getter):
            give_credit(consumer)
            fed = True
        queue = consumer.queue
        if self.work is not None:
            self.work.settle(queue, message, outcome)
        elif outcome == C_ACCEPT:
            queue.settle(message)
        elif outcome == C_REQUEUE:
            queue.requeue(message)
        else:
            queue.discard(message)
        if fed:
            go_on(consumer)

    def release_credit(self, consumer: BasicConsumer) -> None:
        """The consumer holds one message less."""
        consumer.unacked -= 1

    def refresh(self, consumer: Consumer) -> None:
        """Credit came back: let queues look at the consumers that lacked it."""
        if self.connection.prefetch:
            self.connection.refresh_all()
        elif self.prefetch or self.prefetch_size:
            if self.consumers is not None:
                for other in list(self.consumers.values()):
                    if other.parked:
                        other.queue.unpark(other)
        elif consumer.parked:
            consumer.queue.unpark(consumer)
        if consumer.queue.ready_count:
            consumer.queue.drain()

    def note_settles(self, tag: int, multiple: bool, outcome: int) -> None:
        """In a transaction: remember the outcome until the commit."""
        if self.dtx:
            check_branch(self).require(self.unacked)
            if multiple:
                self.settle_range(tag, outcome)
            else:
                self.settle_one(tag, outcome)
            return
        if self.tx_settles is None:
            self.tx_settles = {}
        if not multiple:
            self.tx_settles[tag] = outcome
            return
        if self.held:
            for known in sorted(self.held):
                if known <= tag and known not in self.tx_settles:
                    self.tx_settles[known] = outcome
        for known in range(self.base, tag + 1):
            if known not in self.tx_settles and self.ring.at(known - self.base) is not None:
                self.tx_settles[known] = outcome

    def held_up_to(self, consumer: Consumer, last: int) -> list[int]:
        """Return the tags up to ``last`` of what a consumer holds."""
        found: list[int] = []
        message: Message | None
        if self.held:
            found = [t for t in sorted(self.held) if t <= last and self.of(t) is consumer]
        ring = self.ring
        at = 0
        while ring is not None and at < ring.count and self.base + at <= last:
            message = ring.at(at)
            if message is not None and message.consumer is consumer:
                found.append(self.base + at)
            at += 1
        return found

    def of(self, tag: int) -> Consumer:
        """Return who holds an old delivery."""
        consumer: Consumer = self.held[tag].consumer
        return consumer

    def return_late(self, consumer: Consumer, last: int) -> None:
        """Return to the queue what a consumer has held for too long, up to the tag ``last``."""
        queue = consumer.queue
        for tag in self.held_up_to(consumer, last):
            if tag < self.base:
                message = self.held.pop(tag)
            else:
                message = self.ring.at(tag - self.base)
                self.ring.clear_at(tag - self.base)
            if self.late is None:
                self.late = {}
            self.late[tag] = (head_of(consumer), message.body_size)
            if self.tx_settles is not None:
                self.tx_settles.pop(tag, None)
            queue.requeue(message)
        if self.ring is not None:
            self.trim()
        queue.drain()

    def settle_late(self, tag: int) -> None:
        """The client settles what is not its own any more: that gives credit, and no more."""
        self.refresh(self.forget_late(tag))

    def forget_late(self, tag: int) -> BasicConsumer:
        """Take what is not its own any more off a consumer's account; return the consumer."""
        consumer: BasicConsumer
        consumer, octets = self.late.pop(tag)
        self.unacked -= 1
        self.unacked_bytes -= octets
        self.connection.unacked -= 1
        self.release_credit(consumer)
        return consumer

    def take_back(self) -> list[Message]:
        """Take every unsettled message off the channel, oldest first; they are nobody's now.

        What its transaction has settled stays: the commit is to find it.
        """
        messages: list[Message] = []
        kept: dict[int, Message] = {}
        settled = self.tx_settles or ()
        if self.held:
            for known in sorted(self.held):
                if known in settled:
                    kept[known] = self.held[known]
                else:
                    messages.append(self.held[known])
        ring = self.ring
        tag = self.base
        while ring is not None and ring.count:
            message = ring.pop()
            if message is None:
                pass
            elif tag in settled:
                kept[tag] = message
            else:
                messages.append(message)
            tag += 1
        self.held = kept or None
        self.base = self.tag + 1
        for message in messages:
            consumer = message.consumer
            self.unacked -= 1
            self.unacked_bytes -= message.body_size
            self.connection.unacked -= 1
            if isinstance(consumer, BasicConsumer):
                self.release_credit(consumer)
            else:
                give_credit(consumer)
        return messages

    def requeue_all(self) -> None:
        """Return every unsettled message to its queue, then let the queues deliver."""
        queues: dict[Queue, None] = {}
        for message in self.take_back():
            queue = message.consumer.queue
            queue.requeue(message)
            queues[queue] = None
        if self.consumers is not None:
            for consumer in list(self.consumers.values()):
                if consumer.parked:
                    consumer.queue.unpark(consumer)
        for queue in queues:
            queue.drain()

    # --- Confirms -----------------------------------------------------------------------------

    def publish_seen(self) -> None:
        """A publish was taken in confirm mode."""
        self.seq += 1
        if not self.unflushed:
            self.unflushed = True
            self.connection.unflushed.append(self)

    def publish_refused(self) -> None:
        """A publish was turned away by an overflow policy or a full store: nack it."""
        self.seq += 1
        line = self.connection.line
        if self.seq - 1 > self.queued:
            line.join(self, self.seq - 1)
        self.queued = self.seq
        line.join(self, self.seq | C_ANSWER_NACK)

    def flush_confirms(self) -> None:
        """The read is over: what it published waits for the disk in one place."""
        self.unflushed = False
        if self.seq > self.queued:
            self.queued = self.seq
            self.connection.line.join(self, self.seq)

    def released(self, token: int) -> None:
        """What the channel joined the confirm line for is durable."""
        self.connection.answer(self, token)


def check_branch(channel: Any) -> Any:
    """Return the work of the branch that a channel in dtx mode works for.

    Raises:
        PreconditionFailed: it works for none.
    """
    if channel.work is None:
        raise PreconditionFailed("no transaction was started on this channel")
    return channel.work


def mentions_stream(d: bytes | bytearray, lo: int, hi: int) -> bool:
    """Tell whether headers may have a name that a stream gives them."""
    while lo + 9 < hi:
        if d[lo] == 120 and d[lo + 1] == 45 and d[lo + 2] == 115 and d[lo + 3] == 116:  # "x-st"
            return True
        lo += 1
    return False


def with_offset(data: bytes, address_len: int, offset: int, arrived_ms: int) -> bytes:
    """Return a stream's message with its offset and its time of arrival in the headers.

    The names are x-stream-offset, as RabbitMQ has it, and x-stream-arrival-ms.
    """
    head = address_len + 2
    size = get32(data, head + 3)
    payload = data[head + 7 : head + 7 + size]
    if b"\x13x-stream-arrival-ms" in payload:  # It came out of another stream.
        payload = without_header_entry(payload, b"x-stream-arrival-ms")
    entry = (
        b"\x0fx-stream-offsetl"
        + offset.to_bytes(8, "big")
        + b"\x13x-stream-arrival-msl"
        + arrived_ms.to_bytes(8, "big")
    )
    payload = with_header_entry(payload, entry)
    return data[:head] + framed(2, 0, payload) + data[head + 8 + size :]
