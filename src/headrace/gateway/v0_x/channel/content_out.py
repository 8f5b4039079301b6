# SPDX-License-Identifier: Apache-2.0
"""Outgoing contents of a channel: header and body frames, in a form that the peer can read.

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


class ContentOut(ProtocolChannel):
    """The part of a channel that writes contents."""

    def __init__(self, number: int, connection: Peer) -> None:
        ProtocolChannel.__init__(self, number)
        self.connection = connection

    def write_content(self, d: bytes | bytearray, lo: int, end: int) -> None:
        """Write header and body frames from ``d[lo:end]``, renumbered for this channel.

        The caller has reserved room for them, unless a frame must be split.
        """
        connection = self.connection
        if (
            connection.early
            and lo < end
            and get16(d, lo + C_FLAGS_AT) & HAS_HEADERS
            and not connection.speaks_extensions
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
            put16(out, at + C_CHANNEL_AT, number)
            size = get32(d, lo + C_SIZE_AT) + C_OVERHEAD
            lo += size
            at += size

    # --- In smaller frames --------------------------------------------------------------------

    def must_split(self, d: bytes | bytearray, lo: int, end: int) -> bool:
        """Return True if a frame is larger than the peer's limit."""
        while lo < end:
            size = get32(d, lo + C_SIZE_AT) + C_OVERHEAD
            if size > self.connection.frame_max:
                return True
            lo += size
        return False

    def write_split(self, d: bytes | bytearray, lo: int, end: int) -> None:
        """Write the content in frames of the size that the peer takes.

        A header is one frame by the standard (0-9-1/4.2.6.1), so it is not split.
        """
        connection = self.connection
        limit = connection.frame_max - C_OVERHEAD
        while lo < end:
            kind = d[lo]
            size = get32(d, lo + C_SIZE_AT)
            at = lo + C_PAYLOAD_AT
            stop = at + size
            while True:
                piece = stop - at if kind == C_HEADER else min(limit, stop - at)
                connection.reserve(piece + C_OVERHEAD)
                out = connection.buffer
                tail = connection.tail
                out[tail] = kind
                put16(out, tail + C_CHANNEL_AT, self.number)
                put32(out, tail + C_SIZE_AT, piece)
                tail += C_PAYLOAD_AT
                copy(out, tail, d, at, at + piece)
                out[tail + piece] = C_END
                connection.tail = tail + piece + 1
                at += piece
                if at >= stop:
                    break
            lo = stop + 1

    # --- With plain headers -------------------------------------------------------------------

    def write_plain(self, d: bytes | bytearray, lo: int, end: int) -> None:
        """Write header and body frames for a client that reads few types of header values."""
        connection = self.connection
        size = get32(d, lo + C_SIZE_AT)
        header = self.plain(cut(d, lo + C_PAYLOAD_AT, lo + C_PAYLOAD_AT + size))
        connection.write_frame(C_HEADER, self.number, header)
        lo += C_OVERHEAD + size
        if lo < end:
            connection.reserve(end - lo)
            self.write_frames(d, lo, end)

    def plain(self, payload: bytes) -> bytes:
        """Return a content header with plain types; the last result is cached."""
        connection = self.connection
        if payload != connection.plain_from:
            connection.plain_to = plain_header(payload)
            connection.plain_from = payload
        return connection.plain_to

    # --- From 0-10 ----------------------------------------------------------------------------

    def basic_header(self, converter: Converter, message: Message) -> bytes:
        """Return the payload of a header frame for a message from 0-10.

        Raises:
            CannotConvert: 0-9-1 has no form for the header.
        """
        data = message.data
        at = message.address_len + C_PUBLISH_END_LEN
        return converter.header_for_basic(
            data, message.address_len, at + 4, get32(data, at), message.body_size
        )

    def write_converted(self, header: bytes, message: Message) -> None:
        """Write header and body frames of a message from 0-10."""
        connection = self.connection
        if (
            connection.early
            and get16(header, C_FLAGS_AT - C_PAYLOAD_AT) & HAS_HEADERS
            and not connection.speaks_extensions
        ):
            header = self.plain(header)
        connection.write_frame(C_HEADER, self.number, header)
        data = message.data
        at = message.address_len + C_PUBLISH_END_LEN
        at += 4 + get32(data, at)
        end = len(data)
        limit = connection.frame_max - C_OVERHEAD
        while at < end:
            piece = min(limit, end - at)
            connection.reserve(piece + C_OVERHEAD)
            out = connection.buffer
            tail = connection.tail
            out[tail] = C_BODY
            put16(out, tail + C_CHANNEL_AT, self.number)
            put32(out, tail + C_SIZE_AT, piece)
            tail += C_PAYLOAD_AT
            copy(out, tail, data, at, at + piece)
            out[tail + piece] = C_END
            connection.tail = tail + piece + 1
            at += piece
        if message.parts is not None:
            connection.write_parts(self.number, message.parts, connection.frame_max)
