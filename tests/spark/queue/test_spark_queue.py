# SPDX-License-Identifier: Apache-2.0
"""The streaming reader of queues with a real broker, driven as Spark drives it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headrace.client import Message, blocking
from headrace.client.blocking_pipeline import Requests
from headrace.client.requests import RequestRefused
from headrace.columns.errors import DataLossError, GroupInUseError
from headrace.columns.options.kinds import OptionError
from headrace.columns.schema.offsets import OffsetError
from headrace.testing.broker import LocalBroker
from support.spark.spark_micro_batches import Checkpoint, Query

COLUMNS = ("stream", "offset", "body")


@pytest.fixture
def ask(connection: blocking.Connection) -> Callable[..., dict[str, Any]]:
    return Requests(connection).ask


class Work:
    """A queue, and successive queries that read it, with one checkpoint and one sink."""

    def __init__(self, broker: LocalBroker, connection: blocking.Connection, queue: str) -> None:
        self.options = {"uri": broker.url, "queue": queue, "groupTimeout": "200ms"}
        self.queue = queue
        self.channel = connection.channel()
        self.channel.declare_queue(queue)
        self.requests = Requests(connection)
        self.checkpoint = Checkpoint()
        self.rows: dict[int, list[dict[str, Any]]] = {}
        self.published = 0

    def publish(self, count: int) -> None:
        last = self.published + count
        self.channel.publish_many(map(str, range(self.published, last)), self.queue)
        self.published = last

    def query(self, on_batch: Callable[[int], None] = lambda _: None, **options: str) -> Query:
        return Query(
            {**self.options, **options}, self.checkpoint, self.rows, *COLUMNS, on_batch=on_batch
        )

    def lease(self) -> dict[str, Any]:
        return self.requests.ask("lease.info", queue=self.queue, group="spark")

    def bodies(self) -> list[int]:
        return [int(row["body"]) for batch in sorted(self.rows) for row in self.rows[batch]]

    def sizes(self) -> list[int]:
        return [len(self.rows[batch]) for batch in sorted(self.rows)]

    def check(self) -> None:
        """Check that the sink has every message once, in order, and that the lease is settled."""
        assert self.bodies() == list(range(self.published))
        lease = self.lease()
        assert (lease["settled"], lease["ready"]) == (lease["next"], 0)


@pytest.fixture
def work(
    broker: LocalBroker, connection: blocking.Connection, request: pytest.FixtureRequest
) -> Work:
    return Work(broker, connection, request.node.name)


class CrashError(Exception):
    """The simulated death of the driver."""


def crash_in(batch: int) -> Callable[[int], None]:
    def on_batch(number: int) -> None:
        if number == batch:
            raise CrashError

    return on_batch


def test_available_now_leaves_nothing_unsettled(work: Work) -> None:
    work.publish(25)
    query = work.query(maxRecordsPerTrigger="10")
    assert query.available_now() == 4  # The last has no messages: it has the third one committed.
    assert work.sizes() == [10, 10, 5, 0]
    assert {row["stream"] for row in work.rows[0]} == {work.queue}
    work.check()
    assert work.query().available_now() == 0
    work.publish(3)
    assert work.query().available_now() == 2
    work.check()


def test_nothing_is_settled_before_its_batch_is_committed(work: Work) -> None:
    work.publish(30)
    settled = []
    query = work.query(lambda _: settled.append(work.lease()["settled"]), maxRecordsPerTrigger="10")
    query.available_now()
    assert settled == [0, 10, 20, 30]  # While a batch runs, only those before it are.
    work.check()


def test_an_idle_query_settles_its_last_batch_and_then_rests(work: Work) -> None:
    work.publish(5)
    query = work.query()
    query.run()
    work.check()
    before = dict(query.checkpoint.offsets)
    assert query.run() == 0
    assert query.checkpoint.offsets == before


def test_a_batch_that_crashed_is_read_again_as_it_was(work: Work) -> None:
    work.publish(20)
    with pytest.raises(CrashError):
        work.query(crash_in(1), maxRecordsPerTrigger="8").available_now()
    crashed = list(work.rows[1])
    work.rows.pop(1)
    work.publish(5)
    query = work.query(maxRecordsPerTrigger="3")
    assert work.rows[1] == crashed
    query.available_now()
    work.check()


def test_the_first_batch_too(work: Work) -> None:
    work.publish(5)
    with pytest.raises(CrashError):
        work.query(crash_in(0)).available_now()
    work.publish(5)
    work.query().available_now()
    assert work.sizes()[0] == 5
    work.check()


def test_a_crash_before_the_offsets_were_logged_loses_nothing(work: Work) -> None:
    work.publish(5)
    reader = work.query().reader
    start = reader.initialOffset()
    reader.latestOffset(start, reader.getDefaultReadLimit())  # Leased, and forgotten.
    work.requests.ask("lease.leave", queue=work.queue, group="spark", owner=start["owner"])
    work.query().available_now()
    work.check()


@pytest.mark.parametrize("crashed", [0, 1, 2])
def test_a_lost_commit_log_repeats_the_batch(work: Work, crashed: int) -> None:
    work.publish(20)
    with pytest.raises(CrashError):
        work.query(crash_in(crashed), maxRecordsPerTrigger="10").available_now()
    before = dict(work.rows)
    work.checkpoint.commits.discard(crashed)
    query = work.query(maxRecordsPerTrigger="10")
    assert work.rows == before
    query.available_now()
    work.check()


def test_two_live_queries_with_one_group_are_refused(work: Work) -> None:
    work.publish(5)
    first = work.query()
    first.run(1)
    second = Query(work.options, Checkpoint(), {}, *COLUMNS)
    with pytest.raises(GroupInUseError, match=r"option 'group': .*another query reads queue"):
        second.run()
    other = Query({**work.options, "group": "other"}, Checkpoint(), {}, *COLUMNS)
    assert other.run() == 1  # Nothing is left, and another group may look.
    first.run()
    work.check()


def test_a_query_whose_lease_was_taken_over_fails(
    work: Work, ask: Callable[..., dict[str, Any]]
) -> None:
    work.publish(5)
    query = work.query()
    query.run(1)
    ask("lease.claim", queue=work.queue, group="spark", owner="operator", force=True)
    work.publish(5)
    with pytest.raises(GroupInUseError, match="another query took over"):
        query.run()


def test_an_old_checkpoint_is_refused(work: Work) -> None:
    work.publish(20)
    work.query(maxRecordsPerTrigger="10").available_now()
    for batch in (1, 2):
        del work.checkpoint.offsets[batch]
        work.checkpoint.commits.discard(batch)
    with pytest.raises(DataLossError, match=r"10 to 19 .* are settled.*the checkpoint is old"):
        work.query().available_now()


def test_a_queue_made_again_is_refused(work: Work) -> None:
    work.publish(5)
    work.query().available_now()
    work.channel.delete_queue(work.queue)
    work.channel.declare_queue(work.queue)
    with pytest.raises(OffsetError, match="start with a new checkpoint"):
        work.query().available_now()


def test_another_broker_is_refused(work: Work) -> None:
    work.publish(5)
    work.query().available_now()
    with LocalBroker() as other, blocking.connect(other.url) as connection:
        connection.channel().declare_queue(work.queue)
        with pytest.raises(OffsetError, match="made with broker"):
            work.query(uri=other.url).available_now()


def test_a_checkpoint_of_a_stream_is_refused(work: Work) -> None:
    work.checkpoint.offsets[0] = '{"v": 2, "broker": "", "epoch": 0, "pos": {"orders": 5}}'
    work.checkpoint.commits.add(0)
    with pytest.raises(OffsetError, match="not one of a read of queue"):
        work.query().available_now()


def test_a_missing_queue_is_named(broker: LocalBroker) -> None:
    query = Query({"uri": broker.url, "queue": "nowhere"}, Checkpoint(), {}, *COLUMNS)
    with pytest.raises(OptionError, match=r"option 'queue': .*nowhere"):
        query.run()


def test_a_batch_is_read_by_several_tasks_which_may_be_repeated(work: Work) -> None:
    work.publish(100)
    reader = work.query(minPartitions="4").reader
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    partitions = reader.partitions(start, end)
    assert len(partitions) == 4

    def read(partition: Any) -> list[int]:
        return [int(body) for batch in reader.read(partition) for body in batch["body"].to_pylist()]

    once = [read(partition) for partition in partitions]
    assert [read(partition) for partition in reversed(partitions)] == once[::-1]
    assert sorted(chain.from_iterable(once)) == list(range(100))


def test_limits_of_octets_make_batches(work: Work) -> None:
    work.channel.publish_many([Message(b"1" * 1000)] * 20, work.queue)
    work.query(maxBytesPerTrigger="5k").available_now()
    assert len(work.rows) >= 5
    assert max(work.sizes()) <= 5
    assert sum(work.sizes()) == 20


def test_a_batch_has_a_limit_by_default(work: Work) -> None:
    assert work.query().reader.getDefaultReadLimit() == ReadMaxRows(100_000)
    assert work.query(maxBytesPerTrigger="1m").reader.getDefaultReadLimit() == ReadMaxRows(100_000)


def test_once_is_a_single_batch(work: Work) -> None:
    work.publish(30)
    reader = work.query(maxRecordsPerTrigger="10").reader
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end["pos"] == {work.queue: 30}


def test_a_batch_waits_for_enough_messages(work: Work) -> None:
    work.publish(5)
    query = work.query(minRecordsPerTrigger="10", maxTriggerDelay="1h")
    assert query.run() == 1  # Batch 0 runs in any case.
    assert work.sizes() == [0]
    work.publish(5)
    assert query.run() == 2
    assert work.sizes() == [0, 10, 0]
    work.publish(1)
    assert query.run() == 0
    assert query.available_now() == 2
    work.check()


def test_the_progress_tells_how_many_messages_there_are(work: Work) -> None:
    work.publish(7)
    query = work.query(maxRecordsPerTrigger="5")
    query.run(1)
    latest = query.reader.reportLatestOffset()
    assert latest is not None
    assert latest["pos"] == {work.queue: 7}


TEXT = {"value": "string", "mode": "DEADLETTER"}
BAD = b"\xff"  # No UTF-8.


class Decoded:
    """A queue with a dead-letter exchange, and a query that decodes its bodies."""

    def __init__(self, broker: LocalBroker, channel: blocking.Channel, queue: str) -> None:
        self.options = {"uri": broker.url, "queue": queue, "groupTimeout": "200ms", **TEXT}
        self.channel = channel
        self.queue, self.dead = queue, f"{queue}.dead"
        channel.declare_queue(self.dead)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dead}
        channel.declare_queue(queue, arguments=arguments)
        self.checkpoint = Checkpoint()
        self.rows: dict[int, list[dict[str, Any]]] = {}

    def query(self, **options: str) -> Query:
        texts = {**self.options, **options}
        return Query(texts, self.checkpoint, self.rows, "offset")

    def offsets(self) -> list[int]:
        return [row["offset"] for batch in sorted(self.rows) for row in self.rows[batch]]

    def dead_letters(self) -> list[tuple[bytes, int]]:
        """Return the bodies of the dead letters, each with its number of deaths."""
        actual = []
        while (message := self.channel.get(self.dead, no_ack=True)) is not None:
            (death,) = cast("list[dict[str, Any]]", message.headers["x-death"])
            assert (death["queue"], death["reason"]) == (self.queue, "rejected")
            actual.append((message.body, death["count"]))
        return actual


def test_bad_bodies_are_dead_letters_of_the_queue_once(
    broker: LocalBroker, connection: blocking.Connection, ask: Callable[..., dict[str, Any]]
) -> None:
    """A rejected message becomes one dead letter, when its batch is settled."""
    with connection.channel() as channel:
        work = Decoded(broker, channel, "judged")
        channel.publish_many([b"0", BAD, b"2", BAD + b"3"], work.queue)
        query = work.query()
        assert query.step()
        assert work.dead_letters() == []
        assert ask("lease.info", queue=work.queue, group="spark")["rejects"] == 2
        work.checkpoint.forget_commit()
        work.query().available_now()  # The batch runs again, and then is settled.
        assert work.offsets() == [0, 2]
        assert work.dead_letters() == [(BAD, 1), (BAD + b"3", 1)]
        assert ask("lease.info", queue=work.queue, group="spark")["rejects"] == 0
        channel.publish_many([BAD + b"4", BAD + b"5"], work.queue)
        work.query().available_now()
        assert work.dead_letters() == [(BAD + b"4", 1), (BAD + b"5", 1)]


def test_a_batch_that_runs_again_with_other_options_is_judged_anew(
    broker: LocalBroker, connection: blocking.Connection
) -> None:
    with connection.channel() as channel:
        work = Decoded(broker, channel, "judged-anew")
        channel.publish_many([b"0", BAD], work.queue)
        assert work.query().step()
        assert work.offsets() == [0]
        work.checkpoint.forget_commit()
        work.query(value="binary").available_now()
        assert work.offsets() == [0, 1]
        channel.publish_many([BAD, b"3"], work.queue)
        assert work.query().step()
        work.checkpoint.forget_commit()
        work.query(mode="PERMISSIVE").available_now()
        assert work.offsets() == [0, 1, 2, 3]
        assert work.dead_letters() == []


def test_bad_bodies_of_a_queue_without_dead_letters_are_no_loss(
    broker: LocalBroker, connection: blocking.Connection, ask: Callable[..., dict[str, Any]]
) -> None:
    with connection.channel() as channel:
        channel.declare_queue("no-letters")
        channel.publish(BAD, "no-letters")
        texts = {"uri": broker.url, "queue": "no-letters", **TEXT}
        with pytest.raises(OptionError, match="queue 'no-letters' has no dead-letter exchange"):
            Query(texts, Checkpoint(), {}, "offset").step()
        assert ask("lease.info", queue="no-letters", group="spark")["next"] == 0
        with pytest.raises(RequestRefused, match="the lease's owner is"):
            ask(
                "lease.reject",
                queue="no-letters",
                group="spark",
                owner="zombie",
                first=0,
                last=0,
                numbers=[],
            )
