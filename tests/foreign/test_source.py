# SPDX-License-Identifier: Apache-2.0
"""The data source against RabbitMQ: streams exactly once, classic queues through a spool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import blocking
from headrace.columns.options.options import read_options
from headrace.columns.runtime import connections

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Name = Callable[[str], str]


def publish(url: str, queue: str, first: int, last: int, **arguments: Any) -> None:
    with blocking.connect(url) as connection, connection.channel() as channel:
        channel.declare_queue(queue, durable=True, arguments=arguments)
        assert channel.publish_many((f"{n}" for n in range(first, last)), queue) == last - first


def ready(url: str, queue: str) -> int:
    with blocking.connect(url) as connection, connection.channel() as channel:
        return channel.declare_queue(queue, passive=True).message_count


def run(frame: DataFrame, out: Path, checkpoint: Path) -> int:
    """Read what is there into files; return how many batches that took."""
    query = (
        frame.selectExpr("CAST(body AS STRING) AS body")
        .writeStream.format("json")
        .option("path", str(out))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    return len(query.recentProgress)


def found(spark: SparkSession, out: Path) -> list[int]:
    return sorted(int(row.body) for row in spark.read.json(str(out)).collect())


def lose_last_commit(checkpoint: Path) -> None:
    """Spark forgets that it committed the last batch, and runs it again."""
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    crc = commits[-1].with_name(f".{commits[-1].name}.crc")
    crc.unlink(missing_ok=True)


def test_a_stream_is_read_exactly_once(
    spark: SparkSession, url: str, name: Name, tmp_path: Path
) -> None:
    stream = name("stream")
    publish(url, stream, 0, 700, **{"x-queue-type": "stream"})
    reader = spark.readStream.format("amqp").option("uri", url).option("stream", stream)
    reader = reader.option("startingOffsets", "earliest").option("maxRecordsPerTrigger", 300)
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    assert run(reader.load(), out, checkpoint) >= 3
    assert found(spark, out) == list(range(700))
    lose_last_commit(checkpoint)
    publish(url, stream, 700, 800, **{"x-queue-type": "stream"})
    run(reader.load(), out, checkpoint)
    assert found(spark, out) == list(range(800))
    batch = spark.read.format("amqp").option("uri", url).option("stream", stream)
    assert batch.option("startingOffsets", f'{{"{stream}": 100}}').load().count() == 700


def test_a_classic_queue_is_read_through_a_spool(
    spark: SparkSession, url: str, name: Name, tmp_path: Path
) -> None:
    queue = name("queue")
    publish(url, queue, 0, 500)
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    options = {"uri": url, "queue": queue, "spoolDirectory": str(tmp_path / "spool")}
    reader = spark.readStream.format("amqp").options(**options, maxRecordsPerTrigger=200)
    run(reader.load(), out, checkpoint)
    assert found(spark, out) == list(range(500))
    assert ready(url, queue) == 0
    lose_last_commit(checkpoint)
    publish(url, queue, 500, 600)
    run(reader.load(), out, checkpoint)
    assert found(spark, out) == list(range(600))  # Files know their batches: once, here.
    assert ready(url, queue) == 0


def test_a_queue_needs_a_spool(spark: SparkSession, url: str, name: Name, tmp_path: Path) -> None:
    publish(url, name("q"), 0, 1)
    reader = spark.readStream.format("amqp").option("uri", url).option("queue", name("q"))
    with pytest.raises(Exception, match="spoolDirectory"):
        run(reader.load(), tmp_path / "out", tmp_path / "checkpoint")


def test_nothing_unacked_is_lost_with_the_driver(url: str, name: Name, tmp_path: Path) -> None:
    """A batch that was taken and not committed comes again under its numbers, once."""
    from headrace.spark.queue.spool_lease import SpoolLease

    queue = name("q")
    publish(url, queue, 0, 100)
    given = {"uri": url, "queue": queue, "spoolDirectory": str(tmp_path / "spool")}
    options = read_options(given, streaming=True)
    spooled = SpoolLease(options)
    spooled.claim("me")
    assert spooled.take("me", 0, 60, 1 << 30) == 60
    connections.forget(options.uri)
    spooled.close()
    publish(url, queue, 100, 120)
    spooled = SpoolLease(options)
    state = spooled.claim("me")
    assert (state.settled, state.next) == (0, 60)
    assert spooled.take("me", 0, 1000, 1 << 30) == 60
    assert spooled.take("me", 60, 1000, 1 << 30) == 120
    assert spooled.settle("me", 120) == 120
    connections.forget(options.uri)
    spooled.close()
    assert ready(url, queue) == 0
