# SPDX-License-Identifier: Apache-2.0
"""Field tables and arrays: the values of headers and arguments in AMQP 0-8, 0-9 and 0-9-1.

A table is four bytes of size, then pairs of a short string and a tagged value. An array is four
bytes of size, then tagged values. The tags are those of brokers and clients in use, which differ
from the standard (there `s` is a short string and `l` is unsigned)::

    t  boolean, u8           i  unsigned 32          d  double           F  table
    b  signed 8              I  signed 32            D  decimal: u8, i32 A  array
    B  unsigned 8            l  signed 64            S  long string      x  bytes
    s  signed 16             L  signed 64            T  POSIX time, u64  V  no value
    u  unsigned 16           f  float

`decode_table` decodes exactly what `check_table` accepts, so headers that were checked on arrival
can be decoded later.
"""

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TypeAlias

import cython

from headrace.wire.errors import MalformedError

if not cython.compiled:
    from headrace.wire.memory import get32

TABLE_DEPTH_MAX = 32  # The maximum depth of nested tables and arrays.
TABLE_ENTRIES_MAX = 65536  # The maximum values of an outermost table, at any depth.
TABLE_BYTES_MAX = 1 << 20  # The maximum bytes of an outermost table.

_DEPTH_MAX = TABLE_DEPTH_MAX
_ENTRIES_MAX = TABLE_ENTRIES_MAX
_BYTES_MAX = TABLE_BYTES_MAX


class Timestamp(int):
    """Seconds since 1970 beyond the range of `datetime`; encoded as decoded."""

    __slots__ = ()
    WIRE_TYPE = "timestamp"


# Classes of numbers with other widths than a plain `int` (I, or l if necessary) or `float` (d). A
# decoded number is encoded with the same width. WIRE_TYPE is the name of the type in error texts.


class Byte(int):
    """A signed 8-bit integer, tag `b`."""

    __slots__ = ()
    WIRE_TYPE = "byte"


class UnsignedByte(int):
    """An unsigned 8-bit integer, tag `B`."""

    __slots__ = ()
    WIRE_TYPE = "unsignedbyte"


class Short(int):
    """A signed 16-bit integer, tag `s`."""

    __slots__ = ()
    WIRE_TYPE = "short"


class UnsignedShort(int):
    """An unsigned 16-bit integer, tag `u`."""

    __slots__ = ()
    WIRE_TYPE = "unsignedshort"


class UnsignedInt(int):
    """An unsigned 32-bit integer, tag `i`."""

    __slots__ = ()
    WIRE_TYPE = "unsignedint"


class Long(int):
    """A signed 64-bit integer, tag `l`, even if fewer bits would hold it."""

    __slots__ = ()
    WIRE_TYPE = "long"


class Single(float):
    """A 32-bit floating point number, tag `f`."""

    __slots__ = ()
    WIRE_TYPE = "float"


Value: TypeAlias = (
    bool
    | int
    | float
    | Decimal
    | str
    | bytes
    | datetime
    | Timestamp
    | dict[str, "Value"]
    | list["Value"]
    | None
)
Table: TypeAlias = dict[str, Value]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_MAX = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1)

_U16 = struct.Struct(">H")
_I16 = struct.Struct(">h")
_U32 = struct.Struct(">I")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_U64 = struct.Struct(">Q")
_F32 = struct.Struct(">f")
_F64 = struct.Struct(">d")

_WIDTHS: dict[type, tuple[bytes, struct.Struct]] = {
    Byte: (b"b", struct.Struct(">b")),
    UnsignedByte: (b"B", struct.Struct(">B")),
    Short: (b"s", _I16),
    UnsignedShort: (b"u", _U16),
    UnsignedInt: (b"i", _U32),
    Long: (b"l", _I64),
    Single: (b"f", _F32),
}


# -- Checking in place, without objects ------------------------------------------------------------


def check_table(buffer: bytes | bytearray, at: int, end: int) -> int:
    """Return the position after the table at `at` in buffer[..end]; -1 if it is malformed."""
    if at < 0 or end - at < 4:
        return -1
    size = get32(buffer, at)
    if size > _BYTES_MAX or size > end - at - 4:
        return -1
    if _check_entries(buffer, at + 4, at + 4 + size, 1, True, 0) < 0:
        return -1
    return at + 4 + size


def _check_entries(
    buffer: bytes | bytearray, at: int, end: int, depth: int, named: bool, count: int
) -> int:
    """Return the number of values seen so far, or -1; a table is `named`, an array is not."""
    if depth > _DEPTH_MAX:
        return -1
    while at < end:
        if named:
            size = buffer[at]
            at += 1
            if size >= end - at or not check_utf8(buffer, at, at + size):
                return -1
            at += size
        tag = buffer[at]
        at += 1
        count += 1
        if count > _ENTRIES_MAX:
            return -1
        if tag == 83 or tag == 120 or tag == 70 or tag == 65:  # S x F A
            if end - at < 4:
                return -1
            size = get32(buffer, at)
            at += 4
            if size > end - at:
                return -1
            if tag == 70 or tag == 65:
                count = _check_entries(buffer, at, at + size, depth + 1, tag == 70, count)
                if count < 0:
                    return -1
        elif tag == 116 or tag == 98 or tag == 66:  # t b B
            size = 1
        elif tag == 73 or tag == 105 or tag == 102:  # I i f
            size = 4
        elif tag == 108 or tag == 76 or tag == 100 or tag == 84:  # l L d T
            size = 8
        elif tag == 115 or tag == 117:  # s u
            size = 2
        elif tag == 86:  # V
            size = 0
        elif tag == 68:  # D
            size = 5
        else:
            return -1
        if size > end - at:
            return -1
        at += size
    return count


def value_end(buffer: bytes | bytearray, at: int) -> int:
    """Return the position after the checked tagged value at `at`."""
    tag = buffer[at]
    at += 1
    if tag == 83 or tag == 120 or tag == 70 or tag == 65:  # S x F A
        return at + 4 + get32(buffer, at)
    if tag == 116 or tag == 98 or tag == 66:  # t b B
        return at + 1
    if tag == 73 or tag == 105 or tag == 102:  # I i f
        return at + 4
    if tag == 108 or tag == 76 or tag == 100 or tag == 84:  # l L d T
        return at + 8
    if tag == 115 or tag == 117:  # s u
        return at + 2
    if tag == 68:  # D
        return at + 5
    return at  # V


def string_entry(data: bytes, at: int, key: bytes) -> bytes | None:
    """Return the string or bytes of `key` in the table whose size is at `at`; None if missing.

    The table was checked. Of several entries with the key the last counts, as in `decode_table`.
    """
    found: bytes | None = None
    end = at + 4 + get32(data, at)
    size = len(key)
    at += 4
    while at < end:
        value = at + 1 + data[at]
        stop = value_end(data, value)
        if value - at - 1 == size and data[at + 1 : value] == key:
            tag = data[value]
            found = data[value + 5 : stop] if tag == 83 or tag == 120 else None  # S x
        at = stop
    return found


def check_utf8(buffer: bytes | bytearray, at: int, end: int) -> bool:
    """Return True if buffer[at..end] is UTF-8 as in RFC 3629 and Python."""
    while at < end:
        first = buffer[at]
        at += 1
        if first < 0x80:
            continue
        low = 0x80
        high = 0xBF
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            if first == 0xE0:
                low = 0xA0  # No overlong forms.
            elif first == 0xED:
                high = 0x9F  # No surrogates.
        elif 0xF0 <= first <= 0xF4:
            more = 3
            if first == 0xF0:
                low = 0x90
            elif first == 0xF4:
                high = 0x8F  # Nothing above U+10FFFF.
        else:
            return False
        if more > end - at:
            return False
        if buffer[at] < low or buffer[at] > high:
            return False
        at += 1
        more -= 1
        while more > 0:
            if buffer[at] < 0x80 or buffer[at] > 0xBF:
                return False
            at += 1
            more -= 1
    return True


# -- Decoding --------------------------------------------------------------------------------------


def decode_table(data: bytes, at: int = 0) -> tuple[Table, int]:
    """Return the table at `at` and the position after it; MalformedError if it is malformed."""
    end = check_table(data, at, len(data))
    if end < 0:
        raise MalformedError("a field table is malformed or beyond the limits")
    return _decode_entries(data, at + 4, end), end


def decode_array(data: bytes, at: int = 0) -> tuple[list[Value], int]:
    """Return the array at `at` and the position after it; MalformedError if it is malformed."""
    end = at + 4
    if at < 0 or end > len(data):
        raise MalformedError("a field array is cut off")
    size = get32(data, at)
    if (
        size > _BYTES_MAX
        or size > len(data) - end
        or _check_entries(data, end, end + size, 1, False, 0) < 0
    ):
        raise MalformedError("a field array is malformed or beyond the limits")
    return _decode_items(data, end, end + size), end + size


def decode_timestamp(seconds: int) -> datetime | Timestamp:
    """Return a datetime in UTC, or the number if no datetime holds it."""
    if seconds > _SECONDS_MAX:
        return Timestamp(seconds)
    return EPOCH + timedelta(seconds=seconds)


def _decode_entries(data: bytes, at: int, end: int) -> Table:
    table: dict[str, Value] = {}
    while at < end:
        start = at + 1
        at = start + data[at]
        key = data[start:at].decode()
        table[key], at = _decode_value(data, at)
    return table


def _decode_items(data: bytes, at: int, end: int) -> list[Value]:
    items: list[Value] = []
    while at < end:
        item, at = _decode_value(data, at)
        items.append(item)
    return items


def _decode_value(data: bytes, at: int) -> tuple[Value, int]:
    """Return the checked tagged value at `at` and the position after it."""
    tag = data[at]
    at += 1
    if tag == 83 or tag == 120:
        start = at + 4
        end = start + get32(data, at)
        raw = data[start:end]
        return (_text_or_bytes(raw) if tag == 83 else raw), end
    if tag == 70 or tag == 65:
        start = at + 4
        end = start + get32(data, at)
        if tag == 70:
            return _decode_entries(data, start, end), end
        return _decode_items(data, start, end), end
    if tag == 116:
        return data[at] != 0, at + 1
    if tag == 73:
        return _I32.unpack_from(data, at)[0], at + 4
    if tag == 108 or tag == 76:
        number = _I64.unpack_from(data, at)[0]
        return (Long(number) if -0x80000000 <= number <= 0x7FFFFFFF else number), at + 8
    if tag == 100:
        return _F64.unpack_from(data, at)[0], at + 8
    if tag == 84:
        return decode_timestamp(_U64.unpack_from(data, at)[0]), at + 8
    if tag == 86:
        return None, at
    if tag == 98:
        octet = data[at]
        return Byte(octet - 256 if octet > 127 else octet), at + 1
    if tag == 66:
        return UnsignedByte(data[at]), at + 1
    if tag == 115:
        return Short(_I16.unpack_from(data, at)[0]), at + 2
    if tag == 117:
        return UnsignedShort(_U16.unpack_from(data, at)[0]), at + 2
    if tag == 105:
        return UnsignedInt(_U32.unpack_from(data, at)[0]), at + 4
    if tag == 102:
        return Single(_F32.unpack_from(data, at)[0]), at + 4
    assert tag == 68, tag
    octet = data[at]
    return Decimal(_I32.unpack_from(data, at + 1)[0]).scaleb(-octet), at + 5


def _text_or_bytes(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


# -- Encoding --------------------------------------------------------------------------------------


def encode_table(table: Mapping[str, object]) -> bytes:
    """Return `table` with its size; ValueError or TypeError if it cannot be encoded."""
    return _check_limits(_encode_table(table, 1))


def encode_array(items: Sequence[object]) -> bytes:
    """Return `items` with their size; ValueError or TypeError as for a table."""
    return _check_limits(_encode_array(items, 1))


def encode_entry(key: str, value: object) -> bytes:
    """Return an entry of a table: key, tag and value."""
    return _encode_key(key) + _encode_value(value, 1)


def encode_timestamp(time: datetime | int) -> int:
    """Return whole seconds since 1970; a datetime needs a time zone."""
    if not isinstance(time, datetime):
        seconds = int(time)
    elif time.tzinfo is None:
        raise ValueError(f"a timestamp needs a time zone: {time!r}")
    else:
        seconds = (time - EPOCH) // timedelta(seconds=1)
    if not 0 <= seconds < 1 << 64:
        raise ValueError(f"a timestamp is out of range: {time!r}")
    return seconds


def _check_limits(raw: bytes) -> bytes:
    if len(raw) - 4 > _BYTES_MAX:
        raise ValueError(f"a field table of {len(raw)} bytes exceeds {_BYTES_MAX}")
    return raw


def _encode_key(key: str) -> bytes:
    raw = key.encode()
    if len(raw) > 255:
        raise ValueError(f"the name of a table's field exceeds 255 bytes: {key[:32]!r}…")
    return bytes((len(raw),)) + raw


def _encode_table(table: Mapping[str, object], depth: int) -> bytes:
    if depth > _DEPTH_MAX:
        raise ValueError(f"tables nest deeper than {_DEPTH_MAX}")
    parts: list[bytes] = []
    for key, value in table.items():
        parts.append(_encode_key(key))
        parts.append(_encode_value(value, depth))
    body = b"".join(parts)
    return _U32.pack(len(body)) + body


def _encode_array(items: Sequence[object], depth: int) -> bytes:
    if depth > _DEPTH_MAX:
        raise ValueError(f"arrays nest deeper than {_DEPTH_MAX}")
    body = b"".join([_encode_value(item, depth) for item in items])
    return _U32.pack(len(body)) + body


def _encode_value(value: object, depth: int) -> bytes:
    """Return tag and value; a plain integer takes the smaller of I and l that holds it."""
    if isinstance(value, str):
        raw = value.encode()
        return b"S" + _U32.pack(len(raw)) + raw
    if value is None:
        return b"V"
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, Timestamp | datetime):
        return b"T" + _U64.pack(encode_timestamp(value))
    width = _WIDTHS.get(type(value))
    if width is not None:
        tag, packer = width
        try:
            return tag + packer.pack(value)
        except (struct.error, OverflowError):
            raise ValueError(f"{value!r} does not fit {type(value).__name__}") from None
    if isinstance(value, int):
        if -0x80000000 <= value <= 0x7FFFFFFF:
            return b"I" + _I32.pack(value)
        if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
            return b"l" + _I64.pack(value)
        raise ValueError(f"a whole number does not fit 64 bits: {value}")
    if isinstance(value, bytes | bytearray):
        return b"x" + _U32.pack(len(value)) + bytes(value)
    if isinstance(value, float):
        return b"d" + _F64.pack(value)
    if isinstance(value, dict):
        return b"F" + _encode_table(value, depth + 1)
    if isinstance(value, list | tuple):
        return b"A" + _encode_array(value, depth + 1)
    if isinstance(value, Decimal):
        return b"D" + _encode_decimal(value)
    raise TypeError(f"a field table cannot hold {type(value).__name__}: {value!r}")


def _encode_decimal(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(f"a field table holds no {value}")
    places = -exponent if exponent < 0 else 0
    if places > 255 or exponent > 10:
        raise ValueError(f"a decimal has too many places: {value}")
    unscaled = int(value.scaleb(places))
    if not -0x80000000 <= unscaled <= 0x7FFFFFFF:
        raise ValueError(f"a decimal does not fit 32 bits: {value}")
    return bytes((places,)) + _I32.pack(unscaled)
