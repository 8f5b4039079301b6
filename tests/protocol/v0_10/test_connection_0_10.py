# SPDX-License-Identifier: Apache-2.0
"""AMQP 0-10: frames, opening and closing of connections."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.codec_0_10 import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionHeartbeat,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionRedirect,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Control,
    ExecutionSync,
    MessageAccept,
    MessageTransfer,
    QueueDeclare,
    SessionAttach,
    SessionCommandPoint,
    SessionCompleted,
    SessionDetach,
    SessionDetached,
    SessionFlush,
    SessionGap,
    encode_control,
)
from headrace.protocol.errors_0_10 import CloseError
from headrace.protocol.v0_10.connection.connection import Connection
from headrace.protocol.v0_10.connection.frames import HANDSHAKE_BYTES_MAX
from headrace.protocol.v0_10.events import (
    CommandReceived,
    ControlReceived,
    Failed,
    HeaderRejected,
    HeartbeatReceived,
    TransferReceived,
)
from headrace.protocol.v0_x.handshake import Role, State
from headrace.spec.reply_0_10 import CloseCode, DetachCode
from headrace.wire.ranges import SequenceSet
from support.clients.machine_pair_0_10 import (
    HEADER,
    ROUTED,
    TUNE,
    Pair,
    command,
    control,
    controls_of,
    frame,
    frames_of,
    raw,
    registry,
    transfer,
)
from support.split_bytes import split

if TYPE_CHECKING:
    from headrace.protocol.v0_10.events import Event

START = ConnectionStart(mechanisms=["PLAIN"], locales=["en_US"])
START_OK = ConnectionStartOk(mechanism="PLAIN", response=b"", locale="en_US")


def tuning(tune: dict[str, Any] = TUNE) -> Connection:
    """A server's machine that waits for tune-ok."""
    server = Connection(Role.SERVER, sessions=registry())
    server.receive(HEADER)
    server.send_control(START)
    server.receive(control(START_OK, 0))
    server.send_control(ConnectionTune(**tune))
    server.data_to_send()
    return server


def closed_with(server: Connection) -> CloseCode | None:
    """The code of the connection.close that it wrote, if it wrote one."""
    for made in controls_of(server.data_to_send()):
        if isinstance(made, ConnectionClose):
            return CloseCode(made.reply_code or 0)
    return None


# --- Opening ------------------------------------------------------------------------------------


def test_the_opening_leaves_both_with_the_same_limits() -> None:
    pair = Pair().opened(chosen={"channel_max": 10, "max_frame_size": 8192, "heartbeat": 7})
    for machine in (pair.client, pair.server):
        assert (machine.max_frame_size, machine.channel_max, machine.heartbeat_s) == (8192, 10, 7)


def test_default_limits() -> None:
    pair = Pair(max_frame_size=9000).opened(tune={}, chosen={"channel_max": 5})
    for machine in (pair.client, pair.server):
        assert machine.max_frame_size == 9000


def test_challenges_come_until_the_server_has_seen_enough() -> None:
    pair = Pair()
    pair.pump()
    pair.server.send_control(START)
    pair.pump()
    pair.client.send_control(START_OK)
    pair.pump()
    for question in (b"one", b"two"):
        pair.server.send_control(ConnectionSecure(challenge=question))
        assert pair.pump()[1] == [ControlReceived(0, ConnectionSecure(challenge=question))]
        pair.client.send_control(ConnectionSecureOk(response=question[::-1]))
        pair.pump()
    pair.server.send_control(ConnectionTune(**TUNE))
    pair.pump()
    assert pair.client.state is State.TUNING


@pytest.mark.rule("0-10/s006")
@pytest.mark.parametrize("header", [b"AMQP\x01\x01\x00\x0b", b"AMQP\x00\x01\x00\x00", b"HTTP/1.1"])
def test_a_protocol_that_is_not_ours_is_answered_with_our_header_and_nothing_else(
    header: bytes,
) -> None:
    server = Connection(Role.SERVER)
    assert server.receive(header) == []
    assert server.data_to_send() == HEADER
    assert server.state is State.CLOSED
    assert server.receive(control(START_OK, 0)) == []
    assert server.data_to_send() == b""


def test_what_cannot_become_a_header_is_refused_with_the_first_octet() -> None:
    server = Connection(Role.SERVER)
    server.receive(b"G")
    assert server.state is State.CLOSED


@pytest.mark.rule("0-10/s007")
def test_a_client_leaves_a_server_of_another_version() -> None:
    client = Connection(Role.CLIENT)
    assert client.data_to_send() == HEADER
    assert client.receive(b"AMQP\x00\x00\x09\x01") == [HeaderRejected(b"AMQP\x00\x00\x09\x01")]
    assert client.state is State.CLOSED
    assert client.data_to_send() == b""


def test_a_server_may_begin_without_its_header() -> None:
    client = Connection(Role.CLIENT)
    assert client.receive(control(START, 0)) == [ControlReceived(0, START)]


@pytest.mark.rule("0-10/s012")
def test_a_mechanism_that_was_not_offered_ends_the_connection_without_a_word() -> None:
    server = Connection(Role.SERVER)
    server.receive(HEADER)
    server.send_control(START)
    server.data_to_send()
    wrong = ConnectionStartOk(mechanism="ANONYMOUS", response=b"", locale="en_US")
    assert server.receive(control(wrong, 0)) == []
    assert server.data_to_send() == b""
    assert server.state is State.CLOSED


@pytest.mark.rule("0-10/s013", "0-10/s016")
@pytest.mark.parametrize("role", list(Role))
def test_frames_of_4096_octets_are_taken_before_tuning(role: Role) -> None:
    machine = Connection(role)
    machine.receive(HEADER)
    if role is Role.SERVER:
        machine.send_control(START)
        made: Control = ConnectionStartOk(
            client_properties={"x": ""}, mechanism="PLAIN", response=b"", locale="en_US"
        )
        made.client_properties = {"x": "y" * (4084 - len(encode_control(made)))}  # type: ignore[attr-defined]
    else:
        made = ConnectionStart(server_properties={"x": ""}, mechanisms=["PLAIN"], locales=[])
        made.server_properties = {"x": "y" * (4084 - len(encode_control(made)))}
    octets = control(made, 0)
    assert len(octets) == 4096
    assert [type(event) for event in machine.receive(octets)] == [ControlReceived]


@pytest.mark.rule("0-10/s013", "0-10/s016")
def test_a_frame_size_below_4096_is_not_agreed_on() -> None:
    server = tuning()
    server.receive(control(ConnectionTuneOk(channel_max=1, max_frame_size=4095), 0))
    assert server.state is State.CLOSED
    server = tuning()
    server.receive(control(ConnectionTuneOk(channel_max=1, max_frame_size=4096), 0))
    assert server.state is State.TUNED


@pytest.mark.rule("0-10/s014")
def test_a_longest_heartbeat_is_not_offered_without_a_shortest() -> None:
    server = Connection(Role.SERVER)
    server.receive(HEADER)
    server.send_control(START)
    server.receive(control(START_OK, 0))
    server.data_to_send()
    with pytest.raises(CloseError):
        server.send_control(ConnectionTune(heartbeat_max=60))
    assert server.data_to_send() == b""


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param({"channel_max": 65}, marks=pytest.mark.rule("0-10/s015")),
        pytest.param(
            {"channel_max": 64, "max_frame_size": 60001}, marks=pytest.mark.rule("0-10/s017")
        ),
        pytest.param({"channel_max": 64, "heartbeat": 61}, marks=pytest.mark.rule("0-10/s020")),
        pytest.param({"channel_max": 64, "heartbeat": 1}, marks=pytest.mark.rule("0-10/s020")),
    ],
)
def test_a_tune_ok_beyond_the_offer_ends_the_connection_without_a_word(
    chosen: dict[str, int],
) -> None:
    server = tuning({**TUNE, "max_frame_size": 60000, "heartbeat_min": 2})
    assert server.receive(control(ConnectionTuneOk(**chosen), 0)) == []
    assert server.data_to_send() == b""
    assert server.state is State.CLOSED


@pytest.mark.rule("0-10/s021")
def test_a_heartbeat_that_was_not_offered() -> None:
    server = tuning({"channel_max": 64, "max_frame_size": 65535})
    server.receive(control(ConnectionTuneOk(channel_max=64, heartbeat=5), 0))
    assert server.state is State.CLOSED


@pytest.mark.rule("0-10/s015", "0-10/s017", "0-10/s020", "0-10/s021")
@pytest.mark.parametrize(
    "chosen",
    [
        {"channel_max": 65},
        {"channel_max": 1, "max_frame_size": 60001},
        {"channel_max": 1, "heartbeat": 5},
    ],
)
def test_our_client_does_not_choose_beyond_the_offer(chosen: dict[str, int]) -> None:
    pair = Pair()
    pair.pump()
    pair.server.send_control(START)
    pair.pump()
    pair.client.send_control(START_OK)
    pair.pump()
    pair.server.send_control(ConnectionTune(channel_max=64, max_frame_size=60000))
    pair.pump()
    with pytest.raises(CloseError):
        pair.client.send_control(ConnectionTuneOk(**chosen))
    assert pair.client.data_to_send() == b""


class Patient(Connection):
    """A server that answers at once, but checks logins elsewhere."""

    def on_header(self) -> None:
        self.send_control(START)

    def on_control(self, number: int, made: Any) -> None:
        Connection.on_control(self, number, made)
        if isinstance(made, ConnectionOpen):
            self.send_control(ConnectionOpenOk())


@given(st.lists(st.integers(1, 60), max_size=20), st.integers(0, 400))
@settings(max_examples=60)
def test_a_pipelined_opening_is_held_while_the_login_is_checked(
    sizes: list[int], late: int
) -> None:
    server = Patient(Role.SERVER, sessions=registry())
    octets = HEADER + b"".join(
        [
            control(START_OK, 0),
            control(ConnectionTuneOk(channel_max=8), 0),
            control(ConnectionOpen(virtual_host="/"), 0),
            control(SessionAttach(name=b"s")),
            control(SessionCommandPoint(command_id=0, command_offset=0)),
            command(ExecutionSync(), sync=True),
        ]
    )
    early, rest = octets[: len(octets) - late], octets[len(octets) - late :]
    for chunk in split(early, sizes):
        server.receive(chunk)
    if server.state is State.AUTHENTICATING:
        server.send_control(ConnectionTune(**TUNE))
    for chunk in split(rest, sizes):
        server.receive(chunk)
        if server.state is State.AUTHENTICATING:
            server.send_control(ConnectionTune(**TUNE))
    assert server.state is State.OPEN
    told = controls_of(server.data_to_send())
    assert told[-1] == SessionCompleted(commands=SequenceSet([(0, 0)]))


def test_only_16_kib_are_held_or_taken_before_the_connection_is_open() -> None:
    server = Patient(Role.SERVER)
    server.receive(HEADER)
    server.receive(control(START_OK, 0))
    server.data_to_send()
    flood = control(ConnectionHeartbeat(), 0)
    for _ in range(HANDSHAKE_BYTES_MAX // len(flood) + 2):
        server.receive(flood)
    assert len(server.reader.held) <= HANDSHAKE_BYTES_MAX
    assert closed_with(server) is CloseCode.FRAMING_ERROR
    assert server.receive(flood) == []

    server = tuning()  # type: ignore[assignment]
    for _ in range(HANDSHAKE_BYTES_MAX // len(flood) + 2):
        server.receive(flood)
    assert closed_with(server) is CloseCode.FRAMING_ERROR


@pytest.mark.parametrize(
    "octets",
    [
        control(SessionAttach(name=b"s")),
        control(SessionGap(commands=SequenceSet([(0, 9)]))),
        command(ExecutionSync()),
        transfer(b"x"),
        control(ConnectionOpen(virtual_host="/"), 0),
    ],
)
def test_nothing_comes_before_its_time(octets: bytes) -> None:
    server = tuning()
    assert [type(event) for event in server.receive(octets)] == [Failed]
    assert closed_with(server) is CloseCode.FRAMING_ERROR


def test_a_control_out_of_order_is_not_sent_either() -> None:
    server = Connection(Role.SERVER)
    server.receive(HEADER)
    server.data_to_send()
    with pytest.raises(CloseError):
        server.send_control(ConnectionOpenOk())
    assert server.data_to_send() == b""


def test_a_redirect_ends_the_opening() -> None:
    pair = Pair()
    pair.pump()
    steps: list[tuple[Connection, Control]] = [
        (pair.server, START),
        (pair.client, START_OK),
        (pair.server, ConnectionTune(**TUNE)),
        (pair.client, ConnectionTuneOk(channel_max=1)),
        (pair.client, ConnectionOpen(virtual_host="/")),
    ]
    for machine, made in steps:
        machine.send_control(made)
        pair.pump()
    redirect = ConnectionRedirect(host="elsewhere:5672", known_hosts=["there:5672"])
    pair.server.send_control(redirect)
    assert pair.pump()[1] == [ControlReceived(0, redirect)]
    assert pair.client.state is pair.server.state is State.CLOSED


# --- Frames -------------------------------------------------------------------------------------


SYNC = b"\x03\x01\x01\x00"


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        pytest.param(frame(0x1F, 1, SYNC), "flags", id="reserved flag"),
        pytest.param(frame(0x8F, 1, SYNC), "flags", id="version of the frame"),
        pytest.param(frame(15, 4, SYNC), "type", id="type"),
        pytest.param(frame(15, 1, SYNC, track=2), "track", id="track"),
        pytest.param(frame(15, 1, SYNC, track=0x11), "track", id="reserved half of the track"),
        pytest.param(
            frame(15, 0, encode_control(SessionFlush()), track=1),
            "track",
            id="control on track 1",
            marks=pytest.mark.rule("0-10/s004"),
        ),
        pytest.param(
            frame(15, 1, SYNC, track=0),
            "track",
            id="command on track 0",
            marks=pytest.mark.rule("0-10/s005"),
        ),
        pytest.param(frame(15, 1, SYNC, channel=64), "channel", id="channel"),
        pytest.param(b"\x0f\x01\x00\x0b\x00\x01" + bytes(6), "shorter", id="size below the head"),
        pytest.param(frame(5, 3, b"x"), "beginning", id="the middle of a command"),
        pytest.param(frame(13, 1, SYNC), "beginning", id="not the first frame"),
        pytest.param(frame(7, 1, SYNC), "beginning", id="not the first segment"),
        pytest.param(frame(11, 2, ROUTED), "begin", id="header first"),
        pytest.param(frame(15, 3, b"x"), "begin", id="body first"),
        pytest.param(frame(7, 0, encode_control(SessionFlush())), "segment", id="control in parts"),
        pytest.param(
            frame(13, 0, encode_control(SessionFlush())), "order", id="control without its start"
        ),
        pytest.param(frame(15, 0, b"\x02"), "", id="cut control"),
        pytest.param(frame(15, 0, b"\x02\x63\x00\x00"), "", id="unknown control"),
        pytest.param(
            frame(15, 0, b"\x02\x0c\xff\xff"), "", id="flags for fields that do not exist"
        ),
        pytest.param(
            frame(11, 1, b"\x04\x01\x01\x00\x00\x00") * 2, "begin", id="two commands at once"
        ),
        pytest.param(
            frame(11, 1, b"\x04\x01\x01\x00\x00\x00") + frame(5, 3, b"x"),
            "begin",
            id="body without its first frame",
        ),
        pytest.param(
            frame(11, 1, b"\x04\x01\x01\x00\x00\x00") + frame(2, 3, b"x") + frame(5, 3, b"y"),
            "continue",
            id="last segment only at its end",
        ),
        pytest.param(
            frame(11, 1, b"\x04\x01\x01\x00\x00\x00") + frame(3, 3, b"x") + frame(7, 2, ROUTED),
            "begin",
            id="header after the body",
        ),
    ],
)
def test_frames_that_cannot_be_told_apart_end_the_connection(octets: bytes, text: str) -> None:
    server = raw()
    failed = [event for event in server.receive(octets) if isinstance(event, Failed)]
    assert len(failed) == 1
    assert re.search(text, failed[0].error.text)
    assert closed_with(server) is CloseCode.FRAMING_ERROR
    assert server.receive(transfer(b"more")) == []  # Deaf from now on.


@pytest.mark.rule("0-10/s019")
def test_an_oversized_frame_ends_the_connection() -> None:
    server = raw()
    small = Pair().opened(chosen={"channel_max": 9, "max_frame_size": 4096})
    small.server.receive(frame(15, 1, bytes(4085)))
    assert closed_with(small.server) is CloseCode.FRAMING_ERROR
    large = frame(15, 1, bytes(65523))
    server.receive(large)
    assert closed_with(server) is None  # As large as was agreed on; its content is another matter.


@pytest.mark.rule("0-10/s018")
@given(st.integers(4096, 65535), st.lists(st.integers(0, 70000), min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_no_frame_is_larger_than_agreed(limit: int, sizes: list[int]) -> None:
    pair = Pair().opened(chosen={"channel_max": 9, "max_frame_size": limit})
    session = pair.attached()
    before = len(pair.sent_by_client)
    for size in sizes:
        header = ROUTED * (size // 100 + 1)
        session.send_command(QueueDeclare(queue="q", arguments={"x": "y" * 5000}))
        session.send_command(MessageTransfer(destination="x"), header=header, body=bytes(size))
        parts = (bytes(size), b"tail", bytes(size))
        session.send_command(MessageTransfer(destination="y"), body=parts)
    events, _ = pair.pump()
    bodies = [event.body for event in events if isinstance(event, TransferReceived)]
    assert bodies[::2] == [bytes(size) for size in sizes]
    assert bodies[1::2] == [bytes(size) + b"tail" + bytes(size) for size in sizes]
    octets = pair.sent_by_client[before:]
    at = 0
    while at < len(octets):
        size = int.from_bytes(octets[at + 2 : at + 4], "big")
        assert 12 <= size <= limit
        at += size


@pytest.mark.rule("0-10/s004", "0-10/s005")
def test_our_controls_go_on_track_0_and_our_commands_on_track_1() -> None:
    pair = Pair().opened()
    session = pair.attached()
    session.send_command(QueueDeclare(queue="q"), sync=True)
    session.sent.request_timeout(5)
    session.detach()
    pair.pump()
    for octets in (pair.sent_by_client, pair.sent_by_server):
        frames = frames_of(octets)
        assert {(kind, track) for _, kind, track, _, _ in frames} <= {(0, 0), (1, 1)}
        for _, kind, _, _, payload in frames:
            assert (payload[0] in (1, 2)) == (kind == 0)


@pytest.mark.parametrize("piece", [1, 7, 65523])
def test_a_transfer_in_pieces_is_the_transfer_in_one(piece: int) -> None:
    server = raw()
    body = bytes(range(256)) * 3
    if piece == 1:
        body = body[:40]
    (event,) = server.receive(transfer(body, piece=piece, sync=True))
    assert isinstance(event, TransferReceived)
    assert (event.header, event.body, event.sync, event.command_id) == (ROUTED, body, True, 0)


@pytest.mark.parametrize("size", [0, 1, 65523, 65536, 65537, 300000])
def test_bodies_of_any_size(size: int) -> None:
    server = raw()
    body = bytes(size)
    (event,) = server.receive(transfer(body))
    assert isinstance(event, TransferReceived)
    assert event.body == body


TALK = b"".join(
    [
        transfer(b"one"),
        transfer(b"", sync=True),
        transfer(b"no header", header=b""),
        command(QueueDeclare(queue="q", durable=True), sync=True),
        transfer(bytes(500), piece=90),
        control(ConnectionHeartbeat(), 0),
        control(SessionFlush(expected=True, completed=True)),
        command(MessageAccept(transfers=SequenceSet([(0, 3), (7, 7)]))),
        frame(14, 0, encode_control(SessionFlush())[:3])
        + frame(13, 0, encode_control(SessionFlush())[3:]),
        frame(14, 0, encode_control(ConnectionHeartbeat())[:2], 9)
        + transfer(b"between")
        + frame(13, 0, encode_control(ConnectionHeartbeat())[2:], 9),
        command(ExecutionSync(), sync=True),
        transfer(bytes(70000)),
        control(SessionGap(commands=SequenceSet([(9, 20)]))),
        transfer(b"after the gap"),
    ]
)


@given(st.lists(st.integers(1, 400), max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_split_of_the_octets_means_the_same(sizes: list[int]) -> None:
    whole = raw()
    expected = whole.receive(TALK)
    assert sum(isinstance(event, TransferReceived) for event in expected) == 7
    server = raw()
    seen: list[Event] = []
    for chunk in split(TALK, sizes):
        seen += server.receive(chunk)
    assert seen == expected
    ours = SequenceSet()
    for made in controls_of(server.data_to_send()):
        if isinstance(made, SessionCompleted) and made.commands:
            ours.update(made.commands)
    assert ours.ranges() == [(0, 21)]


def test_frames_of_two_channels_may_alternate() -> None:
    pair = Pair().opened()
    pair.attached(b"one", 1)
    pair.attached(b"two", 2)
    octets = transfer(b"1" * 50, piece=20)
    other = transfer(b"2" * 50, piece=20, channel=2)
    mixed = b""
    while octets:
        for stream in (octets, other):
            mixed += stream[: int.from_bytes(stream[2:4], "big")]
        octets = octets[int.from_bytes(octets[2:4], "big") :]
        other = other[int.from_bytes(other[2:4], "big") :]
    events = pair.server.receive(mixed)
    assert [event.session for event in events if isinstance(event, TransferReceived)] == [
        b"one",
        b"two",
    ]


# --- Bounds -------------------------------------------------------------------------------------


def test_an_assembly_that_never_ends_is_ended() -> None:
    server = raw()
    server.receive(frame(11, 1, b"\x04\x01\x01\x00\x00\x00"))
    events = []
    for place in range(100):
        events += server.receive(frame(6 if place == 0 else 4, 3, b""))
    assert [type(event) for event in events] == [Failed]


def test_a_control_that_never_ends_is_ended() -> None:
    server = raw()
    server.receive(frame(14, 0, b"\x02"))
    events = []
    for _ in range(100):
        events += server.receive(frame(12, 0, b""))
    assert [type(event) for event in events] == [Failed]

    server = raw()
    server.receive(frame(14, 0, b"\x02"))
    events = []
    for _ in range(10):
        events += server.receive(frame(12, 0, bytes(60000)))
    assert [type(event) for event in events] == [Failed]
    assert server.reader.control_bytes <= 262144 + 65535


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_segments_are_bounded(kind: int) -> None:
    server = raw(body_max=300000)
    server.receive(frame(10 if kind == 1 else 11, 1, b"\x04\x01\x01\x00\x00\x00"))
    if kind > 1:
        server.receive(frame(2, kind, b"x"))
    events: list[Event] = []
    for _ in range(10):
        events += server.receive(frame(8 if kind == 1 else 0, kind, bytes(60000)))
    assert any(
        getattr(getattr(event, "error", None), "error_code", 0) == 506 for event in events
    ), events
    held = server.attached[1].received.assembly
    assert held.payload_bytes == 0
    assert server.state is State.OPEN


def test_unfinished_bodies_of_all_sessions_are_bounded() -> None:
    size, piece = (10 << 20) - 1, 65523
    pair = Pair(body_max=10 << 20).opened()
    for channel in range(1, 10):
        pair.attached(b"%d" % channel, channel)
    for channel in range(1, 10):
        octets = transfer(bytes(size), piece=piece, channel=channel)
        events = pair.server.receive(octets[: -(size % piece + 12)])  # The last frame is missing.
        told = [getattr(getattr(event, "error", None), "error_code", 0) for event in events]
        assert (506 in told) is (channel == 9)
    assert pair.server.state is State.OPEN
    assert pair.server.attached[8].received.assembly.body_size > 9 << 20


@pytest.mark.parametrize("how", ["complete", "too large", "detached", "lost"])
def test_bodies_that_are_not_complete_are_counted(how: str) -> None:
    pair = Pair(body_max=100_000).opened()
    pair.attached()
    server = pair.server
    server.data_to_send()
    frames = transfer(bytes(100_000), piece=30_000)
    server.receive(frames[:-10_012])
    assert server.pool.used == 90_000
    if how == "complete":
        server.receive(frames[-10_012:])
    elif how == "too large":
        server.receive(frame(4, 3, bytes(30_000)))
    elif how == "detached":
        server.receive(control(SessionDetach(name=server.attached[1].name)))
    else:
        server.detach_all()
    server.data_to_send()
    assert server.pool.used == 0


def test_unread_output_stops_the_handling_of_input() -> None:
    server = raw()
    server.reader.hold_above = 100
    flush = control(SessionFlush(expected=True))
    octets = flush * 50
    server.receive(octets)
    assert 0 < len(server.rest) < len(octets)
    handled = 0
    while server.rest:
        handled += len(controls_of(server.data_to_send()))
        server.receive(b"")
    assert handled + len(controls_of(server.data_to_send())) == 50


# --- Closing ------------------------------------------------------------------------------------


def test_close_and_its_answer() -> None:
    pair = Pair().opened()
    pair.client.send_control(ConnectionClose(reply_code=CloseCode.NORMAL, reply_text="done"))
    assert pair.client.awaits_close()
    at_server, at_client = pair.pump()
    assert [type(event.control) for event in at_server] == [ConnectionClose]  # type: ignore[attr-defined]
    assert at_client == [ControlReceived(0, ConnectionCloseOk())]
    assert pair.client.state is pair.server.state is State.CLOSED


@pytest.mark.rule("0-10/s028")
def test_a_close_may_come_on_any_channel_and_is_answered_there() -> None:
    server = raw()
    closing = ConnectionClose(reply_code=CloseCode.NORMAL)
    assert server.receive(control(closing, 1)) == [ControlReceived(1, closing)]
    assert [number for _, _, _, number, _ in frames_of(server.data_to_send())] == [1]


def test_what_comes_after_our_close_is_passed_over() -> None:
    server = raw()
    server.send_control(ConnectionClose(reply_code=CloseCode.CONNECTION_FORCED))
    server.data_to_send()
    assert server.receive(transfer(b"late") + control(SessionAttach(name=b"x"), 2)) == []
    assert server.data_to_send() == b""
    assert server.receive(control(ConnectionCloseOk(), 0)) == [
        ControlReceived(0, ConnectionCloseOk())
    ]
    assert server.state is State.CLOSED


def test_heartbeats_are_seen_and_sent() -> None:
    pair = Pair().opened()
    pair.client.send_heartbeat()
    assert pair.pump()[0] == [HeartbeatReceived()]


def test_an_error_of_ours_is_not_the_end_of_the_process(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Connection):
        def on_command(self, session: Any, made: Any, header: bytes, parts: Any) -> None:
            raise KeyError("ours")

    pair = Pair()
    pair.server = Broken(Role.SERVER, sessions=registry())
    pair.opened()
    session = pair.attached()
    session.send_command(QueueDeclare(queue="q"))
    with caplog.at_level(logging.CRITICAL):
        pair.pump()
    assert session.error.error_code == 541
    assert pair.server.state is State.OPEN


def test_a_lost_connection_detaches_every_session() -> None:
    pair = Pair().opened()
    for channel in range(5):
        pair.attached(b"%d" % channel, channel)
    pair.lose()
    assert pair.server.attached == {}
    assert pair.sessions.named == {}


def test_commands_received_after_a_detached_session_are_answered_once_each() -> None:
    pair = Pair().opened()
    pair.server.receive(transfer(b"body", piece=2, channel=7))
    answers = controls_of(pair.server.data_to_send())
    assert answers == [SessionDetached(name=b"", code=DetachCode.NOT_ATTACHED)]


def test_received_events_carry_what_came() -> None:
    server = raw()
    made = QueueDeclare(queue="q", durable=True)
    assert server.receive(command(made, sync=True)) == [
        CommandReceived(b"one", 0, True, made, b"", b"")
    ]
