# SPDX-License-Identifier: Apache-2.0
"""A client of AMQP 0-10 that does nothing by itself: it sends what it is given, control by control,
command by command or byte by byte, and returns what the broker sends next.

It keeps no state of a session, so that it can also say what no session allows. What keeps one is in
`raw_session`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from headrace.protocol.codec_0_10 import (
    Command,
    ConnectionHeartbeat,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Control,
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
from headrace.testing.raw_socket import HUNG_UP, RawSocket

if TYPE_CHECKING:
    from headrace.wire.types_0_10 import Value

FRAME_HEAD_SIZE = 12
WHOLE = 0x0F  # First and last frame of the first and last segment.
CONTROL, COMMAND = 0, 1  # Segment types, and the tracks they are on.
PROTOCOL_HEADER_SIZE = 8
FREE = ConnectionHeartbeat | SessionCommandPoint | SessionCompleted | SessionConfirmed
PADDING_SIZE = 300  # Enough that the size of the text takes two bytes.
C = TypeVar("C", bound=Control)


class RawClient010(RawSocket):
    """One connection. `open` logs in and opens the virtual host; before, nothing is sent."""

    product: ClassVar[str] = "headrace raw client"  # What connection.start-ok says of the client.

    # --- Controls and commands ------------------------------------------------------------------

    def send_frame(self, payload: bytes, channel: int, kind: int = CONTROL) -> None:
        """Send one frame with a whole control or command."""
        self.send_bytes(whole_frame(payload, channel, kind))

    def send(self, control: Control, channel: int = 0) -> None:
        """Send a control."""
        self.send_frame(encode_control(control), channel)

    def send_command(self, command: Command, channel: int) -> None:
        """Send a command that has no segments."""
        self.send_frame(encode_command(command), channel, COMMAND)

    def frame(self) -> tuple[int, int, int, bytes] | None:
        """Return segment type, track, channel and payload of the next frame; None at the end."""
        head = self.read(FRAME_HEAD_SIZE)
        if len(head) < FRAME_HEAD_SIZE:
            return None
        payload = self.read(int.from_bytes(head[2:4], "big") - FRAME_HEAD_SIZE)
        return head[1], head[5] & 15, int.from_bytes(head[6:8], "big"), payload

    def expect(self, kind: type[C], channel: int = 0) -> C:
        """Return the next control that is not free to come at any time, which must be this one.

        Heartbeats, command points and completions are sent when their sender sees fit.
        """
        while (frame := self.frame()) is not None:
            segment, track, number, payload = frame
            if segment != CONTROL:
                raise self.make_error(f"a segment of type {segment} where {kind.NAME} was due")
            if track != CONTROL:
                raise self.make_error(f"a control on track {track}")
            try:
                control = decode_control(payload)
            except CloseError as error:
                raise self.make_error(f"what the broker sent cannot be read: {error}") from error
            if isinstance(control, kind):
                if number != channel:
                    raise self.make_error(f"{kind.NAME} on channel {number}, not {channel}")
                return control
            if not isinstance(control, FREE):
                raise self.make_error(f"{control.NAME} instead of {kind.NAME}")
        raise self.make_error(f"{HUNG_UP} instead of {kind.NAME}")

    # --- Opening --------------------------------------------------------------------------------

    def greet(self) -> Self:
        """Agree on the version."""
        self.send_bytes(V0_10.header)
        answer = self.read(PROTOCOL_HEADER_SIZE)
        if answer != V0_10.header:
            raise self.make_error(f"the protocol header of 0-10, not {answer!r}")
        return self

    def log_in(self, frame_size: int = 0) -> ConnectionTune:
        """Log in, by a frame of at least so many bytes; return the broker's tune."""
        self.greet().expect(ConnectionStart)
        properties: dict[str, Value] = {"product": self.product, "padding": "x" * PADDING_SIZE}
        answer = ConnectionStartOk(
            client_properties=properties,
            mechanism="PLAIN",
            response=f"\0{self.user}\0{self.password}".encode(),
            locale="en_US",
        )
        missing = frame_size - FRAME_HEAD_SIZE - len(encode_control(answer))
        properties["padding"] = "x" * (PADDING_SIZE + max(0, missing))
        self.send(answer)
        return self.expect(ConnectionTune)

    def open(self, frame_max: int = 0) -> Self:
        """Log in and open the virtual host."""
        tune = self.log_in()
        size = frame_max or tune.max_frame_size
        self.send(ConnectionTuneOk(channel_max=tune.channel_max, max_frame_size=size))
        self.send(ConnectionOpen(virtual_host=self.vhost))
        self.expect(ConnectionOpenOk)
        return self

    def attach(self, name: bytes, channel: int = 1) -> None:
        """Attach a new session."""
        self.send(SessionAttach(name=name), channel)
        self.expect(SessionAttached, channel)
        self.send(SessionCommandPoint(command_id=0, command_offset=0), channel)


def whole_frame(payload: bytes, channel: int, kind: int = CONTROL) -> bytes:
    """Return a frame with a whole control or command."""
    head = bytes((WHOLE, kind)) + (len(payload) + FRAME_HEAD_SIZE).to_bytes(2, "big")
    return head + bytes((0, kind)) + channel.to_bytes(2, "big") + bytes(4) + payload
