# SPDX-License-Identifier: Apache-2.0
"""Captures of other makers' clients and brokers, replayed to ours.

Each chunk of the client's side is sent once our broker has answered what came before.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from headrace.protocol.codec_0_10 import (
    Command,
    ConnectionClose,
    ExecutionException,
    SessionAttach,
    SessionAttached,
    SessionCompleted,
    SessionDetach,
    SessionDetached,
    decode_command,
    decode_control,
)
from headrace.testing.broker import LocalBroker
from support.conversations.captured_conversations import chunks
from support.timeouts import PATIENCE_S

NAMES = ["large-1", "send-map-1", "tx-send-1"]  # Those that need nothing to be there.


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(anonymous_user="guest", channel_max=32767) as running:
        yield running


def frames(data: bytes, at: int) -> Iterator[tuple[int, int, bytes, int]]:
    """Channel, type and payload of each whole frame, and where it ends."""
    while len(data) - at >= 12:
        end = at + int.from_bytes(data[at + 2 : at + 4], "big")
        if end > len(data):
            return
        yield int.from_bytes(data[at + 6 : at + 8], "big"), data[at + 1], data[at + 12 : end], end
        at = end


class Repeat:
    """A connection that repeats a client's side."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.sent = b""
        self.sent_at = 8
        self.got = b""
        self.got_at = 8
        self.ids: dict[int, int] = {}  # The next command id of ours, by channel.
        self.awaited: dict[int, int] = {}  # Commands that were sent with sync, by channel.
        self.done: dict[int, set[int]] = {}
        self.attaching: set[int] = set()
        self.detaching: set[int] = set()
        self.exceptions: list[ExecutionException] = []
        self.closed: ConnectionClose | None = None
        self.controls: list[str] = []

    def say(self, octets: bytes) -> None:
        """Send a chunk and note what it asks for."""
        self.socket.sendall(octets)
        self.sent += octets
        for channel, kind, payload, end in frames(self.sent, self.sent_at):
            self.sent_at = end
            if kind == 0:
                control = decode_control(payload)
                if isinstance(control, SessionAttach):
                    self.attaching.add(channel)
                    self.ids[channel] = 0
                    self.done[channel] = set()
                    self.awaited.pop(channel, None)
                elif isinstance(control, SessionDetach):
                    self.detaching.add(channel)
            elif kind == 1:
                sync, _ = decode_command(payload)
                if sync:
                    self.awaited[channel] = self.ids[channel]
                self.ids[channel] += 1

    def hear(self, beginnings: list[str]) -> None:
        """Read until everything asked for is answered."""
        while not self.is_answered(beginnings):
            octets = self.socket.recv(65536)
            assert octets, "closed"
            self.got += octets
            for channel, kind, payload, end in frames(self.got, self.got_at):
                self.got_at = end
                self.take(channel, kind, payload)

    def is_answered(self, beginnings: list[str]) -> bool:
        return (
            all(name in self.controls for name in beginnings)
            and not self.attaching
            and not self.detaching
            and all(number in self.done[channel] for channel, number in self.awaited.items())
        )

    def take(self, channel: int, kind: int, payload: bytes) -> None:
        if kind == 1:
            command: Command = decode_command(payload)[1]
            if isinstance(command, ExecutionException):
                self.exceptions.append(command)
        if kind != 0:
            return
        control = decode_control(payload)
        self.controls.append(control.NAME)
        if isinstance(control, SessionAttached):
            self.attaching.discard(channel)
        elif isinstance(control, SessionDetached):
            self.detaching.discard(channel)
            self.awaited.pop(channel, None)
        elif isinstance(control, SessionCompleted) and control.commands is not None:
            for lo, hi in control.commands:
                self.done[channel] |= set(range(lo, hi + 1))
        elif isinstance(control, ConnectionClose):
            self.closed = control


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_client_is_answered(broker: LocalBroker, name: str) -> None:
    repeat = Repeat(broker.port)
    said = [octets for sender, octets in chunks(name) if sender == "client"]
    openings = [["connection.start"], ["connection.tune"], ["connection.open-ok"]]
    opening: list[str] = []
    for number, octets in enumerate(said):
        repeat.say(octets)
        if number < len(openings):
            opening = opening + openings[number]
        if b"\x01\x0b" not in octets[:40]:  # Not behind the close.
            repeat.hear(opening)
    assert repeat.closed is None
    assert not repeat.exceptions
    repeat.socket.close()
