# SPDX-License-Identifier: Apache-2.0
"""df.write and df.writeStream: rows into an exchange, all confirmed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.queue_contents import all_ready
from support.spark.fake_registry import fake_registry
from support.spark.spark_query_log import forget_last

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.client import blocking

pytestmark = pytest.mark.spark
Follow = Callable[..., "DataFrame"]
Publish = Callable[..., None]


LEAST = {"deliveryGuarantee": "at-least-once"}


def write(frame: DataFrame, uri: str, **options: Any) -> None:
    """Publish a DataFrame."""
    frame.write.format("amqp").option("uri", uri).options(**options).mode("append").save()


def failure(frame: DataFrame, uri: str, **options: Any) -> str:
    """Publish a DataFrame, and return the error that the user sees."""
    with pytest.raises(Exception) as caught:  # Spark wraps ours in many ways.
        write(frame, uri, **options)
    return str(caught.value)


def drained(connection: blocking.Connection, queue: str) -> list[blocking.Delivery]:
    """Return all messages of a queue."""
    return all_ready(connection.channel(), queue)


def test_rows_arrive_with_properties_and_headers(
    spark: SparkSession, connection: blocking.Connection, uri: str, name: str
) -> None:
    connection.channel().declare_queue(name)
    frame = spark.sql(
        "SELECT 'text ä' AS value, map('a', 'b', 'none', null) AS headers, "
        "named_struct('content_type', 'text/plain', 'message_id', 'm-1', 'priority', 5, "
        "'delivery_mode', 1, 'expiration', '60000', "
        "'timestamp', TIMESTAMP '2026-01-31 12:30:00') AS properties"
    )
    write(frame, uri, exchange="", routingKey=name)
    (delivery,) = drained(connection, name)
    assert delivery.text() == "text ä"
    assert delivery.headers == {"a": "b", "none": None}
    assert (delivery.content_type, delivery.message_id, delivery.priority) == (
        "text/plain",
        "m-1",
        5,
    )
    assert not delivery.persistent
    assert delivery.timestamp == datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
    assert delivery.expiration is not None
    assert delivery.expiration.total_seconds() == 60


def test_columns_say_where_each_row_goes(
    spark: SparkSession, connection: blocking.Connection, uri: str, name: str
) -> None:
    channel = connection.channel()
    channel.declare_exchange(name, "topic")
    for queue, key in ((f"{name}.red", "colour.red"), (f"{name}.rest", "colour.*.rest")):
        channel.declare_queue(queue)
        channel.bind_queue(queue, name, key)
    frame = spark.createDataFrame(
        [
            (b"1", name, "colour.red"),
            (b"2", None, "colour.blue.rest"),
            (b"3", "", f"{name}.red"),
            (b"4", None, None),
        ],
        "body BINARY, exchange STRING, routing_key STRING",
    )
    write(frame, uri, exchange=name, routingKey="colour.red")
    assert sorted(one.body for one in drained(connection, f"{name}.red")) == [b"1", b"3", b"4"]
    assert [one.body for one in drained(connection, f"{name}.rest")] == [b"2"]


def test_a_struct_becomes_avro(
    spark: SparkSession, connection: blocking.Connection, uri: str, name: str
) -> None:
    connection.channel().declare_queue(name)
    fields = [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}]
    schema = {"type": "record", "name": "Order", "fields": fields}
    frame = spark.sql("SELECT named_struct('id', 7L, 'note', CAST(NULL AS STRING)) AS value")
    with fake_registry() as registry:
        more = {"avroFraming": "registry", "schemaRegistry": registry.url}
        more |= {"schemaSubject": "orders", "value": "avro", "valueSchema": json.dumps(schema)}
        write(frame, uri, exchange="", routingKey=name, **more)
        message = failure(
            frame.selectExpr("named_struct('id', 7) AS value"), uri, **more, exchange=name
        )
    assert [one.body for one in drained(connection, name)] == [b"\0\0\0\0\1\x0e\0"]
    assert "column 'value' must be of type struct<id:bigint,note:string>" in message


def test_many_rows_of_many_partitions_all_arrive(
    spark: SparkSession, connection: blocking.Connection, uri: str, name: str
) -> None:
    connection.channel().declare_queue(name)
    frame = spark.range(5000).repartition(3).selectExpr("CAST(id AS STRING) AS value")
    write(frame, uri, exchange="", routingKey=name)
    actual = [int(one.body) for one in drained(connection, name)]
    assert sorted(actual) == list(range(5000))


def test_a_row_that_reaches_no_queue_fails_the_write_unless_allowed(
    spark: SparkSession, connection: blocking.Connection, uri: str, name: str
) -> None:
    channel = connection.channel()
    channel.declare_exchange(name, "direct")
    channel.declare_queue(name)
    channel.bind_queue(name, name, "good")
    frame = spark.createDataFrame(
        [("a", "good"), ("b", "bad"), ("c", "good")], "value STRING, routing_key STRING"
    ).coalesce(1)
    message = failure(frame, uri, exchange=name, **LEAST)
    assert "1 of the 3 rows of partition 0 were not published: row 1 " in message
    assert f"(exchange '{name}', routing_key 'bad'): 312 NO_ROUTE: " in message
    drained(connection, name)
    write(frame, uri, exchange=name, mandatory="false")
    assert [one.body for one in drained(connection, name)] == [b"a", b"c"]


def test_bad_rows_are_reported_one_by_one_without_their_content(
    spark: SparkSession, connection: blocking.Connection, uri: str, name: str
) -> None:
    connection.channel().declare_queue(name)
    frame = spark.createDataFrame(
        [("private", None), (None, None), ("private", "k" * 256)],
        "value STRING, routing_key STRING",
    ).coalesce(1)
    message = failure(frame, uri, exchange="", routingKey=name)
    assert "2 of the 3 rows of partition 0 were not published" in message
    assert f"row 1 (routing_key '{name}'): the body is null; row 2 " in message
    assert "the routing key has more than 255 bytes" in message
    assert "private" not in message


def test_a_message_refused_by_the_broker_fails_the_write(
    spark: SparkSession, connection: blocking.Connection, uri: str, name: str
) -> None:
    arguments: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
    connection.channel().declare_queue(name, arguments=arguments)
    frame = spark.createDataFrame([("a",), ("b",)], "value STRING").coalesce(1)
    message = failure(frame, uri, exchange="", routingKey=name, **LEAST)
    assert f"row 1 (routing_key '{name}'): the broker refused the message (basic.nack)" in message


def test_a_missing_exchange_is_named(spark: SparkSession, uri: str) -> None:
    message = failure(spark.createDataFrame([("a",)], "value STRING"), uri, exchange="no-such")
    assert "no exchange 'no-such'" in message


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("value STRING", {}, "option 'exchange' is missing, and there is no column 'exchange'"),
        ("value STRING", {"exchange": ""}, "option 'routingKey' is missing"),
        ("value INT", {"exchange": "x"}, "'value' must be of type binary or string, not int"),
        ("v STRING", {"exchange": "x"}, "cannot publish a column 'v'; the columns of a message"),
        ("value STRING", {"exchange": "x", "topic": "t"}, "unknown option 'topic' for writing"),
        ("value STRING", {"exchange": "x", "mandatory": "1"}, "must be 'true' or 'false'; got '1'"),
    ],
)
def test_what_is_wrong_with_a_write_is_said_before_it_starts(
    spark: SparkSession, uri: str, columns: str, options: dict[str, str], text: str
) -> None:
    assert text in failure(spark.createDataFrame([], columns), uri, **options)


def test_nothing_can_be_overwritten(spark: SparkSession, uri: str) -> None:
    frame = spark.createDataFrame([("a",)], "value STRING")
    writer = frame.write.format("amqp").option("uri", uri).option("exchange", "x")
    with pytest.raises(Exception, match=r"append"):
        writer.mode("overwrite").save()


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_stream_flows_through_spark_into_a_queue(
    follow: Follow,
    publish: Publish,
    connection: blocking.Connection,
    uri: str,
    name: str,
    tmp_path: Path,
    guarantee: str,
) -> None:
    connection.channel().declare_queue(f"{name}.queue")
    publish(name, *map(str, range(50)))

    def run() -> None:
        query = (
            follow(name, maxRecordsPerTrigger=20)
            .selectExpr("body", "named_struct('message_id', concat(stream, offset)) AS properties")
            .writeStream.format("amqp")
            .option("uri", uri)
            .option("exchange", "")
            .option("routingKey", f"{name}.queue")
            .option("deliveryGuarantee", guarantee)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    actual = drained(connection, f"{name}.queue")
    assert sorted(int(one.body) for one in actual) == list(range(50))
    run()
    assert drained(connection, f"{name}.queue") == []
    # Spark dies before it notes that a batch is committed, and runs it again.
    assert forget_last(tmp_path / "checkpoint" / "commits") == 2
    run()
    again = [one.message_id for one in drained(connection, f"{name}.queue")]
    twice = [f"{name}{offset}" for offset in range(40, 50)]
    assert sorted(again) == (twice if guarantee == "at-least-once" else [])  # type: ignore[type-var]


def test_a_failing_batch_stops_the_query_and_is_published_when_it_can_be(
    follow: Follow,
    publish: Publish,
    connection: blocking.Connection,
    uri: str,
    name: str,
    tmp_path: Path,
) -> None:
    publish(name, *map(str, range(5)))

    def run() -> None:
        query = (
            follow(name)
            .select("body")
            .writeStream.format("amqp")
            .option("uri", uri)
            .option("exchange", "")
            .option("routingKey", f"{name}.queue")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(Exception, match=r"1 of the 5 rows of partition .* were not published"):
        run()
    connection.channel().declare_queue(f"{name}.queue")
    run()
    assert len(drained(connection, f"{name}.queue")) == 5


def test_a_batch_write_is_all_or_nothing(
    spark: SparkSession, connection: blocking.Connection, uri: str, name: str
) -> None:
    connection.channel().declare_queue(name)
    rows = spark.range(100, numPartitions=3).selectExpr(
        "CAST(id AS STRING) AS value", f"IF(id = 99, 'nowhere-{name}', '{name}') AS routing_key"
    )
    assert "of partition 2 were not published: row 33 " in failure(rows, uri, exchange="")
    assert drained(connection, name) == []
    write(rows.where("value != '99'"), uri, exchange="")
    assert len(drained(connection, name)) == 99


def test_a_sink_id_of_another_query_is_refused(
    follow: Follow,
    publish: Publish,
    connection: blocking.Connection,
    uri: str,
    name: str,
    tmp_path: Path,
) -> None:
    connection.channel().declare_queue(f"{name}.queue")
    publish(name, *map(str, range(5)))

    def run(checkpoint: str, **options: str) -> None:
        (
            follow(name)
            .select("body")
            .writeStream.format("amqp")
            .options(uri=uri, exchange="", routingKey=f"{name}.queue", sinkId=name[-60:], **options)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    run("first")
    assert len(drained(connection, f"{name}.queue")) == 5
    with pytest.raises(Exception, match=r"option 'sinkId': sink .* 'sinkTakeover' to 'true'"):
        run("second")
    assert drained(connection, f"{name}.queue") == []
    run("second", sinkTakeover="true")
    assert len(drained(connection, f"{name}.queue")) == 5
