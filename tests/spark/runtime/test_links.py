# SPDX-License-Identifier: Apache-2.0
"""How readers reach a broker: in every version, through its absence, and while it is in alarm."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme

from headrace.client import blocking
from headrace.client.errors import AuthenticationFailed, ConnectFailed
from headrace.client.requests import RequestRefused
from headrace.client.url import Secret
from headrace.columns.options.options import read_options, write_options
from headrace.columns.runtime import connections
from headrace.spark.queue.broker_lease import BrokerLease
from headrace.spark.write.publish import publish
from headrace.testing.broker import LocalBroker
from support.spark.spark_micro_batches import Checkpoint, Query
from support.timeouts import PATIENCE_S

STREAM = {"x-queue-type": "stream"}
VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")


def fill(broker: LocalBroker, queue: str, first: int, last: int, **arguments: str) -> None:
    """Publish numbers to a queue; the first call declares the queue."""
    with blocking.connect(broker.url) as connection, connection.channel() as channel:
        channel.declare_queue(queue, arguments=arguments)
        channel.publish_many(map(str, range(first, last)), queue)


def query(
    broker: LocalBroker, checkpoint: Checkpoint, rows: dict[int, list[dict[str, Any]]], **more: str
) -> Query:
    options = {"uri": broker.url, "groupTimeout": "300ms", "reconnectTimeout": "20s", **more}
    return Query(options, checkpoint, rows)


def bodies(rows: dict[int, list[dict[str, Any]]]) -> list[int]:
    return sorted(int(row["body"]) for batch in rows.values() for row in batch)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_reads_streams_and_queues(broker: LocalBroker, version: str) -> None:
    for kind, arguments in (("stream", STREAM), ("queue", {})):
        name = f"{kind}-{version}"
        fill(broker, name, 0, 50, **arguments)
        rows: dict[int, list[dict[str, Any]]] = {}
        texts = {kind: name, "protocolVersion": version, "startingOffsets": "earliest"}
        if kind == "queue":
            del texts["startingOffsets"]
        query(broker, Checkpoint(), rows, **texts).available_now()
        assert bodies(rows) == list(range(50))


@pytest.mark.parametrize("kind", ["stream", "queue"])
@pytest.mark.once
def test_a_restart_of_the_broker_fails_nothing(tmp_path: Path, kind: str) -> None:
    """The broker is unreachable while a batch is planned, and while its tasks begin."""
    with LocalBroker(tmp_path / "data") as broker:
        fill(broker, "work", 0, 50, **(STREAM if kind == "stream" else {}))
        rows: dict[int, list[dict[str, Any]]] = {}
        texts = {kind: "work", "maxRecordsPerTrigger": "20"}
        if kind == "stream":
            texts["startingOffsets"] = "earliest"
        running = query(broker, Checkpoint(), rows, **texts)
        assert running.step()
        for step in (running.step, running.run):
            broker.stop()
            back = threading.Timer(0.3, broker.start)
            back.start()
            step()
            back.join()
        assert bodies(rows) == list(range(50))


@pytest.mark.once
def test_a_task_reads_on_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker:
        fill(broker, "work", 0, 11_000, **STREAM)
        running = query(broker, Checkpoint(), {}, stream="work", minPartitions="1")
        reader = running.reader
        start, end = ({"v": 1, "epoch": 0, "pos": {"work": at}} for at in (0, 11_000))
        (partition,) = reader.partitions(start, end)
        actual: list[int] = []
        for number, batch in enumerate(reader.read(partition)):
            actual += map(int, batch["body"].to_pylist())
            if number == 0:
                broker.restart()
        assert actual == list(range(11_000))


def test_a_broker_that_stays_away_fails_the_query(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker:
        fill(broker, "work", 0, 5, **STREAM)
        rows: dict[int, list[dict[str, Any]]] = {}
        running = query(broker, Checkpoint(), rows, stream="work", reconnectTimeout="300ms")
        running.step()
    with pytest.raises(ConnectFailed):
        running.step()


def test_a_broker_that_was_never_there_fails_at_once(broker: LocalBroker) -> None:
    texts = {"uri": "amqp://127.0.0.1:1", "stream": "work"}
    with pytest.raises(ConnectFailed):
        query(broker, Checkpoint(), {}, **texts).step()


def test_several_brokers_are_tried_in_turn(broker: LocalBroker) -> None:
    fill(broker, "in-turn", 0, 5, **STREAM)
    uris = f'["amqp://127.0.0.1:1", "{broker.url}"]'
    rows: dict[int, list[dict[str, Any]]] = {}
    texts = {"uri": uris, "stream": "in-turn", "startingOffsets": "earliest"}
    query(broker, Checkpoint(), rows, **texts).available_now()
    assert bodies(rows) == list(range(5))


def test_who_may_not_log_in_fails_at_once(broker: LocalBroker) -> None:
    calls = []

    def work(connection: blocking.Connection) -> None:
        calls.append(connection)

    bad = Secret(broker.url_of("guest", "wrong"))
    with pytest.raises(AuthenticationFailed):
        connections.run_with_retry(bad, 60.0, work, reached_before=True)
    assert not calls


def test_an_alarm_pauses_what_writes_and_not_what_reads() -> None:
    """A batch of a queue is leased, read and settled, which frees memory."""
    with LocalBroker(memory_max=1 << 20) as broker:
        fill(broker, "work", 0, 50)
        rows: dict[int, list[dict[str, Any]]] = {}
        running = query(broker, Checkpoint(), rows, queue="work", maxRecordsPerTrigger="20")
        written = threading.Event()
        options = write_options({"uri": broker.url, "routingKey": "hog"})

        def write() -> None:
            for _ in range(4):
                batch = pa.RecordBatch.from_pydict({"body": [bytes(100_000)] * 10})
                publish(options, iter([batch]), 0)
            written.set()

        with blocking.connect(broker.url) as other, other.channel() as emptying:
            emptying.declare_queue("hog")
            thread = threading.Thread(target=write)
            thread.start()
            writing = connections.get_connection(Secret(broker.url), connections.Purpose.WRITE)
            until(lambda: writing.blocked is not None)
            running.run()
            assert bodies(rows) == list(range(50))
            assert writing.blocked is not None
            assert not written.is_set()

            def emptied() -> bool:
                emptying.purge_queue("hog")
                return written.is_set()

            until(emptied)
            thread.join()


def test_a_full_disk_at_the_broker_pauses_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk is full no messages can be leased, and the query waits."""
    slept: list[float] = []
    with LocalBroker() as broker:
        fill(broker, "work", 0, 5)
        leased = BrokerLease(
            read_options({"uri": broker.url, "queue": "work"}, streaming=True), sleep=slept.append
        )
        leased.claim("me")
        answers = [RequestRefused("limit", "the disk is full; nothing was leased")] * 3
        send_request = leased._send

        def send(what: str, **fields: Any) -> dict[str, Any]:
            if what == "take" and answers:
                raise answers.pop()
            return send_request(what, **fields)

        monkeypatch.setattr(leased, "_send", send)  # The disk of this machine has room.
        assert leased.take("me", 0, 10, 1 << 20) == 5
    assert len(slept) == 3


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that another thread fulfils."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def test_tls_is_said_by_options(authority: trustme.CA, tmp_path: Path) -> None:
    certificate = authority.issue_cert("localhost")
    key, chain, trusted = (tmp_path / name for name in ("key.pem", "cert.pem", "ca.pem"))
    certificate.private_key_pem.write_to_path(key)
    for pem in certificate.cert_chain_pems:
        pem.write_to_path(chain, append=True)
    authority.cert_pem.write_to_path(trusted)
    with LocalBroker(tls_port=0, tls_cert=chain, tls_key=key) as broker:
        fill(broker, "work", 0, 5, **STREAM)
        texts = {
            "host": "127.0.0.1",
            "port": broker.addresses["amqps"].rpartition(":")[2],
            "tls": "true",
            "user": "guest",
            "password": "guest",
            "saslMechanism": "PLAIN",
            "stream": "work",
            "startingOffsets": "earliest",
        }

        def read(**more: str) -> list[int]:
            rows: dict[int, list[dict[str, Any]]] = {}
            Query({**texts, **more}, Checkpoint(), rows).available_now()
            return bodies(rows)

        assert read(tlsCa=str(trusted), tlsServerName="localhost") == list(range(5))
        assert read(tlsVerify="false") == list(range(5))
        for wrong in ({}, {"tlsCa": str(trusted)}):  # No trusted authority; another name.
            with pytest.raises(ConnectFailed, match="certificate"):
                read(**wrong)
