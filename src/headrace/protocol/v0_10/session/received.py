# SPDX-License-Identifier: Apache-2.0
"""The commands that a session of AMQP 0-10 receives: their ids, and which are complete.

Incoming commands are numbered by counting from the last command-point. Those that came before are
duplicates of a replay and are dropped. Ids in a row cost one comparison each; only what is done out
of order is recorded (:class:`CompletedIds`).

The owner of the connection executes the commands: it gets them by the upcalls of
:class:`SessionConnection`, and calls :meth:`ReceivedCommands.complete` when a command is done, at
once or later. The connection sends session.completed for new ones, once for each read.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.v0_10.assembly import BEGINS as C_BEGINS
    from headrace.protocol.v0_10.assembly import BODY as C_BODY
    from headrace.protocol.v0_10.assembly import COMMAND as C_COMMAND
    from headrace.protocol.v0_10.assembly import HEADER as C_HEADER
    from headrace.protocol.v0_10.assembly import Assembly
    from headrace.protocol.v0_10.session.completion import CompletedIds
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

COMMAND_BYTES_MAX = 262144  # Size of a command segment.
HEADER_BYTES_MAX = 262144  # Size of a header segment.
RUNNING_MAX = 1 << 20  # Commands of one session that came and are not complete.
WAITING_SYNCS_MAX = 65536  # execution.sync commands that wait for others.
GAPS_AHEAD_MAX = 1024  # Ranges of ids given up by session.gap before their turn.
TIMELY_AFTER = 4096  # Completed commands that the peer may leave unacknowledged for long.
REPORTED_RANGES_MAX = 4096  # Ranges of one session.completed; the others follow later.

# What may be followed by a header and a body segment: class and command codes.
WITH_SEGMENTS = frozenset(bytes(c.CODE) for c in Command.__subclasses__() if c.SEGMENTS)

FILE_STAGE = b"\x09\x08"  # Its body may be too large for memory.

SERIAL_MASK = 0xFFFFFFFF  # A name: as a literal it would be an object when compiled.
SERIAL_HALF = 0x7FFFFFFF


class ReceivedCommands:
    """The sequence of commands that come in."""

    def __init__(self, session: SessionPort, sent: SentCommands) -> None:
        """``sent`` is the other half of ``session``; it writes our controls."""
        self.session = session
        self.sent = sent
        self.known = False  # Something was received: there is execution state.
        self.ready = False  # A command-point came since it was attached.
        self.done = CompletedIds(0)  # Complete commands.
        self.known_to_peer = CompletedIds(0)  # Those that the sender acknowledged.
        self.waiting_syncs: Any = None  # Unwrapped ids of execution.sync commands that wait.
        self.gaps_ahead: Any = None  # Ranges ahead of next_in, unwrapped, that will not come.
        self.assembly = Assembly()

    def refresh(self) -> None:
        """Set anew whether the next command may take the fast path."""
        session = self.session
        session.fast_path = (
            session.state == C_ATTACHED
            and self.ready
            and not self.assembly.active
            and session.cursor == session.next_in
            and self.gaps_ahead is None
            and not session.ended
        )

    # --- Numbering ---------------------------------------------------------------------------

    # Keeps 0-10/s038, 0-10/s039.
    def command_point(self, number: int, offset: int) -> None:
        """The peer's commands go on with the id ``number``, from this octet on."""
        session = self.session
        if not self.known:
            if offset:
                raise unknown_ids("a new session begins with the rest of a command")
            self.known = True
            session.next_in = number
            session.cursor = number
            self.done = CompletedIds(number)
            self.known_to_peer = CompletedIds(number)
        ahead = (number - session.next_in) & SERIAL_MASK
        if 0 < ahead <= SERIAL_HALF:
            raise unknown_ids(f"command {number} was announced where {session.next_in} is due")
        self.ready = True
        assembly = self.assembly
        if offset and ahead == 0:
            if number != session.cursor or not assembly.active or assembly.octets != offset:
                raise unknown_ids(f"nothing is known of the first {offset} octets of {number}")
            return
        session.cursor = number
        if offset:
            assembly.follow()
        else:
            assembly.clear()
        self.refresh()

    def restart(self) -> None:
        """The peer has forgotten the session: its numbering begins at the last command-point."""
        session = self.session
        self.known = self.ready
        session.next_in = session.cursor
        session.has_unreported = False
        self.done = CompletedIds(session.cursor)
        self.known_to_peer = CompletedIds(session.cursor)
        self.waiting_syncs = None
        self.gaps_ahead = None
        self.assembly.clear()
        self.refresh()

    # Keeps 0-10/s053, 0-10/s055.
    def on_gap(self, lo: int, hi: int) -> None:
        """These commands will not come, or not come again."""
        session = self.session
        if not self.known:
            raise unknown_ids("a gap in a session without commands")
        done = self.done
        low = done.unwrap(lo)
        high = low + ((hi - lo) & SERIAL_MASK)
        next_id = done.unwrap(session.next_in)
        at = done.unwrap(session.cursor)
        if low <= at <= high:
            self.assembly.clear()
            at = high + 1
        if low <= next_id <= high:
            next_id = high + 1
        elif low > next_id:
            self.add_gap_ahead(low, high)
        self.mark_complete(low, high)
        session.next_in = next_id & SERIAL_MASK
        session.cursor = at & SERIAL_MASK
        self.pass_gaps()
        session.has_unreported = True
        session.announce_later()

    # Keeps 0-10/s054.
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
            next_id = self.done.unwrap(session.next_in)
            at = self.done.unwrap(session.cursor)
            for low, high in self.gaps_ahead:
                if low <= at <= high:
                    at = high + 1
                if low <= next_id <= high:
                    next_id = high + 1
            remaining = [gap for gap in self.gaps_ahead if gap[1] >= next_id]
            self.gaps_ahead = remaining or None
            session.next_in = next_id & SERIAL_MASK
            session.cursor = at & SERIAL_MASK
        self.refresh()

    # --- Commands -----------------------------------------------------------------------------

    # Keeps 0-10/s037.
    def command_frame(self, flags: int, kind: int, d: bytes | bytearray, lo: int, hi: int) -> None:
        """A frame of the command track came that does not take the fast path."""
        session = self.session
        if session.state == C_DETACHING or session.ended:
            return
        if not self.ready:
            raise unknown_ids("commands before session.command-point")
        assembly = self.assembly
        if not assembly.active:
            if flags & C_BEGINS != C_BEGINS:
                raise CloseError(CloseCode.FRAMING_ERROR, "the beginning of a command is missing")
            assembly.begin(session.cursor != session.next_in, session.connection.pool)
            session.fast_path = False
        if kind == C_HEADER and len(assembly.header) + hi - lo > HEADER_BYTES_MAX:
            self.refuse("a header segment is too large")
        if kind == C_COMMAND and len(assembly.command) + hi - lo > COMMAND_BYTES_MAX:
            self.refuse("a command segment is too large")
        if kind == C_BODY and assembly.command[:2] == FILE_STAGE and not assembly.discarding:
            self.find_sink()
        elif kind == C_BODY and assembly.body_size + hi - lo > session.connection.body_max:
            self.refuse(
                f"a body is larger than the maximum of {session.connection.body_max} octets"
            )
        elif kind == C_BODY and (assembly.body_size + hi - lo) >> 20 != assembly.body_size >> 20:
            self.check_unfinished()
        if not assembly.add(flags, kind, d, lo, hi):
            return
        if not assembly.last_segment:
            if kind == C_COMMAND and not assembly.discarding:
                self.check_segments(assembly.command)
            return
        self.dispatch_command()

    def check_unfinished(self) -> None:
        """Refuse a body, if those that have begun on all sessions are large enough."""
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
        """The body of a file.stage comes: it does not go through memory."""
        session = self.session
        assembly = self.assembly
        if assembly.sink is not None or assembly.body_size:
            return
        number = session.command_id
        try:
            assembly.sink = session.connection.sink_of(session, assembly.header)
        except Exception:
            session.take_number(False)
            session.connection.current = code_of(assembly.command)
            raise
        session.command_id = number

    def refuse(self, text: str) -> None:
        """Refuse a command that is too large; its number is used up."""
        self.session.take_number(False)
        self.session.connection.current = code_of(self.assembly.command)
        raise ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, text)

    def check_segments(self, command: bytes) -> None:
        """Refuse a header or body on a command that takes none, before it comes."""
        if command[:2] not in WITH_SEGMENTS:
            self.session.take_number(False)
            self.session.connection.current = code_of(command)
            raise ExecutionError(
                ExecutionCode.COMMAND_INVALID, "header or body on a command that takes none"
            )

    def dispatch_command(self) -> None:
        """Pass a complete command to the connection's owner."""
        session = self.session
        assembly = self.assembly
        if assembly.discarding:
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
        session.take_number(len(command) > 3 and command[3] & 1 != 0)
        self.pass_gaps()
        connection = session.connection
        connection.current = code_of(command)
        if self.done.unwrap(session.next_in) - self.done.low > RUNNING_MAX:
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
        """execution.sync is complete when all commands before it are."""
        number = self.done.unwrap(self.session.command_id)
        if self.done.low == number:
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
        """The command with this id is executed, its effects are as durable as it asked for."""
        session = self.session
        done = self.done
        if number == done.low & SERIAL_MASK and self.waiting_syncs is None and not done.starts:
            done.low += 1
        else:
            low = done.unwrap(number)
            self.mark_complete(low, low)
        session.has_unreported = True
        if not session.is_listed:
            session.announce_later()

    def complete_range(self, lo: int, hi: int) -> None:
        """The commands from ``lo`` to ``hi``, both included, are executed."""
        session = self.session
        low = self.done.unwrap(lo)
        self.mark_complete(low, low + ((hi - lo) & SERIAL_MASK))
        session.has_unreported = True
        if not session.is_listed:
            session.announce_later()

    def mark_complete(self, low: int, high: int) -> None:
        """These unwrapped ids are complete; some execution.sync may be as well now."""
        done = self.done
        try:
            done.add(low, high)
        except ValueError as error:
            raise ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, str(error)) from None
        while self.waiting_syncs and self.waiting_syncs[0] <= done.low:
            number = self.waiting_syncs.pop(0)
            done.add(number, number)
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
        if self.sent.resuming and not session.connection.is_server:
            return  # The peer may have forgotten these commands; it says so soon.
        session.has_unreported = False
        done = self.done
        known_to_peer = self.known_to_peer
        timely = done.low - known_to_peer.low > TIMELY_AFTER or len(done.starts) > 64
        if done.starts or known_to_peer.starts:
            report = self.report()
            if report:
                self.sent.write_control(SessionCompleted(commands=report, timely_reply=timely))
        elif done.low > known_to_peer.low:
            self.sent.write_range(
                0x020A03 if timely else 0x020A01,
                known_to_peer.low & SERIAL_MASK,
                (done.low - 1) & SERIAL_MASK,
            )

    # Keeps 0-10/s045, 0-10/s046.
    def report(self) -> SequenceSet:
        """Return the complete commands that the peer has not acknowledged."""
        unreported = SequenceSet()
        done = self.done
        known_to_peer = self.known_to_peer
        ranges = known_to_peer.missing(known_to_peer.low, done.low - 1)
        for place in range(len(done.starts)):
            if len(ranges) > REPORTED_RANGES_MAX:
                break
            ranges += known_to_peer.missing(done.starts[place], done.ends[place])
        for lo, hi in ranges[:REPORTED_RANGES_MAX]:
            unreported.add_range(lo & SERIAL_MASK, hi & SERIAL_MASK)
        return unreported

    def on_flush(self, control: Any) -> None:
        """The peer asks which commands we expect or have completed."""
        session = self.session
        if control.expected:
            expected = SequenceSet([(session.next_in, session.next_in)] if self.known else [])
            self.sent.write_control(SessionExpected(commands=expected))
        if control.confirmed:
            self.sent.write_control(SessionConfirmed(commands=self.report()))
        if control.completed:
            self.sent.write_control(SessionCompleted(commands=self.report()))
            session.has_unreported = False

    # Keeps 0-10/s047, 0-10/s051.
    def on_known_completed(self, lo: int, hi: int) -> None:
        """The sender acknowledged that these commands are complete."""
        if not self.known:
            raise unknown_ids("known-completed names commands that were never sent")
        low = self.done.unwrap(lo)
        high = low + ((hi - lo) & SERIAL_MASK)
        if high >= self.done.unwrap(self.session.next_in):
            raise unknown_ids("known-completed names commands that were never sent")
        self.mark_complete(low, high)
        self.known_to_peer.add(low, high)


def code_of(command: bytes) -> int:
    """Class code << 8 | command code of an encoded command, as far as they are there."""
    if len(command) > 1:
        return command[0] << 8 | command[1]
    return command[0] << 8 if command else 0
