# SPDX-License-Identifier: Apache-2.0
"""Spark's types and Arrow's, and schemas in JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the type that Spark expects of a column in a batch."""
    return to_arrow_type(kind, timezone="UTC")


def nullable(kind: DataType) -> DataType:
    """The same type with nulls allowed everywhere, without comments: what a decoder gives."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, nullable(f.dataType)) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, nullable(kind.valueType))
    return kind
