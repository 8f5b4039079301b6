# SPDX-License-Identifier: Apache-2.0
"""Schemas from samples: the type of a parsed value, and what two types have in common.

Numbers without fraction are BIGINT, with one DOUBLE, beyond 64 bits DECIMAL(38, 0); what has two
types that do not meet is STRING. Columns are in the order of their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import Final

from headrace.columns.decode.dates import parse_moment
from headrace.columns.decode.values import NOT_FINITE, IntegerText, RealText, text_converter
from headrace.columns.schema.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

COLUMNS_MAX: Final = 5000  # Columns of an inferred schema, counted at every depth.
DEPTH_MAX: Final = 32  # Deeper values are of type STRING.
LONG_DIGITS_MAX: Final = 18
DECIMAL_DIGITS_MAX: Final = 38


class InferenceError(ValueError):
    """A sample has no schema."""


def type_of_json(value: object, depth: int = 0) -> DataType:
    """Return the type of a parsed value; NullType for null."""
    kind = type(value)
    if kind is IntegerText:
        return _whole(str(value))
    if kind is RealText:
        return DoubleType()
    if kind is str:
        return StringType()
    if kind is bool:
        return BooleanType()
    if depth >= DEPTH_MAX and value is not None:
        return StringType()
    if isinstance(value, dict):
        fields = [StructField(name, type_of_json(value[name], depth + 1)) for name in sorted(value)]
        return StructType([field for field in fields if field.name])
    if isinstance(value, list):
        element: DataType = NullType()
        for item in value:
            element = common(element, type_of_json(item, depth + 1))
        return ArrayType(element)
    return NullType()


def type_of_text(text: str) -> DataType:
    """Return the type of a field of CSV; NullType for an empty one."""
    if not text:
        return NullType()
    if text_converter(LongType(), UTC)(text) is not None:
        return LongType()
    if text not in NOT_FINITE and text_converter(DoubleType(), UTC)(text) is not None:
        return DoubleType()
    if text.lower() in ("true", "false"):
        return BooleanType()
    if len(text) >= len("2026-01-31T00:00") and parse_moment(text, UTC) is not None:
        return TimestampType()
    return StringType()


def infer(rows: Iterable[object]) -> StructType:
    """Return the schema of parsed values; values that are not objects are skipped."""
    inferred: DataType = NullType()
    for row in rows:
        if isinstance(row, dict):
            inferred = common(inferred, type_of_json(row))
    return finalize_schema(inferred)


def finalize_schema(inferred: DataType) -> StructType:
    """Make columns that are always null STRING; InferenceError without columns, or too many."""
    kind = _without_nulls(inferred)
    if not isinstance(kind, StructType) or not kind.fields:
        raise InferenceError("no record of the sample has columns")
    if _count(kind) > COLUMNS_MAX:
        raise InferenceError(f"the sample has more than {COLUMNS_MAX} columns")
    return kind


def common(one: DataType, other: DataType) -> DataType:
    """Return the narrowest type that holds the values of both types."""
    if isinstance(one, NullType) or one == other:
        return other
    if isinstance(other, NullType):
        return one
    if isinstance(one, StructType) and isinstance(other, StructType):
        fields = one.types
        for field in other.fields:
            fields[field.name] = common(fields.get(field.name, NullType()), field.kind)
        return StructType([StructField(name, fields[name]) for name in sorted(fields)])
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(common(one.element, other.element))
    numbers = (LongType, DecimalType, DoubleType)
    if isinstance(one, numbers) and isinstance(other, numbers):
        return max(one, other, key=lambda kind: numbers.index(type(kind)))
    return StringType()


def grow(kind: StructType, seen: DataType) -> StructType:
    """Append the columns of `seen` that the schema lacks; its own columns do not change."""
    assert isinstance(seen, StructType), seen
    grown = _grow(kind, seen)
    assert isinstance(grown, StructType)
    return grown if _count(grown) <= COLUMNS_MAX else kind


def _grow(kind: DataType, seen: DataType) -> DataType:
    if isinstance(kind, ArrayType) and isinstance(seen, ArrayType):
        return ArrayType(_grow(kind.element, seen.element))
    if not isinstance(kind, StructType) or not isinstance(seen, StructType):
        return kind
    seen_types = seen.types
    fields = [
        StructField(field.name, _grow(field.kind, seen_types.get(field.name, NullType())))
        for field in kind.fields
    ]
    # Spark compares the names of columns without case.
    names = {field.name.lower() for field in kind.fields}
    for field in seen.fields:
        if field.name.lower() not in names and not isinstance(field.kind, NullType):
            names.add(field.name.lower())
            fields.append(StructField(field.name, _without_nulls(field.kind)))
    return StructType(fields)


def _whole(digits: str) -> DataType:
    size = len(digits.lstrip("-"))
    if size <= LONG_DIGITS_MAX or -(2**63) <= int(digits[:40]) < 2**63:
        return LongType()
    return DecimalType(38, 0) if size <= DECIMAL_DIGITS_MAX else DoubleType()


def _without_nulls(kind: DataType) -> DataType:
    if isinstance(kind, NullType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_without_nulls(kind.element))
    if isinstance(kind, StructType):
        fields: dict[str, StructField] = {}
        for field in kind.fields:  # The first of several names that differ only in case counts.
            fields.setdefault(
                field.name.lower(), StructField(field.name, _without_nulls(field.kind))
            )
        # Spark has structs without fields, files mostly do not.
        return StructType(list(fields.values())) if fields else StringType()
    return kind


def _count(kind: DataType) -> int:
    if isinstance(kind, StructType):
        return sum(1 + _count(field.kind) for field in kind.fields)
    return _count(kind.element) if isinstance(kind, ArrayType) else 0


def names_of_csv(count: int) -> Sequence[str]:
    """The names of columns that have none."""
    return tuple(f"_c{index}" for index in range(count))
