# SPDX-License-Identifier: Apache-2.0
"""session.attach and session.detach: the sessions of a 0-10 connection, by channel.

A server finds the session that its client requests in its
:class:`~headrace.protocol.v0_10.session.registry.Sessions`. A client attaches sessions that it has
made. A detached session is kept for its timeout, or ends if it has none.
"""

import cython

if not cython.compiled:
    from headrace.protocol.v0_10.session.port import ATTACHED as C_ATTACHED
    from headrace.protocol.v0_10.session.port import ATTACHING as C_ATTACHING
    from headrace.protocol.v0_10.session.port import DETACHING as C_DETACHING
    from headrace.protocol.v0_10.session.session import Session
    from headrace.protocol.v0_10.session_connection import SessionConnection
    from headrace.protocol.v0_x.handshake import STATE_OPEN

from headrace.protocol.codec_0_10 import (
    SessionAttach,
    SessionAttached,
    SessionDetach,
    SessionDetached,
)
from headrace.protocol.errors_0_10 import CloseError, DetachError
from headrace.spec.reply_0_10 import CloseCode, DetachCode


class Attachments:
    """Attaches sessions to a connection and detaches them, at the request of either peer."""

    def __init__(self, connection: SessionConnection) -> None:
        self.connection = connection

    # --- Requests of the peer ------------------------------------------------------------------

    # Keeps 0-10/s033, 0-10/s034.
    def handle_attach(self, session: Session | None, number: int, control: SessionAttach) -> None:
        """Handle session.attach: the peer requests a session on a channel.

        ``Sessions.find`` refuses a session that is attached to another channel.
        """
        connection = self.connection
        name = control.name
        if name is None:
            raise CloseError(CloseCode.FRAMING_ERROR, "session.attach without a name")
        if session is not None:
            if session.name == name and session.state != C_DETACHING:
                connection.write_control(number, SessionAttached(name=name))
            else:
                connection.write_control(
                    number, SessionDetached(name=name, code=DetachCode.TRANSPORT_BUSY)
                )
            return
        try:
            attached = connection.find_session(number, name, bool(control.force))
        except DetachError as error:
            connection.write_control(number, SessionDetached(name=name, code=error.detach_code))
            return
        attached.attach(connection, number)
        connection.write_control(number, SessionAttached(name=name))
        connection.on_attached(attached)
        if attached.connection is connection:
            attached.begin()

    def handle_detach(self, session: Session | None, number: int, control: SessionDetach) -> None:
        """Handle session.detach: the peer ends an attachment."""
        connection = self.connection
        if session is not None:
            connection.on_detaching(session)
        if session is None or session.name != control.name:
            connection.write_control(
                number, SessionDetached(name=control.name, code=DetachCode.NOT_ATTACHED)
            )
            return
        session.send_completed()
        connection.write_control(number, SessionDetached(name=session.name, code=DetachCode.NORMAL))
        connection.detach_session(session, 0)

    def handle_attached(self, session: Session | None, control: SessionAttached) -> None:
        """Handle session.attached: the peer has the session that this side requested."""
        if session is not None and session.state == C_ATTACHING and control.name == session.name:
            session.state = C_ATTACHED
            session.refresh()
            if session.has_unreported:
                session.announce_later()
            self.connection.on_attached(session)
        elif session is None or control.name != session.name:
            raise CloseError(CloseCode.FRAMING_ERROR, "session.attached was not asked for")

    def handle_detached(self, session: Session | None, control: SessionDetached) -> None:
        """Handle session.detached: the peer has ended an attachment."""
        if session is None:
            return
        if control.code == DetachCode.NOT_ATTACHED and session.state == C_ATTACHING:
            return  # It answers a control that was sent to the channel's last session.
        if control.name == session.name or control.code == DetachCode.NOT_ATTACHED:
            code = control.code
            if code != DetachCode.NORMAL and session.state == C_ATTACHED:
                session.send_completed()
            self.connection.detach_session(session, 0 if code is None else int(code))

    # --- Requests of this side ----------------------------------------------------------------

    def attach(self, session: Session, channel: int, force: bool = False) -> None:
        """Request a session on a channel from the peer; commands may follow at once.

        Raises:
            CloseError: the connection is not open, the channel is used or too high.
        """
        connection = self.connection
        if (
            connection.state_number != STATE_OPEN
            or channel in connection.attached
            or channel >= connection.channel_max
        ):
            raise CloseError(CloseCode.FRAMING_ERROR, f"channel {channel} cannot be used")
        if session.connection is not None or session.ended:
            raise CloseError(CloseCode.FRAMING_ERROR, "the session is attached, or over")
        session.attach(connection, channel)
        session.state = C_ATTACHING
        session.refresh()
        connection.write_control(channel, SessionAttach(name=session.name, force=force))
        session.begin()
