# SPDX-License-Identifier: Apache-2.0
"""Batch reads of queues look at them, and leave everything where it is."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import BinaryType, BooleanType, LongType, StringType, StructField, StructType

from headrace.client import blocking
from headrace.columns.browse import part_count
from headrace.columns.options.kinds import OptionError
from headrace.columns.options.options import read_options
from headrace.spark.queue.snapshot import SnapshotReader
from pyspark_amqp import DefaultSource

if TYPE_CHECKING:
    from headrace.columns.options.options import ReadOptions
    from headrace.testing.broker import LocalBroker

SCHEMA = StructType(
    [
        StructField("body", BinaryType()),
        StructField("offset", LongType()),
        StructField("stream", StringType()),
        StructField("redelivered", BooleanType()),
    ]
)


@pytest.fixture
def channel(broker: LocalBroker) -> Iterator[blocking.Channel]:
    with blocking.connect(broker.url) as connection:
        yield connection.channel()


def reader(broker: LocalBroker, queue: str, **options: str) -> SnapshotReader:
    texts = {"uri": broker.url, "queue": queue, **options}
    result = DefaultSource({key.lower(): value for key, value in texts.items()}).reader(SCHEMA)
    assert isinstance(result, SnapshotReader)
    return result


def read(made: SnapshotReader) -> list[list[dict[str, Any]]]:
    """Return the rows of each partition, read with a pickled reader like in a task."""
    actual = []
    for partition in made.partitions():
        task, task_partition = pickle.loads(pickle.dumps((made, partition)))
        actual.append([row for batch in task.read(task_partition) for row in batch.to_pylist()])
    return actual


def test_a_queue_is_looked_at_and_left(broker: LocalBroker, channel: blocking.Channel) -> None:
    channel.declare_queue("looked")
    channel.publish_many(map(str, range(100)), "looked")
    for options in ({}, {"minPartitions": "4"}, {"maxRecordsPerPartition": "30"}):
        actual = read(reader(broker, "looked", **options))
        assert len(actual) == (4 if options else 1)
        rows = [row for some in actual for row in some]
        assert [int(row["body"]) for row in rows] == list(range(100))
        assert {row["stream"] for row in rows} == {"looked"}
        assert len({row["offset"] for row in rows}) == 100
    assert channel.declare_queue("looked", passive=True).message_count == 100


def test_what_was_delivered_before_says_so(broker: LocalBroker, channel: blocking.Channel) -> None:
    channel.declare_queue("redelivered")
    channel.publish_many(["a", "b"], "redelivered")
    delivery = channel.get("redelivered")
    assert delivery is not None
    delivery.nack(requeue=True)
    channel.declare_queue("redelivered", passive=True)  # The nack has been done.
    (rows,) = read(reader(broker, "redelivered"))
    assert [row["redelivered"] for row in rows] == [True, False]


def test_an_empty_queue_has_no_rows(broker: LocalBroker, channel: blocking.Channel) -> None:
    channel.declare_queue("empty")
    assert sum(map(len, read(reader(broker, "empty")))) == 0


def test_a_queue_that_is_not_there_is_named(broker: LocalBroker, channel: blocking.Channel) -> None:
    with pytest.raises(OptionError, match=r"option 'queue': .*nowhere"):
        reader(broker, "nowhere").partitions()
    channel.declare_queue("a-stream", arguments={"x-queue-type": "stream"})
    with pytest.raises(OptionError, match=r"option 'queue': .*is a stream"):
        reader(broker, "a-stream").partitions()


def options(**given: str) -> ReadOptions:
    return read_options({"uri": "amqp://broker", "queue": "q", **given}, streaming=False)


def test_a_queue_is_cut_by_its_messages() -> None:
    assert part_count(options(), 0) == 1
    assert part_count(options(minPartitions="7"), 3) == 7
    assert part_count(options(minPartitions="2", maxRecordsPerPartition="10"), 95) == 10
    assert part_count(options(maxRecordsPerPartition="1"), 1_000_000) == 1000
