# SPDX-License-Identifier: Apache-2.0
"""Clients that vanish, that never read, that flood, that stay silent: the broker bears them all."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

import headrace
import headrace.model.queue.queue
from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicProperties,
    BasicPublish,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionBlocked,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    QueueDeclare,
    QueueDeclareOk,
    encode_content_header,
)
from headrace.spec.tables import V0_9_1
from headrace.testing import LocalBroker
from headrace.testing.raw_client import RawClient, method_frame, start_ok
from headrace.wire.frame import FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, encode_frame
from support.brokers.broker_process import Served, undisturbed, until
from support.command_line import on_data
from support.timeouts import PATIENCE_S

MIB = 1 << 20
RESPONSIVE_S = 2.0  # A round trip takes no longer, whatever others do; usually far less.
SLACK = 48 * MIB  # What an allocator may keep beyond what is in use.
CONNECTION_OCTETS = 8 * 1024  # What docs/explanation/performance.md promises for one that is idle,
QUEUE_OCTETS = 2 * 1024  # and for a queue that is empty; tests leave room for noise.
COMPILED = not headrace.model.queue.queue.__file__.endswith(".py")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start brokers with settings of the test's own."""
    with ExitStack() as stack:

        def start_one(*options: str, memory: bool = False) -> Served:
            broker = Served(tmp_path / f"broker-{len(started)}", *options, memory=memory).start()
            started.append(broker)
            stack.callback(check_end, broker)
            return broker

        started: list[Served] = []
        yield start_one


def check_end(broker: Served) -> None:
    assert broker.running, broker.log()
    broker.end()


def peak_bytes(broker: Served) -> int:
    """The most memory that the broker ever held."""
    status = Path(f"/proc/{broker.process.pid}/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def reset(client: RawClient) -> None:
    """Vanish as a crashed host does once it is back: with a reset, no close."""
    sock = client.socket
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def round_trip_s(client: RawClient, queue: str) -> float:
    """How long the broker takes to answer a small question."""
    began = time.monotonic()
    client.call(QueueDeclare(queue=queue, passive=True), QueueDeclareOk)
    return time.monotonic() - began


def responsive(client: RawClient, queue: str) -> bool:
    """Return True if a request is answered soon; the machine may be slow now and then."""
    return min(round_trip_s(client, queue) for _ in range(5)) < RESPONSIVE_S


def ready(client: RawClient, queue: str) -> int:
    return client.call(QueueDeclare(queue=queue, passive=True), QueueDeclareOk).message_count


def publish_octets(queue: str, body: bytes, delivery_mode: int | None = None) -> bytes:
    """One publish on channel 1, as octets."""
    header = encode_content_header(
        V0_9_1, 60, len(body), BasicProperties(delivery_mode=delivery_mode)
    )
    return (
        method_frame(1, BasicPublish(routing_key=queue))
        + encode_frame(FRAME_HEADER, 1, header)
        + encode_frame(FRAME_BODY, 1, body)
    )


# --- Lost clients -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["reset", "end of stream"])
def test_what_a_lost_client_held_comes_back_redelivered(
    talk: Callable[[], RawClient], channel: BlockingChannel, name: str, how: str
) -> None:
    channel.queue_declare(name, auto_delete=False)
    lost = talk()
    lost.probe = name
    lost.consume(name)
    lost.publish(name, b"0", b"1", b"2")
    for body in (b"0", b"1", b"2"):
        assert lost.content(BasicDeliver)[1] == body
    if how == "reset":
        reset(lost)
    else:
        lost.drop()
    got = [
        until(lambda: [a for a in [channel.basic_get(name, auto_ack=True)] if a[0]], "the message")[
            0
        ]
        for _ in range(3)
    ]
    assert [body for _, _, body in got] == [b"0", b"1", b"2"]
    assert all(method.redelivered for method, _, _ in got)
    channel.queue_delete(name)


def test_exclusive_queues_and_open_transactions_go_with_a_lost_client(
    talk: Callable[[], RawClient], channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    lost = talk().with_queue(name + ".mine", exclusive=True)
    lost.send_bytes(method_frame(1, BasicPublish(routing_key=name)))  # A content never finished.
    reset(lost)
    connection = channel.connection

    def gone() -> bool:
        other = connection.channel()
        try:
            other.queue_declare(name + ".mine", passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            return error.reply_code == 404
        raise AssertionError("an exclusive queue was shown to another connection")

    until(gone, "the exclusive queue is gone")
    assert channel.basic_get(name)[0] is None
    channel.queue_delete(name)


def test_a_thousand_clients_that_come_and_vanish_leave_nothing(
    start: Callable[..., Served],
) -> None:
    broker = start(memory=True)

    def crowd() -> None:
        for number in range(500):
            client = RawClient(broker.host, broker.port).open()
            client.declare(f"q{number}", exclusive=True)
            client.consume(f"q{number}")
            reset(client)
        until(lambda: broker.process.num_fds() <= fds, "all sockets are let go of")

    fds = broker.process.num_fds()
    crowd()
    before = broker.memory_bytes()
    crowd()
    assert broker.memory_bytes() < before + 8 * MIB


# --- Half-open sockets --------------------------------------------------------------------------


def beating(broker: Served, heartbeat_s: int, more: bytes = b"") -> RawClient:
    """Log in with heartbeats, open channel 1 and send more, all without a pause."""
    raw = RawClient(broker.host, broker.port)
    tune = raw.log_in()
    limits = {"channel_max": tune.channel_max, "frame_max": tune.frame_max}
    raw.send_bytes(
        method_frame(0, ConnectionTuneOk(**limits, heartbeat=heartbeat_s))
        + method_frame(0, ConnectionOpen(virtual_host="/"))
        + method_frame(1, ChannelOpen())
        + more
    )
    raw.expect(ConnectionOpenOk)
    raw.expect(ChannelOpenOk)
    return raw


def test_a_client_without_heartbeats_is_dropped_and_its_messages_return(
    served: Served, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    channel.basic_publish("", name, b"x")
    began = time.monotonic()
    consume = method_frame(1, BasicConsume(queue=name, consumer_tag="t"))
    with beating(served, 1, consume) as silent:
        silent.expect(BasicConsumeOk)
        silent.expect(BasicDeliver)
        got = until(
            lambda: [a for a in [channel.basic_get(name, auto_ack=True)] if a[0]],
            "the message is back",
        )
        assert got[0][0].redelivered
        assert time.monotonic() - began > 1.5
    channel.queue_delete(name)


def test_a_quiet_client_that_sends_heartbeats_is_kept_and_hears_some(served: Served) -> None:
    def beats(in_time: Callable[[], None]) -> None:
        with beating(served, 2) as quiet:
            began = time.monotonic()
            while time.monotonic() - began < 5:  # Without a word it would be dropped after 4 s.
                frame = quiet.frame()
                assert frame == (FRAME_HEARTBEAT, 0, b"")
                quiet.send_bytes(encode_frame(FRAME_HEARTBEAT, 0, b""))
                in_time()
            quiet.send(QueueDeclare(exclusive=True))
            quiet.expect(QueueDeclareOk)

    undisturbed(beats, 2)


def test_a_trickling_login_is_given_up_in_time(start: Callable[..., Served]) -> None:
    broker = start("--handshake-s", "0.5", memory=True)
    raw = RawClient(broker.host, broker.port)
    raw.send_bytes(raw.version.header)
    start = start_ok("guest", "guest")  # type: ignore[assignment]
    start.client_properties = {"information": "x" * 8192}  # type: ignore[attr-defined]  # Hours at this pace.
    login = iter(method_frame(0, start))  # type: ignore[arg-type]
    raw.socket.settimeout(0.05)

    def dropped() -> bool:
        raw.try_send_bytes(bytes((next(login),)))
        try:
            return raw.socket.recv(65536) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    until(dropped, "the broker hangs up")
    raw.drop()


# --- Clients that do not read -------------------------------------------------------------------


def test_a_client_that_never_reads_costs_little_and_affects_no_other(
    start: Callable[..., Served], name: str
) -> None:
    broker = start("--memory-max", "8MiB")
    deaf, publisher = (
        RawClient(broker.host, broker.port).open(),
        RawClient(broker.host, broker.port).open(),
    )
    publisher.declare(name)
    publisher.call(ConfirmSelect(), ConfirmSelectOk)
    deaf.consume(name, no_ack=True)
    before = broker.memory_bytes()
    body = bytes(16 * 1024)
    batch = publish_octets(name, body) * 100
    total = 40
    took = []
    for number in range(total):
        publisher.send_bytes(batch)
        confirmed = 0
        while confirmed < 100 * (number + 1):
            confirmed = publisher.expect(BasicAck).delivery_tag
        took.append(round_trip_s(publisher, name))
    assert statistics.median(took) < RESPONSIVE_S
    assert broker.memory_bytes() < before + 8 * MIB + SLACK  # Of 64 MiB that were published.
    for _ in range(100 * total):
        _, received = deaf.content(BasicDeliver)
        assert len(received) == len(body)


def test_a_client_that_asks_and_reads_no_answers_is_held_back(
    start: Callable[..., Served], name: str
) -> None:
    broker = start(memory=True)
    deaf, other = (
        RawClient(broker.host, broker.port).open(),
        RawClient(broker.host, broker.port).open(),
    )
    deaf.declare(name)
    before = broker.memory_bytes()
    batch = method_frame(1, QueueDeclare(queue=name, passive=True)) * 1000
    deaf.socket.setblocking(False)
    asked = 0
    while select.select([], [deaf.socket], [], 1.0)[1]:  # Until it takes nothing for 1 s.
        asked += deaf.socket.send(batch)
        assert asked < 256 * MIB, "the broker takes questions without end"
    assert broker.memory_bytes() < before + 32 * MIB
    assert responsive(other, name)
    deaf.drop()
    other.drop()


# --- Floods -------------------------------------------------------------------------------------


@pytest.mark.rule("0-9-1/basic#04")
def test_a_flood_is_paged_out_and_comes_back_in_order(
    start: Callable[..., Served], name: str
) -> None:
    broker = start("--memory-max", "8MiB")
    with RawClient(broker.host, broker.port).open() as raw:
        client = RawClient(broker.host, broker.port).open()
        client.declare(name)
        before = broker.memory_bytes()
        total = 20_000
        for number in range(0, total, 100):
            raw.send_bytes(
                b"".join(
                    publish_octets(name, str(n).encode().ljust(4096))
                    for n in range(number, number + 100)
                )
            )
        until(lambda: ready(client, name) == total, "all is taken")
        assert broker.memory_bytes() < before + 8 * MIB + SLACK  # Of 80 MiB.
        assert responsive(client, name)
        client.consume(name, no_ack=True)
        for number in range(total):
            assert int(client.content(BasicDeliver)[1]) == number


def test_publishers_are_blocked_when_memory_runs_out_and_go_on_when_there_is_room(
    start: Callable[..., Served], name: str
) -> None:
    broker = start("--memory-max", "4MiB", memory=True)
    raw = RawClient(broker.host, broker.port)
    raw.greet()
    login = start_ok("guest", "guest")
    login.client_properties = {"capabilities": {"connection.blocked": True}}
    raw.send(login, 0)
    raw.expect(ConnectionTune)
    raw.send(ConnectionTuneOk(channel_max=10, frame_max=131072))
    raw.send(ConnectionOpen(virtual_host="/"))
    raw.expect(ConnectionOpenOk)
    raw.channel(1)
    consumer = RawClient(broker.host, broker.port).open()
    consumer.declare(name)
    raw.socket.setblocking(False)
    octets = publish_octets(name, bytes(10_000)) * 10
    sent = 0

    def blocked() -> bool:
        """Send what goes, until the broker says stop."""
        nonlocal sent
        try:
            sent += raw.socket.send(octets[sent % len(octets) :])
        except BlockingIOError:
            pass
        try:
            raw.rest += raw.socket.recv(65536)
        except BlockingIOError:
            pass
        return bool(raw.rest)

    until(blocked, "connection.blocked")
    raw.socket.settimeout(PATIENCE_S)
    assert raw.expect(ConnectionBlocked).reason == "low on memory"
    assert broker.memory_bytes() < 300 * MIB
    assert responsive(consumer, name)
    consumer.consume(name, no_ack=True)
    drained = 0
    raw.socket.settimeout(PATIENCE_S)
    ends = (raw.socket, consumer.socket)
    while not raw.rest:  # It may be told long after the last message was delivered.
        readable = [] if consumer.rest else select.select(ends, [], [], PATIENCE_S)[0]
        if raw.socket in readable:
            assert raw.receive()
        else:
            consumer.content(BasicDeliver)
            drained += 1
    raw.expect(ConnectionUnblocked)
    raw.send_bytes(octets[sent % len(octets) :] if sent % len(octets) else b"")
    raw.send_bytes(publish_octets(name, b"last"))
    while consumer.content(BasicDeliver)[1] != b"last":
        drained += 1
    assert drained >= sent // (len(octets) // 10)


@pytest.mark.rule("0-9-1/basic#02")
def test_a_slow_consumer_does_not_make_memory_grow(start: Callable[..., Served], name: str) -> None:
    broker = start("--memory-max", "8MiB")
    publisher = RawClient(broker.host, broker.port).open()
    publisher.declare(name)
    publisher.call(ConfirmSelect(), ConfirmSelectOk)
    connection = BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=10)
    before = broker.memory_bytes()
    batch = publish_octets(name, bytes(8192), 2) * 50
    taken = 0
    messages = channel.consume(name, inactivity_timeout=PATIENCE_S)
    for number in range(100):
        publisher.send_bytes(batch)
        confirmed = 0
        while confirmed < 50 * (number + 1):
            confirmed = publisher.expect(BasicAck).delivery_tag
        method, _, _ = next(messages)
        channel.basic_ack(method.delivery_tag)
        taken += 1
    assert broker.memory_bytes() < before + 8 * MIB + SLACK  # Of 40 MiB.
    for method, _, body in messages:
        assert len(body) == 8192
        channel.basic_ack(method.delivery_tag)
        taken += 1
        if taken == 5000:
            break
    channel.cancel()
    connection.close()


# --- Many connections ---------------------------------------------------------------------------


def idle_connections(broker: Served, count: int) -> None:
    """Open that many connections with a channel each, and ask the broker something beside them."""
    with ExitStack() as stack:
        before = broker.memory_bytes()
        for _ in range(count):
            stack.enter_context(RawClient(broker.host, broker.port).open())
        assert broker.memory_bytes() - before < count * 32 * 1024
        client = RawClient(broker.host, broker.port).open()
        client.declare("beside", exclusive=True)
        assert responsive(client, "beside")
        client.publish("beside", b"x")
        assert ready(client, "beside") == 1
        client.drop()


@pytest.mark.parametrize("count", [2000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_idle_connections_cost_little(start: Callable[..., Served], count: int) -> None:
    count = min(count, files_allowed(count + 500) - 500)
    idle_connections(start(memory=True), count)


@pytest.mark.skipif(not COMPILED, reason="what an object costs is told of the compiled broker")
def test_idle_connections_and_empty_queues_stay_small(start: Callable[..., Served]) -> None:
    broker = start()
    count, queues = 400, 4000
    files_allowed(count + 100)

    def each(before: int, number: int, most: float, of: str) -> None:
        """Wait until so many of them take no more than that: until the broker is at rest."""
        until(lambda: (broker.memory_bytes() - before) / number < most, f"{of} are small")

    with ExitStack() as stack:
        stack.enter_context(
            RawClient(broker.host, broker.port).open()
        )  # What the first of all costs.
        before = broker.memory_bytes()
        for _ in range(count):
            stack.enter_context(RawClient(broker.host, broker.port).open())
        each(before, count, 1.5 * CONNECTION_OCTETS, "idle connections")
        client = stack.enter_context(RawClient(broker.host, broker.port).open())
        client.declare("first")
        before = broker.memory_bytes()
        for number in range(0, queues, 100):
            names = [f"empty-{n}" for n in range(number, number + 100)]
            client.send_bytes(b"".join(method_frame(1, QueueDeclare(queue=n)) for n in names))
            for _ in names:
                client.expect(QueueDeclareOk)
        each(before, queues, 1.5 * QUEUE_OCTETS, "empty queues")


def files_allowed(wanted: int) -> int:
    """Raise this process's limit of open files, which its children inherit, as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


# --- Big bodies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery_mode", [1, 2])
def test_a_body_of_128_mib_is_held_once(
    start: Callable[..., Served], name: str, delivery_mode: int
) -> None:
    broker = start()
    connection = BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"small", pika.BasicProperties(delivery_mode=delivery_mode))
    channel.queue_purge(name)
    before = broker.memory_bytes()
    body = os.urandom(MIB) * 128
    channel.basic_publish("", name, body, pika.BasicProperties(delivery_mode=delivery_mode))
    taken = peak_bytes(broker) - before
    assert taken < 1.4 * len(body), f"{taken / MIB:.0f} MiB for one body of 128 MiB"
    method, _, received = channel.basic_get(name)
    assert received == body
    taken = peak_bytes(broker) - before
    assert taken < 1.4 * len(body), f"{taken / MIB:.0f} MiB for one body of 128 MiB, delivered"
    channel.basic_ack(method.delivery_tag)
    connection.close()


def test_a_body_beyond_the_limit_is_refused_by_its_header(
    start: Callable[..., Served], name: str
) -> None:
    broker = start("--body-size-max", "1MiB", memory=True)
    client = RawClient(broker.host, broker.port).open()
    client.channel(2)
    client.declare(name, channel=2)
    before = broker.memory_bytes()
    header = encode_content_header(V0_9_1, 60, MIB + 1, BasicProperties())
    client.send_bytes(
        method_frame(1, BasicPublish(routing_key=name)) + encode_frame(FRAME_HEADER, 1, header)
    )
    closed = client.expect_channel_close(1)  # No octet of the body was sent.
    assert closed.code == 406
    assert broker.memory_bytes() < before + MIB
    client.channel(1)
    client.publish(name, bytes(1024), channel=1)
    count = until(
        lambda: (
            client.call(QueueDeclare(queue=name, passive=True), QueueDeclareOk, 2).message_count
        ),
        "the message within the limit",
    )
    assert count == 1


# --- Virtual hosts ------------------------------------------------------------------------------


def test_virtual_hosts_share_nothing(tmp_path: Path, name: str) -> None:
    broker = Served(tmp_path / "broker").start()
    broker.stop()
    for words in (
        ["vhost", "add", "other"],
        ["permission", "set", "guest", ".*", ".*", ".*", "--vhost", "other"],
    ):
        on_data(tmp_path / "broker" / "data", *words)
    broker.start()

    connections = ExitStack()

    def channel_of(vhost: str) -> BlockingChannel:
        parameters = pika.URLParameters(broker.url)
        parameters.virtual_host = vhost
        return connections.enter_context(BlockingConnection(parameters)).channel()

    with connections:
        first, second = channel_of("/"), channel_of("other")
        first.queue_declare(name, durable=True)
        second.queue_declare(name, durable=False, exclusive=True)  # Neither same nor locked.
        first.exchange_declare(name, "fanout", durable=True)
        first.queue_bind(name, name)
        for channel in (first, second):
            channel.confirm_delivery()
        first.basic_publish(name, "", b"first", pika.BasicProperties(delivery_mode=2))
        second.basic_publish("", name, b"second")
        assert first.basic_get(name, auto_ack=True)[2] == b"first"
        assert second.basic_get(name, auto_ack=True)[2] == b"second"
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
            second.exchange_declare(name, passive=True)
        assert raised.value.reply_text == f"NOT_FOUND - no exchange '{name}' in vhost 'other'"
        first.basic_publish("", name, b"kept", pika.BasicProperties(delivery_mode=2))
    broker.restart(signal.SIGKILL)
    with connections:
        assert channel_of("/").basic_get(name, auto_ack=True)[2] == b"kept"
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel_of("other").queue_declare(name, passive=True)
    check_end(broker)


# --- Ends ---------------------------------------------------------------------------------------


def test_sigterm_tells_the_clients_and_ends_cleanly(tmp_path: Path) -> None:
    broker = Served(tmp_path / "broker").start()
    with RawClient(broker.host, broker.port).open_connection().channel(1) as polite:
        silent = [RawClient(broker.host, broker.port) for _ in range(10)]
        broker.process.send_signal(signal.SIGTERM)
        for raw in silent:
            assert raw.hung_up()
        closed = polite.expect_connection_close()
        assert closed.code == 320
        assert closed.text.startswith("CONNECTION_FORCED - broker forced connection closure")
        assert broker.stop() == 0, broker.log()
        for raw in silent:
            raw.drop()
    assert "Traceback" not in broker.log(), broker.log()


def test_a_stop_waits_for_answers_of_open_connections_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sockets of those who never logged in are let go of at once."""
    monkeypatch.setattr("headrace.server.broker.STOP_S", PATIENCE_S)
    broker = LocalBroker().start()
    with ExitStack() as stack:
        polite = stack.enter_context(
            RawClient(broker.host, broker.port).open_connection().channel(1)
        )
        silent = [stack.enter_context(RawClient(broker.host, broker.port)) for _ in range(10)]
        thread = threading.Thread(target=broker.stop)
        thread.start()
        for raw in silent:
            assert raw.hung_up()

        def left() -> list[bool]:
            return [one.closed for one in list(broker._broker.transports) if not one.closed]

        until(lambda: len(left()) == 1, "the broker waits for the polite one")
        assert polite.expect_connection_close().code == 320
        thread.join()
    assert not left()
