# SPDX-License-Identifier: Apache-2.0
"""The spool of a queue: what was synced is there again, once, and nothing else is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.client import blocking
from headrace.columns.errors import GroupInUseError
from headrace.columns.options.kinds import OptionError
from headrace.columns.options.options import ReadOptions, read_options
from headrace.columns.read.spool import SEGMENT_BYTES, Spool, SpoolError, list_files, read_records
from headrace.columns.runtime import connections
from headrace.spark.queue.planner import QueuePlanner
from headrace.spark.queue.spool_lease import SpoolLease

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.testing import LocalBroker

WHAT = {"broker": "b", "queue": "q", "group": "g"}


def fill(spool: Spool, count: int, size: int = 10) -> None:
    for _ in range(count):
        body = spool.next.to_bytes(size, "big")
        spool.append(b"header", body, b"x", b"key", redelivered=False)
    spool.sync()


def numbers(path: Path, first: int, last: int) -> list[int]:
    actual = [record for batch in read_records(str(path), first, last) for record in batch]
    assert all(record[1] == b"header" and record[3:] == (b"x", b"key", False) for record in actual)
    assert all(int.from_bytes(record[2], "big") == record[0] for record in actual)
    return [record[0] for record in actual]


def test_ranges_are_there_again_until_they_are_settled(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), WHAT)
    fill(spool, 40, 1 << 20)
    assert len(list_files(tmp_path)) == 3
    assert numbers(tmp_path, 5, 38) == list(range(5, 38))
    spool.settle(20)
    assert [first for first, _ in list_files(tmp_path)] == [16, 32]
    spool.close()
    again = Spool(str(tmp_path), WHAT)
    assert (again.settled, again.next, again.id) == (20, 40, spool.id)
    assert [entry.number for entry in again.entries] == list(range(20, 40))
    assert again.size > 20 << 20
    fill(again, 1)
    assert numbers(tmp_path, 39, 41) == [39, 40]
    with pytest.raises(SpoolError, match="no record 41"):
        numbers(tmp_path, 40, 42)
    assert SEGMENT_BYTES == 16 << 20
    again.close()


def test_a_torn_end_is_cut_and_damage_is_told(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), WHAT)
    fill(spool, 5)
    spool.close()
    [(_, path)] = list_files(tmp_path)
    content = path.read_bytes()
    for end in range(len(content) - 1, len(content) - 50, -7):
        path.write_bytes(content[:end])
        spool = Spool(str(tmp_path), WHAT)
        assert spool.next == 4
        spool.close()
    path.write_bytes(content[:-3] + b"!!!" + bytes(50))
    spool = Spool(str(tmp_path), WHAT)
    assert spool.next == 4
    spool.settle(2)
    fill(spool, 3)
    spool.close()
    path.write_bytes(content[:100])
    with pytest.raises(SpoolError, match="is damaged at byte 52"):
        Spool(str(tmp_path), WHAT)


def test_a_spool_has_one_owner_and_one_queue(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), WHAT)
    with pytest.raises(SpoolError, match="in use"):
        Spool(str(tmp_path), WHAT)
    spool.close()
    with pytest.raises(SpoolError, match="is the spool of queue 'q', not of 'other'"):
        Spool(str(tmp_path), {**WHAT, "queue": "other"})


def options(broker: LocalBroker, path: Path, **more: str) -> ReadOptions:
    texts = {"uri": broker.url, "queue": "q", "spoolDirectory": str(path), **more}
    return read_options(texts, streaming=True)


def publish(broker: LocalBroker, first: int, last: int) -> None:
    with blocking.connect(broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("q")
        channel.publish_many([f"{n}" for n in range(first, last)], "q")


def ready(broker: LocalBroker) -> int:
    with blocking.connect(broker.url) as connection, connection.channel() as channel:
        return channel.declare_queue("q", passive=True).message_count


def bodies(path: Path, first: int, last: int) -> list[int]:
    return [int(record[2]) for batch in read_records(str(path), first, last) for record in batch]


def test_a_queue_without_leases_is_read_once_over_restarts(
    headrace_broker: LocalBroker, tmp_path: Path
) -> None:
    broker, path = headrace_broker, tmp_path / "spool"
    publish(broker, 0, 50)
    spool_options = options(broker, path, maxRecordsPerTrigger="20")
    spooled = SpoolLease(spool_options)
    planner = QueuePlanner(spool_options, spooled, lambda: 0.0)
    start = planner.initial_offset()
    first = planner.plan_batch(start)
    assert first is not None
    assert bodies(path, 0, first.positions["q"]) == list(range(20))
    second = planner.plan_batch(first)
    assert second is not None
    planner.commit(first)
    connections.forget(spool_options.uri)  # The driver dies: nothing of the second batch is acked.
    spooled.close()
    publish(broker, 50, 60)
    spooled = SpoolLease(spool_options)
    planner = QueuePlanner(spool_options, spooled, lambda: 0.0)
    assert bodies(path, 20, second.positions["q"]) == list(range(20, 40))
    planner.commit(second)
    third = planner.plan_batch(second)
    assert third is not None
    assert bodies(path, 40, third.positions["q"]) == list(range(40, 60))
    planner.commit(third)
    assert planner.plan_batch(third) is None
    connections.forget(spool_options.uri)
    assert ready(broker) == 0
    spooled.close()


def test_a_full_spool_takes_nothing_more(headrace_broker: LocalBroker, tmp_path: Path) -> None:
    publish(headrace_broker, 0, 3000)
    spool_options = options(headrace_broker, tmp_path, spoolBytesMax="50k")
    spooled = SpoolLease(spool_options)
    state = spooled.claim("me")
    first = spooled.take("me", 0, 3000, 1 << 30)
    assert 0 < first < 3000
    assert spooled.take("me", first, 3000, 1 << 30) == first
    assert spooled.settle("me", first) == first
    assert first < spooled.take("me", first, 3000, 1 << 30)
    assert state.ready == 3000
    with pytest.raises(GroupInUseError, match="spoolDirectory"):
        SpoolLease(spool_options).claim("other")
    connections.forget(spool_options.uri)
    spooled.close()


def test_a_queue_that_is_not_there(headrace_broker: LocalBroker, tmp_path: Path) -> None:
    spool_options = options(headrace_broker, tmp_path)
    spooled = SpoolLease(spool_options)
    with pytest.raises(OptionError, match="no queue 'q'"):
        spooled.claim("me")
    connections.forget(spool_options.uri)
    spooled.close()
