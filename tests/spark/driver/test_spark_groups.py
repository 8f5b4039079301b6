# SPDX-License-Identifier: Apache-2.0
"""Streaming reads of streams under a group, with a real broker, driven as Spark drives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client.blocking_pipeline import Requests
from headrace.columns.errors import GroupInUseError
from support.spark.spark_micro_batches import Checkpoint, Query

if TYPE_CHECKING:
    from headrace.client import blocking
    from headrace.testing.broker import LocalBroker

STREAM = {"x-queue-type": "stream"}


class Followed:
    """A stream, and queries that read it as a group, with one checkpoint and one sink."""

    def __init__(self, broker: LocalBroker, connection: blocking.Connection, stream: str) -> None:
        self.stream = stream
        self.options = {
            "uri": broker.url,
            "stream": stream,
            "group": "readers",
            "groupTimeout": "200ms",
            "startingOffsets": "earliest",
        }
        self.requests = Requests(connection)
        self.channel = connection.channel()
        self.channel.declare_queue(stream, arguments=STREAM)
        self.checkpoint = Checkpoint()
        self.rows: dict[int, list[dict[str, Any]]] = {}

    def publish(self, first: int, last: int) -> None:
        self.channel.publish_many(map(str, range(first, last)), self.stream)

    def query(self, on_batch: Callable[[int], None] = lambda _: None, **options: str) -> Query:
        texts = {**self.options, **options}
        return Query(texts, self.checkpoint, self.rows, on_batch=on_batch)

    def group(self) -> dict[str, Any]:
        return self.requests.ask("group.get", stream=self.stream, group="readers")

    def bodies(self) -> list[int]:
        return [int(row["body"]) for batch in sorted(self.rows) for row in self.rows[batch]]


@pytest.fixture
def followed(
    broker: LocalBroker, connection: blocking.Connection, request: pytest.FixtureRequest
) -> Followed:
    return Followed(broker, connection, request.node.name)


def test_the_group_is_where_spark_committed(followed: Followed) -> None:
    followed.publish(0, 25)
    seen = []
    query = followed.query(
        lambda _: seen.append(followed.group()["position"]), maxRecordsPerTrigger="10"
    )
    assert query.available_now() == 4
    assert seen == [0, 10, 20, 25]
    assert (followed.group()["committed"], followed.group()["lag"]) == (25, 0)
    assert followed.bodies() == list(range(25))
    assert followed.query().available_now() == 0
    followed.publish(25, 30)
    assert followed.group()["lag"] == 5
    followed.query().available_now()
    assert followed.group()["committed"] == 30


def test_latest_is_remembered_when_the_driver_dies_before_the_first_batch(
    followed: Followed,
) -> None:
    followed.publish(0, 10)
    followed.query(startingOffsets="latest").reader.initialOffset()
    followed.publish(10, 15)
    followed.query(startingOffsets="latest").available_now()
    assert followed.bodies() == list(range(10, 15))


def test_a_first_batch_that_is_replayed_begins_where_it_did(followed: Followed) -> None:
    class CrashError(Exception):
        pass

    def crash(_: int) -> None:
        raise CrashError

    followed.publish(0, 5)
    with pytest.raises(CrashError):
        followed.query(crash).available_now()
    followed.publish(5, 10)
    query = followed.query()
    assert followed.bodies() == list(range(5))
    query.available_now()
    assert followed.bodies() == list(range(10))
    assert followed.group()["committed"] == 10


def test_a_new_checkpoint_is_a_new_beginning(followed: Followed, broker: LocalBroker) -> None:
    followed.publish(0, 10)
    query = followed.query()
    query.available_now()
    owner = query.reader.planner._owner  # type: ignore[attr-defined]
    followed.requests.ask("group.release", stream=followed.stream, group="readers", owner=owner)
    rows: dict[int, list[dict[str, Any]]] = {}
    start = f'{{"{followed.stream}": 4}}'
    Query({**followed.options, "startingOffsets": start}, Checkpoint(), rows).available_now()
    assert [int(row["body"]) for batch in rows.values() for row in batch] == list(range(4, 10))
    assert (followed.group()["initial"], followed.group()["committed"]) == (4, 10)


def test_a_second_live_query_is_refused(followed: Followed, broker: LocalBroker) -> None:
    followed.publish(0, 5)
    first = followed.query()
    first.run()
    second = Query(followed.options, Checkpoint(), {})
    with pytest.raises(GroupInUseError, match=r"option 'group': .*another query is using it"):
        second.run()
    followed.publish(5, 8)
    first.run()
    assert followed.bodies() == list(range(8))


def test_a_query_that_lost_its_group_fails(followed: Followed) -> None:
    followed.publish(0, 5)
    query = followed.query()
    query.run()
    followed.requests.ask(
        "group.claim", stream=followed.stream, group="readers", owner="operator", force=True
    )
    followed.publish(5, 8)
    with pytest.raises(GroupInUseError):
        query.run()


def test_a_group_may_be_given_to_a_query_that_had_none(followed: Followed) -> None:
    followed.publish(0, 5)
    followed.options.pop("group")
    timeout = followed.options.pop("groupTimeout")
    followed.query().available_now()
    followed.publish(5, 8)
    followed.query(group="readers", groupTimeout=timeout, pinRetention="true").available_now()
    assert followed.bodies() == list(range(8))
    assert (followed.group()["initial"], followed.group()["committed"]) == (5, 8)
    assert followed.group()["pin"]
