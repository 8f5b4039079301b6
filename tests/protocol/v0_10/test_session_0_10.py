# SPDX-License-Identifier: Apache-2.0
"""AMQP 0-10 sessions: attaching, command ids, completion, gaps, timeouts and replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.protocol.codec_0_10 import (
    CommandFragment,
    Control,
    ExecutionException,
    ExecutionResult,
    ExecutionSync,
    MessageAccept,
    MessageTransfer,
    QueueDeclare,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
    SessionConfirmed,
    SessionDetach,
    SessionDetached,
    SessionExpected,
    SessionFlush,
    SessionGap,
    SessionKnownCompleted,
    SessionRequestTimeout,
    XaResult,
    encode_command,
    encode_control,
)
from headrace.protocol.errors_0_10 import CloseError, DetachError, ExecutionError
from headrace.protocol.v0_10.connection.connection import Connection
from headrace.protocol.v0_10.events import (
    Attached,
    CommandReceived,
    Completed,
    Detached,
    Failed,
    ResultReceived,
    Resumed,
    SessionFailed,
    TransferReceived,
)
from headrace.protocol.v0_10.session.received import GAPS_AHEAD_MAX
from headrace.protocol.v0_10.session.sent import ReplayFull
from headrace.protocol.v0_10.session.session import Session
from headrace.protocol.v0_x.handshake import Role, State
from headrace.spec.reply_0_10 import DetachCode, ExecutionCode
from headrace.wire.ranges import ByteRanges, SequenceSet
from support.clients.machine_pair_0_10 import (
    ROUTED,
    Clock,
    Pair,
    command,
    commands_of,
    control,
    controls_of,
    frame,
    frames_of,
    raw,
    registry,
    transfer,
)

if TYPE_CHECKING:
    from headrace.protocol.v0_10.events import Event

POINT = control(SessionCommandPoint(command_id=0, command_offset=0))
DECLARE = QueueDeclare(queue="q")
REPLAY_COMMANDS_MAX = 65536


def ids(*ranges: tuple[int, int]) -> SequenceSet:
    return SequenceSet(ranges)


class Slow(Connection):
    """A server that completes commands when it is told to."""

    def on_transfer_large(self, session: Any, start: bytes, *rest: Any) -> None:
        self.events.append(
            CommandReceived(session.name, session.command_id, session.sync, None, b"", b"")
        )

    def on_command(self, session: Any, made: Any, header: bytes, parts: Any) -> None:
        self.events.append(
            CommandReceived(session.name, session.command_id, session.sync, made, header, b"")
        )


def slow() -> Pair:
    pair = Pair()
    pair.server = Slow(Role.SERVER, sessions=pair.sessions)
    pair.opened()
    pair.attached()
    pair.server.data_to_send()
    return pair


def told(server: Connection, kind: type[Control] = SessionCompleted) -> list[list[tuple[int, int]]]:
    """The sets of the controls of this kind that it wrote."""
    return [
        made.commands.ranges()  # type: ignore[attr-defined]
        for made in controls_of(server.data_to_send())
        if isinstance(made, kind)
    ]


# --- Attaching ----------------------------------------------------------------------------------


@pytest.mark.rule("0-10/s030", "0-10/s031")
@pytest.mark.parametrize(
    "made",
    [
        SessionRequestTimeout(timeout=1),
        SessionCommandPoint(command_id=0, command_offset=0),
        SessionCompleted(commands=ids((0, 0))),
        SessionKnownCompleted(commands=ids((0, 0))),
        SessionConfirmed(commands=ids((0, 0))),
        SessionExpected(commands=ids((0, 0))),
        SessionFlush(expected=True),
        SessionGap(commands=ids((0, 9))),
    ],
    ids=lambda made: made.NAME,
)
def test_controls_on_a_channel_without_a_session_are_discarded(made: Control) -> None:
    server = Pair().opened().server
    assert server.receive(control(made, 5)) == []
    octets = server.data_to_send()
    assert controls_of(octets) == [SessionDetached(name=b"", code=DetachCode.NOT_ATTACHED)]
    assert frames_of(octets)[0][3] == 5
    assert server.state is State.OPEN


def test_commands_before_attach_are_discarded() -> None:
    server = Pair().opened().server
    assert server.receive(transfer(b"x", channel=3)) == []
    assert controls_of(server.data_to_send()) == [
        SessionDetached(name=b"", code=DetachCode.NOT_ATTACHED)
    ]


@pytest.mark.rule("0-10/s032")
def test_a_session_is_attached_to_one_channel_at_a_time() -> None:
    pair = Pair().opened()
    pair.attached(b"one", 1)
    attach = control(SessionAttach(name=b"one"), 2)
    assert pair.server.receive(attach) == []
    assert controls_of(pair.server.data_to_send()) == [
        SessionDetached(name=b"one", code=DetachCode.SESSION_BUSY)
    ]
    assert list(pair.server.attached) == [1]

    other = Pair(pair.sessions).opened()
    assert other.server.receive(attach) == []
    assert controls_of(other.server.data_to_send()) == [
        SessionDetached(name=b"one", code=DetachCode.SESSION_BUSY)
    ]
    assert other.server.attached == {}


@pytest.mark.rule("0-10/s032")
def test_force_takes_a_session_from_its_other_connection() -> None:
    pair = Pair().opened()
    mine = pair.attached(b"one", 1)
    mine.sent.request_timeout(60)
    pair.pump()
    there = pair.at_server()
    other = Pair(pair.sessions).opened()
    other.server.receive(control(SessionAttach(name=b"one", force=True), 4))
    assert other.server.attached == {4: there}
    assert pair.server.attached == {}
    _, at_client = pair.pump()
    assert at_client == [Detached(b"one", 1, DetachCode.SESSION_BUSY)]


@pytest.mark.rule("0-10/s032")
@pytest.mark.parametrize("detached_max", [0, 1])
def test_force_ends_no_session_for_the_bound_of_detached_ones(detached_max: int) -> None:
    """The session that force takes is attached again at once."""
    pair = Pair(registry(detached_max=detached_max)).opened()
    if detached_max:
        lost = Pair(pair.sessions).opened()
        lost.attached(b"lost").sent.request_timeout(60)
        lost.pump()
        lost.lose()
    pair.attached(b"one", 1).sent.request_timeout(60)
    pair.pump()
    there = pair.at_server()
    other = Pair(pair.sessions).opened()
    other.server.receive(control(SessionAttach(name=b"one", force=True), 4))
    assert other.server.attached == {4: there}
    assert len(pair.sessions.waiting) == detached_max


@pytest.mark.rule("0-10/s033")
def test_a_channel_has_one_session_at_a_time() -> None:
    pair = Pair().opened()
    pair.attached(b"one", 1)
    session = pair.at_server()
    assert pair.server.receive(control(SessionAttach(name=b"two"), 1)) == []
    assert controls_of(pair.server.data_to_send()) == [
        SessionDetached(name=b"two", code=DetachCode.TRANSPORT_BUSY)
    ]
    assert pair.server.attached == {1: session}


@pytest.mark.rule("0-10/s034")
@pytest.mark.parametrize("force", [False, True])
def test_attaching_once_more_where_it_is_attached_succeeds(force: bool) -> None:
    pair = Pair().opened()
    session = pair.attached(b"one", 1)
    session.send_command(DECLARE)
    pair.pump()
    assert pair.server.receive(control(SessionAttach(name=b"one", force=force))) == []
    assert controls_of(pair.server.data_to_send()) == [SessionAttached(name=b"one")]
    session.send_command(DECLARE)
    assert [event.command_id for event in pair.pump()[0] if isinstance(event, CommandReceived)] == [
        1
    ]


@pytest.mark.rule("0-10/s035")
def test_names_of_different_users_do_not_clash() -> None:
    pair = Pair().opened()
    pair.server.user = "ada"
    pair.attached(b"same")
    other = Pair(pair.sessions).opened()
    other.server.user = "grace"
    other.attached(b"same")
    assert pair.at_server() is not other.at_server()


def test_a_session_that_is_detached_by_request() -> None:
    pair = Pair().opened()
    session = pair.attached()
    session.send_command(DECLARE)
    session.detach()
    at_server, at_client = pair.pump()
    assert Detached(b"one", 1, 0) in at_server
    assert Detached(b"one", 1, 0) in at_client
    assert Completed(b"one", 0, 0) in at_client  # Told before it was let go.
    assert session.connection is None
    assert pair.sessions.named == {}
    pair.attached(b"next")


def test_an_answer_to_the_last_session_does_not_detach_the_next() -> None:
    pair = Pair().opened()
    session = Session(b"two")
    pair.client.attach(session, 1)
    pair.client.receive(control(SessionDetached(name=b"", code=DetachCode.NOT_ATTACHED), 1))
    assert session.connection is pair.client
    pair.pump()
    assert pair.client.attached == {1: session}


def test_detaching_what_is_not_attached() -> None:
    pair = Pair().opened()
    pair.attached()
    for channel, name in ((1, b"two"), (2, b"one")):
        pair.server.receive(control(SessionDetach(name=name), channel))
        assert controls_of(pair.server.data_to_send()) == [
            SessionDetached(name=name, code=DetachCode.NOT_ATTACHED)
        ]
    assert 1 in pair.server.attached


def test_a_client_does_not_take_a_channel_twice() -> None:
    pair = Pair().opened()
    session = pair.attached()
    for other, channel in ((Session(b"two"), 1), (session, 2), (Session(b"three"), 64)):
        with pytest.raises(CloseError):
            pair.client.attach(other, channel)
    assert pair.client.data_to_send() == b""


def test_an_unrequested_attached_ends_the_connection() -> None:
    pair = Pair().opened()
    events = pair.client.receive(control(SessionAttached(name=b"x")))
    assert [type(event) for event in events] == [Failed]


def test_attaching_and_commands_may_be_pipelined() -> None:
    pair = Pair().opened()
    session = Session(b"one")
    pair.client.attach(session, 1)
    session.send_command(DECLARE, sync=True)
    at_server, at_client = pair.pump()
    assert [type(event) for event in at_server] == [Attached, CommandReceived]
    assert [type(event) for event in at_client] == [Attached, Completed]


# --- Timeouts -----------------------------------------------------------------------------------


@pytest.mark.rule("0-10/s036")
@pytest.mark.parametrize(("asked", "granted"), [(0, 0), (5, 5), (100, 60), (None, 60)])
def test_the_timeout_is_the_largest_allowed(asked: int | None, granted: int) -> None:
    pair = Pair(registry(timeout_max_s=60)).opened()
    session = pair.attached()
    session.sent.request_timeout(asked)
    pair.pump()
    assert session.timeout_s == granted
    assert pair.at_server().timeout_s == granted


def test_a_detached_session_ends_after_its_timeout() -> None:
    clock = Clock()
    pair = Pair(registry(clock)).opened()
    session = pair.attached()
    session.sent.request_timeout(30)
    pair.pump()
    there = pair.at_server()
    pair.lose()
    clock.now = 29.9
    pair.sessions.expire()
    assert not there.ended
    clock.now = 30.0
    pair.sessions.expire()
    assert there.ended
    assert pair.sessions.named == {}


def test_detached_sessions_are_bounded() -> None:
    sessions = registry(detached_max=3)
    for number in range(5):
        pair = Pair(sessions).opened()
        pair.attached(b"%d" % number).sent.request_timeout(30)
        pair.pump()
        pair.lose()
    assert [name for _, name in sessions.named] == [b"2", b"3", b"4"]


# --- Command ids --------------------------------------------------------------------------------


@pytest.mark.rule("0-10/s037")
@pytest.mark.parametrize("octets", [transfer(b"x"), command(ExecutionSync())])
def test_commands_before_a_command_point_detach_the_session(octets: bytes) -> None:
    server = Pair().opened().server
    server.receive(control(SessionAttach(name=b"one")))
    server.data_to_send()
    assert server.receive(octets) == [Detached(b"one", 1, DetachCode.UNKNOWN_IDS)]
    assert controls_of(server.data_to_send())[0] == SessionDetached(
        name=b"one", code=DetachCode.UNKNOWN_IDS
    )
    assert server.attached == {}
    assert server.state is State.OPEN


@pytest.mark.rule("0-10/s038")
def test_after_a_point_without_offset_a_command_begins() -> None:
    server = raw()
    server.receive(frame(11, 1, encode_command(MessageTransfer(destination="x"))))
    server.receive(POINT)  # Begins the command again.
    events = server.receive(frame(7, 3, b"x"))
    assert [type(event) for event in events] == [Failed]

    server = raw()
    server.receive(frame(11, 1, encode_command(MessageTransfer(destination="x"))))
    (event,) = server.receive(POINT + transfer(b"again"))
    assert isinstance(event, TransferReceived)
    assert (event.command_id, event.body) == (0, b"again")


@pytest.mark.rule("0-10/s039")
def test_after_a_point_with_offset_no_command_begins() -> None:
    server = raw()
    server.receive(transfer(b"x") + transfer(b"y"))
    server.receive(control(SessionCommandPoint(command_id=0, command_offset=4)))
    events = server.receive(transfer(b"again"))
    assert [type(event) for event in events] == [Failed]

    server = raw()
    payload = encode_command(MessageTransfer(destination="x"))
    server.receive(frame(11, 1, payload))
    point = control(SessionCommandPoint(command_id=0, command_offset=len(payload)))
    assert server.receive(point) == []
    (event,) = server.receive(frame(7, 3, b"the rest"))
    assert isinstance(event, TransferReceived)
    assert event.body == b"the rest"


def test_the_rest_of_a_command_that_is_known_is_passed_over() -> None:
    server = raw()
    server.receive(transfer(b"one") + transfer(b"two"))
    server.data_to_send()
    server.receive(control(SessionCommandPoint(command_id=0, command_offset=4)))
    assert server.receive(frame(2, 3, b"n") + frame(1 | 4, 3, b"e")) != []  # Flags still count.

    server = raw()
    server.receive(transfer(b"one") + transfer(b"two"))
    server.receive(control(SessionCommandPoint(command_id=0, command_offset=4)))
    events = server.receive(frame(5, 3, b"e") + transfer(b"two") + transfer(b"three"))
    assert [event.command_id for event in events if isinstance(event, TransferReceived)] == [2]


@pytest.mark.parametrize(("number", "offset"), [(3, 0), (2, 7), (0x7FFFFFFF, 0), (0x80000003, 3)])
def test_numbers_out_of_order_detach_the_session(number: int, offset: int) -> None:
    server = raw()
    server.receive(transfer(b"one") + transfer(b"two"))
    events = server.receive(control(SessionCommandPoint(command_id=number, command_offset=offset)))
    if number == 0x80000003:  # Half a circle back: long known.
        assert events == []
    else:
        assert events == [Detached(b"one", 1, DetachCode.UNKNOWN_IDS)]


@pytest.mark.parametrize("start", [0, 7, 0x7FFFFFFE, 0xFFFFFFFD])
def test_ids_begin_anywhere_and_wrap_around(start: int) -> None:
    server = Pair().opened().server
    server.receive(control(SessionAttach(name=b"one")))
    server.receive(control(SessionCommandPoint(command_id=start, command_offset=0)))
    server.data_to_send()
    events = server.receive(transfer(b"x") * 3 + command(DECLARE) * 3)
    seen = [event.command_id for event in events]  # type: ignore[attr-defined]
    assert seen == [(start + step) & 0xFFFFFFFF for step in range(6)]
    assert told(server) == [[(start, (start + 5) & 0xFFFFFFFF)]]


def test_our_ids_wrap_around_too() -> None:
    pair = Pair().opened()
    session = Session(b"one")
    session.sent.next_id = 0xFFFFFFFE
    session.sent.completed.low = 0xFFFFFFFE
    pair.client.attach(session, 1)
    for _ in range(4):
        session.send_command(DECLARE)
    at_server, at_client = pair.pump()
    assert [event.command_id for event in at_server if isinstance(event, CommandReceived)] == [
        0xFFFFFFFE,
        0xFFFFFFFF,
        0,
        1,
    ]
    assert Completed(b"one", 0xFFFFFFFE, 1) in at_client


# --- Completion ---------------------------------------------------------------------------------


def test_completion_out_of_order_is_told_as_it_is() -> None:
    pair = slow()
    server = pair.server
    server.receive(command(DECLARE) * 6)
    session = pair.at_server()
    assert told(server) == []
    session.complete(2)
    session.complete_range(4, 5)
    server.announce()
    assert told(server) == [[(2, 2), (4, 5)]]
    session.complete(0)
    server.announce()
    assert told(server) == [[(0, 0), (2, 2), (4, 5)]]
    session.complete(1)
    session.complete(3)
    server.announce()
    assert told(server) == [[(0, 5)]]
    server.announce()
    assert told(server) == []


@pytest.mark.rule("0-10/s051", "0-10/s047", "0-10/s052")
def test_what_the_sender_knows_is_not_told_again() -> None:
    pair = slow()
    server = pair.server
    server.receive(command(DECLARE) * 6)
    session = pair.at_server()
    session.complete_range(0, 1)
    session.complete(3)
    server.announce()
    assert told(server) == [[(0, 1), (3, 3)]]
    server.receive(control(SessionKnownCompleted(commands=ids((0, 0), (3, 3)))))
    flush = SessionFlush(completed=True, confirmed=True)
    server.receive(control(flush))
    octets = server.data_to_send()
    for kind in (SessionCompleted, SessionConfirmed):
        found = [made.commands.ranges() for made in controls_of(octets) if isinstance(made, kind)]
        assert found == [[(1, 1)]]
    session.complete(2)
    server.announce()
    assert told(server) == [[(1, 2)]]
    server.receive(control(SessionKnownCompleted(commands=ids((1, 2)))))
    server.receive(control(flush))
    assert told(server) == [[]]


@pytest.mark.rule("0-10/s048")
def test_every_completed_is_answered_by_the_end_of_the_turn() -> None:
    pair = Pair().opened()
    session = pair.attached()
    for _ in range(9):
        session.send_command(DECLARE)
    pair.client.data_to_send()
    for ranges, answer in (
        ([(0, 1)], [(0, 1)]),
        ([(2, 2), (4, 5)], [(2, 2), (4, 5)]),
        ([(3, 3)], [(3, 3)]),
    ):
        pair.client.receive(control(SessionCompleted(commands=ids(*ranges))))
        assert told(pair.client, SessionKnownCompleted) == [answer]
    merged = control(SessionCompleted(commands=ids((6, 6)))) + control(
        SessionCompleted(commands=ids((8, 8)))
    )
    pair.client.receive(merged)
    assert told(pair.client, SessionKnownCompleted) == [[(6, 6), (8, 8)]]


@pytest.mark.rule("0-10/s049")
def test_a_timely_reply_is_not_delayed_beyond_the_read() -> None:
    pair = Pair().opened()
    pair.attached().send_command(DECLARE)
    pair.client.data_to_send()
    pair.client.receive(control(SessionCompleted(commands=ids((0, 0)), timely_reply=True)))
    assert told(pair.client, SessionKnownCompleted) == [[(0, 0)]]


def test_a_timely_reply_is_asked_for_when_too_much_is_not_known() -> None:
    server = raw()
    server.receive(command(DECLARE) * 5000)
    (made,) = [m for m in controls_of(server.data_to_send()) if isinstance(m, SessionCompleted)]
    assert made.timely_reply


@pytest.mark.rule("0-10/s050")
def test_what_is_completed_is_confirmed_as_well() -> None:
    pair = Pair().opened()
    session = pair.attached()
    session.set_timeout(60)
    session.send_command(DECLARE)
    assert len(session.sent.kept) == 1
    pair.pump()
    assert session.sent.kept == {}  # It is not sent again.
    assert session.sent.completed.low == 1
    server = raw()
    server.receive(command(DECLARE))
    server.data_to_send()
    server.receive(control(SessionFlush(confirmed=True)))
    assert told(server, SessionConfirmed) == [[(0, 0)]]


@pytest.mark.rule("0-10/s045", "0-10/s046")
def test_confirmed_names_whole_commands_and_no_fragments() -> None:
    server = raw()
    server.receive(command(DECLARE) + frame(11, 1, encode_command(MessageTransfer())))
    server.data_to_send()
    server.receive(control(SessionFlush(confirmed=True)))
    (made,) = controls_of(server.data_to_send())
    assert made == SessionConfirmed(commands=ids((0, 0)), fragments=None)


@pytest.mark.rule("0-10/s044")
def test_nothing_is_confirmed_before_its_owner_says_that_it_is_complete() -> None:
    pair = slow()
    pair.server.receive(transfer(b"durable"))
    pair.server.receive(control(SessionFlush(confirmed=True, completed=True)))
    assert told(pair.server, SessionConfirmed) == [[]]
    pair.at_server().complete(0)
    pair.server.receive(control(SessionFlush(confirmed=True)))
    assert [(0, 0)] in told(pair.server, SessionConfirmed)


def test_confirmed_commands_are_not_sent_again() -> None:
    pair = Pair().opened()
    session = pair.attached()
    session.set_timeout(60)
    for _ in range(3):
        session.send_command(DECLARE)
    pair.client.receive(control(SessionConfirmed(commands=ids((0, 1)))))
    assert list(session.sent.kept) == [2]
    assert session.sent.completed.low == 0


def test_sync_waits_for_all_before_it() -> None:
    pair = slow()
    server = pair.server
    server.receive(command(DECLARE) * 2 + command(ExecutionSync(), sync=True) + command(DECLARE))
    session = pair.at_server()
    session.complete(3)
    session.complete(1)
    server.announce()
    assert told(server) == [[(1, 1), (3, 3)]]
    session.complete(0)
    server.announce()
    assert told(server) == [[(0, 3)]]


def test_results_and_exceptions_reach_who_asked() -> None:
    pair = slow()
    session = next(iter(pair.client.attached.values()))
    number = session.send_command(DECLARE)
    pair.pump()
    there = pair.at_server()
    there.send_result(number, XaResult(status=3))
    assert ResultReceived(b"one", number, XaResult(status=3)) in pair.pump()[1]
    there.send_command(ExecutionResult(command_id=number))
    assert ResultReceived(b"one", number, None) in pair.pump()[1]


@pytest.mark.rule("0-10/s056")
@pytest.mark.parametrize("code", list(ExecutionCode))
def test_an_exception_says_what_failed_and_ends_the_session(code: ExecutionCode) -> None:
    class Failing(Connection):
        def on_command(self, session: Any, made: Any, header: bytes, parts: Any) -> None:
            raise ExecutionError(code, "the queue 'q' is not there", 4)

    pair = Pair()
    pair.server = Failing(Role.SERVER, sessions=pair.sessions)
    pair.opened()
    session = pair.attached()
    session.send_command(ExecutionSync())
    session.send_command(DECLARE)
    session.send_command(DECLARE)
    at_server, at_client = pair.pump()
    failed = [event for event in at_client if isinstance(event, SessionFailed)]
    assert [event.error for event in failed] == [
        ExecutionException(
            error_code=code,
            command_id=1,
            class_code=8,
            command_code=1,
            field_index=4,
            description="the queue 'q' is not there",
        )
    ]
    assert Completed(b"one", 0, 0) in at_client
    assert at_client[-1] == Detached(b"one", 1, 0)
    assert len([event for event in at_server if isinstance(event, SessionFailed)]) == 1
    assert session.ended
    assert pair.sessions.named == {}
    assert pair.client.state is State.OPEN
    pair.attached(b"another")


def test_a_failed_session_is_not_kept() -> None:
    pair = Pair().opened()
    session = pair.attached()
    session.sent.request_timeout(60)
    pair.pump()
    pair.server.receive(command(MessageAccept(transfers=ids((0, 0))))[:-9] + b"\x00\x09" + bytes(7))
    pair.pump()
    assert pair.sessions.named == {}


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        pytest.param(frame(15, 1, b"\x08\x63\x01\x00"), 540, id="unknown command"),
        pytest.param(frame(15, 1, b"\x08"), 503, id="no command"),
        pytest.param(frame(15, 1, b"\x03\x02\x01\x00\x00\x00"), 503, id="result of no command"),
        pytest.param(frame(15, 1, b"\x08\x01\x01\x00"), 503, id="no packing flags"),
        pytest.param(frame(15, 1, b"\x08\x01\x02\x00\x00\x00"), 503, id="session header too long"),
        pytest.param(frame(15, 1, b"\x08\x01\x01\x02\x00\x00"), 503, id="unknown session flag"),
        pytest.param(
            frame(15, 1, b"\x08\x01\x01\x00\x00\x80"), 503, id="flags for fields that do not exist"
        ),
        pytest.param(
            frame(11, 1, b"\x08\x01\x01\x00\x00\x00"), 503, id="header on one that takes none"
        ),
        pytest.param(
            frame(15, 1, b"\x04\x02\x01\x00\x01\x00\x00\x07" + bytes(7)), 503, id="no pairs"
        ),
        pytest.param(
            frame(
                15,
                1,
                b"\x04\x02\x01\x00\x01\x00\x00\x10"
                + b"".join(n.to_bytes(4, "big") for n in (5, 6, 6, 9)),
            ),
            503,
            id="ranges that overlap",
        ),
        pytest.param(
            frame(
                15,
                1,
                b"\x04\x02\x01\x00\x01\x00\x00\x08"
                + b"".join(n.to_bytes(4, "big") for n in (9, 5)),
            ),
            503,
            id="range backwards",
        ),
    ],
)
def test_commands_that_are_malformed_end_the_session(octets: bytes, code: int) -> None:
    server = raw()
    events = server.receive(command(DECLARE) + octets + transfer(b"ignored"))
    assert [type(event) for event in events] == [CommandReceived, SessionFailed]
    made = server.data_to_send()
    (exception,) = commands_of(made)
    assert isinstance(exception, ExecutionException)
    assert (exception.error_code, exception.command_id) == (code, 1)
    assert server.state is State.OPEN
    assert [type(made) for made in controls_of(made)] == [SessionCompleted, SessionDetach]
    server.receive(control(SessionDetached(name=b"one", code=DetachCode.NORMAL)))
    assert server.attached == {}


@pytest.mark.parametrize(
    "made",
    [
        SessionCompleted(commands=ids((0, 0))),
        SessionCompleted(commands=ids((0x7FFFFFF0, 0x7FFFFFFF))),
        SessionConfirmed(commands=ids((5, 5))),
        SessionKnownCompleted(commands=ids((1, 1))),
        SessionKnownCompleted(commands=ids((0, 0x7FFFFFFE))),
        SessionExpected(commands=ids((9, 9))),
    ],
)
def test_sets_of_commands_that_do_not_exist_detach_the_session(made: Control) -> None:
    server = raw()
    server.receive(command(DECLARE))
    server.data_to_send()
    assert server.receive(control(made)) == [Detached(b"one", 1, DetachCode.UNKNOWN_IDS)]
    assert SessionDetached(name=b"one", code=DetachCode.UNKNOWN_IDS) in controls_of(
        server.data_to_send()
    )


def test_sets_out_of_order_end_the_connection() -> None:
    server = raw()
    payload = encode_control(SessionCompleted(commands=ids((0, 0))))[:4]
    events = server.receive(frame(15, 0, payload + b"\x00\x08" + b"\0\0\0\x05\0\0\0\x01"))
    assert [type(event) for event in events] == [Failed]


# --- Expected, gap ------------------------------------------------------------------------------


@pytest.mark.rule("0-10/s040", "0-10/s041", "0-10/s042", "0-10/s043")
def test_expected_is_the_next_command_or_nothing_for_a_new_session() -> None:
    server = Pair().opened().server
    server.receive(control(SessionAttach(name=b"one")))
    server.data_to_send()
    flush = control(SessionFlush(expected=True))
    server.receive(flush)
    assert controls_of(server.data_to_send()) == [SessionExpected(commands=ids())]
    server.receive(POINT)
    server.receive(transfer(b"x") + command(DECLARE))
    server.data_to_send()
    server.receive(flush)
    assert controls_of(server.data_to_send()) == [SessionExpected(commands=ids((2, 2)))]
    # Part of a command does not make a fragment: all of it may come again.
    server.receive(frame(11, 1, encode_command(MessageTransfer(destination="x"))))
    server.receive(flush)
    assert controls_of(server.data_to_send()) == [
        SessionExpected(commands=ids((2, 2)), fragments=None)
    ]


@pytest.mark.rule("0-10/s053")
def test_a_gap_counts_as_completed_and_confirmed() -> None:
    server = raw()
    server.receive(transfer(b"x"))
    server.data_to_send()
    server.receive(control(SessionGap(commands=ids((1, 5)))))
    server.receive(control(SessionFlush(completed=True, confirmed=True, expected=True)))
    octets = server.data_to_send()
    for kind in (SessionCompleted, SessionConfirmed):
        found = [made.commands.ranges() for made in controls_of(octets) if isinstance(made, kind)]
        assert found[-1] == [(0, 5)]
    assert SessionExpected(commands=ids((6, 6))) in controls_of(octets)
    (event,) = server.receive(transfer(b"y"))
    assert event.command_id == 6  # type: ignore[attr-defined]


@pytest.mark.rule("0-10/s054")
def test_a_gap_over_the_command_that_is_coming_aborts_it() -> None:
    server = raw()
    server.receive(frame(11, 1, encode_command(MessageTransfer(destination="x"))))
    server.receive(frame(3, 2, ROUTED))
    (event,) = server.receive(control(SessionGap(commands=ids((0, 0)))) + transfer(b"y"))
    assert isinstance(event, TransferReceived)
    assert (event.command_id, event.body) == (1, b"y")


@pytest.mark.rule("0-10/s055")
def test_a_gap_over_complete_commands_changes_nothing() -> None:
    server = raw()
    server.receive(transfer(b"x") * 3)
    server.data_to_send()
    server.receive(control(SessionGap(commands=ids((0, 2)))))
    server.receive(control(SessionFlush(completed=True, expected=True)))
    made = controls_of(server.data_to_send())
    assert SessionExpected(commands=ids((3, 3))) in made
    assert SessionCompleted(commands=ids((0, 2))) in made
    (event,) = server.receive(transfer(b"y"))
    assert event.command_id == 3  # type: ignore[attr-defined]


def test_a_gap_over_running_commands_completes_them_for_their_sender() -> None:
    pair = slow()
    pair.server.receive(command(DECLARE) * 4)
    pair.server.receive(control(SessionGap(commands=ids((1, 2)))))
    assert told(pair.server) == [[(1, 2)]]
    session = pair.at_server()
    session.complete(1)  # It was running all the same.
    session.complete(0)
    pair.server.announce()
    assert told(pair.server) == [[(0, 2)]]


def test_a_gap_ahead_is_passed_over_when_its_turn_comes() -> None:
    server = raw()
    server.receive(control(SessionGap(commands=ids((1, 2), (4, 4), (6, 8)))))
    events = server.receive(transfer(b"x") * 4)
    assert [event.command_id for event in events] == [0, 3, 5, 9]  # type: ignore[attr-defined]
    assert server.attached[1].takes_fast_path


def test_gaps_before_any_command_and_too_many_of_them() -> None:
    server = Pair().opened().server
    server.receive(control(SessionAttach(name=b"one")))
    events = server.receive(control(SessionGap(commands=ids((0, 5)))))
    assert events == [Detached(b"one", 1, DetachCode.UNKNOWN_IDS)]

    server = raw()
    events = []
    for start in range(0, 2 * GAPS_AHEAD_MAX + 10, 8):
        gaps = ids(*[(n + 1, n + 1) for n in range(start, start + 8, 2)])
        events += server.receive(control(SessionGap(commands=gaps)))
    assert [type(event) for event in events] == [SessionFailed]


# --- Replay -------------------------------------------------------------------------------------


def kept_pair() -> tuple[Pair, Session]:
    """A session with a timeout, two commands complete, then two that the server never saw."""
    pair = Pair().opened()
    session = pair.attached()
    session.sent.request_timeout(60)
    pair.pump()
    session.send_command(DECLARE)
    session.send_command(MessageTransfer(destination="x"), header=ROUTED, body=b"two")
    pair.pump()
    session.send_command(MessageTransfer(destination="x"), header=ROUTED, body=b"three")
    session.send_command(DECLARE, sync=True)
    pair.client.data_to_send()  # Lost.
    pair.lose()
    return pair, session


def resume(pair: Pair, session: Session) -> tuple[Pair, list[Event], list[Event]]:
    """Another connection to the same sessions, with this one attached to it."""
    again = Pair(pair.sessions).opened()
    again.client.attach(session, 3)
    return again, *again.pump()


def test_what_was_lost_is_sent_again() -> None:
    pair, session = kept_pair()
    _, at_server, at_client = resume(pair, session)
    seen = [(type(event), event.command_id) for event in at_server[1:]]  # type: ignore[attr-defined]
    assert seen == [(TransferReceived, 2), (CommandReceived, 3)]
    assert Resumed(b"one", True) in at_client
    assert Completed(b"one", 2, 3) in at_client
    assert session.sent.kept == {}


def test_commands_while_detached_are_kept_and_sent() -> None:
    pair, session = kept_pair()
    session.send_command(QueueDeclare(queue="later"))
    _, at_server, _ = resume(pair, session)
    assert [event.command_id for event in at_server[1:]] == [2, 3, 4]  # type: ignore[attr-defined]


def test_nothing_follows_a_detach() -> None:
    """An answer would find the channel without its session, or with the next one."""
    pair, session = kept_pair()
    again = Pair(pair.sessions).opened()
    again.client.attach(session, 3)
    session.detach()
    again.pump()
    assert controls_of(again.sent_by_client)[-1] == SessionDetach(name=b"one")
    again.client.attach(session, 3)
    at_server, at_client = again.pump()
    assert [type(event) for event in at_server[1:]] == [TransferReceived, CommandReceived]
    assert Completed(b"one", 2, 3) in at_client


def test_a_peer_that_forgot_the_session_is_told_apart() -> None:
    pair, session = kept_pair()
    pair.sessions.end_all()
    again, at_server, at_client = resume(pair, session)
    assert Resumed(b"one", False) in at_client
    assert [event for event in at_server if isinstance(event, CommandReceived)] == []
    number = session.send_command(DECLARE)
    assert [event.command_id for event in again.pump()[0]] == [number]  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_told", [False, True])
def test_the_commands_of_a_peer_that_forgot_the_session_begin_anew(is_told: bool) -> None:
    """Their ids were those of other commands before, of which nothing may be told any more."""
    pair = Pair().opened()
    session = pair.attached()
    session.sent.request_timeout(60)
    pair.pump()
    for _ in range(3):
        pair.at_server().send_command(MessageAccept(transfers=ids((0, 0))))
    if is_told:
        pair.pump()
    else:
        pair.client.receive(pair.server.data_to_send())
    pair.lose()
    pair.sessions.end_all()
    again, _, at_client = resume(pair, session)
    assert Resumed(b"one", False) in at_client
    for number in range(2):
        again.at_server(3).send_command(MessageAccept(transfers=ids((number, number))))
        at_server, at_client = again.pump()
        assert [event.command_id for event in at_client if isinstance(event, CommandReceived)] == [
            number
        ]
        assert at_server == [Completed(b"one", number, number)]


def test_duplicates_of_a_replay_are_executed_once() -> None:
    server = raw()
    server.receive(transfer(b"one") + transfer(b"two"))
    server.data_to_send()
    events = server.receive(POINT + transfer(b"one", piece=3) + transfer(b"two") + transfer(b"3"))
    assert [event.body for event in events if isinstance(event, TransferReceived)] == [b"3"]
    assert told(server) == [[(0, 2)]]


def test_what_was_not_kept_becomes_a_gap() -> None:
    class Client(Connection):
        def on_commands_lost(self, session: Any, lo: int, hi: int) -> None:
            lost.append((lo, hi))

    lost: list[tuple[int, int]] = []
    pair, session = kept_pair()
    del session.sent.kept[2]
    again = Pair(pair.sessions)
    again.client = Client(Role.CLIENT)
    again.opened()
    again.client.attach(session, 1)
    at_server, _ = again.pump()
    assert [event.command_id for event in at_server[1:]] == [3]  # type: ignore[attr-defined]
    assert lost == [(2, 2)]
    assert session.sent.completed.low == 4


def test_fragments_that_a_peer_expects_are_sent_with_their_offset() -> None:
    pair, session = kept_pair()
    client = Pair(pair.sessions).opened().client
    client.attach(session, 1)
    client.data_to_send()
    client.receive(control(SessionAttached(name=b"one")))
    payload = encode_command(MessageTransfer(destination="x"))
    start = len(payload) + len(ROUTED)
    expected = SessionExpected(
        commands=ids((3, 3)),
        fragments=[
            CommandFragment(command_id=2, byte_ranges=ByteRanges([(start + 1, (1 << 64) - 1)]))
        ],
    )
    client.receive(control(expected))
    octets = client.data_to_send()
    assert controls_of(octets) == [
        SessionCommandPoint(command_id=2, command_offset=start + 1),
        SessionCommandPoint(command_id=3, command_offset=0),
    ]
    frames = [(flags, kind, payload) for flags, kind, _, _, payload in frames_of(octets) if kind]
    assert frames[0] == (5, 3, b"hree")
    assert frames[1][:2] == (15, 1)


def test_the_replay_buffer_is_bounded() -> None:
    session = Session(b"x", lossless=True)
    session.set_timeout(60)
    for _ in range(REPLAY_COMMANDS_MAX):
        session.sent.send(b"\x03\x01\x01\x00\x00\x00", b"", ())
    with pytest.raises(ReplayFull):
        session.sent.send(b"\x03\x01\x01\x00\x00\x00", b"", ())
    assert session.sent.next_id == REPLAY_COMMANDS_MAX

    session = Session(b"x")
    session.set_timeout(60)
    for _ in range(40):
        session.sent.send(bytes(1 << 20), b"", ())
    assert session.sent.kept_bytes <= 16 << 20
    assert session.sent.next_id == 40


def test_a_server_that_resumes_sends_its_own_again() -> None:
    pair = Pair().opened()
    session = pair.attached()
    session.sent.request_timeout(60)
    pair.pump()
    there = pair.at_server()
    there.send_command(MessageTransfer(destination="c"), body=b"first")
    pair.pump()
    there.send_command(MessageTransfer(destination="c"), body=b"second")
    pair.server.data_to_send()  # Lost.
    pair.lose()
    _, _, at_client = resume(pair, session)
    assert [event.body for event in at_client if isinstance(event, TransferReceived)] == [b"second"]
    assert there.sent.kept == {}


def test_errors_of_detached_sessions_do_not_escape() -> None:
    session = Session(b"x")
    session.fail(ExecutionError(ExecutionCode.INTERNAL_ERROR, "late"))
    assert session.ended
    with pytest.raises(DetachError):
        session.received.command_point(0, 5)
