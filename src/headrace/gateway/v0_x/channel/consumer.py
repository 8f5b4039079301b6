# SPDX-License-Identifier: Apache-2.0
"""Consumers of a 0-8, 0-9 or 0-9-1 client: credit, and writing deliveries.

``qos`` of `headrace.gateway.v0_x.methods.basic` decides what a prefetch count limits.
"""

import cython

if not cython.compiled:
    from headrace.gateway.conversion.convert import Converter
    from headrace.gateway.messages.stream_headers import with_offset
    from headrace.gateway.v0_x.channel.deliveries import Deliveries
    from headrace.gateway.v0_x.peer import Peer
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message
    from headrace.model.queue.destination import ACCEPTED as C_ACCEPTED
    from headrace.model.queue.destination import NEVER as C_NEVER
    from headrace.model.queue.destination import NO_ROOM as C_NO_ROOM
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.protocol.output import SHARE_MIN as C_SHARE_MIN
    from headrace.protocol.v0_x.frames import CHANNEL_AT as C_CHANNEL_AT
    from headrace.protocol.v0_x.frames import FLAGS_AT as C_FLAGS_AT
    from headrace.protocol.v0_x.frames import FRAME_END as C_END
    from headrace.protocol.v0_x.frames import FRAME_HEADER as C_HEADER
    from headrace.protocol.v0_x.frames import FRAME_METHOD as C_METHOD
    from headrace.protocol.v0_x.frames import OVERHEAD as C_OVERHEAD
    from headrace.protocol.v0_x.frames import PAYLOAD_AT as C_PAYLOAD_AT
    from headrace.protocol.v0_x.frames import PROPERTIES_AT as C_PROPERTIES_AT
    from headrace.protocol.v0_x.frames import PUBLISH_END_LEN as C_PUBLISH_END_LEN
    from headrace.protocol.v0_x.frames import SIZE_AT as C_SIZE_AT
    from headrace.protocol.v0_x.frames import TAG_AND_FLAG_LEN as C_TAG_AND_FLAG_LEN
    from headrace.protocol.v0_x.frames import TAG_LEN as C_TAG_LEN
    from headrace.wire.memory import copy, cut, get16, get32, put16, put32, put64
    from headrace.wire.property_bits import HAS_CONTENT_ENCODING, HAS_CONTENT_TYPE, HAS_HEADERS

from headrace.gateway.conversion.neutral_values import CannotConvert

# The entries that a stream adds to the headers of a record, with zeros for the two numbers.
STREAM_ENTRIES = b"\x0fx-stream-offsetl" + bytes(8) + b"\x13x-stream-arrival-msl" + bytes(8)
STREAM_ENTRIES_LEN = 54
OFFSET_AT = 17  # The index of the offset in STREAM_ENTRIES.
ARRIVAL_AT = 46  # The index of the time of arrival in STREAM_ENTRIES.
TABLE_SIZE_LEN = 4  # The bytes of the size of a headers table.
RECORD_ROOM = 64  # The maximum number of bytes that the entries add to a record.
if not cython.compiled:
    C_STREAM_ENTRIES_LEN = STREAM_ENTRIES_LEN
    C_OFFSET_AT = OFFSET_AT
    C_ARRIVAL_AT = ARRIVAL_AT
    C_TABLE_SIZE_LEN = TABLE_SIZE_LEN
    C_RECORD_ROOM = RECORD_ROOM


class BasicConsumer(Consumer):
    """A consumer that basic.consume started on a channel of 0-8 to 0-9-1."""

    def __init__(
        self,
        connection: Peer,
        channel: Deliveries,
        queue: Queue,
        tag: str,
        no_ack: bool,
    ) -> None:
        Consumer.__init__(self, queue, tag, no_ack)
        self.connection = connection
        self.channel = channel
        self.publisher = connection.number
        self.prefetch = 0  # The limit of unacked messages; 0 is no limit.
        self.unacked = 0
        raw = tag.encode()
        self.converter: Converter | None = None  # Converts messages from 0-10.
        self.prefix = b"\x00\x3c\x00\x3c" + bytes((len(raw),)) + raw
        self.prefix_len = len(self.prefix)

    # Keeps 0-9-1/s096, 0-9/basic.qos.prefetch-count#01, 0-9/message.qos.prefetch-count#01.
    def has_room(self) -> bool:
        connection = self.connection
        waiting = connection.tail - connection.head + connection.chained
        # Like `is_full`, without a call.
        if waiting > connection.room and (
            waiting > connection.output_max or connection.pool.is_tight
        ):
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

    # Keeps 0-9-1/s095, 0-9-1/s096, 0-9/basic.qos.prefetch-size#01,
    # 0-9/message.qos.prefetch-size#01, 0-9/basic.qos.prefetch-count#01,
    # 0-9/message.qos.prefetch-count#01, 0-9/basic.reject.requeue#01.
    def evaluate(self, message: Message) -> int:
        """Return ACCEPTED if this message may be sent now, else NEVER or NO_ROOM.

        Queues call it only while ``is_selective`` is set. ``limit_prefetch_size`` in
        ``methods.basic`` sets it for a prefetch size.
        """
        if self.no_local and self.publisher == message.publisher:
            return C_NEVER
        channel = self.channel
        if channel.refused is not None and message.seq in channel.refused:
            return C_NEVER
        if (
            channel.prefetch_size
            and not self.no_ack
            and channel.unacked
            and channel.unacked_bytes + message.body_size > channel.prefetch_size
        ):
            return C_NO_ROOM
        return C_ACCEPTED

    # Keeps 0-9-1/basic#09, 0-9-1/basic#10, 0-9/basic#09, 0-9/basic#10.
    def deliver(self, message: Message) -> None:
        if message.flags & C_KIND_MASK:
            self.deliver_transfer(message)
            return
        channel = self.channel
        if self.no_ack:
            channel.tag += 1
        else:
            channel.record_delivery(message)
            self.unacked += 1
        redelivered = 1 if message.flags & C_REDELIVERED else 0
        if self.queue.is_stream:
            data = with_offset(message.data, message.address_len, message.seq, message.deadline_ms)
            self.write(data, 0, message.address_len, len(data), 0)
        elif message.parts is not None:
            self.put_large(message, redelivered)
        else:
            data = message.data
            if len(data) < C_SHARE_MIN or not self.lags():
                self.write(data, 0, message.address_len, len(data), redelivered)
            else:
                self.write_shared(data, message.address_len, redelivered)

    def lags(self) -> bool:
        return self.connection.lags()

    def deliver_transfer(self, message: Message) -> None:
        """Deliver a message from 0-10, or report to the queue that it cannot be converted."""
        channel = self.channel
        if self.converter is None:
            self.converter = Converter(self.connection.frame_max - C_OVERHEAD)
        try:
            header = channel.basic_header(self.converter, message)
        except CannotConvert as error:
            self.queue.on_unconvertible(message, self, error.reason)
            return
        if self.no_ack:
            channel.tag += 1
        else:
            channel.record_delivery(message)
            self.unacked += 1
        redelivered = 1 if message.flags & C_REDELIVERED else 0
        data = message.data
        self.write(
            data, 0, message.address_len, message.address_len + C_PUBLISH_END_LEN, redelivered
        )
        channel.write_converted(header, message)

    def put(
        self, buffer: bytes | bytearray, start: int, address_len: int, end: int, redelivered: int
    ) -> int:
        self.channel.tag += 1
        self.write(buffer, start, address_len, end, redelivered)
        return 0

    def write(
        self, buffer: bytes | bytearray, start: int, address_len: int, end: int, redelivered: int
    ) -> int:
        """Write basic.deliver with its content; the tag is the channel's latest."""
        connection = self.connection
        channel = self.channel
        prefix_len = self.prefix_len
        content = start + address_len + C_PUBLISH_END_LEN
        connection.reserve(
            C_OVERHEAD + prefix_len + C_TAG_AND_FLAG_LEN + address_len + end - content
        )
        out = connection.buffer
        position = connection.tail
        number = channel.number
        out[position] = C_METHOD
        put16(out, position + C_CHANNEL_AT, number)
        put32(out, position + C_SIZE_AT, prefix_len + C_TAG_AND_FLAG_LEN + address_len)
        copy(out, position + C_PAYLOAD_AT, self.prefix, 0, prefix_len)
        position += C_PAYLOAD_AT + prefix_len
        put64(out, position, channel.tag)
        out[position + C_TAG_LEN] = redelivered
        copy(out, position + C_TAG_AND_FLAG_LEN, buffer, start, start + address_len)
        position += C_TAG_AND_FLAG_LEN + address_len
        out[position] = C_END
        connection.tail = position + 1
        channel.write_content(buffer, content, end)
        return 0

    def write_shared(self, data: bytes, address_len: int, redelivered: int) -> None:
        """Write basic.deliver with body frames that refer to ``data`` instead of copying it."""
        connection = self.connection
        end = len(data)
        start = address_len + C_PUBLISH_END_LEN
        # The body frames begin where the header frame ends.
        position = start + C_OVERHEAD + get32(data, start + C_SIZE_AT)
        self.write(data, 0, address_len, position, redelivered)
        while position < end:
            start = position + C_PAYLOAD_AT
            position = start + get32(data, position + C_SIZE_AT) + 1
            connection.refer_body(
                self.channel.number, data, start, position - 1, connection.frame_max
            )

    def accepts_records(self) -> bool:
        return self.no_ack and not self.connection.is_early

    def put_record(
        self,
        buffer: bytes | bytearray,
        start: int,
        address_len: int,
        end: int,
        offset: int,
        arrived_ms: int,
    ) -> int:
        """Write a record of a stream, with its offset and time of arrival in the headers."""
        # This is one function because every write moves ``tail``, which is a C local.
        connection = self.connection
        channel = self.channel
        content = start + address_len + C_PUBLISH_END_LEN
        size = get32(buffer, content + C_SIZE_AT)
        flags = get16(buffer, content + C_FLAGS_AT)
        position = content + C_PROPERTIES_AT
        stop = content + C_PAYLOAD_AT + size
        if flags & HAS_CONTENT_TYPE:
            position += 1 + buffer[position]
        if flags & HAS_CONTENT_ENCODING:
            position += 1 + buffer[position]
        table_size = 0  # The bytes of the header entries that the publisher sent.
        headers_end = position  # The offset of the properties after the headers.
        if flags & HAS_HEADERS:
            table_size = get32(buffer, position)
            headers_end = position + C_TABLE_SIZE_LEN + table_size
        channel.tag += 1
        if (
            flags & 1
            or end - content + C_RECORD_ROOM > connection.frame_max
            or may_have_stream_entry(buffer, position, headers_end)
        ):
            data = with_offset(cut(buffer, start, end), address_len, offset, arrived_ms)
            self.write(data, 0, address_len, len(data), 0)
            return 1
        prefix_len = self.prefix_len
        connection.reserve(
            C_OVERHEAD
            + prefix_len
            + C_TAG_AND_FLAG_LEN
            + address_len
            + C_RECORD_ROOM
            + end
            - content
        )
        out = connection.buffer
        tail = connection.tail
        number = channel.number
        out[tail] = C_METHOD
        put16(out, tail + C_CHANNEL_AT, number)
        put32(out, tail + C_SIZE_AT, prefix_len + C_TAG_AND_FLAG_LEN + address_len)
        copy(out, tail + C_PAYLOAD_AT, self.prefix, 0, prefix_len)
        tail += C_PAYLOAD_AT + prefix_len
        put64(out, tail, channel.tag)
        out[tail + C_TAG_LEN] = 0
        copy(out, tail + C_TAG_AND_FLAG_LEN, buffer, start, start + address_len)
        tail += C_TAG_AND_FLAG_LEN + address_len
        out[tail] = C_END
        tail += 1
        out[tail] = C_HEADER
        put16(out, tail + C_CHANNEL_AT, number)
        size += C_STREAM_ENTRIES_LEN + (0 if flags & HAS_HEADERS else C_TABLE_SIZE_LEN)
        put32(out, tail + C_SIZE_AT, size)
        copy(out, tail + C_PAYLOAD_AT, buffer, content + C_PAYLOAD_AT, position)
        put16(out, tail + C_FLAGS_AT, flags | HAS_HEADERS)
        tail += position - content
        put32(out, tail, table_size + C_STREAM_ENTRIES_LEN)
        tail += C_TABLE_SIZE_LEN
        if table_size:
            copy(out, tail, buffer, position + C_TABLE_SIZE_LEN, headers_end)
            tail += table_size
        copy(out, tail, STREAM_ENTRIES, 0, C_STREAM_ENTRIES_LEN)
        put64(out, tail + C_OFFSET_AT, offset)
        put64(out, tail + C_ARRIVAL_AT, arrived_ms)
        tail += C_STREAM_ENTRIES_LEN
        copy(out, tail, buffer, headers_end, stop + 1)
        tail += stop + 1 - headers_end
        start = stop + 1
        copy(out, tail, buffer, start, end)
        while start < end:
            put16(out, tail + C_CHANNEL_AT, number)
            size = get32(buffer, start + C_SIZE_AT) + C_OVERHEAD
            start += size
            tail += size
        connection.tail = tail
        return 1

    def put_large(self, message: Message, redelivered: int) -> None:
        """Write basic.deliver for a body that is kept in parts."""
        connection = self.connection
        data = message.data
        self.write(data, 0, message.address_len, len(data), redelivered)
        connection.write_parts(self.channel.number, message.parts, connection.frame_max)

    def on_redelivery(self) -> None:
        self.channel.tally.redeliver += 1

    def delay_deliveries(self, position: int) -> None:
        self.connection.hold(self.queue.store, position)

    def leave_channel(self) -> None:
        """Remove the consumer from its channel."""
        consumers = self.channel.consumers
        if consumers is not None:
            consumers.pop(self.tag, None)

    # Keeps 0-9-1/basic.cancel#01, 0-9/basic.cancel#01.
    def on_cancel(self) -> None:
        self.leave_channel()
        self.connection.on_consumer_cancelled(self.channel, self.tag)

    def on_queue_end(self) -> None:
        self.leave_channel()
        self.connection.on_consumer_ended(self.channel, self.tag)

    def on_failure(self, error: Exception) -> None:
        self.leave_channel()
        self.connection.on_consumer_failed(self.channel, error)


class GetConsumer(Consumer):
    """The consumer of a channel's unacked messages of basic.get; queues do not deliver to it."""

    def __init__(self, connection: Peer, channel: Deliveries, queue: Queue, no_ack: bool) -> None:
        Consumer.__init__(self, queue, "", no_ack)
        self.connection = connection
        self.channel = channel
        self.publisher = connection.number

    def on_redelivery(self) -> None:
        self.channel.tally.redeliver += 1

    def delay_deliveries(self, position: int) -> None:
        self.connection.hold(self.queue.store, position)


def may_have_stream_entry(buffer: bytes | bytearray, start: int, end: int) -> bool:
    """Return True if headers may contain an entry that a stream adds."""
    while start + 9 < end:
        if (
            buffer[start] == 120  # The bytes of "x-st".
            and buffer[start + 1] == 45
            and buffer[start + 2] == 115
            and buffer[start + 3] == 116
        ):
            return True
        start += 1
    return False
