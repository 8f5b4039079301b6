# SPDX-License-Identifier: Apache-2.0
"""Option `archive`: what retention dropped is read from the table, the rest from the broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message, blocking
from headrace.columns.schema.columns import DDL as COLUMNS_DDL
from support.spark.spark_query_log import forget_last

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
Load = Callable[..., "DataFrame"]

LIMITS: dict[str, Any] = {
    "x-queue-type": "stream",
    "x-max-length-bytes": 100_000,
    "x-stream-max-segment-size-bytes": 5_000,
}
DDL = f"{COLUMNS_DDL}, content_header BINARY"


class Fixture:
    """A stream that retention shortens, and its archive."""

    def __init__(
        self,
        spark: SparkSession,
        read: Load,
        connection: blocking.Connection,
        name: str,
        home: Path,
    ) -> None:
        self.spark = spark
        self.read = read
        self.connection = connection
        self.name = name
        self.path = str(home / "lake")
        self.home = home
        self.channel = connection.channel()
        self.channel.declare_queue(name, durable=True, arguments=LIMITS)
        self.next = 0

    def publish(self, count: int) -> None:
        """Append messages of about 2,200 bytes, with properties and headers of many types."""
        for first in range(self.next, self.next + count, 5):  # A segment has 64 KiB at least.
            last = min(first + 5, self.next + count)
            self.channel.publish_many([_message(one) for one in range(first, last)], self.name)
        self.next += count

    def archive(self, first: int, last: int) -> None:
        """Write a range to the archive, in the format of `headrace pipeline archive`."""
        rows = self.rows(first, last)
        rows.selectExpr("*", "to_date(timestamp) AS date").sortWithinPartitions(
            "stream", "offset"
        ).write.mode("append").partitionBy("date").parquet(self.path)

    def rows(self, first: int, last: int, **options: str) -> DataFrame:
        """Read a range as a batch."""
        bounds = {"startingOffsets": first, "endingOffsets": last}
        texts = {key: json.dumps({self.name: at}) for key, at in bounds.items()}
        reader = self.spark.read.format("amqp").schema(DDL)
        return reader.options(**self.options, **texts, **options).load()

    @property
    def options(self) -> dict[str, str]:
        raise NotImplementedError

    def oldest(self) -> int:
        """Return the first offset at the broker."""
        return self.connection.stream(self.name).first_offset()


def _message(number: int) -> Message:
    return Message(
        bytes([number % 256]) * 2000,
        content_type="text/plain",
        message_id=f"{number}",
        priority=number % 10,
        correlation_id="é" * (number % 3),
        timestamp=datetime(2026, 1, 31, 12, tzinfo=UTC),
        headers={
            "number": number,
            "text": "one",
            "nothing": None,
            "yes": True,
            "half": 0.5,
            "money": Decimal("12.50"),
            "bytes": b"\xff\x00",
            "list": [1, "two", {"three": 3}],
            "when": datetime(2026, 1, 31, tzinfo=UTC),
        },
    )


@pytest.fixture
def lake(
    spark: SparkSession,
    read: Load,
    uri: str,
    connection: blocking.Connection,
    name: str,
    tmp_path: Path,
) -> Fixture:
    """A stream with offsets 0 to 49, all archived, of which retention has dropped the first."""

    class Here(Fixture):
        @property
        def options(self) -> dict[str, str]:
            return {"uri": uri, "stream": name}

    fixture = Here(spark, read, connection, name, tmp_path)
    for first, last in ((0, 40), (40, 50)):
        fixture.publish(last - first)
        fixture.archive(first, last)
    assert 0 < fixture.oldest() < 50
    return fixture


def stream(lake: Fixture, **options: str) -> list[dict[str, Any]]:
    """Append the present records to Parquet by a streaming query; return the batches with rows."""
    texts = {"startingOffsets": "earliest", "archive": lake.path, **options}
    frame = lake.spark.readStream.format("amqp").schema(DDL).options(**lake.options, **texts).load()
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(lake.home / "out"))
        .option("checkpointLocation", str(lake.home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [batch for batch in query.recentProgress if batch["numInputRows"]]


def kept(lake: Fixture) -> list[int]:
    """Return the offsets in the files of the query, sorted."""
    rows = lake.spark.read.parquet(str(lake.home / "out")).select("offset").collect()
    return sorted(row["offset"] for row in rows)


def test_rows_of_the_archive_are_those_of_the_broker(lake: Fixture) -> None:
    before = lake.oldest()
    here = lake.rows(before, 50).orderBy("offset").collect()
    lake.publish(100)
    assert lake.oldest() >= 50
    there = lake.rows(before, 50, archive=lake.path).orderBy("offset").collect()
    assert [row.asDict(recursive=True) for row in there] == [
        row.asDict(recursive=True) for row in here
    ]
    assert len(there) == 50 - before
    assert there[0]["headers"]["list"] == '[1,"two",{"three":3}]'


def test_a_batch_read_from_the_first_record_ever(lake: Fixture) -> None:
    frame = lake.read(lake.name, archive=lake.path)
    assert sorted(row["offset"] for row in frame.select("offset").collect()) == list(range(50))


def test_a_decoded_read_decodes_archived_bodies(lake: Fixture) -> None:
    frame = lake.read(lake.name, archive=lake.path, value="binary")
    actual = {row["offset"]: row["value"][0] for row in frame.select("offset", "value").collect()}
    assert actual == {offset: offset for offset in range(50)}


def test_a_stream_is_read_across_the_border_and_on(lake: Fixture) -> None:
    batches = stream(lake, maxRecordsPerTrigger="20")
    assert [one["numInputRows"] for one in batches] == [20, 20, 10]
    lake.publish(5)
    stream(lake)
    assert kept(lake) == list(range(55))


def test_a_replayed_batch_agrees_after_retention_went_on(lake: Fixture) -> None:
    """A batch with records of the broker runs when only the archive has these records."""
    stream(lake)
    forget_last(lake.home / "checkpoint" / "commits")
    forget_last(lake.home / "out" / "_spark_metadata")
    lake.publish(100)
    assert lake.oldest() >= 50
    with pytest.raises(Exception, match=r"no records of stream .* from offset 50 to"):
        stream(lake)
    assert kept(lake) == list(range(50))
    lake.archive(lake.oldest(), 150)
    stream(lake, failOnDataLoss="false")
    oldest = min(set(kept(lake)) - set(range(50)))
    assert kept(lake) == [*range(50), *range(oldest, 150)]


def test_a_hole_is_named_or_counted(lake: Fixture) -> None:
    for path in Path(lake.path).rglob("*.parquet"):
        table = lake.spark.read.parquet(str(path)).agg({"offset": "min"}).collect()
        if table[0][0] == 0:
            path.unlink()
    frame = lake.rows(0, 50, archive=lake.path)
    with pytest.raises(Exception, match=rf"archive {lake.path} has no records of stream"):
        frame.collect()
    stream(lake, failOnDataLoss="false", startingOffsets=json.dumps({lake.name: 0}))
    actual = kept(lake)
    assert actual == list(range(actual[0], 50))
    log = max((lake.home / "checkpoint" / "offsets").glob("[0-9]*"))
    offset = json.loads(log.read_text().splitlines()[-1])
    assert offset["lost"] == {lake.name: actual[0]}
    assert offset["gaps"] == {lake.name: [[0, actual[0]]]}


def test_a_group_reads_the_archive_as_well(lake: Fixture) -> None:
    stream(lake, group="readers", maxRecordsPerTrigger="20")
    assert kept(lake) == list(range(50))


def test_an_archive_of_another_stream_of_that_name(lake: Fixture) -> None:
    lake.channel.delete_queue(lake.name)
    lake.channel.declare_queue(lake.name, durable=True, arguments=LIMITS)
    lake.publish(5)
    with pytest.raises(Exception, match=r"has offset 49 of stream .*, which ends at 5"):
        lake.read(lake.name, archive=lake.path).collect()


def test_a_moment_is_found_in_the_archive(lake: Fixture) -> None:
    row = lake.rows(10, 11, archive=lake.path).collect()[0]
    moment = row["timestamp"].astimezone(UTC).isoformat()
    frame = lake.read(lake.name, archive=lake.path, startingTimestamp=moment)
    assert min(one["offset"] for one in frame.select("offset").collect()) <= 10


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"archive": "/no/such/lake"}, "there is no archive at /no/such/lake"),
        (
            {"archive": "s3://key:secret@bucket/lake"},
            "must be a directory that driver and workers share",
        ),
        ({"archive": "/lake", "filter": "a"}, "'archive' and 'filter' contradict each other"),
    ],
)
def test_a_bad_archive_is_named(
    read: Load, publish: Callable[..., None], name: str, options: dict[str, str], text: str
) -> None:
    publish(name, "one")
    with pytest.raises(Exception, match=text) as caught:
        read(name, **options).collect()
    assert "secret" not in str(caught.value)
