# SPDX-License-Identifier: Apache-2.0
"""Every way to log in, from every version of AMQP: with our client, and with pika."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

import pika
import pytest

from headrace.client import (
    AuthenticationFailed,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    Lost,
    Reconnect,
    Recovered,
    UsageError,
)
from headrace.client.blocking import Connection, connect
from headrace.client.errors import AccessRefused, ClientError, Closed
from headrace.model.policy.accounts import Permission
from headrace.protocol.codec_0_10 import ExchangeBind, QueueDeclare, QueueDelete
from headrace.spec.tables import V0_10
from support.brokers.broker_process import Served, json_lines, until
from support.certificates_and_tokens import EVERYTHING, RESOURCE, Certificates, Issuer, administer
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")
REFUSED = (AccessRefused, Closed)  # Of a channel, and of a session.
versions = pytest.mark.parametrize("version", VERSIONS)
T = TypeVar("T")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, issuer: Issuer
) -> Iterator[Served]:
    """A broker with everything on: TLS, clients' certificates, tokens, ANONYMOUS, an audit log."""
    home = tmp_path_factory.mktemp("logins")
    cert, key, _ = certificates.issue("localhost", "localhost")
    other, other_key, _ = certificates.issue("other", "other.example", "a.wild.example")
    broker = Served(
        home,
        *("--tls-port", "0", "--tls-cert", str(cert), "--tls-key", str(key)),
        *("--tls-ca", str(certificates.ca), "--tls-crl", str(certificates.crl)),
        "--tls-server-names",
        f"other.example={other},{other_key} *.wild.example={other},{other_key}",
        *("--oauth-jwks", str(issuer.write(home / "jwks.json"))),
        *("--oauth-resource-server-id", RESOURCE, "--oauth-issuer", "https://issuer.example"),
        *("--anonymous-user", "ada", "--audit-log", str(home / "audit.log")),
        *("--login-delay-s", "0"),
    )
    broker.start()
    administer(home / "data", ("ada", "sécret", Permission(".*", ".*", ".*")))
    broker.administer("permission", "topic", "set", "ada", "amq.topic", "^{username}[.]", "^news")
    until(lambda: knows_ada(broker), "the broker knows ada")
    yield broker
    broker.end()


def knows_ada(broker: Served) -> bool:
    """Return True if the broker has applied all changes; topics come last."""
    try:
        with connect(url(broker, user="ada", password="sécret"), reconnect=None) as connection:
            return refusal(connection, "amq.topic", "bob.x") is not None
    except ConnectFailed:
        return False


def url(
    broker: Served, version: str = "0-9-1", *, user: str = "", password: str = "", **more: str
) -> str:
    who = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
    query = urlencode({"version": version, **more})
    return f"amqp://{who}{broker.host}:{broker.port}/%2F?{query}"


def tls_url(
    broker: Served, certificates: Certificates, certified: tuple[Path, Path, Any], version: str
) -> str:
    port = broker.ready["amqps"].rpartition(":")[2]
    files = f"certfile={certified[0]}&keyfile={certified[1]}&cacertfile={certificates.ca}"
    return (
        f"amqps://localhost:{port}/%2F?version={version}&auth_mechanism=EXTERNAL&{files}"
        "&server_name_indication=localhost"
    )


def token(issuer: Issuer, *scopes: str, **claims: Any) -> str:
    return issuer.token(*scopes, **{"iss": "https://issuer.example", **claims})


def before_it_expires(issuer: Issuer, lives_s: float, use: Callable[[str], T]) -> tuple[T, float]:
    """Use a token that lives for so long; on a machine too slow for that, one that lives longer.

    Return when it has expired, too.
    """
    for seconds in (lives_s, 15 * lives_s):
        secret = token(issuer, *EVERYTHING, lives_s=seconds)
        expired = time.time() + seconds + 1.5  # It lives whole seconds, and the broker looks twice.
        try:
            return use(secret), expired
        except (ClientError, pika.exceptions.AMQPError):
            if time.time() < expired - 1.5:
                raise
    raise AssertionError("the machine stands still")


class Desk:
    """A channel, or in 0-10 a session, with a queue of its own."""

    def __init__(self, connection: Connection, *, exclusive: bool = True) -> None:
        self.queue = f"logins-{uuid.uuid4().hex}"
        self.session: Any = None
        if connection.version is V0_10:
            self.session = connection.session(timeout_s=0 if exclusive else 60)
            self.session.call(
                QueueDeclare(queue=self.queue, exclusive=exclusive, auto_delete=exclusive)
            )
        else:
            self.channel = connection.channel()
            self.channel.declare_queue(self.queue, durable=False, exclusive=exclusive)

    def delete(self) -> None:
        if self.session is not None:
            self.session.call(QueueDelete(queue=self.queue))
        else:
            self.channel.delete_queue(self.queue)

    def publish(self, exchange: str, key: str) -> None:
        if self.session is not None:
            self.session.transfer(b"hello", key, exchange)
        else:
            self.channel.publish(b"hello", key, exchange)

    def bind(self, exchange: str, key: str) -> None:
        if self.session is not None:
            bind = ExchangeBind(queue=self.queue, exchange=exchange, binding_key=key)
            self.session.call(bind)
        else:
            self.channel.bind_queue(self.queue, exchange, key)

    def count(self) -> int:
        if self.session is not None:
            found = self.session.query_queue(self.queue)
            return int(found.message_count or 0)
        return int(self.channel.declare_queue(self.queue, passive=True).message_count)


def refusal(connection: Connection, exchange: str, key: str) -> Exception | None:
    """Why a publish is refused, in any version; None when it is not."""
    try:
        Desk(connection).publish(exchange, key)
    except ClientError as error:
        return error
    return None


def works(connection: Connection) -> None:
    """Declare and publish."""
    desk = Desk(connection)
    desk.publish("", desk.queue)
    until(lambda: desk.count() == 1, "the message")


@versions
@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN", "SCRAM-SHA-256", "ANONYMOUS"])
def test_a_user_logs_in(served: Served, version: str, mechanism: str) -> None:
    given = url(served, version, user="ada", password="sécret", auth_mechanism=mechanism)
    with connect(given, reconnect=None) as connection:
        works(connection)


@versions
@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("user", ["ada", "nobody"])
def test_a_wrong_password_does_not(served: Served, version: str, mechanism: str, user: str) -> None:
    given = url(served, version, user=user, password="wrong", auth_mechanism=mechanism)
    with pytest.raises((ConnectFailed, ConnectionLost, ConnectionClosed)):
        connect(given, reconnect=None)
    assert "wrong'" not in served.log()


@versions
def test_a_certificate_logs_in(served: Served, certificates: Certificates, version: str) -> None:
    with connect(
        tls_url(served, certificates, certificates.issue("ada"), version), reconnect=None
    ) as connection:
        works(connection)


def test_a_certificate_without_an_account_does_not(
    served: Served, certificates: Certificates
) -> None:
    stranger = certificates.issue("stranger")
    with pytest.raises(AuthenticationFailed, match="403"):
        connect(tls_url(served, certificates, stranger, "0-9-1"), reconnect=None)


@versions
@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN", "XOAUTH2", "OAUTHBEARER"])
def test_a_token_logs_in(served: Served, issuer: Issuer, version: str, mechanism: str) -> None:
    given = url(
        served,
        version,
        user="whoever",
        password=token(issuer, *EVERYTHING),
        auth_mechanism=mechanism,
    )
    with connect(given, reconnect=None) as connection:
        works(connection)


@versions
def test_scopes_are_permissions(served: Served, issuer: Issuer, version: str) -> None:
    scopes = ("configure:%2F/*", "write:%2F/amq.topic/news.*", "read:%2F/*")
    given = url(served, version, user="x", password=token(issuer, *scopes))
    with connect(given, reconnect=None) as connection:
        assert refusal(connection, "amq.topic", "news.today") is None
        assert isinstance(refusal(connection, "amq.topic", "olds.today"), REFUSED)
        assert isinstance(refusal(connection, "amq.fanout", "news.today"), REFUSED)


@versions
def test_topics_are_permissions(served: Served, version: str) -> None:
    given = url(served, version, user="ada", password="sécret")
    with connect(given, reconnect=None) as connection:
        assert refusal(connection, "amq.topic", "ada.x") is None
        error = refusal(connection, "amq.topic", "bob.x")
        assert isinstance(error, REFUSED)
        assert "write access to topic 'bob.x' in exchange 'amq.topic'" in str(error)
        assert refusal(connection, "amq.direct", "bob.x") is None  # There is no topic permission.
        Desk(connection).bind("amq.topic", "news.#")
        with pytest.raises(REFUSED, match="read access to topic '#'"):
            Desk(connection).bind("amq.topic", "#")


def test_server_names_choose_certificates(served: Served, certificates: Certificates) -> None:
    port = int(served.ready["amqps"].rpartition(":")[2])
    certified = certificates.issue("ada")
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(certified[0], certified[1])
    for name, subject in (
        ("localhost", "localhost"),
        ("other.example", "other"),
        ("a.wild.example", "other"),
    ):
        with socket.create_connection((served.host, port), timeout=PATIENCE_S) as plain:
            with context.wrap_socket(plain, server_hostname=name) as encrypted:
                shown: Any = encrypted.getpeercert()
                assert shown["subject"] == ((("commonName", subject),),)


def test_old_tls_and_no_certificate_are_refused(served: Served, certificates: Certificates) -> None:
    """Without a certificate, or with one of another authority, no AMQP is exchanged."""
    port = int(served.ready["amqps"].rpartition(":")[2])
    context = ssl.create_default_context(cafile=certificates.ca)
    with socket.create_connection((served.host, port), timeout=PATIENCE_S) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as encrypted:
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                encrypted.sendall(b"AMQP\0\0\x09\x01")
                assert encrypted.recv(100) == b""


def test_pika_logs_in_by_certificate(served: Served, certificates: Certificates) -> None:
    certified = certificates.issue("ada")
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(certified[0], certified[1])
    parameters = pika.ConnectionParameters(
        "localhost",
        int(served.ready["amqps"].rpartition(":")[2]),
        credentials=pika.credentials.ExternalCredentials(),
        ssl_options=pika.SSLOptions(context, "localhost"),
    )
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    assert channel.queue_declare("", exclusive=True).method.message_count == 0
    connection.close()


def test_pika_logs_in_by_token_and_renews_it(served: Served, issuer: Issuer) -> None:
    def renewed(secret: str) -> pika.BlockingConnection:
        credentials = pika.PlainCredentials("", secret)
        parameters = pika.ConnectionParameters(served.host, served.port, credentials=credentials)
        connection = pika.BlockingConnection(parameters)
        connection.update_secret(token(issuer, *EVERYTHING), "it would expire")
        return connection

    connection, expired = before_it_expires(issuer, 2, renewed)
    channel = connection.channel()
    connection.sleep(max(0.0, expired - time.time()))
    channel.queue_declare("", exclusive=True)
    connection.close()


def test_an_expired_token_ends_the_connection(served: Served, issuer: Issuer) -> None:
    lost: dict[str, list[Any]] = {version: [] for version in VERSIONS}
    with contextlib.ExitStack() as stack:
        for version in VERSIONS:

            def work(secret: str, version: str = version) -> None:
                given = url(served, version, user="x", password=secret)
                told = lost[version].append
                works(stack.enter_context(connect(given, reconnect=None, on_event=told)))

            before_it_expires(issuer, 3, work)
        until(lambda: all(lost.values()), "the end of all")
    for version in VERSIONS:
        assert "320" in str(lost[version][0])
        assert "the credentials of user 'tess' have expired" in str(lost[version][0])


def test_new_secrets_in_every_version(
    served: Served, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    """Expiry is enforced on live connections: those without a renewed token are closed."""
    caplog.set_level(logging.DEBUG)
    lost: list[Any] = []
    with contextlib.ExitStack() as stack:
        desks, fresh = {}, token(issuer, *EVERYTHING)
        for version in VERSIONS:

            def renewed(secret: str, version: str = version) -> Desk:
                given = url(served, version, user="x", password=secret)
                connection = stack.enter_context(connect(given, reconnect=None))
                desk = Desk(connection)
                connection.update_secret(fresh, "it would expire")
                return desk

            desks[version], _ = before_it_expires(issuer, 4, renewed)

        def kept(secret: str) -> None:
            given = url(served, user="x", password=secret)
            stack.enter_context(connect(given, reconnect=None, on_event=lost.append))

        before_it_expires(issuer, 4, kept)  # It expires last.
        until(lambda: lost, "the one with the old token is cut off")
        for version, desk in desks.items():
            desk.publish("", desk.queue)
            until(lambda desk=desk: desk.count() == 1, f"the message of {version}")
    assert fresh not in caplog.text
    assert fresh.split(".")[1] not in (served.home / "audit.log").read_text()


def test_without_new_secrets_the_next_connection_has_another_token(
    served: Served, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of brokers that take none. In 0-10 the session goes on there, in the others the channel."""
    monkeypatch.setattr("headrace.client.link.link_0_x.renews_secrets", lambda properties: False)
    others = ("0-8", "0-9", "0-10")
    told: dict[str, list[Any]] = {version: [] for version in others}
    with contextlib.ExitStack() as stack:
        connections, desks = {}, {}
        for version in others:

            def opened(secret: str, version: str = version) -> tuple[Connection, Desk]:
                told[version].clear()
                connection = stack.enter_context(
                    connect(
                        url(served, version, user="x", password=secret),
                        reconnect=Reconnect(delay_s=0.01),
                        on_event=told[version].append,
                    )
                )
                connection.update_secret(token(issuer, *EVERYTHING))
                desk = Desk(connection, exclusive=False)
                desk.publish("", desk.queue)
                return connection, desk

            (connections[version], desks[version]), _ = before_it_expires(issuer, 4, opened)
        for version, desk in desks.items():
            heard = told[version]
            until(lambda heard=heard: any(isinstance(e, Recovered) for e in heard), "another")
            assert isinstance(heard[0], Lost)
            assert "have expired" in str(heard[0])
            if desk.session is not None:
                desk.session.attach(connections[version])
            desk.publish("", desk.queue)
            until(lambda desk=desk: desk.count() == 2, "both messages")
            desk.delete()


@versions
def test_a_new_secret_must_be_ones_own_and_good(
    served: Served, issuer: Issuer, version: str
) -> None:
    for bad in (
        token(issuer, *EVERYTHING, name="somebody"),
        token(issuer, *EVERYTHING, lives_s=-1),
        Issuer().token(*EVERYTHING, iss="https://issuer.example"),
        "rubbish",
    ):
        given = url(served, version, user="x", password=token(issuer, *EVERYTHING))
        with connect(given, reconnect=None) as connection:
            with pytest.raises(ConnectionClosed, match="New secret was refused") as refused:
                connection.update_secret(bad)
            assert ("320" if version == "0-10" else "530") in str(refused.value)
            assert bad not in str(refused.value)


@versions
def test_rights_of_the_old_secret_end_with_the_new(
    served: Served, issuer: Issuer, version: str
) -> None:
    """CVE-2026-57218, CVE-2026-67420: nothing is remembered that the new token does not grant."""
    given = url(served, version, user="x", password=token(issuer, *EVERYTHING))
    with connect(given, reconnect=None) as connection:
        desk = Desk(connection)
        desk.publish("amq.fanout", "a")
        connection.update_secret(token(issuer, "configure:*/*", "read:*/*"), "less")
        with pytest.raises(REFUSED, match=r"write access to exchange 'amq\.fanout'"):
            desk.publish("amq.fanout", "a")


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-10"])
def test_a_new_secret_goes_to_brokers_that_say_they_take_it(
    served: Served, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = url(served, version, user="ada", password="sécret")
    with connect(given, reconnect=None) as connection:
        said = connection.server_properties["headrace_extensions"]
        assert "connection.update-secret" in str(said).split()
        connection.update_secret("x")
        monkeypatch.setattr(
            "headrace.client.link.link_0_x.renews_secrets", lambda properties: False
        )
        with pytest.raises(UsageError, match=f"takes no new secrets in AMQP {version}"):
            connection.update_secret("x")


@versions
def test_a_password_needs_no_new_secret(served: Served, version: str) -> None:
    given = url(served, version, user="ada", password="sécret")
    with connect(given, reconnect=None) as connection:
        connection.update_secret("whatever")
        works(connection)


def test_the_audit_log_says_who_did_what_from_where(served: Served, issuer: Issuer) -> None:
    path = served.home / "audit.log"
    assert path.stat().st_mode & 0o777 == 0o600
    given = url(served, user="ada", password="sécret", auth_mechanism="SCRAM-SHA-256")
    with connect(given, reconnect=None) as connection:
        desk = Desk(connection)
        refusal(connection, "amq.topic", "bob.x")
    with pytest.raises(AuthenticationFailed):
        connect(url(served, user="ada", password="a-wrong-secret"), reconnect=None)

    def find(**wanted: Any) -> dict[str, Any] | None:
        for line in json_lines(path):
            if all(line.get(key) == value for key, value in wanted.items()):
                return line
        return None

    made = until(lambda: find(what="queue.created", name=desk.queue), "the queue")
    assert (made["who"], made["allowed"], made["vhost"]) == ("ada", True, "/")
    assert made["from"].startswith("127.0.0.1:")
    login = until(lambda: find(what="login", who="ada", mechanism="SCRAM-SHA-256"), "the login")
    assert login["allowed"] is True
    until(lambda: find(what="login", allowed=False, reason="wrong password for user 'ada'"), "it")
    refused = until(lambda: find(what="permission", allowed=False, who="ada"), "the refusal")
    assert "topic 'bob.x'" in refused["reason"]
    until(lambda: find(what="user.created", name="ada"), "the user")
    until(lambda: find(what="topic.permission.created", user="ada"), "the topic permission")
    text = path.read_text()
    for secret in ("a-wrong-secret", "sécret", "s\\u00e9cret", "eyJ"):
        assert secret not in text
    assert "eyJ" not in served.log()
