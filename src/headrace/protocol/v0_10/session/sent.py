# SPDX-License-Identifier: Apache-2.0
"""The commands that a session of AMQP 0-10 sends: their ids, and which the peer completed.

Sent commands are kept for replay while the granted timeout is not 0, up to ``REPLAY_BYTES_MAX``;
:mod:`headrace.protocol.v0_10.session.replay` sends them again. The peer may request that its
session.completed is acknowledged: session.known-completed is sent at the end of the turn.
"""

from typing import Any

import cython

if not cython.compiled:
    from headrace.protocol.v0_10.assembly import CHANNEL_AT as C_CHANNEL_AT
    from headrace.protocol.v0_10.assembly import FRAME_HEAD as C_FRAME_HEAD
    from headrace.protocol.v0_10.assembly import RESERVED_AT as C_RESERVED_AT
    from headrace.protocol.v0_10.assembly import SIZE_AT as C_SIZE_AT
    from headrace.protocol.v0_10.assembly import TRACK_AT as C_TRACK_AT
    from headrace.protocol.v0_10.session.completed_ids import CompletedIds
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

HEADER_START = 0x0302  # The flags and type of a header segment of one frame.
BODY_START = 0x0703  # The flags and type of a body segment, the last of its command.
RANGE_LEN = 8  # The bytes of a range of ids.
RANGE_CONTROL_LEN = 26  # The bytes of the frame of a control with one range.
RANGE_CONTROL_START = 0x0F00001A  # The flags, segment type and size of such a frame.
KNOWN_COMPLETED = 0x020B01  # The code and packing flags of session.known-completed.
if not cython.compiled:
    C_RANGE_LEN = RANGE_LEN
    C_RANGE_CONTROL_LEN = RANGE_CONTROL_LEN
    C_RANGE_CONTROL_START = RANGE_CONTROL_START
    C_KNOWN_COMPLETED = KNOWN_COMPLETED
    C_HEADER_START = HEADER_START
    C_BODY_START = BODY_START
REPLAY_BYTES_MAX = 16 << 20  # The bytes of the commands that a session keeps for replay.
REPLAY_COMMANDS_MAX = 65536  # The number of commands that a session keeps for replay.
SERIAL_MASK = 0xFFFFFFFF  # A name: as a literal it would be an object when compiled.


class ReplayFull(Exception):
    """A command cannot be kept for replay until the peer has completed others."""


class SentCommands:
    """The sequence of commands that a session sends."""

    def __init__(self, session: SessionPort, lossless: bool) -> None:
        """With ``lossless``, a command that cannot be kept for replay is not sent."""
        self.session = session
        self.lossless = lossless
        self.keeps_for_replay = False  # True: sent commands are kept for replay.
        self.next_id = 0  # The id of the next command.
        self.completed = CompletedIds(0)  # Commands that the peer completed.
        self.is_resuming = False  # True: attached again, before the peer's session.expected.
        #: The commands kept for replay, by unwrapped id: payload, header, parts of the body.
        self.kept: dict[int, tuple[bytes, bytes, tuple[bytes, ...]]] = {}
        self.kept_bytes = 0
        # The session.known-completed that is due at the end of the turn: for the range of ids from
        # ``due_first`` to ``due_last``, and for the SequenceSet ``due_more``.
        self.has_due = False
        self.due_first = 0
        self.due_last = 0
        self.due_more: Any = None

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
        if self.keeps_for_replay:
            self.keep(payload, header, parts)
        number = self.next_id
        self.next_id = (number + 1) & SERIAL_MASK
        session = self.session
        if session.connection is not None and session.state < C_DETACHING and not self.is_resuming:
            self.write(payload, header, parts)
        return number

    def transfer_head(self, payload: bytes) -> bytes:
        """Return the frame of a message.transfer's command segment, for :meth:`send_transfer`.

        The frame contains the channel, so it is valid until the session is detached.
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

    # Keeps 0-10/s018.
    def send_transfer(
        self,
        head: bytes,
        header_buffer: bytes | bytearray,
        header: int,
        header_end: int,
        body_buffer: bytes | bytearray,
        body: int,
        body_end: int,
    ) -> int:
        """Send a message.transfer and return its id.

        ``head`` is from :meth:`transfer_head`. The payloads of the header and the body segment are
        ``header_buffer[header:header_end]`` and ``body_buffer[body:body_end]``; empty segments are
        sent, too.
        """
        number = self.next_id
        session = self.session
        connection = session.connection
        header_size = header_end - header + C_FRAME_HEAD
        body_size = body_end - body + C_FRAME_HEAD
        if (
            self.keeps_for_replay
            or connection is None
            or self.is_resuming
            or header_size > connection.max_frame_size
            or body_size > connection.max_frame_size
        ):
            return self.send(
                cut(head, C_FRAME_HEAD, len(head)),
                cut(header_buffer, header, header_end),
                (cut(body_buffer, body, body_end),),
            )
        self.next_id = (number + 1) & SERIAL_MASK
        size = len(head)
        connection.reserve(size + header_size + body_size)
        buffer = connection.buffer
        position = connection.tail
        copy(buffer, position, head, 0, size)
        position += size
        channel = session.channel
        put16(buffer, position, C_HEADER_START)
        put16(buffer, position + C_SIZE_AT, header_size)
        put16(buffer, position + C_TRACK_AT, 1)
        put16(buffer, position + C_CHANNEL_AT, channel)
        put32(buffer, position + C_RESERVED_AT, 0)
        copy(buffer, position + C_FRAME_HEAD, header_buffer, header, header_end)
        position += header_size
        put16(buffer, position, C_BODY_START)
        put16(buffer, position + C_SIZE_AT, body_size)
        put16(buffer, position + C_TRACK_AT, 1)
        put16(buffer, position + C_CHANNEL_AT, channel)
        put32(buffer, position + C_RESERVED_AT, 0)
        copy(buffer, position + C_FRAME_HEAD, body_buffer, body, body_end)
        connection.tail = position + body_size
        return number

    def send_transfer_parts(self, head: bytes, header: bytes, parts: tuple[bytes, ...]) -> int:
        """Send a message.transfer with a body in parts, which are not copied; return its id."""
        return self.send(
            cut(head, C_FRAME_HEAD, len(head)), header, tuple([part for part in parts if part])
        )

    # --- Completion by the peer ---------------------------------------------------------------

    # Keeps 0-10/s050.
    def peer_completed(self, first_id: int, last_id: int) -> None:
        """Handle session.completed for a range of ids: the peer has completed these commands."""
        session = self.session
        sent = self.completed
        low = sent.unwrap(first_id)
        high = low + ((last_id - first_id) & SERIAL_MASK)
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
        newly_completed = sent.missing(low, high)
        try:
            sent.add(low, high)
        except ValueError as error:
            raise unknown_ids(str(error)) from None
        if self.kept:
            self.release(low, high)
        for low, high in newly_completed:
            session.connection.on_completed(session, low & SERIAL_MASK, high & SERIAL_MASK)

    # Keeps 0-10/s049.
    def completed_frame(self, buffer: bytes | bytearray, start: int, end: int) -> None:
        """Handle session.completed; ``buffer[start:end]`` is its payload, which is checked."""
        announced = (
            buffer[start + 2] & 2 != 0 or not self.session.connection.suppress_known_completed
        )
        start += 6
        while start < end:
            first = get32(buffer, start)
            last = get32(buffer, start + 4)
            self.peer_completed(first, last)
            if announced:
                self.add_known_completed(first, last)
            start += 8

    # Keeps 0-10/s048.
    def add_known_completed(self, first_id: int, last_id: int) -> None:
        """Send known-completed for these ids at the end of the turn."""
        if not self.has_due:
            self.has_due = True
            self.due_first = first_id
            self.due_last = last_id
            self.session.announce_later()
        elif first_id == ((self.due_last + 1) & SERIAL_MASK):
            self.due_last = last_id
        else:
            if self.due_more is None:
                self.due_more = SequenceSet()
            try:
                self.due_more.add_range(first_id, last_id)
            except ValueError:
                self.write_control(SessionKnownCompleted(commands=self.due_more))
                self.due_more = SequenceSet([(first_id, last_id)])

    # Keeps 0-10/s048.
    def send_known_completed(self) -> None:
        """Send session.known-completed."""
        self.has_due = False
        if self.due_more is None:
            self.write_range(C_KNOWN_COMPLETED, self.due_first, self.due_last)
        else:
            known_completed = self.due_more
            self.due_more = None
            try:
                known_completed.add_range(self.due_first, self.due_last)
            except ValueError:
                self.write_range(C_KNOWN_COMPLETED, self.due_first, self.due_last)
            self.write_control(SessionKnownCompleted(commands=known_completed))

    def clear_due(self) -> None:
        """Drop the controls that are due, as the session leaves its channel."""
        self.is_resuming = False
        self.has_due = False
        self.due_more = None

    # --- Commands kept for replay -------------------------------------------------------------

    def keep(self, payload: bytes, header: bytes, parts: tuple[bytes, ...]) -> None:
        """Keep the next command for replay, if there is room."""
        item = (payload, header, parts)
        size = retained_size(item)
        if self.kept_bytes + size > REPLAY_BYTES_MAX or len(self.kept) >= REPLAY_COMMANDS_MAX:
            if self.lossless:
                raise ReplayFull(
                    f"{len(self.kept)} commands of {self.kept_bytes} octets are not completed"
                )
            return
        self.kept[self.completed.unwrap(self.next_id)] = item
        self.kept_bytes += size

    def release(self, low: int, high: int) -> None:
        """Drop the commands with these unwrapped ids: they need not be replayed."""
        kept = self.kept
        if high - low < len(kept):
            released = [number for number in range(low, high + 1) if number in kept]
        else:
            released = [number for number in kept if low <= number <= high]
        for number in released:
            self.kept_bytes -= retained_size(kept.pop(number))

    def drop_confirmed(self, first_id: int, last_id: int) -> None:
        """Drop the commands that the peer confirmed: they need not be replayed."""
        low = self.completed.unwrap(first_id)
        high = low + ((last_id - first_id) & SERIAL_MASK)
        if high >= self.completed.unwrap(self.next_id):
            raise unknown_ids("confirmed names commands that were never sent")
        if self.kept:
            self.release(low, high)

    def drop_all(self) -> None:
        """Drop all commands that are kept for replay."""
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

    def write_range(self, head: int, first_id: int, last_id: int) -> None:
        """Write a control that holds one range of ids; ``head`` is its code and packing flags."""
        connection = self.session.connection
        connection.reserve(C_RANGE_CONTROL_LEN)
        buffer = connection.buffer
        position = connection.tail
        connection.tail = position + C_RANGE_CONTROL_LEN
        put32(buffer, position, C_RANGE_CONTROL_START)
        put32(buffer, position + C_TRACK_AT, self.session.channel)
        put32(buffer, position + C_RESERVED_AT, 0)
        position += C_FRAME_HEAD
        put32(buffer, position, head << 8)
        put16(buffer, position + 4, C_RANGE_LEN)
        put32(buffer, position + 6, first_id)
        put32(buffer, position + 10, last_id)

    def send_command_point(self, number: int, offset: int) -> None:
        """Send session.command-point: where our commands go on."""
        self.write_control(SessionCommandPoint(command_id=number, command_offset=offset))

    def request_timeout(self, timeout_s: int | None) -> None:
        """Request that the session be kept for ``timeout_s`` when detached; None is no limit."""
        self.write_control(SessionRequestTimeout(timeout=timeout_s))

    def flush(
        self, expected: bool = False, confirmed: bool = False, completed: bool = False
    ) -> None:
        """Send session.flush: request the peer's expected, confirmed or completed commands."""
        self.write_control(
            SessionFlush(expected=expected, confirmed=confirmed, completed=completed)
        )

    def send_gap(self, first_id: int, last_id: int) -> None:
        """Send session.gap: these commands count as completed."""
        self.write_control(SessionGap(commands=SequenceSet([(first_id, last_id)])))
        low = self.completed.unwrap(first_id)
        self.release(low, low + ((last_id - first_id) & SERIAL_MASK))


def retained_size(item: tuple[bytes, bytes, tuple[bytes, ...]]) -> int:
    """Return the bytes of memory of a retained command, with its overhead."""
    return len(item[0]) + len(item[1]) + sum([len(part) for part in item[2]]) + 64
