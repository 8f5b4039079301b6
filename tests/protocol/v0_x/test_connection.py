# SPDX-License-Identifier: Apache-2.0
"""The connection machine: two of them joined in memory, and each alone with a hostile peer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    BasicProperties,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    MethodBase,
    QueueDeclare,
    QueueDeclareOk,
    encode_content_header,
    encode_method,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.connection import Connection
from headrace.protocol.v0_x.events import (
    ContentReceived,
    Event,
    Failed,
    HeaderRejected,
    HeartbeatReceived,
    MethodReceived,
)
from headrace.protocol.v0_x.handshake import Role, State
from headrace.protocol.v0_x.upcalls import EventCollector
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import V0_9_1
from headrace.wire.frame import HEARTBEAT, body_frames, encode_frame
from support.split_bytes import split

HEADER = b"AMQP\x00\x00\x09\x01"
FRAME_MAX = 8192


def header(size: int, properties: BasicProperties | None = None) -> bytes:
    return encode_content_header(V0_9_1, 60, size, properties or BasicProperties())


def framed(channel: int, method: MethodBase) -> bytes:
    return encode_frame(1, channel, encode_method(V0_9_1, method))


class Pair:
    """A client and a server machine, joined."""

    def __init__(self, frame_max: int = FRAME_MAX) -> None:
        self.client = Connection(Role.CLIENT, frame_max=frame_max)
        self.server = Connection(Role.SERVER, frame_max=frame_max)
        self.frame_max = frame_max

    def to_server(self) -> list[Event]:
        return self.server.receive(self.client.data_to_send())

    def to_client(self) -> list[Event]:
        return self.client.receive(self.server.data_to_send())

    def call(self, channel: int, method: MethodBase) -> list[Event]:
        self.client.send_method(channel, method)
        return self.to_server()

    def answer(self, channel: int, method: MethodBase) -> list[Event]:
        self.server.send_method(channel, method)
        return self.to_client()

    def opened(self) -> Pair:
        """Through the handshake, channel 1 open."""
        assert self.to_server() == []
        tune = {"channel_max": 10, "frame_max": self.frame_max, "heartbeat": 7}
        steps: list[tuple[MethodBase, MethodBase]] = [
            (ConnectionStart(mechanisms=b"PLAIN"), ConnectionStartOk(mechanism="PLAIN")),
            (ConnectionTune(**tune), ConnectionTuneOk(**tune)),
        ]
        for question, reply in steps:
            assert self.answer(0, question) == [MethodReceived(0, question)]
            assert self.call(0, reply) == [MethodReceived(0, reply)]
        self.call(0, ConnectionOpen(virtual_host="/"))
        self.answer(0, ConnectionOpenOk())
        self.call(1, ChannelOpen())
        self.answer(1, ChannelOpenOk())
        assert self.client.state is self.server.state is State.OPEN
        return self


def test_a_handshake_leaves_both_with_the_same_limits() -> None:
    pair = Pair().opened()
    for machine in (pair.client, pair.server):
        assert (machine.frame_max, machine.channel_max, machine.heartbeat_s) == (8192, 10, 7)


@pytest.mark.parametrize("size", [0, 1, 8184, 8185, 65536, 65537, 300_000])
def test_content_arrives_as_it_was_sent(size: int) -> None:
    pair = Pair().opened()
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    publish = BasicPublish(exchange="e", routing_key="k", mandatory=True)
    pair.client.send_content(1, publish, header(size), body)
    assert pair.to_server() == [ContentReceived(1, publish, header(size), body)]
    deliver = BasicDeliver(consumer_tag="c", delivery_tag=1, exchange="e", routing_key="k")
    pair.server.send_content(1, deliver, header(size), body)
    assert pair.to_client() == [ContentReceived(1, deliver, header(size), body)]


@settings(max_examples=60, deadline=None)
@given(
    bodies=st.lists(st.integers(0, 30_000), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 9000), max_size=40),
    frame_max=st.sampled_from([4096, 8192, 131072]),
)
def test_any_split_gives_the_same_events(
    bodies: list[int], sizes: list[int], frame_max: int
) -> None:
    whole, pieces = Pair(frame_max).opened(), Pair(frame_max).opened()
    stream = b""
    for number, size in enumerate(bodies):
        stream += framed(1, BasicPublish(routing_key=f"k{number}"))
        stream += encode_frame(2, 1, header(size, BasicProperties(priority=number)))
        stream += HEARTBEAT if number % 2 else b""
        stream += body_frames(1, bytes(size), frame_max)
        stream += framed(1, BasicAck(delivery_tag=number, multiple=True))
    stream += framed(1, QueueDeclare(queue="q", arguments={"x": [1, {"y": None}]}))
    stream += framed(2, QueueDeclare(queue="q"))  # Channel 2 is not open: the end.
    expected = whole.server.receive(stream)
    events: list[Event] = []
    for chunk in split(stream, sizes):
        events += pieces.server.receive(chunk)
    assert list(map(repr, events)) == list(map(repr, expected))
    assert pieces.server.data_to_send() == whole.server.data_to_send()
    assert len([event for event in events if isinstance(event, ContentReceived)]) == len(bodies)
    assert isinstance(events[-1], Failed)


def test_octet_by_octet() -> None:
    pair = Pair().opened()
    stream = framed(1, BasicPublish(routing_key="k")) + encode_frame(2, 1, header(3))
    stream += encode_frame(3, 1, b"abc") + framed(1, BasicAck(delivery_tag=1)) + HEARTBEAT
    events: list[Event] = []
    for octet in stream:
        events += pair.server.receive(bytes((octet,)))
    assert events == [
        ContentReceived(1, BasicPublish(routing_key="k"), header(3), b"abc"),
        MethodReceived(1, BasicAck(delivery_tag=1)),
        HeartbeatReceived(),
    ]


def test_contents_of_channels_interleave() -> None:
    pair = Pair().opened()
    pair.call(2, ChannelOpen())
    pair.answer(2, ChannelOpenOk())
    stream = b"".join(
        framed(channel, BasicPublish(routing_key=f"k{channel}")) for channel in (1, 2)
    )
    stream += encode_frame(2, 2, header(2)) + encode_frame(2, 1, header(2))
    stream += encode_frame(3, 1, b"a") + encode_frame(3, 2, b"b")
    stream += encode_frame(3, 2, b"b") + encode_frame(3, 1, b"a")
    contents = pair.server.receive(stream)
    assert [(e.channel, e.body) for e in contents if isinstance(e, ContentReceived)] == [
        (2, b"bb"),
        (1, b"aa"),
    ]


def test_closing_a_channel_is_answered_by_the_machine() -> None:
    pair = Pair().opened()
    close = ChannelClose(reply_code=200, reply_text="done")
    assert pair.call(1, close) == [MethodReceived(1, close)]
    assert pair.to_client() == [MethodReceived(1, ChannelCloseOk())]
    assert pair.call(1, ChannelOpen()) == [MethodReceived(1, ChannelOpen())]


def test_closing_the_connection_is_answered_by_the_machine() -> None:
    pair = Pair().opened()
    close = ConnectionClose(reply_code=200, reply_text="done")
    pair.answer(0, close)
    assert pair.client.state is State.CLOSED
    assert pair.to_server() == [MethodReceived(0, ConnectionCloseOk())]
    assert pair.server.state is State.CLOSED
    # Who is told close-ok ends the stream.
    assert (pair.client.awaits_close(), pair.server.awaits_close()) == (True, False)


@pytest.mark.rule("0-9-1/connection.close#01")
def test_closes_may_cross() -> None:
    pair = Pair().opened()
    pair.client.send_method(0, ConnectionClose(reply_code=200))
    pair.server.send_method(0, ConnectionClose(reply_code=320))
    mine, theirs = pair.client.data_to_send(), pair.server.data_to_send()
    pair.server.receive(mine)
    pair.client.receive(theirs)
    pair.to_client()
    pair.to_server()
    assert pair.client.state is pair.server.state is State.CLOSED


@pytest.mark.rule("0-9-1/channel.close#01")
def test_what_comes_after_our_channel_close_is_ignored_but_for_the_answer() -> None:
    pair = Pair().opened()
    pair.server.send_method(1, ChannelClose(reply_code=404, reply_text="NOT_FOUND"))
    late = framed(1, BasicPublish()) + encode_frame(2, 1, header(5)) + encode_frame(3, 1, b"hello")
    assert pair.server.receive(late + framed(1, QueueDeclare(queue="q"))) == []
    events = pair.server.receive(framed(1, ChannelCloseOk()))
    assert events == [MethodReceived(1, ChannelCloseOk())]
    assert pair.server.receive(framed(1, ChannelOpen())) == [MethodReceived(1, ChannelOpen())]


def test_a_soft_error_of_the_owner_closes_the_channel_only() -> None:
    class Owner(EventCollector):
        def on_method(self, channel: object, number: int, method: MethodBase) -> None:
            if isinstance(method, QueueDeclare):
                raise AmqpError(ReplyCode.NOT_FOUND, "no queue")
            EventCollector.on_method(self, channel, number, method)  # type: ignore[arg-type]

    pair = Pair()
    pair.server.set_owner(Owner(V0_9_1, True))
    pair.opened()
    (failed,) = pair.call(1, QueueDeclare(queue="q", passive=True))
    assert isinstance(failed, Failed)
    assert (failed.channel, failed.error.code) == (1, ReplyCode.NOT_FOUND)
    (event,) = pair.to_client()
    assert isinstance(event, MethodReceived)
    close = event.method
    assert isinstance(close, ChannelClose)
    assert (close.reply_code, close.reply_text) == (404, "NOT_FOUND - no queue")
    assert (close.class_id, close.method_id) == (50, 10)
    assert pair.server.state is State.OPEN


def test_a_bug_of_the_owner_closes_the_connection_and_raises_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Owner(EventCollector):
        def on_method(self, channel: object, number: int, method: MethodBase) -> None:
            if isinstance(method, QueueDeclare):
                raise RuntimeError("our own fault")
            EventCollector.on_method(self, channel, number, method)  # type: ignore[arg-type]

    pair = Pair()
    pair.server.set_owner(Owner(V0_9_1, True))
    pair.opened()
    (failed,) = pair.call(1, QueueDeclare(queue="q"))
    assert isinstance(failed, Failed)
    assert failed.error.code is ReplyCode.INTERNAL_ERROR
    assert "our own fault" not in failed.error.reply_text
    assert "our own fault" in caplog.text


# -- Sending out of order --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channel", "method"),
    [
        (0, ConnectionStartOk()),
        (0, ConnectionTuneOk()),
        (0, ConnectionOpen()),
        (2, QueueDeclare()),
        (1, ChannelOpen()),
        (11, ChannelOpen()),
    ],
    ids=repr,
)
def test_a_method_out_of_order_is_refused_and_leaves_no_octets(
    channel: int, method: MethodBase
) -> None:
    pair = Pair().opened()
    with pytest.raises(AmqpError):
        pair.client.send_method(channel, method)
    assert pair.client.data_to_send() == b""


def test_content_on_a_channel_that_is_not_open_is_refused() -> None:
    pair = Pair().opened()
    with pytest.raises(AmqpError):
        pair.client.send_content(2, BasicPublish(), header(0), b"")
    assert pair.client.data_to_send() == b""


def test_methods_wait_for_the_handshake() -> None:
    client = Connection(Role.CLIENT)
    assert client.data_to_send() == HEADER
    for channel, method in ((1, ChannelOpen()), (0, ConnectionOpen())):
        with pytest.raises(AmqpError):
            client.send_method(channel, method)


# -- A client alone with a hostile server ----------------------------------------------------------

HOSTILE: list[tuple[str, bytes, ReplyCode]] = [
    ("larger than tuned", b"\x03\x00\x01" + FRAME_MAX.to_bytes(4, "big"), ReplyCode.FRAME_ERROR),
    ("wrong end", HEARTBEAT[:-1] + b"\x00", ReplyCode.FRAME_ERROR),
    ("a client's method", framed(1, BasicConsume(queue="q")), ReplyCode.COMMAND_INVALID),
    ("a client's publish", framed(1, BasicPublish()), ReplyCode.COMMAND_INVALID),
    ("content unasked", encode_frame(2, 1, header(0)), ReplyCode.UNEXPECTED_FRAME),
    ("a channel nobody opened", framed(3, BasicDeliver()), ReplyCode.CHANNEL_ERROR),
    ("an open unasked", framed(1, ChannelOpenOk()), ReplyCode.COMMAND_INVALID),
    ("start again", framed(0, ConnectionStart()), ReplyCode.COMMAND_INVALID),
    ("tune again", framed(0, ConnectionTune()), ReplyCode.COMMAND_INVALID),
    ("close-ok unasked", framed(0, ConnectionCloseOk()), ReplyCode.COMMAND_INVALID),
    ("unknown class", encode_frame(1, 1, b"\x00\x63\x00\x0a"), ReplyCode.NOT_IMPLEMENTED),
    (
        "a body that is too long",
        framed(1, BasicDeliver()) + encode_frame(2, 1, header(1)) + encode_frame(3, 1, b"ab"),
        ReplyCode.FRAME_ERROR,
    ),
    (
        "a text that is not UTF-8",
        encode_frame(1, 1, b"\x00\x32\x00\x0b\x01\xff" + bytes(8)),
        ReplyCode.SYNTAX_ERROR,
    ),
]


@pytest.mark.parametrize(("name", "octets", "code"), HOSTILE, ids=[case[0] for case in HOSTILE])
def test_a_hostile_server_is_told_what_it_did(name: str, octets: bytes, code: ReplyCode) -> None:
    pair = Pair().opened()
    events = pair.client.receive(octets)
    assert isinstance(events[-1], Failed)
    assert events[-1].error.code is code
    assert pair.client.state is State.CLOSING
    assert pair.client.close_reason is events[-1].error


@pytest.mark.rule("0-9-1/connection.start#03")
def test_a_server_that_speaks_something_else_is_reported() -> None:
    client = Connection(Role.CLIENT)
    assert client.data_to_send() == HEADER
    assert client.receive(b"AMQP\x01\x01\x00\x0a") == [HeaderRejected(b"AMQP\x01\x01\x00\x0a")]
    assert client.state is State.CLOSED
    assert client.data_to_send() == b""


def test_a_server_may_not_raise_the_limits_that_the_client_set() -> None:
    pair = Pair(4096).opened()
    too_large = b"\x01\x00\x01" + (4096 - 7).to_bytes(4, "big")
    (failed,) = pair.client.receive(too_large)
    assert isinstance(failed, Failed)
    assert failed.error.code is ReplyCode.FRAME_ERROR


# -- A server alone with a hostile client ----------------------------------------------------------


def test_before_the_login_at_most_16_kib_are_heard() -> None:
    server = Connection(Role.SERVER)
    server.receive(HEADER)
    server.send_method(0, ConnectionStart())
    server.data_to_send()
    events: list[Event] = []
    heard = 0
    while server.state is not State.CLOSING:
        events += server.receive(HEARTBEAT)
        heard += len(HEARTBEAT)
        assert heard <= 16384 + 8
    assert isinstance(events[-1], Failed)
    assert server.receive(framed(0, ConnectionStartOk())) == []


def test_what_waits_is_bounded() -> None:
    pair = Pair().opened()
    pair.server.receive(framed(1, BasicPublish()) + encode_frame(2, 1, header(1 << 20)))
    for _ in range(120):
        pair.server.receive(encode_frame(3, 1, bytes(8000)))
        assert len(pair.server.rest) <= 98304 + FRAME_MAX
    pair.server.receive(HEARTBEAT[:-1])
    assert len(pair.server.rest) == 7


def test_a_body_over_the_limit_is_refused_at_its_header() -> None:
    pair = Pair()
    pair.server = Connection(Role.SERVER, frame_max=FRAME_MAX, body_max=1000)
    pair.opened()
    (failed,) = pair.server.receive(framed(1, BasicPublish()) + encode_frame(2, 1, header(1001)))
    assert isinstance(failed, Failed)
    assert (failed.channel, failed.error.code) == (1, ReplyCode.PRECONDITION_FAILED)
    assert pair.server.state is State.OPEN


def test_nothing_is_believed_after_a_framing_error() -> None:
    pair = Pair().opened()
    pair.server.receive(b"\x09" + bytes(7) + framed(1, QueueDeclare()))
    assert pair.server.receive(framed(1, ConfirmSelect())) == []
    assert pair.server.receive(framed(0, ConnectionClose())) == []


def test_flow_and_answers_pass_both_ways() -> None:
    pair = Pair().opened()
    flow = ChannelFlow(active=False)
    assert pair.answer(1, flow) == [MethodReceived(1, flow)]
    declared = QueueDeclareOk(queue="q", message_count=1)
    assert pair.answer(1, declared) == [MethodReceived(1, declared)]
    pair.client.send_heartbeat()
    assert pair.to_server() == [HeartbeatReceived()]
