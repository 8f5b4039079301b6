# SPDX-License-Identifier: Apache-2.0
"""Values of headers, in the types of all versions: from and to field tables and 0-10 maps.

A value of a header is a pair of a type code and its bytes. The codes are those of 0-10, which has
all but two types of the 0-x field tables in the same encoding. The other two types have private
codes above 255. A map is its code and a tuple of entries (key, value), a list its code and a tuple
of values. Maps and lists from 0-10 are bytes until a reader needs their values.
"""

from __future__ import annotations

from typing import Any

import cython

if not cython.compiled:
    from headrace.wire.memory import get16, get32
    from headrace.wire.table import check_utf8

DEPTH_MAX = 32  # The maximum depth of nested maps and lists, as in a field table.
ENTRIES_MAX = 65536  # The maximum number of values in an outermost map, at any depth.
HEADERS_BYTES_MAX = 1 << 20  # The maximum bytes of an outermost map or table.
LONG_MAX = 65535  # The maximum bytes of a str16 or vbin16.

INT8 = 0x01
UINT8 = 0x02
BOOLEAN = 0x08
INT16 = 0x11
UINT16 = 0x12
INT32 = 0x21
UINT32 = 0x22
FLOAT = 0x23
INT64 = 0x31
UINT64 = 0x32
DOUBLE = 0x33
DATETIME = 0x38
UUID = 0x48
STR8 = 0x85
VBIN16 = 0x90
STR16 = 0x95
VBIN32 = 0xA0
MAP = 0xA8
LIST = 0xA9
ARRAY = 0xAA
DEC32 = 0xC8
DEC64 = 0xD8
VOID = 0xF0
BIT = 0xF1
LONG_TEXT = 0x153  # A long string (S) that is not a str16: not UTF-8, or too long.
SIGNED_64_L = 0x14C  # A signed 64-bit number under the tag L.

Value = tuple[int, Any]
Entry = tuple[bytes, Value]


class CannotConvert(Exception):
    """A message cannot be converted to another version; the text is the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def format_uuid(raw: bytes) -> bytes:
    """Return the 16 bytes of a UUID as text."""
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])).encode()


# Tag of a field table: (code, bytes), for types with the same encoding in both families.
_FIXED = {
    0x74: (BOOLEAN, 1),  # t
    0x62: (INT8, 1),  # b
    0x42: (UINT8, 1),  # B
    0x73: (INT16, 2),  # s
    0x75: (UINT16, 2),  # u
    0x49: (INT32, 4),  # I
    0x69: (UINT32, 4),  # i
    0x66: (FLOAT, 4),  # f
    0x6C: (INT64, 8),  # l
    0x4C: (SIGNED_64_L, 8),  # L
    0x64: (DOUBLE, 8),  # d
    0x54: (DATETIME, 8),  # T
    0x44: (DEC32, 5),  # D
    0x56: (VOID, 0),  # V
}
_TAGS = {code: bytes((tag,)) for tag, (code, _) in _FIXED.items()}
_TEXTS = (STR16, STR8, LONG_TEXT)
_BINARIES = (VBIN16, VBIN32)
_CONTAINERS = (MAP, LIST, ARRAY)
_FIXED_WIDTHS = {0: 1, 1: 2, 2: 4, 3: 8, 4: 16, 5: 32, 6: 64, 7: 128, 0xC: 5, 0xD: 9, 0xF: 0}


def decode_table_entries(buffer: bytes, position: int, end: int, depth: int = 1) -> list[Entry]:
    """Read the entries of a field table that was checked."""
    entries: list[Entry] = []
    while position < end:
        size = buffer[position]
        key = buffer[position + 1 : position + 1 + size]
        value, position = _decode_tagged_value(buffer, position + 1 + size, depth)
        entries.append((key, value))
    return entries


def _decode_tagged_value(buffer: bytes, position: int, depth: int) -> tuple[Value, int]:
    tag = buffer[position]
    position += 1
    fixed = _FIXED.get(tag)
    if fixed is not None:
        end = position + fixed[1]
        return (fixed[0], buffer[position:end]), end
    end = position + 4 + get32(buffer, position)
    position += 4
    if tag == 0x53:  # S
        raw = buffer[position:end]
        if end - position <= LONG_MAX and check_utf8(raw, 0, end - position):
            return (STR16, raw), end
        return (LONG_TEXT, raw), end
    if tag == 0x78:  # x
        return (VBIN16 if end - position <= LONG_MAX else VBIN32, buffer[position:end]), end
    if depth >= DEPTH_MAX:
        raise CannotConvert(f"headers nest deeper than {DEPTH_MAX}")
    if tag == 0x46:  # F
        return (MAP, tuple(decode_table_entries(buffer, position, end, depth + 1))), end
    items: list[Value] = []
    while position < end:
        value, position = _decode_tagged_value(buffer, position, depth + 1)
        items.append(value)
    return (LIST, tuple(items)), end


def encode_table_entries(entries: list[Entry], depth: int = 1) -> bytes:
    """Encode the entries of a field table, without its size; values that 0-x lacks are omitted.

    Raises:
        CannotConvert: a value from 0-10 is malformed or nests too deep.
    """
    parts: list[bytes] = []
    for key, value in entries:
        raw = encode_with_tag(value, depth)
        if raw is not None:
            parts.append(bytes((len(key),)))
            parts.append(key)
            parts.append(raw)
    return b"".join(parts)


def encode_with_tag(value: Value, depth: int = 1) -> bytes | None:
    """Encode a value with its tag, in the nearest type of a field table.

    Returns:
        None if a field table has no type for the value.

    Raises:
        CannotConvert: the value is malformed or nests too deep.
    """
    code = value[0]
    if code in _CONTAINERS:
        return _encode_container(value, depth)
    raw: bytes = value[1]
    tag = _TAGS.get(code)
    if tag is not None:
        return tag + raw
    if code in _TEXTS:
        return b"S" + len(raw).to_bytes(4, "big") + raw
    if code in _BINARIES:
        return b"x" + len(raw).to_bytes(4, "big") + raw
    return _encode_nearest(code, raw)


def _encode_container(value: Value, depth: int) -> bytes:
    if depth >= DEPTH_MAX:
        raise CannotConvert(f"headers nest deeper than {DEPTH_MAX}")
    code = value[0]
    if code == MAP:
        body = encode_table_entries(list(read_items(value)), depth + 1)
        return b"F" + len(body).to_bytes(4, "big") + body
    items = decode_array_items(value[1]) if code == ARRAY else read_items(value)
    parts = [encode_with_tag(item, depth + 1) for item in items]
    body = b"".join([raw for raw in parts if raw is not None])
    return b"A" + len(body).to_bytes(4, "big") + body


def _encode_nearest(code: int, raw: bytes) -> bytes | None:
    """Encode a value of a type that only 0-10 has."""
    if code == UINT64:
        return b"l" + raw if raw[0] < 0x80 else None
    if code == BIT:
        return b"t\x01"
    if code == DEC64:
        mantissa = int.from_bytes(raw[1:], "big", signed=True)
        if not -0x80000000 <= mantissa <= 0x7FFFFFFF:
            return None
        return b"D" + raw[:1] + raw[5:]
    text = _to_text(code, raw)
    if text is not None:
        return b"S" + len(text).to_bytes(4, "big") + text
    return b"x" + len(raw).to_bytes(4, "big") + raw


_ENCODINGS = {
    0x04: "iso8859-15",  # char
    0x27: "utf-32-be",  # char-utf32
    0x84: "iso8859-15",  # str8-latin
    0x94: "iso8859-15",  # str16-latin
    0x86: "utf-16-be",  # str8-utf16
    0x96: "utf-16-be",  # str16-utf16
}


def _to_text(code: int, raw: bytes) -> bytes | None:
    if code == UUID:
        return format_uuid(raw)
    encoding = _ENCODINGS.get(code)
    if encoding is None:
        return None
    try:
        return raw.decode(encoding).encode()
    except UnicodeError:
        return None


def decode_map_entries(buffer: bytes, position: int, end: int) -> list[Entry]:
    """Read the entries of a 0-10 map after its size; nested maps and lists stay encoded.

    Raises:
        CannotConvert: the map is malformed.
    """
    if position == end:  # The short form of an empty map.
        return []
    if end - position < 4:
        raise CannotConvert("a map is cut off")
    count = get32(buffer, position)
    position += 4
    entries: list[Entry] = []
    while position < end:
        size = buffer[position]
        position += 1
        if size >= end - position:
            raise CannotConvert("the key of a map is cut off")
        key = buffer[position : position + size]
        position += size
        value, position = _read_value(buffer[position], buffer, position + 1, end)
        entries.append((key, value))
        if len(entries) > ENTRIES_MAX:
            raise CannotConvert(f"a map has more than {ENTRIES_MAX} entries")
    if len(entries) != count:
        raise CannotConvert("the count of a map is wrong")
    return entries


def decode_list_items(buffer: bytes) -> tuple[Value, ...]:
    """Read the values of a 0-10 list after its size.

    Raises:
        CannotConvert: the list is malformed.
    """
    if not buffer:
        return ()
    if len(buffer) < 4:
        raise CannotConvert("a list is cut off")
    count, position, end = get32(buffer, 0), 4, len(buffer)
    items: list[Value] = []
    while position < end:
        value, position = _read_value(buffer[position], buffer, position + 1, end)
        items.append(value)
        if len(items) > ENTRIES_MAX:
            raise CannotConvert(f"a list has more than {ENTRIES_MAX} values")
    if len(items) != count:
        raise CannotConvert("the count of a list is wrong")
    return tuple(items)


def _read_value(code: int, buffer: bytes, position: int, end: int) -> tuple[Value, int]:
    """Read a value of a known code at ``position``."""
    width = code >> 4
    if width == 8:
        size = buffer[position] if position < end else end
        position += 1
    elif width == 9:
        size = get16(buffer, position) if end - position >= 2 else end
        position += 2
    elif width == 0xA:
        size = get32(buffer, position) if end - position >= 4 else end
        position += 4
    elif width == 0xB or width == 0xE:
        raise CannotConvert(f"a value has the unknown type {code:#04x}")
    else:
        size = _FIXED_WIDTHS[width]
    if size > end - position:
        raise CannotConvert("a value of a map is cut off")
    return (code, buffer[position : position + size]), position + size


def read_items(value: Value) -> tuple[Any, ...]:
    """Return the entries of a map or the values of a list.

    Raises:
        CannotConvert: the value came from 0-10 and is malformed.
    """
    code, raw = value
    if isinstance(raw, tuple):
        return raw
    if code == MAP:
        return tuple(decode_map_entries(raw, 0, len(raw)))
    return decode_list_items(raw)


def decode_array_items(raw: bytes) -> tuple[Value, ...]:
    """Read the values of an array, which is a code, a count and the values of that code.

    Raises:
        CannotConvert: the array is malformed.
    """
    if not raw:
        return ()
    if len(raw) < 5:
        raise CannotConvert("an array is cut off")
    code, count, position, end = raw[0], get32(raw, 1), 5, len(raw)
    if count > ENTRIES_MAX:
        raise CannotConvert(f"an array has more than {ENTRIES_MAX} values")
    items: list[Value] = []
    while len(items) < count:
        value, position = _read_value(code, raw, position, end)
        items.append(value)
    if position != end:
        raise CannotConvert("the count of an array is wrong")
    return tuple(items)


def encode_map_entries(entries: list[Entry]) -> bytes:
    """Encode a 0-10 map without its size; of entries with the same key the last counts."""
    if len(entries) > 1 and len({entry[0] for entry in entries}) != len(entries):
        entries = list(dict(entries).items())
    parts: list[bytes] = [len(entries).to_bytes(4, "big")]
    for key, value in entries:
        parts.append(bytes((len(key),)))
        parts.append(key)
        parts.append(encode_with_code(value))
    return b"".join(parts)


def encode_with_code(value: Value) -> bytes:
    """Encode a value with its code, in the nearest type of 0-10."""
    code = value[0]
    raw: bytes = value[1]
    if code == SIGNED_64_L:
        return b"\x31" + raw
    if code == LONG_TEXT:
        code = VBIN16 if len(raw) <= LONG_MAX else VBIN32
    elif isinstance(value[1], tuple):
        if code == MAP:
            raw = encode_map_entries(list(value[1]))
        else:
            raw = len(raw).to_bytes(4, "big") + b"".join(map(encode_with_code, value[1]))
    width = code >> 4
    head = bytes((code,))
    if width == 8:
        return head + bytes((len(raw),)) + raw
    if width == 9:
        return head + len(raw).to_bytes(2, "big") + raw
    if width == 0xA:
        return head + len(raw).to_bytes(4, "big") + raw
    return head + raw


def is_exact_in_0_10(value: Value) -> bool:
    """Return True if a value keeps its type in a 0-10 map."""
    code, raw = value
    if isinstance(raw, tuple):
        if code == MAP:
            return all(is_exact_in_0_10(nested) for _, nested in raw)
        return all(map(is_exact_in_0_10, raw))
    return code < 0x100


def is_exact_in_0_x(value: Value) -> bool:
    """Return True if a value keeps its type in a field table."""
    code = value[0]
    if code == MAP:
        return all(is_exact_in_0_x(nested) for _, nested in read_items(value))
    if code == LIST:
        return all(map(is_exact_in_0_x, read_items(value)))
    raw: bytes = value[1]
    if code == STR16:
        return check_utf8(raw, 0, len(raw))
    if code == VBIN32:
        return len(raw) > LONG_MAX
    return code in (VBIN16, LONG_TEXT) or code in _TAGS


def find_header(entries: list[Entry] | None, key: bytes) -> Value | None:
    """Return the value of the last entry with this key; None if there is none."""
    last = None
    if entries is not None:
        for name, value in entries:
            if name == key:
                last = value
    return last


def restore_carried(present: list[Entry], carried: list[Entry], *, in_0_10: bool) -> list[Entry]:
    """Return entries in which carried values replace their converted, unchanged forms.

    With ``in_0_10`` the values were carried in a 0-10 message, else in a 0-x message. An entry is
    unchanged if it equals the carried value in the form of that family.
    """
    if not carried:
        return present
    values = dict(carried)
    entries: list[Entry] = []
    for key, value in present:
        original = values.pop(key, None)
        if original is not None:
            encoded = encode_with_code(original) if in_0_10 else encode_with_tag(original)
            if encoded == (encode_with_code(value) if in_0_10 else encode_with_tag(value)):
                value = original
        entries.append((key, value))
    for key, value in values.items():
        # A value without a form in 0-x cannot have been removed there.
        if not in_0_10 and encode_with_tag(value) is None:
            entries.append((key, value))
    return entries


def check_limits(raw: bytes) -> bytes:
    """Return an encoded map or table; refuse one that is too large."""
    if len(raw) > HEADERS_BYTES_MAX:
        raise CannotConvert(f"headers of {len(raw)} bytes exceed {HEADERS_BYTES_MAX}")
    return raw
