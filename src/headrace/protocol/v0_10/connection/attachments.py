# SPDX-License-Identifier: Apache-2.0
"""The sessions that are attached to a connection of AMQP 0-10, by their channels.

A server finds the session that its client asks for in its :class:`Sessions`; a client brings its
own. One that leaves its channel goes on without a connection, or ends, as was agreed on.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.output import BufferPool
    from headrace.protocol.v0_10.attachment import Carrier
    from headrace.protocol.v0_10.session.session import Session
    from headrace.protocol.v0_x.handshake import STATE_AWAITING_HEADER, STATE_OPEN

from headrace.protocol.codec_0_10 import (
    Control,
    SessionAttach,
    SessionAttached,
    SessionDetach,
    SessionDetached,
    encode_control,
)
from headrace.protocol.errors_0_10 import CloseError, DetachError
from headrace.protocol.v0_10.events import Attached
from headrace.spec.reply_0_10 import CloseCode, DetachCode


class Attachments(Carrier):
    """A connection, as far as it has to do with sessions."""

    def __init__(self, pool: BufferPool, channel_max: int, sessions: Any) -> None:
        Carrier.__init__(self, pool)
        self.channel_max = channel_max
        self.sessions = sessions
        self.state_number = STATE_AWAITING_HEADER
        self.session: Session | None = None  # Whose command is being handled, for errors.

    # --- The peer attaches and detaches -------------------------------------------------------

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

    def peer_attached(self, session: Session | None, control: SessionAttached) -> None:
        """The peer has the session that we asked for."""
        if session is not None and session.state == 1 and control.name == session.name:
            session.state = 2
            session.refresh()
            if session.news:
                session.note()
            self.on_attached(session)
        elif session is None or control.name != session.name:
            raise CloseError(CloseCode.FRAMING_ERROR, "session.attached was not asked for")

    def peer_detached(self, session: Session | None, control: SessionDetached) -> None:
        """The peer let a session go."""
        if session is not None and (
            control.name == session.name or control.code == DetachCode.NOT_ATTACHED
        ):
            code = control.code
            if code != DetachCode.NORMAL and session.state == 2:
                session.tell()
            self.let_go(session, 0 if code is None else int(code))

    def not_attached(self, number: int) -> None:
        """Something came on a channel without a session: it is discarded."""
        self.write_control(number, SessionDetached(name=b"", code=DetachCode.NOT_ATTACHED))

    def find_session(self, number: int, name: bytes, force: bool) -> Session:
        """The session that a client asks for; DetachError when it cannot have it."""
        if self.sessions is None:
            raise DetachError(DetachCode.SESSION_BUSY, "no sessions are offered here")
        found: Session = self.sessions.find(self.principal(), name, force)
        return found

    def principal(self) -> Any:
        """Whose sessions these are: names of different principals' sessions do not clash."""
        return self.user

    # --- We attach and detach -----------------------------------------------------------------

    def attach(self, session: Session, channel: int, force: bool = False) -> None:
        """Ask the peer for a session on a channel; commands may follow at once.

        Raises:
            CloseError: the connection is not open, the channel is used or too high.
        """
        if (
            self.state_number != STATE_OPEN
            or channel in self.attached
            or channel >= self.channel_max
        ):
            raise CloseError(CloseCode.FRAMING_ERROR, f"channel {channel} cannot be used")
        if session.connection is not None or session.ended:
            raise CloseError(CloseCode.FRAMING_ERROR, "the session is attached, or over")
        session.attach(self, channel)
        session.state = 1
        session.refresh()
        self.write_control(channel, SessionAttach(name=session.name, force=force))
        session.begin()

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

    def lost(self) -> None:
        """The transport is gone: every session is detached."""
        for session in list(self.attached.values()):
            self.let_go(session, 0)

    # --- Telling ------------------------------------------------------------------------------

    def announce(self) -> None:
        """Tell the peer what sessions have become complete: for who completes between reads."""
        newsy = self.newsy
        if newsy:
            self.newsy = []
            for session in newsy:
                if session.connection is self:
                    session.tell()

    def write_control(self, number: int, control: Control) -> None:
        """Append a control."""
        self.write_segment(0, True, number, encode_control(control))

    def on_attached(self, session: Session) -> None:
        """A session is attached: as the peer asked, or as we asked."""
        self.events.append(Attached(session.name, session.channel))
