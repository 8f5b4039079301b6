# SPDX-License-Identifier: Apache-2.0
"""Added headers of stored messages, and copies for tracing."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, cast

from headrace.gateway.conversion.headers import header_payload, message_address, shortstr
from headrace.gateway.conversion.neutral import is_text
from headrace.gateway.conversion.neutral_basic import write_basic
from headrace.gateway.conversion.neutral_transfer import read_transfer, write_transfer
from headrace.gateway.conversion.neutral_values import CannotConvert, decode_table_entries
from headrace.model.arguments.values import as_list
from headrace.model.contents import ROUTING_KEYS_MAX, UnreadableError
from headrace.model.message import (
    KIND_MASK,
    KIND_TRANSFER,
    LARGE,
    REDELIVERED,
    Message,
    new_message,
)
from headrace.protocol.codec_0_x import (
    BasicProperties,
    decode_content_header,
    encode_content_header,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.frames import FRAME_BODY, FRAME_HEADER, OVERHEAD, SIZE_AT, make_frame
from headrace.spec.tables import V0_9_1
from headrace.wire.errors import MalformedError
from headrace.wire.memory import get32
from headrace.wire.properties import (
    property_range,
    with_header_entry,
    with_property,
)
from headrace.wire.property_bits import HAS_HEADERS, HAS_TIMESTAMP
from headrace.wire.table import encode_entry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.wire.table import Table

_BASIC = 60
_PROPERTIES = (  # The names of RabbitMQ.
    *("content_type", "content_encoding", "headers", "delivery_mode", "priority"),
    *("correlation_id", "reply_to", "expiration", "message_id", "timestamp", "type", "user_id"),
    *("app_id", "cluster_id"),
)


def add_headers(
    message: Message, headers: Mapping[str, object], timestamp_s: int | None
) -> Message:
    """Return a message with further headers, and with another timestamp unless it is None.

    Raises:
        UnreadableError: the headers have no room for more.
    """
    try:
        if message.flags & KIND_MASK == KIND_TRANSFER:
            data = _add_headers_transfer(message, headers, timestamp_s)
        else:
            data = _add_headers_basic(message, headers, timestamp_s)
    except (CannotConvert, MalformedError, ValueError) as error:
        raise UnreadableError(str(error)) from error
    stamped = new_message(data, message.address_len, message.body_size)
    stamped.parts = message.parts
    stamped.flags = message.flags & (LARGE | KIND_MASK | REDELIVERED)
    stamped.priority = message.priority
    stamped.deadline_ms = message.deadline_ms
    stamped.publisher = message.publisher
    stamped.seq = message.seq
    return stamped


def _add_headers_basic(
    message: Message, headers: Mapping[str, object], timestamp_s: int | None
) -> bytes:
    payload = header_payload(message)
    for name, value in headers.items():
        payload = with_header_entry(payload, encode_entry(name, value))
    if timestamp_s is not None:
        payload = with_property(payload, HAS_TIMESTAMP, timestamp_s.to_bytes(8, "big"))
    property_range(payload, HAS_HEADERS)  # Fails here rather than in the next reader.
    return _with_header(message, payload)


def _with_header(message: Message, payload: bytes) -> bytes:
    """Return the data of a message of class basic with another header frame."""
    data = message.data
    assert data is not None, "the message is paged out"
    position = message.address_len + 2
    end = position + OVERHEAD + get32(data, position + SIZE_AT)
    size = len(payload).to_bytes(4, "big")
    return b"".join((data[: position + SIZE_AT], size, payload, b"\xce", data[end:]))


def _add_headers_transfer(
    message: Message, headers: Mapping[str, object], timestamp_s: int | None
) -> bytes:
    data = message.data
    assert data is not None, "the message is paged out"
    position = message.address_len + 2
    segment = data[position + 4 : position + 4 + get32(data, position)]
    properties = read_transfer(segment)
    replaced = {name.encode() for name in headers}
    entries = [entry for entry in properties.headers or () if entry[0] not in replaced]
    for name, value in headers.items():
        raw = encode_entry(name, value)
        entries += decode_table_entries(raw, 0, len(raw))
    properties.headers = entries or None
    if timestamp_s is not None:
        properties.timestamp_s = timestamp_s
    exchange, routing_key = message_address(message)
    written = write_transfer(properties, exchange.encode(), routing_key.encode(), message.body_size)
    size = len(written).to_bytes(4, "big")
    return b"".join((data[:position], size, written, data[position + 4 + len(segment) :]))


def trace_copy(
    message: Message, exchange: str, routing_key: str, headers: Mapping[str, object]
) -> Message:
    """Return a copy for tracing: the same body, with properties and address in its headers.

    Raises:
        UnreadableError: the message is malformed.
    """
    source, key = message_address(message)
    try:
        payload, pieces = _convert_to_basic(message)
        decoded = decode_content_header(V0_9_1, payload)[2]
        properties = {
            name: _plain(value)
            for name in _PROPERTIES
            if (value := getattr(decoded, name, None)) is not None
        }
        trace_headers: dict[str, object] = {
            "exchange_name": source,
            "routing_keys": [key, *_copies(properties.get("headers"))],
            "properties": properties,
            **headers,
        }
        header = encode_content_header(
            V0_9_1, _BASIC, message.body_size, BasicProperties(headers=cast("Table", trace_headers))
        )
    except (CannotConvert, MalformedError, AmqpError, ValueError) as error:
        raise UnreadableError(str(error)) from error
    address = shortstr(exchange) + shortstr(routing_key)
    data = b"".join((address, b"\x00\x00", make_frame(FRAME_HEADER, 0, header), *pieces))
    copy = new_message(data, len(address), message.body_size)
    if message.parts is not None and message.flags & KIND_MASK != KIND_TRANSFER:
        copy.parts = message.parts
        copy.flags = LARGE
    return copy


def _convert_to_basic(message: Message) -> tuple[bytes, list[bytes]]:
    """Return the payload of a header of class basic, and the body as frames.

    The frames of a message of class basic do not include a body in ``parts``.
    """
    data = message.data
    assert data is not None, "the message is paged out"
    position = message.address_len + 2
    if message.flags & KIND_MASK != KIND_TRANSFER:
        end = position + OVERHEAD + get32(data, position + SIZE_AT)
        return header_payload(message), [data[end:]]
    segment = data[position + 4 : position + 4 + get32(data, position)]
    header = write_basic(read_transfer(segment), message.body_size)
    body = data[position + 4 + len(segment) :]
    pieces = [body] if body else []
    return header, [make_frame(FRAME_BODY, 0, piece) for piece in (*pieces, *(message.parts or ()))]


def _copies(headers: object) -> Sequence[str]:
    keys = as_list(headers.get("CC")) if isinstance(headers, dict) else None
    if not isinstance(keys, list):
        return []
    return [key for key in keys[:ROUTING_KEYS_MAX] if isinstance(key, str)]


def _plain(value: object) -> object:
    """Return a property for a trace: times in seconds, and strings that are not text as bytes."""
    if isinstance(value, str) and not value.isascii():
        raw = value.encode("utf-8", "surrogateescape")
        return value if is_text(raw) else raw
    return int(value.timestamp()) if isinstance(value, datetime) else value
