# SPDX-License-Identifier: Apache-2.0
"""A client that is refused at login has changed nothing, whatever it sent with it.

Everything that a client would say after its login is sent at once with a login that is refused:
expired, forged, for somebody else, of a certificate that is revoked. Nothing of it may happen.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client.blocking import Connection, connect
from headrace.client.errors import NotFound
from headrace.protocol import codec_0_10, codec_0_x
from headrace.protocol.codec_0_10 import encode_command, encode_control
from headrace.spec.tables import V0_8, V0_9, V0_9_1, V0_10, Version
from headrace.store.catalog.users import UserDirectory
from headrace.testing import LocalBroker
from headrace.testing.raw_client import RawClient, method_frame, start_ok
from headrace.testing.raw_client_0_10 import COMMAND, whole_frame
from support.brokers.broker_process import until
from support.certificates_and_tokens import EVERYTHING, RESOURCE, Certificates, Issuer
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.model.policy.accounts import Snapshot

VERSIONS = (V0_8, V0_9, V0_9_1, V0_10)
versions = pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.label)
QUEUE = "smuggled"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("unchanged")


@pytest.fixture(scope="module")
def certificates(home: Path) -> Certificates:
    return Certificates(home)


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def broker(home: Path, issuer: Issuer, certificates: Certificates) -> Iterator[LocalBroker]:
    """A broker with tokens and certificates, and a user's queue; it closes sockets at once."""
    patch = pytest.MonkeyPatch()
    patch.setattr("headrace.server.net.transport.LINGER_S", 0.02)
    patch.setattr("headrace.server.broker.CHECK_S", 0.05)
    # Each refusal has a line of its own, and none waits for the end of the minute.
    patch.setattr("headrace.server.observe.audit_limit.LINES_OF_ONE", 1000)
    patch.setattr("headrace.server.observe.audit_limit.LINES_OF_ALL", 1000)
    cert, key, _ = certificates.issue("localhost", "localhost")
    with LocalBroker(
        home / "data",
        tls_port=0,
        tls_cert=cert,
        tls_key=key,
        tls_ca=certificates.ca,
        tls_crl=certificates.crl,
        oauth_jwks=str(issuer.write(home / "jwks.json")),
        oauth_resource_server_id=RESOURCE,
        oauth_issuer="https://issuer.example",
        audit_log=home / "audit.log",
        login_delay_s=0.0,
    ) as started:
        with connect(started.url) as connection, connection.channel() as channel:
            channel.declare_queue("theirs", durable=True)
            channel.publish(b"kept", "theirs")
        yield started
    patch.undo()


def state(broker: LocalBroker, home: Path) -> tuple[Snapshot, list[int]]:
    """All that could have changed: users and rights, queues, and the message in theirs."""
    with contextlib.closing(UserDirectory(home / "data")) as directory:
        snapshot = directory.snapshot()
    with connect(broker.url) as connection:
        return snapshot, [count_of(connection, name) for name in (QUEUE, "theirs")]


def count_of(connection: Connection, name: str) -> int:
    """How many messages a queue has; -1 when there is none of that name."""
    try:
        with connection.channel() as channel:
            return int(channel.declare_queue(name, passive=True).message_count)
    except NotFound:
        return -1


def login(version: Version, mechanism: str, response: bytes) -> bytes:
    """An answer to the broker's greeting."""
    if version is V0_10:
        said = codec_0_10.ConnectionStartOk(
            client_properties={}, mechanism=mechanism, response=response, locale="en_US"
        )
        return whole_frame(encode_control(said), 0)
    started = start_ok(mechanism=mechanism)
    started.response = response
    return method_frame(0, started, version)


def loot(version: Version) -> bytes:
    """All that a logged-in client would send next."""
    if version is V0_10:
        opening = (
            codec_0_10.ConnectionTuneOk(channel_max=10, max_frame_size=65535, heartbeat=0),
            codec_0_10.ConnectionOpen(virtual_host="/"),
        )
        attaching = (
            codec_0_10.SessionAttach(name=b"smuggler"),
            codec_0_10.SessionCommandPoint(command_id=0, command_offset=0),
        )
        commands = (
            codec_0_10.QueueDeclare(queue=QUEUE, durable=True),
            codec_0_10.QueuePurge(queue="theirs"),
        )
        return b"".join(
            (
                *(whole_frame(encode_control(each), 0) for each in opening),
                *(whole_frame(encode_control(each), 1) for each in attaching),
                *(whole_frame(encode_command(each), 1, COMMAND) for each in commands),
            )
        )
    methods: tuple[tuple[int, codec_0_x.MethodBase], ...] = (
        (0, codec_0_x.ConnectionTuneOk(channel_max=10, frame_max=65536, heartbeat=0)),
        (0, codec_0_x.ConnectionOpen(virtual_host="/")),
        (1, codec_0_x.ChannelOpen()),
        (1, codec_0_x.QueueDeclare(queue=QUEUE, durable=True)),
        (1, codec_0_x.QueuePurge(queue="theirs")),
    )
    return b"".join(method_frame(channel, each, version) for channel, each in methods)


def knock(version: Version, mechanism: str, response: bytes) -> bytes:
    """A login, and what would follow it, at once."""
    return login(version, mechanism, response) + loot(version)


def answered(broker: LocalBroker, version: Version, octets: bytes) -> bytes:
    """Return the output until the broker closes the socket."""
    with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as raw:
        raw.sendall(version.header + octets)
        return read_all(raw)


def read_all(raw: socket.socket) -> bytes:
    got = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLError):
        while octets := raw.recv(65536):
            got += octets
    return got


@versions
def test_a_user_with_permissions_can_do_all_that(
    broker: LocalBroker, home: Path, version: Version
) -> None:
    """So that the others mean something: after a good login the same octets do it."""
    deleted = count(home, "queue.deleted")
    tune = bytes((1, 5)) if version is V0_10 else bytes((0, 10, 0, 30))
    with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as raw:
        raw.sendall(version.header + login(version, "PLAIN", b"\0guest\0guest"))
        got = b""
        while tune not in got:
            got += raw.recv(65536)
        raw.sendall(loot(version))
        with connect(broker.url) as connection, connection.channel() as channel:
            until(lambda: count_of(connection, QUEUE) == 0, "the queue")
            until(lambda: count_of(connection, "theirs") == 0, "the purge")
            channel.delete_queue(QUEUE)
            channel.publish(b"kept", "theirs")
    # A thread writes the audit log: what is told of this queue is not told of the next test's.
    until(lambda: count(home, "queue.deleted") > deleted, "the audit log says so")


GOOD: dict[str, Any] = {"iss": "https://issuer.example"}
BAD_LOGINS: dict[str, Callable[[Issuer], tuple[str, bytes]]] = {
    "wrong password": lambda _: ("PLAIN", b"\0guest\0wrong"),
    "another's name": lambda _: ("PLAIN", b"root\0guest\0guest"),
    "nobody": lambda _: ("ANONYMOUS", b"x"),
    "no certificate": lambda _: ("EXTERNAL", b"guest"),
    "expired": lambda one: by_token(one.token(*EVERYTHING, **GOOD, lives_s=-5)),
    "not yet": lambda one: by_token(one.token(*EVERYTHING, **GOOD, nbf=1 << 33)),
    "forged": lambda _: by_token(Issuer().token(*EVERYTHING, **GOOD)),
    "unsigned": lambda one: by_token(one.token(*EVERYTHING, **GOOD, algorithm="none", key=None)),
    "wrong audience": lambda one: by_token(one.token(*EVERYTHING, **GOOD, aud=["another"])),
    "wrong issuer": lambda one: by_token(one.token(*EVERYTHING, iss="https://evil.example")),
    "float exp": lambda one: by_token(one.token(*EVERYTHING, **GOOD, exp=9e9)),
}


def by_token(token: str) -> tuple[str, bytes]:
    return "PLAIN", b"\0whoever\0" + token.encode()


@versions
@pytest.mark.parametrize("how", BAD_LOGINS)
def test_a_refused_login_changes_nothing(
    broker: LocalBroker, home: Path, issuer: Issuer, version: Version, how: str
) -> None:
    """CVE-2016-4432 with everything in one write; the refusal is audited, without a reason sent."""
    before = state(broker, home)
    lines = (home / "audit.log").read_text().count("\n")
    got = answered(broker, version, knock(version, *BAD_LOGINS[how](issuer)))
    assert state(broker, home) == before
    for why in (b"expired", b"wrong password", b"audience", b"signature"):
        assert why not in got
    until(lambda: refusals(home, lines), "the audit log says so")
    assert len(refusals(home, lines)) == 1
    assert f'"name": "{QUEUE}"' not in "".join(new_lines(home, lines))


def new_lines(home: Path, known: int) -> list[str]:
    """The lines that are written to their end, since the audit log had so many."""
    return (home / "audit.log").read_text().split("\n")[known:-1]


def refusals(home: Path, known: int) -> list[dict[str, Any]]:
    """The logins that were refused since the audit log had so many lines."""
    told = map(json.loads, new_lines(home, known))
    return [line for line in told if line["what"] == "login" and not line["allowed"]]


@versions
def test_a_revoked_certificate_changes_nothing(
    broker: LocalBroker, home: Path, certificates: Certificates, version: Version
) -> None:
    """Neither when the knock comes with the handshake, nor with the certificate of another."""
    path, key, certificate = certificates.issue("guest")
    kept = certificates.crl.read_bytes()
    reloads = count(home, "certificates.reloaded")
    certificates.revoke(certificate)
    until(lambda: count(home, "certificates.reloaded") > reloads, "the list is read")
    before = state(broker, home)
    refusals = count(home, "connection.refused")
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(path, key)
    port = int(broker.addresses["amqps"].rpartition(":")[2])
    with socket.create_connection((broker.host, port), timeout=PATIENCE_S) as plain:
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            with context.wrap_socket(plain, server_hostname="localhost") as raw:
                raw.sendall(version.header + knock(version, "EXTERNAL", b"guest"))
                assert read_all(raw) == b""
    assert state(broker, home) == before
    until(lambda: count(home, "connection.refused") > refusals, "the audit log says so")
    reloads = count(home, "certificates.reloaded")
    certificates.crl.write_bytes(kept)
    until(lambda: count(home, "certificates.reloaded") > reloads, "the old list is read")


def count(home: Path, what: str) -> int:
    return (home / "audit.log").read_text().count(f'"what": "{what}"')


@versions
def test_mechanisms_that_are_off_are_tried(broker: LocalBroker, version: Version) -> None:
    """CVE-2015-0223: asked for though they are not offered; nothing is heard but the end."""
    for mechanism in ("ANONYMOUS", "EXTERNAL", "GSSAPI", "CRAM-MD5", "", "PLAIN\0", "x" * 200):
        got = answered(broker, version, knock(version, mechanism, b"\0guest\0guest"))
        if version is V0_10:
            assert bytes((1, 5)) not in codes_0_10(got)  # No connection.tune.
        else:
            with RawClient(broker.host, broker.port, version) as raw:
                raw.greet()
                raw.try_send_bytes(knock(version, mechanism, b"\0guest\0guest"))
                heard = raw.next_method()
                assert heard is None or isinstance(heard[1], codec_0_x.ConnectionClose)


def codes_0_10(got: bytes) -> list[bytes]:
    """The codes of the controls in what a broker says after its header."""
    found, at = [], 8
    while at + 12 <= len(got):
        found.append(got[at + 12 : at + 14])
        at += int.from_bytes(got[at + 2 : at + 4], "big")
    assert found[0] == bytes((1, 1))
    return found
