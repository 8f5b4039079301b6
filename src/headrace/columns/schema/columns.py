# SPDX-License-Identifier: Apache-2.0
"""The columns of a read, with their types in Spark's DDL and in Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from headrace.columns.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructType,
)

STRING_PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
OCTET_PROPERTIES: Final = ("delivery_mode", "priority")
# The properties in the order of the protocol, without headers, which have a separate column.
PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)


def _sql_type(name: str) -> str:
    if name == "timestamp":
        return "TIMESTAMP"
    return "INT" if name in OCTET_PROPERTIES else "STRING"


DDL: Final = (
    "body BINARY, exchange STRING, routing_key STRING, "
    f"properties STRUCT<{', '.join(f'{name}: {_sql_type(name)}' for name in PROPERTIES)}>, "
    "headers MAP<STRING, STRING>, redelivered BOOLEAN, stream STRING, offset BIGINT, "
    "timestamp TIMESTAMP"
)

MOMENT_TYPE: Final = pa.timestamp("us", tz="UTC")
HEADERS_TYPE: Final = pa.map_(pa.string(), pa.string())


def _arrow_type(name: str) -> pa.DataType:
    if name == "timestamp":
        return MOMENT_TYPE
    return pa.int32() if name in OCTET_PROPERTIES else pa.string()


PROPERTIES_TYPE: Final = pa.struct([pa.field(name, _arrow_type(name)) for name in PROPERTIES])

COLUMNS: Final = pa.schema(
    [
        ("body", pa.binary()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("properties", PROPERTIES_TYPE),
        ("headers", HEADERS_TYPE),
        ("redelivered", pa.bool_()),
        ("stream", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", MOMENT_TYPE),
        ("content_header", pa.binary()),
    ]
)
# The content header as bytes, which keep the type of every header. Only a user's schema can select
# this column.
CONTENT_HEADER: Final = "content_header"

# The columns that decoding adds beside `value` and the column for rescued data.
DECODED_COLUMNS: Final = {"_corrupt_record": pa.binary(), "_corrupt_reason": pa.string()}


class SchemaError(ValueError):
    """A read or a write has columns that messages do not have, or columns of other types."""


class Decoding(Protocol):
    """The options of decoding on which the columns depend."""

    @property
    def format(self) -> str:
        """The format of bodies."""

    @property
    def rescued(self) -> str:
        """The name of the column for rescued data."""

    def schema(self) -> DataType | None:
        """Return the schema in the options; None if it must be inferred."""


@dataclass(frozen=True, slots=True)
class QueryColumns:
    """The names of the columns of a query, in order, and the type of the column `value`.

    The type is None if the query does not have this column.
    """

    names: tuple[str, ...]
    value: DataType | None = None

    @property
    def raw(self) -> tuple[str, ...]:
        """The names of the columns that do not result from decoding bodies."""
        return tuple(name for name in self.names if name in COLUMNS.names)

    def arrow_schema(self, rescued: str) -> pa.Schema:
        """Return the Arrow schema; `rescued` is the name of the column for rescued data."""
        from headrace.columns.schema.types import arrow_type

        decoded_types = {**DECODED_COLUMNS, rescued: pa.string()}
        if self.value is not None:
            decoded_types["value"] = arrow_type(self.value)
        return pa.schema(
            [
                COLUMNS.field(name)
                if name in COLUMNS.names
                else pa.field(name, decoded_types[name])
                for name in self.names
            ]
        )


def parse_columns(schema: StructType, decoding: Decoding | None = None) -> QueryColumns:
    """Return the columns of a schema from Spark.

    Raises:
        SchemaError: a read has no such column, or the column has another type.
    """
    sql_type_by_column = {**dict(_column_types()), CONTENT_HEADER: "binary"}
    value = None
    if decoding is not None:
        sql_type_by_column |= {decoding.rescued: "string"} if decoding.rescued else {}
        sql_type_by_column |= {
            "value": "",
            "_corrupt_record": "binary",
            "_corrupt_reason": "string",
        }
    for field in schema.fields:
        name, sql_type = field.name, field.kind.text()
        if name not in sql_type_by_column:
            hint = "; option 'value' makes one" if name == "value" else ""
            raise SchemaError(
                f"format 'amqp' has no column {name!r}; it has "
                f"{', '.join(sql_type_by_column)}{hint}"
            )
        if name == "value":
            value = _check_value_type(field.kind, decoding)
        elif sql_type.lower() != sql_type_by_column[name]:
            raise SchemaError(
                f"column {name!r} is of type {sql_type_by_column[name]}, not {sql_type}"
            )
    return QueryColumns(tuple(field.name for field in schema.fields), value)


def _check_value_type(kind: DataType, decoding: Decoding | None) -> DataType:
    """Return the type of the column `value`; raise SchemaError if the format cannot have it."""
    assert decoding is not None
    value_format = decoding.format
    if value_format in ("string", "binary"):
        fits = kind.text() == value_format
    elif value_format in ("avro", "protobuf"):
        fits = kind == decoding.schema()
    else:
        fits = isinstance(kind, StructType | ArrayType | MapType)
    if not fits:
        raise SchemaError(f"column 'value' cannot be of type {kind.text()} with {value_format!r}")
    return kind


def all_columns() -> StructType:
    """Return the columns that a read has by default, in order."""
    from headrace.columns.schema.ddl import parse_schema

    columns = parse_schema(DDL)
    assert isinstance(columns, StructType)
    return columns


def _column_types() -> list[tuple[str, str]]:
    """Return the name and type of each column, in the spelling of Spark's simpleString()."""
    return [(field.name, field.kind.text()) for field in all_columns().fields]
