# SPDX-License-Identifier: Apache-2.0
"""The types of AMQP 0-10, and its maps, lists and arrays.

The upper half of a type code is the width of its values, so values of codes that the standard does
not define can be kept::

    0x 1 byte     3x 8 bytes     6x 64 bytes      9x 2 bytes of size, then bytes
    1x 2 bytes    4x 16 bytes    7x 128 bytes     Ax 4 bytes of size, then bytes
    2x 4 bytes    5x 32 bytes    8x 1 of size     Cx 5 bytes    Dx 9 bytes    Fx none

A plain Python value is encoded with one type: `str` as a str16, `bytes` as a vbin32, `float` as a
double, `list` as a list, `dict` as a map, `datetime` as a datetime, `UUID` as a uuid, `bool` as a
boolean, `None` as void, `int` as the first of int32, int64 and uint64 that holds it, `Decimal` as
the first of dec32 and dec64. Values of these types are decoded to plain values. Each other type has
a subclass of the plain class: `UInt8(5) == 5`. A decoded value is thus encoded with the same type.

`decode_map` decodes exactly what `check_map` accepts.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TypeAlias
from uuid import UUID

import cython

from headrace.wire.errors import MalformedError
from headrace.wire.table import EPOCH, Timestamp

if not cython.compiled:
    from headrace.wire.memory import get16, get32
    from headrace.wire.table import check_utf8

MAP_DEPTH_MAX = 32  # The maximum depth of nested maps, lists and arrays.
MAP_ENTRIES_MAX = 65536  # The maximum values of an outermost container, at any depth.
MAP_BYTES_MAX = 1 << 20  # The maximum bytes of an outermost container or struct32.

_DEPTH_MAX = MAP_DEPTH_MAX
_ENTRIES_MAX = MAP_ENTRIES_MAX
_BYTES_MAX = MAP_BYTES_MAX
_FEW_KEYS = 16  # Up to this number keys are compared in pairs, beyond it in a set.
if not cython.compiled:
    # The codes of types; the sibling .pxd has them as C constants.
    C_BOOLEAN = 0x08
    C_CHAR = 0x04
    C_INT32 = 0x21
    C_CHAR_UTF32 = 0x27
    C_INT64 = 0x31
    C_UINT64 = 0x32
    C_DOUBLE = 0x33
    C_DATETIME = 0x38
    C_UUID = 0x48
    C_STR16 = 0x95
    C_VBIN16 = 0x90
    C_VBIN32 = 0xA0
    C_MAP = 0xA8
    C_LIST = 0xA9
    C_ARRAY = 0xAA
    C_STRUCT32 = 0xAB
    C_DEC32 = 0xC8
    C_DEC64 = 0xD8
    C_VOID = 0xF0
    C_BIT = 0xF1

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_I64 = struct.Struct(">q")
_F64 = struct.Struct(">d")
_TAGGED_I32 = struct.Struct(">Bi")
_TAGGED_I64 = struct.Struct(">Bq")
_TAGGED_U64 = struct.Struct(">BQ")
_TAGGED_F64 = struct.Struct(">Bd")


# -- Classes for types without a plain value -------------------------------------------------------


class Int8(int):
    """A signed 8-bit integer."""

    CODE = 0x01
    __slots__ = ()


class UInt8(int):
    """An unsigned 8-bit integer."""

    CODE = 0x02
    __slots__ = ()


class Int16(int):
    """A signed 16-bit integer."""

    CODE = 0x11
    __slots__ = ()


class UInt16(int):
    """An unsigned 16-bit integer."""

    CODE = 0x12
    __slots__ = ()


class UInt32(int):
    """An unsigned 32-bit integer."""

    CODE = 0x22
    __slots__ = ()


class Int64(int):
    """A signed 64-bit integer."""

    CODE = 0x31
    __slots__ = ()


class UInt64(int):
    """An unsigned 64-bit integer."""

    CODE = 0x32
    __slots__ = ()


class Float32(float):
    """A 32-bit floating point number."""

    CODE = 0x23
    __slots__ = ()


class Char(str):
    """A character of ISO 8859-15 in one byte."""

    CODE = 0x04
    __slots__ = ()


class CharUtf32(str):
    """A character in UTF-32."""

    CODE = 0x27
    __slots__ = ()


class Str8(str):
    """Up to 255 bytes of UTF-8."""

    CODE = 0x85
    __slots__ = ()


class Str8Latin(str):
    """Up to 255 bytes of ISO 8859-15."""

    CODE = 0x84
    __slots__ = ()


class Str8Utf16(str):
    """Up to 255 bytes of UTF-16 in network order."""

    CODE = 0x86
    __slots__ = ()


class Str16Latin(str):
    """Up to 65,535 bytes of ISO 8859-15."""

    CODE = 0x94
    __slots__ = ()


class Str16Utf16(str):
    """Up to 65,535 bytes of UTF-16 in network order."""

    CODE = 0x96
    __slots__ = ()


class Bin8(bytes):
    """1 byte."""

    CODE = 0x00


class Bin16(bytes):
    """2 bytes."""

    CODE = 0x10


class Bin32(bytes):
    """4 bytes."""

    CODE = 0x20


class Bin64(bytes):
    """8 bytes."""

    CODE = 0x30


class Bin128(bytes):
    """16 bytes."""

    CODE = 0x40


class Bin256(bytes):
    """32 bytes."""

    CODE = 0x50


class Bin512(bytes):
    """64 bytes."""

    CODE = 0x60


class Bin1024(bytes):
    """128 bytes."""

    CODE = 0x70


class Bin40(bytes):
    """5 bytes."""

    CODE = 0xC0


class Bin72(bytes):
    """9 bytes."""

    CODE = 0xD0


class VBin8(bytes):
    """Up to 255 bytes."""

    CODE = 0x80


class VBin16(bytes):
    """Up to 65,535 bytes."""

    CODE = 0x90


class Dec64(Decimal):
    """A decimal of at most 255 places and 64 bits of digits."""

    CODE = 0xD8


class Bit:
    """A bit, whose presence is its value; `BIT` is the only one."""

    CODE = 0xF1
    __slots__ = ()

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "BIT"


BIT = Bit()


class Array(list["Value"]):
    """Values of one type, whose code is `code`, even for an empty array."""

    CODE = 0xAA

    def __init__(self, code: int, items: Sequence["Value"] = ()) -> None:
        super().__init__(items)
        self.code = code

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Array) and other.code != self.code:
            return False
        return list.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # An array is mutable.

    def __repr__(self) -> str:
        return f"Array(0x{self.code:02x}, {list.__repr__(self)})"


@dataclass(frozen=True, slots=True)
class Struct32:
    """A struct with a 32-bit size, as bytes: packing flags and fields."""

    CODE = 0xAB
    class_code: int
    struct_code: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value whose bytes are kept as they are.

    Its type is not in the standard, or it is a string that violates its encoding. `payload` is
    without the size.
    """

    code: int
    payload: bytes


Value: TypeAlias = (
    bool
    | int
    | float
    | Decimal
    | str
    | bytes
    | datetime
    | UUID
    | Bit
    | Struct32
    | Opaque
    | dict[str, "Value"]
    | list["Value"]
    | None
)
Map: TypeAlias = dict[str, Value]

_STRINGS: dict[int, tuple[type[str], str]] = {
    0x84: (Str8Latin, "iso8859-15"),
    0x85: (Str8, "utf-8"),
    0x86: (Str8Utf16, "utf-16-be"),
    0x94: (Str16Latin, "iso8859-15"),
    0x95: (str, "utf-8"),
    0x96: (Str16Utf16, "utf-16-be"),
}
_STRING_CODES: dict[type, int] = {value_class: code for code, (value_class, _) in _STRINGS.items()}
_BINARIES: dict[int, type[bytes]] = {
    value_class.CODE: value_class
    for value_class in (
        Bin8, Bin16, Bin32, Bin64, Bin128, Bin256, Bin512, Bin1024, Bin40, Bin72, VBin8, VBin16
    )
}  # fmt: skip
_NUMBERS: dict[int, tuple[type[int] | type[float], struct.Struct]] = {
    0x01: (Int8, struct.Struct(">b")),
    0x02: (UInt8, struct.Struct(">B")),
    0x11: (Int16, struct.Struct(">h")),
    0x12: (UInt16, struct.Struct(">H")),
    0x21: (int, struct.Struct(">i")),
    0x22: (UInt32, struct.Struct(">I")),
    0x23: (Float32, struct.Struct(">f")),
    0x31: (Int64, struct.Struct(">q")),
    0x32: (UInt64, struct.Struct(">Q")),
    0x33: (float, struct.Struct(">d")),
}
_NUMBER_CODES: dict[type, tuple[int, struct.Struct]] = {
    value_class: (code, packer)
    for code, (value_class, packer) in _NUMBERS.items()
    if value_class not in (int, float)
}
_WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128)  # Widths by the upper half of the code.


# -- Checking in place, without objects ------------------------------------------------------------


def check_map(buffer: bytes | bytearray, at: int, end: int) -> int:
    """Return the position after the map at `at` in buffer[..end]; -1 if it is malformed."""
    if at < 0 or end - at < 4:
        return -1
    size = get32(buffer, at)
    if size > _BYTES_MAX or size > end - at - 4:
        return -1
    if _check_container(buffer, at + 4, at + 4 + size, C_MAP, 1, 0) < 0:
        return -1
    return at + 4 + size


def check_value(buffer: bytes | bytearray, code: int, at: int, end: int) -> int:
    """Return the position after the value of type `code` at `at` in buffer[..end], or -1."""
    if at < 0 or at > end:
        return -1
    size = value_size(buffer, code, at, end)
    if size < 0:
        return -1
    if code in (C_MAP, C_LIST, C_ARRAY):
        if size - 4 > _BYTES_MAX or _check_container(buffer, at + 4, at + size, code, 1, 0) < 0:
            return -1
    elif code == C_STRUCT32 and size < 6:
        return -1
    return at + size


def value_size(buffer: bytes | bytearray, code: int, at: int, end: int) -> int:
    """Return the size of the value of type `code` at `at`, with its size field; -1 past `end`."""
    width = code >> 4
    if width < 8:
        size = 1 << width
    elif width == 8:
        if at >= end:
            return -1
        size = 1 + buffer[at]
    elif width == 9:
        if end - at < 2:
            return -1
        size = 2 + get16(buffer, at)
    elif width == 10:
        if end - at < 4:
            return -1
        size = get32(buffer, at)
        if size > end - at:
            return -1
        size += 4
    elif width == 12:
        size = 5
    elif width == 13:
        size = 9
    elif width == 15:
        size = 0
    else:
        return -1
    return size if size <= end - at else -1


# Keeps 0-10/s002.
def _check_container(
    buffer: bytes | bytearray, at: int, end: int, container: int, depth: int, seen: int
) -> int:
    """Return the number of values seen so far; -1 for a malformed one, or for two equal keys.

    `at` is after the size of the container.
    """
    if at == end:
        return seen  # Some peers send an empty array without its count.
    if depth > _DEPTH_MAX:
        return -1
    code = 0
    if container == C_ARRAY:
        code = buffer[at]
        at += 1
    if end - at < 4:
        return -1
    count = get32(buffer, at)
    at += 4
    if count > _ENTRIES_MAX - seen:
        return -1
    seen += count
    start = at
    number = 0
    while number < count:
        if container == C_MAP:
            if at >= end:
                return -1
            size = 1 + buffer[at]
            if size > end - at or not check_utf8(buffer, at + 1, at + size):
                return -1
            if number < _FEW_KEYS and _has_key(buffer, start, at, size):
                return -1
            at += size
        if container != C_ARRAY:
            if at >= end:
                return -1
            code = buffer[at]
            at += 1
        size = value_size(buffer, code, at, end)
        if size < 0:
            return -1
        if code in (C_MAP, C_LIST, C_ARRAY):
            seen = _check_container(buffer, at + 4, at + size, code, depth + 1, seen)
            if seen < 0:
                return -1
        elif code == C_STRUCT32 and size < 6:
            return -1
        at += size
        number += 1
    if at != end:
        return -1
    if container == C_MAP and count > _FEW_KEYS and not _keys_differ(buffer, start, end):
        return -1
    return seen


def _has_key(buffer: bytes | bytearray, at: int, end: int, size: int) -> bool:
    """Return True if a key before `end` equals the one at `end`; `size` includes its size byte."""
    while at < end:
        if buffer[at] == buffer[end]:
            place = 1
            while place < size and buffer[at + place] == buffer[end + place]:
                place += 1
            if place == size:
                return True
        at += 1 + buffer[at]
        code = buffer[at]
        at += 1
        at += value_size(buffer, code, at, end)
    return False


def _keys_differ(buffer: bytes | bytearray, at: int, end: int) -> bool:
    """Return True if all keys of the checked entries in buffer[at..end] differ."""
    keys: set[bytes] = set()
    count = 0
    while at < end:
        size = 1 + buffer[at]
        keys.add(bytes(buffer[at : at + size]))
        count += 1
        at += size
        code = buffer[at]
        at += 1
        at += value_size(buffer, code, at, end)
    return len(keys) == count


# -- Decoding --------------------------------------------------------------------------------------


def decode_map(data: bytes, at: int = 0) -> tuple[Map, int]:
    """Return the map at `at` and the position after it; MalformedError if it is malformed."""
    end = check_map(data, at, len(data))
    if end < 0:
        raise MalformedError("a map is malformed or beyond the limits")
    return _decode_entries(data, at + 4, end), end


def decode_list(data: bytes, at: int = 0) -> tuple[list[Value], int]:
    """Return the list at `at` and the position after it; MalformedError if it is malformed."""
    end = check_value(data, C_LIST, at, len(data))
    if end < 0:
        raise MalformedError("a list is malformed or beyond the limits")
    return _decode_items(data, at + 4, end), end


def decode_array(data: bytes, at: int = 0) -> tuple[Array, int]:
    """Return the array at `at` and the position after it; MalformedError if it is malformed."""
    end = check_value(data, C_ARRAY, at, len(data))
    if end < 0:
        raise MalformedError("an array is malformed or beyond the limits")
    return _decode_array(data, at + 4, end), end


def decode_value(data: bytes, code: int, at: int = 0) -> tuple[Value, int]:
    """Return the value of type `code` at `at` and the position after it.

    Raises:
        MalformedError: the value is malformed.
    """
    end = check_value(data, code, at, len(data))
    if end < 0:
        raise MalformedError(f"a value of type 0x{code:02x} is malformed or beyond the limits")
    return _decode_value(data, code, at, end), end


# Keeps 0-10/s003.
def decode_struct32(data: bytes, at: int = 0) -> tuple[Struct32, int]:
    """Return the struct32 at `at` with its fields undecoded, and the position after it."""
    end = check_value(data, C_STRUCT32, at, len(data))
    if end < 0:
        raise MalformedError("a struct is cut off")
    return Struct32(data[at + 4], data[at + 5], data[at + 6 : end]), end


def decode_datetime(seconds: int) -> datetime | Timestamp:
    """Return a datetime in UTC, or the number if no datetime holds it."""
    try:
        return EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return Timestamp(seconds)


def _decode_entries(data: bytes, at: int, end: int) -> Map:
    made: dict[str, Value] = {}
    at += 4
    while at < end:
        start = at + 1
        at = start + data[at]
        key = data[start:at].decode()
        code = data[at]
        at += 1
        size = value_size(data, code, at, end)
        made[key] = _decode_value(data, code, at, at + size)
        at += size
    return made


def _decode_items(data: bytes, at: int, end: int) -> list[Value]:
    items: list[Value] = []
    if at == end:
        return items
    count = get32(data, at)
    at += 4
    while count > 0:
        code = data[at]
        at += 1
        size = value_size(data, code, at, end)
        items.append(_decode_value(data, code, at, at + size))
        at += size
        count -= 1
    return items


def _decode_array(data: bytes, at: int, end: int) -> Array:
    if at == end:
        return Array(C_VOID)
    code = data[at]
    count = get32(data, at + 1)
    at += 5
    items: list[Value] = []
    while count > 0:
        size = value_size(data, code, at, end)
        items.append(_decode_value(data, code, at, at + size))
        at += size
        count -= 1
    return Array(code, items)


def _decode_value(data: bytes, code: int, at: int, end: int) -> Value:
    """Return the checked value of type `code` in data[at..end]."""
    text = _STRINGS.get(code)
    if text is not None:
        text_class, encoding = text
        raw = data[at + (1 if code < C_VBIN16 else 2) : end]
        try:
            decoded = raw.decode(encoding)
        except UnicodeDecodeError:
            return Opaque(code, raw)
        return decoded if code == C_STR16 else text_class(decoded)
    number = _NUMBERS.get(code)
    if number is not None:
        value: int | float = number[1].unpack_from(data, at)[0]
        if code in (C_INT32, C_DOUBLE):
            return value
        if code == C_INT64 and not -0x80000000 <= value <= 0x7FFFFFFF:
            return value
        if code == C_UINT64 and value > 0x7FFFFFFFFFFFFFFF:
            return value
        return number[0](value)
    if code == C_BOOLEAN:
        return data[at] != 0
    if code == C_MAP:
        return _decode_entries(data, at + 4, end)
    if code == C_LIST:
        return _decode_items(data, at + 4, end)
    if code == C_ARRAY:
        return _decode_array(data, at + 4, end)
    if code == C_VBIN32:
        return data[at + 4 : end]
    if code == C_DATETIME:
        return decode_datetime(_I64.unpack_from(data, at)[0])
    if code == C_UUID:
        return UUID(bytes=data[at:end])
    if code == C_VOID:
        return None
    if code == C_BIT:
        return BIT
    if code == C_DEC32:
        return Decimal(int.from_bytes(data[at + 1 : end], "big", signed=True)).scaleb(-data[at])
    if code == C_DEC64:
        return _decode_dec64(data, at, end)
    if code == C_STRUCT32:
        return Struct32(data[at + 4], data[at + 5], data[at + 6 : end])
    if code == C_CHAR:
        return Char(data[at:end].decode("iso8859-15"))
    if code == C_CHAR_UTF32:
        try:
            return CharUtf32(data[at:end].decode("utf-32-be"))
        except UnicodeDecodeError:
            return Opaque(code, data[at:end])
    binary = _BINARIES.get(code)
    width = code >> 4
    if width == 8:
        at += 1
    elif width == 9:
        at += 2
    elif width == 10:
        at += 4
    return Opaque(code, data[at:end]) if binary is None else binary(data[at:end])


def _decode_dec64(data: bytes, at: int, end: int) -> Decimal:
    """Return a plain decimal if its digits need 64 bits, else a :class:`Dec64`."""
    unscaled = int.from_bytes(data[at + 1 : end], "big", signed=True)
    value = Decimal(unscaled).scaleb(-data[at])
    if -0x80000000 <= unscaled <= 0x7FFFFFFF:
        return Dec64(value)
    return value


# -- Encoding --------------------------------------------------------------------------------------


def encode_map(values: Mapping[str, object]) -> bytes:
    """Return `values` with size and count; ValueError or TypeError if they cannot be encoded."""
    return _check_limits(_encode_map(values, 1))


def encode_list(items: Sequence[object]) -> bytes:
    """Return a list with size and count; ValueError or TypeError as for a map."""
    return _check_limits(_encode_list(items, 1))


def encode_array(items: Array) -> bytes:
    """Return an array; ValueError or TypeError if an item has another type."""
    return _check_limits(_encode_array(items, 1))


def encode_value(value: object) -> tuple[int, bytes]:
    """Return type code and bytes of a value; ValueError or TypeError if it cannot be encoded."""
    tagged = _encode_value(value, 1)
    return tagged[0], tagged[1:]


# Keeps 0-10/s003.
def encode_struct32(value: Struct32) -> bytes:
    """Return a struct32 with its size, class and code."""
    size = len(value.payload) + 2
    if size > MAP_BYTES_MAX:
        raise ValueError(f"a struct of {size} octets exceeds {MAP_BYTES_MAX}")
    return _U32.pack(size) + bytes((value.class_code, value.struct_code)) + value.payload


def encode_datetime(time: datetime | int) -> int:
    """Return whole seconds since 1970, negative before; a datetime needs a time zone."""
    if not isinstance(time, datetime):
        seconds = int(time)
    elif time.tzinfo is None:
        raise ValueError(f"a datetime needs a time zone: {time!r}")
    else:
        seconds = (time - EPOCH) // timedelta(seconds=1)
    if not -(1 << 63) <= seconds < 1 << 63:
        raise ValueError(f"a datetime is out of range: {time!r}")
    return seconds


def type_code(value: object) -> int:
    """Return the type code that `value` is encoded with."""
    return _encode_value(value, 1)[0]


def _check_limits(raw: bytes) -> bytes:
    if len(raw) - 4 > _BYTES_MAX:
        raise ValueError(f"a map, list or array of {len(raw)} octets exceeds {MAP_BYTES_MAX}")
    return raw


def _check_depth(depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise ValueError(f"maps, lists and arrays nest deeper than {MAP_DEPTH_MAX}")


def _encode_map(values: Mapping[str, object], depth: int) -> bytes:
    _check_depth(depth)
    parts: list[bytes] = [b"", _U32.pack(len(values))]
    for key, value in values.items():
        raw = key.encode()
        if len(raw) > 255:
            raise ValueError(f"the key of a map exceeds 255 octets: {key[:32]!r}…")
        parts.append(bytes((len(raw),)))
        parts.append(raw)
        parts.append(_encode_value(value, depth))
    body = b"".join(parts)
    return _U32.pack(len(body)) + body


def _encode_list(items: Sequence[object], depth: int) -> bytes:
    _check_depth(depth)
    body = _U32.pack(len(items)) + b"".join([_encode_value(item, depth) for item in items])
    return _U32.pack(len(body)) + body


def _encode_array(items: Array, depth: int) -> bytes:
    _check_depth(depth)
    parts: list[bytes] = [bytes((items.code,)), _U32.pack(len(items))]
    parts += [_encode_as(items.code, item, depth) for item in items]
    body = b"".join(parts)
    return _U32.pack(len(body)) + body


def _encode_as(code: int, value: object, depth: int) -> bytes:
    """Return the bytes of `value` as an item of an array of type `code`."""
    number = _NUMBERS.get(code)
    if number is not None and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return number[1].pack(value)
        except (struct.error, OverflowError):
            raise ValueError(f"{value!r} does not fit type 0x{code:02x}") from None
    text = _STRINGS.get(code)
    if text is not None and isinstance(value, str) and not isinstance(value, Char | CharUtf32):
        return _with_size(code, value.encode(text[1]))
    if code == C_VBIN32 and isinstance(value, bytes):
        return _with_size(code, value)
    if code == C_DEC64 and isinstance(value, Decimal):
        return _encode_decimal(value, 64)[1:]
    tagged = _encode_value(value, depth)
    if tagged[0] != code:
        raise TypeError(f"an array of type 0x{code:02x} cannot hold {value!r}")
    return tagged[1:]


def _with_size(code: int, raw: bytes) -> bytes:
    """Return `raw` as a value of type `code`, with its size if the type has one."""
    width = code >> 4
    if width < 8:
        fixed = _WIDTHS[width]
    elif width == 8:
        if len(raw) > 0xFF:
            raise ValueError(f"type 0x{code:02x} holds 255 octets, not {len(raw)}")
        return bytes((len(raw),)) + raw
    elif width == 9:
        if len(raw) > 0xFFFF:
            raise ValueError(f"type 0x{code:02x} holds 65535 octets, not {len(raw)}")
        return _U16.pack(len(raw)) + raw
    elif width == 10:
        return _U32.pack(len(raw)) + raw
    elif width == 12:
        fixed = 5
    elif width == 13:
        fixed = 9
    elif width == 15:
        fixed = 0
    else:
        raise ValueError(f"no type has the code 0x{code:02x}")
    if len(raw) != fixed:
        raise ValueError(f"type 0x{code:02x} holds {fixed} octets, not {len(raw)}")
    return raw


def _encode_value(value: object, depth: int) -> bytes:
    """Return the type code and the bytes of a value."""
    value_class = type(value)
    if value_class is str:
        return b"\x95" + _with_size(C_STR16, value.encode())  # type: ignore[attr-defined]  # It is a str.
    if value_class is int:
        return _encode_int(value)  # type: ignore[arg-type]  # It is an int.
    number = _NUMBER_CODES.get(value_class)
    if number is not None:
        try:
            return bytes((number[0],)) + number[1].pack(value)
        except (struct.error, OverflowError):
            raise ValueError(f"{value!r} does not fit type 0x{number[0]:02x}") from None
    if value is None:
        return b"\xf0"
    if isinstance(value, bool):
        return b"\x08\x01" if value else b"\x08\x00"
    if isinstance(value, Timestamp | datetime):
        return _TAGGED_I64.pack(C_DATETIME, encode_datetime(value))
    if isinstance(value, int):
        return _encode_int(int(value))
    if isinstance(value, str):
        return _encode_str(value)
    if isinstance(value, float):
        return _TAGGED_F64.pack(C_DOUBLE, value)
    if isinstance(value, dict):
        return b"\xa8" + _encode_map(value, depth + 1)
    if isinstance(value, Array):
        return b"\xaa" + _encode_array(value, depth + 1)
    if isinstance(value, list | tuple):
        return b"\xa9" + _encode_list(value, depth + 1)
    if isinstance(value, bytes | bytearray):
        code = getattr(value, "CODE", C_VBIN32)
        return bytes((code,)) + _with_size(code, bytes(value))
    if isinstance(value, UUID):
        return b"\x48" + value.bytes
    if isinstance(value, Dec64):
        return b"\xd8" + _encode_decimal(value, 64)[1:]
    if isinstance(value, Decimal):
        return _encode_decimal(value, 32)
    if isinstance(value, Bit):
        return b"\xf1"
    if isinstance(value, Struct32):
        return b"\xab" + encode_struct32(value)
    if isinstance(value, Opaque):
        return bytes((value.code,)) + _with_size(value.code, value.payload)
    raise TypeError(f"a map cannot hold {value_class.__name__}: {value!r}")


def _encode_int(value: int) -> bytes:
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return _TAGGED_I32.pack(C_INT32, value)
    if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        return _TAGGED_I64.pack(C_INT64, value)
    if 0 <= value <= 0xFFFFFFFFFFFFFFFF:
        return _TAGGED_U64.pack(C_UINT64, value)
    raise ValueError(f"a whole number does not fit 64 bits: {value}")


def _encode_str(value: str) -> bytes:
    """Encode a string of a class of this module, or of an unknown subclass of `str`."""
    if isinstance(value, Char):
        raw = value.encode("iso8859-15")
        code = C_CHAR
    elif isinstance(value, CharUtf32):
        raw = value.encode("utf-32-be")
        code = C_CHAR_UTF32
    else:
        code = _STRING_CODES.get(type(value), C_STR16)
        raw = value.encode(_STRINGS[code][1])
    return bytes((code,)) + _with_size(code, raw)


def _encode_decimal(value: Decimal, bits: int) -> bytes:
    """Return type code, places and digits, in at least `bits` bits."""
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(f"a map holds no {value}")
    places = -exponent if exponent < 0 else 0
    if places > 255 or exponent > 20:
        raise ValueError(f"a decimal has too many places: {value}")
    unscaled = _unscaled_integer(value, exponent)
    if bits == 32 and -0x80000000 <= unscaled <= 0x7FFFFFFF:
        return b"\xc8" + bytes((places,)) + unscaled.to_bytes(4, "big", signed=True)
    if -0x8000000000000000 <= unscaled <= 0x7FFFFFFFFFFFFFFF:
        return b"\xd8" + bytes((places,)) + unscaled.to_bytes(8, "big", signed=True)
    raise ValueError(f"a decimal does not fit 64 bits: {value}")


def _unscaled_integer(value: Decimal, exponent: int) -> int:
    """Return the digits as a signed integer; the decimal context has no influence."""
    sign, digits, _ = value.as_tuple()
    if len(digits) > 20:
        raise ValueError(f"a decimal does not fit 64 bits: {value}")
    number = int("".join(map(str, digits)) or "0")
    if exponent > 0:
        number *= 10**exponent
    return -number if sign else number
