# SPDX-License-Identifier: Apache-2.0
"""Sessions of AMQP 0-10, for both roles, without I/O: attaching, controls, and how they end.

Theory of operation. A session is a numbered sequence of commands in each direction. It outlives the
connection that it is attached to. It holds two parts:

* :class:`SentCommands`, the commands that it sends (:mod:`headrace.protocol.v0_10.session.sent`);
* :class:`ReceivedCommands`, those that it receives
  (:mod:`headrace.protocol.v0_10.session.received`).

Its connection knows it as a :class:`SessionPort` (:mod:`headrace.protocol.v0_10.session.port`).

A session attached again asks the peer what it expects, and sends that again, or a gap where nothing
was kept (:mod:`headrace.protocol.v0_10.session.replay`).

What the peer does wrong is raised where the rule is broken: a :class:`DetachError` ends the
attachment, an :class:`ExecutionError` the session, a :class:`CloseError` the connection.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.v0_10.session.port import ATTACHED as C_ATTACHED
    from headrace.protocol.v0_10.session.port import ATTACHING as C_ATTACHING
    from headrace.protocol.v0_10.session.port import DETACHED as C_DETACHED
    from headrace.protocol.v0_10.session.port import DETACHING as C_DETACHING
    from headrace.protocol.v0_10.session.port import SessionPort
    from headrace.protocol.v0_10.session.received import ReceivedCommands
    from headrace.protocol.v0_10.session.sent import SentCommands

from headrace.protocol.codec_0_10 import (
    Command,
    ExecutionException,
    ExecutionResult,
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
    Struct,
)
from headrace.protocol.errors_0_10 import CloseError, ExecutionError
from headrace.protocol.v0_10.session.replay import resume
from headrace.spec.reply_0_10 import CloseCode


class Session(SessionPort):
    """One side of one session: what it has received and sent, and what of it is complete."""

    def __init__(self, name: bytes, *, lossless: bool = False) -> None:
        """``name`` has at most 65535 bytes. ``lossless``: never send what cannot be kept."""
        SessionPort.__init__(self, name)
        self.sent = SentCommands(self, lossless)
        self.received = ReceivedCommands(self, self.sent)
        self.timeout_s: int | None = 0  # How long it is kept when detached; None is for ever.
        self.registry: Any = None  # The Sessions that know it by name.

    # --- Commands -----------------------------------------------------------------------------

    def send_command(
        self,
        command: Command,
        sync: bool = False,
        header: bytes = b"",
        body: bytes | tuple[bytes, ...] = b"",
    ) -> int:
        """Send a command and return its id, as :meth:`SentCommands.send_command`."""
        return self.sent.send_command(command, sync, header, body)

    def send_result(self, command_id: int, value: Struct | None) -> int:
        """Send the result of a command of the peer's."""
        return self.sent.send_command(ExecutionResult(command_id=command_id, value=value))

    def complete(self, number: int) -> None:
        """The command with this id is executed, its effects are as durable as it asked for."""
        self.received.complete(number)

    def complete_range(self, lo: int, hi: int) -> None:
        """The commands from ``lo`` to ``hi``, both included, are executed."""
        self.received.complete_range(lo, hi)

    def send_completed(self) -> None:
        """Send session.completed and session.known-completed."""
        self.received.send_completed()

    def refresh(self) -> None:
        """Work out again whether the next command may take the fast path."""
        self.received.refresh()

    def command_frame(self, flags: int, kind: int, d: bytes | bytearray, lo: int, hi: int) -> None:
        self.received.command_frame(flags, kind, d, lo, hi)

    def completed_frame(self, d: bytes | bytearray, lo: int, hi: int) -> None:
        self.sent.completed_frame(d, lo, hi)

    # --- Attachment ---------------------------------------------------------------------------

    def attach(self, connection: Any, channel: int) -> None:
        """The session is used on a channel of ``connection`` from now on."""
        self.connection = connection
        self.channel = channel
        self.state = C_ATTACHED
        self.received.ready = False
        self.cursor = self.next_in
        self.received.assembly.clear()
        self.refresh()
        connection.attached[channel] = self
        connection.last = None
        self.is_listed = False
        if self.received.done.low > self.received.known_to_peer.low or self.received.done.starts:
            self.has_unreported = True
            self.announce_later()

    # Keeps 0-10/s040, 0-10/s041.
    def begin(self) -> None:
        """Say where our commands go on, or ask when some may have been lost.

        A client that has received something asks in any case: a broker that was restarted has
        forgotten the session, and counts its own commands from the beginning.
        """
        sent = self.sent
        if (
            sent.completed.low == sent.completed.unwrap(sent.next_id)
            and not sent.kept
            and (self.connection.is_server or not self.received.known)
        ):
            sent.send_command_point(sent.next_id, 0)
        else:
            sent.resuming = True
            sent.write_control(SessionFlush(expected=True))

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
        self.received.ready = False
        self.has_unreported = False
        self.sent.leave()
        self.received.assembly.clear()
        self.refresh()
        if self.ended or not self.sent.keeps:
            self.end()
        elif self.registry is not None:
            self.registry.on_detached(self)

    def end(self) -> None:
        """End the session: it cannot be attached again. May be called more than once."""
        self.ended = True
        self.sent.forget_all()
        if self.registry is not None:
            registry = self.registry
            self.registry = None
            registry.forget(self)

    def set_timeout(self, timeout_s: int | None) -> None:
        """Adopt the timeout that was granted, in seconds; None is for ever."""
        self.timeout_s = timeout_s
        self.sent.keeps = timeout_s is None or timeout_s > 0
        if not self.sent.keeps:
            self.sent.forget_all()

    # --- Controls -----------------------------------------------------------------------------

    def on_control(self, control: Any) -> None:
        """A session control came, other than those that attach and detach.

        Nothing follows our session.detach: it could reach the channel's next session.
        """
        if isinstance(control, SessionCommandPoint):
            if control.command_id is None or control.command_offset is None:
                raise CloseError(CloseCode.FRAMING_ERROR, "session.command-point without a point")
            self.received.command_point(control.command_id, control.command_offset)
        elif isinstance(control, SessionCompleted):
            if control.commands is not None:
                for lo, hi in control.commands:
                    self.sent.peer_completed(lo, hi)
                    if control.timely_reply or not self.connection.suppress_known_completed:
                        self.sent.add_known_completed(lo, hi)
        elif isinstance(control, SessionKnownCompleted):
            if control.commands is not None:
                for lo, hi in control.commands:
                    self.received.on_known_completed(lo, hi)
        elif isinstance(control, SessionConfirmed):
            if control.commands is not None:
                for lo, hi in control.commands:
                    self.sent.forget_kept(lo, hi)
        elif isinstance(control, SessionFlush):
            if self.state != C_DETACHING:
                self.received.on_flush(control)
        elif isinstance(control, SessionGap):
            if control.commands is not None:
                for lo, hi in control.commands:
                    self.received.on_gap(lo, hi)
        elif isinstance(control, SessionExpected):
            if self.state != C_DETACHING:
                resume(self, control)
        elif isinstance(control, SessionRequestTimeout):
            # A broker caps it: ``Sessions.grant`` of headrace.protocol.v0_10.session.registry.
            granted = self.connection.choose_timeout(self, control.timeout)
            self.set_timeout(granted)
            self.sent.write_control(SessionTimeout(timeout=granted))
        elif isinstance(control, SessionTimeout):
            self.set_timeout(control.timeout)
            self.connection.on_session_control(self, control)
        else:
            raise CloseError(CloseCode.FRAMING_ERROR, f"{control.NAME} out of place")

    # --- Ends ---------------------------------------------------------------------------------

    def detach(self) -> None:
        """Ask for the end of the attachment."""
        if self.state in (C_ATTACHED, C_ATTACHING):
            self.send_completed()
            self.sent.write_control(SessionDetach(name=self.name))
            self.state = C_DETACHING
            self.refresh()

    def fail(self, error: ExecutionError) -> None:
        """End the session, and tell the peer why: execution.exception, then session.detach."""
        if self.state != C_ATTACHED:
            self.ended = True
            return
        self.send_completed()
        self.error = error
        self.ended = True
        connection = self.connection
        codes = connection.current
        self.sent.resuming = False
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
        self.sent.write_control(SessionDetach(name=self.name))
        self.state = C_DETACHING
        self.received.assembly.clear()
        self.refresh()
        connection.on_session_failed(self, error)
