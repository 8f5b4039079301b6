# SPDX-License-Identifier: Apache-2.0
"""The content header of class basic, walked and rebuilt without decoding it.

::

    0          2        4           12      14
    +----------+--------+-----------+-------+------------------------------------------+
    | class 60 | weight | body size | flags | the properties whose flag is set, in the |
    | u16      | u16, 0 | u64       | u16   | order of the flags from the highest on   |
    +----------+--------+-----------+-------+------------------------------------------+

Positions below are those of the payload of the header frame. What `scan_basic` accepts,
`decode_content_header` decodes, and the other way round. A property that is a short string may hold
any bytes, such as a binary UUID: contents are relayed as they are. Names in tables are UTF-8.
"""

import cython

from headrace.wire.errors import MalformedError

if not cython.compiled:
    from headrace.wire.memory import copy, cut, get16, get32, get64, put16, put32, same
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
    from headrace.wire.table import check_table, value_end


CLASS_BASIC = 60
PROPERTIES_AT = 14  # Position of the first property.


class BasicScan:
    """Positions of the properties in one header; `…_at` is -1 if a property is absent.

    For a string `…_at` is the position of its first byte and `…_len` its size; for the headers,
    `headers_at` is the position of the table's size and `headers_end` the position after the table.
    """

    __slots__ = (
        "app_id_at",
        "app_id_len",
        "body_size",
        "cluster_id_at",
        "cluster_id_len",
        "content_encoding_at",
        "content_encoding_len",
        "content_type_at",
        "content_type_len",
        "correlation_id_at",
        "correlation_id_len",
        "delivery_mode",
        "expiration_at",
        "expiration_len",
        "flags",
        "headers_at",
        "headers_end",
        "message_id_at",
        "message_id_len",
        "priority",
        "reply_to_at",
        "reply_to_len",
        "timestamp",
        "type_at",
        "type_len",
        "user_id_at",
        "user_id_len",
    )

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Set every property to absent."""
        self.flags = 0
        self.body_size = 0
        self.delivery_mode = 0
        self.priority = 0
        self.timestamp = 0
        self.content_type_at = -1
        self.content_type_len = 0
        self.content_encoding_at = -1
        self.content_encoding_len = 0
        self.headers_at = -1
        self.headers_end = -1
        self.correlation_id_at = -1
        self.correlation_id_len = 0
        self.reply_to_at = -1
        self.reply_to_len = 0
        self.expiration_at = -1
        self.expiration_len = 0
        self.message_id_at = -1
        self.message_id_len = 0
        self.type_at = -1
        self.type_len = 0
        self.user_id_at = -1
        self.user_id_len = 0
        self.app_id_at = -1
        self.app_id_len = 0
        self.cluster_id_at = -1
        self.cluster_id_len = 0


def _check_shortstr(buffer: bytes | bytearray, at: int, end: int) -> int:
    """Return the size of the short string at `at`; -1 if it is truncated."""
    if at >= end:
        return -1
    size = buffer[at]
    if size > end - at - 1:
        return -1
    return size


def scan_basic(buffer: bytes | bytearray, at: int, end: int, out: BasicScan) -> bool:
    """Fill `out` from the header payload buffer[at..end]; return False if that is malformed."""
    # One function without a loop, because each property has its own C fields.
    out.clear()
    if at < 0 or end - at < 14 or get16(buffer, at) != 60 or get16(buffer, at + 2) != 0:
        return False
    flags = get16(buffer, at + 12)
    if flags & 3:  # No property has bit 1; bit 0 would announce further flags.
        return False
    out.body_size = get64(buffer, at + 4)
    at += 14
    if flags & HAS_CONTENT_TYPE:
        size = _check_shortstr(buffer, at, end)
        if size < 0:
            return False
        out.content_type_at = at + 1
        out.content_type_len = size
        at += 1 + size
    if flags & HAS_CONTENT_ENCODING:
        size = _check_shortstr(buffer, at, end)
        if size < 0:
            return False
        out.content_encoding_at = at + 1
        out.content_encoding_len = size
        at += 1 + size
    if flags & HAS_HEADERS:
        size = check_table(buffer, at, end)
        if size < 0:
            return False
        out.headers_at = at
        out.headers_end = size
        at = size
    if flags & HAS_DELIVERY_MODE:
        if at >= end:
            return False
        out.delivery_mode = buffer[at]
        at += 1
    if flags & HAS_PRIORITY:
        if at >= end:
            return False
        out.priority = buffer[at]
        at += 1
    if flags & HAS_CORRELATION_ID:
        size = _check_shortstr(buffer, at, end)
        if size < 0:
            return False
        out.correlation_id_at = at + 1
        out.correlation_id_len = size
        at += 1 + size
    if flags & HAS_REPLY_TO:
        size = _check_shortstr(buffer, at, end)
        if size < 0:
            return False
        out.reply_to_at = at + 1
        out.reply_to_len = size
        at += 1 + size
    if flags & HAS_EXPIRATION:
        size = _check_shortstr(buffer, at, end)
        if size < 0:
            return False
        out.expiration_at = at + 1
        out.expiration_len = size
        at += 1 + size
    if flags & HAS_MESSAGE_ID:
        size = _check_shortstr(buffer, at, end)
        if size < 0:
            return False
        out.message_id_at = at + 1
        out.message_id_len = size
        at += 1 + size
    if flags & HAS_TIMESTAMP:
        if end - at < 8:
            return False
        out.timestamp = get64(buffer, at)
        at += 8
    if flags & HAS_TYPE:
        size = _check_shortstr(buffer, at, end)
        if size < 0:
            return False
        out.type_at = at + 1
        out.type_len = size
        at += 1 + size
    if flags & HAS_USER_ID:
        size = _check_shortstr(buffer, at, end)
        if size < 0:
            return False
        out.user_id_at = at + 1
        out.user_id_len = size
        at += 1 + size
    if flags & HAS_APP_ID:
        size = _check_shortstr(buffer, at, end)
        if size < 0:
            return False
        out.app_id_at = at + 1
        out.app_id_len = size
        at += 1 + size
    if flags & HAS_CLUSTER_ID:
        size = _check_shortstr(buffer, at, end)
        if size < 0:
            return False
        out.cluster_id_at = at + 1
        out.cluster_id_len = size
        at += 1 + size
    if at != end:
        return False
    out.flags = flags
    return True


# -- Rebuilding ------------------------------------------------------------------------------------


def property_range(payload: bytes, flag: int) -> tuple[int, int]:
    """Return start and end of the encoded property `flag`; an absent one is empty."""
    scan = BasicScan()
    if not scan_basic(payload, 0, len(payload), scan):
        raise MalformedError("a content header is malformed")
    at = 14
    bit = HAS_CONTENT_TYPE
    while bit > flag:
        if scan.flags & bit:
            at = _property_end(payload, at, bit)
        bit >>= 1
    if scan.flags & flag:
        return at, _property_end(payload, at, flag)
    return at, at


def with_property(payload: bytes, flag: int, encoded: bytes) -> bytes:
    """Return the header with the property `flag` set to `encoded`."""
    start, end = property_range(payload, flag)
    return _with_flags(payload, get16(payload, 12) | flag, start, end, encoded)


def without_property(payload: bytes, flag: int) -> bytes:
    """Return the header without the property `flag`."""
    start, end = property_range(payload, flag)
    if start == end:
        return payload
    return _with_flags(payload, get16(payload, 12) & ~flag, start, end, b"")


def with_header_entry(payload: bytes, entry: bytes) -> bytes:
    """Return the header with an entry (key, tag, value) added to its headers table.

    An entry with the same key is replaced, and a missing table is made.
    """
    start, end = property_range(payload, HAS_HEADERS)
    kept = _entries_without(payload, start, end, entry[1 : 1 + entry[0]]) + entry
    table = len(kept).to_bytes(4, "big") + kept
    return _with_flags(payload, get16(payload, 12) | HAS_HEADERS, start, end, table)


def with_header_entry_at(data: bytes, at: int, entry: bytes) -> bytes:
    """Return ``data`` with an entry added to the header whose frame starts at ``at``.

    It returns the same as :func:`with_header_entry`, faster for many messages.

    Raises:
        MalformedError: the header is malformed, or would be with the entry.
    """
    scan = BasicScan.__new__(BasicScan)
    start = at + 7
    end = start + get32(data, at + 3)
    if end >= len(data) or not scan_basic(data, start, end, scan):
        raise MalformedError("a content header is malformed")
    flags = scan.flags
    lo = start + 14  # Start of the entries.
    if scan.content_type_at >= 0:
        lo = scan.content_type_at + scan.content_type_len
    if scan.content_encoding_at >= 0:
        lo = scan.content_encoding_at + scan.content_encoding_len
    hi = resume = lo  # The end of the entries, and the start of the remaining properties.
    if flags & HAS_HEADERS:
        lo += 4
        hi = resume = scan.headers_end
        key = cut(entry, 1, 1 + entry[0])
        kept_at = lo
        while kept_at < hi:
            key_end = kept_at + 1 + data[kept_at]
            if same(key, data, kept_at + 1, key_end):
                changed = with_header_entry(cut(data, start, end), entry)
                size = len(changed).to_bytes(4, "big")
                return cut(data, 0, at + 3) + size + changed + cut(data, end, len(data))
            kept_at = value_end(data, key_end)
    n = len(entry)
    grown = n if flags & HAS_HEADERS else n + 4
    made = bytearray(len(data) + grown)
    copy(made, 0, data, 0, hi)
    put32(made, at + 3, end - start + grown)
    put16(made, start + 12, flags | HAS_HEADERS)
    if not flags & HAS_HEADERS:
        lo = hi = hi + 4
    put32(made, lo - 4, hi - lo + n)
    copy(made, hi, entry, 0, n)
    copy(made, hi + n, data, resume, len(data))
    if not scan_basic(made, start, end + grown, scan):
        raise MalformedError("a content header would be malformed")  # Too many entries.
    return cut(made, 0, len(data) + grown)


def without_header_entry(payload: bytes, key: bytes) -> bytes:
    """Return the header without the entry `key` of its headers table."""
    start, end = property_range(payload, HAS_HEADERS)
    if start == end:
        return payload
    kept = _entries_without(payload, start, end, key)
    if len(kept) == end - start - 4:
        return payload
    table = len(kept).to_bytes(4, "big") + kept
    return _with_flags(payload, get16(payload, 12), start, end, table)


def _with_flags(payload: bytes, flags: int, start: int, end: int, middle: bytes) -> bytes:
    head = payload[:12] + flags.to_bytes(2, "big")
    return head + payload[14:start] + middle + payload[end:]


def _property_end(payload: bytes, at: int, flag: int) -> int:
    """Return where the property `flag` at `at` ends; the header was scanned before."""
    if flag == HAS_HEADERS:
        return at + 4 + get32(payload, at)
    if flag in (HAS_DELIVERY_MODE, HAS_PRIORITY):
        return at + 1
    if flag == HAS_TIMESTAMP:
        return at + 8
    return at + 1 + payload[at]


def _entries_without(payload: bytes, start: int, end: int, key: bytes) -> bytes:
    """Return the entries of the table payload[start..end] whose key is not `key`."""
    parts: list[bytes] = []
    at = start + 4
    while at < end:
        key_end = at + 1 + payload[at]
        entry_end = value_end(payload, key_end)
        if payload[at + 1 : key_end] != key:
            parts.append(payload[at:entry_end])
        at = entry_end
    return b"".join(parts)
