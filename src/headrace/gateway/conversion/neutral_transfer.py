# SPDX-License-Identifier: Apache-2.0
"""The header segment of a 0-10 transfer, read into the neutral set and written.

::

    struct32, any number of them
    +----------+-------+--------+-------+----------------------------------------+
    | size u32 | class | struct | flags | the fields whose flag is set, in order |
    +----------+-------+--------+-------+----------------------------------------+
      4, 1 delivery-properties   4, 3 message-properties   others are kept as they are

Properties that only 0-x has are carried in the entry ``x-headrace-0-x`` of the application headers:
a map of texts (str16), numbers and, as ``headers``, the entries of a field table.

Fields of one transfer, not of the message, are not read: discard-unroutable, immediate,
redelivered, resume-id, resume-ttl, content-length, and an expiration in addition to a ttl.
"""

from __future__ import annotations

import cython

from headrace.gateway.conversion.neutral import (
    CARRIER_0_X,
    JMS_TYPE,
    Properties,
    is_text,
    parse_raw_reply_to,
    parse_uuid,
    set_expiration,
    text_to_bytes,
)
from headrace.gateway.conversion.neutral_values import (
    BOOLEAN,
    ENTRIES_MAX,
    MAP,
    STR16,
    UINT8,
    VBIN16,
    VBIN32,
    VOID,
    CannotConvert,
    Entry,
    Value,
    decode_map_entries,
    decode_table_entries,
    encode_map_entries,
    encode_table_entries,
    find_header,
    is_exact_in_0_10,
    restore_carried,
)

if not cython.compiled:
    from headrace.wire.memory import get16, get32, get64
    from headrace.wire.property_bits import (
        DELIVERY_FLAGS,
        DELIVERY_HAS_DELIVERY_MODE,
        DELIVERY_HAS_EXCHANGE,
        DELIVERY_HAS_EXPIRATION,
        DELIVERY_HAS_PRIORITY,
        DELIVERY_HAS_RESUME_ID,
        DELIVERY_HAS_RESUME_TTL,
        DELIVERY_HAS_ROUTING_KEY,
        DELIVERY_HAS_TIMESTAMP,
        DELIVERY_HAS_TTL,
        MESSAGE_FLAGS,
        MESSAGE_HAS_APP_ID,
        MESSAGE_HAS_APPLICATION_HEADERS,
        MESSAGE_HAS_CONTENT_ENCODING,
        MESSAGE_HAS_CONTENT_LENGTH,
        MESSAGE_HAS_CONTENT_TYPE,
        MESSAGE_HAS_CORRELATION_ID,
        MESSAGE_HAS_MESSAGE_ID,
        MESSAGE_HAS_REPLY_TO,
        MESSAGE_HAS_USER_ID,
        REPLY_TO_FLAGS,
        REPLY_TO_HAS_EXCHANGE,
        REPLY_TO_HAS_ROUTING_KEY,
    )
    from headrace.wire.table import check_table

DELIVERY_PROPERTIES = b"\x04\x01"
MESSAGE_PROPERTIES = b"\x04\x03"

PERSISTENT = 2
NON_PERSISTENT = 1
PRIORITY_MAX = 9


def split_structs(payload: bytes, position: int, end: int) -> list[tuple[bytes, int, int]]:
    """Return the structs of a header segment: code, start of the flags, and end of each.

    Raises:
        CannotConvert: the segment is malformed.
    """
    structs: list[tuple[bytes, int, int]] = []
    while position < end:
        if end - position < 6:
            raise CannotConvert("a header segment is cut off")
        stop = position + 4 + get32(payload, position)
        if stop > end or stop < position + 6:
            raise CannotConvert("a struct of a header segment is cut off")
        structs.append((payload[position + 4 : position + 6], position + 6, stop))
        position = stop
    return structs


def read_transfer(payload: bytes) -> Properties:
    """Read the payload of a header segment.

    Raises:
        CannotConvert: the segment is malformed.
    """
    properties = Properties()
    unknown: list[bytes] = []
    for code, position, end in split_structs(payload, 0, len(payload)):
        if code == DELIVERY_PROPERTIES:
            _read_delivery(properties, payload, position, end)
        elif code == MESSAGE_PROPERTIES:
            _read_message(properties, payload, position, end)
        else:
            unknown.append(payload[position - 6 : end])
    if unknown:
        properties.structs = b"".join(unknown)
    if properties.headers is not None:
        _restore_carried(properties, properties.headers)
    return properties


def _read_flags(buffer: bytes, position: int, end: int, known_flags: int) -> int:
    """Return the packing flags of a struct, the first field in the lowest bit."""
    if end - position < 2:
        raise CannotConvert("a struct of a header segment is cut off")
    flags = buffer[position] | buffer[position + 1] << 8
    if flags & ~known_flags:
        raise CannotConvert("a struct of a header segment has flags of fields that do not exist")
    return flags


def _read_delivery(properties: Properties, buffer: bytes, position: int, end: int) -> None:
    flags = _read_flags(buffer, position, end, DELIVERY_FLAGS)
    position += 2
    fixed = (flags >> 3 & 1) + (flags >> 4 & 1) + 8 * ((flags >> 5 & 1) + (flags >> 6 & 1))
    fixed += 8 * (flags >> 7 & 1)
    if end - position < fixed:
        raise CannotConvert("delivery properties are cut off")
    if flags & DELIVERY_HAS_PRIORITY:
        properties.priority = buffer[position]
        position += 1
    if flags & DELIVERY_HAS_DELIVERY_MODE:
        properties.delivery_mode = buffer[position]
        position += 1
    if flags & DELIVERY_HAS_TTL:
        properties.ttl_ms = get64(buffer, position)
        position += 8
    if flags & DELIVERY_HAS_TIMESTAMP:
        properties.timestamp_s = get64(buffer, position)
        position += 8
    if flags & DELIVERY_HAS_EXPIRATION:
        if properties.ttl_ms is None:
            properties.expiration = get64(buffer, position)
        position += 8
    if flags & DELIVERY_HAS_EXCHANGE:
        position = _skip_str8(buffer, position, end)
    if flags & DELIVERY_HAS_ROUTING_KEY:
        position = _skip_str8(buffer, position, end)
    if flags & DELIVERY_HAS_RESUME_ID:
        position += 2 + get16(buffer, position) if end - position >= 2 else end
    if flags & DELIVERY_HAS_RESUME_TTL:
        position += 8
    if position != end:
        raise CannotConvert("delivery properties are malformed")


def _skip_str8(buffer: bytes, position: int, end: int) -> int:
    """Return the position after a str8."""
    if position >= end or buffer[position] > end - position - 1:
        raise CannotConvert("a text of a header segment is cut off")
    return position + 1 + buffer[position]


def _read_str8(buffer: bytes, position: int, end: int) -> bytes:
    """Return the str8 at ``position``."""
    return buffer[position + 1 : _skip_str8(buffer, position, end)]


def _read_vbin16(buffer: bytes, position: int, end: int) -> bytes:
    """Return the vbin16 at ``position``."""
    if end - position < 2 or get16(buffer, position) > end - position - 2:
        raise CannotConvert("bytes of a header segment are cut off")
    return buffer[position + 2 : position + 2 + get16(buffer, position)]


def _read_message(properties: Properties, buffer: bytes, position: int, end: int) -> None:
    flags = _read_flags(buffer, position, end, MESSAGE_FLAGS)
    position += 2
    if flags & MESSAGE_HAS_CONTENT_LENGTH:
        position += 8
    if flags & MESSAGE_HAS_MESSAGE_ID:
        if end - position < 16:
            raise CannotConvert("message properties are cut off")
        properties.message_uuid = buffer[position : position + 16]
        position += 16
    if flags & MESSAGE_HAS_CORRELATION_ID:
        properties.correlation_id = _read_vbin16(buffer, position, end)
        position += 2 + len(properties.correlation_id)
    if flags & MESSAGE_HAS_REPLY_TO:
        size = len(_read_vbin16(buffer, position, end))
        _read_reply_to(properties, buffer, position + 2, position + 2 + size)
        position += 2 + size
    if flags & MESSAGE_HAS_CONTENT_TYPE:
        properties.content_type = _read_str8(buffer, position, end)
        position += 1 + len(properties.content_type)
    if flags & MESSAGE_HAS_CONTENT_ENCODING:
        properties.content_encoding = _read_str8(buffer, position, end)
        position += 1 + len(properties.content_encoding)
    if flags & MESSAGE_HAS_USER_ID:
        properties.user_id = _read_vbin16(buffer, position, end)
        position += 2 + len(properties.user_id)
    if flags & MESSAGE_HAS_APP_ID:
        properties.app_id = _read_vbin16(buffer, position, end)
        position += 2 + len(properties.app_id)
    if flags & MESSAGE_HAS_APPLICATION_HEADERS:
        if end - position < 4 or get32(buffer, position) > end - position - 4:
            raise CannotConvert("the application headers are cut off")
        stop = position + 4 + get32(buffer, position)
        properties.headers = decode_map_entries(buffer, position + 4, stop)
        position = stop
    if position != end:
        raise CannotConvert("message properties are malformed")


def with_application_header(payload: bytes, name: bytes, value: Value) -> bytes:
    """Return the payload of a header segment with one more entry in the application headers.

    An entry of the same name is replaced; all other entries stay unchanged.

    Raises:
        CannotConvert: the segment is malformed, or would have too many headers.
    """
    start = stop = -1
    for code, position, end in split_structs(payload, 0, len(payload)):
        if code == MESSAGE_PROPERTIES:
            start, stop = position, end
    if start < 0:
        return payload + encode_struct(
            MESSAGE_PROPERTIES,
            MESSAGE_HAS_APPLICATION_HEADERS,
            _encode_application_headers([], name, value),
        )
    flags = _read_flags(payload, start, stop, MESSAGE_FLAGS)
    position = _find_application_headers(payload, start + 2, stop, flags)
    entries: list[Entry] = []
    if flags & MESSAGE_HAS_APPLICATION_HEADERS:
        if stop - position < 4 or get32(payload, position) != stop - position - 4:
            raise CannotConvert("the application headers are cut off")
        entries = [e for e in decode_map_entries(payload, position + 4, stop) if e[0] != name]
        if len(entries) >= ENTRIES_MAX:
            raise CannotConvert(f"a map has more than {ENTRIES_MAX} entries")
    elif position != stop:
        raise CannotConvert("message properties are malformed")
    fields = payload[start + 2 : position] + _encode_application_headers(entries, name, value)
    properties = encode_struct(MESSAGE_PROPERTIES, flags | MESSAGE_HAS_APPLICATION_HEADERS, fields)
    return payload[: start - 6] + properties + payload[stop:]


def _encode_application_headers(entries: list[Entry], name: bytes, value: Value) -> bytes:
    """Return the field with these entries and one more."""
    headers = encode_map_entries([*entries, (name, value)])
    return len(headers).to_bytes(4, "big") + headers


def _find_application_headers(buffer: bytes, position: int, end: int, flags: int) -> int:
    """Return the index of the application headers in message properties, even if missing."""
    if flags & MESSAGE_HAS_CONTENT_LENGTH:
        position += 8
    if flags & MESSAGE_HAS_MESSAGE_ID:
        position += 16
    if position > end:
        raise CannotConvert("message properties are cut off")
    if flags & MESSAGE_HAS_CORRELATION_ID:
        position = _skip_vbin16(buffer, position, end)
    if flags & MESSAGE_HAS_REPLY_TO:
        position = _skip_vbin16(buffer, position, end)
    if flags & MESSAGE_HAS_CONTENT_TYPE:
        position = _skip_str8(buffer, position, end)
    if flags & MESSAGE_HAS_CONTENT_ENCODING:
        position = _skip_str8(buffer, position, end)
    if flags & MESSAGE_HAS_USER_ID:
        position = _skip_vbin16(buffer, position, end)
    if flags & MESSAGE_HAS_APP_ID:
        position = _skip_vbin16(buffer, position, end)
    return position


def _skip_vbin16(buffer: bytes, position: int, end: int) -> int:
    """Return the position after a vbin16, or after a struct with a 16-bit size."""
    if end - position < 2 or get16(buffer, position) > end - position - 2:
        raise CannotConvert("bytes of a header segment are cut off")
    return position + 2 + get16(buffer, position)


def _read_reply_to(properties: Properties, buffer: bytes, position: int, end: int) -> None:
    flags = _read_flags(buffer, position, end, REPLY_TO_FLAGS)
    position += 2
    if flags & REPLY_TO_HAS_EXCHANGE:
        properties.reply_exchange = _read_str8(buffer, position, end)
        position += 1 + len(properties.reply_exchange)
    if flags & REPLY_TO_HAS_ROUTING_KEY:
        properties.reply_key = _read_str8(buffer, position, end)
        position += 1 + len(properties.reply_key)
    if position != end:
        raise CannotConvert("a reply-to is malformed")


def _restore_carried(properties: Properties, headers: list[Entry]) -> None:
    """Restore the properties of 0-x that the headers carry; remove their entries and the type."""
    carrier = find_header(headers, CARRIER_0_X)
    carried: dict[bytes, Value] = {}
    if carrier is not None and carrier[0] == MAP:
        carried = dict(decode_map_entries(carrier[1], 0, len(carrier[1])))
        raw = _find_bytes(carried, b"headers", VBIN32) or b""
        table = len(raw).to_bytes(4, "big") + raw
        if check_table(table, 0, len(table)) < 0:
            carried = {}  # Not a carrier, but a header of a client.
        else:
            headers = [entry for entry in headers if entry[0] != CARRIER_0_X]
            originals = decode_table_entries(raw, 0, len(raw))
            headers = restore_carried(headers, originals, in_0_10=True)
    present = find_header(headers, JMS_TYPE)
    if b"type" in carried:
        properties.type = _find_text(carried, b"type")
    elif present is not None and _is_type(present):
        properties.type = present[1]
        headers = [entry for entry in headers if entry[0] != JMS_TYPE]
        if not headers and b"headers" not in carried:
            properties.headers = None
            _restore_properties(properties, carried)
            return
    properties.headers = headers
    if carried:
        if not headers and b"no-headers" in carried:
            properties.headers = None
        _restore_properties(properties, carried)


def _restore_properties(properties: Properties, carried: dict[bytes, Value]) -> None:
    """Restore carried properties whose related properties are unchanged."""
    mode = _find_bytes(carried, b"delivery-mode", UINT8)
    if mode is not None and properties.delivery_mode == _delivery_mode_0_10(mode[0]):
        properties.delivery_mode = mode[0]
    priority = _find_bytes(carried, b"priority", UINT8)
    if priority is not None and properties.priority == PRIORITY_MAX:
        properties.priority = priority[0]
    text = _find_text(carried, b"correlation-id")
    if text is not None and properties.correlation_id == text_to_bytes(text):
        properties.correlation_id_text = text
    text = _find_text(carried, b"app-id")
    if text is not None and properties.app_id == text_to_bytes(text):
        properties.app_id_text = text
    text = _find_text(carried, b"reply-to")
    if text is not None:
        reply_to = properties.reply_exchange, properties.reply_key
        if reply_to == parse_raw_reply_to(text):
            properties.reply_text = text
    text = _find_text(carried, b"message-id")
    if text is not None and properties.message_uuid == parse_uuid(text):
        properties.message_id_text = text
    text = _find_text(carried, b"expiration")
    if text is not None:
        reparsed = Properties()
        set_expiration(reparsed, text)
        if (reparsed.ttl_ms, reparsed.expiration) == (properties.ttl_ms, properties.expiration):
            properties.expiration_text = text
    properties.cluster_id = _find_text(carried, b"cluster-id")
    if properties.content_type is None:
        properties.content_type = _find_bytes(carried, b"content-type", VBIN16)
    if properties.content_encoding is None:
        properties.content_encoding = _find_bytes(carried, b"content-encoding", VBIN16)


def _find_text(carried: dict[bytes, Value], name: bytes) -> bytes | None:
    """Return the text of a carried 0-x property."""
    return _find_bytes(carried, name, VBIN16) or _find_bytes(carried, name, STR16)


def _find_bytes(carried: dict[bytes, Value], name: bytes, code: int) -> bytes | None:
    """Return the carried value of a name; None if it is missing or has another type."""
    value = carried.get(name)
    if value is None or value[0] != code:
        return None
    raw: bytes = value[1]
    return raw if code != STR16 or is_text(raw) else None


def _delivery_mode_0_10(mode: int) -> int:
    """Return the 0-10 delivery mode of a 0-x message."""
    return PERSISTENT if mode == PERSISTENT else NON_PERSISTENT


def write_transfer(
    properties: Properties,
    exchange: bytes,
    routing_key: bytes,
    content_length: int = -1,
) -> bytes:
    """Return the payload of a header segment; ``content_length`` is in bytes, -1 leaves it out."""
    carried: list[Entry] = []
    return _write_delivery(properties, exchange, routing_key, carried) + _write_message(
        properties, content_length, carried
    )


def _write_delivery(
    properties: Properties, exchange: bytes, routing_key: bytes, carried: list[Entry]
) -> bytes:
    flags = DELIVERY_HAS_EXCHANGE | DELIVERY_HAS_ROUTING_KEY
    parts: list[bytes] = []
    if properties.priority is not None:
        flags |= DELIVERY_HAS_PRIORITY
        parts.append(bytes((min(properties.priority, PRIORITY_MAX),)))
        if properties.priority > PRIORITY_MAX:
            carried.append((b"priority", (UINT8, bytes((properties.priority,)))))
    if properties.delivery_mode is not None:
        flags |= DELIVERY_HAS_DELIVERY_MODE
        mode = _delivery_mode_0_10(properties.delivery_mode)
        parts.append(bytes((mode,)))
        if mode != properties.delivery_mode:
            carried.append((b"delivery-mode", (UINT8, bytes((properties.delivery_mode,)))))
    if properties.ttl_ms is not None:
        flags |= DELIVERY_HAS_TTL
        parts.append(properties.ttl_ms.to_bytes(8, "big"))
    if properties.expiration_text is not None:
        carried.append((b"expiration", _encode_carried(properties.expiration_text)))
    if properties.timestamp_s is not None:
        flags |= DELIVERY_HAS_TIMESTAMP
        parts.append(properties.timestamp_s.to_bytes(8, "big"))
    if properties.expiration is not None and properties.ttl_ms is None:
        flags |= DELIVERY_HAS_EXPIRATION
        parts.append(properties.expiration.to_bytes(8, "big"))
    parts.append(bytes((len(exchange),)))
    parts.append(exchange)
    parts.append(bytes((len(routing_key),)))
    parts.append(routing_key)
    return encode_struct(DELIVERY_PROPERTIES, flags, b"".join(parts))


def _write_message(properties: Properties, content_length: int, carried: list[Entry]) -> bytes:
    flags = 0
    parts: list[bytes] = []
    if content_length >= 0:
        flags |= MESSAGE_HAS_CONTENT_LENGTH
        parts.append(content_length.to_bytes(8, "big"))
    if properties.message_uuid is not None:
        flags |= MESSAGE_HAS_MESSAGE_ID
        parts.append(properties.message_uuid)
    if properties.message_id_text is not None:
        carried.append((b"message-id", _encode_carried(properties.message_id_text)))
    if properties.correlation_id is not None:
        flags |= MESSAGE_HAS_CORRELATION_ID
        parts.append(encode_vbin16(properties.correlation_id))
        if properties.correlation_id_text is not None:
            carried.append((b"correlation-id", _encode_carried(properties.correlation_id_text)))
    if properties.reply_exchange is not None or properties.reply_key is not None:
        flags |= MESSAGE_HAS_REPLY_TO
        parts.append(_encode_reply_to(properties))
    if properties.reply_text is not None:
        carried.append((b"reply-to", _encode_carried(properties.reply_text)))
    if properties.content_type is not None and not is_text(properties.content_type):
        carried.append((b"content-type", _encode_carried(properties.content_type)))
    elif properties.content_type is not None:
        flags |= MESSAGE_HAS_CONTENT_TYPE
        parts.append(bytes((len(properties.content_type),)) + properties.content_type)
    if properties.content_encoding is not None and not is_text(properties.content_encoding):
        carried.append((b"content-encoding", _encode_carried(properties.content_encoding)))
    elif properties.content_encoding is not None:
        flags |= MESSAGE_HAS_CONTENT_ENCODING
        parts.append(bytes((len(properties.content_encoding),)) + properties.content_encoding)
    if properties.user_id is not None:
        flags |= MESSAGE_HAS_USER_ID
        parts.append(encode_vbin16(properties.user_id))
    if properties.app_id is not None:
        flags |= MESSAGE_HAS_APP_ID
        parts.append(encode_vbin16(properties.app_id))
        if properties.app_id_text is not None:
            carried.append((b"app-id", _encode_carried(properties.app_id_text)))
    headers = _encode_headers(properties, carried)
    if headers is not None:
        flags |= MESSAGE_HAS_APPLICATION_HEADERS
        parts.append(len(headers).to_bytes(4, "big") + headers)
    written = encode_struct(MESSAGE_PROPERTIES, flags, b"".join(parts)) if flags else b""
    return written + properties.structs if properties.structs else written


def _encode_headers(properties: Properties, carried: list[Entry]) -> bytes | None:
    """Return the application headers, without their size, with the carried properties in them."""
    headers = properties.headers
    if properties.cluster_id is not None:
        carried.append((b"cluster-id", _encode_carried(properties.cluster_id)))
    added: list[Entry] = []
    present = find_header(headers, JMS_TYPE)
    if present is not None:
        if properties.type is not None:
            carried.append((b"type", _encode_carried(properties.type)))
        elif _is_type(present):
            carried.append((b"type", (VOID, b"")))  # A header of a client, not the type.
    elif properties.type is not None and not is_text(properties.type):
        carried.append((b"type", _encode_carried(properties.type)))
    elif properties.type is not None:
        added.append((JMS_TYPE, (STR16, properties.type)))
        if headers is not None and not headers:
            carried.append((b"headers", (VBIN32, b"")))
    if headers is not None:
        lossy = [entry for entry in headers if not is_exact_in_0_10(entry[1])]
        if lossy:
            carried.append((b"headers", (VBIN32, encode_table_entries(lossy))))
    elif carried:
        carried.append((b"no-headers", (BOOLEAN, b"\x01")))
    if carried:
        added.append((CARRIER_0_X, (MAP, tuple(carried))))
    if headers is None and not added:
        return None
    return encode_map_entries([*(headers or ()), *added])


def _encode_carried(text: bytes) -> Value:
    """Return the carried form of a property of 0-x: a text, or bytes that are not UTF-8."""
    return (STR16 if is_text(text) else VBIN16), text


def _is_type(value: Value) -> bool:
    """Return True if the header x-jms-type can be the type of a 0-x message."""
    return value[0] == STR16 and is_text(value[1])


def encode_struct(code: bytes, flags: int, fields: bytes) -> bytes:
    """Return an encoded struct with two bytes of packing flags."""
    head = (len(fields) + 4).to_bytes(4, "big") + code + bytes((flags & 0xFF, flags >> 8))
    return head + fields


def encode_vbin16(raw: bytes) -> bytes:
    """Return bytes with their 16-bit size before them."""
    return len(raw).to_bytes(2, "big") + raw


def _encode_reply_to(properties: Properties) -> bytes:
    flags = 0
    parts = []
    if properties.reply_exchange is not None:
        flags |= REPLY_TO_HAS_EXCHANGE
        parts.append(bytes((len(properties.reply_exchange),)) + properties.reply_exchange)
    if properties.reply_key is not None:
        flags |= REPLY_TO_HAS_ROUTING_KEY
        parts.append(bytes((len(properties.reply_key),)) + properties.reply_key)
    return encode_vbin16(bytes((flags, 0)) + b"".join(parts))
