# SPDX-License-Identifier: Apache-2.0
"""Sessions of AMQP 0-10, for both roles, without I/O: attaching, controls, and how they end.

Theory of operation. A session is a numbered sequence of commands in each direction. It outlives the
connection that it is attached to. It holds two parts:

* :class:`SentCommands`, the commands that it sends (:mod:`headrace.protocol.v0_10.session.sent`);
* :class:`ReceivedCommands`, those that it receives
  (:mod:`headrace.protocol.v0_10.session.received`).

Its connection uses it as a :class:`SessionPort` (:mod:`headrace.protocol.v0_10.session.port`).

A session that is attached again requests the commands that the peer expects, and sends them again,
or a gap for those that were not kept (:mod:`headrace.protocol.v0_10.session.replay`).

An error of the peer is raised where the rule is broken: a
:class:`~headrace.protocol.errors_0_10.DetachError` ends the attachment, an :class:`ExecutionError`
the session, a :class:`CloseError` the connection.
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
    """One side of a session: the commands received and sent, and their completion."""

    def __init__(self, name: bytes, *, lossless: bool = False) -> None:
        """``name`` has at most 65535 bytes; ``lossless`` is as in :class:`SentCommands`."""
        SessionPort.__init__(self, name)
        self.sent = SentCommands(self, lossless)
        self.received = ReceivedCommands(self, self.sent)
        self.timeout_s: int | None = 0  # The time for which it is kept detached; None is no limit.
        self.registry: Any = None  # The Sessions that hold it by name; None after its end.

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
        """Complete an executed command, whose effects are as durable as it requires."""
        self.received.complete(number)

    def complete_range(self, first_id: int, last_id: int) -> None:
        """Complete the executed commands from ``first_id`` to ``last_id``, both included."""
        self.received.complete_range(first_id, last_id)

    def send_completed(self) -> None:
        """Send session.completed and session.known-completed."""
        self.received.send_completed()

    def refresh(self) -> None:
        """Update ``takes_fast_path``: whether the next command may take the fast path."""
        self.received.refresh()

    def command_frame(
        self, flags: int, segment_type: int, buffer: bytes | bytearray, start: int, end: int
    ) -> None:
        self.received.command_frame(flags, segment_type, buffer, start, end)

    def completed_frame(self, buffer: bytes | bytearray, start: int, end: int) -> None:
        self.sent.completed_frame(buffer, start, end)

    # --- Attachment ---------------------------------------------------------------------------

    def attach(self, connection: Any, channel: int) -> None:
        """Attach the session to a channel of ``connection``."""
        self.connection = connection
        self.channel = channel
        self.state = C_ATTACHED
        self.received.has_command_point = False
        self.cursor = self.next_in
        self.received.assembly.clear()
        self.refresh()
        connection.attached[channel] = self
        connection.last = None
        self.is_listed = False
        if (
            self.received.completed.low > self.received.known_to_peer.low
            or self.received.completed.starts
        ):
            self.has_unreported = True
            self.announce_later()

    def begin(self) -> None:
        """Send session.command-point; if commands may be lost, request session.expected first.

        A client with received commands requests it in any case: a restarted broker has lost the
        session, and counts its own commands from the beginning.
        """
        sent = self.sent
        if (
            sent.completed.low == sent.completed.unwrap(sent.next_id)
            and not sent.kept
            and (self.connection.is_server or not self.received.has_state)
        ):
            sent.send_command_point(sent.next_id, 0)
        else:
            sent.is_resuming = True
            sent.write_control(SessionFlush(expected=True))

    def leave_channel(self) -> None:
        """Detach the session from its channel; a session without a timeout ends."""
        connection = self.connection
        if connection is None:
            return
        del connection.attached[self.channel]
        connection.last = None
        self.connection = None
        self.channel = 0
        self.state = C_DETACHED
        self.received.has_command_point = False
        self.has_unreported = False
        self.sent.clear_due()
        self.received.assembly.clear()
        self.refresh()
        if self.ended or not self.sent.keeps_for_replay:
            self.end()
        elif self.registry is not None:
            self.registry.on_detached(self)

    def end(self) -> None:
        """End the session, which cannot be attached again; a second call has no effect."""
        self.ended = True
        self.sent.drop_all()
        if self.registry is not None:
            registry = self.registry
            self.registry = None
            registry.remove(self)

    def set_timeout(self, timeout_s: int | None) -> None:
        """Adopt the granted timeout in seconds; None is no limit."""
        self.timeout_s = timeout_s
        self.sent.keeps_for_replay = timeout_s is None or timeout_s > 0
        if not self.sent.keeps_for_replay:
            self.sent.drop_all()

    # --- Controls -----------------------------------------------------------------------------

    def on_control(self, control: Any) -> None:
        """Handle a session control, except the ones that attach and detach.

        After a sent session.detach no control is sent, as the channel's next session could get it.
        """
        if isinstance(control, SessionCommandPoint):
            if control.command_id is None or control.command_offset is None:
                raise CloseError(CloseCode.FRAMING_ERROR, "session.command-point without a point")
            self.received.command_point(control.command_id, control.command_offset)
        elif isinstance(control, SessionCompleted):
            if control.commands is not None:
                for first_id, last_id in control.commands:
                    self.sent.peer_completed(first_id, last_id)
                    # Keeps 0-10/s049.
                    if control.timely_reply or not self.connection.suppress_known_completed:
                        self.sent.add_known_completed(first_id, last_id)
        elif isinstance(control, SessionKnownCompleted):
            if control.commands is not None:
                for first_id, last_id in control.commands:
                    self.received.on_known_completed(first_id, last_id)
        elif isinstance(control, SessionConfirmed):
            if control.commands is not None:
                for first_id, last_id in control.commands:
                    self.sent.drop_confirmed(first_id, last_id)
        elif isinstance(control, SessionFlush):
            if self.state != C_DETACHING:
                self.received.on_flush(control)
        elif isinstance(control, SessionGap):
            if control.commands is not None:
                for first_id, last_id in control.commands:
                    self.received.on_gap(first_id, last_id)
        elif isinstance(control, SessionExpected):
            if self.state != C_DETACHING:
                resume(self, control)
        elif isinstance(control, SessionRequestTimeout):
            # A broker caps it: ``Sessions.grant`` of headrace.protocol.v0_10.session.registry.
            # Keeps 0-10/s036.
            granted = self.connection.choose_timeout(self, control.timeout)
            self.set_timeout(granted)
            self.sent.write_control(SessionTimeout(timeout=granted))
        elif isinstance(control, SessionTimeout):
            self.set_timeout(control.timeout)
            self.connection.on_session_control(self, control)
        else:
            raise CloseError(CloseCode.FRAMING_ERROR, f"{control.NAME} out of place")

    # --- Detachment and failure ---------------------------------------------------------------

    def detach(self) -> None:
        """Send session.detach."""
        if self.state in (C_ATTACHED, C_ATTACHING):
            self.send_completed()
            self.sent.write_control(SessionDetach(name=self.name))
            self.state = C_DETACHING
            self.refresh()

    def fail(self, error: ExecutionError) -> None:
        """End the session with an error: send execution.exception, then session.detach."""
        if self.state != C_ATTACHED:
            self.ended = True
            return
        self.send_completed()
        self.error = error
        self.ended = True
        connection = self.connection
        codes = connection.current
        self.sent.is_resuming = False
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
