# SPDX-License-Identifier: Apache-2.0
"""Streams and queues as Arrow, over a real broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headrace
from headrace.arrow import Records, queue, stream
from headrace.client.errors import AccessRefused, AuthenticationFailed, ConnectFailed
from headrace.client.message import Message
from headrace.columns.errors import DataLossError, StreamMissingError
from headrace.columns.options.kinds import OptionError
from headrace.columns.read.decoded_rows import DecodeError
from headrace.columns.runtime import connections
from headrace.columns.runtime.connections import TooManyReadsError, reserve_pool
from headrace.columns.schema.columns import COLUMNS, CONTENT_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client import blocking
    from headrace.testing.broker import ChildBroker

STREAM = {"x-queue-type": "stream"}


def fill(
    connection: blocking.Connection,
    name: str,
    bodies: list[str] | list[Message],
    arguments: dict[str, Any] = STREAM,
) -> None:
    """Make a stream, or a queue, of these messages."""
    with connection.channel() as channel:
        channel.declare_queue(name, durable=True, arguments=arguments)
        channel.publish_many(bodies, name)


def offsets(records: Records) -> list[int]:
    return [offset for batch in records for offset in batch.column("offset").to_pylist()]


def test_columns_are_those_of_a_message(
    connection: blocking.Connection, broker: ChildBroker, name: str
) -> None:
    sent = datetime(2026, 1, 31, 12, tzinfo=UTC)
    message = Message(b"a", headers={"k": 1}, priority=3, message_id="m", timestamp=sent)
    before = datetime.now(UTC) - timedelta(seconds=1)
    fill(connection, name, [message])
    records = stream(broker.url, name)
    assert records.schema.equals(pa.schema([one for one in COLUMNS if one.name != CONTENT_HEADER]))
    (row,) = pa.table(records).to_pylist()
    assert (row["body"], row["routing_key"], row["stream"], row["offset"]) == (b"a", name, name, 0)
    assert dict(row["headers"]) == {"k": "1"}
    assert row["properties"]["priority"] == 3
    assert row["properties"]["message_id"] == "m"
    assert row["properties"]["timestamp"] == sent
    assert before <= row["timestamp"] <= datetime.now(UTC)


def test_bounds_are_taken_once_and_each_read_begins_anew(
    connection: blocking.Connection, broker: ChildBroker, name: str
) -> None:
    fill(connection, name, ["a", "b"])
    records = stream(broker.url, name)
    fill(connection, name, ["c"])
    for _ in range(2):
        assert pa.table(records).column("body").to_pylist() == [b"a", b"b"]
    assert [batch.num_rows for batch in records] == [2]
    assert offsets(stream(broker.url, name)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"first": 3, "last": 6}, [3, 4, 5]),
        ({"first": "latest"}, []),
        ({"last": "earliest"}, []),
        ({"since": timedelta(hours=1)}, list(range(10))),
        ({"since": datetime.now(UTC) + timedelta(hours=1)}, []),
        ({"since": "2020-01-01T00:00:00Z", "last": 2}, [0, 1]),
        ({"first": datetime(2020, 1, 1, tzinfo=UTC), "last": "2020-01-02T00:00:00Z"}, []),
    ],
)
def test_a_read_begins_and_ends_where_it_is_told(
    connection: blocking.Connection,
    broker: ChildBroker,
    name: str,
    bounds: dict[str, Any],
    expected: list[int],
) -> None:
    fill(connection, name, [str(number) for number in range(10)])
    assert offsets(stream(broker.url, name, **bounds)) == expected


def test_a_moment_counts_to_the_millisecond(
    connection: blocking.Connection, broker: ChildBroker, name: str
) -> None:
    """AMQP's own times are seconds."""
    for _ in range(5):
        fill(connection, name, ["x"] * 20)
    found = pa.table(stream(broker.url, name, columns=["offset", "timestamp"])).to_pylist()
    for row in found[::7]:
        at = row["timestamp"]
        expected = [one["offset"] for one in found if one["timestamp"] >= at]
        assert offsets(stream(broker.url, name, since=at)) == expected
        assert offsets(stream(broker.url, name, last=at)) == sorted(
            {one["offset"] for one in found} - set(expected)
        )


def test_a_filter_is_applied_by_the_broker(
    connection: blocking.Connection, broker: ChildBroker, name: str
) -> None:
    marked = [
        Message(b"x", headers={"x-stream-filter-value": value}) for value in ("eu", "us", "eu")
    ]
    fill(connection, name, [*marked, Message(b"plain")])
    assert offsets(stream(broker.url, name, filter="eu")) == [0, 2]
    assert offsets(stream(broker.url, name, filter=["us"])) == [1]
    assert offsets(stream(broker.url, name, filter="us", filter_match_unfiltered=True)) == [1, 3]


def test_several_streams_are_read_one_after_the_other(
    connection: blocking.Connection, broker: ChildBroker, name: str
) -> None:
    for index in range(2):
        fill(connection, f"{name}.{index}", [f"{index}a", f"{index}b"])
    found = pa.table(stream(broker.url, [f"{name}.1", f"{name}.0"]))
    assert found.column("body").to_pylist() == [b"0a", b"0b", b"1a", b"1b"]


def test_columns_that_are_not_selected_are_not_made(
    connection: blocking.Connection, broker: ChildBroker, name: str
) -> None:
    fill(connection, name, ["not json", '{"a": 1}'])
    records = stream(broker.url, name, value="json", value_schema="a INT")
    assert records.select("offset").schema.names == ["offset"]
    assert offsets(records.select("offset")) == [0, 1]
    # A row that is dropped is dropped whatever is selected.
    dropping = stream(broker.url, name, value="json", value_schema="a INT", mode="DROPMALFORMED")
    assert offsets(dropping.select("offset")) == [1]
    with pytest.raises(KeyError, match="no column 'price'; the columns are value"):
        records.select("price")


def test_bodies_are_decoded_by_the_options_of_sparks_source(
    connection: blocking.Connection, broker: ChildBroker, name: str
) -> None:
    bodies = ['{"a": 1, "at": "2026-01-31T12:00:00"}', "no", '{"a": 2}']
    fill(connection, name, bodies)
    schema = "a INT, at TIMESTAMP"
    table = pa.table(
        stream(broker.url, name, value="json", value_schema=schema, time_zone="Europe/Paris")
    )
    assert table.column("value").to_pylist() == [
        {"a": 1, "at": datetime(2026, 1, 31, 11, tzinfo=UTC)},
        None,
        {"a": 2, "at": None},
    ]
    assert table.column("_corrupt_record").to_pylist() == [None, b"no", None]
    inferred = stream(broker.url, name, value="json")
    assert inferred.schema.field("value").type == pa.struct(
        [("a", pa.int64()), ("at", pa.string())]
    )
    strict = stream(broker.url, name, value="json", value_schema=schema, mode="FAILFAST")
    with pytest.raises(DecodeError, match=f"offset 1 of '{name}'"):
        list(strict)


def test_a_queue_is_looked_at(connection: blocking.Connection, broker: ChildBroker) -> None:
    fill(connection, "waiting", ["a", "b"], {})
    records = queue(broker.url, "waiting")
    for _ in range(2):
        assert pa.table(records).column("body").to_pylist() == [b"a", b"b"]
    with connection.channel() as channel:
        assert channel.declare_queue("waiting", durable=True, passive=True).message_count == 2


def test_a_batch_has_limits(
    connection: blocking.Connection, broker: ChildBroker, name: str
) -> None:
    fill(connection, name, ["x"] * 25)
    assert [one.num_rows for one in stream(broker.url, name, batch_rows=10)] == [10, 10, 5]
    large = Message(bytes(6 << 20))
    fill(connection, f"{name}.large", [large] * 7)
    assert [one.num_rows for one in stream(broker.url, f"{name}.large")] == [3, 3, 1]
    with pytest.raises(OptionError, match="argument 'batch_rows' must be 1 to 1000000; got 0"):
        stream(broker.url, name, batch_rows=0)


def test_reads_that_advance_together_do_not_hold_each_other_back(
    connection: blocking.Connection, broker: ChildBroker, name: str
) -> None:
    """One of them leaves more unread than a connection takes in."""
    fill(connection, name, [Message(bytes(1 << 20))] * 40)
    records = stream(broker.url, name)
    slow, fast = iter(records), iter(records)
    first = next(slow)
    assert sum(batch.num_rows for batch in fast) == 40
    assert first.num_rows + sum(batch.num_rows for batch in slow) == 40


def test_a_read_that_ends_early_gives_its_connection_back(
    connection: blocking.Connection, broker: ChildBroker, name: str
) -> None:
    fill(connection, name, ["x"] * 100)
    records = stream(broker.url, name, batch_rows=10)
    for _ in range(connections.POOLS_MAX + 1):
        reader = records.reader()
        assert reader.read_next_batch().num_rows == 10
        reader.close()
        del reader
    assert not connections._pools
    assert all(key[3] == 0 for key in connections._connections)


def test_reads_at_once_have_a_limit(broker: ChildBroker, name: str) -> None:
    uri = connections_uri(broker)
    held = [reserve_pool(uri) for _ in range(connections.POOLS_MAX)]
    for one in held:
        one.__enter__()
    try:
        with pytest.raises(TooManyReadsError, match="64 reads are open at once"), reserve_pool(uri):
            pass
    finally:
        for one in held:
            one.__exit__(None, None, None)


def connections_uri(broker: ChildBroker) -> Any:
    from headrace.client.url import Secret

    return Secret(broker.url)


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"first": 7}, "argument 'first' gives offset 7"),
    ({"first": -1}, "argument 'first' must be 0 or more"),
    ({"first": 1, "last": 0}, "argument 'last' gives offset 0.*before 1"),
    ({"first": 0, "since": "2020-01-01T00:00:00Z"}, "'since' contradict"),
    ({"since": NAIVE}, "argument 'since' needs a time zone"),
    ({"first": "noon"}, "argument 'first' must be"),
    ({"value_shema": "a INT"}, "did you mean 'value_schema'"),
    ({"min_partitions": 2}, "no argument 'min_partitions'"),
    ({"value": "json", "mode": "DEADLETTER"}, "reading changes nothing"),
    ({"value": "yaml"}, "option 'value' must be"),
]


@pytest.mark.parametrize(("arguments", "text"), WRONG)
def test_a_wrong_argument_is_named(
    connection: blocking.Connection,
    broker: ChildBroker,
    name: str,
    arguments: dict[str, Any],
    text: str,
) -> None:
    fill(connection, name, ["a"])
    with pytest.raises(OptionError, match=text):
        stream(broker.url, name, **arguments)


def test_what_is_wrong_is_said_at_once(
    connection: blocking.Connection, broker: ChildBroker, name: str
) -> None:
    fill(connection, name, ["a"])
    fill(connection, "plain", ["a"], {})
    url = broker.url
    wrong: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: stream(url, "none"), StreamMissingError, "argument 'name': .*no stream 'none'"),
        (lambda: stream(url, "plain"), StreamMissingError, "has no stream 'plain'"),
        (lambda: queue(url, name), OptionError, "is a stream, which is read without a lease"),
        (lambda: queue(url, "none"), OptionError, "argument 'name': no queue 'none'"),
        (lambda: stream("amqp://127.0.0.1:1/", name), ConnectFailed, "nothing listens on"),
    ]
    for ask, error, text in wrong:
        with pytest.raises(error, match=text):
            ask()


def test_logins_and_permissions_are_the_brokers(
    connection: blocking.Connection, broker: ChildBroker, reader_url: str, name: str
) -> None:
    fill(connection, name, ["a"])
    fill(connection, "closed.a", ["a"])
    fill(connection, "closed.q", ["a"], {})
    assert offsets(stream(reader_url, name)) == [0]
    with pytest.raises(AccessRefused, match=r"'closed\.a'.*refused for user 'reader'"):
        stream(reader_url, "closed.a")
    # What is asked of a queue is a message.
    with pytest.raises(AccessRefused, match=r"write access to exchange 'amq\.default'"):
        queue(reader_url, "closed.q")
    with pytest.raises(AuthenticationFailed):
        stream(broker.url_of("reader", "wrong", "/"), name)


def test_records_that_retention_dropped_are_an_error(
    connection: blocking.Connection, broker: ChildBroker, name: str
) -> None:
    limits = {**STREAM, "x-max-length-bytes": 200_000, "x-stream-max-segment-size-bytes": 100_000}
    fill(connection, name, ["x" * 1000] * 10, limits)
    records = stream(broker.url, name)
    with connection.channel() as channel:
        channel.publish_many(["x" * 1000] * 2000, name)
    with pytest.raises(DataLossError, match="no longer has the records from offset 0 to 9"):
        list(records)
    assert offsets(stream(broker.url, name, first=0, last=5, fail_on_data_loss=False)) == []


def test_an_error_of_a_read_reaches_the_consumer(
    connection: blocking.Connection, broker: ChildBroker, name: str
) -> None:
    fill(connection, name, ["no"])
    strict = stream(broker.url, name, value="json", value_schema="a INT", mode="FAILFAST")
    imported = pa.RecordBatchReader.from_stream(strict)
    with pytest.raises(Exception, match=f"offset 0 of '{name}'"):
        imported.read_all()


PROGRAM = """
import sys
sys.modules["pyspark"] = None  # An import of it fails.
import pyarrow as pa
import headrace.arrow
records = headrace.arrow.stream(sys.argv[1], sys.argv[2], value="json")
print(pa.table(records).column("value").to_pylist())
"""


def test_neither_spark_nor_java_is_needed(
    connection: blocking.Connection, broker: ChildBroker, name: str
) -> None:
    fill(connection, name, [json.dumps({"a": 1})])
    environment = {"PYTHONPATH": str(Path(headrace.__file__).parent.parent), "PATH": os.devnull}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, broker.url, name],
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("[{'a': 1}]\n", "")
