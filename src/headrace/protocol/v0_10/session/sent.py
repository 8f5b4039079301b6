# SPDX-License-Identifier: Apache-2.0
"""The commands that a session of AMQP 0-10 sends: their ids, and which the peer completed.

What we send is kept for replay while the granted timeout is not 0, up to ``REPLAY_BYTES_MAX``;
:mod:`headrace.protocol.v0_10.session.replay` sends it again. The peer may ask to
have its session.completed acknowledged: session.known-completed is sent at the end of the turn.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.v0_10.assembly import CHANNEL_AT as C_CHANNEL_AT
    from headrace.protocol.v0_10.assembly import FRAME_HEAD as C_FRAME_HEAD
    from headrace.protocol.v0_10.assembly import RESERVED_AT as C_RESERVED_AT
    from headrace.protocol.v0_10.assembly import SIZE_AT as C_SIZE_AT
    from headrace.protocol.v0_10.assembly import TRACK_AT as C_TRACK_AT
    from headrace.protocol.v0_10.session.completion import CompletedIds
    from headrace.protocol.v0_10.session.port import DETACHING as C_DETACHING
    from headrace.protocol.v0_10.session.port import SessionPort
    from headrace.wire.memory import copy, cut, get32, put16, put32

from headrace.protocol.codec_0_10 import (
    SessionCommandPoint,
    SessionFlush,
    SessionGap,
    SessionKnownCompleted,
    SessionRequestTimeout,
    encode_command,
    encode_control,
)
from headrace.protocol.errors_0_10 import unknown_ids
from headrace.wire.ranges import SequenceSet

HEADER_START = 0x0302  # Flags and kind of a header segment of one frame.
BODY_START = 0x0703  # Likewise of a body segment, the last of its command.
RANGE_LEN = 8  # Bytes of a range of ids.
RANGE_CONTROL_LEN = 26  # Bytes of the frame of a control with one range.
RANGE_CONTROL_START = 0x0F00001A  # Its flags, kind and size.
if not cython.compiled:
    C_RANGE_LEN = RANGE_LEN
    C_RANGE_CONTROL_LEN = RANGE_CONTROL_LEN
    C_RANGE_CONTROL_START = RANGE_CONTROL_START
    C_HEADER_START = HEADER_START
    C_BODY_START = BODY_START
REPLAY_BYTES_MAX = 16 << 20  # Size of the commands kept for replay, in one session.
REPLAY_COMMANDS_MAX = 65536  # Commands kept for replay, in one session.
SERIAL_MASK = 0xFFFFFFFF  # A name: as a literal it would be an object when compiled.


class ReplayFull(Exception):
    """A command that must not be lost cannot be kept: wait until others are completed."""


class SentCommands:
    """The sequence of commands that are sent."""

    def __init__(self, session: SessionPort, lossless: bool) -> None:
        """``lossless``: never send a command that cannot be kept for replay."""
        self.session = session
        self.lossless = lossless
        self.keeps = False  # What is sent may have to be sent again.
        self.next_id = 0  # The id of the next command that we send.
        self.completed = CompletedIds(0)  # Commands that the peer completed.
        self.resuming = False  # Attached again, and not yet told what the peer expects.
        self.kept: dict[int, tuple[bytes, bytes, tuple[bytes, ...]]] = {}  # By unwrapped id.
        self.kept_bytes = 0
        self.has_due = False  # A session.known-completed at the end of the turn,
        self.due_first = 0  # for this range of ids,
        self.due_last = 0
        self.due_more: Any = None  # and for this SequenceSet.

    # --- Sending ------------------------------------------------------------------------------

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
        session = self.session
        if session.connection is not None and session.state < C_DETACHING and not self.resuming:
            self.write(payload, header, parts)
        return number

    def transfer_head(self, payload: bytes) -> bytes:
        """Return the frame of a message.transfer's command segment, for :meth:`send_transfer`.

        It holds the channel: make it again after the session was attached again.
        """
        size = len(payload) + C_FRAME_HEAD
        return (
            b"\x0b\x01"
            + size.to_bytes(2, "big")
            + b"\x00\x01"
            + self.session.channel.to_bytes(2, "big")
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
        session = self.session
        connection = session.connection
        header_size = header_end - header + C_FRAME_HEAD
        body_size = body_end - body + C_FRAME_HEAD
        if (
            self.keeps
            or connection is None
            or self.resuming
            or header_size > connection.max_frame_size
            or body_size > connection.max_frame_size
        ):
            return self.send(
                cut(head, C_FRAME_HEAD, len(head)),
                cut(h, header, header_end),
                (cut(b, body, body_end),),
            )
        self.next_id = (number + 1) & SERIAL_MASK
        size = len(head)
        connection.reserve(size + header_size + body_size)
        buffer = connection.buffer
        at = connection.tail
        copy(buffer, at, head, 0, size)
        at += size
        channel = session.channel
        put16(buffer, at, C_HEADER_START)
        put16(buffer, at + C_SIZE_AT, header_size)
        put16(buffer, at + C_TRACK_AT, 1)
        put16(buffer, at + C_CHANNEL_AT, channel)
        put32(buffer, at + C_RESERVED_AT, 0)
        copy(buffer, at + C_FRAME_HEAD, h, header, header_end)
        at += header_size
        put16(buffer, at, C_BODY_START)
        put16(buffer, at + C_SIZE_AT, body_size)
        put16(buffer, at + C_TRACK_AT, 1)
        put16(buffer, at + C_CHANNEL_AT, channel)
        put32(buffer, at + C_RESERVED_AT, 0)
        copy(buffer, at + C_FRAME_HEAD, b, body, body_end)
        connection.tail = at + body_size
        return number

    def send_transfer_parts(self, head: bytes, header: bytes, parts: tuple[bytes, ...]) -> int:
        """Send a message.transfer with a body in parts, which are not copied; return its id."""
        return self.send(
            cut(head, C_FRAME_HEAD, len(head)), header, tuple([part for part in parts if part])
        )

    # --- What the peer completed --------------------------------------------------------------

    # Keeps 0-10/s050, 0-10/s052.
    def peer_completed(self, lo: int, hi: int) -> None:
        """The peer says that it completed these commands of ours."""
        session = self.session
        sent = self.completed
        low = sent.unwrap(lo)
        high = low + ((hi - lo) & SERIAL_MASK)
        if high >= sent.unwrap(self.next_id):
            raise unknown_ids("completed names commands that were never sent")
        if high < sent.low:
            return
        if not sent.starts and low <= sent.low:
            low = sent.low
            sent.low = high + 1
            if self.kept:
                self.release(low, high)
            session.connection.on_completed(session, low & SERIAL_MASK, high & SERIAL_MASK)
            return
        fresh = sent.missing(low, high)
        try:
            sent.add(low, high)
        except ValueError as error:
            raise unknown_ids(str(error)) from None
        if self.kept:
            self.release(low, high)
        for low, high in fresh:
            session.connection.on_completed(session, low & SERIAL_MASK, high & SERIAL_MASK)

    def completed_frame(self, d: bytes | bytearray, lo: int, hi: int) -> None:
        """A session.completed came; ``d[lo:hi]`` is its payload, checked."""
        announced = d[lo + 2] & 2 != 0 or not self.session.connection.suppress_known_completed
        lo += 6
        while lo < hi:
            first = get32(d, lo)
            last = get32(d, lo + 4)
            self.peer_completed(first, last)
            if announced:
                self.add_known_completed(first, last)
            lo += 8

    def add_known_completed(self, lo: int, hi: int) -> None:
        """Send known-completed for these ids at the end of the turn."""
        if not self.has_due:
            self.has_due = True
            self.due_first = lo
            self.due_last = hi
            self.session.announce_later()
        elif lo == ((self.due_last + 1) & SERIAL_MASK):
            self.due_last = hi
        else:
            if self.due_more is None:
                self.due_more = SequenceSet()
            try:
                self.due_more.add_range(lo, hi)
            except ValueError:
                self.write_control(SessionKnownCompleted(commands=self.due_more))
                self.due_more = SequenceSet([(lo, hi)])

    # Keeps 0-10/s048, 0-10/s049.
    def send_known_completed(self) -> None:
        """Send session.known-completed."""
        self.has_due = False
        if self.due_more is None:
            self.write_range(0x020B01, self.due_first, self.due_last)
        else:
            known = self.due_more
            self.due_more = None
            try:
                known.add_range(self.due_first, self.due_last)
            except ValueError:
                self.write_range(0x020B01, self.due_first, self.due_last)
            self.write_control(SessionKnownCompleted(commands=known))

    def leave(self) -> None:
        """The session leaves its channel: drop what was to be sent there."""
        self.resuming = False
        self.has_due = False
        self.due_more = None

    # --- What is kept for replay --------------------------------------------------------------

    def keep(self, payload: bytes, header: bytes, parts: tuple[bytes, ...]) -> None:
        """Keep the next command for replay, if there is room."""
        item = (payload, header, parts)
        size = size_of(item)
        if self.kept_bytes + size > REPLAY_BYTES_MAX or len(self.kept) >= REPLAY_COMMANDS_MAX:
            if self.lossless:
                raise ReplayFull(
                    f"{len(self.kept)} commands of {self.kept_bytes} octets are not completed"
                )
            return
        self.kept[self.completed.unwrap(self.next_id)] = item
        self.kept_bytes += size

    def release(self, low: int, high: int) -> None:
        """These unwrapped ids need not be replayed."""
        kept = self.kept
        if high - low < len(kept):
            gone = [number for number in range(low, high + 1) if number in kept]
        else:
            gone = [number for number in kept if low <= number <= high]
        for number in gone:
            self.kept_bytes -= size_of(kept.pop(number))

    def forget_kept(self, lo: int, hi: int) -> None:
        """The peer confirmed these: they need not be replayed."""
        low = self.completed.unwrap(lo)
        high = low + ((hi - lo) & SERIAL_MASK)
        if high >= self.completed.unwrap(self.next_id):
            raise unknown_ids("confirmed names commands that were never sent")
        if self.kept:
            self.release(low, high)

    def forget_all(self) -> None:
        """Forget everything kept for replay."""
        self.kept.clear()
        self.kept_bytes = 0

    # --- Frames and controls ------------------------------------------------------------------

    def write(self, payload: bytes, header: bytes, parts: tuple[bytes, ...]) -> None:
        """Write the frames of a command."""
        session = self.session
        connection = session.connection
        last = 3 if parts else 2 if header else 1
        connection.write_segment(1, last == 1, session.channel, payload)
        if header:
            connection.write_segment(2, last == 2, session.channel, header)
        if parts:
            connection.write_body(session.channel, parts)

    def write_control(self, control: Any) -> None:
        """Write a control on our channel."""
        session = self.session
        session.connection.write_segment(0, True, session.channel, encode_control(control))

    def write_range(self, head: int, lo: int, hi: int) -> None:
        """Write a control that holds one range of ids; ``head`` is its code and packing flags."""
        connection = self.session.connection
        connection.reserve(C_RANGE_CONTROL_LEN)
        buffer = connection.buffer
        at = connection.tail
        connection.tail = at + C_RANGE_CONTROL_LEN
        put32(buffer, at, C_RANGE_CONTROL_START)
        put32(buffer, at + C_TRACK_AT, self.session.channel)
        put32(buffer, at + C_RESERVED_AT, 0)
        at += C_FRAME_HEAD
        put32(buffer, at, head << 8)
        put16(buffer, at + 4, C_RANGE_LEN)
        put32(buffer, at + 6, lo)
        put32(buffer, at + 10, hi)

    def send_command_point(self, number: int, offset: int) -> None:
        """Send session.command-point: where our commands go on."""
        self.write_control(SessionCommandPoint(command_id=number, command_offset=offset))

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
        """Send session.gap: these commands count as completed."""
        self.write_control(SessionGap(commands=SequenceSet([(lo, hi)])))
        low = self.completed.unwrap(lo)
        self.release(low, low + ((hi - lo) & SERIAL_MASK))


def size_of(item: tuple[bytes, bytes, tuple[bytes, ...]]) -> int:
    """Return the size of a kept command, with its overhead."""
    return len(item[0]) + len(item[1]) + sum([len(part) for part in item[2]]) + 64
