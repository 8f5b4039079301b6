# SPDX-License-Identifier: Apache-2.0
"""Bodies of CBOR (RFC 8949) and MessagePack as the values that parsed JSON has.

So one converter decides for all three which value fits a column. A number becomes its digits, bytes
become base64, and a moment becomes text of ISO 8601.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

import cbor2
import msgpack

from headrace.columns.decode.values import IntegerText, RealText

DEPTH_MAX: Final = 200
_NAMED: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def loads_cbor(body: bytes) -> object:
    """Parse exactly one item. ValueError if it is not that, or has a kind that JSON lacks."""
    try:
        decoder = cbor2.CBORDecoder(io.BytesIO(body), max_depth=DEPTH_MAX)
        value = decoder.decode()
    except (cbor2.CBORDecodeError, ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"no CBOR: {str(error) or type(error).__name__}") from None
    try:
        decoder.read(1)
    except cbor2.CBORDecodeEOF:
        return _Plain(len(body)).of(value, 0)
    raise ValueError("no CBOR: octets are left over")


def loads_msgpack(body: bytes) -> object:
    """Parse exactly one object. ValueError if it is not that, or has a kind that JSON lacks."""
    try:
        value = msgpack.unpackb(body, timestamp=3, strict_map_key=False)
    except (msgpack.UnpackException, ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"no MessagePack: {str(error) or type(error).__name__}") from None
    return _Plain(len(body)).of(value, 0)


LOADS: Final[Mapping[str, Callable[[bytes], object]]] = {
    "cbor": loads_cbor,
    "msgpack": loads_msgpack,
}


class _Plain:
    """Makes plain values. CBOR may share values, so that a few bytes stand for very many."""

    def __init__(self, room: int) -> None:
        self._room = room  # Each value takes a byte at least, unless it is shared.

    def of(self, value: object, depth: int) -> object:
        self._room -= 1
        if self._room < 0 or depth > DEPTH_MAX:
            raise ValueError("its values are shared, or nested too deep")
        if isinstance(value, Mapping):
            return {_key(key): self.of(item, depth + 1) for key, item in value.items()}
        if type(value) in (list, tuple):  # A kind that neither format has is a tuple, too.
            assert isinstance(value, list | tuple)
            return [self.of(item, depth + 1) for item in value]
        return _leaf(value)


def _leaf(value: object) -> object:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return IntegerText(value)  # Python converts at most 4,300 digits to text.
    if isinstance(value, float):
        text = repr(value)
        return RealText(_NAMED.get(text, text))
    if isinstance(value, Decimal):
        if value.is_finite():
            return RealText(value)
        return RealText(_NAMED.get(str(float(value)), "NaN"))
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise ValueError(f"it has a value of the kind {type(value).__name__}")


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    raise ValueError(f"it has a key of the kind {type(key).__name__}")
