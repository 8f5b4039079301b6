# SPDX-License-Identifier: Apache-2.0
"""Number 9 and 10 of the abuses: ways around permissions, from every version of AMQP."""

from __future__ import annotations

import contextlib
import socket
import ssl
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import ClientError, ConnectFailed, ConnectionClosed
from headrace.client.blocking import Connection, connect
from headrace.client.errors import AccessRefused, Closed, NotFound, ResourceLocked
from headrace.model.policy.accounts import Permission, TopicPermission
from headrace.protocol.codec_0_10 import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)
from headrace.protocol.codec_0_x import (
    BasicConsume,
    BasicConsumeOk,
    BasicProperties,
    BasicPublish,
    ChannelClose,
    QueueBind,
    encode_content_header,
)
from headrace.protocol.codec_0_x import QueueDeclare as QueueDeclare0X
from headrace.protocol.codec_0_x import QueueDeclareOk as QueueDeclareOk0X
from headrace.spec.tables import V0_10
from headrace.store.catalog.users import UserDirectory
from headrace.testing.raw_client import RawClient, method_frame
from headrace.wire.frame import FRAME_HEADER, encode_frame
from support.brokers.broker_process import Served, until
from support.certificates_and_tokens import Certificates, administer
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")
versions = pytest.mark.parametrize("version", VERSIONS)
REFUSED = (AccessRefused, Closed)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker where ada may use what is hers, and the topics under her name."""
    broker = Served(tmp_path_factory.mktemp("rights")).start()
    mine = "^mine|^amq[.](topic|default|gen)|^amq[.]rabbitmq"
    administer(broker.home / "data", ("ada", "secret", Permission("^mine|^amq.gen", mine, mine)))
    with contextlib.closing(UserDirectory(broker.home / "data")) as directory:
        keys = TopicPermission("^ada[.]", "^ada[.]")
        directory.set_topic_permission("ada", "/", "amq.topic", keys)
    with connect(broker.url) as guest, guest.channel() as channel:
        for name in ("theirs", "mine"):
            channel.declare_queue(name)
            channel.declare_exchange(name, "direct")
        channel.declare_exchange("mine-topic", "topic")
        channel.bind_exchange("mine-topic", "amq.topic", "#")
    until(lambda: knows_ada(broker), "the broker knows ada")
    yield broker
    broker.end()


def knows_ada(broker: Served) -> bool:
    """Return True if the broker has applied all changes; topics come last."""
    try:
        with ada(broker, "0-9-1") as connection, connection.channel() as channel:
            channel.publish(b"x", "bob.x", "amq.topic")
    except (ConnectFailed, ConnectionClosed):
        return False
    except AccessRefused:
        return True
    return False


def ada(broker: Served, version: str) -> Connection:
    url = f"amqp://ada:secret@{broker.host}:{broker.port}/%2F?version={version}"
    return connect(url, reconnect=None)


def attempts(connection: Connection) -> dict[str, Callable[[], Any]]:
    """Return the operations that ada has no permission for, in the methods of the version."""
    letters = {"alternate-exchange": "theirs"}
    so: dict[str, Any] = {"x-alternate-exchange": "theirs"}
    if connection.version is V0_10:
        call = connection.session().call
        declare_queue, declare = QueueDeclare, ExchangeDeclare
        return {
            "delete": lambda: call(QueueDelete(queue="theirs")),
            "purge": lambda: call(QueuePurge(queue="theirs")),
            "declare": lambda: call(declare_queue(queue="theirs")),
            "look": lambda: call(declare_queue(queue="theirs", passive=True)),
            "look-there": lambda: call(declare(exchange="theirs", passive=True)),
            "query": lambda: connection.session().query_queue("theirs"),
            "letters": lambda: call(declare_queue(queue="mine-x", alternate_exchange="theirs")),
            "alternate": lambda: call(
                declare(exchange="mine-y", type="direct", alternate_exchange="theirs")
            ),
            "alternate-so": lambda: call(declare(exchange="mine-y", type="direct", arguments=so)),
            "bind": lambda: call(ExchangeBind(queue="theirs", exchange="mine", binding_key="k")),
            "bind-from": lambda: call(
                ExchangeBind(queue="mine", exchange="theirs", binding_key="k")
            ),
            "delete-exchange": lambda: call(ExchangeDelete(exchange="theirs")),
            "publish": lambda: connection.session().transfer(b"x", "k", "theirs"),
            "subscribe": lambda: connection.session().subscribe("theirs"),
        }
    channel = connection.channel()
    common: dict[str, Callable[[], Any]] = {
        "delete": lambda: channel.delete_queue("theirs"),
        "purge": lambda: channel.purge_queue("theirs"),
        "declare": lambda: channel.declare_queue("theirs"),
        "look": lambda: channel.declare_queue("theirs", passive=True),
        "look-there": lambda: channel.declare_exchange("theirs", "direct", passive=True),
        "letters": lambda: channel.declare_queue(
            "mine-x", arguments={"x-dead-letter-exchange": "theirs"}
        ),
        "alternate": lambda: channel.declare_exchange("mine-y", "direct", arguments=letters),
        "alternate-so": lambda: channel.declare_exchange("mine-y", "direct", arguments=so),
        "bind": lambda: channel.bind_queue("theirs", "mine", "k"),
        "bind-from": lambda: channel.bind_queue("mine", "theirs", "k"),
        "delete-exchange": lambda: channel.delete_exchange("theirs"),
        "publish": lambda: channel.publish(b"x", "k", "theirs"),
        "subscribe": lambda: channel.consume("theirs").receive(PATIENCE_S),
    }
    return common


@versions
def test_what_is_theirs_stays_theirs(served: Served, version: str) -> None:
    """CVE-2026-57221 (passive), CVE-2026-67241 (alternate exchange), CVE-2024-51988 (delete)."""
    with ada(served, version) as connection:
        names = list(attempts(connection))
    for name in names:
        with ada(served, version) as connection, pytest.raises(REFUSED) as caught:
            attempts(connection)[name]()
        said = str(caught.value)
        assert "refused for user 'ada'" in said, (name, said)
        assert "'theirs'" in said or "'mine-x'" in said, (name, said)
    with connect(served.url) as guest, guest.channel() as channel:
        assert channel.declare_queue("theirs", passive=True).message_count == 0
        for missing in ("mine-x",):
            with pytest.raises(NotFound):
                channel.declare_queue(missing, passive=True)


@versions
def test_topics_are_not_reached_by_another_way(served: Served, version: str) -> None:
    """CVE-2026-57217: by a publish, a queue's binding, an exchange's binding, or unbinding."""
    with ada(served, version) as connection:
        if connection.version is V0_10:
            session = connection.session()
            session.transfer(b"x", "ada.x", "amq.topic")
            session.call(ExchangeBind(queue="mine", exchange="amq.topic", binding_key="ada.#"))
            session.transfer(b"x", "bob.x", "mine-topic")  # Said of amq.topic alone.
        else:
            channel = connection.channel()
            channel.publish(b"x", "ada.x", "amq.topic")
            channel.bind_queue("mine", "amq.topic", "ada.#")
            channel.publish(b"x", "bob.x", "mine-topic")
    for key in ("bob.x", "ada", "xada.x", "", "#", "*.x"):
        for kind in ("publish", "bind"):
            with (
                ada(served, version) as connection,
                pytest.raises(REFUSED, match="access to topic"),
            ):
                reach(connection, kind, key)


def reach(connection: Connection, kind: str, key: str) -> None:
    if connection.version is V0_10:
        session = connection.session()
        if kind == "publish":
            session.transfer(b"x", key, "amq.topic")
        else:
            session.call(ExchangeBind(queue="mine", exchange="amq.topic", binding_key=key))
    elif kind == "publish":
        connection.channel().publish(b"x", key, "amq.topic")
    else:
        connection.channel().bind_queue("mine", "amq.topic", key or "x")


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_further_routing_keys_are_topics_too(served: Served, header: str) -> None:
    """CVE-2026-57217: of all that a message is sent to."""
    from headrace.client import Message

    with ada(served, "0-9-1") as connection, connection.channel() as channel:
        channel.publish(Message(b"x", headers={header: ["ada.y"]}), "ada.x", "amq.topic")
        with pytest.raises(AccessRefused, match=r"access to topic 'bob\.x'"):
            channel.publish(Message(b"x", headers={header: ["bob.x"]}), "ada.x", "amq.topic")


def test_an_exchange_cannot_be_bound_to_hear_all_topics(served: Served) -> None:
    with ada(served, "0-9-1") as connection, connection.channel() as channel:
        with pytest.raises(AccessRefused, match="read access to topic"):
            channel.bind_exchange("mine", "amq.topic", "#")


def test_answers_of_others_cannot_be_bound_or_read(served: Served) -> None:
    """CVE-2026-57215, GHSA-6chv-gv3h-cvcj: a reply name is of its consumer alone."""
    with RawClient(served.host, served.port) as asker:
        asker.open_connection("ada", "secret").channel(1)
        asker.send(BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True))
        asker.expect(BasicConsumeOk)
        asker.send(QueueDeclare0X(queue="mine-questions"))
        asker.expect(QueueDeclareOk0X)
        header = encode_content_header(
            asker.version, 60, 0, BasicProperties(reply_to="amq.rabbitmq.reply-to")
        )
        publish = BasicPublish(routing_key="mine-questions")
        asker.send_bytes(method_frame(1, publish) + encode_frame(FRAME_HEADER, 1, header))
        with connect(served.url) as guest, guest.channel() as channel:
            question = until(lambda: channel.get("mine-questions", no_ack=True), "the question")
            name = question.reply_to
            assert name is not None
            assert name.startswith("amq.rabbitmq.reply-to.")
            with pytest.raises((AccessRefused, ResourceLocked)):
                channel.bind_queue(name, "amq.fanout", "")
        for version in VERSIONS:
            with connect(f"{served.url}?version={version}", reconnect=None) as guest:
                with pytest.raises((AccessRefused, ResourceLocked, Closed)):
                    listen(guest, name)
        asker.send(QueueBind(queue=name, exchange="amq.topic", routing_key="ada.x"))
        heard = asker.next_method()
        assert heard is not None
        assert isinstance(heard[1], ChannelClose)
    for guess in ("amq.rabbitmq.reply-to.", "amq.rabbitmq.reply-to." + "x" * 200):
        with connect(served.url) as guest, guest.channel() as channel:
            channel.publish(b"x", guess)  # Routed to no queue.


def listen(connection: Connection, name: str) -> None:
    if connection.version is V0_10:
        connection.session().subscribe(name)
    else:
        connection.channel().consume(name).receive(PATIENCE_S)


def test_who_loses_a_right_keeps_no_consumer(served: Served) -> None:
    """CVE-2026-57218: what was begun with a right ends with it, in every version."""
    data = served.home / "data"
    administer(data, ("eve", "secret", Permission(".*", ".*", ".*")))

    def log_in(version: str) -> Connection | None:
        url = f"amqp://eve:secret@{served.host}:{served.port}/%2F?version={version}"
        try:
            return connect(url, reconnect=None)
        except ClientError:
            return None

    takers: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        for version in VERSIONS:
            name = f"mine-{uuid.uuid4().hex}"
            connection = stack.enter_context(until(partial(log_in, version), "the user"))  # type: ignore[arg-type]
            if connection.version is V0_10:
                session = connection.session()
                session.call(QueueDeclare(queue=name))
                takers[name] = session.subscribe(name)
                takers[name].flow()
            else:
                channel = connection.channel()
                channel.declare_queue(name)
                takers[name] = channel.consume(name)
        administer(data, ("eve", "secret", Permission(".*", ".*", "^nothing$")))
        for name, taker in takers.items():
            with pytest.raises(REFUSED, match=f"read access to queue '{name}'"):
                taker.receive(PATIENCE_S)
    with connect(served.url) as guest, guest.channel() as channel:
        for name in takers:
            channel.publish(b"secret", name)
            assert channel.delete_queue(name) == 1


# --- Certificates -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def encrypted(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Served]:
    cert, key, _ = certificates.issue("localhost", "localhost")
    broker = Served(
        tmp_path_factory.mktemp("encrypted"),
        *("--tls-port", "0", "--tls-cert", str(cert), "--tls-key", str(key)),
        *("--tls-ca", str(certificates.ca), "--tls-crl", str(certificates.crl)),
        "--management-socket",
        str(tmp_path_factory.mktemp("socket") / "m.sock"),
        memory=True,
    ).start()
    yield broker
    broker.end()


def shake_hands(broker: Served, context: ssl.SSLContext) -> dict[str, Any] | None:
    """The broker's certificate; None when it does not accept ours."""
    port = int(broker.ready["amqps"].rpartition(":")[2])
    with socket.create_connection((broker.host, port), timeout=PATIENCE_S) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as speaking:
                speaking.sendall(b"AMQP\0\0\x09\x01")
                return speaking.getpeercert() if speaking.recv(10) else None
        except (ssl.SSLError, ConnectionError):
            return None


def client_context(certificates: Certificates, certified: tuple[Path, Path, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(certified[0], certified[1])
    return context


def test_a_revoked_certificate_is_refused_without_a_restart(
    encrypted: Served, certificates: Certificates
) -> None:
    """And the broker's own certificate is another after the same signal."""
    good, bad = certificates.issue("good"), certificates.issue("bad")
    old = shake_hands(encrypted, client_context(certificates, bad))
    assert old is not None
    certificates.revoke(bad[2])
    certificates.issue("localhost", "localhost")  # Into the same files.
    encrypted.process.send_signal(1)
    until(lambda: shake_hands(encrypted, client_context(certificates, bad)) is None, "refusal")

    def is_fresh() -> bool:
        """The list of what is revoked may have been read before the signal."""
        shown = shake_hands(encrypted, client_context(certificates, good))
        return shown is not None and shown["serialNumber"] != old["serialNumber"]

    until(is_fresh, "another certificate")


def test_files_that_cannot_be_used_change_nothing(
    encrypted: Served, certificates: Certificates
) -> None:
    good = client_context(certificates, certificates.issue("good"))
    kept = certificates.crl.read_bytes()
    certificates.crl.write_bytes(b"rubbish")
    encrypted.process.send_signal(1)
    until(lambda: "cannot use" in encrypted.log(), "the log says so")
    assert shake_hands(encrypted, good) is not None
    certificates.crl.write_bytes(kept)


def test_certificates_of_others_and_old_versions_of_tls_are_refused(
    encrypted: Served, certificates: Certificates, tmp_path: Path
) -> None:
    """CVE-2026-67231: the name of an authority and a serial number are not enough."""
    forged = Certificates(tmp_path).issue("good")
    context = client_context(certificates, forged)
    assert shake_hands(encrypted, context) is None
    good = client_context(certificates, certificates.issue("good"))
    with pytest.warns(DeprecationWarning, match="TLS"):
        good.maximum_version = ssl.TLSVersion.TLSv1_1
    good.set_ciphers("ALL:@SECLEVEL=0")
    assert shake_hands(encrypted, good) is None


def test_our_client_verifies_by_default_and_never_falls_back(
    encrypted: Served, certificates: Certificates
) -> None:
    """CVE-2026-63336, CVE-2016-2166: an unknown authority, another name, a port without TLS."""
    port = encrypted.ready["amqps"].rpartition(":")[2]
    cert, key, _ = certificates.issue("good")
    files = f"certfile={cert}&keyfile={key}"
    with pytest.raises(ConnectFailed, match="VERIFY_FAILED"):
        connect(f"amqps://localhost:{port}/?{files}", reconnect=None)
    trusted = f"{files}&cacertfile={certificates.ca}"
    with pytest.raises(ConnectFailed, match="VERIFY_FAILED"):
        connect(f"amqps://127.0.0.1:{port}/?{trusted}", reconnect=None)
    with pytest.raises(ConnectFailed):
        connect(f"amqps://localhost:{encrypted.port}/?{trusted}", reconnect=None)
    with connect(f"amqps://localhost:{port}/?{trusted}&auth_mechanism=PLAIN") as connection:
        assert connection.is_ready
