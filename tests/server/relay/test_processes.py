# SPDX-License-Identifier: Apache-2.0
"""Relay processes: what clients and operators see is what they see without."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from headrace.client import ConnectionLost
from headrace.client.blocking import Connection, connect
from headrace.protocol.codec_0_x import (
    BasicConsume,
    BasicConsumeOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueuePurge,
)
from headrace.server.management.resources.connections import describe_connection
from headrace.server.net.client_socket import ClientAddress, with_peer
from headrace.server.relay import processes
from headrace.server.relay.frames import BACKLOG_MAX, HEADER_SIZE, PIECE_MAX, WINDOW
from headrace.server.relay.link import RelayedTransport
from headrace.server.relay.processes import RelayProcesses
from headrace.testing import LocalBroker
from headrace.testing.raw_client import RawClient
from headrace.testing.raw_socket import close_new_sockets
from support.brokers.broker_process import Served, until
from support.certificates_and_tokens import Certificates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")
LARGE, COUNT = 1 << 16, 256


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[LocalBroker]:
    """A broker with one relay, for which clients need a certificate if they come by TLS."""
    cert, key, _ = certificates.issue("localhost", "localhost")
    with LocalBroker(
        relays=1, tls_port=0, tls_cert=cert, tls_key=key, tls_ca=certificates.ca
    ) as started:
        yield started


@pytest.fixture(autouse=True)
def sockets_are_closed() -> Iterator[None]:
    with close_new_sockets():
        yield


def relays_of(broker: LocalBroker) -> RelayProcesses:
    found = broker._broker.relay_processes
    assert isinstance(found, RelayProcesses)
    return found


def rows(broker: LocalBroker) -> list[Any]:
    """What `headrace list connections` shows, each with its transport."""
    found = list(broker._broker.context.connections.values())
    return [(describe_connection(one), one.transport) for one in found]


def row_of(broker: LocalBroker, port: int) -> tuple[Any, Any]:
    return next(each for each in rows(broker) if each[0]["port"] == port)


def echo(connection: Connection, queue: str, body: bytes) -> bytes:
    """Publish to a queue and get that back."""
    with connection.channel() as channel:
        channel.declare_queue(queue, auto_delete=True)
        with channel.consume(queue) as consumer:
            channel.publish(body, queue)
            delivery = next(iter(consumer))
            delivery.ack()
            return bytes(delivery.body)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_versions_pass(broker: LocalBroker, version: str) -> None:
    body = os.urandom(3 << 20)  # Many windows.
    with connect(f"{broker.url}?version={version}") as connection:
        assert echo(connection, version, body) == body
        row, transport = next(each for each in rows(broker) if each[0]["protocol"] == version)
        assert isinstance(transport, RelayedTransport)
        assert min(row["bytes_sent"], row["bytes_received"]) > len(body)


def test_the_client_has_its_own_address(broker: LocalBroker) -> None:
    raw = RawClient(broker.host, broker.port).open_connection()
    host, port = raw.socket.getsockname()
    row, transport = row_of(broker, port)
    assert (row["host"], row["tls"]) == (host, "")
    assert transport.sock.getsockname() == (broker.host, broker.port)
    assert with_peer(transport.sock, ("192.0.2.1", 7)).getpeername() == ("192.0.2.1", 7)
    assert with_peer(raw.socket, ("192.0.2.1", 7)).getsockname() == (host, port)
    assert (transport.sock.fileno(), transport.sock.close()) == (-1, None)
    assert isinstance(transport.sock, ClientAddress)


def test_tls_ends_in_the_relay_and_its_facts_are_known(
    broker: LocalBroker, certificates: Certificates
) -> None:
    cert, key, _ = certificates.issue("guest")
    port = broker.addresses["amqps"].rpartition(":")[2]
    query = f"certfile={cert}&keyfile={key}&cacertfile={certificates.ca}&auth_mechanism=EXTERNAL"
    with connect(f"amqps://localhost:{port}/%2F?{query}") as connection:
        assert echo(connection, "secret", b"x" * (1 << 20)) == b"x" * (1 << 20)
        row, transport = next(each for each in rows(broker) if each[0]["tls"])
        assert (row["tls"], row["mechanism"], row["user"]) == ("TLSv1.3", "EXTERNAL", "guest")
        assert transport.peer.certificate["subject"] == ((("commonName", "guest"),),)
    until(lambda: not any(each[0]["tls"] for each in rows(broker)), "its end")


def test_a_client_that_does_not_speak_tls_is_let_go(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    raw = RawClient(broker.host, int(broker.addresses["amqps"].rpartition(":")[2]))
    raw.send_bytes(b"AMQP\0\0\x09\x01")
    while raw.socket.recv(4096):  # An alert, and the end: not a reset.
        pass
    until(lambda: "TLS handshake with 127.0.0.1 failed" in caplog.text, "the reason")


def test_a_consumer_that_does_not_read_stops_no_neighbour(broker: LocalBroker) -> None:
    slow = RawClient(broker.host, broker.port).open_connection().channel(1)
    slow.send(QueueDeclare(queue="slow", auto_delete=True))
    slow.expect(QueueDeclareOk)
    slow.send(BasicConsume(queue="slow", no_ack=True))
    slow.expect(BasicConsumeOk)
    _, transport = row_of(broker, slow.socket.getsockname()[1])
    with connect(broker.url) as connection, connection.channel() as channel:
        for _ in range(COUNT):
            channel.publish(b"z" * LARGE, "slow")
        until(lambda: transport.credit == 0, "the window is used up")
        assert echo(connection, "quick", b"hello") == b"hello"
        got = 0
        while got < COUNT * LARGE:
            frame = slow.frame()
            assert frame is not None
            got += len(frame[2]) if frame[0] == 3 else 0
        assert got == COUNT * LARGE


def test_what_a_client_sent_before_its_end_is_handled(broker: LocalBroker) -> None:
    """Also when it was not to be read at that time."""
    raw = RawClient(broker.host, broker.port).open_connection().channel(1)
    raw.send(QueueDeclare(queue="left"))
    raw.expect(QueueDeclareOk)
    _, transport = row_of(broker, raw.socket.getsockname()[1])
    call = broker._broker.reactor.loop.call_soon_threadsafe
    call(transport.hold)
    until(lambda: not transport.reading, "it is held")
    for _ in range(100):
        raw.send(QueueDeclare(queue="left", no_wait=True))
    raw.send(QueuePurge(queue="left", no_wait=True))
    raw.send(QueueDeclare(queue="last", no_wait=True))
    raw.drop()
    until(lambda: transport.gone, "the end was told")
    assert not transport.closed
    call(transport.unhold)
    until(lambda: transport.closed, "the end was handled")
    assert "last" in broker._broker.vhosts["/"].queues


def test_a_relay_that_stands_still_is_sent_no_more_than_a_backlog(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = relays_of(broker).relays[0]
    assert relay is not None
    raws = [RawClient(broker.host, broker.port).open_connection().channel(1) for _ in range(20)]
    for number, raw in enumerate(raws):
        raw.send(QueueDeclare(queue=f"still-{number}", exclusive=True))
        raw.expect(QueueDeclareOk)
        raw.send(QueueBind(queue=f"still-{number}", exchange="amq.fanout"))
        raw.expect(QueueBindOk)
        raw.send(BasicConsume(queue=f"still-{number}", no_ack=True))
        raw.expect(BasicConsumeOk)
    body = b"y" * (WINDOW + LARGE)
    monkeypatch.setattr(RelayProcesses, "hand_over", lambda *_: None)
    os.kill(relay.process.pid, signal.SIGSTOP)
    try:
        with connect(broker.url) as connection, connection.channel() as channel:
            channel.publish(body, "", exchange="amq.fanout")
        until(lambda: len(relay.link.waiting) > 0, "the link is full")
        assert relay.link.output.unsent() <= BACKLOG_MAX + PIECE_MAX + HEADER_SIZE
    finally:
        os.kill(relay.process.pid, signal.SIGCONT)
    for raw in raws:
        got = 0
        while got < len(body):
            frame = raw.frame()
            assert frame is not None
            got += len(frame[2]) if frame[0] == 3 else 0


def test_a_relay_that_is_killed_costs_a_reconnection(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    (pid,) = relays_of(broker).pids
    with connect(broker.url, reconnect=None) as connection, connection.channel() as channel:
        channel.declare_queue("stays")
        channel.publish("kept", "stays")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ConnectionLost):
            until(lambda: channel.declare_queue("stays") is None, "the end of the connection")
    with connect(broker.url) as connection, connection.channel() as channel:
        assert relays_of(broker).pids != [pid]
        delivery = channel.get("stays")
        assert delivery is not None
        assert bytes(delivery.body) == b"kept"
        channel.delete_queue("stays")
    assert "ended with signal 9; its 1 clients were disconnected" in caplog.text


def comes_directly(broker: LocalBroker) -> bool:
    raw = RawClient(broker.host, broker.port).open_connection()
    return not isinstance(row_of(broker, raw.socket.getsockname()[1])[1], RelayedTransport)


def test_without_relays_for_long_the_broker_serves_clients_itself(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: RelayProcesses) -> None:
        raise OSError("no more processes")

    relays = relays_of(broker)
    with monkeypatch.context() as patched:
        patched.setattr(processes, "ALONE_S", 0.0)
        patched.setattr(processes, "Relay", refuse)
        os.kill(relays.pids[0], signal.SIGKILL)
        until(lambda: "cannot be started: no more processes" in caplog.text, "it was tried")
        assert comes_directly(broker)
    until(lambda: relays.relays[0] is not None and relays.relays[0].ready, "a new one")
    assert not comes_directly(broker)


def test_a_client_that_no_relay_takes_is_served_by_the_broker(broker: LocalBroker) -> None:
    (pid,) = relays_of(broker).pids
    os.kill(pid, signal.SIGSTOP)  # Its sockets take what they can.
    try:
        relay = relays_of(broker).relays[0]
        assert relay is not None
        with contextlib.suppress(OSError):
            while True:
                relay.control.send(b"-" * 1024)
        assert comes_directly(broker)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_relays_end_with_their_broker(tmp_path: Path) -> None:
    served = Served(tmp_path, "--relays=2", memory=True).start()
    pids = [int(pid) for pid in served.ready["relays"]]
    assert len(pids) == 2
    with connect(served.url, reconnect=None) as connection, connection.channel() as channel:
        channel.declare_queue("q")
        for process in map(psutil.Process, pids):
            process.terminate()  # As systemd does to all of a service: it is not for them.
        channel.declare_queue("q")
        served.kill()
        until(lambda: not any(map(psutil.pid_exists, pids)), "the relays have ended")
