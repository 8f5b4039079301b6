# SPDX-License-Identifier: Apache-2.0
"""The commands that a session of AMQP 0-10 receives: their ids, and which are complete.

Incoming commands are numbered by counting from the last command-point. Commands that were received
before are duplicates of a replay and are dropped. Commands that complete in order cost one
comparison each; :class:`CompletedIds` records ranges only for those out of order.

The owner of the connection executes the commands: it gets them by the upcalls of
:class:`~headrace.protocol.v0_10.session_connection.SessionConnection`, and calls
:meth:`ReceivedCommands.complete` once a command is executed, at once or later. The connection sends
session.completed once for each read.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.v0_10.assembly import BEGINS as C_BEGINS
    from headrace.protocol.v0_10.assembly import BODY as C_BODY
    from headrace.protocol.v0_10.assembly import COMMAND as C_COMMAND
    from headrace.protocol.v0_10.assembly import HEADER as C_HEADER
    from headrace.protocol.v0_10.assembly import Assembly
    from headrace.protocol.v0_10.session.completed_ids import CompletedIds
    from headrace.protocol.v0_10.session.port import ATTACHED as C_ATTACHED
    from headrace.protocol.v0_10.session.port import DETACHING as C_DETACHING
    from headrace.protocol.v0_10.session.port import INLINE_BODY_MAX as C_INLINE_BODY_MAX
    from headrace.protocol.v0_10.session.port import SessionPort
    from headrace.protocol.v0_10.session.sent import SentCommands

from headrace.protocol.codec_0_10 import (
    Command,
    ExecutionException,
    ExecutionResult,
    ExecutionSync,
    SessionCompleted,
    SessionConfirmed,
    SessionExpected,
    decode_command,
)
from headrace.protocol.errors_0_10 import CloseError, ExecutionError, unknown_ids
from headrace.protocol.v0_x.content_frames import UNFINISHED_BODIES, UNFINISHED_BYTES_MIN
from headrace.spec.reply_0_10 import CloseCode, ExecutionCode
from headrace.wire.ranges import SequenceSet

COMMAND_BYTES_MAX = 262144  # The maximum size of a command segment.
HEADER_BYTES_MAX = 262144  # The maximum size of a header segment.
RUNNING_MAX = 1 << 20  # Received commands of one session that are not complete.
WAITING_SYNCS_MAX = 65536  # execution.sync commands that wait for earlier commands.
GAPS_AHEAD_MAX = 1024  # Ranges of ids that session.gap skips ahead of the next command.
TIMELY_AFTER = 4096  # Unacknowledged completed commands after which timely-reply is requested.
REPORTED_RANGES_MAX = 4096  # Ranges of one session.completed; further ranges follow later.

# The class and command codes of commands with a header and a body segment.
WITH_SEGMENTS = frozenset(bytes(c.CODE) for c in Command.__subclasses__() if c.SEGMENTS)

FILE_STAGE = b"\x09\x08"  # Its body may be too large for memory.

SERIAL_MASK = 0xFFFFFFFF  # A name: as a literal it would be an object when compiled.
SERIAL_HALF = 0x7FFFFFFF


class ReceivedCommands:
    """The sequence of commands that a session receives."""

    def __init__(self, session: SessionPort, sent: SentCommands) -> None:
        """``sent`` holds the sent commands of ``session``; it writes the controls."""
        self.session = session
        self.sent = sent
        self.has_state = False  # True once a command-point was received: execution state exists.
        self.has_command_point = False  # True once a command-point was received on this attachment.
        self.completed = CompletedIds(0)  # The complete commands.
        self.known_to_peer = CompletedIds(0)  # Commands whose completion the peer acknowledged.
        self.waiting_syncs: Any = None  # Unwrapped ids of execution.sync commands that wait.
        self.gaps_ahead: Any = None  # Unwrapped ranges after ``next_in`` that session.gap skips.
        self.assembly = Assembly()

    def refresh(self) -> None:
        """Update ``session.takes_fast_path``: whether the next command may take the fast path."""
        session = self.session
        session.takes_fast_path = (
            session.state == C_ATTACHED
            and self.has_command_point
            and not self.assembly.is_active
            and session.cursor == session.next_in
            and self.gaps_ahead is None
            and not session.ended
        )

    # --- Numbering ---------------------------------------------------------------------------

    def command_point(self, number: int, offset: int) -> None:
        """Handle session.command-point: the peer continues with byte ``offset`` of ``number``.

        :meth:`command_frame` and :meth:`Assembly.add` check that the next frame begins a command if
        ``offset`` is 0, and begins none otherwise.
        """
        session = self.session
        if not self.has_state:
            if offset:
                raise unknown_ids("a new session begins with the rest of a command")
            self.has_state = True
            session.next_in = number
            session.cursor = number
            self.completed = CompletedIds(number)
            self.known_to_peer = CompletedIds(number)
        ahead = (number - session.next_in) & SERIAL_MASK
        if 0 < ahead <= SERIAL_HALF:
            raise unknown_ids(f"command {number} was announced where {session.next_in} is due")
        self.has_command_point = True
        assembly = self.assembly
        if offset and ahead == 0:
            if (
                number != session.cursor
                or not assembly.is_active
                or assembly.payload_bytes != offset
            ):
                raise unknown_ids(f"the first {offset} octets of command {number} are unknown")
            return
        session.cursor = number
        if offset:
            assembly.follow()
        else:
            assembly.clear()
        self.refresh()

    def restart(self) -> None:
        """Restart at the last command-point, as the peer has lost the state of the session."""
        session = self.session
        self.has_state = self.has_command_point
        session.next_in = session.cursor
        session.has_unreported = False
        self.completed = CompletedIds(session.cursor)
        self.known_to_peer = CompletedIds(session.cursor)
        self.waiting_syncs = None
        self.gaps_ahead = None
        self.assembly.clear()
        self.refresh()

    # Keeps 0-10/s053, 0-10/s054, 0-10/s055.
    def on_gap(self, first_id: int, last_id: int) -> None:
        """Handle session.gap: the peer does not send these commands, or not again."""
        session = self.session
        if not self.has_state:
            raise unknown_ids("a gap in a session without commands")
        completed = self.completed
        low = completed.unwrap(first_id)
        high = low + ((last_id - first_id) & SERIAL_MASK)
        next_id = completed.unwrap(session.next_in)
        cursor = completed.unwrap(session.cursor)
        if low <= cursor <= high:
            self.assembly.clear()
            cursor = high + 1
        if low <= next_id <= high:
            next_id = high + 1
        elif low > next_id:
            self.add_gap_ahead(low, high)
        self.mark_complete(low, high)
        session.next_in = next_id & SERIAL_MASK
        session.cursor = cursor & SERIAL_MASK
        self.pass_gaps()
        session.has_unreported = True
        session.announce_later()

    def add_gap_ahead(self, low: int, high: int) -> None:
        """Record a gap that begins after the next command."""
        gaps = sorted([*(self.gaps_ahead or []), (low, high)])
        if len(gaps) > GAPS_AHEAD_MAX:
            raise ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, "too many gaps ahead")
        self.gaps_ahead = gaps

    def pass_gaps(self) -> None:
        """Pass over the gaps that begin at the next command."""
        session = self.session
        if self.gaps_ahead is not None:
            next_id = self.completed.unwrap(session.next_in)
            cursor = self.completed.unwrap(session.cursor)
            for low, high in self.gaps_ahead:
                if low <= cursor <= high:
                    cursor = high + 1
                if low <= next_id <= high:
                    next_id = high + 1
            remaining = [gap for gap in self.gaps_ahead if gap[1] >= next_id]
            self.gaps_ahead = remaining or None
            session.next_in = next_id & SERIAL_MASK
            session.cursor = cursor & SERIAL_MASK
        self.refresh()

    # --- Commands -----------------------------------------------------------------------------

    # Keeps 0-10/s037, 0-10/s038.
    def command_frame(
        self, flags: int, segment_type: int, buffer: bytes | bytearray, start: int, end: int
    ) -> None:
        """Handle a frame of the command track that does not take the fast path."""
        session = self.session
        if session.state == C_DETACHING or session.ended:
            return
        if not self.has_command_point:
            raise unknown_ids("commands before session.command-point")
        assembly = self.assembly
        if not assembly.is_active:
            if flags & C_BEGINS != C_BEGINS:
                raise CloseError(CloseCode.FRAMING_ERROR, "the beginning of a command is missing")
            assembly.begin(session.cursor != session.next_in, session.connection.pool)
            session.takes_fast_path = False
        if segment_type == C_HEADER and len(assembly.header) + end - start > HEADER_BYTES_MAX:
            self.refuse("a header segment is too large")
        if segment_type == C_COMMAND and len(assembly.command) + end - start > COMMAND_BYTES_MAX:
            self.refuse("a command segment is too large")
        if (
            segment_type == C_BODY
            and assembly.command[:2] == FILE_STAGE
            and not assembly.is_discarding
        ):
            self.find_sink()
        elif (
            segment_type == C_BODY
            and assembly.body_size + end - start > session.connection.body_max
        ):
            self.refuse(
                f"a body is larger than the maximum of {session.connection.body_max} octets"
            )
        elif (
            segment_type == C_BODY
            and (assembly.body_size + end - start) >> 20 != assembly.body_size >> 20
        ):
            self.check_unfinished()
        if not assembly.add(flags, segment_type, buffer, start, end):
            return
        if not assembly.is_last_segment:
            if segment_type == C_COMMAND and not assembly.is_discarding:
                self.check_segments(assembly.command)
            return
        self.dispatch_command()

    def check_unfinished(self) -> None:
        """Refuse a body if the unfinished bodies of all sessions exceed the limit."""
        connection = self.session.connection
        if not connection.is_server:
            return
        limit = max(UNFINISHED_BODIES * connection.body_max, UNFINISHED_BYTES_MIN)
        total = 0
        for session in connection.attached.values():
            if session.received.assembly.sink is None:
                total += session.received.assembly.body_size
        if total > limit:
            self.refuse(
                f"the unfinished bodies of this connection have {total} octets, more than {limit}"
            )

    def find_sink(self) -> None:
        """Get the sink of the body of a file.stage, which is not kept in memory."""
        session = self.session
        assembly = self.assembly
        if assembly.sink is not None or assembly.body_size:
            return
        number = session.command_id
        try:
            assembly.sink = session.connection.body_sink(session, assembly.header)
        except Exception:
            session.assign_number(False)
            session.connection.current = read_command_codes(assembly.command)
            raise
        session.command_id = number

    def refuse(self, text: str) -> None:
        """Refuse a command that is too large; its id counts as used."""
        self.session.assign_number(False)
        self.session.connection.current = read_command_codes(self.assembly.command)
        raise ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, text)

    def check_segments(self, command: bytes) -> None:
        """Refuse a command without segments whose header or body is about to arrive."""
        if command[:2] not in WITH_SEGMENTS:
            self.session.assign_number(False)
            self.session.connection.current = read_command_codes(command)
            raise ExecutionError(
                ExecutionCode.COMMAND_INVALID, "header or body on a command that takes none"
            )

    def dispatch_command(self) -> None:
        """Pass a complete command to the connection's owner."""
        session = self.session
        assembly = self.assembly
        if assembly.is_discarding:
            assembly.clear()
            session.cursor = (session.cursor + 1) & SERIAL_MASK
            self.pass_gaps()
            session.has_unreported = True
            session.announce_later()
            return
        command = assembly.command
        header = assembly.header
        size = assembly.body_size
        parts = assembly.body()
        assembly.sink = None
        assembly.clear()
        session.assign_number(len(command) > 3 and command[3] & 1 != 0)
        self.pass_gaps()
        connection = session.connection
        connection.current = read_command_codes(command)
        if self.completed.unwrap(session.next_in) - self.completed.low > RUNNING_MAX:
            raise ExecutionError(
                ExecutionCode.RESOURCE_LIMIT_EXCEEDED,
                f"more than {RUNNING_MAX} commands are not complete",
            )
        if command[:3] == b"\x04\x01\x01" and len(command) > 3 and command[3] < 2:
            split = len(command)
            data = command + header
            if size > C_INLINE_BODY_MAX:
                connection.on_transfer_large(session, data, 2, split, split, len(data), parts, size)
                return
            end = len(data)
            data = b"".join((data, *parts))
            connection.on_transfer(session, data, 2, split, split, end, end, len(data))
            return
        sync, decoded = decode_command(command)
        session.sync = sync
        if isinstance(decoded, ExecutionSync):
            self.handle_sync()
        elif isinstance(decoded, ExecutionResult):
            if decoded.command_id is None:
                raise ExecutionError(
                    ExecutionCode.COMMAND_INVALID, "execution.result names no command", 0
                )
            self.complete(session.command_id)
            connection.on_result(session, decoded.command_id, decoded.value)
        elif isinstance(decoded, ExecutionException):
            self.complete(session.command_id)
            session.ended = True
            session.error = decoded
            connection.on_exception(session, decoded)
        else:
            connection.on_command(session, decoded, header, parts)

    def handle_sync(self) -> None:
        """Complete an execution.sync once all commands before it are complete."""
        number = self.completed.unwrap(self.session.command_id)
        if self.completed.low == number:
            self.complete(self.session.command_id)
            return
        if self.waiting_syncs is None:
            self.waiting_syncs = []
        if len(self.waiting_syncs) >= WAITING_SYNCS_MAX:
            raise ExecutionError(
                ExecutionCode.RESOURCE_LIMIT_EXCEEDED, "too many execution.sync wait"
            )
        self.waiting_syncs.append(number)

    # --- Completion ---------------------------------------------------------------------------

    def complete(self, number: int) -> None:
        """Complete an executed command, whose effects are as durable as it requires."""
        session = self.session
        completed = self.completed
        if (
            number == completed.low & SERIAL_MASK
            and self.waiting_syncs is None
            and not completed.starts
        ):
            completed.low += 1
        else:
            low = completed.unwrap(number)
            self.mark_complete(low, low)
        session.has_unreported = True
        if not session.is_listed:
            session.announce_later()

    def complete_range(self, first_id: int, last_id: int) -> None:
        """Complete the executed commands from ``first_id`` to ``last_id``, both included."""
        session = self.session
        low = self.completed.unwrap(first_id)
        self.mark_complete(low, low + ((last_id - first_id) & SERIAL_MASK))
        session.has_unreported = True
        if not session.is_listed:
            session.announce_later()

    def mark_complete(self, low: int, high: int) -> None:
        """Record unwrapped ids as complete, and each execution.sync that waited for them."""
        completed = self.completed
        try:
            completed.add(low, high)
        except ValueError as error:
            raise ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, str(error)) from None
        while self.waiting_syncs and self.waiting_syncs[0] <= completed.low:
            number = self.waiting_syncs.pop(0)
            completed.add(number, number)
        if not self.waiting_syncs:
            self.waiting_syncs = None

    def send_completed(self) -> None:
        """Send session.completed and session.known-completed."""
        session = self.session
        session.is_listed = False
        if session.connection is None or session.state != C_ATTACHED:
            return
        if self.sent.has_due:
            self.sent.send_known_completed()
        if not session.has_unreported:
            return
        if self.sent.is_resuming and not session.connection.is_server:
            return  # The peer may have lost these commands; its session.expected will show it.
        session.has_unreported = False
        completed = self.completed
        known_to_peer = self.known_to_peer
        timely = completed.low - known_to_peer.low > TIMELY_AFTER or len(completed.starts) > 64
        if completed.starts or known_to_peer.starts:
            report = self.report()
            if report:
                self.sent.write_control(SessionCompleted(commands=report, timely_reply=timely))
        elif completed.low > known_to_peer.low:
            self.sent.write_range(
                0x020A03 if timely else 0x020A01,
                known_to_peer.low & SERIAL_MASK,
                (completed.low - 1) & SERIAL_MASK,
            )

    # Keeps 0-10/s047, 0-10/s051.
    def report(self) -> SequenceSet:
        """Return the complete commands that the peer has not acknowledged."""
        unreported = SequenceSet()
        completed = self.completed
        known_to_peer = self.known_to_peer
        ranges = known_to_peer.missing(known_to_peer.low, completed.low - 1)
        for index in range(len(completed.starts)):
            if len(ranges) > REPORTED_RANGES_MAX:
                break
            ranges += known_to_peer.missing(completed.starts[index], completed.ends[index])
        for first_id, last_id in ranges[:REPORTED_RANGES_MAX]:
            unreported.add_range(first_id & SERIAL_MASK, last_id & SERIAL_MASK)
        return unreported

    # Keeps 0-10/s040, 0-10/s041, 0-10/s042, 0-10/s043, 0-10/s045, 0-10/s046.
    def on_flush(self, control: Any) -> None:
        """Handle session.flush: send the expected, confirmed or completed commands.

        All are whole commands, so that the fragments stay empty.
        """
        session = self.session
        if control.expected:
            expected = SequenceSet([(session.next_in, session.next_in)] if self.has_state else [])
            self.sent.write_control(SessionExpected(commands=expected))
        if control.confirmed:
            self.sent.write_control(SessionConfirmed(commands=self.report()))
        if control.completed:
            self.sent.write_control(SessionCompleted(commands=self.report()))
            session.has_unreported = False

    # Keeps 0-10/s047, 0-10/s051, 0-10/s052.
    def on_known_completed(self, first_id: int, last_id: int) -> None:
        """Handle session.known-completed for a range of ids."""
        if not self.has_state:
            raise unknown_ids("known-completed names commands that were never sent")
        low = self.completed.unwrap(first_id)
        high = low + ((last_id - first_id) & SERIAL_MASK)
        if high >= self.completed.unwrap(self.session.next_in):
            raise unknown_ids("known-completed names commands that were never sent")
        self.mark_complete(low, high)
        self.known_to_peer.add(low, high)


def read_command_codes(command: bytes) -> int:
    """Return class code << 8 | command code of an encoded command; a missing code is 0."""
    if len(command) > 1:
        return command[0] << 8 | command[1]
    return command[0] << 8 if command else 0
