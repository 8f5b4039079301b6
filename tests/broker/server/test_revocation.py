# SPDX-License-Identifier: Apache-2.0
"""Certificates that are revoked, or expire, while their connections are open."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import ssl
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

from headrace.client.blocking import Connection, connect
from headrace.gateway.security.passwords import make_account
from headrace.model.policy.accounts import Permission
from headrace.server.net import revocation
from headrace.server.net.der_certificates import (
    DerError,
    find_revoked,
    parse_authorities,
    parse_authority,
    parse_expiry,
    parse_id,
)
from headrace.server.net.tls import TlsError
from headrace.store.catalog.users import UserDirectory
from headrace.testing import LocalBroker
from support.brokers.broker_process import json_lines, until
from support.certificates_and_tokens import Certificates
from support.command_line import as_json
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

REVOKED = "the client's certificate was revoked"
WITHDRAWN = "an authority of the client's certificate is no longer trusted"
Certified = tuple[Path, Path, Any]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with two users."""
    home = tmp_path_factory.mktemp("revoked") / "data"
    with LocalBroker(home):
        pass
    with contextlib.closing(UserDirectory(home)) as directory:
        for name in ("ada", "eve"):
            directory.add_user(make_account(name, "secret"))
            directory.set_permission(name, "/", Permission(".*", ".*", ".*"))
    return home


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def broker(
    data: Path, tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LocalBroker]:
    monkeypatch.setattr("headrace.server.broker.CHECK_S", 0.05)
    cert, key, _ = certificates.issue("localhost", "localhost")
    with LocalBroker(
        data,
        tls_port=0,
        tls_cert=cert,
        tls_key=key,
        tls_ca=certificates.ca,
        tls_crl=certificates.crl,
        certificate_expiry_closes=True,
        audit_log=tmp_path / "audit.log",
    ) as started:
        yield started


def audited(home: Path, what: str) -> list[dict[str, Any]]:
    return [line for line in json_lines(home / "audit.log") if line["what"] == what]


class Caller:
    """Our client with a certificate, and what it was told at its end."""

    def __init__(
        self,
        broker: LocalBroker,
        certificates: Certificates,
        certified: Certified,
        query: str = "auth_mechanism=EXTERNAL",
    ) -> None:
        port = broker.addresses["amqps"].rpartition(":")[2]
        files = f"certfile={certified[0]}&keyfile={certified[1]}&cacertfile={certificates.ca}"
        who = "eve:secret@" if "EXTERNAL" not in query else ""
        self.told: list[Any] = []
        self.connection: Connection = connect(
            f"amqps://{who}localhost:{port}/%2F?{query}&{files}",
            reconnect=None,
            on_event=self.told.append,
        )


def pika_connection(
    broker: LocalBroker, certificates: Certificates, certified: Certified
) -> pika.BlockingConnection:
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(certified[0], certified[1])
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "localhost",
            int(broker.addresses["amqps"].rpartition(":")[2]),
            credentials=pika.credentials.ExternalCredentials(),
            ssl_options=pika.SSLOptions(context, "localhost"),
        )
    )


def test_only_revoked_certificates_are_closed(
    broker: LocalBroker, certificates: Certificates, data: Path, tmp_path: Path
) -> None:
    """By EXTERNAL and by a password, in every version and with pika, when the file changes."""
    good, bad = certificates.issue("ada"), certificates.issue("eve")
    queries = [f"auth_mechanism=EXTERNAL&version={each}" for each in ("0-8", "0-9", "0-9-1")]
    queries += ["auth_mechanism=EXTERNAL&version=0-10", "auth_mechanism=PLAIN"]
    with contextlib.ExitStack() as stack:
        callers = [Caller(broker, certificates, bad, query) for query in queries]
        friend = Caller(broker, certificates, good)
        for one in (*callers, friend):
            stack.enter_context(one.connection)
        stranger = pika_connection(broker, certificates, bad)
        clear = stack.enter_context(connect(broker.url, reconnect=None))
        certificates.revoke(certificates.issue("another")[2])  # Of no connected client.
        until(lambda: len(audited(tmp_path, "certificates.reloaded")) == 1, "it was read")
        certificates.revoke(bad[2])
        until(lambda: all(one.told for one in callers), "the end of all of them")
        for one in callers:
            assert "320" in str(one.told[0]), one.told
            assert REVOKED in str(one.told[0])
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            stranger.process_data_events(time_limit=PATIENCE_S)
        assert caught.value.reply_code == 320
        assert caught.value.reply_text == f"CONNECTION_FORCED - {REVOKED}"
        for kept in (friend.connection, clear):
            with kept.channel() as channel:
                channel.declare_queue("", durable=False, exclusive=True)
        until(lambda: users_of(data) == {"ada", "guest"}, "nobody else is listed")
        lines = until(lambda: _six(tmp_path), "the audit log says so")
        assert {line["who"] for line in lines} == {"eve"}
        assert {line["serial"] for line in lines} == {f"{bad[2].serial_number:x}"}
        assert all(not line["allowed"] and line["from"] for line in lines)


def users_of(data: Path) -> set[str]:
    """Whose connections there are."""
    return {row["user"] for row in as_json("list", "connections", "--data", data)}


def _six(home: Path) -> list[dict[str, Any]]:
    lines = audited(home, "certificate.revoked")
    return lines if len(lines) == 6 else []


def test_an_authority_that_is_revoked_takes_its_certificates_along(
    broker: LocalBroker, certificates: Certificates, tmp_path: Path
) -> None:
    home = tmp_path / "lesser"
    home.mkdir()
    lesser = Certificates(home, certificates)
    path, key, certificate = lesser.issue("eve")
    path.write_bytes(path.read_bytes() + lesser.ca.read_bytes())

    def publish() -> None:
        certificates.crl.write_bytes(certificates.crl.read_bytes() + lesser.crl.read_bytes())

    publish()
    until(lambda: audited(tmp_path, "certificates.reloaded"), "the list of both")
    caller = Caller(broker, certificates, (path, key, certificate))
    with caller.connection:
        certificates.revoke(lesser.certificate)
        publish()
        until(lambda: caller.told, "its end")
    assert f"an authority of {REVOKED}" in str(caller.told[0])


def reload(broker: LocalBroker, **settings: Any) -> None:
    """Take these settings over."""
    inner = broker._broker
    inner.read_settings = lambda: dataclasses.replace(inner.settings, **settings)
    done: Future[object] = Future()

    def take() -> None:
        try:
            done.set_result(inner.reload())
        except TlsError as error:
            done.set_exception(error)

    inner.reactor.loop.call_soon_threadsafe(take)
    done.result(PATIENCE_S)


def test_who_comes_from_an_authority_that_is_withdrawn_is_closed(
    broker: LocalBroker, certificates: Certificates, tmp_path: Path
) -> None:
    """In every version; what has a new certificate of the same name and key is still there."""
    other_home, lesser_home = tmp_path / "other", tmp_path / "lesser"
    for home in (other_home, lesser_home):
        home.mkdir()
    other = Certificates(other_home, called="Other authority")
    lesser = Certificates(lesser_home, certificates)
    both = tmp_path / "both.pem"

    def trust(*trusted: Certificates, **settings: Any) -> None:
        both.write_bytes(b"".join(each.ca.read_bytes() for each in trusted))
        reload(broker, **{"tls_ca": both, "tls_crl": None, **settings})

    trust(certificates, other, lesser)
    short, short_key, _ = lesser.issue("ada")
    chain = lesser_home / "chain.pem"
    chain.write_bytes(short.read_bytes() + lesser.ca.read_bytes())
    roots = certificates.ca  # Of the broker's own certificate.
    with contextlib.ExitStack() as stack:

        def call(certified: tuple[Path, Path], query: str = "auth_mechanism=EXTERNAL") -> Caller:
            caller = Caller(broker, certificates, (*certified, None), query)
            stack.enter_context(caller.connection)
            return caller

        ours = call(certificates.issue("ada")[:2])
        by_chain, by_ours = call((chain, short_key)), call((short, short_key))
        theirs = [
            call(other.issue("eve")[:2], f"auth_mechanism=EXTERNAL&version={each}")
            for each in ("0-8", "0-9", "0-9-1", "0-10")
        ]
        theirs.append(call(other.issue("eve")[:2], "auth_mechanism=PLAIN"))
        clear = stack.enter_context(connect(broker.url, reconnect=None))
        certificates.renew()
        other.renew()
        trust(certificates, other, lesser)  # New certificates of the same authorities.
        trust(certificates, lesser)
        until(lambda: all(one.told for one in theirs), "the end of theirs")
        for one in theirs:
            assert "320" in str(one.told[0])
            assert WITHDRAWN in str(one.told[0])
        until(lambda: len(audited(tmp_path, "authority.withdrawn")) == 5, "it is audited")
        trust(certificates)  # A client that sends the intermediate certificate needs no copy here.
        until(lambda: by_ours.told, "the end of who does not")
        with pytest.raises(TlsError, match=r"both\.pem"):
            trust()
        for kept in (ours, by_chain):
            with kept.connection.channel() as channel:
                channel.declare_queue("", durable=False, exclusive=True)
            assert not kept.told
        trust(tls_ca=None)  # Certificates are not needed: those of clients prove nothing.
        until(lambda: ours.told and by_chain.told, "the end of all who showed one")
        assert clear.is_ready
    assert roots.exists()


def test_an_invalid_revocation_list_closes_no_connection(
    broker: LocalBroker,
    certificates: Certificates,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caller = Caller(broker, certificates, certificates.issue("ada"))
    with caller.connection:
        certificates.crl.write_bytes(b"rubbish")
        until(lambda: "is not used: cannot use" in caplog.text, "the log says so")
        certificates.crl.unlink()
        Caller(broker, certificates, certificates.issue("ada")).connection.close()
        with caller.connection.channel() as channel:
            channel.declare_queue("", durable=False, exclusive=True)
    assert not audited(tmp_path, "certificates.reloaded")
    assert not caller.told


def test_a_certificate_that_expires_ends_its_connection(
    broker: LocalBroker,
    certificates: Certificates,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caller = Caller(broker, certificates, certificates.issue("ada"))
    with caller.connection, connect(broker.url, reconnect=None) as clear:
        now_ms = revocation.clock_ms()  # type: ignore[attr-defined]
        monkeypatch.setattr(revocation, "clock_ms", lambda: now_ms + 86_400_001)
        until(lambda: caller.told, "its end")
        assert clear.is_ready
    assert "320" in str(caller.told[0])
    assert "the client's certificate has expired" in str(caller.told[0])
    (line,) = until(lambda: audited(tmp_path, "certificate.expired"), "the audit log says so")
    assert (line["who"], line["allowed"]) == ("ada", False)


@pytest.mark.parametrize("end", [(1951, 1, 1), (2049, 12, 31), (2050, 1, 1)])
def test_the_end_of_a_certificate_is_read_in_both_forms(end: tuple[int, int, int]) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 7)
        .not_valid_before(dt.datetime(1950, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(*end, tzinfo=dt.UTC))
        .sign(key, hashes.SHA256())
    )
    octets = made.public_bytes(Encoding.DER)
    assert parse_expiry(octets) == dt.datetime(*end, tzinfo=dt.UTC)
    form = f"{end[0]:04}"[0 if end[0] >= 2050 else 2 :].encode()
    wrong = octets.replace(form + b"%02d%02d000000Z" % end[1:], b"x" * (len(form) + 11))
    assert wrong != octets
    with pytest.raises(DerError, match="not a time"):
        parse_expiry(wrong)


def test_what_is_no_certificate_and_no_list_is_refused(certificates: Certificates) -> None:
    good = certificates.issue("ada")[2]
    from cryptography.hazmat.primitives.serialization import Encoding

    octets = good.public_bytes(Encoding.DER)
    found = parse_id(octets)
    assert found.serial == good.serial_number
    assert parse_expiry(octets) == good.not_valid_after_utc
    for cut in range(0, len(octets) - 1, 7):
        with pytest.raises(DerError):
            parse_id(octets[:cut])
        with pytest.raises(DerError):
            parse_authority(octets[:cut])
        with pytest.raises(DerError):
            parse_expiry(octets[:cut])
    for lists in (b"", b"rubbish", b"-----BEGIN X509 CRL-----\n!\n-----END X509 CRL-----"):
        with pytest.raises(DerError):
            find_revoked(lists, [found])
    for file in (b"", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----"):
        with pytest.raises(DerError):
            parse_authorities(file)
    before = parse_authorities(certificates.ca.read_bytes())
    certificates.renew()
    assert parse_authorities(certificates.ca.read_bytes() * 2) == before
    assert find_revoked(certificates.crl.read_bytes(), [found]) == set()
    other = found._replace(issuer=((b"x", "another"),))
    assert find_revoked(certificates.revoke(good).read_bytes(), [found, other]) == {found}
