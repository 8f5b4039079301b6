# SPDX-License-Identifier: Apache-2.0
"""Readers and writers with several brokers, of which one takes over from another."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.client import blocking
from headrace.client.errors import ConnectFailed
from headrace.client.url import parse_url
from headrace.columns.options.kinds import OptionError
from headrace.columns.options.options import read_options, write_options
from headrace.columns.options.uri import split_urls
from headrace.columns.runtime import connections
from headrace.spark.write.publish import publish
from headrace.testing.broker import LocalBroker
from support.brokers.broker_pair import BrokerPair
from support.conversations.version_conversations import in_version
from support.spark.spark_micro_batches import Checkpoint, Query

STREAM = {"x-queue-type": "stream"}
VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")


def bodies(rows: dict[int, list[dict[str, Any]]]) -> list[int]:
    return sorted(int(row["body"]) for batch in rows.values() for row in batch)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_a_query_reads_each_record_once_from_whichever_broker_serves(
    tmp_path: Path, kind: str, version: str
) -> None:
    """The broker is unreachable while a batch is planned, starts its tasks, and commits."""
    with BrokerPair(tmp_path / "data") as pair:
        with blocking.connect(pair.url) as connection, connection.channel() as channel:
            channel.declare_queue("work", arguments=STREAM if kind == "stream" else {})
            channel.publish_many(map(str, range(60)), "work")
        rows: dict[int, list[dict[str, Any]]] = {}
        texts = {"uri": in_version(pair.url, version), kind: "work", "maxRecordsPerTrigger": "20"}
        texts |= {"groupTimeout": "300ms", "reconnectTimeout": "20s"}
        if kind == "stream":
            texts["startingOffsets"] = "earliest"
        committing: list[int] = []

        def moved(batch: int) -> None:
            committing.append(batch)
            if batch == 1:
                pair.move()

        running = Query(texts, Checkpoint(), rows, on_batch=moved)
        assert running.step()
        for step in (running.step, running.run):
            pair.leave()
            back = threading.Timer(0.3, pair.serving.start)
            back.start()
            step()
            back.join()
        assert 1 in committing
        assert bodies(rows) == list(range(60))


def test_rows_are_published_to_the_broker_that_takes_over(tmp_path: Path) -> None:
    with BrokerPair(tmp_path / "data") as pair:
        with blocking.connect(pair.url) as connection, connection.channel() as channel:
            channel.declare_queue("work")
        texts = {"uri": pair.url, "routingKey": "work", "deliveryGuarantee": "at-least-once"}
        options = write_options(texts, streaming=False)
        batch = pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})
        assert publish(options, iter([batch])) == 2
        pair.move()
        assert publish(options, iter([batch])) == 2
        with blocking.connect(pair.url) as connection, connection.channel() as channel:
            assert channel.declare_queue("work", passive=True).message_count == 4
        connections.forget(options.uri)


def test_a_virtual_host_that_no_broker_serves_for_now_is_waited_for(broker: LocalBroker) -> None:
    """A running broker that does not serve the virtual host refuses the connection meanwhile."""
    with LocalBroker() as other:
        url = f"amqp://127.0.0.1:{other.port},127.0.0.1:{broker.port}/none"
        uri = read_options({"uri": url, "stream": "s"}, streaming=True).uri
        slept: list[float] = []
        with pytest.raises(ConnectFailed) as caught:
            connections.run_with_retry(
                uri,
                3,
                lambda _: None,
                reached_before=True,
                clock=lambda: sum(slept),
                sleep=slept.append,
            )
    assert caught.value.code == 530
    assert sum(slept) == pytest.approx(3)
    assert max(slept) <= 0.6


def test_hosts_with_commas_are_brokers_of_their_own() -> None:
    texts = {"uri": "amqp://me@one:1,[::1],two/v?heartbeat=5", "password": "s3c,ret", "stream": "s"}
    actual = [parse_url(url) for url in split_urls(read_options(texts, streaming=True).uri)]
    assert [(one.host, one.port) for one in actual] == [("one", 1), ("::1", 5672), ("two", 5672)]
    for one in actual:
        assert (one.username, one.password, one.vhost) == ("me", "s3c,ret", "v")
        assert one.heartbeat_s == 5
    with pytest.raises(OptionError, match="uri"):
        read_options({"uri": "amqp://one,,two", "stream": "s"}, streaming=True)
