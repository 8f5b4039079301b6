# SPDX-License-Identifier: Apache-2.0
"""The connection machine of AMQP 0-10, for both roles, without I/O: opening, controls, closing.

Theory of operation. Sessions use their connection as a :class:`SessionConnection`
(:mod:`headrace.protocol.v0_10.session_connection`). It holds two parts:

* :class:`FrameReader` reads the input (:mod:`headrace.protocol.v0_10.connection.frames`);
* :class:`Attachments` attaches and detaches sessions
  (:mod:`headrace.protocol.v0_10.connection.attachments`).

:class:`Connection` handles the controls of the connection class; controls of the session class are
handled by their session.

The owner sends the output that the base class collected. Errors of the peer end in
:meth:`Connection.fail`. After a framing error the boundaries of frames are unknown, so the machine
ignores all further input.
"""

import logging
from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.output import BufferPool
    from headrace.protocol.v0_10.connection.attachments import Attachments
    from headrace.protocol.v0_10.connection.frames import FrameReader
    from headrace.protocol.v0_10.session.port import DETACHING as C_DETACHING
    from headrace.protocol.v0_10.session.session import Session
    from headrace.protocol.v0_10.session_connection import SessionConnection
    from headrace.protocol.v0_x.handshake import (
        STATE_AWAITING_HEADER,
        STATE_CLOSED,
        STATE_CLOSING,
        STATE_GREETED,
        STATE_OPEN,
    )

from headrace.protocol.codec_0_10 import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionHeartbeat,
    ConnectionOpenOk,
    ConnectionRedirect,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Control,
    SessionAttach,
    SessionAttached,
    SessionDetach,
    SessionDetached,
    decode_control,
)
from headrace.protocol.errors_0_10 import CloseError, DetachError, ExecutionError
from headrace.protocol.v0_10.events import (
    ControlReceived,
    Event,
    Failed,
    HeaderRejected,
    HeartbeatReceived,
)
from headrace.protocol.v0_10.opening import MAX_FRAME_MIN, check_tune, next_state
from headrace.protocol.v0_x.handshake import CLIENT, SERVER, STATES, Role, State
from headrace.spec.reply_0_10 import CloseCode, ExecutionCode
from headrace.spec.tables import V0_10
from headrace.wire.errors import MalformedError

log = logging.getLogger(__name__)

MAX_FRAME_MAX = 65535  # The bytes of the largest frame, whose size has 16 bits.
HEADER = V0_10.header


class Connection(SessionConnection):
    """One peer's side of one connection."""

    def __init__(
        self,
        role: Role,
        *,
        pool: BufferPool | None = None,
        max_frame_size: int = MAX_FRAME_MAX,
        channel_max: int = 256,
        body_max: int = 128 << 20,
        sessions: Any = None,
    ) -> None:
        """Limits: ``max_frame_size`` (4096 to 65535 bytes of a whole frame),
        ``channel_max`` (channels, numbered from 0), ``body_max`` (bytes). ``sessions`` is the
        :class:`~headrace.protocol.v0_10.session.registry.Sessions` that a server finds sessions in.
        """
        SessionConnection.__init__(
            self, BufferPool() if pool is None else pool, channel_max, sessions, role is SERVER
        )
        self.reader = FrameReader(self)
        self.attachments = Attachments(self)
        self.rest = b""  # The bytes of an unfinished frame, for ``receive``.
        self.role = role
        self.offered_frame_size = max_frame_size
        self.body_max = body_max
        self.heartbeat_s = 0
        self.close_reason: CloseError | None = None  # The error for which this side closed.
        self.mechanisms: list[str] = []  # Proposed by the server.
        self.offer: ConnectionTune | None = None  # The connection.tune of the server.
        if role is CLIENT:
            self.write(HEADER)

    @property
    def state(self) -> State:
        """The state of the connection."""
        return STATES[self.state_number]

    def awaits_close(self) -> bool:
        return self.state_number == STATE_CLOSING and not self.reader.ignores_input

    def receive(self, data: bytes) -> list[Event]:
        """Handle bytes, in any split, and return the events; their content raises no error."""
        if self.rest:
            data = self.rest + data
            self.rest = b""
        used = self.reader.feed(data, len(data))
        if used < len(data):
            self.rest = data[used:]
        events = self.events
        self.events = []
        return events

    def feed(self, buffer: bytes | bytearray, length: int) -> int:
        """Handle the complete frames in ``buffer[:length]``; return how many bytes were consumed.

        The owner passes the remaining ones again, followed by more. They are fewer than
        ``max_frame_size`` plus ``INLINE_WAIT_MAX``.
        """
        return self.reader.feed(buffer, length)

    def attach(self, session: Session, channel: int, force: bool = False) -> None:
        """Request a session on a channel, as :meth:`Attachments.attach`."""
        self.attachments.attach(session, channel, force)

    # --- The header ---------------------------------------------------------------------------

    def check_header(self, buffer: bytes | bytearray, pos: int, length: int) -> None:
        """Refuse at once bytes that cannot become a protocol header; a client waits for all 8."""
        if not self.is_server:
            return
        for i in range(min(4, length - pos)):
            if buffer[pos + i] != b"AMQP"[i]:
                self.reader.frame_end = length
                self.refuse_header()
                return

    # Keeps 0-10/s007.
    def accept_header(self, header: bytes) -> None:
        """Handle the protocol header of the peer."""
        if self.is_server:
            if header != HEADER:
                self.refuse_header()
                return
            self.state_number = STATE_GREETED
            self.write(HEADER)
            self.on_header()
        elif header == HEADER:
            self.state_number = STATE_GREETED
        else:
            self.state_number = STATE_CLOSED
            self.on_rejected(header)
            self.on_closed()

    def refuse_header(self) -> None:
        """Answer with the protocol header of 0-10, then close."""
        if self.is_server:
            self.write(HEADER)
        self.state_number = STATE_CLOSED
        self.on_closed()

    # --- Controls -----------------------------------------------------------------------------

    def control(self, session: Session | None, number: int, payload: bytes) -> None:
        """Handle a complete control."""
        closing = self.state_number == STATE_CLOSING
        if payload[:1] == b"\x01":
            if closing and payload[:2] != b"\x01\x0b" and payload[:2] != b"\x01\x0c":
                return
            control = decode_control(payload)
            self.connection_control(number, control)
            return
        if closing:
            return
        if self.state_number != STATE_OPEN:
            raise CloseError(CloseCode.FRAMING_ERROR, "a session before connection.open-ok")
        control = decode_control(payload)
        if isinstance(control, SessionAttach):
            self.attachments.handle_attach(session, number, control)
        elif isinstance(control, SessionAttached):
            self.attachments.handle_attached(session, control)
        elif isinstance(control, SessionDetach):
            self.attachments.handle_detach(session, number, control)
        elif isinstance(control, SessionDetached):
            self.attachments.handle_detached(session, control)
        elif session is None:
            # Keeps 0-10/s030, 0-10/s031.
            self.refuse_unattached(number)
        elif session.state != C_DETACHING or not session.ended:
            session.on_control(control)

    def connection_control(self, number: int, control: Control) -> None:
        """Handle a control of the connection class."""
        if isinstance(control, ConnectionClose):
            if self.state_number == STATE_AWAITING_HEADER:
                raise CloseError(CloseCode.FRAMING_ERROR, "connection.close before anything else")
            self.state_number = STATE_CLOSED
            # Keeps 0-10/s028.
            self.write_control(number, ConnectionCloseOk())
            self.on_control(number, control)
            self.on_closed()
            return
        if isinstance(control, ConnectionCloseOk):
            if self.state_number != STATE_CLOSING:
                raise CloseError(CloseCode.FRAMING_ERROR, "connection.close-ok without a close")
            self.state_number = STATE_CLOSED
            self.on_control(number, control)
            self.on_closed()
            return
        if isinstance(control, ConnectionHeartbeat):
            self.on_heartbeat()
            return
        if number:
            raise CloseError(CloseCode.FRAMING_ERROR, f"{control.NAME} on channel {number}")
        self.advance_state(CLIENT if self.is_server else SERVER, control)
        if self.state_number != STATE_CLOSED or isinstance(control, ConnectionRedirect):
            self.on_control(number, control)
            if self.state_number == STATE_CLOSED:
                self.on_closed()

    def advance_state(self, sender: Role, control: Control) -> None:
        """Advance the state by a control of the opening, or refuse the control."""
        state_number = next_state(self.state_number, sender, control)
        if isinstance(control, ConnectionStart):
            self.mechanisms = list(control.mechanisms or ())
        elif isinstance(control, ConnectionStartOk):
            # Keeps 0-10/s012.
            if self.is_server and control.mechanism not in self.mechanisms:
                log.warning("a client chose a mechanism that was not offered")
                self.on_not_offered(control.mechanism or "")
                self.close_silently()
                return
        elif isinstance(control, ConnectionTune):
            # Keeps 0-10/s014.
            if (
                sender is self.role
                and control.heartbeat_max is not None
                and control.heartbeat_min is None
            ):
                raise CloseError(CloseCode.FRAMING_ERROR, "heartbeat-max without heartbeat-min")
            self.offer = control
        elif isinstance(control, ConnectionTuneOk):
            assert self.offer is not None
            # Keeps 0-10/s015, 0-10/s017.
            wrong = check_tune(self.offer, control)
            if wrong:
                if sender is self.role:
                    raise CloseError(CloseCode.FRAMING_ERROR, wrong)
                log.warning("tune-ok is out of range: %s", wrong)
                self.close_silently()
                return
            self.tune(control)
        elif isinstance(control, ConnectionOpenOk):
            self.reader.frame_limit = self.offered_frame_size
        self.state_number = state_number

    def tune(self, chosen: ConnectionTuneOk) -> None:
        """Adopt the limits and the heartbeat of connection.tune-ok."""
        size = chosen.max_frame_size
        if size is None:
            size = self.offered_frame_size
            if self.offer is not None and self.offer.max_frame_size is not None:
                size = min(size, self.offer.max_frame_size)
        self.offered_frame_size = max(size, MAX_FRAME_MIN)
        self.max_frame_size = self.offered_frame_size
        if chosen.channel_max:
            self.channel_max = min(self.channel_max, chosen.channel_max)
        self.heartbeat_s = chosen.heartbeat or 0

    # --- Errors -------------------------------------------------------------------------------

    def answer_error(self, error: Exception) -> None:
        """Answer an error that handling a frame raised."""
        if not isinstance(error, CloseError | DetachError | ExecutionError):
            error = self.explain(error)
        try:
            self.fail(error)
        except Exception:
            log.exception("an error cannot be reported")
            self.close_silently()

    def fail(self, error: CloseError | DetachError | ExecutionError) -> None:
        """Close, detach or fail by the scope of an error, and report it to the peer."""
        session = self.session
        if isinstance(error, ExecutionError) and session is not None:
            if session.connection is self:
                session.fail(error)
            return
        if isinstance(error, DetachError) and session is not None:
            if session.connection is self and session.state != C_DETACHING:
                session.send_completed()
                log.info("session detached: %s", error)
                self.write_control(
                    session.channel,
                    SessionDetached(name=session.name, code=error.detach_code),
                )
                self.detach_session(session, int(error.detach_code))
            return
        if not isinstance(error, CloseError):
            error = CloseError(CloseCode.CONNECTION_FORCED, error.text)
        if error.close_code == CloseCode.FRAMING_ERROR:
            self.reader.ignores_input = True
        if self.state_number >= STATE_CLOSING:
            return
        if self.state_number == STATE_AWAITING_HEADER:
            self.refuse_header()
            return
        self.close_reason = error
        self.state_number = STATE_CLOSING
        self.reader.held = b""
        self.write_control(
            0, ConnectionClose(reply_code=error.close_code, reply_text=error.reply_text)
        )
        self.on_failed(error)

    def close_silently(self) -> None:
        """Close the connection without an answer."""
        self.state_number = STATE_CLOSED
        self.reader.ignores_input = True
        self.reader.held = b""
        self.on_closed()

    def explain(self, error: Exception) -> CloseError | DetachError | ExecutionError:
        """Return the error to send for an exception that is none of the protocol."""
        if isinstance(error, MalformedError):
            return CloseError(CloseCode.FRAMING_ERROR, str(error))
        log.error("internal error", exc_info=error)
        if self.session is not None and self.current:
            return ExecutionError(ExecutionCode.INTERNAL_ERROR, "internal error")
        return CloseError(CloseCode.CONNECTION_FORCED, "internal error")

    # --- Sending ------------------------------------------------------------------------------

    def send_control(self, control: Control) -> None:
        """Send a control of the connection class on channel 0.

        Raises:
            CloseError: the control is out of order here; nothing was written.
        """
        if isinstance(control, ConnectionClose):
            if self.state_number >= STATE_CLOSING:
                raise CloseError(CloseCode.FRAMING_ERROR, "the connection is closed")
            self.state_number = STATE_CLOSING
        elif isinstance(control, ConnectionCloseOk):
            self.state_number = STATE_CLOSED
        elif not isinstance(control, ConnectionHeartbeat):
            self.advance_state(self.role, control)
        self.write_control(0, control)
        if self.reader.held and not self.reader.is_handling and not self.reader.awaits_owner():
            self.reader.feed_held(b"")
            if self.is_turn_spent and self.transport is not None:
                self.transport.await_turn()

    def send_heartbeat(self) -> None:
        """Send connection.heartbeat."""
        self.write_control(0, ConnectionHeartbeat())

    # --- Upcalls ------------------------------------------------------------------------------

    def on_header(self) -> None:
        """Handle an accepted protocol header: a server sends connection.start."""

    def on_rejected(self, header: bytes) -> None:
        """Handle the header of another version, with which the server refused this client."""
        self.events.append(HeaderRejected(header))

    def on_control(self, number: int, control: Control) -> None:
        """Handle a connection control that changed the state."""
        self.events.append(ControlReceived(number, control))

    def on_heartbeat(self) -> None:
        """Handle a heartbeat."""
        self.events.append(HeartbeatReceived())

    def on_not_offered(self, mechanism: str) -> None:
        """Handle the choice of a mechanism that was not offered; the connection ends."""

    def on_failed(self, error: CloseError) -> None:
        """Handle an error of the peer, whose connection.close is written."""
        self.events.append(Failed(error))

    def on_closed(self) -> None:
        """Handle the end of the connection: the transport may close once the output is sent."""
