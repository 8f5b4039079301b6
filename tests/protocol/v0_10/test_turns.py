# SPDX-License-Identifier: Apache-2.0
"""A machine whose turn is over stops between two commands, and goes on there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.protocol.codec_0_10 import ExchangeBind, MessageAccept, QueueDeclare
from headrace.protocol.v0_10.events import CommandReceived, TransferReceived
from headrace.wire.ranges import SequenceSet
from support.clients.machine_pair_0_10 import command, raw, transfer

if TYPE_CHECKING:
    from collections.abc import Callable

TURN_NS = 5_000_000
LOOKS = 5
COMMANDS = 8000
PER_LOOK = 512  # Plain transfers between looks at the clock.


class Clock:
    """A clock that tells more each time that it is looked at."""

    def __init__(self) -> None:
        self.now_ns = 1
        self.looks = 0

    def __call__(self) -> int:
        self.looks += 1
        self.now_ns += TURN_NS // LOOKS
        return self.now_ns


OCTETS: dict[str, Callable[[int], bytes]] = {
    "declare": lambda n: command(QueueDeclare(queue=f"q{n}")),
    "bind": lambda n: command(ExchangeBind(queue="q", exchange="x", binding_key=f"k{n}")),
    "accept": lambda n: command(MessageAccept(transfers=SequenceSet([(n, n)]))),
    "transfer": lambda n: transfer(b"body"),
    "transfer in pieces": lambda n: transfer(b"body", piece=30),
}


@pytest.mark.parametrize("what", OCTETS)
def test_a_turn_ends_between_two_commands(what: str) -> None:
    server = raw()
    server.stopwatch = Clock()
    octets = b"".join([OCTETS[what](n) for n in range(COMMANDS)])
    seen: list[int] = []
    turns = 0
    while octets or server.rest:
        before = len(seen)
        for event in server.receive(octets):
            assert isinstance(event, CommandReceived | TransferReceived), event
            seen.append(event.command_id)
        assert len(seen) - before <= (LOOKS + 2) * PER_LOOK
        assert server.is_turn_spent == bool(server.rest)
        octets = b""
        server.pool.step += 1
        turns += 1
    assert seen == list(range(COMMANDS))
    assert turns >= COMMANDS // ((LOOKS + 2) * PER_LOOK)
    if what == "declare":
        assert turns >= COMMANDS // ((LOOKS + 2) * 2)


def test_frames_of_one_step_are_one_turn() -> None:
    server = raw()
    server.stopwatch = clock = Clock()
    for n in range(100):
        server.receive(OCTETS["declare"](n))
    assert server.is_turn_spent
    assert clock.looks < 100
    server.pool.step += 1
    server.receive(b"")
    assert server.rest


def test_without_a_clock_a_turn_has_no_end() -> None:
    server = raw()
    events = server.receive(b"".join([OCTETS["declare"](n) for n in range(COMMANDS)]))
    assert len(events) == COMMANDS
    assert not server.is_turn_spent
