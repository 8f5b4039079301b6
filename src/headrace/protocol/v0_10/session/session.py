# SPDX-License-Identifier: Apache-2.0
"""Sessions of AMQP 0-10, for both roles, without I/O: attaching, controls, and how they end.

Theory of operation. A session is a numbered row of commands each way. It outlives the connection
that it is attached to. It is four classes on top of one another, each of which knows those below it
only:

* :class:`Attachable`, what it is to its connection (:mod:`headrace.protocol.v0_10.attachment`);
* :class:`SentCommands`, the row that goes out (:mod:`headrace.protocol.v0_10.session.sent`);
* :class:`ReceivedCommands`, the row that comes in
  (:mod:`headrace.protocol.v0_10.session.received`);
* :class:`Session`, the whole.

A session attached again asks the peer what it expects, and sends that again, or a gap where nothing
was kept (:mod:`headrace.protocol.v0_10.session.replay`).

What the peer does wrong is raised where the rule is broken: a :class:`DetachError` ends the
attachment, an :class:`ExecutionError` the session, a :class:`CloseError` the connection.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.v0_10.attachment import ATTACHED as C_ATTACHED
    from headrace.protocol.v0_10.attachment import ATTACHING as C_ATTACHING
    from headrace.protocol.v0_10.attachment import DETACHED as C_DETACHED
    from headrace.protocol.v0_10.attachment import DETACHING as C_DETACHING
    from headrace.protocol.v0_10.session.received import ReceivedCommands

from headrace.protocol.codec_0_10 import (
    ExecutionException,
    SessionCommandPoint,
    SessionCompleted,
    SessionConfirmed,
    SessionDetach,
    SessionExpected,
    SessionFlush,
    SessionGap,
    SessionKnownCompleted,
    SessionRequestTimeout,
    SessionTimeout,
)
from headrace.protocol.errors_0_10 import CloseError, ExecutionError
from headrace.protocol.v0_10.session.replay import resume
from headrace.spec.reply_0_10 import CloseCode


class Session(ReceivedCommands):
    """One side of one session: what it has received and sent, and what of it is complete."""

    def __init__(self, name: bytes, *, lossless: bool = False) -> None:
        """``name`` has at most 65535 octets. ``lossless``: never send what cannot be kept."""
        ReceivedCommands.__init__(self, name, lossless)
        self.timeout_s: int | None = 0  # How long it is kept when detached; None is for ever.
        self.registry: Any = None  # The Sessions that know it by name.

    # --- Attachment ---------------------------------------------------------------------------

    def attach(self, connection: Any, channel: int) -> None:
        """The session is used on a channel of ``connection`` from now on."""
        self.connection = connection
        self.channel = channel
        self.state = C_ATTACHED
        self.ready = False
        self.cursor = self.next_in
        self.assembly.clear()
        self.refresh()
        connection.attached[channel] = self
        connection.last = None
        self.listed = False
        if self.done.low > self.told.low or self.done.los:
            self.news = True
            self.note()

    def begin(self) -> None:
        """Say where our commands go on, or ask when some may have been lost."""
        if self.sent.low == self.sent.near(self.next_id) and not self.kept:
            self.point(self.next_id, 0)
        else:
            self.resuming = True
            self.write_control(SessionFlush(expected=True))

    def leave(self) -> None:
        """The session is detached from its channel; it goes on without one, or ends."""
        connection = self.connection
        if connection is None:
            return
        del connection.attached[self.channel]
        connection.last = None
        self.connection = None
        self.channel = 0
        self.state = C_DETACHED
        self.ready = False
        self.news = False
        self.resuming = False
        self.owed = False
        self.owed_more = None
        self.assembly.clear()
        self.refresh()
        if self.ended or not self.keeps:
            self.end()
        elif self.registry is not None:
            self.registry.detached(self)

    def end(self) -> None:
        """The session is over: nobody can come back to it. Called once, or more often."""
        self.ended = True
        self.forget_all()
        if self.registry is not None:
            registry = self.registry
            self.registry = None
            registry.forget(self)

    def set_timeout(self, timeout_s: int | None) -> None:
        """Adopt the timeout that was granted, in seconds; None is for ever."""
        self.timeout_s = timeout_s
        self.keeps = timeout_s is None or timeout_s > 0
        if not self.keeps:
            self.forget_all()

    # --- Controls -----------------------------------------------------------------------------

    def on_control(self, control: Any) -> None:
        """A session control came, other than those that attach and detach."""
        if isinstance(control, SessionCommandPoint):
            if control.command_id is None or control.command_offset is None:
                raise CloseError(CloseCode.FRAMING_ERROR, "session.command-point without a point")
            self.command_point(control.command_id, control.command_offset)
        elif isinstance(control, SessionCompleted):
            if control.commands is not None:
                for lo, hi in control.commands:
                    self.peer_completed(lo, hi)
                    if control.timely_reply or not self.connection.reticent:
                        self.owe(lo, hi)
        elif isinstance(control, SessionKnownCompleted):
            if control.commands is not None:
                for lo, hi in control.commands:
                    self.peer_knows(lo, hi)
        elif isinstance(control, SessionConfirmed):
            if control.commands is not None:
                for lo, hi in control.commands:
                    self.forget_kept(lo, hi)
        elif isinstance(control, SessionFlush):
            self.flushed(control)
        elif isinstance(control, SessionGap):
            if control.commands is not None:
                for lo, hi in control.commands:
                    self.gap(lo, hi)
        elif isinstance(control, SessionExpected):
            resume(self, control)
        elif isinstance(control, SessionRequestTimeout):
            granted = self.connection.choose_timeout(self, control.timeout)
            self.set_timeout(granted)
            self.write_control(SessionTimeout(timeout=granted))
        elif isinstance(control, SessionTimeout):
            self.set_timeout(control.timeout)
            self.connection.on_session_control(self, control)
        else:
            raise CloseError(CloseCode.FRAMING_ERROR, f"{control.NAME} out of place")

    # --- Ends ---------------------------------------------------------------------------------

    def detach(self) -> None:
        """Ask for the end of the attachment."""
        if self.state in (C_ATTACHED, C_ATTACHING):
            self.tell()
            self.write_control(SessionDetach(name=self.name))
            self.state = C_DETACHING
            self.refresh()

    def fail(self, error: ExecutionError) -> None:
        """End the session, and tell the peer why: execution.exception, then session.detach."""
        if self.state != C_ATTACHED:
            self.ended = True
            return
        self.tell()
        self.error = error
        self.ended = True
        connection = self.connection
        codes = connection.current
        self.resuming = False
        self.send_command(
            ExecutionException(
                error_code=error.error_code.value,
                command_id=self.command_id if codes else None,
                class_code=codes >> 8 if codes else None,
                command_code=codes & 255 if codes else None,
                field_index=error.field_index,
                description=error.text,
            ),
            sync=True,
        )
        self.write_control(SessionDetach(name=self.name))
        self.state = C_DETACHING
        self.assembly.clear()
        self.refresh()
        connection.on_session_failed(self, error)
