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
    is_text,
    reply_to_of_text,
    set_app_id,
    set_correlation_id,
    set_expiration,
    set_message_id,
    set_reply_to,
    text_of_bytes,
    text_of_reply_to,
)
from headrace.gateway.conversion.neutral_values import (
    MAP,
    VBIN16,
    VBIN32,
    CannotConvert,
    Entry,
    check_limits,
    entries_of_map,
    entries_of_table,
    find,
    is_exact_in_0_x,
    map_of_entries,
    restore,
    table_of_entries,
    text_of_uuid,
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
    p = Properties()
    flags = scan.flags
    position = 14
    bit = HAS_CONTENT_TYPE
    while bit > 2:
        if flags & bit:
            if bit == HAS_HEADERS:
                p.headers = entries_of_table(payload, scan.headers_at + 4, scan.headers_end)
                position = scan.headers_end
            elif bit == HAS_DELIVERY_MODE:
                p.delivery_mode = payload[position]
                position += 1
            elif bit == HAS_PRIORITY:
                p.priority = payload[position]
                position += 1
            elif bit == HAS_TIMESTAMP:
                p.timestamp_s = scan.timestamp
                position += 8
            else:
                end = position + 1 + payload[position]
                _take(p, bit, payload[position + 1 : end])
                position = end
        bit >>= 1
    if p.headers is not None:
        _unload(p)
    return p


def _take(p: Properties, bit: int, text: bytes) -> None:
    """Read a property that is a short string."""
    if bit == HAS_CONTENT_TYPE:
        p.content_type = text
    elif bit == HAS_CONTENT_ENCODING:
        p.content_encoding = text
    elif bit == HAS_CORRELATION_ID:
        set_correlation_id(p, text)
    elif bit == HAS_REPLY_TO:
        set_reply_to(p, text)
    elif bit == HAS_EXPIRATION:
        set_expiration(p, text)
    elif bit == HAS_MESSAGE_ID:
        set_message_id(p, text)
    elif bit == HAS_TYPE:
        p.type = text
    elif bit == HAS_USER_ID:
        p.user_id = text
    elif bit == HAS_APP_ID:
        set_app_id(p, text)
    else:
        p.cluster_id = text


def _unload(p: Properties) -> None:
    """Restore the carried properties of a message from 0-10."""
    assert p.headers is not None
    value = find(p.headers, CARRIER_0_10)
    if value is None or value[0] != MAP:
        return
    carried: dict[bytes, bytes] = {}
    for key, (code, raw) in value[1]:
        if code not in (VBIN16, VBIN32):
            return  # Not a carrier, but a header of a client.
        carried[key] = raw
    try:
        originals = entries_of_map_body(carried.get(b"headers", b""))
    except CannotConvert:
        return
    present = [entry for entry in p.headers if entry[0] != CARRIER_0_10]
    p.headers = restore(present, originals, in_0_10=False)
    if not p.headers and b"no-headers" in carried:
        p.headers = None
    if p.correlation_id is None:
        p.correlation_id = carried.get(b"correlation-id")
    if p.app_id is None:
        p.app_id = carried.get(b"app-id")
    if b"reply-to" in carried:
        exchange, key = _reply_to(carried[b"reply-to"])
        text = text_of_reply_to(exchange, key)
        if (_reply_text(p) or b"") == (text if is_text(text) else b""):
            p.reply_exchange, p.reply_key, p.reply_text = exchange, key, None
    ttl = carried.get(b"ttl")
    if ttl is not None and len(ttl) == 8 and p.ttl_ms == TTL_MS_MAX:
        p.ttl_ms = int.from_bytes(ttl, "big")
    expiration = carried.get(b"expiration")
    if expiration is not None and len(expiration) == 8 and p.ttl_ms is None:
        p.expiration = int.from_bytes(expiration, "big")
    p.structs = carried.get(b"structs")


def entries_of_map_body(raw: bytes) -> list[Entry]:
    """Read the entries of a map that was carried."""
    return entries_of_map(raw, 0, len(raw))


def _reply_text(p: Properties) -> bytes | None:
    """Return the reply-to in the form that the message had."""
    if p.reply_text is not None or p.reply_key is None:
        return p.reply_text
    return text_of_reply_to(p.reply_exchange, p.reply_key)


def _reply_to(raw: bytes) -> tuple[bytes | None, bytes | None]:
    """Read a reply-to that was carried: two short strings, or ``_ABSENT``."""
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


def _pack_reply_to(p: Properties) -> bytes:
    fields = (p.reply_exchange, p.reply_key)
    return b"".join(
        [_ABSENT if text is None else b"\x00" + bytes((len(text),)) + text for text in fields]
    )


def write_basic(p: Properties, body_size: int) -> bytes:
    """Return the payload of a header frame of class basic.

    Raises:
        CannotConvert: the headers exceed the limits of a field table.
    """
    flags = 0
    parts: list[bytes] = []
    carried: dict[str, bytes] = {}
    if p.content_type is not None:
        flags |= _short(parts, HAS_CONTENT_TYPE, p.content_type, "content type")
    if p.content_encoding is not None:
        flags |= _short(parts, HAS_CONTENT_ENCODING, p.content_encoding, "content encoding")
    headers_at = len(parts)
    if p.delivery_mode is not None:
        flags |= HAS_DELIVERY_MODE
        parts.append(bytes((p.delivery_mode,)))
    if p.priority is not None:
        flags |= HAS_PRIORITY
        parts.append(bytes((p.priority,)))
    if p.correlation_id is not None:
        text = p.correlation_id_text or text_of_bytes(p.correlation_id)
        if text is None:
            carried["correlation-id"] = p.correlation_id
        else:
            flags |= _short(parts, HAS_CORRELATION_ID, text, "correlation id")
    if p.reply_text is not None:
        flags |= _short(parts, HAS_REPLY_TO, p.reply_text, "reply-to")
    elif p.reply_exchange is not None or p.reply_key is not None:
        text = text_of_reply_to(p.reply_exchange, p.reply_key)
        if is_text(text):
            flags |= _short(parts, HAS_REPLY_TO, text, "reply-to")
        if not is_text(text) or reply_to_of_text(text) != (p.reply_exchange, p.reply_key):
            carried["reply-to"] = _pack_reply_to(p)
    if p.expiration_text is not None:
        flags |= _short(parts, HAS_EXPIRATION, p.expiration_text, "expiration")
    elif p.ttl_ms is not None:
        flags |= _short(parts, HAS_EXPIRATION, b"%d" % min(p.ttl_ms, TTL_MS_MAX), "expiration")
        if p.ttl_ms > TTL_MS_MAX:
            carried["ttl"] = p.ttl_ms.to_bytes(8, "big")
    elif p.expiration is not None:
        carried["expiration"] = p.expiration.to_bytes(8, "big")
    if p.message_id_text is not None:
        flags |= _short(parts, HAS_MESSAGE_ID, p.message_id_text, "message id")
    elif p.message_uuid is not None:
        flags |= _short(parts, HAS_MESSAGE_ID, text_of_uuid(p.message_uuid), "message id")
    if p.timestamp_s is not None:
        flags |= HAS_TIMESTAMP
        parts.append(p.timestamp_s.to_bytes(8, "big"))
    if p.type is not None:
        flags |= _short(parts, HAS_TYPE, p.type, "type")
    if p.user_id is not None and is_text(p.user_id):
        flags |= _short(parts, HAS_USER_ID, p.user_id, "user id")
    if p.app_id is not None:
        text = p.app_id_text or text_of_bytes(p.app_id)
        if text is None:
            carried["app-id"] = p.app_id
        else:
            flags |= _short(parts, HAS_APP_ID, text, "application id")
    if p.cluster_id is not None:
        flags |= _short(parts, HAS_CLUSTER_ID, p.cluster_id, "cluster id")
    if p.structs:
        carried["structs"] = p.structs
    table = _headers(p.headers, carried)
    if table is not None:
        flags |= HAS_HEADERS
        parts.insert(headers_at, table)
    head = b"\x00\x3c\x00\x00" + body_size.to_bytes(8, "big") + flags.to_bytes(2, "big")
    return head + b"".join(parts)


def _headers(headers: list[Entry] | None, carried: dict[str, bytes]) -> bytes | None:
    """Return the headers table with the carried properties in it; None if both are missing."""
    body = b""
    if headers is not None:
        body = table_of_entries(headers)
        lossy = [entry for entry in headers if not is_exact_in_0_x(entry[1])]
        if lossy:
            carried["headers"] = map_of_entries(lossy)
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


def _short(parts: list[bytes], bit: int, text: bytes, field: str) -> int:
    """Append a short string, which may hold any bytes; return its flag."""
    if len(text) > TEXT_MAX:
        raise CannotConvert(f"the {field} is not a short string")
    parts.append(bytes((len(text),)))
    parts.append(text)
    return bit
