# SPDX-License-Identifier: Apache-2.0
"""The content header of class basic (0-8, 0-9, 0-9-1), read into the neutral set and written.

Properties that only 0-10 has are carried in the entry ``x-headrace-0-10`` of the headers table: a
table of bytes (``x``) by the name of the property; ``headers`` holds entries of a 0-10 map.
"""

from __future__ import annotations

import cython

from headrace.gateway.conversion.neutral import (
    CARRIER_0_10,
    TEXT_MAX,
    TTL_MS_MAX,
    Properties,
    bytes_to_text,
    format_reply_to,
    is_text,
    parse_reply_to,
    set_app_id,
    set_correlation_id,
    set_expiration,
    set_message_id,
    set_reply_to,
)
from headrace.gateway.conversion.neutral_values import (
    MAP,
    VBIN16,
    VBIN32,
    CannotConvert,
    Entry,
    check_limits,
    decode_map_entries,
    decode_table_entries,
    encode_map_entries,
    encode_table_entries,
    find_header,
    format_uuid,
    is_exact_in_0_x,
    restore_carried,
)
from headrace.wire.table import encode_table

if not cython.compiled:
    from headrace.wire.properties import BasicScan, scan_basic
    from headrace.wire.property_bits import (
        HAS_APP_ID,
        HAS_CLUSTER_ID,
        HAS_CONTENT_ENCODING,
        HAS_CONTENT_TYPE,
        HAS_CORRELATION_ID,
        HAS_DELIVERY_MODE,
        HAS_EXPIRATION,
        HAS_HEADERS,
        HAS_MESSAGE_ID,
        HAS_PRIORITY,
        HAS_REPLY_TO,
        HAS_TIMESTAMP,
        HAS_TYPE,
        HAS_USER_ID,
    )
    from headrace.wire.table import check_table

_ABSENT = b"\xff"  # The mark of a missing field in a carrier.


def read_basic(payload: bytes) -> Properties:
    """Read the payload of a header frame of class basic.

    Raises:
        CannotConvert: the header is malformed.
    """
    scan = BasicScan()
    if not scan_basic(payload, 0, len(payload), scan):
        raise CannotConvert("a content header is malformed")
    properties = Properties()
    flags = scan.flags
    position = 14
    bit = HAS_CONTENT_TYPE
    while bit > 2:
        if flags & bit:
            if bit == HAS_HEADERS:
                properties.headers = decode_table_entries(
                    payload, scan.headers_at + 4, scan.headers_end
                )
                position = scan.headers_end
            elif bit == HAS_DELIVERY_MODE:
                properties.delivery_mode = payload[position]
                position += 1
            elif bit == HAS_PRIORITY:
                properties.priority = payload[position]
                position += 1
            elif bit == HAS_TIMESTAMP:
                properties.timestamp_s = scan.timestamp
                position += 8
            else:
                end = position + 1 + payload[position]
                _set_text_property(properties, bit, payload[position + 1 : end])
                position = end
        bit >>= 1
    if properties.headers is not None:
        _restore_carried(properties)
    return properties


def _set_text_property(properties: Properties, bit: int, text: bytes) -> None:
    """Set the property of this flag, which is a short string."""
    if bit == HAS_CONTENT_TYPE:
        properties.content_type = text
    elif bit == HAS_CONTENT_ENCODING:
        properties.content_encoding = text
    elif bit == HAS_CORRELATION_ID:
        set_correlation_id(properties, text)
    elif bit == HAS_REPLY_TO:
        set_reply_to(properties, text)
    elif bit == HAS_EXPIRATION:
        set_expiration(properties, text)
    elif bit == HAS_MESSAGE_ID:
        set_message_id(properties, text)
    elif bit == HAS_TYPE:
        properties.type = text
    elif bit == HAS_USER_ID:
        properties.user_id = text
    elif bit == HAS_APP_ID:
        set_app_id(properties, text)
    else:
        properties.cluster_id = text


def _restore_carried(properties: Properties) -> None:
    """Restore the properties of 0-10 that the headers carry."""
    assert properties.headers is not None
    value = find_header(properties.headers, CARRIER_0_10)
    if value is None or value[0] != MAP:
        return
    carried: dict[bytes, bytes] = {}
    for key, (code, raw) in value[1]:
        if code not in (VBIN16, VBIN32):
            return  # Not a carrier, but a header of a client.
        carried[key] = raw
    try:
        encoded = carried.get(b"headers", b"")
        originals = decode_map_entries(encoded, 0, len(encoded))
    except CannotConvert:
        return
    present = [entry for entry in properties.headers if entry[0] != CARRIER_0_10]
    properties.headers = restore_carried(present, originals, in_0_10=False)
    if not properties.headers and b"no-headers" in carried:
        properties.headers = None
    if properties.correlation_id is None:
        properties.correlation_id = carried.get(b"correlation-id")
    if properties.app_id is None:
        properties.app_id = carried.get(b"app-id")
    if b"reply-to" in carried:
        exchange, key = _unpack_reply_to(carried[b"reply-to"])
        text = format_reply_to(exchange, key)
        if (_find_reply_text(properties) or b"") == (text if is_text(text) else b""):
            properties.reply_exchange, properties.reply_key, properties.reply_text = (
                exchange,
                key,
                None,
            )
    ttl = carried.get(b"ttl")
    if ttl is not None and len(ttl) == 8 and properties.ttl_ms == TTL_MS_MAX:
        properties.ttl_ms = int.from_bytes(ttl, "big")
    expiration = carried.get(b"expiration")
    if expiration is not None and len(expiration) == 8 and properties.ttl_ms is None:
        properties.expiration = int.from_bytes(expiration, "big")
    properties.structs = carried.get(b"structs")


def _find_reply_text(properties: Properties) -> bytes | None:
    """Return the reply-to in the form that the message had."""
    if properties.reply_text is not None or properties.reply_key is None:
        return properties.reply_text
    return format_reply_to(properties.reply_exchange, properties.reply_key)


def _unpack_reply_to(raw: bytes) -> tuple[bytes | None, bytes | None]:
    """Read a carried reply-to: two fields, each a short string after a zero byte or ``_ABSENT``."""
    parts: list[bytes | None] = []
    position = 0
    while position < len(raw) and len(parts) < 2:
        if raw[position : position + 1] == _ABSENT:
            parts.append(None)
            position += 1
        else:
            parts.append(
                raw[position + 2 : position + 2 + raw[position + 1]]
                if position + 1 < len(raw)
                else None
            )
            position += 2 + raw[position + 1] if position + 1 < len(raw) else 1
    parts += [None, None]
    return parts[0], parts[1]


def _pack_reply_to(properties: Properties) -> bytes:
    fields = (properties.reply_exchange, properties.reply_key)
    return b"".join(
        [_ABSENT if text is None else b"\x00" + bytes((len(text),)) + text for text in fields]
    )


def write_basic(properties: Properties, body_size: int) -> bytes:
    """Return the payload of a header frame of class basic.

    Raises:
        CannotConvert: the headers exceed the limits of a field table.
    """
    # One function, because the properties are in the order of their flags.
    flags = 0
    parts: list[bytes] = []
    carried: dict[str, bytes] = {}
    if properties.content_type is not None:
        flags |= _append_shortstr(parts, HAS_CONTENT_TYPE, properties.content_type, "content type")
    if properties.content_encoding is not None:
        flags |= _append_shortstr(
            parts, HAS_CONTENT_ENCODING, properties.content_encoding, "content encoding"
        )
    headers_at = len(parts)
    if properties.delivery_mode is not None:
        flags |= HAS_DELIVERY_MODE
        parts.append(bytes((properties.delivery_mode,)))
    if properties.priority is not None:
        flags |= HAS_PRIORITY
        parts.append(bytes((properties.priority,)))
    if properties.correlation_id is not None:
        text = properties.correlation_id_text or bytes_to_text(properties.correlation_id)
        if text is None:
            carried["correlation-id"] = properties.correlation_id
        else:
            flags |= _append_shortstr(parts, HAS_CORRELATION_ID, text, "correlation id")
    if properties.reply_text is not None:
        flags |= _append_shortstr(parts, HAS_REPLY_TO, properties.reply_text, "reply-to")
    elif properties.reply_exchange is not None or properties.reply_key is not None:
        text = format_reply_to(properties.reply_exchange, properties.reply_key)
        if is_text(text):
            flags |= _append_shortstr(parts, HAS_REPLY_TO, text, "reply-to")
        if not is_text(text) or parse_reply_to(text) != (
            properties.reply_exchange,
            properties.reply_key,
        ):
            carried["reply-to"] = _pack_reply_to(properties)
    if properties.expiration_text is not None:
        flags |= _append_shortstr(parts, HAS_EXPIRATION, properties.expiration_text, "expiration")
    elif properties.ttl_ms is not None:
        flags |= _append_shortstr(
            parts, HAS_EXPIRATION, b"%d" % min(properties.ttl_ms, TTL_MS_MAX), "expiration"
        )
        if properties.ttl_ms > TTL_MS_MAX:
            carried["ttl"] = properties.ttl_ms.to_bytes(8, "big")
    elif properties.expiration is not None:
        carried["expiration"] = properties.expiration.to_bytes(8, "big")
    if properties.message_id_text is not None:
        flags |= _append_shortstr(parts, HAS_MESSAGE_ID, properties.message_id_text, "message id")
    elif properties.message_uuid is not None:
        flags |= _append_shortstr(
            parts, HAS_MESSAGE_ID, format_uuid(properties.message_uuid), "message id"
        )
    if properties.timestamp_s is not None:
        flags |= HAS_TIMESTAMP
        parts.append(properties.timestamp_s.to_bytes(8, "big"))
    if properties.type is not None:
        flags |= _append_shortstr(parts, HAS_TYPE, properties.type, "type")
    if properties.user_id is not None and is_text(properties.user_id):
        flags |= _append_shortstr(parts, HAS_USER_ID, properties.user_id, "user id")
    if properties.app_id is not None:
        text = properties.app_id_text or bytes_to_text(properties.app_id)
        if text is None:
            carried["app-id"] = properties.app_id
        else:
            flags |= _append_shortstr(parts, HAS_APP_ID, text, "application id")
    if properties.cluster_id is not None:
        flags |= _append_shortstr(parts, HAS_CLUSTER_ID, properties.cluster_id, "cluster id")
    if properties.structs:
        carried["structs"] = properties.structs
    table = _encode_headers(properties.headers, carried)
    if table is not None:
        flags |= HAS_HEADERS
        parts.insert(headers_at, table)
    head = b"\x00\x3c\x00\x00" + body_size.to_bytes(8, "big") + flags.to_bytes(2, "big")
    return head + b"".join(parts)


def _encode_headers(headers: list[Entry] | None, carried: dict[str, bytes]) -> bytes | None:
    """Return the headers table with the carried properties in it; None if both are missing."""
    body = b""
    if headers is not None:
        body = encode_table_entries(headers)
        lossy = [entry for entry in headers if not is_exact_in_0_x(entry[1])]
        if lossy:
            carried["headers"] = encode_map_entries(lossy)
    elif carried:
        carried["no-headers"] = b""
    if carried:
        table = encode_table(dict(carried))
        body += bytes((len(CARRIER_0_10),)) + CARRIER_0_10 + b"F" + table
    elif headers is None:
        return None
    raw = check_limits(len(body).to_bytes(4, "big") + body)
    if check_table(raw, 0, len(raw)) < 0:
        raise CannotConvert("the headers exceed the limits of a field table")
    return raw


def _append_shortstr(parts: list[bytes], bit: int, text: bytes, field: str) -> int:
    """Append a short string, which may hold any bytes; return its flag."""
    if len(text) > TEXT_MAX:
        raise CannotConvert(f"the {field} is not a short string")
    parts.append(bytes((len(text),)))
    parts.append(text)
    return bit
