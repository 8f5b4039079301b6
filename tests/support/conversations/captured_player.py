# SPDX-License-Identifier: Apache-2.0
"""Plays the client's side of recorded conversations to our broker.

Each client's octets are sent as they were recorded, cut where its sockets cut them. Before the next
are sent, we wait until our broker has said what the other one had said by then: every control and
command but session.completed and its answers, whose grouping is free. In the end exactly that has
been said, the same commands are complete, and results and messages are the same.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.protocol.codec_0_10 import (
    ConnectionStartOk,
    ExchangeBoundResult,
    ExecutionException,
    ExecutionResult,
    SessionCompleted,
    XaResult,
    decode_command,
    decode_control,
    encode_control,
)
from headrace.testing.raw_socket import RawSocket
from headrace.wire.ranges import SequenceSet
from support.conversations import captured_conversations as recorded
from support.conversations.captured_conversations import (
    BODY,
    COMMAND,
    CONTROL,
    FIRST_FRAME,
    LAST_FRAME,
)
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

FREE = {"session.completed", "session.known-completed", "session.flush", "session.command-point"}


class Side:
    """The frames that one broker sent, put together again."""

    def __init__(self) -> None:
        self.octets = b""
        self.header = b""
        self.parts: dict[tuple[int, int], bytes] = {}
        self.said: Counter[tuple[int, str]] = Counter()
        self.completed: dict[tuple[int, int], SequenceSet] = {}
        self.results: list[tuple[int, str, str]] = []
        self.bodies: list[bytes] = []
        self.era: Counter[int] = Counter()  # Sessions that one channel has had.

    def take(self, data: bytes) -> None:
        """Read on."""
        self.octets += data
        if not self.header and len(self.octets) >= 8:
            self.header, self.octets = self.octets[:8], self.octets[8:]
        while self.header and len(self.octets) >= 12:
            size = int.from_bytes(self.octets[2:4], "big")
            if len(self.octets) < size:
                return
            frame, self.octets = self.octets[:size], self.octets[size:]
            key = (int.from_bytes(frame[6:8], "big"), frame[5])
            if frame[0] & FIRST_FRAME:
                self.parts[key] = b""
            self.parts[key] += frame[12:]
            if frame[0] & LAST_FRAME:
                self.segment(key[0], frame[1], self.parts.pop(key))

    def segment(self, channel: int, kind: int, payload: bytes) -> None:
        """One segment is whole."""
        if kind == BODY:
            self.bodies.append(payload)
        if kind not in (CONTROL, COMMAND):
            return
        made: Any = decode_control(payload) if kind == CONTROL else decode_command(payload)[1]
        if made.NAME == "session.attached":
            self.era[channel] += 1
        if isinstance(made, SessionCompleted) and made.commands is not None:
            known = self.completed.setdefault((channel, self.era[channel]), SequenceSet())
            known.update(made.commands)
        if made.NAME not in FREE:
            self.said[channel, made.NAME] += 1
        if isinstance(made, ExecutionResult):
            value = made.value
            shown = repr(value) if isinstance(value, XaResult) else ""
            if isinstance(value, ExchangeBoundResult):  # The rest says little of what is missing.
                shown = repr((value.exchange_not_found, value.queue_not_found))
            self.results.append((channel, type(value).__name__, shown))
        elif isinstance(made, ExecutionException):
            what = (made.error_code, made.command_id, made.class_code, made.command_code)
            self.results.append((channel, "exception", repr(what)))


def by_name(data: bytes) -> bytes:
    """The client's octets; one that came without a password logs in by name.

    Its messages name the user `anonymous`.
    """
    at = data.find(b"\x01\x02")
    if at != 12 or b"ANONYMOUS" not in data:
        return data
    size = int.from_bytes(data[2:4], "big")
    made = decode_control(data[12:size])
    assert isinstance(made, ConnectionStartOk)
    payload = encode_control(made.replaced(mechanism="PLAIN", response=b"\0anonymous\0anonymous"))
    return data[:2] + (len(payload) + 12).to_bytes(2, "big") + data[4:12] + payload + data[size:]


def verbatim(data: bytes) -> bytes:
    """The client's octets as they were recorded."""
    return data


class Player:
    """One recorded client, connected to our broker."""

    def __init__(self, name: str, port: int, edit: Callable[[bytes], bytes]) -> None:
        self.name = name
        self.edit = edit
        self.steps = recorded.chunks(name)
        self.at = 0
        self.ours = Side()
        self.theirs = Side()
        self.raw = RawSocket("127.0.0.1", port, timeout_s=PATIENCE_S)

    def ready(self) -> bool:
        """Return True if ours has sent all that theirs had sent before the client's next bytes."""
        while self.at < len(self.steps) and self.steps[self.at][0] == "broker":
            self.theirs.take(self.steps[self.at][1])
            self.at += 1
        return not self.theirs.said - self.ours.said and not self.incomplete()

    def incomplete(self) -> list[Any]:
        """Return the commands that theirs has completed and ours has not."""
        ours = self.ours.completed
        return [
            (key, missing)
            for key, commands in self.theirs.completed.items()
            if (missing := commands.difference(ours.get(key, SequenceSet())))
        ]

    def step(self) -> bool:
        """Send the next octets, or read; False when all is done."""
        if self.ready():
            if self.at == len(self.steps):
                return False
            self.raw.send_bytes(self.edit(self.steps[self.at][1]))
            self.at += 1
            return True
        if self.raw.is_readable(0.02):
            assert self.take(), (self.name, self.theirs.said - self.ours.said)
        return True

    def take(self) -> bool:
        """Read what comes next; return False at the end of the stream."""
        going_on = self.raw.receive()
        data, self.raw.rest = self.raw.rest, b""
        self.ours.take(data)
        return going_on

    def finish(self) -> None:
        """Read to the end and compare."""
        while self.take():
            pass
        self.raw.drop()
        assert self.ours.said == self.theirs.said, self.name
        assert self.ours.results == self.theirs.results, self.name
        assert sorted(self.ours.bodies) == sorted(self.theirs.bodies), self.name
        assert self.incomplete() == [], self.name


def play(names: list[str], port: int, edit: Callable[[bytes], bytes] = by_name) -> list[Player]:
    """Play these clients side by side to their ends; `edit` is what is sent of their octets."""
    players = [Player(name, port, edit) for name in names]
    running = list(players)
    deadline = time.monotonic() + PATIENCE_S
    while running:
        for player in list(running):
            if not player.step():
                running.remove(player)
        left = [(p.name, p.at, p.theirs.said - p.ours.said, p.incomplete()) for p in running]
        assert time.monotonic() < deadline, left
    for player in players:
        player.finish()
    return players
