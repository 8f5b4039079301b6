# SPDX-License-Identifier: Apache-2.0
"""Outgoing contents of a channel: header and body frames that the peer can read.

Most frames are sent as received, with another channel number. Frames too large for the peer are
split. The headers of a client that reads few value types are converted to plain types, and those
of messages from 0-10 to the properties of class basic.
"""

import cython

if not cython.compiled:
    from headrace.gateway.conversion.convert import Converter
    from headrace.gateway.v0_x.peer import Peer
    from headrace.model.message import Message
    from headrace.protocol.v0_x.channel import Channel as ProtocolChannel
    from headrace.protocol.v0_x.frames import CHANNEL_AT as C_CHANNEL_AT
    from headrace.protocol.v0_x.frames import FLAGS_AT as C_FLAGS_AT
    from headrace.protocol.v0_x.frames import FRAME_BODY as C_BODY
    from headrace.protocol.v0_x.frames import FRAME_END as C_END
    from headrace.protocol.v0_x.frames import FRAME_HEADER as C_HEADER
    from headrace.protocol.v0_x.frames import OVERHEAD as C_OVERHEAD
    from headrace.protocol.v0_x.frames import PAYLOAD_AT as C_PAYLOAD_AT
    from headrace.protocol.v0_x.frames import PUBLISH_END_LEN as C_PUBLISH_END_LEN
    from headrace.protocol.v0_x.frames import SIZE_AT as C_SIZE_AT
    from headrace.wire.memory import copy, cut, get16, get32, put16, put32
    from headrace.wire.property_bits import HAS_HEADERS

from headrace.gateway.conversion.plain_headers import plain_header


class ContentWriter(ProtocolChannel):
    """The base class of a channel that writes contents."""

    def __init__(self, number: int, connection: Peer) -> None:
        ProtocolChannel.__init__(self, number)
        self.connection = connection

    def write_content(self, buffer: bytes | bytearray, start: int, end: int) -> None:
        """Write header and body frames from ``buffer[start:end]``, renumbered for this channel.

        The caller has reserved room for them, unless a frame must be split.
        """
        connection = self.connection
        if (
            connection.is_early
            and start < end
            and get16(buffer, start + C_FLAGS_AT) & HAS_HEADERS
            and not connection.speaks_extensions
        ):
            self.write_plain(buffer, start, end)
            return
        self.write_frames(buffer, start, end)

    def write_frames(self, buffer: bytes | bytearray, start: int, end: int) -> None:
        """Write frames without conversion, renumbered for this channel."""
        connection = self.connection
        number = self.number
        if end - start > connection.frame_max and self.must_split(buffer, start, end):
            self.write_split(buffer, start, end)
            return
        out = connection.buffer
        position = connection.tail
        copy(out, position, buffer, start, end)
        connection.tail = position + end - start
        while start < end:
            put16(out, position + C_CHANNEL_AT, number)
            size = get32(buffer, start + C_SIZE_AT) + C_OVERHEAD
            start += size
            position += size

    # --- In smaller frames --------------------------------------------------------------------

    def must_split(self, buffer: bytes | bytearray, start: int, end: int) -> bool:
        """Return True if a frame is larger than the peer's limit."""
        while start < end:
            size = get32(buffer, start + C_SIZE_AT) + C_OVERHEAD
            if size > self.connection.frame_max:
                return True
            start += size
        return False

    def write_split(self, buffer: bytes | bytearray, start: int, end: int) -> None:
        """Write the content in frames of at most the peer's frame-max.

        A header is one frame by the standard (0-9-1/4.2.6.1), so it is not split.
        """
        connection = self.connection
        limit = connection.frame_max - C_OVERHEAD
        while start < end:
            frame_type = buffer[start]
            size = get32(buffer, start + C_SIZE_AT)
            position = start + C_PAYLOAD_AT
            stop = position + size
            while True:
                chunk_size = (
                    stop - position if frame_type == C_HEADER else min(limit, stop - position)
                )
                connection.reserve(chunk_size + C_OVERHEAD)
                out = connection.buffer
                tail = connection.tail
                out[tail] = frame_type
                put16(out, tail + C_CHANNEL_AT, self.number)
                put32(out, tail + C_SIZE_AT, chunk_size)
                tail += C_PAYLOAD_AT
                copy(out, tail, buffer, position, position + chunk_size)
                out[tail + chunk_size] = C_END
                connection.tail = tail + chunk_size + 1
                position += chunk_size
                if position >= stop:
                    break
            start = stop + 1

    # --- With plain headers -------------------------------------------------------------------

    def write_plain(self, buffer: bytes | bytearray, start: int, end: int) -> None:
        """Write header and body frames for a client that reads few types of header values."""
        connection = self.connection
        size = get32(buffer, start + C_SIZE_AT)
        header = self.make_plain(cut(buffer, start + C_PAYLOAD_AT, start + C_PAYLOAD_AT + size))
        connection.write_frame(C_HEADER, self.number, header)
        start += C_OVERHEAD + size
        if start < end:
            connection.reserve(end - start)
            self.write_frames(buffer, start, end)

    def make_plain(self, payload: bytes) -> bytes:
        """Return a content header whose values have plain types; the last result is cached."""
        connection = self.connection
        if payload != connection.plain_source:
            connection.plain_result = plain_header(payload)
            connection.plain_source = payload
        return connection.plain_result

    # --- From 0-10 ----------------------------------------------------------------------------

    def basic_header(self, converter: Converter, message: Message) -> bytes:
        """Return the payload of a header frame for a message from 0-10.

        Raises:
            CannotConvert: 0-9-1 has no form for the header.
        """
        data = message.data
        position = message.address_len + C_PUBLISH_END_LEN
        return converter.header_for_basic(
            data, message.address_len, position + 4, get32(data, position), message.body_size
        )

    def write_converted(self, header: bytes, message: Message) -> None:
        """Write header and body frames of a message from 0-10."""
        connection = self.connection
        if (
            connection.is_early
            and get16(header, C_FLAGS_AT - C_PAYLOAD_AT) & HAS_HEADERS
            and not connection.speaks_extensions
        ):
            header = self.make_plain(header)
        connection.write_frame(C_HEADER, self.number, header)
        data = message.data
        position = message.address_len + C_PUBLISH_END_LEN
        position += 4 + get32(data, position)
        end = len(data)
        limit = connection.frame_max - C_OVERHEAD
        while position < end:
            chunk_size = min(limit, end - position)
            connection.reserve(chunk_size + C_OVERHEAD)
            out = connection.buffer
            tail = connection.tail
            out[tail] = C_BODY
            put16(out, tail + C_CHANNEL_AT, self.number)
            put32(out, tail + C_SIZE_AT, chunk_size)
            tail += C_PAYLOAD_AT
            copy(out, tail, data, position, position + chunk_size)
            out[tail + chunk_size] = C_END
            connection.tail = tail + chunk_size + 1
            position += chunk_size
        if message.parts is not None:
            connection.write_parts(self.number, message.parts, connection.frame_max)
