# SPDX-License-Identifier: Apache-2.0
"""Conversion of parsed JSON and of CSV texts to values of Spark's types, row by row.

This module decides whether a value fits its column, and decoders of whole batches accept no other
values. A value that does not fit its column, or has no column, becomes a `Misfit` with its path.
The column of such a value is null.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Final, TypeAlias

from headrace.columns.decode.dates import parse_date, parse_moment
from headrace.columns.schema.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from headrace.untyped import Cell

MISFITS_MAX: Final = 1000  # A row with more misfits is malformed.
INT_DIGITS_MAX: Final = 40  # Longer texts are never parsed as integers.
INTEGER_BITS: Final[dict[type[DataType], int]] = {
    ByteType: 8,
    ShortType: 16,
    IntegerType: 32,
    LongType: 64,
}
NOT_FINITE: Final = {
    **dict.fromkeys(("NaN",), "nan"),
    **dict.fromkeys(("Infinity", "+Infinity", "+INF"), "inf"),
    **dict.fromkeys(("-Infinity", "-INF"), "-inf"),
}
_REAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMALS: Final = Context(prec=2 * 38, rounding=ROUND_HALF_UP)
_SECONDS_MAX: Final = 2**63 // 1_000_000


class IntegerText(str):
    """The digits of a JSON number without fraction or exponent."""

    __slots__ = ()


class RealText(str):
    """The digits of any other JSON number."""

    __slots__ = ()


@dataclass(slots=True)
class Misfit:
    """A value of a row, at `path`, that does not fit its column or has no column."""

    path: str
    value: object
    new: bool  # True if the schema has no column for the value.

    def __str__(self) -> str:
        if self.new:
            return f"there is no column {self.path!r}"
        return f"the value of {self.path or 'the body'!r} does not fit its type"


class TooManyMisfits(ValueError):  # The text becomes the reason why the row is malformed.
    """A row has more than `MISFITS_MAX` misfits."""


# A function that converts a value of parsed JSON, and appends misfits.
Convert: TypeAlias = Callable[[Cell, list[Misfit]], object]


def loads(text: str) -> object:
    """Parse strict JSON (RFC 8259) with NaN and Infinity; return numbers as their digits.

    Raises:
        ValueError: the text is not JSON.
        RecursionError: the text is nested too deeply.
    """
    return json.loads(text, parse_int=IntegerText, parse_float=RealText, parse_constant=RealText)


def dumps(value: object) -> str:
    """Return a parsed value as compact JSON, with the original digits of its numbers."""
    kind = type(value)
    if kind is str:
        return json.dumps(value, ensure_ascii=False)
    if kind is IntegerText or kind is RealText:
        text = str(value)
        return f'"{text}"' if text in NOT_FINITE else text
    if kind is dict:
        assert isinstance(value, dict)
        members = ",".join(f"{dumps(key)}:{dumps(item)}" for key, item in value.items())
        return "{" + members + "}"
    if kind is list:
        assert isinstance(value, list)
        return f"[{','.join(map(dumps, value))}]"
    return {True: "true", False: "false"}.get(value, "null")  # type: ignore[call-overload,no-any-return]  # Only True, False and None are left.


def make_converter(kind: DataType, zone: tzinfo, *, unknown: bool) -> Convert:
    """Return a function that converts a parsed JSON value, except None, to Arrow's type.

    With `unknown` a field without a column becomes a misfit. `zone` is the time zone of texts
    without one.
    """
    if isinstance(kind, StructType):
        return _struct_converter(
            {
                field.name: make_converter(field.kind, zone, unknown=unknown)
                for field in kind.fields
            },
            unknown=unknown,
        )
    if isinstance(kind, ArrayType):
        return _array_converter(make_converter(kind.element, zone, unknown=unknown))
    if isinstance(kind, MapType):
        return _map_converter(make_converter(kind.value, zone, unknown=unknown))
    return _leaf_converter(_json_converter(kind, zone))


def make_text_converter(kind: DataType, zone: tzinfo) -> Callable[[str], object]:
    """Return a function that converts a CSV text to the type, or to None if it does not fit."""
    if type(kind) in INTEGER_BITS:
        bits = INTEGER_BITS[type(kind)]
        return lambda text: _parse_integer(text, bits) if _INTEGER.fullmatch(text) else None
    if isinstance(kind, FloatType | DoubleType):
        return _parse_float
    if isinstance(kind, BooleanType):
        return lambda text: {"true": True, "false": False}.get(text.lower())
    if isinstance(kind, DecimalType):
        return _decimal_converter(kind)
    if isinstance(kind, DateType):
        return parse_date
    if isinstance(kind, TimestampType):
        return lambda text: parse_moment(text, zone)
    if isinstance(kind, TimestampNTZType):
        return lambda text: parse_moment(text, None)
    if isinstance(kind, BinaryType):
        return str.encode
    assert isinstance(kind, StringType), kind
    return str


def _leaf_converter(convert: Callable[[Cell], object]) -> Convert:
    """Return a function that makes a misfit of a value that `convert` converts to None."""

    def convert_leaf(value: object, misfits: list[Misfit]) -> object:
        converted = convert(value)
        if converted is None:
            misfits.append(Misfit("", value, new=False))
        return converted

    return convert_leaf


def _json_converter(kind: DataType, zone: tzinfo) -> Callable[[Cell], object]:
    """Return a function that converts a parsed value to a scalar, or to None if it does not fit."""
    if type(kind) in INTEGER_BITS:
        bits = INTEGER_BITS[type(kind)]
        return lambda value: _parse_integer(value, bits) if type(value) is IntegerText else None
    if isinstance(kind, FloatType | DoubleType):
        return _convert_json_float
    if isinstance(kind, BooleanType):
        return lambda value: value if isinstance(value, bool) else None
    if isinstance(kind, StringType):
        return _convert_string
    if isinstance(kind, DecimalType):
        return _decimal_converter(kind)
    if isinstance(kind, BinaryType):
        return _convert_binary
    if isinstance(kind, DateType):
        return lambda value: parse_date(value) if type(value) is str else None
    if isinstance(kind, TimestampType):
        return lambda value: (
            parse_moment(value, zone) if type(value) is str else _convert_seconds(value)
        )
    assert isinstance(kind, TimestampNTZType), kind
    return lambda value: parse_moment(value, None) if type(value) is str else None


def _struct_converter(fields: dict[str, Convert], *, unknown: bool) -> Convert:
    """Return a function that converts an object to a row; a field of null is left out."""

    def convert_struct(value: object, misfits: list[Misfit]) -> object:
        if not isinstance(value, dict):
            misfits.append(Misfit("", value, new=False))
            return None
        row = {}
        for name, item in value.items():
            if item is None:
                continue
            convert = fields.get(name)
            if convert is not None:
                misfit_count = len(misfits)
                row[name] = convert(item, misfits)
                if len(misfits) > misfit_count:
                    _prefix_paths(name, misfits, misfit_count)
            elif unknown:
                misfits.append(Misfit(name, item, new=True))
        return row

    return convert_struct


def _array_converter(convert_element: Convert) -> Convert:
    """Return a function that converts a list; see `_elements_or_null`."""

    def convert_array(value: object, misfits: list[Misfit]) -> object:
        if not isinstance(value, list):
            misfits.append(Misfit("", value, new=False))
            return None
        misfit_count = len(misfits)
        items = []
        for index, item in enumerate(value):
            first = len(misfits)
            items.append(None if item is None else convert_element(item, misfits))
            if len(misfits) > first:
                _prefix_paths(f"[{index}]", misfits, first)
        return _elements_or_null(items, value, misfits, misfit_count)

    return convert_array


def _map_converter(convert_value: Convert) -> Convert:
    """Return a function that converts an object to pairs; see `_elements_or_null`."""

    def convert_map(value: object, misfits: list[Misfit]) -> object:
        if not isinstance(value, dict):
            misfits.append(Misfit("", value, new=False))
            return None
        misfit_count = len(misfits)
        entries = []
        for key, item in value.items():
            first = len(misfits)
            entries.append((key, None if item is None else convert_value(item, misfits)))
            if _convert_string(key) is None:
                misfits.append(Misfit("", item, new=False))
            if len(misfits) > first:
                _prefix_paths(key, misfits, first)
        return _elements_or_null(entries, value, misfits, misfit_count)

    return convert_map


def _elements_or_null(
    converted: list[Cell], value: object, misfits: list[Misfit], misfit_count: int
) -> object:
    """Return the converted elements; None if an element does not fit.

    An array or map with such an element becomes null and a single misfit, as in Spark.
    """
    if len(misfits) == misfit_count or all(misfit.new for misfit in misfits[misfit_count:]):
        return converted
    del misfits[misfit_count:]
    misfits.append(Misfit("", value, new=False))
    return None


def _prefix_paths(name: str, misfits: list[Misfit], first: int) -> None:
    """Put the name of the enclosing field before the paths of the misfits from `first` on."""
    if len(misfits) > MISFITS_MAX:
        raise TooManyMisfits(f"more than {MISFITS_MAX} values do not fit the schema")
    for misfit in misfits[first:]:
        separator = "." if misfit.path and not misfit.path.startswith("[") else ""
        misfit.path = f"{name}{separator}{misfit.path}"


def _parse_integer(digits: str, bits: int) -> int | None:
    if len(digits) > INT_DIGITS_MAX:
        return None
    number = int(digits)
    return number if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else None


def _convert_json_float(value: object) -> float | None:
    if type(value) is IntegerText or type(value) is RealText:
        return float(NOT_FINITE.get(value, value))
    if type(value) is str and value in NOT_FINITE:
        return float(NOT_FINITE[value])
    return None


def _parse_float(text: str) -> float | None:
    if text in NOT_FINITE:
        return float(NOT_FINITE[text])
    text = text.strip()
    return float(text) if _REAL.fullmatch(text) else None


def _convert_string(value: object) -> str | None:
    text = value if type(value) is str else dumps(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # The text has half of a surrogate pair.
            return None
    return text


def _convert_binary(value: object) -> bytes | None:
    if type(value) is not str:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def _convert_seconds(value: object) -> int | None:
    """Return the microseconds of an integer of seconds since 1970; None if it does not fit."""
    number = _parse_integer(value, 64) if type(value) is IntegerText else None
    return None if number is None or abs(number) >= _SECONDS_MAX else number * 1_000_000


def _decimal_converter(kind: DecimalType) -> Callable[[Cell], Decimal | None]:
    """Return a function that rounds a number to the scale; None beyond the precision."""
    unit = Decimal(1).scaleb(-kind.scale)
    limit = Decimal(10) ** (kind.precision - kind.scale)

    def convert_decimal(value: object) -> Decimal | None:
        if not isinstance(value, str) or not _REAL.fullmatch(value):
            return None
        try:
            number = _DECIMALS.quantize(Decimal(value), unit)
        except InvalidOperation:
            return None
        return number if abs(number) < limit else None

    return convert_decimal
