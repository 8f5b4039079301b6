# SPDX-License-Identifier: Apache-2.0
"""A session of AMQP 0-10 against a model of two lists, over connections that are lost anywhere.

The model knows what each side sent, under which id, and what was given up by a gap. Whatever is
lost on the way, each command arrives once, in order, with the octets it was sent with, unless it
was given up; completion is told of exactly what is complete; and in the end nothing is left over.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.protocol.codec_0_10 import ExecutionSync, MessageTransfer
from headrace.protocol.v0_10.connection.connection import Connection
from headrace.protocol.v0_10.session.session import Session
from headrace.protocol.v0_x.handshake import Role, State
from support.clients.machine_pair_0_10 import ROUTED, Pair, registry

MASK = 0xFFFFFFFF


class Side:
    """The model's state of one direction."""

    def __init__(self, start: int) -> None:
        self.next = start
        self.sent: dict[int, bytes] = {}
        self.given_up: set[int] = set()
        self.received: dict[int, bytes] = {}
        self.running: set[int] = set()
        self.completed: set[int] = set()


class Recording(Connection):
    """A machine that hands what it is told to the model, and completes nothing by itself."""

    side: Side  # What comes in here.
    other: Side  # What goes out.

    def on_transfer_large(
        self,
        session: Session,
        start: bytes,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        parts: tuple[bytes, ...],
        body_size: int,
    ) -> None:
        number = session.command_id
        assert number not in self.side.received
        assert start[header:header_end] == ROUTED
        self.side.received[number] = b"".join(parts)
        self.side.running.add(number)

    def on_completed(self, session: Session, lo: int, hi: int) -> None:
        number = lo
        while True:
            assert number not in self.other.completed
            self.other.completed.add(number)
            if number == hi:
                return
            number = (number + 1) & MASK

    def on_commands_lost(self, session: Session, lo: int, hi: int) -> None:
        number = lo
        while number != (hi + 1) & MASK:  # A gap that was lost as well.
            assert number in self.other.given_up
            number = (number + 1) & MASK


class Joined(Pair):
    """Two recording machines."""

    def __init__(self, sessions: Any, up: Side, down: Side, limit: int) -> None:
        super().__init__(sessions)
        self.client = Recording(Role.CLIENT)
        self.server = Recording(Role.SERVER, sessions=sessions)
        self.client.side = self.server.other = down
        self.client.other = self.server.side = up
        self.opened(chosen={"channel_max": 9, "max_frame_size": limit})


class SessionMachine(RuleBasedStateMachine):
    """Rules that send, move octets, complete, give up, lose and resume."""

    @initialize(
        start=st.sampled_from([0, 5, 0x7FFFFFFD, 0xFFFFFFFA]), limit=st.integers(4096, 6000)
    )
    def begin(self, start: int, limit: int) -> None:
        self.limit = limit
        self.up = Side(start)
        self.down = Side(0)
        self.sessions = registry()
        self.session = Session(b"model", lossless=True)
        self.session.sent.next_id = start
        self.session.sent.completed.low = start
        self.pair: Joined | None = None
        self.resume()
        assert self.pair is not None
        self.session.sent.request_timeout(600)
        self.pair.pump()
        self.there: Session = self.pair.at_server()
        self.to_server = b""
        self.to_client = b""

    def resume(self) -> None:
        self.pair = Joined(self.sessions, self.up, self.down, self.limit)
        self.pair.client.attach(self.session, 1)
        self.to_server = b""
        self.to_client = b""

    def send(self, session: Session, side: Side, size: int, sync: bool) -> None:
        body = b"%d:" % side.next + bytes(size)
        command = MessageTransfer(destination="x")
        assert session.send_command(command, sync, header=ROUTED, body=body) == side.next
        side.sent[side.next] = body
        side.next = (side.next + 1) & MASK

    @rule(size=st.integers(0, 9000), sync=st.booleans())
    def client_sends(self, size: int, sync: bool) -> None:
        self.send(self.session, self.up, size, sync)

    @rule(size=st.integers(0, 9000), sync=st.booleans())
    def server_sends(self, size: int, sync: bool) -> None:
        self.send(self.there, self.down, size, sync)

    @rule()
    def client_syncs(self) -> None:
        assert self.session.send_command(ExecutionSync(), True) == self.up.next
        self.up.next = (self.up.next + 1) & MASK

    @precondition(lambda self: self.pair is not None)
    @rule(up=st.integers(0, 9000), down=st.integers(0, 9000))
    def octets_move(self, up: int, down: int) -> None:
        assert self.pair is not None
        self.to_server += self.pair.client.data_to_send()
        self.to_client += self.pair.server.data_to_send()
        self.pair.server.receive(self.to_server[:up])
        self.pair.client.receive(self.to_client[:down])
        self.to_server = self.to_server[up:]
        self.to_client = self.to_client[down:]

    @rule(pick=st.integers(0, 50))
    def server_completes(self, pick: int) -> None:
        self.completes(self.there, self.up, pick)

    @rule(pick=st.integers(0, 50))
    def client_completes(self, pick: int) -> None:
        self.completes(self.session, self.down, pick)

    def completes(self, session: Session, side: Side, pick: int) -> None:
        if side.running:
            number = sorted(side.running)[pick % len(side.running)]
            side.running.discard(number)
            session.complete(number)
            if session.connection is not None:
                session.connection.announce()

    @precondition(lambda self: self.pair is not None)
    @rule(pick=st.integers(0, 50))
    def client_gives_up(self, pick: int) -> None:
        if self.session.sent.is_resuming:
            return
        waiting = [number for number in self.up.sent if number not in self.up.completed]
        if waiting:
            number = waiting[pick % len(waiting)]
            self.session.sent.send_gap(number, number)
            self.up.given_up.add(number)

    @precondition(lambda self: self.pair is not None)
    @rule(expected=st.booleans(), confirmed=st.booleans(), completed=st.booleans())
    def client_asks(self, expected: bool, confirmed: bool, completed: bool) -> None:
        self.session.sent.flush(expected, confirmed, completed)

    @precondition(lambda self: self.pair is not None)
    @rule()
    def lost(self) -> None:
        assert self.pair is not None
        self.pair.lose()
        self.pair = None

    @precondition(lambda self: self.pair is None)
    @rule()
    def resumed(self) -> None:
        self.resume()

    @invariant()
    def everything_is_as_it_was_sent(self) -> None:
        for side in (self.up, self.down):
            for number, body in side.received.items():
                assert side.sent[number] == body
        if self.pair is not None:
            assert self.pair.client.state is State.OPEN
            assert self.pair.server.state is State.OPEN

    @invariant()
    def nothing_is_completed_that_was_not(self) -> None:
        for side in (self.up, self.down):
            assert not side.completed & (side.running - side.given_up)

    @invariant()
    def both_agree_on_what_is_done(self) -> None:
        for sender, receiver in ((self.session, self.there), (self.there, self.session)):
            if receiver.received.has_state:
                assert sender.sent.completed.low <= sender.sent.completed.unwrap(
                    receiver.next_in & MASK
                )

    def teardown(self) -> None:
        if not hasattr(self, "up"):
            return
        if self.pair is not None:
            self.pair.server.receive(self.to_server)
            self.pair.client.receive(self.to_client)
            self.pair.pump()
        for _ in range(3):
            if self.pair is None:
                self.resume()
            assert self.pair is not None
            self.pair.pump()
            while self.up.running:
                self.server_completes(0)
            while self.down.running:
                self.client_completes(0)
            self.pair.pump()
            for session, side in ((self.session, self.up), (self.there, self.down)):
                assert session.sent.next_id == side.next
                assert session.sent.completed.low & MASK == side.next, (
                    session.sent.completed.low,
                    side.next,
                )
                assert session.sent.kept == {}
                assert set(side.sent) - side.given_up <= set(side.received)
                order = [body for _, body in side.received.items()]
                assert order == [
                    side.sent[number] for number in side.sent if number in side.received
                ]
            self.pair.lose()
            self.pair = None


SessionMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestSessions = SessionMachine.TestCase
