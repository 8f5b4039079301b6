# SPDX-License-Identifier: Apache-2.0
"""Batches that tasks stage and the driver commits, against a real broker, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from headrace.client import blocking
from headrace.client.url import Secret
from headrace.columns.options.kinds import OptionError
from headrace.columns.options.options import WriteOptions, write_options
from headrace.columns.runtime.connections import forget as disconnect
from headrace.spark.runtime.task import Task
from headrace.spark.write.exactly_once import (
    SinkTakenError,
    StagedPartition,
    abort,
    commit,
    forget,
    stage,
)
from headrace.spark.write.publish import PublishError
from headrace.spark.write.writer import BatchWriter, TaskResult
from support.queue_contents import all_ready

if TYPE_CHECKING:
    from headrace.testing import LocalBroker


@pytest.fixture
def broker(headrace_durable_broker: LocalBroker) -> Iterator[LocalBroker]:
    yield headrace_durable_broker
    disconnect(Secret(headrace_durable_broker.url))


def options(broker: LocalBroker, **given: Any) -> WriteOptions:
    return WriteOptions(uri=Secret(broker.url), exchange="", **{"routing_key": "q", **given})


def staged(
    asked: WriteOptions,
    *bodies: bytes | None,
    sink: str = "s",
    owner: str = "query",
    run: str = "run",
    batch: int = 0,
    partition: int = 0,
    attempt: int = 0,
) -> StagedPartition:
    rows = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
    return stage(
        asked,
        iter([rows] if bodies else []),
        sink=sink,
        owner=owner,
        run=run,
        batch=batch,
        task=Task(partition, attempt, owner, batch, run),
    )


def bodies(broker: LocalBroker) -> list[bytes]:
    with blocking.connect(broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("q", durable=True)
        return [message.body for message in all_ready(channel, "q")]


def test_a_batch_is_seen_when_it_is_committed_and_only_once(broker: LocalBroker) -> None:
    sink_options = options(broker)
    assert bodies(broker) == []
    lost = staged(sink_options, b"a", b"b", attempt=1)
    parts = [
        staged(sink_options, b"a", b"b", attempt=2),
        staged(sink_options, b"c", partition=1, attempt=3),
    ]
    assert (lost.count, parts[0].count, parts[1].count) == (2, 2, 1)
    assert bodies(broker) == []
    commit(sink_options, [*parts, staged(sink_options, partition=2)], 0)
    assert sorted(bodies(broker)) == [b"a", b"b", b"c"]
    commit(sink_options, parts, 0)
    again = staged(sink_options, b"a", b"b", attempt=4)
    assert again.already_committed
    commit(sink_options, [again], 0)
    assert bodies(broker) == []
    commit(sink_options, [staged(sink_options, b"d", batch=1)], 1)
    assert bodies(broker) == [b"d"]


def test_what_is_staged_survives_the_broker_and_a_new_run_gives_it_up(broker: LocalBroker) -> None:
    sink_options = options(broker)
    bodies(broker)
    part = staged(sink_options, b"kept")
    broker.restart()
    commit(sink_options, [part], 0)
    assert bodies(broker) == [b"kept"]
    late = staged(sink_options, b"late", batch=1)
    fresh = staged(sink_options, b"fresh", batch=1, run="another run")
    with pytest.raises(Exception, match="has ended"):
        commit(sink_options, [late], 1)
    commit(sink_options, [fresh], 1)
    assert bodies(broker) == [b"fresh"]


def test_an_aborted_batch_is_not_seen(broker: LocalBroker) -> None:
    sink_options = options(broker)
    bodies(broker)
    part = staged(sink_options, b"a")
    abort(sink_options, "s", 0)
    with pytest.raises(Exception, match="unknown"):
        commit(sink_options, [part], 0)
    forget(sink_options, "s")
    assert bodies(broker) == []


def test_rows_that_cannot_be_published_are_told_by_their_number(broker: LocalBroker) -> None:
    sink_options = options(broker)
    bodies(broker)
    with pytest.raises(PublishError, match=r"1 of the 3 rows of partition 0 .* row 1 .*null"):
        staged(sink_options, b"private", None, b"private")
    nowhere = options(broker, routing_key="nowhere")
    with pytest.raises(PublishError, match=r"row 0 \(routing_key 'nowhere'\): ") as caught:
        staged(nowhere, b"private", b"private")
    assert "private" not in str(caught.value)
    assert bodies(broker) == []


def test_a_sink_of_another_query_is_refused_unless_told(broker: LocalBroker) -> None:
    named = options(broker, sink_id="s")
    bodies(broker)
    commit(named, [staged(named, b"1", batch=7)], 7)
    with pytest.raises(SinkTakenError, match=r"has the batches of query query, and query new"):
        staged(named, b"2", owner="new")
    delivery = options(broker, sink_id="s", sink_takeover=True)
    commit(delivery, [staged(delivery, b"3", owner="new")], 0)
    assert bodies(broker) == [b"1", b"3"]


def test_a_broker_that_is_no_headrace_is_refused(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking.Connection, "server_properties", {})
    with pytest.raises(OptionError, match=r"'deliveryGuarantee'.*set it to 'at-least-once'"):
        staged(options(broker), b"a")


def write_batch(broker: LocalBroker, batch: int, *found: bytes | None, **given: str) -> int:
    """Write a batch like Spark with one task; return the number of committed rows."""
    schema = StructType([StructField("body", BinaryType())])
    options = {
        "uri": broker.url,
        "exchange": "",
        "routingKey": "q",
        "sinkId": "own",
        "batchId": str(batch),
    }
    writer = BatchWriter({**options, **given}, schema, overwrite=False)
    rows = pa.RecordBatch.from_pydict({"body": pa.array(found, pa.binary())})
    done: list[TaskResult | None] = []
    try:
        done.append(pickle.loads(pickle.dumps(writer)).write(iter([rows, rows.slice(0, 0)])))
    except PublishError:
        writer.abort([None])
        raise
    writer.commit([*done, None])
    assert done[0] is not None
    return done[0].count


def test_a_batch_write_with_a_number_is_written_once(broker: LocalBroker) -> None:
    assert bodies(broker) == []
    assert write_batch(broker, 0, b"a", b"b") == 2
    assert write_batch(broker, 0, b"a", b"b") == 0
    assert bodies(broker) == [b"a", b"b"]
    with pytest.raises(PublishError):
        write_batch(broker, 1, b"c", None)
    assert write_batch(broker, 1, b"c") == 1
    assert write_batch(broker, 0, b"late") == 0
    assert bodies(broker) == [b"c"]
    commit(options(broker), [staged(options(broker), b"x", sink="taken", batch=4)], 4)
    assert bodies(broker) == [b"x"]
    with pytest.raises(SinkTakenError, match="the batches of query query"):
        write_batch(broker, 5, b"y", sinkId="taken")
    assert write_batch(broker, 0, b"y", sinkId="taken", sinkTakeover="true") == 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"batchId": "1"}, "'batchId' needs option 'sinkId'"),
        ({"sinkId": "s"}, "'sinkId' of a batch write needs option 'batchId'"),
        (
            {"sinkId": "s", "batchId": "1", "deliveryGuarantee": "at-least-once"},
            "'batchId' contradicts",
        ),
        ({"sinkId": "s", "batchId": "-1"}, "'batchId' must be a whole number"),
    ],
)
def test_batch_numbers_need_a_sink_and_its_guarantee(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        write_options({"uri": "amqp://127.0.0.1", "exchange": "e", **given})
