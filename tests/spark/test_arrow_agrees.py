# SPDX-License-Identifier: Apache-2.0
"""A stream as Arrow has the rows that Spark has, column by column."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.arrow import stream
from headrace.client.message import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.client import blocking

SCHEMA = "id BIGINT, price DECIMAL(9, 2), at TIMESTAMP, tags MAP<STRING, INT>, parts ARRAY<STRING>"


def message(number: int) -> Message:
    body: dict[str, Any] = {"id": number, "price": number / 4, "at": "2026-01-31T12:00:00"}
    body |= {"tags": {"a": number}, "parts": ["x"] * (number % 3)}
    text = json.dumps(body) if number % 10 else "not json"
    return Message(
        text.encode(),
        headers={"n": number, "t": "é", "deep": {"a": [1, 2]}},
        priority=number % 9,
        message_id=f"m{number}",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_rows_are_those_of_spark(
    connection: blocking.Connection, read: Callable[..., DataFrame], uri: str, name: str
) -> None:
    with connection.channel() as channel:
        channel.declare_queue(name, durable=True, arguments={"x-queue-type": "stream"})
        channel.publish_many([message(number) for number in range(300)], name)
    texts = {"value": "json", "valueSchema": SCHEMA, "includeBody": "true"}
    spark_table = read(name, **texts).toArrow().sort_by("offset")
    arrow_table = pa.table(
        stream(uri, name, value="json", value_schema=SCHEMA, include_body=True)
    ).sort_by("offset")
    assert arrow_table.schema.names == spark_table.schema.names
    assert arrow_table.cast(spark_table.schema).to_pylist() == spark_table.to_pylist()
    assert arrow_table.num_rows == 300
