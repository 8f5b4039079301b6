# SPDX-License-Identifier: Apache-2.0
"""spark.readStream.format("amqp").option("queue", …): each message once, and settled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import blocking
from headrace.client.blocking_pipeline import Requests
from support.spark.spark_query_log import forget_last

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.testing.broker import ChildBroker

pytestmark = pytest.mark.spark


def begin(
    spark: SparkSession, home: Path, *, available_now: bool = True, **options: str
) -> StreamingQuery:
    """Append the bodies and numbers of a queue's messages to Parquet files."""
    writer = (
        spark.readStream.format("amqp")
        .options(**options)
        .load()
        .selectExpr("CAST(body AS STRING) AS body", "offset", "stream")
        .writeStream.format("parquet")
        .option("path", str(home / "out"))
        .option("checkpointLocation", str(home / "checkpoint"))
    )
    return (writer.trigger(availableNow=True) if available_now else writer).start()


def kept(spark: SparkSession, home: Path) -> list[int]:
    """Return the bodies in the Parquet files, sorted."""
    rows = spark.read.parquet(str(home / "out")).select("body").collect()
    return sorted(int(row.body) for row in rows)


def lease(connection: blocking.Connection, queue: str) -> dict[str, Any]:
    """Return the lease as the broker reports it."""
    with Requests(connection) as requests:
        return requests.ask("lease.info", queue=queue, group="spark")


def test_a_queue_is_read_once_and_settled(
    spark: SparkSession, connection: blocking.Connection, uri: str, name: str, tmp_path: Path
) -> None:
    """The newest entries of Spark's log and of the files' log are lost, too."""
    channel = connection.channel()
    channel.declare_queue(name)
    channel.publish_many(map(str, range(250)), name)
    options: dict[str, Any] = {
        "uri": uri,
        "queue": name,
        "maxRecordsPerTrigger": "100",
        "minPartitions": "2",
    }
    query = begin(spark, tmp_path, **options)
    query.awaitTermination()
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert sizes == [100, 100, 50, 0]
    assert kept(spark, tmp_path) == list(range(250))
    state = lease(connection, name)
    assert (state["settled"], state["next"], state["ready"]) == (250, 250, 0)
    channel.publish_many(map(str, range(250, 300)), name)
    forget_last(tmp_path / "checkpoint" / "commits")
    begin(spark, tmp_path, **options).awaitTermination()
    assert kept(spark, tmp_path) == list(range(300))
    assert lease(connection, name)["settled"] == 300


def test_a_batch_read_of_a_queue_takes_nothing(
    spark: SparkSession, connection: blocking.Connection, uri: str, name: str
) -> None:
    channel = connection.channel()
    channel.declare_queue(name)
    channel.publish_many(map(str, range(50)), name)
    reader = spark.read.format("amqp").options(uri=uri, queue=name, minPartitions="2")
    rows = reader.load().selectExpr("CAST(body AS STRING) AS body", "stream").collect()
    assert sorted(int(row.body) for row in rows) == list(range(50))
    assert {row.stream for row in rows} == {name}
    assert channel.declare_queue(name, passive=True).message_count == 50


def test_a_query_goes_on_after_a_crash_of_the_broker(
    spark: SparkSession, headrace_process: ChildBroker, name: str, tmp_path: Path
) -> None:
    def append(first: int, last: int) -> None:
        with blocking.connect(headrace_process.url) as opened, opened.channel() as channel:
            channel.declare_queue(name)
            channel.publish_many(map(str, range(first, last)), name)

    append(0, 100)
    options: dict[str, Any] = {
        "uri": headrace_process.url,
        "queue": name,
        "maxRecordsPerTrigger": "30",
    }
    query = begin(spark, tmp_path, available_now=False, **options)
    try:
        query.processAllAvailable()
        headrace_process.kill()
        headrace_process.start()
        append(100, 200)
        query.processAllAvailable()
    finally:
        query.stop()
    assert kept(spark, tmp_path) == list(range(200))
    with blocking.connect(headrace_process.url) as connection:
        assert lease(connection, name)["settled"] == 200
    append(200, 210)
    begin(spark, tmp_path, **options).awaitTermination()  # The same query, in another process.
    assert kept(spark, tmp_path) == list(range(210))
