# SPDX-License-Identifier: Apache-2.0
"""Answers leave in the order of the requests, however long the disk takes for one of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from headrace.protocol.codec_0_x import (
    AccessRequest,
    BasicCancel,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicProperties,
    BasicPublish,
    BasicQos,
    BasicRecover,
    BasicRecoverSync,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelOpen,
    ChannelPing,
    ConnectionClose,
    ConnectionUpdateSecret,
    ExchangeBind,
    ExchangeBound,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    FileCancel,
    FileConsume,
    FileOpen,
    FileQos,
    MessageCancel,
    MessageConsume,
    MessageGet,
    MessageOpen,
    MessageQos,
    MessageRecover,
    MethodBase,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    StreamCancel,
    StreamConsume,
    StreamQos,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxSelect,
    decode_method,
    encode_content_header,
    encode_method,
)
from headrace.protocol.codec_0_x import (
    TestInteger as Integer,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.answers import ANSWERS_MAX
from headrace.protocol.v0_x.channel import CLOSING
from headrace.protocol.v0_x.frames import make_frame
from headrace.protocol.v0_x.handshake import State
from headrace.spec.methods import METHODS
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version
from headrace.store.file_bodies.staging import Staging
from headrace.testing.disk import FaultyDisk
from support.brokers.in_memory_broker import LateStore, Rig

OPEN = State.OPEN.value
VERSIONS = [V0_8, V0_9, V0_9_1]
REQUESTS: dict[str, Callable[[], MethodBase]] = {
    "access.request": lambda: AccessRequest(realm="/data", active=True),
    "basic.cancel": lambda: BasicCancel(consumer_tag="c"),
    "basic.consume": lambda: BasicConsume(queue="q", consumer_tag="c", no_ack=True),
    "basic.get": lambda: BasicGet(queue="q"),
    "basic.qos": lambda: BasicQos(prefetch_count=3),
    "basic.recover": lambda: BasicRecover(requeue=True),
    "basic.recover-sync": lambda: BasicRecoverSync(requeue=True),
    "channel.close": lambda: ChannelClose(reply_code=200),
    "channel.flow": lambda: ChannelFlow(active=True),
    "channel.open": ChannelOpen,  # A second one closes the connection.
    "channel.ping": ChannelPing,
    "exchange.bind": lambda: ExchangeBind(destination="to", source="from"),
    "exchange.bound": lambda: ExchangeBound(exchange="from", queue="q"),
    "exchange.declare": lambda: ExchangeDeclare(exchange="from", type="fanout"),
    "exchange.delete": lambda: ExchangeDelete(exchange="to"),
    "exchange.unbind": lambda: ExchangeUnbind(destination="to", source="from"),
    "file.cancel": lambda: FileCancel(consumer_tag="f"),
    "file.consume": lambda: FileConsume(queue="q", consumer_tag="f"),
    "file.open": lambda: FileOpen(identifier="i", content_size=1),
    "file.qos": lambda: FileQos(prefetch_count=3),
    "message.cancel": lambda: MessageCancel(destination="m"),
    "message.consume": lambda: MessageConsume(queue="q", destination="m", no_ack=True),
    "message.get": lambda: MessageGet(queue="q", destination="g", no_ack=True),
    "message.open": lambda: MessageOpen(reference=b"r"),
    "message.qos": lambda: MessageQos(prefetch_count=3),
    "message.recover": lambda: MessageRecover(requeue=True),
    "queue.bind": lambda: QueueBind(queue="q", exchange="amq.fanout"),
    "queue.declare": lambda: QueueDeclare(queue="q", durable=True),
    "queue.delete": lambda: QueueDelete(queue="other"),
    "queue.purge": lambda: QueuePurge(queue="q"),
    "queue.unbind": lambda: QueueUnbind(queue="q", exchange="amq.fanout"),
    "stream.cancel": lambda: StreamCancel(consumer_tag="s"),
    "stream.consume": lambda: StreamConsume(queue="q", consumer_tag="s"),
    "stream.qos": lambda: StreamQos(prefetch_count=3),
    "test.integer": lambda: Integer(integer_1=1, integer_2=1),
    "tx.commit": TxCommit,
    "tx.rollback": TxRollback,
    "tx.select": TxSelect,
}


class Late:
    """A client whose broker has such a store; it talks in whole frames."""

    def __init__(self, version: Version, late: bool = True, **options: Any) -> None:
        self.version = version
        self.store = LateStore()
        self.store.late = late
        self.rig = Rig(self.store, **options)
        self.staging = Staging("/staging", disk=FaultyDisk(1), threaded=False)
        self.rig.vhost.files = self.staging
        self.there = self.rig.client(version).there
        self.send(
            ExchangeDeclare(exchange="from", type="fanout"),
            ExchangeDeclare(exchange="to", type="fanout"),
            QueueDeclare(queue="q", durable=True),
            QueueDeclare(queue="other", durable=True),
        )
        self.said()

    def framed(self, channel: int, method: MethodBase) -> bytes:
        return make_frame(1, channel, encode_method(self.version, method))

    def published(self, channel: int, **address: str) -> bytes:
        header = encode_content_header(self.version, 60, 0, BasicProperties(delivery_mode=2))
        return self.framed(channel, BasicPublish(**address)) + make_frame(2, channel, header)  # type: ignore[arg-type]

    def write(self, octets: bytes) -> None:
        self.there.receive(octets)
        self.rig.turn()

    def send(self, *methods: MethodBase, channel: int = 1) -> None:
        self.write(b"".join([self.framed(channel, method) for method in methods]))

    def at_once(self, *methods: MethodBase, channel: int = 1) -> None:
        """Send a transaction's publish and commit, and these methods, in one write."""
        self.write(
            self.framed(channel, TxSelect())
            + self.published(channel, routing_key="q")
            + self.framed(channel, TxCommit())
            + b"".join([self.framed(channel, method) for method in methods])
        )

    def sync(self) -> None:
        self.staging.woken()
        self.store.sync()
        self.rig.turn()

    def sync_all(self) -> None:
        while self.store.synced < self.store.appended:
            self.sync()

    def begin_again(self) -> bool:
        """Go on with a fresh channel; return False if the connection is closed."""
        if self.there.state_number != OPEN:
            return False
        channel = self.there.channels.get(1)
        if channel is not None and channel.state == CLOSING:
            self.send(ChannelCloseOk())
        elif channel is not None:
            self.send(ChannelClose(reply_code=200))
        self.send(ChannelOpen())
        self.sync_all()
        return self.said()[-1] == (1, "channel.open-ok")

    def heard(self) -> list[tuple[int, MethodBase]]:
        """All methods that came, with their channels."""
        octets = self.there.data_to_send()
        found = []
        at = 0
        while at < len(octets):
            channel = int.from_bytes(octets[at + 1 : at + 3], "big")
            size = int.from_bytes(octets[at + 3 : at + 7], "big")
            if octets[at] == 1:
                payload = octets[at + 7 : at + 7 + size]
                found.append((channel, decode_method(self.version, payload)))
            at += size + 8
        return found

    def said(self) -> list[tuple[int, str]]:
        """The names of what came, but for deliveries, which answer nothing."""
        heard = [(channel, method.NAME) for channel, method in self.heard()]
        return [one for one in heard if one[1] not in ("basic.deliver", "message.transfer")]


def requests(version: Version) -> list[str]:
    spoken = {
        one.name for one in METHODS if version in one.versions and one.replies and one.id[0] != 10
    }
    return sorted(spoken & REQUESTS.keys())


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_answers_of_every_pair_of_requests_keep_their_order(version: Version) -> None:
    quick, late = Late(version, late=False), Late(version)
    for first, second in itertools.product(requests(version), repeat=2):
        for each in (quick, late):
            each.at_once(REQUESTS[first](), REQUESTS[second]())
        expected = quick.said()
        assert expected[:2] == [(1, "tx.select-ok"), (1, "tx.commit-ok")]
        assert len(expected) > 2
        assert late.said() == expected[:1], (first, second)
        late.sync_all()
        assert late.said() == expected[1:], (first, second)
        if not (quick.begin_again() and late.begin_again()):
            quick, late = Late(version, late=False), Late(version)


def test_every_request_of_a_client_is_among_the_pairs() -> None:
    for version in VERSIONS:
        spoken = {
            one.name
            for one in METHODS
            if version in one.versions and one.replies and one.receiver is not None
        }
        left = {name for name in spoken - REQUESTS.keys() if not name.startswith("connection.")}
        assert left <= ELSEWHERE, left


def test_a_renewed_secret_does_not_wait_for_channels() -> None:
    late = Late(V0_9_1)
    late.at_once(TxRollback())
    late.said()
    late.send(ConnectionUpdateSecret(new_secret=b"new"), channel=0)
    assert late.said() == [(0, "connection.update-secret-ok")]
    late.sync()
    assert late.said() == [(1, "tx.commit-ok"), (1, "tx.rollback-ok")]


def test_a_refused_secret_closes_after_the_answers_that_are_owed() -> None:
    late = Late(V0_9_1, renew=lambda connection, secret: connection.refuse_secret())
    there: Any = late.there
    there.user.expires_s = 1 << 40
    late.at_once()
    late.said()
    late.send(ConnectionUpdateSecret(new_secret=b"wrong"), channel=0)
    late.send(QueueDeclare(queue="later"))
    assert late.said() == []
    late.sync()
    assert late.said() == [(1, "tx.commit-ok"), (0, "connection.close")]
    assert "later" not in late.rig.vhost.queues


ELSEWHERE = {  # Requests that no transaction allows, that have content or files, or answer ours.
    "channel.pong",
    "channel.resume",
    "confirm.select",
    "dtx.select",
    "dtx.start",
    "file.open-ok",
    "message.append",
    "message.checkpoint",
    "message.close",
    "message.offset",
    "message.resume",
    "message.transfer",
    "test.content",
    "test.string",
    "test.table",
}


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_the_close_of_the_connection_is_answered_last(version: Version) -> None:
    late = Late(version)
    late.send(ChannelOpen(), channel=2)
    late.said()
    late.at_once(channel=2)
    late.at_once()
    late.send(ConnectionClose(reply_code=200), channel=0)
    assert late.said() == [(2, "tx.select-ok"), (1, "tx.select-ok")]
    late.sync()
    assert late.said() == [(2, "tx.commit-ok"), (1, "tx.commit-ok"), (0, "connection.close-ok")]


def test_an_error_of_the_connection_comes_after_the_answers_it_owes() -> None:
    late = Late(V0_9_1)
    late.at_once()
    late.send(QueueDeclare(queue="q"), channel=7)
    late.said()
    late.sync()
    assert late.said() == [(1, "tx.commit-ok"), (0, "connection.close")]


def test_a_failing_publish_closes_the_channel_after_the_commit_is_answered() -> None:
    late = Late(V0_9_1)
    late.at_once()
    late.write(late.published(1, exchange="none"))
    late.send(TxCommit(), QueueDeclare(queue="q"))
    late.said()
    late.sync()
    assert late.said() == [(1, "tx.commit-ok"), (1, "channel.close")]
    late.send(ChannelCloseOk(), ChannelOpen())
    assert late.said() == [(1, "channel.open-ok")]


def test_channels_do_not_wait_for_one_another() -> None:
    late = Late(V0_9_1)
    late.send(ChannelOpen(), channel=2)
    late.at_once(TxRollback())
    late.said()
    late.send(QueueDeclare(queue="q", passive=True), channel=2)
    assert late.said() == [(2, "queue.declare-ok")]
    late.sync()
    assert late.said() == [(1, "tx.commit-ok"), (1, "tx.rollback-ok")]


def test_a_consumers_first_delivery_comes_after_its_consume_ok() -> None:
    late = Late(V0_9_1)
    late.write(late.published(1, routing_key="q"))
    late.at_once(BasicConsume(queue="q", consumer_tag="c", no_ack=True))
    late.said()
    assert not late.heard()
    late.sync()
    kinds = [type(method) for _, method in late.heard()]
    assert kinds == [TxCommitOk, BasicConsumeOk, BasicDeliver, BasicDeliver]


def test_what_a_commit_returns_comes_after_the_commit_before_it_is_answered() -> None:
    late = Late(V0_9_1)
    late.at_once()
    late.write(
        late.framed(1, BasicPublish(routing_key="none", mandatory=True))
        + make_frame(2, 1, encode_content_header(V0_9_1, 60, 0, BasicProperties()))
    )
    late.send(TxCommit())
    late.said()
    late.sync_all()
    kinds = [type(method) for _, method in late.heard()]
    assert kinds == [TxCommitOk, BasicReturn, TxCommitOk]


def test_answers_that_are_owed_are_bounded() -> None:
    late = Late(V0_9_1)
    late.at_once(*[QueueDeclare(queue="q", passive=True)] * (2 * ANSWERS_MAX))
    late.said()
    channel: Any = late.there.channels[1]
    assert len(channel.answers) == ANSWERS_MAX
    late.sync()
    kinds = [type(method) for _, method in late.heard()]
    assert kinds == [TxCommitOk] + [QueueDeclareOk] * (2 * ANSWERS_MAX)


def test_a_disk_that_takes_nothing_does_not_keep_a_connection_from_closing() -> None:
    late = Late(V0_9_1)
    late.at_once(TxRollback())
    late.said()
    late.store.full = True
    late.send(ConnectionClose(reply_code=200), channel=0)
    assert late.said() == [(0, "connection.close-ok")]


def test_a_refused_answer_closes_the_channel_in_its_place() -> None:
    late = Late(V0_9_1)
    late.at_once(QueueDeclare(queue="q", passive=True), TxRollback())
    late.said()
    channel: Any = late.there.channels[1]
    channel.answers[0].refuse(AmqpError(ReplyCode.RESOURCE_ERROR, "the disk is full"))
    ((_, close),) = late.heard()
    assert isinstance(close, ChannelClose | ConnectionClose)
    assert (close.reply_code, close.class_id, close.method_id) == (506, 90, 20)
