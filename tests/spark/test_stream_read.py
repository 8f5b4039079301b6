# SPDX-License-Identifier: Apache-2.0
"""spark.readStream.format("amqp"): offsets in the checkpoint, and each record once in the sink."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message, blocking
from support.spark.spark_query_log import forget_last

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.testing.broker import ChildBroker

pytestmark = pytest.mark.spark
Follow = Callable[..., "DataFrame"]
Publish = Callable[..., None]

COLUMNS = ("offset", "stream", "body")


def run(frame: DataFrame, home: Path) -> list[dict[str, Any]]:
    """Append the present records to Parquet files under `home`; return the batches with records."""
    query = begin(frame, home)
    query.awaitTermination()
    return [batch for batch in query.recentProgress if batch["numInputRows"]]


def begin(frame: DataFrame, home: Path) -> StreamingQuery:
    """Start the query of `run` without waiting for its end."""
    return (
        frame.select(*COLUMNS)
        .writeStream.format("parquet")
        .option("path", str(home / "out"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def kept(spark: SparkSession, home: Path) -> list[tuple[str, int]]:
    """Return the rows of the Parquet files: stream and offset, in order."""
    rows = spark.read.parquet(str(home / "out")).select("stream", "offset").collect()
    return sorted(tuple(row) for row in rows)


def logged_offsets(home: Path) -> list[Any]:
    """Return `pos`, and `from` if present, of each offset in the checkpoint, in order."""
    logs = sorted(
        (path for path in (home / "checkpoint" / "offsets").iterdir() if path.name.isdigit()),
        key=lambda path: int(path.name),
    )
    offsets = [json.loads(log.read_text().splitlines()[-1]) for log in logs]
    return [{key: one[key] for key in ("from", "pos") if key in one} for one in offsets]


def bodies(count: int) -> list[str]:
    """Return different bodies."""
    return [f"body {index}" for index in range(count)]


def test_available_now_reads_all_in_batches_of_a_limit(
    spark: SparkSession, follow: Follow, publish: Publish, name: str, tmp_path: Path
) -> None:
    publish(name, *bodies(25))
    batches = run(follow(name, maxRecordsPerTrigger=10), tmp_path)
    assert [batch["numInputRows"] for batch in batches] == [10, 10, 5]
    assert kept(spark, tmp_path) == [(name, offset) for offset in range(25)]
    assert logged_offsets(tmp_path) == [
        {"from": {name: 0}, "pos": {name: 10}},
        {"pos": {name: 20}},
        {"pos": {name: 25}},
    ]


def test_a_restart_goes_on_where_the_checkpoint_stands(
    spark: SparkSession, follow: Follow, publish: Publish, name: str, tmp_path: Path
) -> None:
    publish(name, *bodies(5))
    run(follow(name), tmp_path)
    assert run(follow(name), tmp_path) == []
    publish(name, *bodies(3))
    batches = run(follow(name), tmp_path)
    assert [batch["numInputRows"] for batch in batches] == [3]
    assert kept(spark, tmp_path) == [(name, offset) for offset in range(8)]


def test_a_batch_whose_commit_was_lost_is_in_the_files_once(
    spark: SparkSession, follow: Follow, publish: Publish, name: str, tmp_path: Path
) -> None:
    publish(name, *bodies(20))
    run(follow(name, maxRecordsPerTrigger=10), tmp_path)
    assert forget_last(tmp_path / "checkpoint" / "commits") == 1
    publish(name, *bodies(5))
    run(follow(name, maxRecordsPerTrigger=10), tmp_path)
    assert kept(spark, tmp_path) == [(name, offset) for offset in range(25)]


def test_a_batch_that_never_reached_the_files_is_read_again_as_it_was(
    spark: SparkSession, follow: Follow, publish: Publish, name: str, tmp_path: Path
) -> None:
    """The files of the batch are lost, too, so only the logged offsets define its records."""
    publish(name, *bodies(20))
    run(follow(name, maxRecordsPerTrigger=10), tmp_path)
    forget_last(tmp_path / "checkpoint" / "commits")
    forget_last(tmp_path / "out" / "_spark_metadata")
    publish(name, *bodies(5))
    batches = run(follow(name, maxRecordsPerTrigger=1000), tmp_path)
    assert [batch["numInputRows"] for batch in batches] == [10, 5]
    assert kept(spark, tmp_path) == [(name, offset) for offset in range(25)]


def test_latest_stays_what_it_was_when_the_first_batch_is_replayed(
    spark: SparkSession, follow: Follow, publish: Publish, name: str, tmp_path: Path
) -> None:
    publish(name, *bodies(10))
    run(follow(name, startingOffsets="latest"), tmp_path)
    assert logged_offsets(tmp_path) == [{"from": {name: 10}, "pos": {name: 10}}]
    forget_last(tmp_path / "checkpoint" / "commits")
    publish(name, *bodies(5))
    run(follow(name, startingOffsets="latest"), tmp_path)
    assert kept(spark, tmp_path) == [(name, offset) for offset in range(10, 15)]


def test_a_first_batch_with_records_is_replayed_from_where_it_began(
    spark: SparkSession, follow: Follow, publish: Publish, name: str, tmp_path: Path
) -> None:
    publish(name, *bodies(10))
    run(follow(name, startingOffsets=f'{{"{name}": 4}}'), tmp_path)
    forget_last(tmp_path / "checkpoint" / "commits")
    forget_last(tmp_path / "out" / "_spark_metadata")
    publish(name, *bodies(5))
    # The option is not what it was; the batch is.
    run(follow(name, startingOffsets="latest"), tmp_path)
    assert kept(spark, tmp_path) == [(name, offset) for offset in range(4, 15)]


def test_a_running_query_reads_what_arrives(
    spark: SparkSession, follow: Follow, publish: Publish, name: str
) -> None:
    publish(name)
    table = re.sub(r"\W", "_", name)
    query = follow(name).writeStream.format("memory").queryName(table).start()
    try:
        for count in (3, 7):
            publish(name, *bodies(count))
            query.processAllAvailable()
        assert spark.table(table).count() == 10
        latest = json.loads(query.lastProgress["sources"][0]["latestOffset"])
        assert latest["pos"] == {name: 10}
    finally:
        query.stop()


def test_available_now_leaves_what_comes_later_to_the_next_run(
    spark: SparkSession, follow: Follow, publish: Publish, name: str, tmp_path: Path
) -> None:
    """Records that arrive during the first batch are beyond the target fixed at the start."""
    publish(name, *bodies(10))
    publish(f"{name}.late", "x")
    late = []

    def append(frame: DataFrame, batch: int) -> None:
        if not late:
            publish(name, *bodies(5))
        late.append(frame.count())

    def available_now() -> None:
        query = (
            follow(name, maxRecordsPerTrigger=4)
            .writeStream.foreachBatch(append)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    available_now()
    assert late == [4, 4, 2]
    available_now()
    assert late == [4, 4, 2, 4, 1]


def test_a_stream_that_is_added_later_is_read_from_its_beginning(
    spark: SparkSession, follow: Follow, publish: Publish, name: str, tmp_path: Path
) -> None:
    first, second = f"{name}.a", f"{name}.b"
    publish(first, *bodies(4))
    run(follow(first), tmp_path)
    publish(second, *bodies(3))
    run(follow(json.dumps([first, second]), startingOffsets="latest"), tmp_path)
    assert kept(spark, tmp_path) == [
        *((first, offset) for offset in range(4)),
        *((second, offset) for offset in range(3)),
    ]


def test_a_limit_is_shared_by_the_streams(
    spark: SparkSession, follow: Follow, publish: Publish, name: str, tmp_path: Path
) -> None:
    publish(f"{name}.a", *bodies(30))
    publish(f"{name}.b", *bodies(1))
    streams = json.dumps([f"{name}.a", f"{name}.b"])
    batches = run(follow(streams, maxRecordsPerTrigger=10), tmp_path)
    assert [batch["numInputRows"] for batch in batches] == [10, 10, 10, 1]
    assert json.loads(batches[0]["sources"][0]["endOffset"])["pos"] == {
        f"{name}.a": 9,
        f"{name}.b": 1,
    }
    assert len(kept(spark, tmp_path)) == 31


def test_a_stream_made_again_under_a_checkpoint_is_an_error(
    follow: Follow,
    publish: Publish,
    connection: blocking.Connection,
    name: str,
    tmp_path: Path,
) -> None:
    publish(name, *bodies(5))
    run(follow(name), tmp_path)
    connection.channel().delete_queue(name)
    publish(name, "another beginning")
    query = begin(follow(name), tmp_path)
    with pytest.raises(Exception, match=r"deleted and created again; start with a new checkpoint"):
        query.awaitTermination()


def test_records_dropped_before_they_were_read_are_an_error_unless_allowed(
    spark: SparkSession,
    follow: Follow,
    connection: blocking.Connection,
    name: str,
    tmp_path: Path,
) -> None:
    channel = connection.channel()
    arguments: dict[str, Any] = {"x-queue-type": "stream", "x-max-length-bytes": 20_000}
    arguments["x-stream-max-segment-size-bytes"] = 5_000
    channel.declare_queue(name, durable=True, arguments=arguments)
    channel.publish("first", name)
    run(follow(name), tmp_path)
    channel.publish_many([Message(bytes(1000))] * 200, name)
    first = connection.stream(name).first_offset()
    assert first > 1
    query = begin(follow(name), tmp_path)
    with pytest.raises(Exception, match=rf"from offset 1 to {first - 1}.*'failOnDataLoss'"):
        query.awaitTermination()
    run(follow(name, failOnDataLoss="false"), tmp_path)
    actual = [offset for _, offset in kept(spark, tmp_path)]
    assert actual == [0, *range(first, 201)]


def test_a_query_goes_on_after_a_crash_of_the_broker(
    spark: SparkSession, headrace_process: ChildBroker, name: str, tmp_path: Path
) -> None:
    def append(*contents: str) -> None:
        with blocking.connect(headrace_process.url) as opened, opened.channel() as channel:
            channel.declare_queue(name, durable=True, arguments={"x-queue-type": "stream"})
            channel.publish_many(contents, name)

    append(*bodies(10))
    query = (
        spark.readStream.format("amqp")
        .options(uri=headrace_process.url, stream=name, startingOffsets="earliest")
        .load()
        .select(*COLUMNS)
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        headrace_process.kill()
        headrace_process.start()
        append(*bodies(5))
        query.processAllAvailable()
    finally:
        query.stop()
    assert kept(spark, tmp_path) == [(name, offset) for offset in range(15)]
