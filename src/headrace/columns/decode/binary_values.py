# SPDX-License-Identifier: Apache-2.0
"""Parsers of CBOR (RFC 8949) and MessagePack, which return values of parsed JSON.

So one converter decides for all three formats which value fits a column. A number becomes its
digits, bytes become base64, and a moment becomes text in ISO 8601.
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

DEPTH_MAX: Final = 200  # The maximum depth of nested values.
_NOT_FINITE_NAMES: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def parse_cbor(body: bytes) -> object:
    """Parse a body of exactly one item.

    Raises:
        ValueError: the body is not one item of CBOR, or has a type without counterpart in JSON.
    """
    try:
        decoder = cbor2.CBORDecoder(io.BytesIO(body), max_depth=DEPTH_MAX)
        value = decoder.decode()
    except (cbor2.CBORDecodeError, ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"not valid CBOR: {str(error) or type(error).__name__}") from None
    try:
        decoder.read(1)
    except cbor2.CBORDecodeEOF:
        return _JsonConverter(len(body)).convert(value, 0)
    raise ValueError("not valid CBOR: bytes are left over")


def parse_msgpack(body: bytes) -> object:
    """Parse a body of exactly one object.

    Raises:
        ValueError: the body is not one object of MessagePack, or has a type without counterpart in
            JSON.
    """
    try:
        value = msgpack.unpackb(body, timestamp=3, strict_map_key=False)
    except (msgpack.UnpackException, ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"not valid MessagePack: {str(error) or type(error).__name__}") from None
    return _JsonConverter(len(body)).convert(value, 0)


PARSERS: Final[Mapping[str, Callable[[bytes], object]]] = {
    "cbor": parse_cbor,
    "msgpack": parse_msgpack,
}


class _JsonConverter:
    """A converter of one parsed body to at most `values_left` values of JSON.

    CBOR can share values, so a few bytes could encode very many values. Without sharing, each value
    takes at least one byte, so the size of the body is the limit.
    """

    def __init__(self, values_left: int) -> None:
        self._values_left = values_left

    def convert(self, value: object, depth: int) -> object:
        """Convert a value at a depth of nesting; raise ValueError if JSON has no such value."""
        self._values_left -= 1
        if self._values_left < 0 or depth > DEPTH_MAX:
            raise ValueError("its values are shared, or nested too deep")
        if isinstance(value, Mapping):
            return {_convert_key(key): self.convert(item, depth + 1) for key, item in value.items()}
        if type(value) in (list, tuple):  # JSON has no named tuples.
            assert isinstance(value, list | tuple)
            return [self.convert(item, depth + 1) for item in value]
        return _convert_leaf(value)


def _convert_leaf(value: object) -> object:
    """Convert a value that is neither an array nor a map."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return IntegerText(value)  # Raises ValueError for more than 4,300 digits.
    if isinstance(value, float):
        text = repr(value)
        return RealText(_NOT_FINITE_NAMES.get(text, text))
    if isinstance(value, Decimal):
        if value.is_finite():
            return RealText(value)
        return RealText(_NOT_FINITE_NAMES.get(str(float(value)), "NaN"))
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise ValueError(f"it has a value of the kind {type(value).__name__}")


def _convert_key(key: object) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    raise ValueError(f"it has a key of the kind {type(key).__name__}")
