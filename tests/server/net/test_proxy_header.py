# SPDX-License-Identifier: Apache-2.0
"""The PROXY protocol: headers of load balancers that the settings name, and of no one else."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import TYPE_CHECKING

import pytest

from headrace.protocol.codec_0_x import ConnectionStart
from headrace.server.config.settings import SettingError, Settings, check_together
from headrace.server.management.resources.connections import describe_connection
from headrace.server.net import proxy_header
from headrace.server.net.proxy_header import SIGNATURE, SIZE_MAX, ProxyError, read_header
from headrace.spec.tables import V0_9_1
from headrace.testing import LocalBroker
from headrace.testing.raw_client import RawClient
from headrace.testing.raw_socket import close_new_sockets
from support.brokers.broker_process import until
from support.certificates_and_tokens import Certificates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLIENT = ("203.0.113.9", 40123)


@pytest.fixture(autouse=True)
def sockets_are_closed() -> Iterator[None]:
    with close_new_sockets():
        yield


def line(family: str = "TCP4", host: str = CLIENT[0], port: int | str = CLIENT[1]) -> bytes:
    return f"PROXY {family} {host} 192.0.2.1 {port} 5672\r\n".encode()


def binary(family: int, addresses: bytes, command: int = 0x21, more: bytes = b"") -> bytes:
    rest = addresses + more
    return SIGNATURE + struct.pack(">BBH", command, family, len(rest)) + rest


V4 = socket.inet_aton(CLIENT[0]) + bytes(4) + struct.pack(">HH", CLIENT[1], 5672)
V6 = socket.inet_pton(socket.AF_INET6, "2001:db8::7") + bytes(16) + struct.pack(">HH", 9, 5672)
MAPPED = socket.inet_pton(socket.AF_INET6, f"::ffff:{CLIENT[0]}") + V6[16:]
GOOD = {
    line(): CLIENT,
    line("TCP6", "2001:DB8::7", 9): ("2001:db8::7", 9),
    b"PROXY UNKNOWN\r\n": None,
    b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n": None,
    binary(0x11, V4): CLIENT,
    binary(0x11, V4, more=b"\x04\0\x01x"): CLIENT,
    binary(0x21, V6): ("2001:db8::7", 9),
    binary(0x21, MAPPED): (CLIENT[0], 9),
    binary(0x31, bytes(216)): None,
    binary(0, b"", 0x20): None,
}


@pytest.mark.parametrize("header", GOOD)
def test_a_header_has_an_end_and_an_address(header: bytes) -> None:
    for size in range(len(header)):
        assert read_header(header[:size]) is None
    assert read_header(header + b"AMQP\0\0\x09\x01") == (len(header), GOOD[header])


BAD = {
    b"AMQP\0\0\x09\x01": "the PROXY header is missing",
    b"PROXY " + b"x" * 101: "no end within 107 bytes",
    b"PROXY nonsense\r\n": "malformed",
    line(host="one.example"): "no address",
    line("TCP6"): "malformed",
    line(port=65536): "malformed",
    line(port="-1"): "malformed",
    binary(0x11, V4, 0x11): "unknown version or command: 0x11",
    binary(0x11, V4, 0x22): "unknown version or command: 0x22",
    binary(0x11, V4[:-1]): "too short for its addresses: 11 bytes",
    binary(0x11, V4, more=bytes(SIZE_MAX)): f"more than {SIZE_MAX}",
}


@pytest.mark.parametrize("header", BAD)
def test_a_bad_header_is_refused_with_its_reason(header: bytes) -> None:
    with pytest.raises(ProxyError, match=BAD[header]):
        read_header(header)


@pytest.fixture(scope="module", params=[0, 1])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalBroker]:
    """Without relays, and with one."""
    home: Path = tmp_path_factory.mktemp("proxied")
    cert, key, _ = Certificates(home).issue("localhost", "localhost")
    with LocalBroker(
        relays=request.param,
        proxy_protocol_from="10.0.0.0/8, 127.0.0.1",
        guest_loopback_only=False,
        tls_port=0,
        tls_cert=cert,
        tls_key=key,
    ) as started:
        yield started


def test_the_client_is_the_one_that_the_header_names(broker: LocalBroker) -> None:
    raw = RawClient(broker.host, broker.port)
    header = binary(0x11, V4)
    raw.send_bytes(header[:20])
    raw.send_bytes(header[20:] + V0_9_1.header)
    raw.expect(ConnectionStart)
    peers = broker._broker.context.peers.values()
    assert [(one.host, one.port, one.loopback) for one in peers] == [(*CLIENT, False)]
    (connection,) = broker._broker.context.connections.values()
    row = describe_connection(connection)
    assert (row["host"], row["port"]) == CLIENT
    raw.drop()
    until(lambda: not broker._broker.context.peers, "its end")


def test_the_header_comes_before_tls(broker: LocalBroker) -> None:
    with socket.create_connection(
        (broker.host, int(broker.addresses["amqps"].rpartition(":")[2]))
    ) as sock:
        sock.sendall(line())
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(sock) as secured:
            secured.sendall(V0_9_1.header)
            assert secured.recv(1) == b"\x01"
            (peer,) = broker._broker.context.peers.values()
            assert (peer.host, peer.port, peer.encrypted) == (*CLIENT, True)
    until(lambda: not broker._broker.context.peers, "its end")


def test_a_bad_header_is_the_end_of_its_connection_only(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, cut = (RawClient(broker.host, broker.port) for _ in range(2))
    bad.send_bytes(V0_9_1.header)
    assert bad.hung_up()
    cut.send_bytes(b"PROXY ")
    cut.end()
    assert cut.hung_up()
    for listener in broker._broker.ports.listeners.values():
        monkeypatch.setattr(listener, "handshake_s", 0.1)
    assert RawClient(broker.host, broker.port).hung_up()
    monkeypatch.setattr(proxy_header, "WAITING_MAX", 0)
    assert RawClient(broker.host, broker.port).hung_up()
    for reason in (
        "the PROXY header is missing, which is required from this address",
        "it ended before its PROXY header",
        "no PROXY header within 0.1 s",
        "0 connections wait for their PROXY header",
    ):
        assert f"connection from 127.0.0.1 refused: {reason}" in caplog.text


def test_others_are_no_proxies() -> None:
    with LocalBroker(proxy_protocol_from="192.0.2.0/24") as broker:
        raw = RawClient(broker.host, broker.port)
        raw.send_bytes(line())
        assert raw.read(8) == V0_9_1.header  # It is no header of AMQP.
    with pytest.raises(SettingError, match="does not appear to be an IPv4 or IPv6 network"):
        check_together(Settings(proxy_protocol_from="10.0.0.0/33"))
