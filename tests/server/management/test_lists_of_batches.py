# SPDX-License-Identifier: Apache-2.0
"""Lists of staged batches, and of queues and exchanges that drop duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.blocking import connect
from headrace.client.blocking_pipeline import Sink, Stage

if TYPE_CHECKING:
    from headrace.testing import LocalBroker
    from support.management_socket import ManagementClient

DEDUPLICATES = {"x-message-deduplication": True}
ID = "x-deduplication-header"


def test_a_sink_tells_what_is_staged_and_the_last_batch(
    broker: LocalBroker, operator: ManagementClient
) -> None:
    operator.ask("declare queue", name="q")
    assert operator.items("list batches") == []
    with connect(broker.url) as connection, Sink(connection, "rows") as sink:
        sink.begin("query", "run")
        committed = []
        for batch in (0, 1):
            with Stage(connection, "rows", batch, 0, 1, epoch=sink.epoch) as stage:
                stage.publish_many(["a", "b"], "q")
                committed.append(stage.prepare().branches)
        (row,) = operator.items("list batches")
        assert (row["sink"], row["vhost"], row["owner"]) == ("rows", "/", "query")
        assert (row["last"], row["batches"], row["messages"]) == (None, [0, 1], 4)
        assert row["prepared"] == row["branches"] == 2
        sink.commit(0, committed[:1])
        (row,) = operator.items("list batches")
        assert (row["last"], row["batches"], row["messages"]) == (0, [1], 2)
        operator.ask("put vhost", name="other")
        assert operator.items("list batches", vhost="other") == []


def test_ids_are_counted_while_held_and_when_remembered(operator: ManagementClient) -> None:
    operator.ask("declare queue", name="once", arguments=DEDUPLICATES)
    operator.ask("declare queue", name="cached", arguments={**DEDUPLICATES, "x-cache-size": 5})
    operator.ask("declare queue", name="plain")
    operator.ask("declare exchange", name="x", arguments={**DEDUPLICATES, "x-cache-ttl": 9000})
    operator.ask("bind", source="x", destination="plain", routing_key="k")
    for exchange, key in (("", "once"), ("", "cached"), ("x", "k")):
        for number in (1, 2, 2):
            headers = {"headers": {ID: number}}
            fields = {"exchange": exchange, "routing_key": key, "properties": headers}
            operator.ask("publish", payload="m", **fields)
    operator.ask("get", queue="cached", count=9, ackmode="ack_requeue_false")
    rows = {row["name"]: row for row in operator.items("list deduplication")}
    told = {
        name: (row["kind"], row["held"], row["remembered"], row["duplicates"])
        for name, row in rows.items()
    }
    assert told == {
        "once": ("queue", 2, 0, 1),
        "cached": ("queue", 0, 2, 1),
        "x": ("exchange", 0, 2, None),
    }
    assert [rows[name]["remembered_max"] for name in ("once", "cached")] == [0, 5]
    assert (rows["x"]["cache_ttl_ms"], rows["x"]["header"]) == (9000, ID)
