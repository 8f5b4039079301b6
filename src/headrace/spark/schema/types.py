# SPDX-License-Identifier: Apache-2.0
"""Conversion between Spark's types and the types of decoded values."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as spark

from headrace.columns.schema import types as ours

SIMPLE: Final[dict[type[spark.DataType], type[ours.DataType]]] = {
    spark.NullType: ours.NullType,
    spark.BooleanType: ours.BooleanType,
    spark.ByteType: ours.ByteType,
    spark.ShortType: ours.ShortType,
    spark.IntegerType: ours.IntegerType,
    spark.LongType: ours.LongType,
    spark.FloatType: ours.FloatType,
    spark.DoubleType: ours.DoubleType,
    spark.StringType: ours.StringType,
    spark.BinaryType: ours.BinaryType,
    spark.DateType: ours.DateType,
    spark.TimestampType: ours.TimestampType,
    spark.TimestampNTZType: ours.TimestampNTZType,
}
_SPARK: Final = {kind: other for other, kind in SIMPLE.items()}


def to_spark(kind: ours.DataType) -> spark.DataType:
    """Return the type as Spark has it; nulls are allowed everywhere."""
    if isinstance(kind, ours.StructType):
        return struct_to_spark(kind)
    if isinstance(kind, ours.ArrayType):
        return spark.ArrayType(to_spark(kind.element))
    if isinstance(kind, ours.MapType):
        return spark.MapType(to_spark(kind.key), to_spark(kind.value))
    if isinstance(kind, ours.DecimalType):
        return spark.DecimalType(kind.precision, kind.scale)
    return _SPARK[type(kind)]()


def struct_to_spark(kind: ours.StructType) -> spark.StructType:
    """Return the columns as Spark has them."""
    return spark.StructType(
        [spark.StructField(field.name, to_spark(field.kind)) for field in kind.fields]
    )


def from_spark(kind: spark.DataType, *, nulls: bool = True) -> ours.DataType:
    """Return the type of decoded values; OtherType for a type that they cannot have.

    With `nulls` that includes types with parts that are never null, or have comments: decoding
    cannot promise that.
    """
    translated = _from_spark(kind)
    if translated is None or (nulls and _nullable(kind) != kind):
        return ours.OtherType(kind.simpleString())
    return translated


def struct_from_spark(schema: spark.StructType) -> ours.StructType:
    """Return the columns of a schema, each by `from_spark`."""
    return ours.StructType(
        ours.StructField(field.name, from_spark(field.dataType)) for field in schema.fields
    )


def _nullable(kind: spark.DataType) -> spark.DataType:
    """Return the type with nulls allowed everywhere, without comments."""
    if isinstance(kind, spark.StructType):
        return spark.StructType(
            [spark.StructField(field.name, _nullable(field.dataType)) for field in kind.fields]
        )
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(_nullable(kind.elementType))
    if isinstance(kind, spark.MapType):
        return spark.MapType(kind.keyType, _nullable(kind.valueType))
    return kind


def _from_spark(kind: spark.DataType) -> ours.DataType | None:
    if isinstance(kind, spark.DecimalType):
        return ours.DecimalType(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        element = _from_spark(kind.elementType)
        return None if element is None else ours.ArrayType(element)
    if isinstance(kind, spark.MapType):
        key, value = _from_spark(kind.keyType), _from_spark(kind.valueType)
        return None if key is None or value is None else ours.MapType(key, value)
    if isinstance(kind, spark.StructType):
        fields = []
        for field in kind.fields:
            field_kind = _from_spark(field.dataType)
            if field_kind is None:
                return None
            fields.append(ours.StructField(field.name, field_kind))
        return ours.StructType(fields)
    simple = SIMPLE.get(type(kind))
    return None if simple is None else simple()
