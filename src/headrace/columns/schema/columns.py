# SPDX-License-Identifier: Apache-2.0
"""The columns of a read, as Spark and as Arrow have them."""

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

STRINGS: Final = (
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
OCTETS: Final = ("delivery_mode", "priority")
# Properties in the protocol's order, without headers, which have a column of their own.
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
    return "INT" if name in OCTETS else "STRING"


DDL: Final = (
    "body BINARY, exchange STRING, routing_key STRING, "
    f"properties STRUCT<{', '.join(f'{name}: {_sql_type(name)}' for name in PROPERTIES)}>, "
    "headers MAP<STRING, STRING>, redelivered BOOLEAN, stream STRING, offset BIGINT, "
    "timestamp TIMESTAMP"
)

MOMENT: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = pa.map_(pa.string(), pa.string())


def _arrow_type(name: str) -> pa.DataType:
    if name == "timestamp":
        return MOMENT
    return pa.int32() if name in OCTETS else pa.string()


PROPERTIES_TYPE: Final = pa.struct([pa.field(name, _arrow_type(name)) for name in PROPERTIES])

COLUMNS: Final = pa.schema(
    [
        ("body", pa.binary()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("properties", PROPERTIES_TYPE),
        ("headers", HEADERS),
        ("redelivered", pa.bool_()),
        ("stream", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", MOMENT),
        ("content_header", pa.binary()),
    ]
)
# The bytes of the content header keep every type. Only a given schema can select this column.
CONTENT_HEADER: Final = "content_header"


# The columns that decoding adds to `value` and the column for rescued data.
DECODED: Final = {"_corrupt_record": pa.binary(), "_corrupt_reason": pa.string()}


class SchemaError(ValueError):
    """The columns of a read or of rows to write are not columns of a message."""


class Decoding(Protocol):
    """The options of decoding on which the columns depend."""

    @property
    def format(self) -> str:
        """The format of bodies."""

    @property
    def rescued(self) -> str:
        """The name of the column for rescued data."""

    def schema(self) -> DataType | None:
        """Return the schema that was given; None when it is to be inferred."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns of a query in their order, and the type of `value` if it is among them."""

    names: tuple[str, ...]
    value: DataType | None = None

    @property
    def raw(self) -> tuple[str, ...]:
        """The columns that do not come from decoding the body."""
        return tuple(name for name in self.names if name in COLUMNS.names)

    def arrow_schema(self, rescued: str) -> pa.Schema:
        """Return the Arrow schema; `rescued` is the name of the column for rescued data."""
        from headrace.columns.schema.types import arrow_type

        kinds = {**DECODED, rescued: pa.string()}
        if self.value is not None:
            kinds["value"] = arrow_type(self.value)
        return pa.schema(
            [
                COLUMNS.field(name) if name in COLUMNS.names else pa.field(name, kinds[name])
                for name in self.names
            ]
        )


def parse_columns(schema: StructType, decoding: Decoding | None = None) -> Wanted:
    """Return the columns of a schema, which is the user's or from `read_schema`."""
    ours = {**dict(_columns()), CONTENT_HEADER: "binary"}
    value = None
    if decoding is not None:
        ours |= {decoding.rescued: "string"} if decoding.rescued else {}
        ours |= {"value": "", "_corrupt_record": "binary", "_corrupt_reason": "string"}
    for field in schema.fields:
        name, sql_type = field.name, field.kind.text()
        if name not in ours:
            hint = "; option 'value' makes one" if name == "value" else ""
            raise SchemaError(
                f"format 'amqp' has no column {name!r}; it has {', '.join(ours)}{hint}"
            )
        if name == "value":
            value = _value_type(field.kind, decoding)
        elif sql_type.lower() != ours[name]:
            raise SchemaError(f"column {name!r} is of type {ours[name]}, not {sql_type}")
    return Wanted(tuple(field.name for field in schema.fields), value)


def _value_type(kind: DataType, decoding: Decoding | None) -> DataType:
    """Return the type of the column `value`; SchemaError if the format cannot have it."""
    assert decoding is not None
    form = decoding.format
    if form in ("string", "binary"):
        fits = kind.text() == form
    elif form in ("avro", "protobuf"):
        fits = kind == decoding.schema()
    else:
        fits = isinstance(kind, StructType | ArrayType | MapType)
    if not fits:
        raise SchemaError(f"column 'value' cannot be of type {kind.text()} with {form!r}")
    return kind


def all_columns() -> StructType:
    """Every column of a read, in order."""
    from headrace.columns.schema.ddl import parse_schema

    columns = parse_schema(DDL)
    assert isinstance(columns, StructType)
    return columns


def _columns() -> list[tuple[str, str]]:
    """Name and type of each column, as Spark's simpleString() spells the types."""
    return [(field.name, field.kind.text()) for field in all_columns().fields]
