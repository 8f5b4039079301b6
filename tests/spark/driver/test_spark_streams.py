# SPDX-License-Identifier: Apache-2.0
"""The streaming reader of streams with a real broker, driven as Spark drives it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message, blocking
from headrace.client.blocking_pipeline import Requests
from headrace.columns.errors import DataLossError
from headrace.columns.options.kinds import OptionError
from headrace.columns.schema.offsets import OffsetError
from headrace.spark.driver.micro_batch import StreamReader
from headrace.testing.broker import LocalBroker
from support.spark.spark_micro_batches import Checkpoint, Query

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

COLUMNS = ("stream", "offset", "body")
STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def publish(connection: blocking.Connection) -> Callable[..., None]:
    """Return a function that appends bodies to a stream; the first call declares the stream."""
    channel = connection.channel()

    def append(stream: str, *bodies: str | Message, **arguments: Any) -> None:
        channel.declare_queue(stream, arguments={**STREAM, **arguments})
        channel.publish_many(bodies, stream)

    return append


class Run:
    """Successive queries with one checkpoint and one sink."""

    def __init__(self, broker: LocalBroker, **options: str) -> None:
        self.options = {"uri": broker.url, "startingOffsets": "earliest", **options}
        self.checkpoint = Checkpoint()
        self.rows: dict[int, list[dict[str, Any]]] = {}

    def query(self, **options: str) -> Query:
        return Query({**self.options, **options}, self.checkpoint, self.rows, *COLUMNS)

    def read(self) -> list[tuple[str, int]]:
        """Return the content of the sink: stream and offset, sorted."""
        return sorted((row["stream"], row["offset"]) for rows in self.rows.values() for row in rows)

    def sizes(self) -> list[int]:
        return [len(self.rows[batch]) for batch in sorted(self.rows)]


def test_a_pattern_finds_streams_also_while_the_query_runs(
    broker: LocalBroker, publish: Callable[..., None]
) -> None:
    publish("found-a", "1", "2")
    publish("other-found-a", "1")
    run = Run(broker, streamPattern="found-.*")
    query = run.query()
    query.run()
    assert run.read() == [("found-a", 0), ("found-a", 1)]
    publish("found-b", "1")
    a_second_later(query)
    query.run()
    assert run.read() == [("found-a", 0), ("found-a", 1), ("found-b", 0)]


def test_a_partition_that_is_added_to_a_super_stream_is_read_from_its_beginning(
    broker: LocalBroker, connection: blocking.Connection
) -> None:
    channel = connection.channel()
    channel.declare_exchange("sales", "x-super-stream", arguments={"x-partitions": 2})

    def publish(first: int, last: int) -> None:
        for number in range(first, last):
            channel.publish(str(number), f"key-{number}", "sales")

    publish(0, 20)
    run = Run(broker, superStream="sales")
    query = run.query()
    query.run()
    assert {stream for stream, _ in run.read()} == {"sales-0", "sales-1"}
    Requests(connection).ask("superstream.add", exchange="sales", stream="sales-2")
    publish(20, 60)
    a_second_later(query)
    query.run()
    assert {stream for stream, _ in run.read()} == {"sales-0", "sales-1", "sales-2"}
    bodies = sorted(int(row["body"]) for rows in run.rows.values() for row in rows)
    assert bodies == list(range(60))
    with pytest.raises(OptionError, match=r"option 'superStream': .*nowhere"):
        Run(broker, superStream="nowhere").query().run()


def a_second_later(query: Query) -> None:
    """Let the cached names of streams expire."""
    query.reader.planner._broker._names_read_at_s = None  # type: ignore[attr-defined]


def test_limits_of_octets_make_batches(broker: LocalBroker, publish: Callable[..., None]) -> None:
    publish("octets", *(["x" * 1000] * 50))
    run = Run(broker, stream="octets", maxBytesPerTrigger="12k")
    assert run.query().available_now() >= 5
    assert max(run.sizes()) <= 12
    assert run.read() == [("octets", offset) for offset in range(50)]


def test_a_filter_leaves_out_what_does_not_match(
    broker: LocalBroker, publish: Callable[..., None]
) -> None:
    def message(body: str, value: str | None) -> Message:
        return Message(
            body.encode(), headers={} if value is None else {"x-stream-filter-value": value}
        )

    values = ["red", "blue", None, "red", "green"]
    publish("filtered", *(message(str(index), value) for index, value in enumerate(values)))
    run = Run(broker, stream="filtered", filter="red")
    run.query().available_now()
    assert run.read() == [("filtered", 0), ("filtered", 3)]
    run = Run(broker, stream="filtered", filter='["red", "green"]', filterMatchUnfiltered="true")
    run.query().available_now()
    assert [offset for _, offset in run.read()] == [0, 2, 3, 4]


def test_a_stream_made_again_is_refused_however_long_it_is(
    broker: LocalBroker, connection: blocking.Connection, publish: Callable[..., None]
) -> None:
    publish("again", "1", "2")
    run = Run(broker, stream="again")
    run.query().available_now()
    connection.channel().delete_queue("again")
    publish("again", "1", "2", "3")
    with pytest.raises(OffsetError, match="deleted and created again; start with a new checkpoint"):
        run.query().available_now()


def test_a_checkpoint_moved_to_another_broker_is_refused(
    broker: LocalBroker, publish: Callable[..., None]
) -> None:
    publish("moved", "1")
    run = Run(broker, stream="moved")
    run.query().available_now()
    with LocalBroker() as other, blocking.connect(other.url) as connection:
        connection.channel().declare_queue("moved", arguments=STREAM)
        with pytest.raises(OffsetError, match=r"made with broker .* start with a new checkpoint"):
            run.query(uri=other.url).available_now()


def test_a_gap_is_named_or_counted(
    broker: LocalBroker, connection: blocking.Connection, publish: Callable[..., None]
) -> None:
    limits = {"x-max-length-bytes": 20_000, "x-stream-max-segment-size-bytes": 5_000}
    publish("gap", "first", **limits)
    run = Run(broker, stream="gap")
    run.query().available_now()
    publish("gap", *[Message(bytes(1000))] * 100, **limits)
    first = connection.stream("gap").first_offset()
    assert first > 1
    with pytest.raises(DataLossError, match=rf"from offset 1 to {first - 1}.*'failOnDataLoss'"):
        run.query().available_now()
    query = run.query(failOnDataLoss="false")
    query.available_now()
    assert [offset for _, offset in run.read()] == [0, *range(first, 101)]
    last = run.checkpoint.offsets[max(run.checkpoint.offsets)]
    assert f'"lost": {{"gap": {first - 1}}}' in last
    assert query.reader.reportLatestOffset() is not None


def test_a_gap_that_opens_under_a_task_is_counted(
    broker: LocalBroker,
    connection: blocking.Connection,
    publish: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lost record counts once, even if its task runs again, and after a restart of the query."""
    limits = {"x-max-length-bytes": 20_000, "x-stream-max-segment-size-bytes": 5_000}
    publish("under", *[Message(b"old")] * 50, **limits)
    plan = StreamReader.partitions

    def overtaken(reader: StreamReader, *planned: dict[str, Any]) -> list[InputPartition]:
        publish("under", *[Message(bytes(1000))] * 50, **limits)
        return plan(reader, *planned)

    run = Run(broker, stream="under", failOnDataLoss="false")
    with monkeypatch.context() as patched:
        patched.setattr(StreamReader, "partitions", overtaken)
        assert run.query().step()
    run.checkpoint.forget_commit()
    run.query().available_now()
    first = connection.stream("under").first_offset()
    assert first > 50
    assert [offset for _, offset in run.read()] == list(range(first, 100))
    last = json.loads(run.checkpoint.offsets[max(run.checkpoint.offsets)])
    assert (last["lost"], last["skipped"]) == ({"under": first - 50}, {"under": 50})
    assert run.query().available_now() == 0


def test_a_lost_commit_log_repeats_the_batch(
    broker: LocalBroker, publish: Callable[..., None]
) -> None:
    publish("repeated", *map(str, range(5)))
    run = Run(broker, stream="repeated", startingOffsets="latest")
    run.query().run()
    publish("repeated", *map(str, range(5)))
    run.query().run()
    batch = run.checkpoint.forget_commit()
    before = run.rows.pop(batch)
    publish("repeated", "more")
    run.query()
    assert run.rows[batch] == before
    assert [row["offset"] for row in before] == list(range(5, 10))
