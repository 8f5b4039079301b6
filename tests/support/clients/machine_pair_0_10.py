# SPDX-License-Identifier: Apache-2.0
"""A client's and a server's machine of AMQP 0-10, joined in memory, and frames made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.protocol.codec_0_10 import (
    Command,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Control,
    DeliveryProperties,
    MessageTransfer,
    decode_command,
    decode_control,
    encode_command,
    encode_control,
    encode_headers,
)
from headrace.protocol.v0_10.connection.connection import Connection
from headrace.protocol.v0_10.session.registry import Sessions
from headrace.protocol.v0_10.session.session import Session
from headrace.protocol.v0_x.handshake import Role, State

if TYPE_CHECKING:
    from headrace.protocol.v0_10.events import Event

HEADER = b"AMQP\x01\x01\x00\x0a"
ROUTED = encode_headers([DeliveryProperties(routing_key="k")])


def frame(
    flags: int, kind: int, payload: bytes, channel: int = 1, track: int | None = None
) -> bytes:
    """One frame; by default on the track that its type belongs to."""
    track = (1 if kind else 0) if track is None else track
    head = bytes((flags, kind)) + (len(payload) + 12).to_bytes(2, "big") + bytes((0, track))
    return head + channel.to_bytes(2, "big") + bytes(4) + payload


def control(made: Control, channel: int = 1) -> bytes:
    """A control in one frame."""
    return frame(15, 0, encode_control(made), channel)


def command(made: Command, sync: bool = False, channel: int = 1) -> bytes:
    """A command without segments in one frame."""
    return frame(15, 1, encode_command(made, sync), channel)


def transfer(
    body: bytes, header: bytes = ROUTED, piece: int = 65523, channel: int = 1, sync: bool = False
) -> bytes:
    """A message.transfer in frames of at most ``piece`` octets of payload."""
    segments = [(1, encode_command(MessageTransfer(destination="x"), sync))]
    if header:
        segments.append((2, header))
    if body:
        segments.append((3, body))
    frames = []
    for place, (kind, payload) in enumerate(segments):
        flags = (8 if kind == 1 else 0) | (4 if place == len(segments) - 1 else 0)
        for at in range(0, len(payload), piece):
            edge = (2 if at == 0 else 0) | (1 if at + piece >= len(payload) else 0)
            frames.append(frame(flags | edge, kind, payload[at : at + piece], channel))
    return b"".join(frames)


def frames_of(octets: bytes) -> list[tuple[int, int, int, int, bytes]]:
    """Flags, type, track, channel and payload of every frame; a protocol header is passed over."""
    found = []
    if octets.startswith(b"AMQP"):
        octets = octets[8:]
    while octets:
        size = int.from_bytes(octets[2:4], "big")
        channel = int.from_bytes(octets[6:8], "big")
        found.append((octets[0], octets[1], octets[5], channel, octets[12:size]))
        octets = octets[size:]
    return found


def controls_of(octets: bytes) -> list[Control]:
    """The controls among these frames."""
    return [decode_control(payload) for _, kind, _, _, payload in frames_of(octets) if kind == 0]


def commands_of(octets: bytes) -> list[Command]:
    """The commands among these frames."""
    return [decode_command(payload)[1] for _, kind, _, _, payload in frames_of(octets) if kind == 1]


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def registry(clock: Clock | None = None, **limits: Any) -> Sessions:
    """Sessions of a server."""
    return Sessions(Session, clock or Clock(), **limits)


TUNE: dict[str, Any] = {
    "channel_max": 64,
    "max_frame_size": 65535,
    "heartbeat_min": 1,
    "heartbeat_max": 60,
}


class Pair:
    """A client and a server; what one writes is handed to the other by :meth:`pump`."""

    def __init__(self, sessions: Sessions | None = None, **limits: Any) -> None:
        self.sessions = sessions or registry()
        self.client = Connection(Role.CLIENT, **limits)
        self.server = Connection(Role.SERVER, sessions=self.sessions, **limits)
        self.sent_by_client = b""  # All octets, for who wants to look at them.
        self.sent_by_server = b""

    def pump(self) -> tuple[list[Event], list[Event]]:
        """Move octets until there are none; return what the server and the client saw."""
        at_server: list[Event] = []
        at_client: list[Event] = []
        while True:
            there = self.client.data_to_send()
            back = self.server.data_to_send()
            if not there and not back:
                return at_server, at_client
            self.sent_by_client += there
            self.sent_by_server += back
            at_server += self.server.receive(there)
            at_client += self.client.receive(back)

    def opened(self, tune: dict[str, Any] = TUNE, chosen: dict[str, Any] | None = None) -> Pair:
        """Through the opening."""
        self.pump()
        chosen = chosen or {
            "channel_max": tune.get("channel_max", 64),
            "max_frame_size": tune.get("max_frame_size", 65535),
        }
        steps: list[tuple[Connection, Control]] = [
            (self.server, ConnectionStart(mechanisms=["PLAIN"], locales=["en_US"])),
            (self.client, ConnectionStartOk(mechanism="PLAIN", response=b"", locale="en_US")),
            (self.server, ConnectionTune(**tune)),
            (self.client, ConnectionTuneOk(**chosen)),
            (self.client, ConnectionOpen(virtual_host="/")),
            (self.server, ConnectionOpenOk()),
        ]
        for machine, made in steps:
            machine.send_control(made)
            self.pump()
        assert self.client.state is State.OPEN
        assert self.server.state is State.OPEN
        return self

    def attached(self, name: bytes = b"one", channel: int = 1, **options: Any) -> Session:
        """The client's side of a session, attached, its peer too."""
        session = Session(name, **options)
        self.client.attach(session, channel)
        self.pump()
        assert session.state == 2
        return session

    def at_server(self, channel: int = 1) -> Session:
        """The server's side of what is attached there."""
        found: Session = self.server.attached[channel]
        return found

    def lose(self) -> None:
        """The socket is gone."""
        self.client.detach_all()
        self.server.detach_all()


def raw(sessions: Sessions | None = None, channel: int = 1, **limits: Any) -> Connection:
    """A server's machine, open, with a new session attached and its command-point at 0."""
    pair = Pair(sessions, **limits).opened()
    pair.attached(channel=channel)
    pair.server.data_to_send()
    return pair.server
