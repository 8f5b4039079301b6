# SPDX-License-Identifier: Apache-2.0
"""Clients of a frozen virtual host wait, hear heartbeats, and go on as if nothing had been."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

import pytest

from headrace.client import blocking
from headrace.protocol.codec_0_x import (
    BasicConsume,
    BasicConsumeOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionTuneOk,
    QueueDeclare,
    QueueDeclareOk,
)
from headrace.testing import LocalBroker
from headrace.testing.raw_client import RawClient
from headrace.wire.frame import FRAME_BODY, FRAME_HEARTBEAT
from support.brokers.broker_process import until
from support.certificates_and_tokens import Certificates
from support.command_line import as_json
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.server.net.transport import Transport

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")
Found = TypeVar("Found")
BODY = b"x" * 4_000_000


class Desk:
    """A broker, and what its loop does with its only virtual host."""

    def __init__(self, broker: LocalBroker, certificates: Certificates) -> None:
        self.broker = broker
        self.certificates = certificates

    def do(self, call: Callable[[], Found]) -> Found:
        """Call on the loop; return what it returns."""
        done: Future[Found] = Future()

        def run() -> None:
            try:
                done.set_result(call())
            except BaseException as error:  # noqa: BLE001
                done.set_exception(error)

        assert self.broker._loop is not None
        self.broker._loop.call_soon_threadsafe(run)
        return done.result(PATIENCE_S)

    def freeze(self) -> None:
        inner = self.broker._broker
        self.do(lambda: inner.freezer.freeze(inner.vhosts["/"]))

    def thaw(self) -> None:
        inner = self.broker._broker
        self.do(lambda: inner.freezer.thaw(inner.vhosts["/"]))

    def transport(self) -> Transport:
        """Return the transport of the only connection."""
        (found,) = (
            one for one in self.broker._broker.transports if one.connection.vhost and not one.closed
        )
        return found

    def url(self, version: str, tls: bool, heartbeat_s: int = 10) -> str:
        query = f"version={version}&heartbeat={heartbeat_s}"
        if not tls:
            return f"{self.broker.url}?{query}"
        port = self.broker.addresses["amqps"].rpartition(":")[2]
        return f"amqps://guest:guest@localhost:{port}/%2F?{query}&cacertfile={self.certificates.ca}"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    certificates = Certificates(tmp_path)
    path, key, _ = certificates.issue("localhost", "localhost")
    with LocalBroker(tmp_path / "data", tls_port=0, tls_cert=path, tls_key=key) as broker:
        yield Desk(broker, certificates)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_waits_and_goes_on(desk: Desk, version: str, tls: bool) -> None:
    done = threading.Event()
    with blocking.connect(desk.url(version, tls)) as connection, connection.channel() as channel:
        channel.declare_queue("q", durable=True)
        channel.publish(b"before", "q")
        with channel.consume("q") as deliveries:
            first = deliveries.receive(PATIENCE_S)
            desk.freeze()

            def publish() -> None:
                first.ack()
                channel.publish(b"meanwhile", "q")
                done.set()

            thread = threading.Thread(target=publish)
            thread.start()
            transport = desk.transport()
            for _ in range(200):  # 100 seconds, of which the client is silent.
                desk.do(transport.tick)
            assert not transport.closed
            assert not done.is_set()
            desk.thaw()
            assert done.wait(PATIENCE_S)
            thread.join()
            second = deliveries.receive(PATIENCE_S)
            assert (second.body, second.redelivered) == (b"meanwhile", False)
            second.ack()


def tuned(desk: Desk, window: int = 0) -> RawClient:
    """Return a client of 0-9-1 with heartbeats each 10 seconds, whose connection is open."""
    raw = RawClient(desk.broker.host, desk.broker.port, window=window)
    tune = raw.log_in()
    raw.send(ConnectionTuneOk(channel_max=tune.channel_max, frame_max=tune.frame_max, heartbeat=10))
    raw.send(ConnectionOpen(virtual_host="/"))
    raw.expect(ConnectionOpenOk)
    return raw


def frame_of(raw: RawClient) -> tuple[int, int]:
    """Return the type of the next frame, and the size of its payload."""
    frame = raw.frame()
    assert frame is not None
    return frame[0], len(frame[2])


def test_heartbeats_come_and_no_answer(desk: Desk) -> None:
    with tuned(desk).channel(1) as raw:
        desk.freeze()
        raw.send(QueueDeclare(queue="q"))
        for _ in range(40):
            desk.do(desk.transport().tick)
        for _ in range(4):
            assert raw.frame() == (FRAME_HEARTBEAT, 0, b"")
        assert "q" not in desk.broker._broker.vhosts["/"].queues
        desk.thaw()
        assert raw.expect(QueueDeclareOk).queue == "q"


def test_a_frame_on_its_way_is_completed_before_a_heartbeat(desk: Desk) -> None:
    """The socket takes no more in the middle of bodies; the stream of frames stays sound."""
    with tuned(desk, window=65536).channel(1) as raw:
        raw.send(QueueDeclare(queue="q"))
        raw.expect(QueueDeclareOk)
        with blocking.connect(desk.broker.url) as other, other.channel() as channel:
            channel.publish_many([BODY] * 5, "q")
        raw.send(BasicConsume(queue="q", no_ack=True))
        raw.expect(BasicConsumeOk)
        transport = desk.transport()
        inner = desk.broker._broker

        def freezes_inside() -> bool:
            """Freeze in the middle of output; the kernel may take the rest at that moment."""
            if transport.writing and transport.mid_frame:
                inner.freezer.freeze(inner.vhosts["/"])
                if transport.unfinished:
                    return True
                inner.freezer.thaw(inner.vhosts["/"])
            return False

        seen: list[tuple[int, int]] = []
        while not desk.do(freezes_inside):
            if desk.do(lambda: transport.writing and not transport.mid_frame):
                # The kernel is full of whole frames: nothing moves until the client reads.
                seen.append(frame_of(raw))
        while desk.do(lambda: transport.unfinished):
            seen.append(frame_of(raw))
        for _ in range(10):
            desk.do(transport.tick)
        while seen[-1][0] != FRAME_HEARTBEAT:
            seen.append(frame_of(raw))
        desk.thaw()
        while sum(size for kind, size in seen if kind == FRAME_BODY) < 5 * len(BODY):
            seen.append(frame_of(raw))


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_who_left_meanwhile_is_noticed_after_the_thaw(desk: Desk, tls: bool) -> None:
    connection = blocking.connect(desk.url("0-9-1", tls))
    transport = desk.transport()
    desk.freeze()
    closing = threading.Thread(target=connection.close)
    closing.start()
    for _ in range(200):
        desk.do(transport.tick)
    assert not transport.closed
    desk.thaw()
    until(lambda: transport.closed, "the end of the connection")
    closing.join(PATIENCE_S)


def test_timers_wait(desk: Desk) -> None:
    inner = desk.broker._broker
    ran = threading.Event()
    desk.freeze()

    def due(now_ms: int) -> int:
        ran.set()
        return 0

    desk.do(lambda: inner.scheduler.put("test", 1, due))
    desk.do(inner.run_scheduler)
    assert not ran.is_set()
    desk.thaw()
    desk.do(inner.run_scheduler)
    assert not ran.is_set(), "what clients sent meanwhile comes first"
    assert ran.wait(PATIENCE_S)


def test_operators_see_it(desk: Desk, tmp_path: Path) -> None:
    where = ("--data", tmp_path / "data")
    desk.freeze()
    until(lambda: as_json("alarm", "list", *where), "the alarm")
    (alarm,) = as_json("alarm", "list", *where)
    assert (alarm["source"], alarm["vhost"]) == ("cluster", "/")
    assert [row["frozen"] for row in as_json("list", "vhosts", *where)] == [True]
    desk.thaw()
    until(lambda: not as_json("alarm", "list", *where), "its end")
    assert [row["frozen"] for row in as_json("list", "vhosts", *where)] == [False]


def test_what_an_operator_closes_ends_after_the_thaw(desk: Desk) -> None:
    with tuned(desk).channel(1) as raw:
        transport = desk.transport()
        desk.freeze()
        desk.do(lambda: transport.connection.force_close("out"))
        desk.do(transport.on_linger_over)
        assert not transport.closed
        desk.thaw()
        assert raw.expect_connection_close().code == 320
