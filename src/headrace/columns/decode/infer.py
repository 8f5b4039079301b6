# SPDX-License-Identifier: Apache-2.0
"""Inference of schemas from sampled values.

An integer is BIGINT, or DECIMAL(38, 0) beyond 64 bits; any other number is DOUBLE. A column whose
values have no common type is STRING. Columns are sorted by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC
from typing import Final

from headrace.columns.decode.dates import parse_moment
from headrace.columns.decode.values import NOT_FINITE, IntegerText, RealText, make_text_converter
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
LONG_DIGITS_MAX: Final = 18  # Integers with more digits may exceed 64 bits.
DECIMAL_DIGITS_MAX: Final = 38


class InferenceError(ValueError):
    """No schema can be inferred from a sample."""


def infer_json_type(value: object, depth: int = 0) -> DataType:
    """Return the type of a value of parsed JSON; NullType for null."""
    kind = type(value)
    if kind is IntegerText:
        return _infer_integer_type(str(value))
    if kind is RealText:
        return DoubleType()
    if kind is str:
        return StringType()
    if kind is bool:
        return BooleanType()
    if depth >= DEPTH_MAX and value is not None:
        return StringType()
    if isinstance(value, dict):
        fields = [
            StructField(name, infer_json_type(value[name], depth + 1)) for name in sorted(value)
        ]
        return StructType([field for field in fields if field.name])
    if isinstance(value, list):
        element: DataType = NullType()
        for item in value:
            element = common_type(element, infer_json_type(item, depth + 1))
        return ArrayType(element)
    return NullType()


def infer_text_type(text: str) -> DataType:
    """Return the type of a field of CSV; NullType for an empty one."""
    if not text:
        return NullType()
    if make_text_converter(LongType(), UTC)(text) is not None:
        return LongType()
    if text not in NOT_FINITE and make_text_converter(DoubleType(), UTC)(text) is not None:
        return DoubleType()
    if text.lower() in ("true", "false"):
        return BooleanType()
    if len(text) >= len("2026-01-31T00:00") and parse_moment(text, UTC) is not None:
        return TimestampType()
    return StringType()


def infer(rows: Iterable[object]) -> StructType:
    """Return the schema of sampled values; values that are not objects are skipped.

    Raises:
        InferenceError: there are no columns, or more than `COLUMNS_MAX`.
    """
    inferred: DataType = NullType()
    for row in rows:
        if isinstance(row, dict):
            inferred = common_type(inferred, infer_json_type(row))
    return finalize_schema(inferred)


def finalize_schema(inferred: DataType) -> StructType:
    """Replace the type of columns that are always null by STRING.

    Raises:
        InferenceError: there are no columns, or more than `COLUMNS_MAX`.
    """
    kind = _replace_nulls(inferred)
    if not isinstance(kind, StructType) or not kind.fields:
        raise InferenceError("no record of the sample has columns")
    if _count_columns(kind) > COLUMNS_MAX:
        raise InferenceError(f"the sample has more than {COLUMNS_MAX} columns")
    return kind


def common_type(first: DataType, second: DataType) -> DataType:
    """Return the narrowest type that holds the values of both types."""
    if isinstance(first, NullType) or first == second:
        return second
    if isinstance(second, NullType):
        return first
    if isinstance(first, StructType) and isinstance(second, StructType):
        fields = first.types
        for field in second.fields:
            fields[field.name] = common_type(fields.get(field.name, NullType()), field.kind)
        return StructType([StructField(name, fields[name]) for name in sorted(fields)])
    if isinstance(first, ArrayType) and isinstance(second, ArrayType):
        return ArrayType(common_type(first.element, second.element))
    numbers = (LongType, DecimalType, DoubleType)
    if isinstance(first, numbers) and isinstance(second, numbers):
        return max(first, second, key=lambda kind: numbers.index(type(kind)))
    return StringType()


def grow(kind: StructType, new_type: DataType) -> StructType:
    """Return the schema with the columns of `new_type` that it lacks appended, at every depth.

    If it would have more than `COLUMNS_MAX` columns, return the schema unchanged.
    """
    assert isinstance(new_type, StructType), new_type
    grown = _add_columns(kind, new_type)
    assert isinstance(grown, StructType)
    return grown if _count_columns(grown) <= COLUMNS_MAX else kind


def _add_columns(kind: DataType, new_type: DataType) -> DataType:
    """Return the type with the columns that only `new_type` has added at every depth."""
    if isinstance(kind, ArrayType) and isinstance(new_type, ArrayType):
        return ArrayType(_add_columns(kind.element, new_type.element))
    if not isinstance(kind, StructType) or not isinstance(new_type, StructType):
        return kind
    new_types = new_type.types
    fields = [
        StructField(field.name, _add_columns(field.kind, new_types.get(field.name, NullType())))
        for field in kind.fields
    ]
    # Spark ignores the case of column names.
    names = {field.name.lower() for field in kind.fields}
    for field in new_type.fields:
        if field.name.lower() not in names and not isinstance(field.kind, NullType):
            names.add(field.name.lower())
            fields.append(StructField(field.name, _replace_nulls(field.kind)))
    return StructType(fields)


def _infer_integer_type(digits: str) -> DataType:
    size = len(digits.lstrip("-"))
    if size <= LONG_DIGITS_MAX or -(2**63) <= int(digits[:40]) < 2**63:
        return LongType()
    return DecimalType(38, 0) if size <= DECIMAL_DIGITS_MAX else DoubleType()


def _replace_nulls(kind: DataType) -> DataType:
    """Return a type with STRING in place of types without values."""
    if isinstance(kind, NullType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_replace_nulls(kind.element))
    if isinstance(kind, StructType):
        fields: dict[str, StructField] = {}
        for field in kind.fields:  # Of names that differ only in case, the first is kept.
            fields.setdefault(
                field.name.lower(), StructField(field.name, _replace_nulls(field.kind))
            )
        # Most file formats have no structs without fields.
        return StructType(list(fields.values())) if fields else StringType()
    return kind


def _count_columns(kind: DataType) -> int:
    if isinstance(kind, StructType):
        return sum(1 + _count_columns(field.kind) for field in kind.fields)
    return _count_columns(kind.element) if isinstance(kind, ArrayType) else 0


def make_csv_names(count: int) -> Sequence[str]:
    """Return names for `count` columns without a header: `_c0`, `_c1` and so on, as in Spark."""
    return tuple(f"_c{index}" for index in range(count))
