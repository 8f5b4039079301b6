# SPDX-License-Identifier: Apache-2.0
"""Streams whose old segments are in an object store: what clients read, what starts refuse."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.client import Message
from headrace.client.blocking import connect
from support.brokers.broker_process import Served, until

if TYPE_CHECKING:
    from headrace.wire.table import Value

BODY = bytes(range(256)) * 4
COUNT = 3000
ARGUMENTS: dict[str, Value] = {"x-queue-type": "stream", "x-local-max-length-bytes": 1 << 20}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    broker = Served(tmp_path, "--stream-store", f"file://{tmp_path}/store").start()
    yield broker
    broker.end()


def fill(served: Served, first: int = 0, last: int = COUNT) -> None:
    with connect(served.url) as connection, connection.channel() as channel:
        channel.declare_queue("events", arguments=ARGUMENTS)
        confirms = [
            channel.publish_soon(Message(body_of(k), headers={"k": k}), "events")
            for k in range(first, last)
        ]
        for confirm in confirms:
            confirm.wait()
    if last == COUNT:
        until(
            lambda: len(objects(served)) >= 5 and len(segments(served)) <= 10,
            "old segments are in the store",
        )


def body_of(k: int) -> bytes:
    return k.to_bytes(8, "big") + BODY


def objects(served: Served) -> list[Path]:
    """Return the objects of all streams."""
    return sorted((served.home / "store").glob("*/*/*.segment"))


def segments(served: Served) -> list[Path]:
    """Return the segments that are on the broker's disk."""
    return sorted((served.home / "data").glob("vhosts/*/streams/*/*.segment"))


def read(served: Served) -> list[tuple[int, object, bytes]]:
    with connect(served.url) as connection:
        return [
            (record.offset, record.message().headers["k"], bytes(record.body))
            for batch in connection.stream("events").read(0, COUNT)
            for record in batch
        ]


EXPECTED = [(k, k, body_of(k)) for k in range(COUNT)]


def test_a_reader_gets_every_record_also_after_a_kill(served: Served) -> None:
    fill(served)
    assert read(served) == EXPECTED
    served.kill()
    served.start()
    assert read(served) == EXPECTED


def test_a_time_finds_its_offset_in_the_store(served: Served) -> None:
    fill(served, 0, 1000)
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    until(lambda: datetime.now(UTC) >= moment, "the next second has begun")
    fill(served, 1000)
    with connect(served.url) as connection:
        assert connection.stream("events").offset_at(moment) == 1000


def test_a_deleted_stream_leaves_no_object(served: Served) -> None:
    fill(served)
    with connect(served.url) as connection, connection.channel() as channel:
        channel.delete_queue("events")
    until(lambda: not objects(served), "no object is left")


def test_a_start_without_the_store_is_refused(served: Served) -> None:
    fill(served)
    assert served.stop() == 0
    options, served.options = served.options, ()
    with pytest.raises(AssertionError, match="stream 'events' in vhost '/' has segments in"):
        served.start()
    served.options = options
    served.start()


def test_a_restored_copy_takes_nothing_from_its_original(served: Served, tmp_path: Path) -> None:
    fill(served)
    copy = Served(tmp_path / "copy", *served.options)
    served.administer("backup", str(tmp_path / "backup"))
    copy.home.mkdir()
    copy.administer("restore", str(tmp_path / "backup"))
    with pytest.raises(AssertionError, match="another data directory has the segments"):
        copy.start()
    assert read(served) == EXPECTED
    shutil.rmtree(tmp_path / "copy")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--stream-store", "ftp://bucket"), "ftp is not a scheme of an object store"),
        (("--stream-store", "s3:bucket"), "is not a scheme of an object store"),
        (("--stream-store", "memory:///"), "memory is not a scheme of an object store"),
        (("--memory", "--stream-store", "file:///nowhere"), "a broker in memory has no segments"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused(
    tmp_path: Path, options: tuple[str, ...], why: str
) -> None:
    broker = Served(tmp_path, *options)
    with pytest.raises(AssertionError, match=why):
        broker.start()
