# SPDX-License-Identifier: Apache-2.0
"""A low-level client of AMQP 0-10 without the state of a session.

The client sends single controls, commands, frames or bytes, and returns the broker's next frame or
control. Therefore it can break the rules of a session. ``raw_session`` has a client that follows
them.
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
WHOLE = 0x0F  # Frame flags: the first and last frame of the first and last segment.
CONTROL, COMMAND = 0, 1  # Segment types; a track has the number of its segment type.
PROTOCOL_HEADER_SIZE = 8
# Controls that a broker may send at any time.
UNSOLICITED = ConnectionHeartbeat | SessionCommandPoint | SessionCompleted | SessionConfirmed
PADDING_SIZE = 300  # Long enough that the padding's size is encoded in two bytes.
C = TypeVar("C", bound=Control)


class RawClient010(RawSocket):
    """A connection of AMQP 0-10. The first bytes are sent by ``open`` or ``greet``."""

    product: ClassVar[str] = "headrace raw client"  # The product in the client properties.

    # --- Controls and commands ------------------------------------------------------------------

    def send_frame(self, payload: bytes, channel: int, kind: int = CONTROL) -> None:
        """Send a control or command in one frame."""
        self.send_bytes(whole_frame(payload, channel, kind))

    def send(self, control: Control, channel: int = 0) -> None:
        """Send a control."""
        self.send_frame(encode_control(control), channel)

    def send_command(self, command: Command, channel: int) -> None:
        """Send a command that has no header and body segments."""
        self.send_frame(encode_command(command), channel, COMMAND)

    def frame(self) -> tuple[int, int, int, bytes] | None:
        """Return segment type, track, channel and payload of the next frame; None at the end."""
        head = self.read(FRAME_HEAD_SIZE)
        if len(head) < FRAME_HEAD_SIZE:
            return None
        payload = self.read(int.from_bytes(head[2:4], "big") - FRAME_HEAD_SIZE)
        return head[1], head[5] & 15, int.from_bytes(head[6:8], "big"), payload

    def expect(self, kind: type[C], channel: int = 0) -> C:
        """Return the next control, which must be of this kind.

        Heartbeats, command points and completions before it are skipped: the broker may send them
        at any time.
        """
        while (frame := self.frame()) is not None:
            segment, track, number, payload = frame
            if segment != CONTROL:
                raise self.make_error(f"a segment of type {segment} instead of {kind.NAME}")
            if track != CONTROL:
                raise self.make_error(f"a control on track {track}")
            try:
                control = decode_control(payload)
            except CloseError as error:
                raise self.make_error(f"the broker's control cannot be decoded: {error}") from error
            if isinstance(control, kind):
                if number != channel:
                    raise self.make_error(f"{kind.NAME} on channel {number}, not {channel}")
                return control
            if not isinstance(control, UNSOLICITED):
                raise self.make_error(f"{control.NAME} instead of {kind.NAME}")
        raise self.make_error(f"{HUNG_UP} instead of {kind.NAME}")

    # --- Opening --------------------------------------------------------------------------------

    def greet(self) -> Self:
        """Exchange protocol headers; the broker must answer with that of 0-10."""
        self.send_bytes(V0_10.header)
        answer = self.read(PROTOCOL_HEADER_SIZE)
        if answer != V0_10.header:
            raise self.make_error(f"{answer!r} instead of the protocol header of 0-10")
        return self

    def log_in(self, frame_size: int = 0) -> ConnectionTune:
        """Log in by a frame of at least `frame_size` bytes; return the broker's tune."""
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
        """Log in and open the virtual host. A `frame_max` of 0 accepts the broker's."""
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
    """Return a frame that contains a control or command as its only segment."""
    head = bytes((WHOLE, kind)) + (len(payload) + FRAME_HEAD_SIZE).to_bytes(2, "big")
    return head + bytes((0, kind)) + channel.to_bytes(2, "big") + bytes(4) + payload
