# SPDX-License-Identifier: Apache-2.0
"""Number 3 and 9 of the abuses: attempts of clients before a login."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest

from headrace.protocol import codec_0_10, codec_0_x
from headrace.protocol.codec_0_10 import ConnectionStartOk
from headrace.protocol.codec_0_x import ConnectionClose, ConnectionSecureOk
from headrace.spec.tables import V0_8, V0_9, V0_9_1, V0_10
from headrace.testing.raw_client import RawClient, method_frame, start_ok
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from headrace.spec.tables import Version
    from support.brokers.broker_process import Served


def begin(mechanism: str, response: bytes) -> codec_0_x.ConnectionStartOk:
    """A start-ok that says so."""
    capabilities: dict[str, Any] = {"authentication_failure_close": True}
    return codec_0_x.ConnectionStartOk(
        client_properties={"capabilities": capabilities},
        mechanism=mechanism,
        response=response,
        locale="en_US",
    )


def methods_of(version: Version) -> list[Any]:
    """Every method of a version that a client could send, but for those of the handshake."""
    return [
        kind
        for kind in vars(codec_0_x).values()
        if isinstance(kind, type)
        and issubclass(kind, codec_0_x.MethodBase)
        and kind is not codec_0_x.MethodBase
        and version in kind.INDEX
    ]


@pytest.mark.parametrize("version", [V0_8, V0_9, V0_9_1], ids=str)
def test_no_method_works_before_the_login(served: Served, version: Version) -> None:
    """CVE-2016-4432: every one of them, on channel 0 and on others, ends the connection."""
    expected = {"connection.start-ok", "connection.close", "connection.close-ok"}
    kinds = [kind for kind in methods_of(version) if kind.NAME not in expected]
    assert len(kinds) > 40
    for kind in kinds:
        number = 0 if kind.NAME.startswith("connection.") else 1
        with RawClient(served.host, served.port, version) as raw:
            raw.greet()
            raw.try_send_bytes(method_frame(number, kind(), version))
            heard = raw.next_method()
            assert heard is None or isinstance(heard[1], ConnectionClose), (kind.NAME, heard)


@pytest.mark.parametrize("version", [V0_8, V0_9, V0_9_1], ids=str)
@pytest.mark.parametrize("name", ["connection.tune-ok", "connection.open", "channel.open"])
def test_a_login_that_waits_for_its_answer_is_no_login(
    served: Served, version: Version, name: str
) -> None:
    """CVE-2016-4432: nor while a challenge is open."""
    kind = next(one for one in methods_of(version) if name == one.NAME)
    with RawClient(served.host, served.port, version) as raw:
        raw.greet()
        raw.send(begin("PLAIN", b""), 0)
        raw.expect(codec_0_x.ConnectionSecure)
        raw.try_send_bytes(method_frame(1 if name.startswith("channel") else 0, kind(), version))
        heard = raw.next_method()
        assert heard is None or isinstance(heard[1], ConnectionClose), heard


def test_no_command_works_before_the_login_in_0_10(served: Served) -> None:
    """CVE-2016-4432, CVE-2015-0224: controls and commands of every class."""
    kinds = [
        kind
        for kind in vars(codec_0_10).values()
        if isinstance(kind, type)
        and issubclass(kind, (codec_0_10.Control, codec_0_10.Command))
        and kind not in (codec_0_10.Control, codec_0_10.Command, ConnectionStartOk)
        and not kind.NAME.startswith("connection.close")
    ]
    assert len(kinds) > 40
    for kind in kinds:
        code = kind.CODE[0] << 8 | kind.CODE[1]
        control = issubclass(kind, codec_0_10.Control)
        body = struct.pack(">H", code) + (b"" if control else b"\0\0") + b"\0\0"
        track = 0 if control else 1
        frame = struct.pack(">BBHBBH4x", 0x0F, 0 if control else 1, 12 + len(body), 0, track, 0)
        with socket.create_connection((served.host, served.port), timeout=PATIENCE_S) as raw:
            raw.sendall(V0_10.header)
            got = raw.recv(65536)
            assert got[:8] == V0_10.header
            try:
                raw.sendall(frame + body)
                raw.shutdown(socket.SHUT_WR)
                while octets := raw.recv(65536):
                    got += octets
            except ConnectionResetError:
                pass
        said = controls_in(got)
        assert said[0] == 0x0101, kind.NAME  # connection.start,
        assert set(said[1:]) <= {0x010B}, kind.NAME  # and connection.close at most.


def controls_in(got: bytes) -> list[int]:
    """The codes of the controls in what a broker says after its header."""
    found, at = [], len(V0_10.header)
    while at + 14 <= len(got):
        found.append(int.from_bytes(got[at + 12 : at + 14], "big"))
        at += int.from_bytes(got[at + 2 : at + 4], "big")
    return found


def test_a_proxy_header_says_nothing_about_where_a_client_is(served: Served) -> None:
    """CVE-2026-57216, CVE-2026-67411: a claimed address does not make a client local."""
    for said in (b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", b"\r\n\r\n\0\r\nQUIT\n" + bytes(16)):
        with RawClient(served.host, served.port) as raw:
            raw.try_send_bytes(said + V0_9_1.header)
            assert raw.read(8) == V0_9_1.header  # What we speak, and the end.
            assert raw.hung_up()


@pytest.mark.parametrize(
    "octets", [b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n", b"AMQP\x03"]
)
def test_other_protocols_are_told_what_we_speak(served: Served, octets: bytes) -> None:
    with RawClient(served.host, served.port) as raw:
        raw.try_send_bytes(octets + bytes(8))
        assert raw.read(8) == V0_9_1.header
        assert raw.hung_up()


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "EXTERNAL", "XOAUTH2", "OAUTHBEARER"])
def test_what_is_off_is_off(served: Served, mechanism: str) -> None:
    """CVE-2015-0223: not offered, and refused when asked for, in every version."""
    for version in (V0_8, V0_9, V0_9_1):
        with RawClient(served.host, served.port, version) as raw:
            start = raw.greet()
            assert mechanism.encode() not in start.mechanisms.split()
            raw.send(start_ok("guest", "guest", mechanism=mechanism))
            heard = raw.next_method()
            assert heard is None or isinstance(heard[1], ConnectionClose), heard
    with socket.create_connection((served.host, served.port), timeout=PATIENCE_S) as plain:
        plain.sendall(V0_10.header)
        assert mechanism.encode() not in plain.recv(65536)


def test_a_conversation_of_challenges_ends(served: Served) -> None:
    """A login of a mechanism with steps takes as many as it needs, and no more."""
    with RawClient(served.host, served.port) as raw:
        raw.greet()
        raw.send(begin("SCRAM-SHA-256", b"n,,n=guest,r=abc"), 0)
        raw.expect(codec_0_x.ConnectionSecure)
        raw.send(ConnectionSecureOk(response=b"n,,n=guest,r=abc"))
        heard = raw.next_method()
        assert heard is None or isinstance(heard[1], ConnectionClose), heard


def test_malformed_tunes_after_a_login_open_nothing(served: Served) -> None:
    """CVE-2016-3094, CVE-2018-1298: the broker is there for the next one."""
    for response in (b"", b"\0", b"\0\0", b"\0" * 4000, b"\xff" * 100, b"guest\0guest"):
        with RawClient(served.host, served.port) as raw:
            raw.greet()
            raw.send(begin("PLAIN", response), 0)
            raw.try_send_bytes(method_frame(0, ConnectionSecureOk(response=response)))
            heard = raw.next_method()
            while heard is not None and not isinstance(heard[1], ConnectionClose):
                heard = raw.next_method()
    with RawClient(served.host, served.port) as raw:
        raw.open_connection()
