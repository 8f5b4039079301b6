# SPDX-License-Identifier: Apache-2.0
"""Sessions of AMQP 0-10, for both roles, without I/O: command ids, completion, replay.

Theory of operation. A session is a numbered row of commands each way. It outlives the connection
that it is attached to, so nothing in it refers to one but ``connection`` and ``channel``, which are
None and 0 while it is detached. Incoming commands are numbered by counting from the last
command-point. Those that came before are duplicates of a replay and are dropped. Ids in a row cost
one comparison each; only what is done out of order is written down (:class:`Ledger`).

Who executes the commands is the owner of the connection: it is called with what came (the upcalls
of :class:`Carrier`), and calls :meth:`Session.complete` when a command is done, at once or later.
The connection sends session.completed for what is new, once for each read.

What we send is kept for replay while the granted timeout is not 0, up to ``REPLAY_OCTETS_MAX``.
A session attached again asks the peer what it expects, and sends that again, or a gap where nothing
was kept.

What the peer does wrong is raised where the rule is broken: a :class:`DetachError` ends the
attachment, an :class:`ExecutionError` the session, a :class:`CloseError` the connection.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.assembly_0_10 import Assembly
    from headrace.protocol.endpoint import Endpoint
    from headrace.protocol.ledger_0_10 import Ledger
    from headrace.protocol.output import BufferPool
    from headrace.wire.memory import copy, cut, get32, put16, put32

from headrace.protocol.codec_0_10 import (
    Command,
    ExecutionException,
    ExecutionResult,
    ExecutionSync,
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
    decode_command,
    encode_command,
    encode_control,
)
from headrace.protocol.errors_0_10 import CloseError, DetachError, ExecutionError
from headrace.protocol.events_0_10 import (
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
from headrace.spec.reply_0_10 import CloseCode, DetachCode, ExecutionCode
from headrace.wire.ranges import SequenceSet

FRAME_HEAD = 12  # Octets.
MAX_FRAME_MIN = 4096  # Octets; the least that both peers must accept.
INLINE_BODY_MAX = 65536  # Octets; larger bodies are handed on in parts.
COMMAND_OCTETS_MAX = 262144  # Octets of a command segment.
HEADER_OCTETS_MAX = 262144  # Octets of a header segment.
RUNNING_MAX = 1 << 20  # Commands of one session that came and are not complete.
WAITING_SYNCS_MAX = 65536  # execution.sync commands that wait for others.
SKIPS_MAX = 1024  # Ranges of ids given up by session.gap before their turn.
REPLAY_OCTETS_MAX = 16 << 20  # Octets of commands kept for replay, in one session.
REPLAY_COMMANDS_MAX = 65536  # Commands kept for replay, in one session.
TIMELY_AFTER = 4096  # Completed commands that the peer may leave unacknowledged for long.
REPORTED_RANGES_MAX = 4096  # Ranges of one session.completed; the others follow later.

# What may be followed by a header and a body segment: class and command codes.
WITH_SEGMENTS = frozenset(bytes(c.CODE) for c in Command.__subclasses__() if c.SEGMENTS)

FILE_STAGE = b"\x09\x08"  # Its body may be too large for memory.

SERIAL_MASK = 0xFFFFFFFF  # A name: as a literal it would be an object when compiled.
SERIAL_HALF = 0x7FFFFFFF
DETACHED = 0
ATTACHING = 1  # We asked for it.
ATTACHED = 2
DETACHING = 3  # We asked for the end, or failed: what comes is ignored.


class ReplayFull(Exception):
    """A command that must not be lost cannot be kept: wait until others are completed."""


class Session:
    """One side of one session: what it has received and sent, and what of it is complete."""

    def __init__(self, name: bytes, *, lossless: bool = False) -> None:
        """``name`` has at most 65535 octets. ``lossless``: never send what cannot be kept."""
        self.name = name
        self.lossless = lossless
        self.connection: Any = None  # The Carrier that it is attached to.
        self.channel = 0
        self.state = DETACHED
        self.timeout_s: int | None = 0  # How long it is kept when detached; None is for ever.
        self.keeps = False  # Whether timeout_s is not 0.
        self.ended = False  # It failed, or nobody came back in time. It cannot be attached again.
        self.error: Any = None  # Why it failed: an ExecutionError, or the peer's exception.
        self.registry: Any = None  # The Sessions that know it by name.
        # Incoming.
        self.known = False  # Something was received: there is execution state.
        self.ready = False  # A command-point came since it was attached.
        self.quick = False  # The next command may take the narrow path.
        self.next_in = 0  # The id of the first command that did not come yet.
        self.cursor = 0  # The id of the command that comes next; before next_in in a replay.
        self.command_id = 0  # Of the command being handled.
        self.sync = False  # Whether its sender asks to be told at once that it is complete.
        self.news = False  # Something became complete that the peer was not told.
        self.listed = False  # It is in the connection's list of those with something to tell.
        self.done = Ledger(0)  # Complete commands.
        self.told = Ledger(0)  # Those of which the sender is known to know.
        self.waits: Any = None  # Unwrapped ids of execution.sync commands that wait.
        self.skips: Any = None  # Ranges ahead of next_in, unwrapped, that will not come.
        self.assembly = Assembly()
        # Outgoing.
        self.next_id = 0  # The id of the next command that we send.
        self.sent = Ledger(0)  # Commands that the peer completed.
        self.resuming = False  # Attached again, and not yet told what the peer expects.
        self.kept: dict[int, tuple[bytes, bytes, tuple[bytes, ...]]] = {}  # By unwrapped id.
        self.kept_octets = 0
        self.owed = False  # A session.known-completed at the end of the turn,
        self.owed_lo = 0  # for this range of ids,
        self.owed_hi = 0
        self.owed_more: Any = None  # and for this SequenceSet.

    # --- Attachment -------------------------------------------------------------------------

    def attach(self, connection: Any, channel: int) -> None:
        """The session is used on a channel of ``connection`` from now on."""
        self.connection = connection
        self.channel = channel
        self.state = ATTACHED
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
        self.state = DETACHED
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
        self.kept.clear()
        self.kept_octets = 0
        if self.registry is not None:
            registry = self.registry
            self.registry = None
            registry.forget(self)

    def set_timeout(self, timeout_s: int | None) -> None:
        """Adopt the timeout that was granted, in seconds; None is for ever."""
        self.timeout_s = timeout_s
        self.keeps = timeout_s is None or timeout_s > 0
        if not self.keeps:
            self.kept.clear()
            self.kept_octets = 0

    def refresh(self) -> None:
        """Tell anew whether the next command may take the narrow path."""
        self.quick = (
            self.state == ATTACHED
            and self.ready
            and not self.assembly.active
            and self.cursor == self.next_in
            and self.skips is None
        )

    # --- Incoming controls ------------------------------------------------------------------

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
            self.expected(control)
        elif isinstance(control, SessionRequestTimeout):
            granted = self.connection.choose_timeout(self, control.timeout)
            self.set_timeout(granted)
            self.write_control(SessionTimeout(timeout=granted))
        elif isinstance(control, SessionTimeout):
            self.set_timeout(control.timeout)
            self.connection.on_session_control(self, control)
        else:
            raise CloseError(CloseCode.FRAMING_ERROR, f"{control.NAME} out of place")

    def command_point(self, number: int, offset: int) -> None:
        """The peer's commands go on with the id ``number``, from this octet on."""
        if not self.known:
            if offset:
                raise unknown("a new session begins with the rest of a command")
            self.known = True
            self.next_in = number
            self.cursor = number
            self.done = Ledger(number)
            self.told = Ledger(number)
        ahead = (number - self.next_in) & SERIAL_MASK
        if 0 < ahead <= SERIAL_HALF:
            raise unknown(f"command {number} was announced where {self.next_in} is due")
        self.ready = True
        assembly = self.assembly
        if offset and ahead == 0:
            if number != self.cursor or not assembly.active or assembly.octets != offset:
                raise unknown(f"nothing is known of the first {offset} octets of {number}")
            return
        self.cursor = number
        if offset:
            assembly.follow()
        else:
            assembly.clear()
        self.refresh()

    def gap(self, lo: int, hi: int) -> None:
        """These commands will not come, or not come again."""
        if not self.known:
            raise unknown("a gap in a session without commands")
        done = self.done
        low = done.near(lo)
        high = low + ((hi - lo) & SERIAL_MASK)
        following = done.near(self.next_in)
        at = done.near(self.cursor)
        if low <= at <= high:
            self.assembly.clear()
            at = high + 1
        if low <= following <= high:
            following = high + 1
        elif low > following:
            self.skip(low, high)
        self.mark(low, high)
        self.next_in = following & SERIAL_MASK
        self.cursor = at & SERIAL_MASK
        self.leap()
        self.news = True
        self.note()

    def skip(self, low: int, high: int) -> None:
        """Remember a gap ahead of what is due."""
        skips = self.skips or []
        skips = sorted([*skips, (low, high)])
        if len(skips) > SKIPS_MAX:
            raise ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, "too many gaps ahead")
        self.skips = skips

    def leap(self) -> None:
        """Pass over the gaps that are due now."""
        if self.skips is not None:
            following = self.done.near(self.next_in)
            at = self.done.near(self.cursor)
            for low, high in self.skips:
                if low <= at <= high:
                    at = high + 1
                if low <= following <= high:
                    following = high + 1
            self.skips = [(low, high) for low, high in self.skips if high >= following] or None
            self.next_in = following & SERIAL_MASK
            self.cursor = at & SERIAL_MASK
        self.refresh()

    def flushed(self, control: Any) -> None:
        """The peer asks what we know."""
        if control.expected:
            expected = SequenceSet([(self.next_in, self.next_in)] if self.known else [])
            self.write_control(SessionExpected(commands=expected))
        if control.confirmed:
            self.write_control(SessionConfirmed(commands=self.report()))
        if control.completed:
            self.write_control(SessionCompleted(commands=self.report()))
            self.news = False

    def report(self) -> SequenceSet:
        """The complete commands of which the peer is not known to know."""
        found = SequenceSet()
        done = self.done
        told = self.told
        pieces = told.missing(told.low, done.low - 1)
        for place in range(len(done.los)):
            if len(pieces) > REPORTED_RANGES_MAX:
                break
            pieces += told.missing(done.los[place], done.his[place])
        for lo, hi in pieces[:REPORTED_RANGES_MAX]:
            found.add_range(lo & SERIAL_MASK, hi & SERIAL_MASK)
        return found

    def peer_knows(self, lo: int, hi: int) -> None:
        """The sender knows that these commands are complete."""
        if not self.known:
            raise unknown("known-completed names commands that were never sent")
        low = self.done.near(lo)
        high = low + ((hi - lo) & SERIAL_MASK)
        if high >= self.done.near(self.next_in):
            raise unknown("known-completed names commands that were never sent")
        self.mark(low, high)
        self.told.add(low, high)

    # --- Incoming commands ------------------------------------------------------------------

    def command_frame(self, flags: int, kind: int, d: bytes | bytearray, lo: int, hi: int) -> None:
        """A frame of the command track came that does not take the narrow path."""
        if self.state == DETACHING:
            return
        if not self.ready:
            raise unknown("commands before session.command-point")
        assembly = self.assembly
        if not assembly.active:
            if flags & 10 != 10:
                raise CloseError(CloseCode.FRAMING_ERROR, "the beginning of a command is missing")
            assembly.begin(self.cursor != self.next_in)
            self.quick = False
        if kind == 2 and len(assembly.header) + hi - lo > HEADER_OCTETS_MAX:
            self.refuse("a header segment is too large")
        if kind == 1 and len(assembly.command) + hi - lo > COMMAND_OCTETS_MAX:
            self.refuse("a command segment is too large")
        if kind == 3 and assembly.command[:2] == FILE_STAGE and not assembly.discarding:
            self.find_sink()
        elif kind == 3 and assembly.body_size + hi - lo > self.connection.body_max:
            self.refuse(f"a body is larger than the maximum of {self.connection.body_max} octets")
        if not assembly.add(flags, kind, d, lo, hi):
            return
        if not assembly.last_segment:
            if kind == 1 and not assembly.discarding:
                self.check_segments(assembly.command)
            return
        self.assembled()

    def find_sink(self) -> None:
        """The body of a file.stage comes: it does not go through memory."""
        assembly = self.assembly
        if assembly.sink is not None or assembly.body_size:
            return
        number = self.command_id
        try:
            assembly.sink = self.connection.sink_of(self, assembly.header)
        except Exception:
            self.arrive(False)
            self.connection.current = code_of(assembly.command)
            raise
        self.command_id = number

    def refuse(self, text: str) -> None:
        """A command is larger than we take; its number is used up."""
        self.arrive(False)
        self.connection.current = code_of(self.assembly.command)
        raise ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, text)

    def check_segments(self, command: bytes) -> None:
        """Refuse a header or body on a command that takes none, before it comes."""
        if command[:2] not in WITH_SEGMENTS:
            self.arrive(False)
            self.connection.current = code_of(command)
            raise ExecutionError(
                ExecutionCode.COMMAND_INVALID, "header or body on a command that takes none"
            )

    def arrive(self, sync: bool) -> None:
        """A command is there as a whole: it gets its number."""
        self.command_id = self.next_in
        self.sync = sync
        self.next_in = (self.next_in + 1) & SERIAL_MASK
        self.cursor = self.next_in

    def assembled(self) -> None:
        """All segments of a command are there."""
        assembly = self.assembly
        if assembly.discarding:
            assembly.clear()
            self.cursor = (self.cursor + 1) & SERIAL_MASK
            self.leap()
            self.news = True
            self.note()
            return
        command = assembly.command
        header = assembly.header
        size = assembly.body_size
        parts = assembly.body()
        assembly.sink = None
        assembly.clear()
        self.arrive(len(command) > 3 and command[3] & 1 != 0)
        self.leap()
        connection = self.connection
        connection.current = code_of(command)
        if self.done.near(self.next_in) - self.done.low > RUNNING_MAX:
            raise ExecutionError(
                ExecutionCode.RESOURCE_LIMIT_EXCEEDED,
                f"more than {RUNNING_MAX} commands are not complete",
            )
        if command[:3] == b"\x04\x01\x01" and len(command) > 3 and command[3] < 2:
            split = len(command)
            data = command + header
            if size > INLINE_BODY_MAX:
                connection.on_transfer_large(self, data, 2, split, split, len(data), parts, size)
                return
            end = len(data)
            data = b"".join((data, *parts))
            connection.on_transfer(self, data, 2, split, split, end, end, len(data))
            return
        sync, decoded = decode_command(command)
        self.sync = sync
        if isinstance(decoded, ExecutionSync):
            self.wait()
        elif isinstance(decoded, ExecutionResult):
            if decoded.command_id is None:
                raise ExecutionError(
                    ExecutionCode.COMMAND_INVALID, "execution.result names no command", 0
                )
            self.complete(self.command_id)
            connection.on_result(self, decoded.command_id, decoded.value)
        elif isinstance(decoded, ExecutionException):
            self.complete(self.command_id)
            self.ended = True
            self.error = decoded
            connection.on_exception(self, decoded)
        else:
            connection.on_command(self, decoded, header, parts)

    def wait(self) -> None:
        """execution.sync is complete when all commands before it are."""
        number = self.done.near(self.command_id)
        if self.done.low == number:
            self.complete(self.command_id)
            return
        if self.waits is None:
            self.waits = []
        if len(self.waits) >= WAITING_SYNCS_MAX:
            raise ExecutionError(
                ExecutionCode.RESOURCE_LIMIT_EXCEEDED, "too many execution.sync wait"
            )
        self.waits.append(number)

    def complete(self, number: int) -> None:
        """The command with this id is executed, its effects are as durable as it asked for."""
        done = self.done
        if number == done.low & SERIAL_MASK and self.waits is None and not done.los:
            done.low += 1
        else:
            low = done.near(number)
            self.mark(low, low)
        self.news = True
        if not self.listed:
            self.note()

    def complete_range(self, lo: int, hi: int) -> None:
        """The commands from ``lo`` to ``hi``, both included, are executed."""
        low = self.done.near(lo)
        self.mark(low, low + ((hi - lo) & SERIAL_MASK))
        self.news = True
        if not self.listed:
            self.note()

    def mark(self, low: int, high: int) -> None:
        """These unwrapped ids are complete; some execution.sync may be as well now."""
        done = self.done
        try:
            done.add(low, high)
        except ValueError as error:
            raise ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, str(error)) from None
        while self.waits and self.waits[0] <= done.low:
            number = self.waits.pop(0)
            done.add(number, number)
        if not self.waits:
            self.waits = None

    def note(self) -> None:
        """Have the connection call :meth:`tell` at the end of the turn."""
        if not self.listed and self.connection is not None:
            self.listed = True
            self.connection.newsy.append(self)

    def tell(self) -> None:
        """Tell the peer what is complete and what we know to be."""
        self.listed = False
        if self.connection is None or self.state != ATTACHED:
            return
        if self.owed:
            self.owed = False
            if self.owed_more is None:
                self.write_range(0x020B01, self.owed_lo, self.owed_hi)
            else:
                owed = self.owed_more
                self.owed_more = None
                try:
                    owed.add_range(self.owed_lo, self.owed_hi)
                except ValueError:
                    self.write_range(0x020B01, self.owed_lo, self.owed_hi)
                self.write_control(SessionKnownCompleted(commands=owed))
        if not self.news:
            return
        self.news = False
        done = self.done
        told = self.told
        timely = done.low - told.low > TIMELY_AFTER or len(done.los) > 64
        if done.los or told.los:
            report = self.report()
            if report:
                self.write_control(SessionCompleted(commands=report, timely_reply=timely))
        elif done.low > told.low:
            self.write_range(
                0x020A03 if timely else 0x020A01,
                told.low & SERIAL_MASK,
                (done.low - 1) & SERIAL_MASK,
            )

    # --- Outgoing ---------------------------------------------------------------------------

    def peer_completed(self, lo: int, hi: int) -> None:
        """The peer says that it completed these commands of ours."""
        sent = self.sent
        low = sent.near(lo)
        high = low + ((hi - lo) & SERIAL_MASK)
        if high >= sent.near(self.next_id):
            raise unknown("completed names commands that were never sent")
        if high < sent.low:
            return
        if not sent.los and low <= sent.low:
            low = sent.low
            sent.low = high + 1
            if self.kept:
                self.release(low, high)
            self.connection.on_completed(self, low & SERIAL_MASK, high & SERIAL_MASK)
            return
        fresh = sent.missing(low, high)
        try:
            sent.add(low, high)
        except ValueError as error:
            raise unknown(str(error)) from None
        if self.kept:
            self.release(low, high)
        for low, high in fresh:
            self.connection.on_completed(self, low & SERIAL_MASK, high & SERIAL_MASK)

    def completed_frame(self, d: bytes | bytearray, lo: int, hi: int) -> None:
        """A session.completed came; ``d[lo:hi]`` is its payload, checked."""
        told = d[lo + 2] & 2 != 0 or not self.connection.reticent
        lo += 6
        while lo < hi:
            first = get32(d, lo)
            last = get32(d, lo + 4)
            self.peer_completed(first, last)
            if told:
                self.owe(first, last)
            lo += 8

    def owe(self, lo: int, hi: int) -> None:
        """The peer is owed a known-completed for these ids, at the end of the turn."""
        if not self.owed:
            self.owed = True
            self.owed_lo = lo
            self.owed_hi = hi
            self.note()
        elif lo == ((self.owed_hi + 1) & SERIAL_MASK):
            self.owed_hi = hi
        else:
            if self.owed_more is None:
                self.owed_more = SequenceSet()
            try:
                self.owed_more.add_range(lo, hi)
            except ValueError:
                self.write_control(SessionKnownCompleted(commands=self.owed_more))
                self.owed_more = SequenceSet([(lo, hi)])

    def release(self, low: int, high: int) -> None:
        """These unwrapped ids need not be replayed."""
        kept = self.kept
        if high - low < len(kept):
            gone = [number for number in range(low, high + 1) if number in kept]
        else:
            gone = [number for number in kept if low <= number <= high]
        for number in gone:
            self.kept_octets -= size_of(kept.pop(number))

    def forget_kept(self, lo: int, hi: int) -> None:
        """The peer will complete these in any case."""
        low = self.sent.near(lo)
        high = low + ((hi - lo) & SERIAL_MASK)
        if high >= self.sent.near(self.next_id):
            raise unknown("confirmed names commands that were never sent")
        if self.kept:
            self.release(low, high)

    def send_command(
        self,
        command: Any,
        sync: bool = False,
        header: bytes = b"",
        body: bytes | tuple[bytes, ...] = b"",
    ) -> int:
        """Send a command and return its id; ``header`` and ``body`` are segments' payloads.

        While the session is detached or about to resume it is only kept.

        Raises:
            ReplayFull: the session is lossless and cannot keep it; nothing was sent.
        """
        payload = encode_command(command, sync)
        if isinstance(body, tuple):
            parts = tuple([part for part in body if part])
        else:
            parts = (body,) if body else ()
        return self.send(payload, header, parts)

    def send(self, payload: bytes, header: bytes, parts: tuple[bytes, ...]) -> int:
        """Send an encoded command, as :meth:`send_command`."""
        if self.keeps:
            self.keep(payload, header, parts)
        number = self.next_id
        self.next_id = (number + 1) & SERIAL_MASK
        if self.connection is not None and self.state < DETACHING and not self.resuming:
            self.write(payload, header, parts)
        return number

    def keep(self, payload: bytes, header: bytes, parts: tuple[bytes, ...]) -> None:
        """Keep the next command for replay, if there is room."""
        item = (payload, header, parts)
        size = size_of(item)
        if self.kept_octets + size > REPLAY_OCTETS_MAX or len(self.kept) >= REPLAY_COMMANDS_MAX:
            if self.lossless:
                raise ReplayFull(
                    f"{len(self.kept)} commands of {self.kept_octets} octets are not completed"
                )
            return
        self.kept[self.sent.near(self.next_id)] = item
        self.kept_octets += size

    def transfer_head(self, payload: bytes) -> bytes:
        """Return the frame of a message.transfer's command segment, for :meth:`send_transfer`.

        It holds the channel: make it again after the session was attached again.
        """
        size = len(payload) + FRAME_HEAD
        return (
            b"\x0b\x01"
            + size.to_bytes(2, "big")
            + b"\x00\x01"
            + self.channel.to_bytes(2, "big")
            + b"\x00\x00\x00\x00"
            + payload
        )

    def send_transfer(
        self,
        head: bytes,
        h: bytes | bytearray,
        header: int,
        header_end: int,
        b: bytes | bytearray,
        body: int,
        body_end: int,
    ) -> int:
        """Send a message.transfer and return its id.

        ``head`` is what :meth:`transfer_head` made, the segments are ``h[header:header_end]`` and
        ``b[body:body_end]``; both are sent even when empty.
        """
        number = self.next_id
        connection = self.connection
        header_size = header_end - header + 12
        body_size = body_end - body + 12
        if (
            self.keeps
            or connection is None
            or self.resuming
            or header_size > connection.max_frame_size
            or body_size > connection.max_frame_size
        ):
            return self.send(
                cut(head, 12, len(head)), cut(h, header, header_end), (cut(b, body, body_end),)
            )
        self.next_id = (number + 1) & SERIAL_MASK
        size = len(head)
        connection.reserve(size + header_size + body_size)
        buffer = connection.buffer
        at = connection.tail
        copy(buffer, at, head, 0, size)
        at += size
        channel = self.channel
        put16(buffer, at, 0x0302)
        put16(buffer, at + 2, header_size)
        put16(buffer, at + 4, 1)
        put16(buffer, at + 6, channel)
        put32(buffer, at + 8, 0)
        copy(buffer, at + 12, h, header, header_end)
        at += header_size
        put16(buffer, at, 0x0703)
        put16(buffer, at + 2, body_size)
        put16(buffer, at + 4, 1)
        put16(buffer, at + 6, channel)
        put32(buffer, at + 8, 0)
        copy(buffer, at + 12, b, body, body_end)
        connection.tail = at + body_size
        return number

    def send_transfer_parts(self, head: bytes, header: bytes, parts: tuple[bytes, ...]) -> int:
        """Send a message.transfer with a body in parts, which are not copied; return its id."""
        return self.send(cut(head, 12, len(head)), header, tuple([part for part in parts if part]))

    def write(self, payload: bytes, header: bytes, parts: tuple[bytes, ...]) -> None:
        """Write the frames of a command."""
        connection = self.connection
        last = 3 if parts else 2 if header else 1
        connection.write_segment(1, last == 1, self.channel, payload)
        if header:
            connection.write_segment(2, last == 2, self.channel, header)
        if parts:
            connection.write_body(self.channel, parts)

    def write_control(self, control: Any) -> None:
        """Write a control on our channel."""
        self.connection.write_segment(0, True, self.channel, encode_control(control))

    def write_range(self, head: int, lo: int, hi: int) -> None:
        """Write a control that holds one range of ids; ``head`` is its code and packing flags."""
        connection = self.connection
        connection.reserve(26)
        buffer = connection.buffer
        at = connection.tail
        put32(buffer, at, 0x0F00001A)
        put32(buffer, at + 4, self.channel)
        put32(buffer, at + 8, 0)
        put32(buffer, at + 12, head << 8)
        put16(buffer, at + 16, 8)
        put32(buffer, at + 18, lo)
        put32(buffer, at + 22, hi)
        connection.tail = at + 26

    def point(self, number: int, offset: int) -> None:
        """Tell the peer where our commands go on."""
        self.write_control(SessionCommandPoint(command_id=number, command_offset=offset))

    def send_result(self, command_id: int, value: Any) -> int:
        """Send what a command of the peer's resulted in: a struct, or None."""
        return self.send_command(ExecutionResult(command_id=command_id, value=value))

    def request_timeout(self, timeout_s: int | None) -> None:
        """Ask that the session be kept so many seconds when detached; None is for ever."""
        self.write_control(SessionRequestTimeout(timeout=timeout_s))

    def flush(
        self, expected: bool = False, confirmed: bool = False, completed: bool = False
    ) -> None:
        """Ask the peer what it expects, has confirmed, has completed."""
        self.write_control(
            SessionFlush(expected=expected, confirmed=confirmed, completed=completed)
        )

    def send_gap(self, lo: int, hi: int) -> None:
        """Tell the peer that nothing more of these commands comes; they count as completed."""
        self.write_control(SessionGap(commands=SequenceSet([(lo, hi)])))
        self.release(self.sent.near(lo), self.sent.near(lo) + ((hi - lo) & SERIAL_MASK))

    def detach(self) -> None:
        """Ask for the end of the attachment."""
        if self.state in (ATTACHED, ATTACHING):
            self.tell()
            self.write_control(SessionDetach(name=self.name))
            self.state = DETACHING
            self.refresh()

    def fail(self, error: ExecutionError) -> None:
        """End the session, and tell the peer why: execution.exception, then session.detach."""
        if self.state != ATTACHED:
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
        self.state = DETACHING
        self.assembly.clear()
        self.refresh()
        connection.on_session_failed(self, error)

    # --- Replay -----------------------------------------------------------------------------

    def expected(self, control: Any) -> None:
        """The peer says what it expects; when we resume, that is sent again."""
        commands = control.commands or SequenceSet()
        following = self.sent.near(self.next_id)
        fragments: dict[int, Any] = {}
        for fragment in control.fragments or ():
            number = self.sent.near(fragment.command_id or 0)
            if number >= following:
                raise unknown("expected names a fragment of a command that was never sent")
            fragments[number] = fragment.byte_ranges or ()
        for lo, hi in commands:
            low = self.sent.near(lo)
            if low + ((hi - lo) & SERIAL_MASK) > following:
                raise unknown("expected names commands that were never sent")
        if not self.resuming:
            self.connection.on_session_control(self, control)
            return
        self.resuming = False
        if not commands and not fragments:
            self.point(self.next_id, 0)
            lost = self.sent.missing(self.sent.low, following - 1)
            self.kept.clear()
            self.kept_octets = 0
            self.sent.add(self.sent.low, following - 1)
            self.connection.on_resumed(self, False)
            for lo, hi in lost:
                self.connection.on_given_up(self, lo & SERIAL_MASK, hi & SERIAL_MASK)
            return
        self.replay(commands, fragments, following)
        self.connection.on_resumed(self, True)

    def replay(self, commands: SequenceSet, fragments: dict[int, Any], following: int) -> None:
        """Send what the peer expects and has not completed, or a gap where nothing was kept."""
        at = -1  # The unwrapped id that the peer counts next.
        highest = max(
            [self.sent.near(hi) for _, hi in commands] + list(fragments), default=following
        )
        wanted = []
        for lo, hi in commands:
            low = self.sent.near(lo)
            wanted += self.sent.missing(low, low + ((hi - lo) & SERIAL_MASK))
        wanted += self.sent.missing(highest + 1, following - 1)
        wanted += [(number, number) for number in fragments]
        for low, high in sorted(wanted):
            number = low
            while number <= min(high, following - 1):
                item = self.kept.get(number)
                if item is None:
                    end = number
                    while end < min(high, following - 1) and end + 1 not in self.kept:
                        end += 1
                    self.give_up(number, end)
                    number = end + 1
                    continue
                if number in fragments:
                    for first, last in fragments[number]:
                        self.point(number & SERIAL_MASK, first)
                        self.write_octets(item, first, last + 1)
                    at = -1
                else:
                    if at != number:
                        self.point(number & SERIAL_MASK, 0)
                    self.write(*item)
                    at = number + 1
                number += 1
        if at != following:
            self.point(self.next_id, 0)

    def give_up(self, low: int, high: int) -> None:
        """Commands that were not kept cannot be sent again; for the peer they are complete."""
        self.send_gap(low & SERIAL_MASK, high & SERIAL_MASK)
        self.connection.on_given_up(self, low & SERIAL_MASK, high & SERIAL_MASK)

    def write_octets(
        self, item: tuple[bytes, bytes, tuple[bytes, ...]], first: int, end: int
    ) -> None:
        """Write the frames of the octets from ``first`` to ``end`` of a command's segments."""
        payload, header, parts = item
        segments = [(1, payload)]
        if header:
            segments.append((2, header))
        if parts:
            segments.append((3, b"".join(parts)))
        final = 3 if parts else 2 if header else 1
        at = 0
        for kind, octets in segments:
            lo = max(first - at, 0)
            hi = min(end - at, len(octets))
            if lo < hi:
                self.connection.write_part(kind, kind == final, self.channel, octets, lo, hi)
            at += len(octets)


class Carrier(Endpoint):
    """What sessions need of the connection that they are attached to: frames out, and upcalls.

    The base class collects events; a gateway or a client overrides the upcalls instead. A command
    is complete when its handler calls ``session.complete(session.command_id)``, then or later.
    """

    def __init__(self, pool: BufferPool) -> None:
        Endpoint.__init__(self, pool)
        self.max_frame_size = MAX_FRAME_MIN  # Octets of a whole frame that we send.
        self.body_max = 128 << 20  # Octets of a body that we take.
        self.attached: dict[int, Session] = {}  # Sessions by channel.
        self.last: Session | None = None  # The one that was used last.
        self.newsy: list[Session] = []  # Sessions that have something to tell.
        self.current = 0  # The command being handled, class code << 8 | command code.
        self.reticent = False  # The peer hears of known completions only when it asks.
        self.events: list[Event] = []

    # --- Frames -----------------------------------------------------------------------------

    def write_segment(self, kind: int, last: bool, channel: int, payload: bytes) -> None:
        """Append a whole segment; ``last`` when it is the assembly's last."""
        self.write_part(kind, last, channel, payload, 0, len(payload))

    def write_part(
        self, kind: int, last: bool, channel: int, payload: bytes, lo: int, hi: int
    ) -> None:
        """Append the frames of ``payload[lo:hi]``, a piece of a segment."""
        limit = self.max_frame_size - 12
        whole = len(payload)
        flags = (8 if kind < 2 else 0) | (4 if last else 0)
        while True:
            end = min(lo + limit, hi)
            size = end - lo + 12
            self.reserve(size)
            buffer = self.buffer
            at = self.tail
            buffer[at] = flags | (2 if lo == 0 else 0) | (1 if end == whole else 0)
            buffer[at + 1] = kind
            put16(buffer, at + 2, size)
            put16(buffer, at + 4, 1 if kind else 0)
            put16(buffer, at + 6, channel)
            put32(buffer, at + 8, 0)
            copy(buffer, at + 12, payload, lo, end)
            self.tail = at + size
            lo = end
            if lo >= hi:
                return

    def write_body(self, channel: int, parts: tuple[bytes, ...]) -> None:
        """Append a body segment; a large one is not copied."""
        if len(parts) == 1 and len(parts[0]) <= INLINE_BODY_MAX:
            self.write_segment(3, True, channel, parts[0])
        else:
            self.write_parts_0_10(channel, parts, self.max_frame_size)

    # --- Upcalls ----------------------------------------------------------------------------

    def on_transfer(
        self,
        session: Session,
        d: bytes | bytearray,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        body: int,
        body_end: int,
    ) -> None:
        """A message.transfer came whose body is at most ``INLINE_BODY_MAX`` octets.

        ``d[args:args_end]`` holds the session header (2 octets, checked) and the arguments (not
        looked at), then follow the payloads of the header and body segments. A segment that did
        not come has no octets.
        """
        self.on_transfer_large(
            session,
            b"\x04\x01" + cut(d, args, args_end) + cut(d, header, header_end),
            2,
            2 + args_end - args,
            2 + args_end - args,
            2 + args_end - args + header_end - header,
            (cut(d, body, body_end),),
            body_end - body,
        )

    def on_transfer_large(
        self,
        session: Session,
        start: bytes,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        parts: tuple[bytes, ...],
        body_size: int,
    ) -> None:
        """A message.transfer came with a larger body; ``start`` holds the rest."""
        command = decode_command(start[:args_end])[1]
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

    def on_accept(self, session: Session, d: bytes | bytearray, lo: int, hi: int) -> None:
        """A message.accept came; ``d[lo:hi]`` holds ranges of 8 octets, in order."""
        payload = b"\x04\x02\x01" + bytes((session.sync,)) + b"\x01\x00"
        payload += (hi - lo).to_bytes(2, "big") + cut(d, lo, hi)
        self.on_command(session, decode_command(payload)[1], b"", ())

    def sink_of(self, session: Session, header: bytes) -> Any:
        """Return what takes the body of a file.stage instead of memory, or None."""
        return None

    def on_command(
        self, session: Session, command: Any, header: bytes, parts: tuple[bytes, ...]
    ) -> None:
        """Another command came, with the payload of its header segment and its body."""
        self.events.append(
            CommandReceived(
                session.name, session.command_id, session.sync, command, header, b"".join(parts)
            )
        )
        session.complete(session.command_id)

    def on_result(self, session: Session, command_id: int, value: Any) -> None:
        """What a command of ours resulted in: a struct, or None."""
        self.events.append(ResultReceived(session.name, command_id, value))

    def on_exception(self, session: Session, exception: Any) -> None:
        """A command of ours failed; the session ends, the peer detaches it."""
        self.events.append(SessionFailed(session.name, exception))

    def on_completed(self, session: Session, lo: int, hi: int) -> None:
        """The peer completed these commands of ours, both ends included, for the first time."""
        self.events.append(Completed(session.name, lo, hi))

    def on_session_control(self, session: Session, control: Any) -> None:
        """The peer answered: session.attached, expected, timeout."""
        self.events.append(ControlReceived(session.channel, control))

    def choose_timeout(self, session: Session, requested: int | None) -> int | None:
        """How many seconds a detached session is kept; None is for ever."""
        return 0 if session.registry is None else session.registry.grant(requested)

    def on_detached(self, session: Session, channel: int, code: int) -> None:
        """The session left its channel: 0, or the code of what went wrong. It may have ended."""
        self.events.append(Detached(session.name, channel, code))

    def on_session_failed(self, session: Session, error: ExecutionError) -> None:
        """The peer broke a rule in a command, or it cannot be done; it was told."""
        self.events.append(SessionFailed(session.name, error))

    def on_resumed(self, session: Session, kept: bool) -> None:
        """Attached again; ``kept``: the peer knew the session, and was sent what it missed."""
        self.events.append(Resumed(session.name, kept))

    def on_given_up(self, session: Session, lo: int, hi: int) -> None:
        """These commands of ours were not completed, and are not sent again.

        The peer was sent a gap, so ``on_completed`` may follow; should that gap be lost too, this
        call comes again.
        """


def size_of(item: tuple[bytes, bytes, tuple[bytes, ...]]) -> int:
    """Octets of a kept command."""
    return len(item[0]) + len(item[1]) + sum([len(part) for part in item[2]]) + 64


def code_of(command: bytes) -> int:
    """Class code << 8 | command code of an encoded command, as far as they are there."""
    if len(command) > 1:
        return command[0] << 8 | command[1]
    return command[0] << 8 if command else 0


def unknown(text: str) -> DetachError:
    """The peer names commands that do not exist."""
    return DetachError(DetachCode.UNKNOWN_IDS, text)
