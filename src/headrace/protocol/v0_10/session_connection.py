# SPDX-License-Identifier: Apache-2.0
"""A connection of AMQP 0-10, as its sessions and its other parts see it.

Completions are sent at the end of a turn. The connection's list ``to_announce`` holds the sessions
that have any.
"""

from typing import TYPE_CHECKING, Any

import cython

if not cython.compiled:
    from headrace.protocol.endpoint import Endpoint
    from headrace.protocol.output import BufferPool
    from headrace.protocol.v0_10.assembly import CHANNEL_AT as C_CHANNEL_AT
    from headrace.protocol.v0_10.assembly import FRAME_HEAD as C_FRAME_HEAD
    from headrace.protocol.v0_10.assembly import RESERVED_AT as C_RESERVED_AT
    from headrace.protocol.v0_10.assembly import SIZE_AT as C_SIZE_AT
    from headrace.protocol.v0_10.assembly import TRACK_AT as C_TRACK_AT
    from headrace.protocol.v0_10.assembly import TYPE_AT as C_TYPE_AT
    from headrace.protocol.v0_10.session.port import INLINE_BODY_MAX as C_INLINE_BODY_MAX
    from headrace.protocol.v0_x.handshake import STATE_AWAITING_HEADER
    from headrace.wire.memory import copy, cut, put16, put32

from headrace.protocol.codec_0_10 import (
    Command,
    Control,
    ExecutionException,
    MessageTransfer,
    SessionDetached,
    Struct,
    decode_command,
    encode_control,
)
from headrace.protocol.errors_0_10 import CloseError, DetachError, ExecutionError
from headrace.protocol.v0_10.events import (
    Attached,
    CommandReceived,
    Completed,
    ControlReceived,
    Detached,
    Event,
    ResultReceived,
    Resumed,
    SessionFailed,
    TransferReceived,
)
from headrace.spec.reply_0_10 import DetachCode

if TYPE_CHECKING:
    from headrace.protocol.endpoint import BodySink
    from headrace.protocol.v0_10.session.registry import Sessions
    from headrace.protocol.v0_10.session.session import Session

MAX_FRAME_MIN = 4096  # The bytes of a frame that every peer must accept.


class SessionConnection(Endpoint):
    """Port by which sessions use the connection that they are attached to: frames and upcalls.

    The base class collects events; a gateway or a client overrides the upcalls instead. A command
    is complete once ``session.complete(session.command_id)`` is called, at once or later.
    """

    def __init__(
        self, pool: BufferPool, channel_max: int, sessions: "Sessions | None", is_server: bool
    ) -> None:
        Endpoint.__init__(self, pool)
        self.max_frame_size = MAX_FRAME_MIN  # The maximum bytes of a sent frame.
        self.body_max = 128 << 20  # The maximum bytes of a received body.
        self.attached: dict[int, Session] = {}  # Sessions by channel.
        self.last: Session | None = None  # The session that was used last.
        self.to_announce: list[Session] = []  # Sessions with completions to announce.
        self.current = 0  # The command being handled, class code << 8 | command code.
        # True: send session.known-completed only if the peer requests it.
        self.suppress_known_completed = False
        self.events: list[Event] = []
        self.is_server = is_server
        self.channel_max = channel_max  # Channels are numbered from 0 to below it.
        self.sessions = sessions  # A server finds the sessions of its clients there.
        self.state_number = STATE_AWAITING_HEADER
        self.session: Session | None = None  # The session whose command is being handled.

    # --- Frames -----------------------------------------------------------------------------

    def write_control(self, number: int, control: Control) -> None:
        """Append a control for a channel."""
        self.write_segment(0, True, number, encode_control(control))

    def write_segment(self, segment_type: int, last: bool, channel: int, payload: bytes) -> None:
        """Append a whole segment; ``last`` is True for the last one of an assembly."""
        self.write_part(segment_type, last, channel, payload, 0, len(payload))

    # Keeps 0-10/s004, 0-10/s005, 0-10/s018.
    def write_part(
        self, segment_type: int, last: bool, channel: int, payload: bytes, start: int, end: int
    ) -> None:
        """Append the frames of ``payload[start:end]``, a part of a segment."""
        limit = self.max_frame_size - C_FRAME_HEAD
        payload_size = len(payload)
        flags = (8 if segment_type < 2 else 0) | (4 if last else 0)
        while True:
            chunk_end = min(start + limit, end)
            size = chunk_end - start + C_FRAME_HEAD
            self.reserve(size)
            buffer = self.buffer
            position = self.tail
            buffer[position] = (
                flags | (2 if start == 0 else 0) | (1 if chunk_end == payload_size else 0)
            )
            buffer[position + C_TYPE_AT] = segment_type
            put16(buffer, position + C_SIZE_AT, size)
            put16(buffer, position + C_TRACK_AT, 1 if segment_type else 0)
            put16(buffer, position + C_CHANNEL_AT, channel)
            put32(buffer, position + C_RESERVED_AT, 0)
            copy(buffer, position + C_FRAME_HEAD, payload, start, chunk_end)
            self.tail = position + size
            start = chunk_end
            if start >= end:
                return

    def write_body(self, channel: int, parts: tuple[bytes, ...]) -> None:
        """Append a body segment; a large one is not copied."""
        if len(parts) == 1 and len(parts[0]) <= C_INLINE_BODY_MAX:
            self.write_segment(3, True, channel, parts[0])
        else:
            self.write_parts_0_10(channel, parts, self.max_frame_size)

    # --- Attached sessions ----------------------------------------------------------------------

    def detach_session(self, session: "Session", code: int) -> None:
        """Detach a session from its channel."""
        number = session.channel
        session.leave_channel()
        if self.session is session:
            self.session = None
        self.on_detached(session, number, code)

    def evict(self, session: "Session") -> None:
        """Detach a session that is being attached to another connection."""
        self.write_control(
            session.channel, SessionDetached(name=session.name, code=DetachCode.SESSION_BUSY)
        )
        self.detach_session(session, int(DetachCode.SESSION_BUSY))

    def detach_all(self) -> None:
        """Detach every session, as the transport is closed."""
        for session in list(self.attached.values()):
            self.detach_session(session, 0)

    def announce(self) -> None:
        """Send the completions of all sessions, also between reads."""
        to_announce = self.to_announce
        if to_announce:
            self.to_announce = []
            for session in to_announce:
                if session.connection is self:
                    session.send_completed()

    # Keeps 0-10/s031.
    def refuse_unattached(self, number: int) -> None:
        """Discard a frame on a channel without a session."""
        self.write_control(number, SessionDetached(name=b"", code=DetachCode.NOT_ATTACHED))

    def find_session(self, number: int, name: bytes, force: bool) -> "Session":
        """Return the session that a client requests.

        Raises:
            DetachError: the session is attached elsewhere, or this side has no sessions.
        """
        if self.sessions is None:
            raise DetachError(DetachCode.SESSION_BUSY, "no sessions are offered here")
        session: Session = self.sessions.find(self.principal(), name, force)
        return session

    def principal(self) -> Any:
        """Return the owner of the sessions; different owners may use the same names."""
        return self.user

    # --- Upcalls ----------------------------------------------------------------------------

    def on_transfer(
        self,
        session: "Session",
        buffer: bytes | bytearray,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        body: int,
        body_end: int,
    ) -> None:
        """Handle a message.transfer with a body of at most ``INLINE_BODY_MAX`` bytes.

        ``buffer[args:args_end]`` holds the session header (2 bytes, checked) and the arguments (not
        checked); the payloads of the header and body segments follow. A missing segment has no
        bytes.
        """
        self.on_transfer_large(
            session,
            b"\x04\x01" + cut(buffer, args, args_end) + cut(buffer, header, header_end),
            2,
            2 + args_end - args,
            2 + args_end - args,
            2 + args_end - args + header_end - header,
            (cut(buffer, body, body_end),),
            body_end - body,
        )

    def on_transfer_large(
        self,
        session: "Session",
        start: bytes,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        parts: tuple[bytes, ...],
        body_size: int,
    ) -> None:
        """Handle a message.transfer with a larger body; ``start`` holds its other bytes."""
        command = decode_command(start[:args_end])[1]
        assert isinstance(command, MessageTransfer)
        self.events.append(
            TransferReceived(
                session.name,
                session.command_id,
                session.sync,
                command,
                start[header:header_end],
                b"".join(parts),
            )
        )
        session.complete(session.command_id)

    def on_accept(
        self, session: "Session", buffer: bytes | bytearray, start: int, end: int
    ) -> None:
        """Handle message.accept; ``buffer[start:end]`` holds ranges of 8 bytes, in order."""
        payload = b"\x04\x02\x01" + bytes((session.sync,)) + b"\x01\x00"
        payload += (end - start).to_bytes(2, "big") + cut(buffer, start, end)
        self.on_command(session, decode_command(payload)[1], b"", ())

    def body_sink(self, session: "Session", header: bytes) -> "BodySink | None":
        """Return the sink for the body of a file.stage; None to keep the body in memory."""
        return None

    def on_command(
        self, session: "Session", command: Command, header: bytes, parts: tuple[bytes, ...]
    ) -> None:
        """Handle any other command, with the payload of its header segment and its body."""
        self.events.append(
            CommandReceived(
                session.name, session.command_id, session.sync, command, header, b"".join(parts)
            )
        )
        session.complete(session.command_id)

    def on_result(self, session: "Session", command_id: int, value: Struct | None) -> None:
        """Handle the result of a command of this side: a struct, or None."""
        self.events.append(ResultReceived(session.name, command_id, value))

    def on_exception(self, session: "Session", exception: ExecutionException) -> None:
        """Handle the failure of a command of this side; the peer detaches the session."""
        self.events.append(SessionFailed(session.name, exception))

    def on_completed(self, session: "Session", first_id: int, last_id: int) -> None:
        """Handle the first completion of these commands of this side, both ends included."""
        self.events.append(Completed(session.name, first_id, last_id))

    def on_session_control(self, session: "Session", control: Control) -> None:
        """Handle an answer of the peer: session.attached, expected or timeout."""
        self.events.append(ControlReceived(session.channel, control))

    def choose_timeout(self, session: "Session", requested: int | None) -> int | None:
        """Return the seconds for which a detached session is kept; None is no limit."""
        return 0 if session.registry is None else session.registry.grant(requested)

    def on_detached(self, session: "Session", channel: int, code: int) -> None:
        """Handle the detachment of a session from ``channel``; ``code`` is the error's, or 0.

        The session may have ended with the attachment.
        """
        self.events.append(Detached(session.name, channel, code))

    def on_session_failed(self, session: "Session", error: ExecutionError) -> None:
        """Handle the failure of a session by a command of the peer; the error was sent."""
        self.events.append(SessionFailed(session.name, error))

    def on_resumed(self, session: "Session", kept: bool) -> None:
        """Handle the resumption of a session.

        ``kept`` is True if the peer still had the session; its incomplete commands were sent again.
        """
        self.events.append(Resumed(session.name, kept))

    def on_commands_lost(self, session: "Session", first_id: int, last_id: int) -> None:
        """Handle the loss of incomplete commands of this side, which are not sent again.

        The peer was sent a gap for them, so ``on_completed`` may follow. If the gap is lost, this
        method is called again.
        """

    def on_attached(self, session: "Session") -> None:
        """Handle the attachment of a session, at the request of either peer."""
        self.events.append(Attached(session.name, session.channel))

    def on_detaching(self, session: "Session") -> None:
        """Handle a session.detach of the peer, before the session is detached."""

    # --- Upcalls of the frame reader --------------------------------------------------------------

    def check_header(self, buffer: bytes | bytearray, pos: int, n: int) -> None:
        """Refuse at once bytes that cannot become a protocol header."""

    def accept_header(self, header: bytes) -> None:
        """Handle the protocol header of the peer."""

    def control(self, session: "Session | None", number: int, payload: bytes) -> None:
        """Handle a complete control."""

    def answer_error(self, error: Exception) -> None:
        """Answer an error that handling a frame raised."""

    def fail(self, error: CloseError | DetachError | ExecutionError) -> None:
        """Close, detach or fail by the scope of an error, and report it to the peer."""

    def on_turn_end(self) -> None:
        """Handle the end of a read, all of whose complete frames were handled."""
        self.announce()
