# SPDX-License-Identifier: Apache-2.0
"""Staged batches and a broker that is killed, or has little memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import Message
from headrace.client.blocking import Connection, connect
from headrace.client.blocking_pipeline import Requests, Sink, Stage
from headrace.client.bulk.encode import Octets, encode_properties
from support.brokers.broker_process import Served
from support.queue_contents import all_ready

SINK = "sink"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, "--memory-max", str(8 << 20))
    served.start()
    yield served
    if served.running:
        served.kill()


def open_queues(connection: Connection) -> None:
    with connection.channel() as channel:
        channel.declare_exchange("both", "fanout", durable=True)
        channel.declare_queue("q", durable=True)
        channel.declare_queue("log", durable=True, arguments={"x-queue-type": "stream"})
        channel.bind_queue("q", "both")
        channel.bind_queue("log", "both")


def write(connection: Connection, sink: Sink, part: int, count: int, size: int) -> str:
    with Stage(connection, SINK, 0, part, 1, epoch=sink.epoch) as stage:
        for first in range(0, count, 1000):
            rows = range(first, min(count, first + 1000))
            stage.publish_columns(
                len(rows),
                Octets.of(b"%d.%d".ljust(size) % (part, n) for n in rows),
                properties=Octets(encode_properties(Message(b""))),
                routing_key=Octets(b""),
                exchange=Octets(b"both"),
            )
        return stage.prepare().branches


def there(connection: Connection) -> tuple[int, int]:
    """How many messages the queue has, and the stream."""
    with connection.channel() as channel:
        ready = channel.declare_queue("q", passive=True).message_count
    return ready, connection.stream("log").last_offset()


def test_a_batch_survives_kill_9_at_every_stage(served: Served) -> None:
    with connect(served.url, reconnect=None) as connection, Sink(connection, SINK) as sink:
        open_queues(connection)
        sink.begin("query", "run")
        prepared = [write(connection, sink, part, 300, 200) for part in range(2)]
        lost = Stage(connection, SINK, 0, 2, 1, epoch=sink.epoch)
        lost.publish_many(["never prepared"], exchange="both")
        served.kill()
    served.start()
    with connect(served.url, reconnect=None) as connection, Sink(connection, SINK) as sink:
        assert there(connection) == (0, 0)
        state = sink.begin("query", "run")  # The driver itself was not gone.
        assert (state.last, state.epoch) == (None, 1)
        assert sink.commit(0, prepared).messages == 600
        served.kill()
    served.start()
    with connect(served.url) as connection, Sink(connection, SINK) as sink:
        assert there(connection) == (600, 600)
        assert sink.begin("query", "next run").last == 0
        assert sink.commit(0, prepared).already
        assert there(connection) == (600, 600)
        with Requests(connection) as requests:
            assert requests.ask("sink.show", sink=SINK)["branches"] == 0
        with connection.channel() as channel:
            bodies = [message.text().strip() for message in all_ready(channel, "q")]
        assert sorted(bodies) == sorted(f"{p}.{n}" for p in range(2) for n in range(300))


def test_staged_work_may_be_larger_than_memory(served: Served) -> None:
    with connect(served.url) as connection, Sink(connection, SINK) as sink:
        open_queues(connection)
        sink.begin("query")
        before = served.memory_bytes()
        parts = [write(connection, sink, part, 1500, 30_000) for part in range(2)]
        assert served.memory_bytes() - before < 60 << 20  # Of 90 MB.
        assert sink.commit(0, parts).messages == 3000
        assert there(connection) == (3000, 3000)
