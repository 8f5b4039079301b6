# SPDX-License-Identifier: Apache-2.0
"""Conversion between Spark's types and the types of decoded values."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as spark

from headrace.columns.schema import types as value_types

SIMPLE_TYPES: Final[dict[type[spark.DataType], type[value_types.DataType]]] = {
    spark.NullType: value_types.NullType,
    spark.BooleanType: value_types.BooleanType,
    spark.ByteType: value_types.ByteType,
    spark.ShortType: value_types.ShortType,
    spark.IntegerType: value_types.IntegerType,
    spark.LongType: value_types.LongType,
    spark.FloatType: value_types.FloatType,
    spark.DoubleType: value_types.DoubleType,
    spark.StringType: value_types.StringType,
    spark.BinaryType: value_types.BinaryType,
    spark.DateType: value_types.DateType,
    spark.TimestampType: value_types.TimestampType,
    spark.TimestampNTZType: value_types.TimestampNTZType,
}
_SPARK_TYPES: Final = {kind: spark_type for spark_type, kind in SIMPLE_TYPES.items()}


def to_spark(kind: value_types.DataType) -> spark.DataType:
    """Return Spark's type for a type of decoded values, with nulls allowed everywhere."""
    if isinstance(kind, value_types.StructType):
        return struct_to_spark(kind)
    if isinstance(kind, value_types.ArrayType):
        return spark.ArrayType(to_spark(kind.element))
    if isinstance(kind, value_types.MapType):
        return spark.MapType(to_spark(kind.key), to_spark(kind.value))
    if isinstance(kind, value_types.DecimalType):
        return spark.DecimalType(kind.precision, kind.scale)
    return _SPARK_TYPES[type(kind)]()


def struct_to_spark(kind: value_types.StructType) -> spark.StructType:
    """Return Spark's schema for the columns of decoded values."""
    return spark.StructType(
        [spark.StructField(field.name, to_spark(field.kind)) for field in kind.fields]
    )


def from_spark(kind: spark.DataType, *, nulls: bool = True) -> value_types.DataType:
    """Return the type of decoded values; UnsupportedType if decoding cannot produce the type.

    With `nulls`, a type that forbids nulls or has comments is unsupported as well, because decoded
    values may be null and carry no comments.
    """
    converted = _from_spark(kind)
    if converted is None or (nulls and _make_nullable(kind) != kind):
        return value_types.UnsupportedType(kind.simpleString())
    return converted


def struct_from_spark(schema: spark.StructType) -> value_types.StructType:
    """Return the columns of Spark's schema as types of decoded values; see `from_spark`."""
    return value_types.StructType(
        value_types.StructField(field.name, from_spark(field.dataType)) for field in schema.fields
    )


def _make_nullable(kind: spark.DataType) -> spark.DataType:
    """Return the type with nulls allowed everywhere, without comments."""
    if isinstance(kind, spark.StructType):
        return spark.StructType(
            [spark.StructField(field.name, _make_nullable(field.dataType)) for field in kind.fields]
        )
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(_make_nullable(kind.elementType))
    if isinstance(kind, spark.MapType):
        return spark.MapType(kind.keyType, _make_nullable(kind.valueType))
    return kind


def _from_spark(kind: spark.DataType) -> value_types.DataType | None:
    """Return the type of decoded values; None if decoding cannot produce the type."""
    if isinstance(kind, spark.DecimalType):
        return value_types.DecimalType(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        element = _from_spark(kind.elementType)
        return None if element is None else value_types.ArrayType(element)
    if isinstance(kind, spark.MapType):
        key, value = _from_spark(kind.keyType), _from_spark(kind.valueType)
        return None if key is None or value is None else value_types.MapType(key, value)
    if isinstance(kind, spark.StructType):
        fields = []
        for field in kind.fields:
            field_kind = _from_spark(field.dataType)
            if field_kind is None:
                return None
            fields.append(value_types.StructField(field.name, field_kind))
        return value_types.StructType(fields)
    simple = SIMPLE_TYPES.get(type(kind))
    return None if simple is None else simple()
