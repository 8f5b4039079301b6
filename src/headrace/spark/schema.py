# SPDX-License-Identifier: Apache-2.0
"""The columns of a read, as Spark and as Arrow have them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

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
# In the order of the protocol; the headers have a column of their own.
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
    ]
)


class SchemaError(ValueError):
    """The columns asked for, or given to be written, are not those of a message."""


def wanted(names_and_types: list[tuple[str, str]]) -> tuple[str, ...]:
    """The columns of a schema that the user gave: some of ours, of the same types."""
    ours = dict(_columns())
    for name, sql_type in names_and_types:
        if name not in ours:
            raise SchemaError(f"format 'amqp' has no column {name!r}; it has {', '.join(ours)}")
        if sql_type.lower() != ours[name]:
            raise SchemaError(f"column {name!r} is of type {ours[name]}, not {sql_type}")
    return tuple(name for name, _ in names_and_types)


def _columns() -> list[tuple[str, str]]:
    """Name and type of each column, as Spark's simpleString() spells the types."""
    properties = ",".join(f"{name}:{_sql_type(name).lower()}" for name in PROPERTIES)
    return [
        ("body", "binary"),
        ("exchange", "string"),
        ("routing_key", "string"),
        ("properties", f"struct<{properties}>"),
        ("headers", "map<string,string>"),
        ("redelivered", "boolean"),
        ("stream", "string"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
    ]
