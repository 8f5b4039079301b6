# SPDX-License-Identifier: Apache-2.0
"""AMQP 0-10 over real sockets: what hostile clients send, and sessions that survive a lost one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.protocol.codec_0_10 import (
    ConnectionClose,
    ConnectionStart,
    Control,
    ExecutionSync,
    MessageAccept,
    MessageTransfer,
    QueueDeclare,
    SessionAttach,
    SessionCommandPoint,
    SessionCompleted,
    SessionGap,
    encode_command,
    encode_control,
)
from headrace.testing.raw_session import RawSession
from headrace.wire.ranges import SequenceSet
from support.clients.command_client_0_10 import Talk, talking

if TYPE_CHECKING:
    from support.brokers.broker_process import Remote, Served

TRANSFER = encode_command(MessageTransfer(destination="amq.fanout"))
SYNC = encode_command(ExecutionSync())


def frame(flags: int, kind: int, payload: bytes, channel: int = 0, track: int = -1) -> bytes:
    head = bytes((flags, kind)) + (len(payload) + 12).to_bytes(2, "big")
    head += bytes((0, (1 if kind else 0) if track < 0 else track))
    return head + channel.to_bytes(2, "big") + bytes(4) + payload


def control(made: Control, channel: int = 0) -> bytes:
    return frame(15, 0, encode_control(made), channel)


def still_serves(served: Served | Remote) -> None:
    with talking(served.port) as session:
        session.call(ExecutionSync())


@pytest.mark.parametrize(
    "octets",
    [
        pytest.param(frame(15, 1, SYNC, track=2), id="unknown track"),
        pytest.param(frame(15, 1, SYNC, track=0), id="command on the track of controls"),
        pytest.param(frame(0x2F, 1, SYNC), id="unknown flags"),
        pytest.param(frame(15, 7, SYNC), id="unknown segment"),
        pytest.param(b"\x0f\x01\x00\x03\x00\x01" + bytes(6), id="size below the head"),
        pytest.param(frame(5, 3, b"x"), id="the end of a command"),
        pytest.param(
            frame(11, 1, TRANSFER) + frame(6, 3, b"") + frame(4, 3, b"") * 80,
            id="an assembly that never ends",
        ),
        pytest.param(
            frame(14, 0, b"\x02") + frame(12, 0, b"") * 80, id="a control that never ends"
        ),
        pytest.param(frame(15, 0, b"\x02\x0a\x01\x00\x00\x08" + bytes(7)), id="half a range"),
        pytest.param(frame(15, 0, b"\x02\x0d\x01\x00\x00\x10" + bytes(16)), id="a range twice"),
        pytest.param(frame(15, 0, b"\x02\x03\xff\xff"), id="flags for fields that do not exist"),
        pytest.param(frame(15, 0, b"\x09\x01\x00\x00"), id="unknown control"),
    ],
)
def test_framing_errors_close_the_connection(octets: bytes, served: Served | Remote) -> None:
    talk = Talk(served.port)
    session = talk.attach("bad")
    session.wait(session.send(ExecutionSync(), sync=True))
    talk.socket.sendall(octets)
    made = talk.control(ConnectionClose)
    assert isinstance(made, ConnectionClose)
    assert isinstance(made, ConnectionClose)
    assert made.reply_code == 501
    talk.drop()
    still_serves(served)


@pytest.mark.parametrize(
    "octets",
    [
        pytest.param(control(SessionCommandPoint(command_id=77, command_offset=0)), id="ahead"),
        pytest.param(control(SessionCommandPoint(command_id=1, command_offset=9)), id="offset"),
        pytest.param(
            control(SessionCompleted(commands=SequenceSet([(0, 0x7FFFFFFE)]))), id="absurd set"
        ),
    ],
)
def test_numbers_out_of_order_detach(octets: bytes, served: Served | Remote) -> None:
    talk = Talk(served.port)
    session = talk.attach("numbers")
    session.wait(session.send(ExecutionSync(), sync=True))
    talk.socket.sendall(octets)
    while session.detached is None:
        talk.pull()
    assert session.detached == 4
    talk.attach("next", 3).call(ExecutionSync())
    talk.close()


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        pytest.param(frame(11, 1, SYNC), 503, id="header on a command that takes none"),
        pytest.param(frame(15, 1, b"\x08\x63\x01\x00"), 540, id="unknown command"),
        pytest.param(frame(15, 1, b"\x08\x01\x01\x00\xff\xff"), 503, id="flags for no field"),
    ],
)
def test_commands_that_cannot_be_read_end_the_session(
    octets: bytes, code: int, served: Served | Remote
) -> None:
    talk = Talk(served.port)
    session = talk.attach("commands")
    talk.socket.sendall(octets)
    assert session.wait_for_exception().error_code == code
    talk.attach("next", 3).call(ExecutionSync())
    talk.close()


def test_what_comes_before_attach_is_discarded(served: Served | Remote) -> None:
    talk = Talk(served.port)
    gap = SessionGap(commands=SequenceSet([(0, 5)]))
    accept = encode_command(MessageAccept(transfers=SequenceSet([(0, 5)])))
    talk.socket.sendall(control(gap, 5) + frame(15, 1, accept, 5) + frame(15, 1, SYNC, 6))
    talk.attach("s").call(ExecutionSync())
    talk.close()


def test_two_sessions_of_one_name(served: Served | Remote) -> None:
    talk = Talk(served.port)
    first = talk.attach("same")
    first.call(ExecutionSync())
    other = Talk(served.port)
    second = other.attach("same")
    while second.detached is None:
        other.pull()
    assert second.detached == 1
    forced = other.attach("same", 1, force=True)
    forced.call(ExecutionSync())
    while first.detached is None:
        talk.pull()
    assert first.detached == 1
    talk.close()
    other.close()


def test_a_flood_before_the_opening_is_bounded(served: Served | Remote) -> None:
    talk = Talk(served.port, opened=False)
    talk.socket.sendall(control(SessionAttach(name=bytes(4000))) * 10)
    made = talk.control(ConnectionStart, ConnectionClose)
    if isinstance(made, ConnectionStart):
        made = talk.control(ConnectionClose)
    assert isinstance(made, ConnectionClose)
    assert made.reply_code == 501
    talk.drop()
    still_serves(served)


def test_a_session_is_resumed_after_its_socket_broke(served: Served | Remote, name: str) -> None:
    talk = Talk(served.port)
    session = talk.attach(name)
    session.machine.sent.request_timeout(60)
    session.call(QueueDeclare(queue=name, auto_delete=True))
    session.subscribe(name, "d")
    number = session.machine.sent.next_id
    session.machine.send_command(ExecutionSync(), sync=True)  # It never leaves.
    talk.machine.data_to_send()
    talk.vanish()
    again = Talk(served.port)
    resumed = RawSession(again, session.machine, 2, True)
    resumed.wait(number)
    publisher = Talk(served.port)
    publisher.attach(name + "-p").publish(b"kept", name)
    assert resumed.bodies(1) == [b"kept"]
    publisher.close()
    again.close()
