# SPDX-License-Identifier: Apache-2.0
"""Reads and rewrites the content headers of stored messages, for dead-lettering.

A stored message is its address (two short strings), two bytes, then the producer's frames (see
:mod:`headrace.model.message`). A rewritten message has another address and header frame, and
the same body frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.model.contents import Content, UnreadableError
from headrace.model.message import (
    KIND_FILE,
    KIND_MASK,
    LARGE,
    Message,
    new_message,
)
from headrace.protocol.codec_0_x import (
    FileProperties,
    StreamProperties,
    decode_content_header,
    encode_content_header,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.frames import (
    FRAME_BODY,
    OVERHEAD,
    PAYLOAD_AT,
    PUBLISH_END_LEN,
    SIZE_AT,
    make_frame,
)
from headrace.spec.tables import V0_9
from headrace.wire.errors import MalformedError
from headrace.wire.memory import get32
from headrace.wire.properties import (
    PROPERTIES_AT,
    property_range,
    with_property,
    without_property,
)
from headrace.wire.property_bits import (
    HAS_CONTENT_ENCODING,
    HAS_CONTENT_TYPE,
    HAS_DELIVERY_MODE,
    HAS_EXPIRATION,
    HAS_HEADERS,
    HAS_PRIORITY,
)
from headrace.wire.table import Table, decode_table, encode_table, string_entry

if TYPE_CHECKING:
    from collections.abc import Mapping

_PERSISTENT_MODE = 2
_FILTER_KEY = b"x-stream-filter-value"
_FILTER_ENTRY = bytes((len(_FILTER_KEY),)) + _FILTER_KEY


class BasicContents:
    """Reads and rewrites messages of classes basic, file and stream, the same in 0-8 to 0-9-1."""

    def read(self, message: Message) -> Content:
        """Return the properties of a message."""
        try:
            return self._read(message)
        except MalformedError as error:
            raise UnreadableError(str(error)) from error

    def _read(self, message: Message) -> Content:
        exchange, routing_key = message_address(message)
        payload = header_payload(message)
        headers: Mapping[str, object] = {}
        kind = message.flags & KIND_MASK
        if kind >= KIND_FILE:  # Files and packets do not expire; all files are persistent.
            headers = read_file_or_packet_properties(payload).headers or {}
            return Content(exchange, routing_key, headers, None, kind == KIND_FILE)
        headers = read_headers(payload)
        start, end = property_range(payload, HAS_EXPIRATION)
        expiration = payload[start + 1 : end].decode() if start < end else None
        start, end = property_range(payload, HAS_DELIVERY_MODE)
        persistent = start < end and payload[start] == _PERSISTENT_MODE
        start, end = property_range(payload, HAS_PRIORITY)
        priority = payload[start] if start < end else 0
        return Content(exchange, routing_key, headers, expiration, persistent, priority)

    def encode_record(self, message: Message) -> bytes:
        """Return the data of a message whose body is in parts, with the body."""
        data: bytes | None = message.data
        assert data is not None, "the message is paged out"
        parts: tuple[bytes, ...] = message.parts or ()
        return data + b"".join([make_frame(FRAME_BODY, 0, part) for part in parts])

    def filter_value(self, data: bytes, address_len: int) -> str | None:
        """Return the filter value that a message was published with: a string, or raw bytes."""
        start = address_len + PUBLISH_END_LEN + PAYLOAD_AT
        end = start + get32(data, address_len + PUBLISH_END_LEN + SIZE_AT)
        if data.find(_FILTER_ENTRY, start, end) < 0:
            return None
        flags = data[start + 12]  # The high byte: content type, encoding, headers.
        if not flags & HAS_HEADERS >> 8:
            return None
        position = start + PROPERTIES_AT
        if flags & HAS_CONTENT_TYPE >> 8:
            position += 1 + data[position]
        if flags & HAS_CONTENT_ENCODING >> 8:
            position += 1 + data[position]
        raw = string_entry(data, position, _FILTER_KEY)
        return None if raw is None else raw.decode("utf-8", "replace")

    def rewrite(
        self,
        message: Message,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, object],
        *,
        expires: bool = False,
    ) -> Message:
        """Return a new message with the same body and another address and headers.

        The new message has no expiration, unless ``expires``.
        """
        data = message.data
        assert data is not None, "the message is paged out"
        position = message.address_len + PUBLISH_END_LEN
        try:
            payload = header_payload(message)
            if message.flags & KIND_MASK >= KIND_FILE:
                properties = read_file_or_packet_properties(payload)
                properties.headers = cast("Table", dict(headers))
                size = int.from_bytes(payload[4:12], "big")
                payload = encode_content_header(V0_9, properties.CLASS_ID, size, properties)
            else:
                if not expires:
                    payload = without_property(payload, HAS_EXPIRATION)
                payload = with_property(payload, HAS_HEADERS, encode_table(headers))
                property_range(payload, HAS_HEADERS)  # Fails here rather than in the next reader.
        except (MalformedError, ValueError) as error:
            raise UnreadableError(str(error)) from error
        body = data[position + OVERHEAD + get32(data, position + SIZE_AT) :]
        address = shortstr(exchange) + shortstr(routing_key)
        frame = (
            data[position : position + SIZE_AT]
            + len(payload).to_bytes(4, "big")
            + payload
            + b"\xce"
        )
        rewritten = new_message(
            address + b"\x00\x00" + frame + body, len(address), message.body_size
        )
        rewritten.parts = message.parts
        rewritten.flags = message.flags & (LARGE | KIND_MASK)
        rewritten.priority = message.priority
        rewritten.publisher = message.publisher
        return rewritten


def read_file_or_packet_properties(payload: bytes) -> FileProperties | StreamProperties:
    """Return the properties of a file or a stream packet.

    Raises:
        MalformedError: the headers are malformed.
    """
    try:
        properties = decode_content_header(V0_9, payload)[2]
    except AmqpError as error:
        raise MalformedError(error.text) from error
    assert isinstance(properties, FileProperties | StreamProperties)
    return properties


def shortstr(text: str) -> bytes:
    """Encode a short string."""
    raw = text.encode()
    return bytes((len(raw),)) + raw


def message_address(message: Message) -> tuple[str, str]:
    """Return exchange and routing key of a message in memory."""
    data = message.data
    assert data is not None, "the message is paged out"
    size = 1 + data[0]
    return data[1:size].decode(), data[size + 1 : message.address_len].decode()


def read_headers(payload: bytes) -> Table:
    """Return the headers in a content header of class basic; an empty table if there are none.

    Raises:
        MalformedError: the headers are malformed.
    """
    start, end = property_range(payload, HAS_HEADERS)
    return decode_table(payload, start)[0] if start < end else {}


def header_at(data: bytes, header: int) -> tuple[bytes, int]:
    """Return the payload of the header frame at ``header``, and the index of its end."""
    start = header + PAYLOAD_AT
    end = start + get32(data, header + SIZE_AT)
    return data[start:end], end


def header_payload(message: Message) -> bytes:
    """Return the payload of the header frame of a message in memory."""
    data = message.data
    assert data is not None, "the message is paged out"
    payload, _ = header_at(data, message.address_len + PUBLISH_END_LEN)
    assert len(payload) >= PROPERTIES_AT
    return payload
