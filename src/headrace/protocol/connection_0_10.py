# SPDX-License-Identifier: Apache-2.0
"""The connection machine of AMQP 0-10, for both roles, without I/O.

Theory of operation. The owner puts received octets into :meth:`Connection.feed` (or ``receive``)
and sends what the base class collected. Every complete frame is checked (flags, type, size, track,
channel) before an octet of its payload is looked at. Then

* a ``message.transfer`` whose segments are single frames that lie whole in the buffer, a
  ``message.accept`` and a ``session.completed`` take a narrow path: one call with offsets, no
  objects;
* every other control is put together, decoded, and handled here (connection class; attaching and
  detaching) or by its session;
* every other command is put together on its session.

Both ways end in the same upcalls, so how the octets were split into reads or frames makes no
difference. What the peer does wrong ends in :meth:`Connection.fail`. After a framing error nothing
that follows can be trusted: the machine is deaf.

A client may send all of the opening at once. While it is our turn (the login may be checked in
another thread) its octets are held, and go on when :meth:`Connection.send_control` has moved the
state.
"""

import logging
from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.output import BufferPool
    from headrace.protocol.session_0_10 import Carrier, Session
    from headrace.wire.memory import cut, get16, get32

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
    encode_control,
)
from headrace.protocol.connection_0_x import Role, State
from headrace.protocol.errors_0_10 import CloseError, DetachError, ExecutionError
from headrace.protocol.events_0_10 import (
    Attached,
    ControlReceived,
    Event,
    Failed,
    HeaderRejected,
    HeartbeatReceived,
)
from headrace.spec.reply_0_10 import CloseCode, DetachCode, ExecutionCode
from headrace.spec.tables import V0_10
from headrace.wire.errors import MalformedError

log = logging.getLogger(__name__)

SERIAL_MASK = 0xFFFFFFFF  # A name: as a literal it would be an object when compiled.
SERIAL_HALF = 0x7FFFFFFF
FRAME_HEAD = 12  # Octets.
HANDSHAKE_OCTETS_MAX = 16384  # What a peer may send before the connection is open.
MAX_FRAME_MIN = 4096  # Octets; what both peers must accept before they agreed on more.
MAX_FRAME_MAX = 65535
CONTROL_OCTETS_MAX = 262144  # Octets of unfinished controls, on all channels.
EMPTY_FRAMES_MAX = 64  # Frames of unfinished controls that bring nothing.
INLINE_WAIT_MAX = 98304  # Octets of an unfinished transfer that wait in the read buffer.
TRANSFER_START = 0x04010100 >> 1  # Code and session header, without the sync flag.
ACCEPT_START = 0x04020100 >> 1

HEADER = V0_10.header
SERVER, CLIENT = Role.SERVER, Role.CLIENT
STATES = list(State)
HANDSHAKE: dict[tuple[int, Role, str], int] = {
    (1, SERVER, "connection.start"): 2,
    (2, CLIENT, "connection.start-ok"): 3,
    (3, SERVER, "connection.secure"): 4,
    (4, CLIENT, "connection.secure-ok"): 3,
    (3, SERVER, "connection.tune"): 5,
    (5, CLIENT, "connection.tune-ok"): 6,
    (6, CLIENT, "connection.open"): 7,
    (7, SERVER, "connection.open-ok"): 8,
    (7, SERVER, "connection.redirect"): 10,
}


class Connection(Carrier):
    """One peer's view of one connection."""

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
        """What we accept ourselves: ``max_frame_size`` (4096 to 65535 octets of a whole frame),
        ``channel_max`` (channels, numbered from 0), ``body_max`` (octets). ``sessions`` is the
        :class:`Sessions` that a server finds sessions in.
        """
        Carrier.__init__(self, BufferPool() if pool is None else pool)
        self.role = role
        self.is_server = role is Role.SERVER
        self.offered_frame_size = max_frame_size
        self.channel_max = channel_max
        self.body_max = body_max
        self.sessions = sessions
        self.heartbeat_s = 0
        self.frame_limit = HANDSHAKE_OCTETS_MAX  # Octets of a frame that we accept now.
        self.state_number = 0
        self.rest = b""
        self.held = b""  # What came while it was our turn.
        self.handling = False
        self.after = 0  # Where to go on after the frame being handled.
        self.session: Session | None = None  # Whose command is being handled, for errors.
        self.handshake_octets = 0
        self.hold_above = 1 << 62  # Octets of output above which nothing more is handled.
        self.deaf = False
        self.close_reason: CloseError | None = None  # Why we closed the connection.
        self.mechanisms: list[str] = []  # Proposed by the server.
        self.offer: ConnectionTune | None = None  # What the server proposed.
        self.controls: dict[int, bytes] = {}  # Unfinished controls, by channel.
        self.control_octets = 0  # Of all of them.
        self.control_empty = 0
        if role is Role.CLIENT:
            self.write(HEADER)

    @property
    def state(self) -> State:
        """Where the connection stands."""
        return STATES[self.state_number]

    def awaits_close(self) -> bool:
        return self.state_number == 9 and not self.deaf

    # --- Receiving --------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Event]:
        """Take octets in any split and return what they meant. Never raises for what they hold."""
        if self.rest:
            data = self.rest + data
            self.rest = b""
        used = self.feed(data, len(data))
        if used < len(data):
            self.rest = data[used:]
        events = self.events
        self.events = []
        return events

    def feed(self, d: bytes | bytearray, n: int) -> int:
        """Handle the complete frames in ``d[:n]``; return how many octets are done with.

        The owner keeps the others and gives them again, followed by more. They are fewer than
        ``max_frame_size`` plus ``INLINE_WAIT_MAX``.
        """
        if self.held:
            return self.feed_held(cut(d, 0, n))
        self.handling = True
        pos = self.handle(d, n)
        if self.our_turn() and n > pos:
            if n - pos > HANDSHAKE_OCTETS_MAX:
                self.flood()
            else:
                self.held = cut(d, pos, n)
            pos = n
        self.handling = False
        self.turn_over()
        return pos

    def feed_held(self, data: bytes) -> int:
        """Handle what was held, then ``data``."""
        size = len(data)
        data = self.held + data
        self.held = b""
        total = len(data)
        self.handling = True
        pos = self.handle(data, total)
        if self.our_turn() or total - pos > size:
            if self.our_turn() and total - pos > HANDSHAKE_OCTETS_MAX:
                self.flood()
            elif total > pos:
                self.held = data[pos:]
            pos = total
        self.handling = False
        self.turn_over()
        return size - (total - pos)

    def our_turn(self) -> bool:
        """Tell whether the client must wait for us before its octets are looked at."""
        at = self.state_number
        return self.is_server and (at == 1 or at == 3 or at == 7)

    def flood(self) -> None:
        """Too much came before the connection was open."""
        self.deaf = True
        self.fail(
            CloseError(
                CloseCode.FRAMING_ERROR,
                f"more than {HANDSHAKE_OCTETS_MAX} octets before connection.open-ok",
            )
        )

    def handle(self, d: bytes | bytearray, n: int) -> int:
        """Handle what is complete; whatever is wrong ends in :meth:`fail`."""
        pos = 0
        while True:
            if self.deaf or self.state_number == 10:  # CLOSED
                return n
            try:
                if self.state_number == 0:  # AWAITING_HEADER
                    if self.is_server or n == pos or d[pos] == 65:  # "A"
                        if n - pos < 8:
                            self.check_header(d, pos, n)
                            break
                        self.after = pos + 8
                        self.accept_header(cut(d, pos, pos + 8))
                        pos = self.after
                        continue
                    self.state_number = 1  # A server may begin without its header.
                pos = self.frames(d, pos, n)
                break
            except Exception as error:  # noqa: BLE001 - nothing leaves the machine
                self.failed(error)
                pos = self.after
        return pos

    def failed(self, error: Exception) -> None:
        """Answer an error that handling a frame raised."""
        if not isinstance(error, CloseError | DetachError | ExecutionError):
            error = self.explain(error)
        try:
            self.fail(error)
        except Exception:
            log.exception("an error cannot be reported")
            self.vanish()

    def check_header(self, d: bytes | bytearray, pos: int, n: int) -> None:
        """Refuse at once what cannot become a protocol header; a client looks at all of it."""
        if not self.is_server:
            return
        for i in range(min(4, n - pos)):
            if d[pos + i] != b"AMQP"[i]:
                self.after = n
                self.refuse_header()
                return

    def accept_header(self, header: bytes) -> None:
        """The peer sent its protocol header."""
        if self.is_server:
            if header != HEADER:
                self.refuse_header()
                return
            self.state_number = 1
            self.write(HEADER)
            self.on_header()
        elif header == HEADER:
            self.state_number = 1
        else:
            self.state_number = 10
            self.on_rejected(header)
            self.on_closed()

    def refuse_header(self) -> None:
        """Answer with the header that we speak, and nothing else, then end."""
        if self.is_server:
            self.write(HEADER)
        self.state_number = 10
        self.on_closed()

    def frames(self, d: bytes | bytearray, pos: int, n: int) -> int:
        """Handle frame after frame; return where the first incomplete one begins."""
        while n - pos >= 12:
            flags = d[pos]
            kind = d[pos + 1]
            size = get16(d, pos + 2)
            number = get16(d, pos + 6)
            if (
                flags > 15
                or kind > 3
                or size < 12
                or size > self.frame_limit
                or d[pos + 5] != (kind > 0)
                or number >= self.channel_max
            ):
                self.after = n
                raise self.frame_error(flags, kind, size, d[pos + 5], number)
            end = pos + size
            if end > n:
                break
            if self.state_number < 8:
                at = self.state_number
                if self.is_server and (at == 1 or at == 3 or at == 7):
                    break
                self.handshake_octets += size
                if self.handshake_octets > HANDSHAKE_OCTETS_MAX:
                    self.after = n
                    self.flood()
                    return n
            self.after = end
            self.current = 0
            session = self.last
            if session is None or session.channel != number:
                session = self.attached.get(number)
                self.last = session
            self.session = session
            if kind == 1 and session is not None and session.quick and self.state_number == 8:
                if flags == 11 and size > 15 and get32(d, pos + 12) >> 1 == TRANSFER_START:
                    pos = self.transfer_frames(session, d, pos, end, n)
                    if pos < 0:
                        return -pos - 1
                    if self.tail - self.head + self.chained > self.hold_above:
                        return pos
                    continue
                if (
                    flags == 15
                    and size > 19
                    and get32(d, pos + 12) >> 1 == ACCEPT_START
                    and get16(d, pos + 16) == 0x0100
                    and get16(d, pos + 18) == size - 20
                    and check_ranges(d, pos + 20, end)
                ):
                    session.arrive(d[pos + 15] & 1 != 0)
                    self.current = 0x0402
                    self.on_accept(session, d, pos + 20, end)
                    pos = end
                    if self.tail - self.head + self.chained > self.hold_above:
                        return pos
                    continue
            if kind == 0:
                self.control_frame(session, flags, number, d, pos + 12, end)
            elif self.state_number == 9:
                pass
            elif self.state_number != 8:
                self.after = n
                raise CloseError(CloseCode.FRAMING_ERROR, "a command before connection.open-ok")
            elif session is None:
                if flags & 10 == 10:
                    self.not_attached(number)
            else:
                self.current = 0
                session.command_frame(flags, kind, d, pos + 12, end)
            pos = end
            if self.deaf or self.state_number == 10:
                return n
            if self.tail - self.head + self.chained > self.hold_above:
                return pos
        return pos

    def frame_error(self, flags: int, kind: int, size: int, track: int, number: int) -> CloseError:
        """What is wrong with a frame's head."""
        if flags > 15:
            text = f"unknown frame flags {flags:#x}"
        elif kind > 3:
            text = f"unknown segment type {kind}"
        elif track > 1:
            text = f"unknown track {track}"
        elif track != (kind > 0):
            text = f"a segment of type {kind} on track {track}"
        elif size < FRAME_HEAD:
            text = f"a frame of {size} octets is shorter than its head"
        elif size > self.frame_limit:
            text = f"a frame of {size} octets is larger than the maximum of {self.frame_limit}"
        else:
            text = f"channel {number} is above the highest of {self.channel_max - 1}"
        return CloseError(CloseCode.FRAMING_ERROR, text)

    def transfer_frames(
        self, session: Session, d: bytes | bytearray, pos: int, end: int, n: int
    ) -> int:
        """Handle a transfer at ``pos``; return what follows, or -1 - ``pos`` to wait for more.

        When all its segments are single frames in the buffer it is handed on with offsets. Else,
        unless it is small enough to wait for, its frames are put together one by one.
        """
        at = end
        header = end
        header_end = end
        body = end
        number = session.channel
        wait = n - at < 12
        if not wait and d[at + 1] == 2:
            size = get16(d, at + 2)
            if (
                (d[at] | 4) == 7
                and get16(d, at + 6) == number
                and d[at + 5] == 1
                and 12 <= size <= self.frame_limit
            ):
                header = at + 12
                header_end = at + size
                at = header_end
                body = at
                wait = at > n
                if not wait and d[header - 12] == 7:
                    return self.transfer(session, d, pos, end, header, header_end, at, at)
                if not wait:
                    wait = n - at < 12
        if not wait and d[at + 1] == 3:
            size = get16(d, at + 2)
            if (
                d[at] == 7
                and get16(d, at + 6) == number
                and d[at + 5] == 1
                and 12 <= size <= self.frame_limit
                and size - 12 <= self.body_max
            ):
                body = at + 12
                at += size
                if at <= n:
                    return self.transfer(session, d, pos, end, header, header_end, body, at)
                wait = True
        if wait and n - pos < INLINE_WAIT_MAX:
            return -1 - pos
        session.command_frame(d[pos], 1, d, pos + 12, end)
        return end

    def transfer(
        self,
        session: Session,
        d: bytes | bytearray,
        pos: int,
        end: int,
        header: int,
        header_end: int,
        body: int,
        at: int,
    ) -> int:
        """Hand a transfer on that ends at ``at``; return that."""
        self.after = at
        session.command_id = session.next_in
        session.sync = d[pos + 15] & 1 != 0
        session.next_in = (session.next_in + 1) & SERIAL_MASK
        session.cursor = session.next_in
        self.current = 0x0401
        self.on_transfer(session, d, pos + 14, end, header, header_end, body, at)
        return at

    # --- Controls ---------------------------------------------------------------------------

    def control_frame(
        self,
        session: Session | None,
        flags: int,
        number: int,
        d: bytes | bytearray,
        lo: int,
        hi: int,
    ) -> None:
        """A frame of the control track came."""
        if (
            session is not None
            and session.state == 2
            and flags == 15
            and hi - lo > 6
            and get16(d, lo) == 0x020A
            and d[lo + 2] | 2 == 3
            and d[lo + 3] == 0
            and get16(d, lo + 4) == hi - lo - 6
            and not self.controls
            and check_ranges(d, lo + 6, hi)
            and self.state_number == 8
        ):
            session.completed_frame(d, lo, hi)
            return
        if flags & 12 != 12:
            raise CloseError(CloseCode.FRAMING_ERROR, "a control has one segment")
        begun = self.controls.pop(number, None)
        if (begun is None) != (flags & 2 != 0):
            raise CloseError(CloseCode.FRAMING_ERROR, "a control's frames are out of order")
        payload = cut(d, lo, hi)
        if begun is not None:
            self.control_octets -= len(begun)
            payload = begun + payload
        if not flags & 1:
            self.control_octets += len(payload)
            self.control_empty += hi == lo
            if self.control_octets > CONTROL_OCTETS_MAX or self.control_empty > EMPTY_FRAMES_MAX:
                raise CloseError(CloseCode.FRAMING_ERROR, "a control does not end")
            self.controls[number] = payload
            return
        if not self.controls:
            self.control_empty = 0
        self.control(session, number, payload)

    def control(self, session: Session | None, number: int, payload: bytes) -> None:
        """A control is there as a whole."""
        closing = self.state_number == 9
        if payload[:1] == b"\x01":
            if closing and payload[:2] != b"\x01\x0b" and payload[:2] != b"\x01\x0c":
                return
            control = decode_control(payload)
            self.connection_control(number, control)
            return
        if closing:
            return
        if self.state_number != 8:
            raise CloseError(CloseCode.FRAMING_ERROR, "a session before connection.open-ok")
        control = decode_control(payload)
        if isinstance(control, SessionAttach):
            self.peer_attaches(session, number, control)
        elif isinstance(control, SessionAttached):
            if session is not None and session.state == 1 and control.name == session.name:
                session.state = 2
                session.refresh()
                if session.news:
                    session.note()
                self.on_attached(session)
            elif session is None or control.name != session.name:
                raise CloseError(CloseCode.FRAMING_ERROR, "session.attached was not asked for")
        elif isinstance(control, SessionDetach):
            self.peer_detaches(session, number, control)
        elif isinstance(control, SessionDetached):
            if session is not None and (
                control.name == session.name or control.code == DetachCode.NOT_ATTACHED
            ):
                code = control.code
                if code != DetachCode.NORMAL and session.state == 2:
                    session.tell()
                self.let_go(session, 0 if code is None else int(code))
        elif session is None:
            self.not_attached(number)
        elif session.state != 3 or not session.ended:
            session.on_control(control)

    def connection_control(self, number: int, control: Control) -> None:
        """A control of the connection class came."""
        if isinstance(control, ConnectionClose):
            if self.state_number == 0:
                raise CloseError(CloseCode.FRAMING_ERROR, "connection.close before anything else")
            self.state_number = 10
            self.write_control(number, ConnectionCloseOk())
            self.on_control(number, control)
            self.on_closed()
            return
        if isinstance(control, ConnectionCloseOk):
            if self.state_number != 9:
                raise CloseError(CloseCode.FRAMING_ERROR, "connection.close-ok without a close")
            self.state_number = 10
            self.on_control(number, control)
            self.on_closed()
            return
        if isinstance(control, ConnectionHeartbeat):
            self.on_heartbeat()
            return
        if number:
            raise CloseError(CloseCode.FRAMING_ERROR, f"{control.NAME} on channel {number}")
        self.advance_state(CLIENT if self.is_server else SERVER, control)
        if self.state_number != 10 or isinstance(control, ConnectionRedirect):
            self.on_control(number, control)
            if self.state_number == 10:
                self.on_closed()

    def advance_state(self, sender: Role, control: Control) -> None:
        """Let a control of the opening move the state, or refuse it."""
        following = HANDSHAKE.get((self.state_number, sender, control.NAME))
        if following is None:
            raise CloseError(
                CloseCode.FRAMING_ERROR,
                f"{sender.value} sent {control.NAME} while {self.state.name}",
            )
        if isinstance(control, ConnectionStart):
            self.mechanisms = list(control.mechanisms or ())
        elif isinstance(control, ConnectionStartOk):
            if self.is_server and control.mechanism not in self.mechanisms:
                log.warning("a client chose a mechanism that was not offered")
                self.on_not_offered(control.mechanism or "")
                self.vanish()
                return
        elif isinstance(control, ConnectionTune):
            if (
                sender is self.role
                and control.heartbeat_max is not None
                and control.heartbeat_min is None
            ):
                raise CloseError(CloseCode.FRAMING_ERROR, "heartbeat-max without heartbeat-min")
            self.offer = control
        elif isinstance(control, ConnectionTuneOk):
            wrong = self.check_tune(control)
            if wrong:
                if sender is self.role:
                    raise CloseError(CloseCode.FRAMING_ERROR, wrong)
                log.warning("tune-ok is out of range: %s", wrong)
                self.vanish()
                return
            self.tune(control)
        elif isinstance(control, ConnectionOpenOk):
            self.frame_limit = self.offered_frame_size
        self.state_number = following

    def check_tune(self, chosen: ConnectionTuneOk) -> str:
        """What is wrong with a tune-ok; empty when it is within what was offered."""
        offer = self.offer
        assert offer is not None
        size = chosen.max_frame_size
        most = offer.channel_max
        if most is not None and chosen.channel_max is not None and chosen.channel_max > most:
            return f"channel-max {chosen.channel_max} above {most}"
        if size is not None:
            if size < MAX_FRAME_MIN:
                return f"max-frame-size {size} below {MAX_FRAME_MIN}"
            if offer.max_frame_size is not None and size > offer.max_frame_size:
                return f"max-frame-size {size} above {offer.max_frame_size}"
        if chosen.heartbeat:
            if offer.heartbeat_min is None:
                return "a heartbeat where none was offered"
            if chosen.heartbeat < offer.heartbeat_min:
                return f"heartbeat {chosen.heartbeat} below {offer.heartbeat_min}"
            if offer.heartbeat_max is not None and chosen.heartbeat > offer.heartbeat_max:
                return f"heartbeat {chosen.heartbeat} above {offer.heartbeat_max}"
        return ""

    def tune(self, chosen: ConnectionTuneOk) -> None:
        """Adopt what was agreed on."""
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

    # --- Attaching --------------------------------------------------------------------------

    def peer_attaches(self, session: Session | None, number: int, control: SessionAttach) -> None:
        """The peer asks for a session on a channel."""
        name = control.name
        if name is None:
            raise CloseError(CloseCode.FRAMING_ERROR, "session.attach without a name")
        if session is not None:
            if session.name == name and session.state != 3:
                self.write_control(number, SessionAttached(name=name))
            else:
                self.write_control(
                    number, SessionDetached(name=name, code=DetachCode.TRANSPORT_BUSY)
                )
            return
        try:
            found = self.find_session(number, name, bool(control.force))
        except DetachError as error:
            self.write_control(number, SessionDetached(name=name, code=error.detach_code))
            return
        found.attach(self, number)
        self.write_control(number, SessionAttached(name=name))
        self.on_attached(found)
        if found.connection is self:
            found.begin()

    def peer_detaches(self, session: Session | None, number: int, control: SessionDetach) -> None:
        """The peer asks for the end of an attachment."""
        if session is None or session.name != control.name:
            self.write_control(
                number, SessionDetached(name=control.name, code=DetachCode.NOT_ATTACHED)
            )
            return
        session.tell()
        self.write_control(number, SessionDetached(name=session.name, code=DetachCode.NORMAL))
        self.let_go(session, 0)

    def not_attached(self, number: int) -> None:
        """Something came on a channel without a session: it is discarded."""
        self.write_control(number, SessionDetached(name=b"", code=DetachCode.NOT_ATTACHED))

    def let_go(self, session: Session, code: int) -> None:
        """A session leaves its channel."""
        number = session.channel
        session.leave()
        if self.session is session:
            self.session = None
        self.on_detached(session, number, code)

    def evict(self, session: Session) -> None:
        """Another connection takes the session over."""
        self.write_control(
            session.channel, SessionDetached(name=session.name, code=DetachCode.SESSION_BUSY)
        )
        self.let_go(session, int(DetachCode.SESSION_BUSY))

    def attach(self, session: Session, channel: int, force: bool = False) -> None:
        """Ask the peer for a session on a channel; commands may follow at once.

        Raises:
            CloseError: the connection is not open, the channel is used or too high.
        """
        if self.state_number != 8 or channel in self.attached or channel >= self.channel_max:
            raise CloseError(CloseCode.FRAMING_ERROR, f"channel {channel} cannot be used")
        if session.connection is not None or session.ended:
            raise CloseError(CloseCode.FRAMING_ERROR, "the session is attached, or over")
        session.attach(self, channel)
        session.state = 1
        session.refresh()
        self.write_control(channel, SessionAttach(name=session.name, force=force))
        session.begin()

    def find_session(self, number: int, name: bytes, force: bool) -> Session:
        """The session that a client asks for; DetachError when it cannot have it."""
        if self.sessions is None:
            raise DetachError(DetachCode.SESSION_BUSY, "no sessions are offered here")
        found: Session = self.sessions.find(self.principal(), name, force)
        return found

    def principal(self) -> Any:
        """Whose sessions these are: names of different principals' sessions do not clash."""
        return self.user

    # --- Errors -----------------------------------------------------------------------------

    def fail(self, error: CloseError | DetachError | ExecutionError) -> None:
        """End what the error says, and tell the peer why."""
        session = self.session
        if isinstance(error, ExecutionError) and session is not None:
            if session.connection is self:
                session.fail(error)
            return
        if isinstance(error, DetachError) and session is not None:
            if session.connection is self and session.state != 3:
                session.tell()
                log.info("session detached: %s", error)
                self.write_control(
                    session.channel,
                    SessionDetached(name=session.name, code=error.detach_code),
                )
                self.let_go(session, int(error.detach_code))
            return
        if not isinstance(error, CloseError):
            error = CloseError(CloseCode.CONNECTION_FORCED, error.text)
        if error.close_code == CloseCode.FRAMING_ERROR:
            self.deaf = True
        if self.state_number >= 9:
            return
        if self.state_number == 0:
            self.refuse_header()
            return
        self.close_reason = error
        self.state_number = 9
        self.held = b""
        self.write_control(
            0, ConnectionClose(reply_code=error.close_code, reply_text=error.reply_text)
        )
        self.on_failed(error)

    def vanish(self) -> None:
        """End the connection without another word."""
        self.state_number = 10
        self.deaf = True
        self.held = b""
        self.on_closed()

    def explain(self, error: Exception) -> CloseError | DetachError | ExecutionError:
        """What to tell the peer of an error that is none of the protocol's."""
        if isinstance(error, MalformedError):
            return CloseError(CloseCode.FRAMING_ERROR, str(error))
        log.error("internal error", exc_info=error)
        if self.session is not None and self.current:
            return ExecutionError(ExecutionCode.INTERNAL_ERROR, "internal error")
        return CloseError(CloseCode.CONNECTION_FORCED, "internal error")

    # --- Sending ----------------------------------------------------------------------------

    def send_control(self, control: Control) -> None:
        """Send a control of the connection class on channel 0.

        Raises:
            CloseError: the control is out of order here; nothing was written.
        """
        if isinstance(control, ConnectionClose):
            if self.state_number >= 9:
                raise CloseError(CloseCode.FRAMING_ERROR, "the connection is closed")
            self.state_number = 9
        elif isinstance(control, ConnectionCloseOk):
            self.state_number = 10
        elif not isinstance(control, ConnectionHeartbeat):
            self.advance_state(self.role, control)
        self.write_control(0, control)
        if self.held and not self.handling and not self.our_turn():
            self.feed_held(b"")

    def write_control(self, number: int, control: Control) -> None:
        """Append a control."""
        self.write_segment(0, True, number, encode_control(control))

    def send_heartbeat(self) -> None:
        """Send connection.heartbeat."""
        self.write_control(0, ConnectionHeartbeat())

    def announce(self) -> None:
        """Tell the peer what sessions have become complete: for who completes between reads."""
        newsy = self.newsy
        if newsy:
            self.newsy = []
            for session in newsy:
                if session.connection is self:
                    session.tell()

    def lost(self) -> None:
        """The transport is gone: every session is detached."""
        for session in list(self.attached.values()):
            self.let_go(session, 0)

    # --- Upcalls ----------------------------------------------------------------------------

    def on_header(self) -> None:
        """Server: the client's protocol header is accepted; send connection.start."""

    def on_rejected(self, header: bytes) -> None:
        """Client: the server answered with another version's header; the connection is over."""
        self.events.append(HeaderRejected(header))

    def on_control(self, number: int, control: Control) -> None:
        """A connection control came that moved the state."""
        self.events.append(ControlReceived(number, control))

    def on_attached(self, session: Session) -> None:
        """A session is attached: as the peer asked, or as we asked."""
        self.events.append(Attached(session.name, session.channel))

    def on_heartbeat(self) -> None:
        """A heartbeat came."""
        self.events.append(HeartbeatReceived())

    def on_not_offered(self, mechanism: str) -> None:
        """The client chose a mechanism that it was not offered; the connection ends."""

    def on_failed(self, error: CloseError) -> None:
        """The peer broke a rule; connection.close is written."""
        self.events.append(Failed(error))

    def on_closed(self) -> None:
        """Nothing more will come: the transport may go once the output is sent."""

    def turn_over(self) -> None:
        """All complete frames of one read were handled."""
        self.announce()


def check_ranges(d: bytes | bytearray, lo: int, hi: int) -> bool:
    """Tell whether ``d[lo:hi]`` is ranges of a sequence-set, in order and not touching."""
    if (hi - lo) & 7 or lo == hi:
        return False
    base = get32(d, lo)
    before = -2
    while lo < hi:
        first = (get32(d, lo) - base) & SERIAL_MASK
        last = (get32(d, lo + 4) - base) & SERIAL_MASK
        if first < before + 2 or last < first or last > SERIAL_HALF:
            return False
        before = last
        lo += 8
    return True
