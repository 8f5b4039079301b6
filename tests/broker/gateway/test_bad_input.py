# SPDX-License-Identifier: Apache-2.0
"""Whatever a client sends, the answer is the standard's, nothing is lost, and the broker lives."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from headrace.protocol import codec_0_x as codec
from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicProperties,
    BasicPublish,
    ChannelCloseOk,
    ChannelOpen,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionStartOk,
    ConnectionTuneOk,
    ExchangeDeclare,
    ExchangeDelete,
    MethodBase,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueuePurge,
    TxCommit,
    TxRollback,
    encode_content_header,
)
from headrace.spec.tables import V0_9_1
from headrace.testing.raw_client import RawClient, method_frame, start_ok
from headrace.wire.frame import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    HEARTBEAT,
    encode_frame,
)
from support.brokers.broker_process import Served, until

if TYPE_CHECKING:
    from collections.abc import Iterator

HANDSHAKE_BYTES_MAX = 16384
BODY_MAX = 1 << 20


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    broker = Served(
        tmp_path_factory.mktemp("bad-input"), "--body-size-max", str(BODY_MAX), memory=True
    )
    broker.start()
    yield broker
    assert broker.running, broker.log()
    broker.end()


@pytest.fixture
def raw(served: Served) -> Iterator[RawClient]:
    with RawClient(served.host, served.port) as connection:
        yield connection
    with RawClient(served.host, served.port) as other:
        other.open_connection().channel(1)  # The broker lives.


def header_frame(channel: int, body_size: int, properties: BasicProperties | None = None) -> bytes:
    payload = encode_content_header(V0_9_1, 60, body_size, properties or BasicProperties())
    return encode_frame(FRAME_HEADER, channel, payload)


def content(
    channel: int, queue: str, body: bytes, properties: BasicProperties | None = None
) -> bytes:
    publish = method_frame(channel, BasicPublish(routing_key=queue))
    return (
        publish
        + header_frame(channel, len(body), properties)
        + (encode_frame(FRAME_BODY, channel, body) if body else b"")
    )


def payload_frame(channel: int, payload: bytes) -> bytes:
    return encode_frame(FRAME_METHOD, channel, payload)


# -- The protocol header ---------------------------------------------------------------------------


@pytest.mark.rule("0-9-1/connection.start#01")
@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x01\x01\x00\x0b",
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00",
        b"AMQP\x00\x00\x09\x02",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-x\r\n",
        b"X",
    ],
)
def test_another_header_is_answered_with_ours_and_the_end(raw: RawClient, header: bytes) -> None:
    raw.send_bytes(header)
    assert raw.read(8) == V0_9_1.header
    assert raw.hung_up()


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP on an AMQP port"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS on a port without TLS"),
        (b"AMQP\x00\x01\x00\x00", "a client asks for AMQP 1-0-0, which is not served"),
        (b"\x1b[2J\n", r"the first bytes are not an AMQP header: b'\x1b[2J\n'"),
    ],
)
def test_the_log_says_what_knocks(served: Served, raw: RawClient, octets: bytes, said: str) -> None:
    raw.send_bytes(octets)
    until(lambda: said in served.log(), "it is said")


def test_a_header_may_come_in_pieces(raw: RawClient) -> None:
    for octet in V0_9_1.header:
        raw.send_bytes(bytes((octet,)))
    assert raw.expect(codec.ConnectionStart).version_minor == 9


def test_a_client_that_leaves_in_its_header_affects_no_other(raw: RawClient) -> None:
    raw.send_bytes(V0_9_1.header[:5])
    raw.end()
    assert raw.hung_up()


# -- Before the connection is open -----------------------------------------------------------------


@pytest.mark.rule("0-9-1/s014")
def test_an_unknown_mechanism_ends_the_connection_without_a_word(raw: RawClient) -> None:
    raw.greet()
    raw.send(ConnectionStartOk(mechanism="ANONYMOUS", locale="en_US"))
    assert raw.hung_up()


@pytest.mark.parametrize(("user", "password"), [("guest", "wrong"), ("nobody", "guest"), ("", "")])
def test_a_wrong_login_is_told_so_and_not_why(raw: RawClient, user: str, password: str) -> None:
    raw.greet()
    raw.send(start_ok(user, password))
    assert raw.expect_connection_close()[:2] == (
        403,
        (
            "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
            "For details see the broker logfile."
        ),
    )


def test_a_client_that_hears_no_reason_is_dropped(raw: RawClient) -> None:
    raw.greet()
    raw.send(start_ok("guest", "wrong", reports_failure=False))
    assert raw.hung_up()


def test_a_missing_user_takes_as_long_as_a_wrong_password(served: Served) -> None:
    login = start_ok()
    seconds = {b"\0guest\0wrong": 0.0, b"\0nobody\0wrong": 0.0, b"\0guest": 0.0}
    for response in (*seconds,) * 5:
        with RawClient(served.host, served.port) as raw:
            raw.greet()
            before = served.cpu_s()
            login.response = response
            raw.send(login, 0)
            raw.expect(ConnectionClose)
            seconds[response] += served.cpu_s() - before
    wrong, missing, malformed = seconds.values()
    assert wrong > 5 * malformed  # Which has no password to look into.
    assert 0.3 < wrong / missing < 2.5


@pytest.mark.parametrize(
    "response",
    [b"", b"guest", b"\0", b"\0guest", b"\0\0\0\0", b"\xff\0\xff\0\xff", b"\0guest\0guest\0x"],
)
def test_a_malformed_login_is_refused(raw: RawClient, response: bytes) -> None:
    raw.greet()
    login = start_ok()
    login.response = response
    raw.send(login, 0)
    received = raw.next_method()
    assert received is not None
    if isinstance(received[1], ConnectionSecure):  # An empty response asks for the challenge.
        raw.send(codec.ConnectionSecureOk(response=b"nonsense"), 0)
        received = raw.next_method()
        assert received is not None
    assert isinstance(received[1], ConnectionClose)
    assert received[1].reply_code == 403


def test_a_login_may_wait_for_the_challenge(raw: RawClient) -> None:
    raw.greet()
    login = start_ok()
    login.response = b""
    raw.send(login, 0)
    received = raw.next_method()
    assert received is not None
    assert isinstance(received[1], ConnectionSecure)
    raw.send(codec.ConnectionSecureOk(response=b"\0guest\0guest"), 0)
    received = raw.next_method()
    assert received is not None
    assert isinstance(received[1], codec.ConnectionTune)


@pytest.mark.parametrize(
    "response", [b"", b"\xff\xff", b"\x05LOGINS\x00\x00\x00\xff", b"\x05LOGINI"]
)
def test_a_malformed_amqplain_login_is_refused(raw: RawClient, response: bytes) -> None:
    raw.greet()
    login = start_ok(mechanism="AMQPLAIN")
    login.response = response
    raw.send(login, 0)
    assert raw.expect_connection_close().code in (403, 501, 502)


EARLY: list[MethodBase] = [
    BasicPublish(routing_key="q"),
    QueueDeclare(queue="q"),
    ChannelOpen(),
    ExchangeDelete(exchange="amq.topic"),
    ConfirmSelect(),
]


@pytest.mark.parametrize("method", EARLY, ids=lambda method: method.NAME)
@pytest.mark.parametrize("channel", [0, 1])
def test_nothing_but_the_handshake_is_heard_before_it_is_over(
    raw: RawClient, method: MethodBase, channel: int
) -> None:
    raw.greet()
    raw.send(method, channel)
    assert raw.expect_connection_close().code in (503, 504)


@pytest.mark.parametrize(
    "method",
    [
        ConnectionTuneOk(channel_max=10, frame_max=8192),
        ConnectionOpen(virtual_host="/"),
        codec.ConnectionSecureOk(response=b"\0guest\0guest"),
        codec.ConnectionTune(),
        codec.ConnectionStart(),
        codec.ConnectionUpdateSecret(new_secret=b"x"),
        ConnectionCloseOk(),
    ],
    ids=lambda method: method.NAME,
)
def test_the_handshake_has_an_order(raw: RawClient, method: MethodBase) -> None:
    raw.greet()
    raw.send(method, 0)
    assert raw.expect_connection_close().code == 503


def test_a_login_cannot_be_skipped(raw: RawClient) -> None:
    raw.send_bytes(
        V0_9_1.header
        + method_frame(0, ConnectionTuneOk())
        + method_frame(0, ConnectionOpen(virtual_host="/"))
        + method_frame(1, ChannelOpen())
    )
    raw.expect(codec.ConnectionStart)
    assert raw.expect_connection_close().code == 503


def test_a_login_happens_once(raw: RawClient) -> None:
    raw.log_in()
    raw.send(start_ok())
    assert raw.expect_connection_close().code == 503


@pytest.mark.parametrize("frame_max", [1, 4095])
def test_frames_below_the_minimum_are_refused(raw: RawClient, frame_max: int) -> None:
    raw.log_in()
    raw.send(ConnectionTuneOk(channel_max=10, frame_max=frame_max))
    closed = raw.expect_connection_close()
    assert closed.code == 530
    assert f"negotiated frame_max = {frame_max} is lower than" in closed.text


@pytest.mark.rule("0-9-1/s015", "0-9-1/s017")
def test_the_minimum_frame_is_accepted(raw: RawClient) -> None:
    raw.log_in()
    raw.send(ConnectionTuneOk(channel_max=10, frame_max=4096))
    raw.send(ConnectionOpen(virtual_host="/"))
    raw.expect(ConnectionOpenOk)


@pytest.mark.rule("0-9-1/s016")
def test_more_channels_than_offered_are_refused(raw: RawClient) -> None:
    tune = raw.log_in()
    raw.send(ConnectionTuneOk(channel_max=tune.channel_max + 1, frame_max=tune.frame_max))
    assert raw.expect(ConnectionClose).reply_code == 530
    assert raw.hung_up()  # Without waiting for our close-ok.


@pytest.mark.rule("0-9-1/s018")
def test_larger_frames_than_offered_are_refused(raw: RawClient) -> None:
    tune = raw.log_in()
    raw.send(ConnectionTuneOk(channel_max=10, frame_max=tune.frame_max + 1))
    assert raw.expect(ConnectionClose).reply_code == 530
    assert raw.hung_up()


@pytest.mark.rule("0-9-1/s021")
def test_a_missing_virtual_host_is_named(raw: RawClient) -> None:
    raw.tune()
    raw.send(ConnectionOpen(virtual_host="nowhere"))
    assert raw.expect_connection_close()[:2] == (530, "NOT_ALLOWED - vhost nowhere not found")


def test_more_than_16_kib_before_the_login_ends_the_connection(raw: RawClient) -> None:
    raw.greet()
    raw.try_send_bytes(HEARTBEAT * (HANDSHAKE_BYTES_MAX // 8 + 2))
    closed = raw.expect(ConnectionClose)
    assert closed.reply_code == 501
    assert raw.hung_up()


def test_a_large_frame_before_the_login_is_refused_by_its_head(raw: RawClient) -> None:
    raw.greet()
    raw.send_bytes(b"\x01\x00\x00" + HANDSHAKE_BYTES_MAX.to_bytes(4, "big"))
    assert raw.expect(ConnectionClose).reply_code == 501
    assert raw.hung_up()


def test_a_table_that_claims_gigabytes_is_refused(raw: RawClient) -> None:
    raw.greet()
    raw.send_bytes(payload_frame(0, b"\x00\x0a\x00\x0b" + b"\xff\xff\xff\xff" + bytes(100)))
    assert raw.expect_connection_close().code == 502


def test_a_bottomless_table_is_refused(raw: RawClient) -> None:
    table = b"\x00\x00\x00\x00"
    for _ in range(500):
        body = b"\x01kF" + table
        table = len(body).to_bytes(4, "big") + body
    raw.greet()
    raw.send_bytes(payload_frame(0, b"\x00\x0a\x00\x0b" + table + b"\x05PLAIN\x00\x00\x00\x00\x00"))
    assert raw.expect_connection_close().code == 502


@pytest.mark.slow
def test_a_slow_handshake_is_given_up(served: Served) -> None:
    started = time.monotonic()
    with (
        RawClient(served.host, served.port) as silent,
        RawClient(served.host, served.port) as greeted,
    ):
        silent.send_bytes(V0_9_1.header[:3])
        greeted.greet()
        assert silent.hung_up()
        assert greeted.hung_up()
        assert time.monotonic() - started > 5  # Not at once; how late is the machine's.


# -- Frames ----------------------------------------------------------------------------------------


FRAMES: list[tuple[str, bytes, tuple[int, ...]]] = [
    ("wrong end", b"\x08\x00\x00\x00\x00\x00\x00\xcd", (501,)),
    ("unknown type", encode_frame(4, 1, b""), (501,)),
    ("type 0", encode_frame(0, 1, b""), (501,)),
    ("type 255", encode_frame(255, 1, b"abc"), (501,)),
    ("heartbeat on a channel", encode_frame(FRAME_HEARTBEAT, 1, b""), (501, 503)),
    ("heartbeat with a payload", encode_frame(FRAME_HEARTBEAT, 0, b"x"), (501,)),
    ("method without a method", payload_frame(1, b"\x00\x0a"), (501, 502)),
    ("unknown class", payload_frame(1, b"\x00\x63\x00\x0a"), (503, 540)),
    ("unknown method", payload_frame(1, b"\x00\x32\x00\x63"), (503, 540)),
    ("unknown connection method", payload_frame(0, b"\x00\x0a\x00\x63"), (503, 540)),
    ("channel.ping, gone in 0-9-1", payload_frame(1, b"\x00\x14\x00\x3c"), (503, 540)),
    ("method cut off", payload_frame(1, b"\x00\x32\x00\x0a\x00\x00\x05q"), (502,)),
    ("method with a tail", payload_frame(1, b"\x00\x14\x00\x14\x01\x00"), (502,)),
    (
        "name that is not UTF-8",
        payload_frame(1, b"\x00\x32\x00\x0a\x00\x00\x01\xff\x00\0\0\0\0"),
        (502,),
    ),
    ("publish cut off", payload_frame(1, b"\x00\x3c\x00\x28\x00\x00\x05q"), (502,)),
    ("publish without arguments", payload_frame(1, b"\x00\x3c\x00\x28"), (502,)),
    ("publish with a tail", payload_frame(1, b"\x00\x3c\x00\x28\x00\x00\x00\x01q\x00\x00"), (502,)),
    ("ack cut off", payload_frame(1, b"\x00\x3c\x00\x50\x00\x00"), (502,)),
    ("ack with a tail", payload_frame(1, b"\x00\x3c\x00\x50" + bytes(10)), (502,)),
    (
        "routing key that is not UTF-8",
        payload_frame(1, b"\x00\x3c\x00\x28\x00\x00\x00\x01\xff\x00") + header_frame(1, 0),
        (502,),
    ),
    (
        "unknown tag in a table",
        payload_frame(1, b"\x00\x32\x00\x0a\x00\x00\x01q\x00\0\0\0\x03\x01k?"),
        (502,),
    ),
    (
        "table cut off",
        payload_frame(1, b"\x00\x32\x00\x0a\x00\x00\x01q\x00\0\0\0\x09\x01kt"),
        (502,),
    ),
    ("closed channel", method_frame(2, QueueDeclare(queue="q")), (504,)),
    ("content on a closed channel", header_frame(2, 0), (504,)),
    ("second open", method_frame(1, ChannelOpen()), (504,)),
    ("channel.open on channel 0", method_frame(0, ChannelOpen()), (504, 503)),
    ("queue.declare on channel 0", method_frame(0, QueueDeclare(queue="q")), (504, 503)),
    ("publish on channel 0", method_frame(0, BasicPublish()), (504, 503)),
    ("content on channel 0", header_frame(0, 0), (504, 505)),
    ("connection.open twice", method_frame(0, ConnectionOpen(virtual_host="/")), (503,)),
    ("connection method on a channel", method_frame(1, ConnectionClose()), (503, 504)),
    ("channel.close-ok unasked", method_frame(1, ChannelCloseOk()), (503, 504)),
    ("a server's method", method_frame(1, codec.BasicDeliver()), (503,)),
    ("a server's answer", method_frame(1, QueueDeclareOk()), (503,)),
    ("header without publish", header_frame(1, 0), (505,)),
    ("body without publish", encode_frame(FRAME_BODY, 1, b"x"), (505,)),
    (
        "body without header",
        method_frame(1, BasicPublish()) + encode_frame(FRAME_BODY, 1, b"x"),
        (505,),
    ),
    ("method where a header is due", method_frame(1, BasicPublish()) * 2, (505,)),
    (
        "method where a body is due",
        method_frame(1, BasicPublish()) + header_frame(1, 5) + method_frame(1, BasicPublish()),
        (505,),
    ),
    ("two headers", method_frame(1, BasicPublish()) + header_frame(1, 5) * 2, (505,)),
    (
        "body longer than announced",
        method_frame(1, BasicPublish()) + header_frame(1, 2) + encode_frame(FRAME_BODY, 1, b"xyz"),
        (501, 505),
    ),
    (
        "body after a complete content",
        content(1, "q", b"xy") + encode_frame(FRAME_BODY, 1, b"z"),
        (505,),
    ),
    (
        "header of another class",
        method_frame(1, BasicPublish())
        + encode_frame(FRAME_HEADER, 1, b"\x00\x32\x00\x00" + bytes(10)),
        (501, 505),
    ),
    (
        "header cut off",
        method_frame(1, BasicPublish()) + encode_frame(FRAME_HEADER, 1, b"\x00\x3c\x00\x00\x00"),
        (501, 502),
    ),
    (
        "weight",
        method_frame(1, BasicPublish())
        + encode_frame(FRAME_HEADER, 1, b"\x00\x3c\x00\x01" + bytes(10)),
        (501, 502),
    ),
    (
        "property flags that do not exist",
        method_frame(1, BasicPublish())
        + encode_frame(FRAME_HEADER, 1, b"\x00\x3c\x00\x00" + bytes(8) + b"\x00\x03"),
        (502,),
    ),
    (
        "property cut off",
        method_frame(1, BasicPublish())
        + encode_frame(FRAME_HEADER, 1, b"\x00\x3c\x00\x00" + bytes(8) + b"\x80\x00\x09text"),
        (502,),
    ),
    (
        "delivery mode cut off",
        method_frame(1, BasicPublish())
        + encode_frame(FRAME_HEADER, 1, b"\x00\x3c\x00\x00" + bytes(8) + b"\x10\x00"),
        (502,),
    ),
    (
        "headers with an unknown tag",
        method_frame(1, BasicPublish())
        + encode_frame(
            FRAME_HEADER, 1, b"\x00\x3c\x00\x00" + bytes(8) + b"\x20\x00\x00\x00\x00\x03\x01k?"
        ),
        (502,),
    ),
]


@pytest.mark.parametrize("together", [True, False], ids=["at once", "octet by octet"])
@pytest.mark.parametrize(("name", "octets", "codes"), FRAMES, ids=[case[0] for case in FRAMES])
def test_a_wrong_frame_closes_the_connection(
    raw: RawClient, name: str, octets: bytes, codes: tuple[int, ...], together: bool
) -> None:
    raw.open_connection().channel(1)
    if together:
        raw.send_bytes(octets)
    else:
        for octet in octets:
            raw.try_send_bytes(bytes((octet,)))
    assert raw.expect_connection_close().code in codes


@pytest.mark.parametrize("size", [0, 1, 1 << 16, 0xFFFFFFFF - 131073])
def test_an_oversize_frame_is_refused_by_its_head(raw: RawClient, size: int) -> None:
    raw.open_connection().channel(
        1
    )  # A payload of frame_max is forgiven: some clients count no envelope.
    raw.send_bytes(b"\x01\x00\x01" + (raw.frame_max + 1 + size).to_bytes(4, "big"))
    closed = raw.expect(ConnectionClose)
    assert closed.reply_code == 501
    assert raw.hung_up()


def test_a_frame_of_exactly_frame_max_is_taken(raw: RawClient) -> None:
    raw.open_connection().channel(1)
    body = bytes(raw.frame_max - 8)
    raw.send(QueueDeclare(exclusive=True))
    queue = raw.expect(QueueDeclareOk).queue
    raw.send_bytes(content(1, queue, body))
    raw.send(BasicGet(queue=queue, no_ack=True))
    received, header, payload = raw.next_method(), raw.frame(), raw.frame()
    assert received is not None
    assert isinstance(received[1], BasicGetOk)
    assert header is not None
    assert payload is not None
    assert payload[2] == body


@pytest.mark.parametrize("cut", [1, 6, 7, 8, 20])
def test_a_client_that_leaves_in_a_frame_loses_nothing_of_before(
    served: Served, raw: RawClient, cut: int
) -> None:
    raw.open_connection().channel(1)
    queue = f"left-{cut}"
    raw.send(QueueDeclare(queue=queue))
    raw.expect(QueueDeclareOk)
    raw.send_bytes(content(1, queue, b"kept") + content(1, queue, b"unfinished")[:-cut])
    raw.end()
    assert raw.hung_up()
    with RawClient(served.host, served.port) as other:
        other.open_connection().channel(1)
        other.send(QueueDelete(queue=queue))
        assert other.expect(codec.QueueDeleteOk).message_count == 1


@pytest.mark.rule("0-9-1/channel.open#01")
def test_a_second_open_names_itself(raw: RawClient) -> None:
    raw.open_connection().channel(1)
    raw.send(ChannelOpen())
    assert raw.expect_connection_close() == (
        504,
        "CHANNEL_ERROR - second 'channel.open' seen",
        (20, 10),
    )


def test_nothing_after_a_framing_error_is_believed(served: Served, raw: RawClient) -> None:
    raw.open_connection().channel(1)
    raw.send(QueueDeclare(queue="believed"))
    raw.expect(QueueDeclareOk)
    raw.try_send_bytes(
        b"\x08\x00\x00\x00\x00\x00\x00\x00" + method_frame(1, QueueDelete(queue="believed"))
    )
    assert raw.expect(ConnectionClose).reply_code == 501
    with RawClient(served.host, served.port) as other:
        other.open_connection().channel(1)
        other.send(QueueDelete(queue="believed"))
        other.expect(codec.QueueDeleteOk)


@pytest.mark.rule("0-9-1/connection.close#01")
def test_methods_after_the_brokers_close_are_discarded(served: Served, raw: RawClient) -> None:
    raw.open_connection().channel(1)
    raw.send(QueueDeclare(queue="discarded"))
    raw.expect(QueueDeclareOk)
    raw.send_bytes(
        method_frame(2, QueueDeclare(queue="x"))  # Channel 2 is not open: 504.
        + method_frame(1, QueueDelete(queue="discarded"))
        + content(1, "discarded", b"late")
    )
    assert raw.expect_connection_close().code == 504
    with RawClient(served.host, served.port) as other:
        other.open_connection().channel(1)
        other.send(QueueDelete(queue="discarded"))
        assert other.expect(codec.QueueDeleteOk).message_count == 0


@pytest.mark.rule("0-9-1/channel.close#01")
def test_methods_after_the_brokers_channel_close_are_discarded(raw: RawClient) -> None:
    raw.open_connection().channel(1)
    raw.send_bytes(
        method_frame(1, QueueDeclare(queue="missing", passive=True))
        + method_frame(1, QueueDeclare(queue="too-late"))
        + content(1, "missing", b"late")
    )
    assert raw.expect_channel_close(1).code == 404
    raw.channel(1)  # The number is free again.
    raw.send(QueueDeclare(queue="too-late", passive=True))
    assert raw.expect_channel_close(1).code == 404


def test_a_close_is_answered_even_after_ours(raw: RawClient) -> None:
    raw.open_connection()
    raw.send_bytes(
        method_frame(9, QueueDeclare()) + method_frame(0, ConnectionClose(reply_code=200))
    )
    assert raw.expect(ConnectionClose).reply_code == 504
    raw.expect(ConnectionCloseOk)
    assert raw.hung_up()


def test_frames_after_the_clients_close_are_not_heard(served: Served, raw: RawClient) -> None:
    raw.open_connection().channel(1)
    raw.send(QueueDeclare(queue="after-close"))
    raw.expect(QueueDeclareOk)
    raw.send_bytes(
        method_frame(0, ConnectionClose(reply_code=200))
        + method_frame(1, QueueDelete(queue="after-close"))
    )
    raw.expect(ConnectionCloseOk)
    assert raw.hung_up()
    with RawClient(served.host, served.port) as other:
        other.open_connection().channel(1)
        other.send(QueueDelete(queue="after-close"))
        other.expect(codec.QueueDeleteOk)


def test_a_body_over_the_limit_is_refused_when_its_header_arrives(raw: RawClient) -> None:
    raw.open_connection().channel(1)
    raw.send_bytes(method_frame(1, BasicPublish(routing_key="q")) + header_frame(1, BODY_MAX + 1))
    closed = raw.expect_channel_close(1)
    assert closed.code == 406
    assert closed.text == (
        f"PRECONDITION_FAILED - message size {BODY_MAX + 1} is larger than configured max size "
        f"{BODY_MAX}"
    )
    raw.channel(1)


def test_bodies_that_have_begun_on_all_channels_are_bounded(raw: RawClient) -> None:
    raw.open_connection()
    most = 64  # Of one MiB each.
    for number in range(1, most + 2):
        raw.channel(number)
        publish = method_frame(number, BasicPublish(routing_key="q"))
        raw.send_bytes(publish + header_frame(number, BODY_MAX))
    closed = raw.expect_channel_close(most + 1)
    assert closed.code == 311
    assert f"would have {(most + 1) * BODY_MAX} octets, more than {most * BODY_MAX}" in closed.text


def test_a_body_that_was_refused_is_not_heard(raw: RawClient) -> None:
    raw.open_connection().channel(1)
    size = BODY_MAX + 1
    step = raw.frame_max - 8
    raw.send_bytes(method_frame(1, BasicPublish(routing_key="q")) + header_frame(1, size))
    for at in range(0, size, step):
        raw.send_bytes(encode_frame(FRAME_BODY, 1, bytes(min(step, size - at))))
    assert raw.expect_channel_close(1).code == 406
    raw.channel(1)


def test_a_body_of_exactly_the_limit_is_taken(raw: RawClient) -> None:
    raw.open_connection().channel(1)
    raw.send(QueueDeclare(exclusive=True))
    queue = raw.expect(QueueDeclareOk).queue
    raw.send(ConfirmSelect())
    raw.expect(ConfirmSelectOk)
    step = raw.frame_max - 8
    raw.send_bytes(method_frame(1, BasicPublish(routing_key=queue)) + header_frame(1, BODY_MAX))
    for at in range(0, BODY_MAX, step):
        raw.send_bytes(encode_frame(FRAME_BODY, 1, bytes(min(step, BODY_MAX - at))))
    assert raw.expect(BasicAck).delivery_tag == 1


def test_contents_on_two_channels_may_interleave(raw: RawClient) -> None:
    raw.open_connection().channel(1).channel(2)
    raw.send(QueueDeclare(exclusive=True))
    queue = raw.expect(QueueDeclareOk).queue
    for channel in (1, 2):
        raw.send(BasicPublish(routing_key=queue), channel)
    for channel in (2, 1):
        raw.send_bytes(header_frame(channel, 4))
    for body in (b"ab", b"cd"):
        for channel in (1, 2):
            raw.send_bytes(HEARTBEAT + encode_frame(FRAME_BODY, channel, body))
    raw.send(QueueDeclare(queue=queue, passive=True))
    assert raw.expect(QueueDeclareOk).message_count == 2


def test_an_empty_body_frame_is_harmless(raw: RawClient) -> None:
    raw.open_connection().channel(1)
    raw.send(QueueDeclare(exclusive=True))
    queue = raw.expect(QueueDeclareOk).queue
    empty = encode_frame(FRAME_BODY, 1, b"")
    raw.send_bytes(
        method_frame(1, BasicPublish(routing_key=queue))
        + header_frame(1, 2)
        + empty * 3
        + encode_frame(FRAME_BODY, 1, b"ab")
    )
    raw.send(BasicGet(queue=queue, no_ack=True))
    raw.expect(BasicGetOk)


# -- Names and arguments that channels close for ---------------------------------------------------

CHANNEL_CASES: list[tuple[str, MethodBase, int, str]] = [
    (
        "reserved queue name",
        QueueDeclare(queue="amq.mine"),
        403,
        "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
    ),
    (
        "reserved exchange name",
        ExchangeDeclare(exchange="amq.mine", type="direct"),
        403,
        "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
    ),
    (
        "default exchange declared",
        ExchangeDeclare(exchange="", type="direct"),
        403,
        "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    (
        "default exchange deleted",
        ExchangeDelete(exchange=""),
        403,
        "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    (
        "default exchange bound",
        QueueBind(queue="bad-input", exchange="", routing_key="x"),
        403,
        "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    ("missing queue", QueuePurge(queue="no"), 404, "NOT_FOUND - no queue 'no' in vhost '/'"),
    (
        "missing queue, passive",
        QueueDeclare(queue="no", passive=True),
        404,
        "NOT_FOUND - no queue 'no' in vhost '/'",
    ),
    (
        "missing queue, consumed",
        BasicConsume(queue="no"),
        404,
        "NOT_FOUND - no queue 'no' in vhost '/'",
    ),
    (
        "missing queue, got from",
        BasicGet(queue="no"),
        404,
        "NOT_FOUND - no queue 'no' in vhost '/'",
    ),
    (
        "missing exchange, passive",
        ExchangeDeclare(exchange="no", type="direct", passive=True),
        404,
        "NOT_FOUND - no exchange 'no' in vhost '/'",
    ),
    (
        "missing exchange, bound",
        QueueBind(queue="bad-input", exchange="no"),
        404,
        "NOT_FOUND - no exchange 'no' in vhost '/'",
    ),
    ("no last queue", QueuePurge(queue=""), 404, "NOT_FOUND - no previously declared queue"),
    (
        "unknown delivery tag",
        BasicAck(delivery_tag=5),
        406,
        "PRECONDITION_FAILED - unknown delivery tag 5",
    ),
    (
        "delivery tag 0",
        BasicAck(delivery_tag=0),
        406,
        "PRECONDITION_FAILED - unknown delivery tag 0",
    ),
    (
        "huge delivery tag",
        BasicAck(delivery_tag=2**64 - 1, multiple=True),
        406,
        f"PRECONDITION_FAILED - unknown delivery tag {2**64 - 1}",
    ),
    (
        "commit without select",
        TxCommit(),
        406,
        "PRECONDITION_FAILED - channel is not transactional",
    ),
    (
        "rollback without select",
        TxRollback(),
        406,
        "PRECONDITION_FAILED - channel is not transactional",
    ),
    (
        "inequivalent redeclare",
        QueueDeclare(queue="bad-input", durable=True),
        406,
        (
            "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'bad-input' in vhost '/': "
            "received 'true' but current is 'false'"
        ),
    ),
]


@pytest.mark.parametrize(
    ("name", "method", "code", "text"), CHANNEL_CASES, ids=[case[0] for case in CHANNEL_CASES]
)
def test_a_wrong_request_closes_its_channel_only(
    raw: RawClient, name: str, method: MethodBase, code: int, text: str
) -> None:
    raw.open_connection().channel(1).channel(2)
    raw.send(QueueDeclare(queue="bad-input"), 2)
    raw.expect(QueueDeclareOk, 2)
    raw.send(method, 1)
    closed = raw.expect_channel_close(1)
    assert closed == (code, text, method.INDEX[V0_9_1])
    raw.send(QueueDelete(queue="bad-input"), 2)
    raw.expect(codec.QueueDeleteOk, 2)


def test_an_unknown_exchange_type_is_refused(raw: RawClient) -> None:
    raw.open_connection().channel(1)
    raw.send(ExchangeDeclare(exchange="x", type="no-such-type"))
    assert raw.expect_connection_close().code == 503


def test_publishing_to_a_missing_exchange_closes_the_channel(raw: RawClient) -> None:
    raw.open_connection().channel(1)
    raw.send_bytes(
        method_frame(1, BasicPublish(exchange="no", routing_key="q"))
        + header_frame(1, 1)
        + encode_frame(FRAME_BODY, 1, b"x")
    )
    assert raw.expect_channel_close(1) == (
        404,
        "NOT_FOUND - no exchange 'no' in vhost '/'",
        (60, 40),
    )


@pytest.mark.parametrize(
    "expiration", ["x", "", "-1", "1.5", "1e3", " 1", "\u0661", "999999999999"]
)
def test_an_expiration_is_a_number(raw: RawClient, expiration: str) -> None:
    raw.open_connection().channel(1)
    raw.send_bytes(content(1, "q", b"", BasicProperties(expiration=expiration)))
    closed = raw.expect_channel_close(1)
    assert closed.code == 406
    assert closed.text.startswith(f"PRECONDITION_FAILED - invalid expiration '{expiration}': ")


@pytest.mark.parametrize("user_id", ["root", ""])
def test_a_user_id_must_be_ones_own(raw: RawClient, user_id: str) -> None:
    raw.open_connection().channel(1)
    raw.send_bytes(content(1, "q", b"", BasicProperties(user_id="guest")))
    raw.send_bytes(content(1, "q", b"", BasicProperties(user_id=user_id)))
    assert raw.expect_channel_close(1).code == 406


def test_a_message_is_acknowledged_once(raw: RawClient) -> None:
    raw.open_connection().channel(1)
    raw.send(QueueDeclare(exclusive=True))
    queue = raw.expect(QueueDeclareOk).queue
    raw.send_bytes(content(1, queue, b"x"))
    raw.send(BasicGet(queue=queue))
    tag = raw.expect(BasicGetOk).delivery_tag
    raw.send_bytes(method_frame(1, BasicAck(delivery_tag=tag)) * 2)
    assert raw.expect_channel_close(1).text == f"PRECONDITION_FAILED - unknown delivery tag {tag}"


def test_a_consumer_tag_is_used_once(raw: RawClient) -> None:
    raw.open_connection().channel(1)
    raw.send(QueueDeclare(exclusive=True))
    queue = raw.expect(QueueDeclareOk).queue
    raw.send(BasicConsume(queue=queue, consumer_tag="t"))
    raw.expect(codec.BasicConsumeOk)
    raw.send(BasicConsume(queue=queue, consumer_tag="t"))
    assert raw.expect_connection_close()[:2] == (
        530,
        "NOT_ALLOWED - attempt to reuse consumer tag 't'",
    )


def test_a_channel_error_returns_what_the_channel_held(raw: RawClient) -> None:
    raw.open_connection().channel(1)
    raw.send(QueueDeclare(exclusive=True))
    queue = raw.expect(QueueDeclareOk).queue
    raw.send_bytes(content(1, queue, b"x"))
    raw.send(BasicGet(queue=queue))
    raw.expect(BasicGetOk)
    raw.send(BasicAck(delivery_tag=99))
    raw.expect_channel_close(1)
    raw.channel(1)
    raw.send(BasicGet(queue=queue, no_ack=True))
    assert raw.expect(BasicGetOk).redelivered
    raw.send(BasicGet(queue=queue))
    raw.expect(BasicGetEmpty)
