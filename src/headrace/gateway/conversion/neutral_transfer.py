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
redelivered, resume-id, resume-ttl, content-length, and an expiration beside a ttl.
"""

from __future__ import annotations

import cython

from headrace.gateway.conversion.neutral import (
    CARRIER_0_X,
    JMS_TYPE,
    Properties,
    bytes_of_text,
    is_text,
    parse_reply_to,
    set_expiration,
    uuid_of_text,
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
    entries_of_map,
    entries_of_table,
    find,
    is_exact_in_0_10,
    map_of_entries,
    restore,
    table_of_entries,
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
    p = Properties()
    unknown: list[bytes] = []
    for code, position, end in split_structs(payload, 0, len(payload)):
        if code == DELIVERY_PROPERTIES:
            _read_delivery(p, payload, position, end)
        elif code == MESSAGE_PROPERTIES:
            _read_message(p, payload, position, end)
        else:
            unknown.append(payload[position - 6 : end])
    if unknown:
        p.structs = b"".join(unknown)
    if p.headers is not None:
        _unload(p, p.headers)
    return p


def _flags(buffer: bytes, position: int, end: int, known_flags: int) -> int:
    """Return the packing flags of a struct, the first field in the lowest bit."""
    if end - position < 2:
        raise CannotConvert("a struct of a header segment is cut off")
    flags = buffer[position] | buffer[position + 1] << 8
    if flags & ~known_flags:
        raise CannotConvert("a struct of a header segment has flags of fields that do not exist")
    return flags


def _read_delivery(p: Properties, buffer: bytes, position: int, end: int) -> None:
    flags = _flags(buffer, position, end, DELIVERY_FLAGS)
    position += 2
    fixed = (flags >> 3 & 1) + (flags >> 4 & 1) + 8 * ((flags >> 5 & 1) + (flags >> 6 & 1))
    fixed += 8 * (flags >> 7 & 1)
    if end - position < fixed:
        raise CannotConvert("delivery properties are cut off")
    if flags & DELIVERY_HAS_PRIORITY:
        p.priority = buffer[position]
        position += 1
    if flags & DELIVERY_HAS_DELIVERY_MODE:
        p.delivery_mode = buffer[position]
        position += 1
    if flags & DELIVERY_HAS_TTL:
        p.ttl_ms = get64(buffer, position)
        position += 8
    if flags & DELIVERY_HAS_TIMESTAMP:
        p.timestamp_s = get64(buffer, position)
        position += 8
    if flags & DELIVERY_HAS_EXPIRATION:
        if p.ttl_ms is None:
            p.expiration = get64(buffer, position)
        position += 8
    if flags & DELIVERY_HAS_EXCHANGE:
        position = _skip_text(buffer, position, end)
    if flags & DELIVERY_HAS_ROUTING_KEY:
        position = _skip_text(buffer, position, end)
    if flags & DELIVERY_HAS_RESUME_ID:
        position += 2 + get16(buffer, position) if end - position >= 2 else end
    if flags & DELIVERY_HAS_RESUME_TTL:
        position += 8
    if position != end:
        raise CannotConvert("delivery properties are malformed")


def _skip_text(buffer: bytes, position: int, end: int) -> int:
    """Return the position behind a str8."""
    if position >= end or buffer[position] > end - position - 1:
        raise CannotConvert("a text of a header segment is cut off")
    return position + 1 + buffer[position]


def _text(buffer: bytes, position: int, end: int) -> bytes:
    """Return the str8 at ``position``."""
    return buffer[position + 1 : _skip_text(buffer, position, end)]


def _bytes(buffer: bytes, position: int, end: int) -> bytes:
    """Return the vbin16 at ``position``."""
    if end - position < 2 or get16(buffer, position) > end - position - 2:
        raise CannotConvert("bytes of a header segment are cut off")
    return buffer[position + 2 : position + 2 + get16(buffer, position)]


def _read_message(p: Properties, buffer: bytes, position: int, end: int) -> None:
    flags = _flags(buffer, position, end, MESSAGE_FLAGS)
    position += 2
    if flags & MESSAGE_HAS_CONTENT_LENGTH:
        position += 8
    if flags & MESSAGE_HAS_MESSAGE_ID:
        if end - position < 16:
            raise CannotConvert("message properties are cut off")
        p.message_uuid = buffer[position : position + 16]
        position += 16
    if flags & MESSAGE_HAS_CORRELATION_ID:
        p.correlation_id = _bytes(buffer, position, end)
        position += 2 + len(p.correlation_id)
    if flags & MESSAGE_HAS_REPLY_TO:
        size = len(_bytes(buffer, position, end))
        _read_reply_to(p, buffer, position + 2, position + 2 + size)
        position += 2 + size
    if flags & MESSAGE_HAS_CONTENT_TYPE:
        p.content_type = _text(buffer, position, end)
        position += 1 + len(p.content_type)
    if flags & MESSAGE_HAS_CONTENT_ENCODING:
        p.content_encoding = _text(buffer, position, end)
        position += 1 + len(p.content_encoding)
    if flags & MESSAGE_HAS_USER_ID:
        p.user_id = _bytes(buffer, position, end)
        position += 2 + len(p.user_id)
    if flags & MESSAGE_HAS_APP_ID:
        p.app_id = _bytes(buffer, position, end)
        position += 2 + len(p.app_id)
    if flags & MESSAGE_HAS_APPLICATION_HEADERS:
        if end - position < 4 or get32(buffer, position) > end - position - 4:
            raise CannotConvert("the application headers are cut off")
        stop = position + 4 + get32(buffer, position)
        p.headers = entries_of_map(buffer, position + 4, stop)
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
        return payload + struct32(
            MESSAGE_PROPERTIES,
            MESSAGE_HAS_APPLICATION_HEADERS,
            _application_headers([], name, value),
        )
    flags = _flags(payload, start, stop, MESSAGE_FLAGS)
    position = _application_headers_at(payload, start + 2, stop, flags)
    entries: list[Entry] = []
    if flags & MESSAGE_HAS_APPLICATION_HEADERS:
        if stop - position < 4 or get32(payload, position) != stop - position - 4:
            raise CannotConvert("the application headers are cut off")
        entries = [e for e in entries_of_map(payload, position + 4, stop) if e[0] != name]
        if len(entries) >= ENTRIES_MAX:
            raise CannotConvert(f"a map has more than {ENTRIES_MAX} entries")
    elif position != stop:
        raise CannotConvert("message properties are malformed")
    fields = payload[start + 2 : position] + _application_headers(entries, name, value)
    properties = struct32(MESSAGE_PROPERTIES, flags | MESSAGE_HAS_APPLICATION_HEADERS, fields)
    return payload[: start - 6] + properties + payload[stop:]


def _application_headers(entries: list[Entry], name: bytes, value: Value) -> bytes:
    """Return the field with these entries and one more."""
    headers = map_of_entries([*entries, (name, value)])
    return len(headers).to_bytes(4, "big") + headers


def _application_headers_at(buffer: bytes, position: int, end: int, flags: int) -> int:
    """Return the index of the application headers in message properties, even if missing."""
    if flags & MESSAGE_HAS_CONTENT_LENGTH:
        position += 8
    if flags & MESSAGE_HAS_MESSAGE_ID:
        position += 16
    if position > end:
        raise CannotConvert("message properties are cut off")
    if flags & MESSAGE_HAS_CORRELATION_ID:
        position = _skip_bytes(buffer, position, end)
    if flags & MESSAGE_HAS_REPLY_TO:
        position = _skip_bytes(buffer, position, end)
    if flags & MESSAGE_HAS_CONTENT_TYPE:
        position = _skip_text(buffer, position, end)
    if flags & MESSAGE_HAS_CONTENT_ENCODING:
        position = _skip_text(buffer, position, end)
    if flags & MESSAGE_HAS_USER_ID:
        position = _skip_bytes(buffer, position, end)
    if flags & MESSAGE_HAS_APP_ID:
        position = _skip_bytes(buffer, position, end)
    return position


def _skip_bytes(buffer: bytes, position: int, end: int) -> int:
    """Return the position behind a vbin16, or a struct of that size."""
    if end - position < 2 or get16(buffer, position) > end - position - 2:
        raise CannotConvert("bytes of a header segment are cut off")
    return position + 2 + get16(buffer, position)


def _read_reply_to(p: Properties, buffer: bytes, position: int, end: int) -> None:
    flags = _flags(buffer, position, end, REPLY_TO_FLAGS)
    position += 2
    if flags & REPLY_TO_HAS_EXCHANGE:
        p.reply_exchange = _text(buffer, position, end)
        position += 1 + len(p.reply_exchange)
    if flags & REPLY_TO_HAS_ROUTING_KEY:
        p.reply_key = _text(buffer, position, end)
        position += 1 + len(p.reply_key)
    if position != end:
        raise CannotConvert("a reply-to is malformed")


def _unload(p: Properties, headers: list[Entry]) -> None:
    """Remove the type, and restore the carried properties of a message from 0-x."""
    carrier = find(headers, CARRIER_0_X)
    carried: dict[bytes, Value] = {}
    if carrier is not None and carrier[0] == MAP:
        carried = dict(entries_of_map(carrier[1], 0, len(carrier[1])))
        raw = _find_bytes(carried, b"headers", VBIN32) or b""
        table = len(raw).to_bytes(4, "big") + raw
        if check_table(table, 0, len(table)) < 0:
            carried = {}  # Not a carrier, but a header of a client.
        else:
            headers = [entry for entry in headers if entry[0] != CARRIER_0_X]
            originals = entries_of_table(raw, 0, len(raw))
            headers = restore(headers, originals, in_0_10=True)
    present = find(headers, JMS_TYPE)
    if b"type" in carried:
        p.type = _find_text(carried, b"type")
    elif present is not None and _is_type(present):
        p.type = present[1]
        headers = [entry for entry in headers if entry[0] != JMS_TYPE]
        if not headers and b"headers" not in carried:
            p.headers = None
            _restore(p, carried)
            return
    p.headers = headers
    if carried:
        if not headers and b"no-headers" in carried:
            p.headers = None
        _restore(p, carried)


def _restore(p: Properties, carried: dict[bytes, Value]) -> None:
    """Restore carried properties whose related properties are unchanged."""
    mode = _find_bytes(carried, b"delivery-mode", UINT8)
    if mode is not None and p.delivery_mode == _mode(mode[0]):
        p.delivery_mode = mode[0]
    priority = _find_bytes(carried, b"priority", UINT8)
    if priority is not None and p.priority == PRIORITY_MAX:
        p.priority = priority[0]
    text = _find_text(carried, b"correlation-id")
    if text is not None and p.correlation_id == bytes_of_text(text):
        p.correlation_id_text = text
    text = _find_text(carried, b"app-id")
    if text is not None and p.app_id == bytes_of_text(text):
        p.app_id_text = text
    text = _find_text(carried, b"reply-to")
    if text is not None and (p.reply_exchange, p.reply_key) == parse_reply_to(text):
        p.reply_text = text
    text = _find_text(carried, b"message-id")
    if text is not None and p.message_uuid == uuid_of_text(text):
        p.message_id_text = text
    text = _find_text(carried, b"expiration")
    if text is not None:
        properties = Properties()
        set_expiration(properties, text)
        if (properties.ttl_ms, properties.expiration) == (p.ttl_ms, p.expiration):
            p.expiration_text = text
    p.cluster_id = _find_text(carried, b"cluster-id")
    if p.content_type is None:
        p.content_type = _find_bytes(carried, b"content-type", VBIN16)
    if p.content_encoding is None:
        p.content_encoding = _find_bytes(carried, b"content-encoding", VBIN16)


def _find_text(carried: dict[bytes, Value], name: bytes) -> bytes | None:
    """Return a property of 0-x that was carried."""
    return _find_bytes(carried, name, VBIN16) or _find_bytes(carried, name, STR16)


def _find_bytes(carried: dict[bytes, Value], name: bytes, code: int) -> bytes | None:
    """Return the value that was carried under a name, if it is of this type."""
    value = carried.get(name)
    if value is None or value[0] != code:
        return None
    raw: bytes = value[1]
    return raw if code != STR16 or is_text(raw) else None


def _mode(mode: int) -> int:
    """Return the 0-10 delivery mode of a 0-x message."""
    return PERSISTENT if mode == PERSISTENT else NON_PERSISTENT


def write_transfer(
    p: Properties,
    exchange: bytes,
    routing_key: bytes,
    content_length: int = -1,
) -> bytes:
    """Return the payload of a header segment; ``content_length`` is in bytes, -1 leaves it out."""
    carried: list[Entry] = []
    return _write_delivery(p, exchange, routing_key, carried) + _write_message(
        p, content_length, carried
    )


def _write_delivery(
    p: Properties, exchange: bytes, routing_key: bytes, carried: list[Entry]
) -> bytes:
    flags = DELIVERY_HAS_EXCHANGE | DELIVERY_HAS_ROUTING_KEY
    parts: list[bytes] = []
    if p.priority is not None:
        flags |= DELIVERY_HAS_PRIORITY
        parts.append(bytes((min(p.priority, PRIORITY_MAX),)))
        if p.priority > PRIORITY_MAX:
            carried.append((b"priority", (UINT8, bytes((p.priority,)))))
    if p.delivery_mode is not None:
        flags |= DELIVERY_HAS_DELIVERY_MODE
        mode = _mode(p.delivery_mode)
        parts.append(bytes((mode,)))
        if mode != p.delivery_mode:
            carried.append((b"delivery-mode", (UINT8, bytes((p.delivery_mode,)))))
    if p.ttl_ms is not None:
        flags |= DELIVERY_HAS_TTL
        parts.append(p.ttl_ms.to_bytes(8, "big"))
    if p.expiration_text is not None:
        carried.append((b"expiration", _carried(p.expiration_text)))
    if p.timestamp_s is not None:
        flags |= DELIVERY_HAS_TIMESTAMP
        parts.append(p.timestamp_s.to_bytes(8, "big"))
    if p.expiration is not None and p.ttl_ms is None:
        flags |= DELIVERY_HAS_EXPIRATION
        parts.append(p.expiration.to_bytes(8, "big"))
    parts.append(bytes((len(exchange),)))
    parts.append(exchange)
    parts.append(bytes((len(routing_key),)))
    parts.append(routing_key)
    return struct32(DELIVERY_PROPERTIES, flags, b"".join(parts))


def _write_message(p: Properties, content_length: int, carried: list[Entry]) -> bytes:
    flags = 0
    parts: list[bytes] = []
    if content_length >= 0:
        flags |= MESSAGE_HAS_CONTENT_LENGTH
        parts.append(content_length.to_bytes(8, "big"))
    if p.message_uuid is not None:
        flags |= MESSAGE_HAS_MESSAGE_ID
        parts.append(p.message_uuid)
    if p.message_id_text is not None:
        carried.append((b"message-id", _carried(p.message_id_text)))
    if p.correlation_id is not None:
        flags |= MESSAGE_HAS_CORRELATION_ID
        parts.append(vbin16(p.correlation_id))
        if p.correlation_id_text is not None:
            carried.append((b"correlation-id", _carried(p.correlation_id_text)))
    if p.reply_exchange is not None or p.reply_key is not None:
        flags |= MESSAGE_HAS_REPLY_TO
        parts.append(_reply_to(p))
    if p.reply_text is not None:
        carried.append((b"reply-to", _carried(p.reply_text)))
    if p.content_type is not None and not is_text(p.content_type):
        carried.append((b"content-type", _carried(p.content_type)))
    elif p.content_type is not None:
        flags |= MESSAGE_HAS_CONTENT_TYPE
        parts.append(bytes((len(p.content_type),)) + p.content_type)
    if p.content_encoding is not None and not is_text(p.content_encoding):
        carried.append((b"content-encoding", _carried(p.content_encoding)))
    elif p.content_encoding is not None:
        flags |= MESSAGE_HAS_CONTENT_ENCODING
        parts.append(bytes((len(p.content_encoding),)) + p.content_encoding)
    if p.user_id is not None:
        flags |= MESSAGE_HAS_USER_ID
        parts.append(vbin16(p.user_id))
    if p.app_id is not None:
        flags |= MESSAGE_HAS_APP_ID
        parts.append(vbin16(p.app_id))
        if p.app_id_text is not None:
            carried.append((b"app-id", _carried(p.app_id_text)))
    headers = _headers(p, carried)
    if headers is not None:
        flags |= MESSAGE_HAS_APPLICATION_HEADERS
        parts.append(len(headers).to_bytes(4, "big") + headers)
    written = struct32(MESSAGE_PROPERTIES, flags, b"".join(parts)) if flags else b""
    return written + p.structs if p.structs else written


def _headers(p: Properties, carried: list[Entry]) -> bytes | None:
    """Return the application headers, without their size, with the carried properties in them."""
    headers = p.headers
    if p.cluster_id is not None:
        carried.append((b"cluster-id", _carried(p.cluster_id)))
    added: list[Entry] = []
    present = find(headers, JMS_TYPE)
    if present is not None:
        if p.type is not None:
            carried.append((b"type", _carried(p.type)))
        elif _is_type(present):
            carried.append((b"type", (VOID, b"")))  # A header of a client, not the type.
    elif p.type is not None and not is_text(p.type):
        carried.append((b"type", _carried(p.type)))
    elif p.type is not None:
        added.append((JMS_TYPE, (STR16, p.type)))
        if headers is not None and not headers:
            carried.append((b"headers", (VBIN32, b"")))
    if headers is not None:
        lossy = [entry for entry in headers if not is_exact_in_0_10(entry[1])]
        if lossy:
            carried.append((b"headers", (VBIN32, table_of_entries(lossy))))
    elif carried:
        carried.append((b"no-headers", (BOOLEAN, b"\x01")))
    if carried:
        added.append((CARRIER_0_X, (MAP, tuple(carried))))
    if headers is None and not added:
        return None
    return map_of_entries([*(headers or ()), *added])


def _carried(text: bytes) -> Value:
    """Return the carried form of a property of 0-x: a text, or bytes that are not UTF-8."""
    return (STR16 if is_text(text) else VBIN16), text


def _is_type(value: Value) -> bool:
    """Return True if the header x-jms-type can be the type of a 0-x message."""
    return value[0] == STR16 and is_text(value[1])


def struct32(code: bytes, flags: int, fields: bytes) -> bytes:
    """Return an encoded struct with two bytes of packing flags."""
    head = (len(fields) + 4).to_bytes(4, "big") + code + bytes((flags & 0xFF, flags >> 8))
    return head + fields


def vbin16(raw: bytes) -> bytes:
    """Return bytes with their size of 16 bits before them."""
    return len(raw).to_bytes(2, "big") + raw


def _reply_to(p: Properties) -> bytes:
    flags = 0
    parts = []
    if p.reply_exchange is not None:
        flags |= 1
        parts.append(bytes((len(p.reply_exchange),)) + p.reply_exchange)
    if p.reply_key is not None:
        flags |= 2
        parts.append(bytes((len(p.reply_key),)) + p.reply_key)
    return vbin16(bytes((flags, 0)) + b"".join(parts))
