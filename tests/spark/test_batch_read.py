# SPDX-License-Identifier: Apache-2.0
"""spark.read.format("amqp"): ranges of streams, in parallel."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headrace.client import Message
from headrace.columns.schema.columns import COLUMNS, CONTENT_HEADER, parse_columns
from headrace.spark.schema.types import struct_from_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.client import blocking

pytestmark = pytest.mark.spark
Read = Callable[..., "DataFrame"]
Publish = Callable[..., None]


def offsets(frame: DataFrame) -> list[int]:
    """Return the offsets of a DataFrame, sorted."""
    return sorted(row.offset for row in frame.select("offset").collect())


def failure(frame: Callable[[], Any]) -> str:
    """Return the error that the user sees when a query fails."""
    with pytest.raises(Exception) as caught:  # Spark wraps ours in many ways.
        frame()
    return str(caught.value)


def test_every_column_of_a_record(read: Read, publish: Publish, name: str) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    sent = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
    message = Message(
        b"\x00\xff",
        content_type="text/plain",
        priority=3,
        message_id="m-1",
        timestamp=sent,
        headers={"plain": "ä", "nested": {"a": [1, None]}, "count": 7},
    )
    publish(name, message)
    (row,) = read(name).collect()
    assert bytes(row.body) == b"\x00\xff"
    assert (row.exchange, row.routing_key, row.stream, row.offset) == ("", name, name, 0)
    assert row.redelivered is False
    assert row.headers == {"plain": "ä", "nested": '{"a":[1,null]}', "count": "7"}
    properties = row.properties.asDict()
    assert properties.pop("timestamp").astimezone(UTC) == sent
    assert {key: value for key, value in properties.items() if value is not None} == {
        "content_type": "text/plain",
        "delivery_mode": 2,
        "priority": 3,
        "message_id": "m-1",
    }
    assert before <= row.timestamp.astimezone(UTC) <= datetime.now(UTC)


def test_the_schema_is_the_one_that_arrow_has(read: Read, publish: Publish, name: str) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    publish(name, "a")
    schema = read(name).schema
    usual = pa.schema([field for field in COLUMNS if field.name != CONTENT_HEADER])
    assert to_arrow_schema(schema, timezone="UTC").equals(usual)
    assert parse_columns(struct_from_spark(schema)).names == tuple(usual.names)


def test_offsets_begin_and_end_a_range(read: Read, publish: Publish, name: str) -> None:
    publish(name, *map(str, range(20)))
    assert offsets(read(name)) == list(range(20))
    some = read(name, startingOffsets=f'{{"{name}": 5}}', endingOffsets=f'{{"{name}": 8}}')
    assert [(row.offset, bytes(row.body)) for row in some.orderBy("offset").collect()] == [
        (5, b"5"),
        (6, b"6"),
        (7, b"7"),
    ]
    assert offsets(read(name, startingOffsets="latest")) == []
    assert offsets(read(name, endingOffsets="earliest")) == []


def test_a_range_begins_at_a_moment(read: Read, publish: Publish, name: str) -> None:
    publish(name, "a", "b")
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    long_ago = "2020-01-01T00:00:00Z"
    assert offsets(read(name, startingOffsets=f'{{"{name}": "{long_ago}"}}')) == [0, 1]
    assert offsets(read(name, startingOffsets=f'{{"{name}": "{soon}"}}')) == []


def test_partitions_share_a_range_without_gap_or_overlap(
    read: Read, publish: Publish, name: str
) -> None:
    from pyspark.sql.functions import spark_partition_id

    publish(name, *map(str, range(103)))
    frame = read(name, minPartitions=4)
    assert frame.rdd.getNumPartitions() == 4
    rows = frame.select("offset", spark_partition_id().alias("partition")).collect()
    pieces = [[row.offset for row in rows if row.partition == index] for index in range(4)]
    assert [len(piece) for piece in pieces] == [25, 26, 26, 26]
    assert list(chain(*pieces)) == list(range(103))


def test_tasks_of_two_partitions_read_at_the_same_time(
    read: Read, publish: Publish, name: str
) -> None:
    """Each of two tasks waits until the other has begun, so sequential tasks would never end."""
    publish(name, *map(str, range(10)))

    def meet(index: int, rows: Any) -> Any:
        from pyspark import BarrierTaskContext

        BarrierTaskContext.get().barrier()
        return [(index, [row.offset for row in rows])]

    frame = read(name, minPartitions=2).select("offset")
    met = frame.rdd.barrier().mapPartitionsWithIndex(meet).collect()
    assert met == [(0, [0, 1, 2, 3, 4]), (1, [5, 6, 7, 8, 9])]


def test_a_small_range_is_not_split_unless_asked(read: Read, publish: Publish, name: str) -> None:
    publish(name, *map(str, range(100)))
    assert read(name).rdd.getNumPartitions() == 1


def test_several_streams_in_one_read(read: Read, publish: Publish, name: str) -> None:
    publish(f"{name}.a", "a0", "a1")
    publish(f"{name}.b", "b0", "b1")
    frame = read(
        f'["{name}.a", "{name}.b"]',
        startingOffsets=f'{{"{name}.a": 1, "{name}.b": "earliest"}}',
    )
    actual = sorted((row.stream, row.offset, bytes(row.body)) for row in frame.collect())
    assert actual == [(f"{name}.a", 1, b"a1"), (f"{name}.b", 0, b"b0"), (f"{name}.b", 1, b"b1")]


def test_a_schema_chooses_columns(
    spark: SparkSession, publish: Publish, uri: str, name: str
) -> None:
    publish(name, "a")
    reader = spark.read.format("amqp").option("uri", uri).option("stream", name)
    frame = reader.schema("offset BIGINT, body BINARY").load()
    assert [tuple(row) for row in frame.collect()] == [(0, bytearray(b"a"))]
    text = failure(reader.schema("offset BIGINT, key STRING").load().collect)
    assert "format 'amqp' has no column 'key'; it has body, exchange, routing_key" in text


def test_an_empty_stream_gives_no_rows(read: Read, publish: Publish, name: str) -> None:
    publish(name)
    assert read(name).count() == 0


def test_bodies_of_a_megabyte(read: Read, publish: Publish, name: str) -> None:
    publish(name, *[bytes([index]) * (1 << 20) for index in range(20)])
    rows = read(name).selectExpr("offset", "length(body) AS size", "hex(substr(body, 1, 1)) AS h")
    actual = [tuple(row) for row in rows.orderBy("offset").collect()]
    assert actual == [(index, 1 << 20, f"{index:02X}") for index in range(20)]


def test_offsets_that_retention_dropped_are_an_error_unless_allowed(
    read: Read, connection: blocking.Connection, name: str
) -> None:
    channel = connection.channel()
    arguments: dict[str, Any] = {"x-queue-type": "stream", "x-max-length-bytes": 20_000}
    arguments["x-stream-max-segment-size-bytes"] = 5_000
    channel.declare_queue(name, durable=True, arguments=arguments)
    channel.publish_many([bytes(1000)] * 200, name)
    first = connection.stream(name).first_offset()
    assert first > 0
    start = f'{{"{name}": 0}}'
    text = failure(read(name, startingOffsets=start).collect)
    assert f"stream '{name}' no longer has the records from offset 0 to {first - 1}" in text
    assert "set option 'failOnDataLoss' to 'false'" in text
    retained = read(name, startingOffsets=start, failOnDataLoss="false")
    assert offsets(retained) == list(range(first, 200))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "newest"}, "option 'startingOffsets' must be 'earliest', 'latest' or"),
        ({"startingOffsets": '{"STREAM": 99}'}, "gives offset 99 for stream 'STREAM', which ends"),
        (
            {"startingOffsets": "latest", "endingOffsets": "earliest"},
            "'endingOffsets' gives offset 0 for stream 'STREAM', before 1 of",
        ),
        ({"maxRecordsPerTrigger": "5"}, "'maxRecordsPerTrigger' is for streaming reads only"),
        (
            {"strem": "x"},
            "unknown option 'strem' for reading with format 'amqp'; did you mean 'stream'",
        ),
        ({"stream": "no-such-stream"}, "the broker has no stream 'no-such-stream'"),
        ({"uri": "amqp://nobody:xyz@127.0.0.1:1/"}, "127.0.0.1:1"),
    ],
)
def test_a_bad_option_is_named_to_the_user(
    spark: SparkSession,
    publish: Publish,
    uri: str,
    name: str,
    options: dict[str, str],
    text: str,
) -> None:
    publish(name, "a")
    texts = {"uri": uri, "stream": name}
    texts |= {key: value.replace("STREAM", name) for key, value in options.items()}
    message = failure(lambda: spark.read.format("amqp").options(**texts).load().collect())
    assert text.replace("STREAM", name) in message
