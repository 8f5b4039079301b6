# SPDX-License-Identifier: Apache-2.0
"""Bounds-checked reading and packing of AMQP 0-10's numbers, strings and datetimes.

A reader returns the value at a position and the position after it. It raises MalformedError for a
truncated string, struct.error or IndexError for a number, UnicodeDecodeError for text that is not
UTF-8. A packer raises struct.error for a value that does not fit.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.wire.errors import MalformedError
from headrace.wire.types_0_10 import decode_datetime, encode_datetime

if TYPE_CHECKING:
    from datetime import datetime

U8 = struct.Struct(">B")
U16 = struct.Struct(">H")
U32 = struct.Struct(">I")
U64 = struct.Struct(">Q")
_I64 = struct.Struct(">q")


def _read_sized(d: bytes, start: int, size: int) -> tuple[bytes, int]:
    end = start + size
    if end > len(d):
        raise MalformedError("a value is cut off")
    return d[start:end], end


def read_uint8(d: bytes, at: int) -> tuple[int, int]:
    """Return the uint8 at an index, and the index behind it."""
    return d[at], at + 1


def read_uint16(d: bytes, at: int) -> tuple[int, int]:
    """Return the big-endian uint16 at an index, and the index behind it."""
    value: int = U16.unpack_from(d, at)[0]
    return value, at + 2


def read_uint32(d: bytes, at: int) -> tuple[int, int]:
    """Return the big-endian uint32 at an index, and the index behind it."""
    value: int = U32.unpack_from(d, at)[0]
    return value, at + 4


def read_uint64(d: bytes, at: int) -> tuple[int, int]:
    """Return the big-endian uint64 at an index, and the index behind it."""
    value: int = U64.unpack_from(d, at)[0]
    return value, at + 8


def read_vbin8(d: bytes, at: int) -> tuple[bytes, int]:
    """Read up to 255 bytes."""
    return _read_sized(d, at + 1, d[at])


def read_vbin16(d: bytes, at: int) -> tuple[bytes, int]:
    """Read up to 65,535 bytes."""
    return _read_sized(d, at + 2, U16.unpack_from(d, at)[0])


def read_vbin32(d: bytes, at: int) -> tuple[bytes, int]:
    """Read bytes with a 32-bit size, all of which are in `d`."""
    return _read_sized(d, at + 4, U32.unpack_from(d, at)[0])


def read_str8(d: bytes, at: int) -> tuple[str, int]:
    """Read up to 255 bytes of UTF-8."""
    raw, at = _read_sized(d, at + 1, d[at])
    return raw.decode(), at


def read_str16(d: bytes, at: int) -> tuple[str, int]:
    """Read up to 65,535 bytes of UTF-8."""
    raw, at = _read_sized(d, at + 2, U16.unpack_from(d, at)[0])
    return raw.decode(), at


def read_datetime(d: bytes, at: int) -> tuple[datetime | int, int]:
    """Read a datetime; seconds if no datetime holds it."""
    return decode_datetime(_I64.unpack_from(d, at)[0]), at + 8


def read_uuid(d: bytes, at: int) -> tuple[UUID, int]:
    """Return the UUID in the 16 bytes at an index, and the index behind it."""
    raw, at = _read_sized(d, at, 16)
    return UUID(bytes=raw), at


def pack_uint8(value: int) -> bytes:
    """Return a value of 0 to 255 as one byte."""
    return U8.pack(value)


def pack_datetime(moment: datetime | int) -> bytes:
    """Return 8 bytes: seconds since 1970."""
    return _I64.pack(encode_datetime(moment))


def pack_vbin8(raw: bytes) -> bytes:
    """Return bytes with an 8-bit size."""
    return U8.pack(len(raw)) + raw


def pack_vbin16(raw: bytes) -> bytes:
    """Return bytes with a 16-bit size."""
    return U16.pack(len(raw)) + raw


def pack_vbin32(raw: bytes) -> bytes:
    """Return bytes with a 32-bit size."""
    return U32.pack(len(raw)) + raw


def pack_str8(text: str) -> bytes:
    """Return UTF-8 with an 8-bit size."""
    return pack_vbin8(text.encode())


def pack_str16(text: str) -> bytes:
    """Return UTF-8 with a 16-bit size."""
    return pack_vbin16(text.encode())
