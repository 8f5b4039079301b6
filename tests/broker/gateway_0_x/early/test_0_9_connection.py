# SPDX-License-Identifier: Apache-2.0
"""How connections and channels of 0-8 and 0-9 open, redirect, resume and close."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from headrace.protocol.codec_0_x import (
    AccessRequest,
    AccessRequestOk,
    BasicAck,
    BasicDeliver,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOk,
    ChannelOpen,
    ChannelOpenOk,
    ChannelPing,
    ChannelPong,
    ChannelResume,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionRedirect,
    ConnectionStartOk,
    ConnectionTuneOk,
    MessageConsume,
    MessageOk,
    MessageTransfer,
    QueueDeclare,
    QueueDeclareOk,
    QueuePurge,
    QueuePurgeOk,
    TxSelect,
    TxSelectOk,
)
from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version
from headrace.testing.raw_client import RawClient, method_frame, start_ok
from headrace.wire.frame import FRAME_METHOD, encode_frame
from support.brokers.broker_process import Served, until

Talker = Callable[..., RawClient]
EARLY = pytest.mark.parametrize("version", [V0_8, V0_9], ids=lambda v: v.label)
EVERY = pytest.mark.parametrize("version", [V0_8, V0_9, V0_9_1], ids=lambda v: v.label)
RESUME_S = 0.3


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("early")
    broker = Served(
        home,
        *("--known-hosts", "/=one.example:5672,two.example moved=three.example"),
        *("--redirect", "moved=three.example:5673,four.example away=five.example"),
        *("--channel-resume-s", "60"),
        memory=True,
    ).start()
    yield broker
    broker.end()


@pytest.fixture
def raw(served: Served) -> Iterator[Callable[[Version], RawClient]]:
    opened: list[RawClient] = []

    def connect(version: Version) -> RawClient:
        opened.append(RawClient(served.host, served.port, version))
        return opened[-1]

    yield connect
    for one in opened:
        one.drop()


# -- Start -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "numbers"), [(V0_8, (8, 0)), (V0_9, (0, 9)), (V0_9_1, (0, 9))], ids=str
)
def test_start_names_the_version(
    raw: Callable[[Version], RawClient], version: Version, numbers: tuple[int, int]
) -> None:
    start = raw(version).greet()
    assert (start.version_major, start.version_minor) == numbers


@EARLY
@pytest.mark.rule("0-9/connection.start.server-properties#required-fields")
@pytest.mark.rule("0-9/connection.start.locales#required-support")
def test_the_server_says_who_it_is_in_plain_types(
    raw: Callable[[Version], RawClient], version: Version
) -> None:
    start = raw(version).greet()
    wanted = {"host", "product", "version", "platform", "copyright", "information"}
    assert wanted <= set(start.server_properties)
    assert all(isinstance(value, str) and value for value in start.server_properties.values())
    assert b"en_US" in start.locales.split()


@EARLY
@pytest.mark.rule("0-9/connection.start#protocol-name")
def test_another_protocol_hears_no_method(
    raw: Callable[[Version], RawClient], version: Version
) -> None:
    client = raw(version)
    client.send_bytes(b"AMQQ" + version.header[4:])
    assert client.read(8)[:4] == b"AMQP"  # What the header of another version is answered with.
    assert client.hung_up()


@EARLY
@pytest.mark.rule("0-9/connection.start-ok.mechanism#validity")
def test_an_unknown_mechanism_ends_it_without_a_word(
    raw: Callable[[Version], RawClient], version: Version
) -> None:
    client = raw(version)
    client.greet()
    client.send(start_ok(mechanism="GUESS"))
    assert client.hung_up()


@EARLY
@pytest.mark.parametrize("password", ["guest", "wrong"])
def test_logins(raw: Callable[[Version], RawClient], version: Version, password: str) -> None:
    client = raw(version)
    client.greet()
    client.send(start_ok(password=password))
    if password == "guest":
        assert client.next_method()
    else:
        assert client.hung_up()


@EARLY
@pytest.mark.rule("0-9/connection.tune.frame-max#minimum")
@pytest.mark.rule("0-9/connection.tune-ok.frame-max#minimum")
def test_frames_of_the_least_size_are_taken_before_tuning(
    raw: Callable[[Version], RawClient], version: Version
) -> None:
    client = raw(version)
    client.greet()
    method = start_ok()
    method.client_properties = {"information": ""}
    short = len(method_frame(0, method, version))
    method.client_properties = {"information": "x" * (4096 - short)}
    octets = method_frame(0, method, version)
    assert len(octets) == 4096
    client.send_bytes(octets)
    assert client.next_method()


@EARLY
@pytest.mark.rule("0-9/connection.tune.frame-max#minimum")
@pytest.mark.rule("0-9/connection.tune-ok.frame-max#minimum")
def test_a_frame_max_below_the_least_is_refused(
    raw: Callable[[Version], RawClient], version: Version
) -> None:
    client = raw(version)
    client.log_in()
    client.send(ConnectionTuneOk(channel_max=1, frame_max=4095))
    assert client.expect_connection_close().code == 530
    other = raw(version)
    other.log_in()
    other.send(ConnectionTuneOk(channel_max=1, frame_max=4096))
    other.send(ConnectionOpen(virtual_host="/"))
    other.expect(ConnectionOpenOk)


@EARLY
@pytest.mark.parametrize(
    "beyond",
    [
        pytest.param(
            {"channel_max": 2048, "frame_max": 4096},
            marks=pytest.mark.rule("0-9/connection.tune-ok.channel-max#upper-limit"),
        ),
        pytest.param(
            {"channel_max": 1, "frame_max": 131073},
            marks=pytest.mark.rule("0-9/connection.tune-ok.frame-max#upper-limit"),
        ),
    ],
)
def test_limits_beyond_ours_end_it_without_negotiation(
    raw: Callable[[Version], RawClient], version: Version, beyond: dict[str, int]
) -> None:
    client = raw(version)
    client.log_in()
    client.send(ConnectionTuneOk(**beyond))
    assert client.expect(ConnectionClose).reply_code == 530
    assert client.hung_up()  # No close-ok is waited for.


# -- Open ------------------------------------------------------------------------------------------


@EVERY
def test_open_tells_of_other_hosts(raw: Callable[[Version], RawClient], version: Version) -> None:
    client = raw(version).tune()
    client.send(ConnectionOpen(virtual_host="/"))
    hosts = client.expect(ConnectionOpenOk).known_hosts
    assert hosts == ("" if version is V0_9_1 else "one.example:5672,two.example")


@EARLY
def test_a_client_is_redirected(raw: Callable[[Version], RawClient], version: Version) -> None:
    client = raw(version).tune()
    client.send(ConnectionOpen(virtual_host="moved"))
    redirect = client.expect(ConnectionRedirect)
    assert (redirect.host, redirect.known_hosts) == ("three.example:5673", "four.example")
    assert client.hung_up()


@EARLY
@pytest.mark.rule("0-9/connection.open.insist#behaviour")
def test_a_client_that_insists_is_not_redirected(
    raw: Callable[[Version], RawClient], version: Version
) -> None:
    client = raw(version).tune()
    client.send(ConnectionOpen(virtual_host="moved", insist=True))
    closed = client.expect_connection_close()
    assert (closed.code, closed.text) == (402, "INVALID_PATH - vhost moved not found")


def test_0_9_1_knows_no_redirection(raw: Callable[[Version], RawClient]) -> None:
    client = raw(V0_9_1).tune()
    client.send(ConnectionOpen(virtual_host="away"))
    assert client.expect_connection_close().code == 530


# -- Close -----------------------------------------------------------------------------------------


@EARLY
def test_the_client_closes(raw: Callable[[Version], RawClient], version: Version) -> None:
    client = raw(version).open_connection()
    close = ConnectionClose(reply_code=200, reply_text="bye")
    ids = {V0_8: (10, 60), V0_9: (10, 50)}
    assert ConnectionClose.INDEX[version] == ids[version]
    client.send(close, 0)
    client.expect(ConnectionCloseOk)
    assert client.hung_up()


@EARLY
@pytest.mark.rule("0-9/connection.close#stability")
def test_after_our_close_all_but_close_ok_is_discarded(
    talk: Talker, served: Served, version: Version, name: str
) -> None:
    client = talk(version)
    octets = b"".join(
        [
            method_frame(1, ChannelOpen(), version),  # Open already: closes the connection.
            method_frame(1, QueueDeclare(queue=name), version),
            method_frame(2, ChannelOpen(), version),
            method_frame(0, ConnectionOpen(virtual_host="/"), version),
        ]
    )
    client.send_bytes(octets)
    assert client.expect_connection_close().code == 504
    other = talk(version)
    other.send(QueueDeclare(queue=name, passive=True))
    assert other.expect_channel_close().code == 404


@EARLY
@pytest.mark.rule("0-9/channel.close#stability")
def test_after_our_close_of_a_channel_all_but_close_ok_is_discarded(
    talk: Talker, version: Version, name: str
) -> None:
    client = talk(version)
    client.send(QueueDeclare(queue=name, passive=True))
    client.send(QueueDeclare(queue=name))
    client.send(TxSelect())
    client.publish(name, b"lost")
    assert client.expect_channel_close().code == 404
    client.channel(1)
    client.send(QueueDeclare(queue=name, passive=True))
    assert client.expect_channel_close().code == 404


@EARLY
@pytest.mark.rule("0-9/connection.close-ok#reporting")
def test_a_connection_lost_without_a_close_is_logged(
    talk: Talker, served: Served, version: Version
) -> None:
    before = served.log().count("lost without a close")
    talk(version).drop()
    until(lambda: served.log().count("lost without a close") > before, "the loss is logged")
    before = served.log().count("the connection ended without close-ok")
    client = talk(version)
    client.send(ChannelOpen())
    client.expect(ConnectionClose)
    client.drop()
    until(
        lambda: served.log().count("the connection ended without close-ok") > before,
        "the missing close-ok is logged",
    )


@EARLY
@pytest.mark.rule("0-9/channel.close-ok#reporting")
def test_a_channel_lost_without_close_ok_is_logged(
    talk: Talker, served: Served, version: Version, name: str
) -> None:
    before = served.log().count("channel 1: no close-ok")
    client = talk(version)
    client.send(QueueDeclare(queue=name, passive=True))
    assert client.next()  # channel.close, which is not answered.
    client.drop()
    until(lambda: served.log().count("channel 1: no close-ok") > before, "the loss is logged")


# -- Channels --------------------------------------------------------------------------------------


@EARLY
@pytest.mark.rule("0-9/channel.open#state")
def test_an_open_channel_is_not_opened_again(talk: Talker, version: Version) -> None:
    client = talk(version)
    client.send(ChannelOpen())
    assert client.expect_connection_close().code == 504


@EARLY
@pytest.mark.rule("0-9/channel.flow#throttling", "0-9/channel.flow#initial-state")
@pytest.mark.rule("0-9/channel.flow#bidirectional")
def test_a_channel_is_active_until_it_is_paused(talk: Talker, version: Version, name: str) -> None:
    client = talk(version).with_queue(name)
    client.consume(name, no_ack=True)
    client.publish(name, b"at once")
    assert client.content(BasicDeliver)[1] == b"at once"
    assert not client.call(ChannelFlow(active=False), ChannelFlowOk).active
    client.publish(name, b"later")
    assert client.silent()
    client.send(ChannelFlow(active=True))
    assert client.expect(ChannelFlowOk).active
    assert client.content(BasicDeliver)[1] == b"later"


def test_ping_is_answered_and_followed_by_a_pong(talk: Talker) -> None:
    client = talk(V0_9)
    client.call(ChannelPing(), ChannelOk)
    client.expect(ChannelPong)
    client.send(ChannelOk())
    client.call(ChannelPong(), ChannelOk)
    client.call(TxSelect(), TxSelectOk)


def test_0_8_has_neither_ping_nor_resume(raw: Callable[[Version], RawClient]) -> None:
    for method in (ChannelPing(), ChannelResume(channel_id=b"x")):
        client = raw(V0_8).open_connection().channel(1)
        client.send_bytes(encode_frame(FRAME_METHOD, 1, method_frame(1, method, V0_9)[7:-1]))
        assert client.expect_connection_close().code == 540


# -- Resume ----------------------------------------------------------------------------------------


class Lost:
    """A 0-9 client that can lose its connection."""

    def __init__(self, served: Served, number: int = 1) -> None:
        self.raw = RawClient(served.host, served.port, V0_9).open_connection()
        self.id = self.raw.call(ChannelOpen(), ChannelOpenOk, number).channel_id
        self.talk = self.raw

    def lose(self) -> None:
        self.raw.socket.shutdown(socket.SHUT_RDWR)
        self.raw.drop()


def resumed(served: Served, channel_id: bytes, number: int = 1) -> RawClient:
    """Try until the broker has noticed the loss."""

    def attempt() -> RawClient | None:
        raw = RawClient(served.host, served.port, V0_9).open_connection()
        raw.send(ChannelResume(channel_id=channel_id), number)
        received = raw.next_method()
        assert received is not None
        if isinstance(received[1], ChannelOk):
            return raw
        assert isinstance(received[1], ChannelClose)
        assert received[1].reply_code == 404
        raw.drop()
        return None

    talk = until(attempt, "the channel is resumed")
    assert talk is not None
    return talk


def test_a_channel_is_resumed_with_what_it_held(served: Served, name: str) -> None:
    lost = Lost(served)
    lost.talk.declare(name)
    lost.talk.publish(name, b"one", b"two", b"three")
    lost.talk.consume(name, "mine")
    assert [lost.talk.content(BasicDeliver)[0].delivery_tag for _ in range(3)] == [1, 2, 3]
    lost.lose()
    client = resumed(served, lost.id, 7)
    client.probe = name
    assert client.silent(7)  # What was delivered is not delivered again:
    client.send(BasicAck(delivery_tag=2), 7)  # it is settled by its old tags.
    client.publish(name, b"four", channel=7)
    deliver, body = client.content(BasicDeliver, 7)
    assert (deliver.consumer_tag, deliver.delivery_tag, body) == ("mine", 4, b"four")
    client.call(ChannelClose(reply_code=200), ChannelCloseOk, 7)
    client.channel(7)
    assert client.count(name, 7) == 3


def test_a_transaction_goes_on(served: Served, name: str) -> None:
    from headrace.protocol.codec_0_x import TxCommit, TxCommitOk

    lost = Lost(served)
    lost.talk.declare(name)
    lost.talk.call(TxSelect(), TxSelectOk)
    lost.talk.publish(name, b"one")
    assert lost.talk.count(name) == 0
    lost.lose()
    client = resumed(served, lost.id)
    client.publish(name, b"two")
    client.call(TxCommit(), TxCommitOk)
    assert client.count(name) == 2


def test_consumers_of_the_message_class_and_tickets_go_along(served: Served, name: str) -> None:
    lost = Lost(served)
    request = AccessRequest(realm="/data", active=True, write=True, read=True)
    ticket = lost.talk.call(request, AccessRequestOk).ticket
    lost.talk.declare(name)
    consume = MessageConsume(queue=name, destination="mine", ticket=ticket)
    lost.talk.call(consume, MessageOk)
    lost.lose()
    client = resumed(served, lost.id, 3)
    client.probe = name
    client.publish(name, b"x", channel=3)
    assert client.expect(MessageTransfer, 3).destination == "mine"
    client.send(MessageOk(), 3)
    client.send(QueuePurge(queue=name, ticket=ticket), 3)
    client.expect(QueuePurgeOk, 3)
    renewed = client.call(request, AccessRequestOk, 3).ticket
    assert renewed != ticket
    client.send(QueuePurge(queue=name, ticket=ticket), 3)
    assert client.expect_channel_close(3).code == 403


def test_an_unknown_id_is_not_found(served: Served) -> None:
    raw = RawClient(served.host, served.port, V0_9).open_connection()
    raw.send(ChannelResume(channel_id=b"nonsense"))
    assert raw.expect_channel_close(1).code == 404
    live = Lost(served)
    raw.send(ChannelResume(channel_id=live.id))  # It is not lost.
    assert raw.expect_channel_close(1).code == 404


def test_an_open_channel_cannot_be_resumed_onto(served: Served) -> None:
    live = Lost(served)
    live.raw.send(ChannelResume(channel_id=live.id))
    assert live.raw.expect_connection_close().code == 504


def test_a_channel_that_is_not_resumed_requeues_its_messages(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    home = tmp_path_factory.mktemp("short")
    served = Served(home, "--channel-resume-s", str(RESUME_S), memory=True).start()
    lost = Lost(served)
    lost.talk.declare(name)
    lost.talk.publish(name, b"one")
    lost.talk.consume(name)
    lost.talk.content(BasicDeliver)
    lost.lose()
    client = RawClient(served.host, served.port, V0_9).open()
    until(lambda: client.count(name) == 1, "the message is back")
    client.send(ChannelResume(channel_id=lost.id), 2)
    assert client.expect_channel_close(2).code == 404
    client.drop()
    assert served.stop() == 0


def test_a_closed_connection_leaves_nothing_to_resume(served: Served, name: str) -> None:
    lost = Lost(served)
    lost.talk.declare(name)
    lost.talk.publish(name, b"one")
    lost.talk.consume(name)
    lost.talk.content(BasicDeliver)
    lost.raw.send(ConnectionClose(reply_code=200))
    lost.raw.expect(ConnectionCloseOk)
    client = RawClient(served.host, served.port, V0_9).open()
    assert client.count(name) == 1
    client.send(ChannelResume(channel_id=lost.id), 2)
    assert client.expect_channel_close(2).code == 404
    client.drop()


def test_clients_that_never_resume_get_their_messages_back_at_once(
    served: Served, name: str
) -> None:
    raw = RawClient(served.host, served.port, V0_9)
    raw.greet()
    raw.send(
        ConnectionStartOk(
            client_properties={"product": "qpid"},
            mechanism="PLAIN",
            response=b"\0guest\0guest",
            locale="en_US",
        )
    )
    raw.next_method()
    raw.send(ConnectionTuneOk())
    raw.send(ConnectionOpen(virtual_host="/"))
    raw.expect(ConnectionOpenOk)
    raw.channel(1)
    client = raw
    client.declare(name)
    client.publish(name, b"one")
    client.consume(name)
    client.content(BasicDeliver)
    client.drop()
    other = RawClient(served.host, served.port, V0_9).open()
    until(lambda: other.count(name) == 1, "the message is back")
    assert other.call(QueueDeclare(queue=name, passive=True), QueueDeclareOk).consumer_count == 0
    other.drop()
