# SPDX-License-Identifier: Apache-2.0
"""A client of AMQP 0-10 that says what a check tells it, control by control."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from headrace.conformance.peer import BrokenRule, Peer, must
from headrace.protocol.codec_0_10 import (
    ConnectionHeartbeat,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Control,
    ExecutionSync,
    SessionAttach,
    SessionAttached,
    SessionCommandPoint,
    SessionCompleted,
    SessionConfirmed,
    decode_control,
    encode_command,
    encode_control,
)
from headrace.protocol.errors_0_10 import CloseError
from headrace.spec.tables import V0_10

if TYPE_CHECKING:
    from headrace.wire.types_0_10 import Value

HEAD_OCTETS = 12  # Of a frame, before its payload.
WHOLE = 0x0F  # First and last frame of the first and last segment.
CONTROL, COMMAND = 0, 1
PROTOCOL_HEADER = 8
FREE = ConnectionHeartbeat | SessionCommandPoint | SessionCompleted | SessionConfirmed
PADDING = 300  # Octets: enough that the size of the text takes two.
C = TypeVar("C", bound=Control)


class ControlPeer:
    """Frames of 0-10 over the octets of a peer."""

    def __init__(self, octets: Peer) -> None:
        self.octets = octets

    def put_frame(self, payload: bytes, channel: int, kind: int = CONTROL) -> None:
        """Send one frame with a whole control or command."""
        head = bytes((WHOLE, kind)) + (len(payload) + HEAD_OCTETS).to_bytes(2, "big")
        head += bytes((0, kind)) + channel.to_bytes(2, "big") + bytes(4)
        self.octets.put(head + payload)

    def send(self, control: Control, channel: int = 0) -> None:
        """Send a control."""
        self.put_frame(encode_control(control), channel)

    def sync(self, channel: int) -> None:
        """Send execution.sync."""
        self.put_frame(encode_command(ExecutionSync()), channel, COMMAND)

    def frame(self) -> tuple[int, int, int, bytes] | None:
        """Segment type, track, channel and payload of the next frame; None at the end."""
        head = self.octets.read(HEAD_OCTETS)
        if len(head) < HEAD_OCTETS:
            return None
        payload = self.octets.read(int.from_bytes(head[2:4], "big") - HEAD_OCTETS)
        return head[1], head[5] & 15, int.from_bytes(head[6:8], "big"), payload

    def heard(self, kind: type[C], channel: int = 0) -> C:
        """The next control that is not free to come at any time, which must be this one.

        Heartbeats, command points and completions are sent when their sender sees fit.
        """
        while True:
            frame = self.frame()
            if frame is None:
                raise BrokenRule(f"the broker hung up instead of {kind.NAME}")
            segment, track, number, payload = frame
            must(segment == CONTROL, f"a segment of type {segment} where {kind.NAME} was due")
            must(track == 0, f"a control on track {track}")
            try:
                control = decode_control(payload)
            except CloseError as error:
                raise BrokenRule(f"what the broker sent cannot be read: {error}") from error
            if isinstance(control, kind):
                must(number == channel, f"{kind.NAME} on channel {number}, not {channel}")
                return control
            if not isinstance(control, FREE):
                raise BrokenRule(f"{control.NAME} instead of {kind.NAME}")

    def greet(self) -> ControlPeer:
        """Agree on the version."""
        self.octets.put(V0_10.header)
        got = self.octets.read(PROTOCOL_HEADER)
        must(got == V0_10.header, f"the protocol header of 0-10, not {got!r}")
        return self

    def log_in(self, frame_octets: int = 0) -> ConnectionTune:
        """Up to and with the broker's tune; by a frame of at least so many octets."""
        self.greet().heard(ConnectionStart)
        settings = self.octets.settings
        response = f"\0{settings.username}\0{settings.password}".encode()
        properties: dict[str, Value] = {"product": "headrace conformance", "padding": "x" * PADDING}
        answer = ConnectionStartOk(
            client_properties=properties, mechanism="PLAIN", response=response, locale="en_US"
        )
        missing = frame_octets - HEAD_OCTETS - len(encode_control(answer))
        properties["padding"] = "x" * (PADDING + max(0, missing))
        self.send(answer)
        return self.heard(ConnectionTune)

    def open(self, frame_max: int = 0) -> ControlPeer:
        """Log in and open the virtual host."""
        tune = self.log_in()
        size = frame_max or tune.max_frame_size
        self.send(ConnectionTuneOk(channel_max=tune.channel_max, max_frame_size=size))
        self.send(ConnectionOpen(virtual_host=self.octets.settings.vhost))
        self.heard(ConnectionOpenOk)
        return self

    def attach(self, name: bytes, channel: int = 1) -> None:
        """Attach a new session."""
        self.send(SessionAttach(name=name), channel)
        self.heard(SessionAttached, channel)
        self.send(SessionCommandPoint(command_id=0, command_offset=0), channel)
