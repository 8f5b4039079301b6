# SPDX-License-Identifier: Apache-2.0
"""Queries that would lose or repeat records are refused, with a text that says why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from headrace.client import blocking
from headrace.testing.broker import LocalBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


def begin(
    spark: SparkSession, checkpoint: Path, *, available_now: bool, **options: str
) -> StreamingQuery:
    writer = (
        spark.readStream.format("amqp")
        .options(**options)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
    )
    return (writer.trigger(availableNow=True) if available_now else writer).start()


@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_a_group_has_one_query(
    spark: SparkSession,
    connection: blocking.Connection,
    uri: str,
    name: str,
    tmp_path: Path,
    kind: str,
) -> None:
    queue = re.sub(r"\W", "-", name)
    arguments = {"x-queue-type": "stream"} if kind == "stream" else None
    channel = connection.channel()
    channel.declare_queue(queue, arguments=arguments)
    channel.publish_many(map(str, range(20)), queue)
    options = {"uri": uri, kind: queue, "group": "reports", "groupTimeout": "1s"}
    if kind == "stream":
        options["startingOffsets"] = "earliest"
    first = begin(spark, tmp_path / "first", available_now=False, **options)
    try:
        first.processAllAvailable()
        second = begin(spark, tmp_path / "second", available_now=True, **options)
        with pytest.raises(StreamingQueryException, match="another query"):
            second.awaitTermination()
        channel.publish_many(map(str, range(5)), queue)
        first.processAllAvailable()
        assert first.exception() is None
        assert sum(progress["numInputRows"] for progress in first.recentProgress) == 25
    finally:
        first.stop()


@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_a_checkpoint_belongs_to_one_broker(
    spark: SparkSession,
    connection: blocking.Connection,
    uri: str,
    name: str,
    tmp_path: Path,
    kind: str,
) -> None:
    queue = re.sub(r"\W", "-", name)
    arguments = {"x-queue-type": "stream"} if kind == "stream" else None
    with LocalBroker() as other, blocking.connect(other.url) as there:
        for one in (connection, there):
            channel = one.channel()
            channel.declare_queue(queue, arguments=arguments)
            channel.publish_many(map(str, range(10)), queue)
        options = {kind: queue} | ({"startingOffsets": "earliest"} if kind == "stream" else {})
        begin(spark, tmp_path, available_now=True, uri=uri, **options).awaitTermination()
        moved = begin(spark, tmp_path, available_now=True, uri=other.url, **options)
        with pytest.raises(StreamingQueryException, match="the checkpoint was made with broker"):
            moved.awaitTermination()
