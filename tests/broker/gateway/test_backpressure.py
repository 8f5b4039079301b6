# SPDX-License-Identifier: Apache-2.0
"""Clients that flood, do not read, or hold too much: the broker stays bounded and responsive."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingConnection
from pika.exceptions import AMQPError

from headrace.client import blocking
from headrace.client.blocking_pipeline import Lease
from headrace.protocol.codec_0_x import (
    BasicDeliver,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    QueueBind,
    QueueBindOk,
)
from headrace.testing.raw_client import RawClient
from headrace.testing.raw_socket import UnexpectedAnswer
from support.brokers.broker_process import Served, until
from support.timeouts import PATIENCE_S

MIB = 1 << 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Served]:
    """A broker with little room for messages, and no disk to put them on."""
    broker = Served(tmp_path, "--memory-max", str(4 * MIB), memory=True).start()
    yield broker
    broker.end()


@pytest.fixture
def paging(tmp_path: Path) -> Iterator[Served]:
    """A broker with little memory and a disk."""
    broker = Served(tmp_path, "--memory-max", str(4 * MIB)).start()
    yield broker
    broker.end()


opened: list[BlockingConnection | RawClient] = []


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    """Close what a test opened, and left open."""
    yield
    while opened:
        one = opened.pop()
        with contextlib.suppress(AMQPError):  # Its broker may be gone before.
            one.close()


def connect(broker: Served) -> BlockingConnection:
    parameters = pika.URLParameters(broker.url)
    parameters.heartbeat = 0
    connection = BlockingConnection(parameters)
    opened.append(connection)
    return connection


def talk_to(broker: Served) -> RawClient:
    talk = RawClient(broker.host, broker.port).open()
    opened.append(talk)
    return talk


def test_publishers_hear_when_memory_is_short_and_when_it_is_not(small: Served) -> None:
    said: list[str] = []
    connection = connect(small)
    connection.add_on_connection_blocked_callback(lambda _, frame: said.append(frame.method.reason))
    connection.add_on_connection_unblocked_callback(lambda _, __: said.append("unblocked"))
    channel = connection.channel()
    channel.queue_declare("q")
    for _ in range(12):
        channel.basic_publish("", "q", bytes(MIB // 2))
    until(lambda: connection.process_data_events(0) or said, "the publisher is told")
    assert said == ["low on memory"]
    other = connect(small)  # Who does not publish is not held up.
    drained = other.channel()
    until(lambda: drained.queue_purge("q").method.message_count >= 0, "the queue is purged")
    until(lambda: connection.process_data_events(0) or said[1:], "the publisher may go on")
    assert said == ["low on memory", "unblocked"]
    channel.basic_publish("", "q", b"on")
    assert channel.queue_declare("q", passive=True).method.message_count >= 1


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
def test_requests_to_the_broker_pass_while_publishers_wait(small: Served, version: str) -> None:
    """Settlements free memory; a connection with other publishes waits, requests included."""
    url = f"{small.url}?version={version}"
    with (
        blocking.connect(small.url, timeout_s=PATIENCE_S) as hog,
        hog.channel(confirm=False) as flood,
        blocking.connect(url, timeout_s=PATIENCE_S) as asking,
        blocking.connect(url, timeout_s=PATIENCE_S) as mixed,
        Lease(asking, "work", "g", owner="o") as lease,
        Lease(mixed, "work", "g", owner="o") as waiting,
    ):
        flood.declare_queue("work", durable=True)
        with mixed.channel() as channel:
            channel.publish_many([b"%d" % n for n in range(50)], "work")
        lease.claim()
        assert lease.take(messages=10).last == 10
        flood.declare_queue("hog")

        enough = threading.Event()

        def fill() -> None:
            while not enough.is_set():
                flood.publish(bytes(MIB // 4), "hog")

        filling = threading.Thread(target=fill)
        filling.start()
        until(lambda: hog.blocked, "memory is short")
        enough.set()  # One publish more waits for room; it sends none after that.
        settled = threading.Event()

        def settle_as_publisher() -> None:
            waiting.settle(40)
            settled.set()

        thread = threading.Thread(target=settle_as_publisher)
        thread.start()
        for n in range(10, 40, 10):
            lease.settle(n)
            assert lease.take(messages=10).last == n + 10
        assert next(record.body for batch in lease.read(30, 40) for record in batch) == b"30"
        assert hog.blocked == "low on memory"
        assert not settled.is_set()
        with blocking.connect(small.url) as other, other.channel() as emptying:

            def emptied() -> bool:
                emptying.purge_queue("hog")
                return settled.is_set()

            until(emptied, "the publisher's request is served")
            emptying.delete_queue("hog")  # Publishes on their way to it stop no publisher again.
        thread.join()
        filling.join()
        assert lease.info().settled == 40


def test_a_flood_without_a_disk_is_held_back(small: Served) -> None:
    client = talk_to(small)
    client.declare("q")
    client.socket.settimeout(2)
    body = bytes(MIB)
    sent = 0

    def flood() -> None:
        nonlocal sent
        while sent < 400:
            client.publish("q", body)
            sent += 1

    with pytest.raises(UnexpectedAnswer, match="timed out"):
        flood()
    assert sent < 100  # Socket buffers and the limit, then the sender waits.
    other = connect(small)
    channel = other.channel()
    channel.queue_declare("q", passive=True)  # Is answered while the sender waits.
    assert small.memory_bytes() < 400 * MIB
    client.drop()


@pytest.mark.once
def test_a_backlog_goes_to_disk_and_comes_back(paging: Served) -> None:
    publisher = connect(paging).channel()
    publisher.queue_declare("q", durable=True)
    publisher.confirm_delivery()
    before = paging.memory_bytes()
    count = 300
    for n in range(count):
        properties = pika.BasicProperties(delivery_mode=1 + n % 2)
        publisher.basic_publish("", "q", n.to_bytes(4, "big") * 65536, properties)
    assert publisher.queue_declare("q", passive=True).method.message_count == count
    assert paging.memory_bytes() - before < 60 * MIB  # Of 75 MiB published, and room to spare.
    for n in range(count):
        method, _, body = publisher.basic_get("q", auto_ack=True)
        assert method is not None
        assert body == n.to_bytes(4, "big") * 65536


def test_a_consumer_that_never_reads_costs_little(served: Served) -> None:
    lazy, lively = talk_to(served), talk_to(served)
    lively.declare("lazy")
    lazy.consume("lazy", no_ack=True)
    before = served.memory_bytes()
    body = bytes(64 * 1024)
    for _ in range(1600):
        lively.publish("lazy", body)
    lively.declare("probe", exclusive=True)
    assert lively.count("lazy") > 1000  # What the socket did not take waits in the queue,
    assert served.memory_bytes() - before < 250 * MIB  # once.
    lively.consume("lazy", no_ack=True)
    assert lively.content(BasicDeliver)[1] == body
    lazy.drop()
    lively.drop()


def test_a_half_open_client_gives_back_what_it_held(served: Served) -> None:
    lost, other = talk_to(served), talk_to(served)
    other.declare("held")
    other.publish("held", b"x")
    assert lost.get("held", no_ack=False) == b"x"
    linger = b"\x01\0\0\0\0\0\0\0"  # Close with a reset.
    lost.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    lost.drop()
    until(lambda: other.count("held") == 1, "it is back")


def test_many_idle_connections_affect_no_other(served: Served) -> None:
    before = served.memory_bytes()
    idle = [talk_to(served) for _ in range(300)]
    busy = talk_to(served)
    busy.declare("busy", exclusive=True)
    for _ in range(50):
        busy.publish("busy", b"x")
        assert busy.get("busy") == b"x"
    assert (served.memory_bytes() - before) / 300 < 100 * 1024
    for one in idle:
        one.drop()
    busy.drop()


def test_publishers_and_consumers_at_once_lose_nothing(served: Served) -> None:
    count = 3000
    consumer = talk_to(served)
    consumer.declare("many")
    consumer.call(BasicQos(prefetch_count=50), BasicQosOk)
    consumer.consume("many")

    def publish(number: int) -> None:
        client = talk_to(served)
        client.publish("many", *[b"%d-%d" % (number, n) for n in range(count)])
        client.call(ChannelClose(), ChannelCloseOk)
        client.drop()

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    seen: dict[bytes, int] = {}
    for tag in range(1, 3 * count + 1):
        method, body = consumer.content(BasicDeliver)
        assert method.delivery_tag == tag
        who, _, number = body.partition(b"-")
        assert int(number) == seen.get(who, -1) + 1  # Each publisher's order is kept.
        seen[who] = int(number)
        if tag % 10 == 0:
            consumer.ack(tag, multiple=True)
    for thread in threads:
        thread.join()
    assert set(seen.values()) == {count - 1}
    consumer.drop()


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
def test_publishers_wait_while_a_queue_has_its_fill(small: Served, version: str) -> None:
    """Flow control of one queue: other connections do not wait, nor do its consumers."""
    url = f"{small.url}?version={version}"
    arguments = {"qpid.flow_stop_count": 100, "qpid.flow_resume_count": 50}
    with (
        blocking.connect(url) as writing,
        blocking.connect(url) as other,
        writing.channel(confirm=False) as channel,
        other.channel() as reading,
    ):
        reading.declare_queue("full", arguments=arguments)
        reading.declare_queue("free")

        def write() -> None:
            for _ in range(40):
                channel.publish_many([bytes(10_000)] * 10, "full")

        thread = threading.Thread(target=write)
        thread.start()
        counts: list[int] = []

        def settled() -> bool:
            counts.append(reading.declare_queue("full", passive=True).message_count)
            return len(counts) > 20 and counts[-1] == counts[-20] >= 100

        until(settled, "the queue grows no more")
        assert counts[-1] < 400  # What was read at once, and no more of it.
        reading.publish(b"x", "free")
        got = 0
        while got < 400:
            got += reading.get("full", no_ack=True) is not None
        thread.join()


@pytest.mark.parametrize("no_ack", [True, False])
def test_readers_that_do_not_read_share_large_bodies(tmp_path: Path, no_ack: bool) -> None:
    """Of a fan-out to many that do not read, the broker's memory has each body about once."""
    readers, messages, size = 60, 40, 50_000
    broker = Served(tmp_path, "--memory-max", str(64 * MIB)).start()
    try:
        publisher = talk_to(broker)
        for n in range(readers):
            client = talk_to(broker)
            client.declare(f"q{n}")
            client.call(QueueBind(queue=f"q{n}", exchange="amq.fanout"), QueueBindOk)
            client.consume(f"q{n}", "c", no_ack=no_ack)
        before = broker.process.memory_info().rss
        for _ in range(messages):
            publisher.publish("", bytes(size), exchange="amq.fanout")
        publisher.call(BasicQos(prefetch_count=1), BasicQosOk)  # All of them were taken in.
        assert broker.process.memory_info().rss - before < readers * messages * size // 4
    finally:
        assert broker.stop() == 0, broker.log()
