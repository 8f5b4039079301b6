# SPDX-License-Identifier: Apache-2.0
"""The frame reader of AMQP 0-10: it splits input into frames and assembles controls and commands.

The owner passes received bytes to :meth:`FrameReader.feed` (or ``receive``). Every complete frame
is checked (flags, type, size, track, channel) before a byte of its payload is read. Then

* a ``message.transfer`` whose segments are single frames and complete in the buffer, a
  ``message.accept`` and a ``session.completed`` take a fast path: one call with offsets, no
  objects;
* every other control is assembled here and passed on (``control``);
* every other command is assembled by its session.

Both paths end in the same upcalls, so the split of the bytes into reads or frames makes no
difference.

A client may send all controls of the opening at once. While the owner has to answer one (the login
may be checked in another thread), later bytes are held. They are handled once the state advances.
"""

import cython

if not cython.compiled:
    from headrace.protocol.endpoint import METHOD_WORK as C_METHOD_WORK
    from headrace.protocol.v0_10.assembly import BEGINS as C_BEGINS
    from headrace.protocol.v0_10.assembly import BODY as C_BODY
    from headrace.protocol.v0_10.assembly import CHANNEL_AT as C_CHANNEL_AT
    from headrace.protocol.v0_10.assembly import COMMAND as C_COMMAND
    from headrace.protocol.v0_10.assembly import CONTROL as C_CONTROL
    from headrace.protocol.v0_10.assembly import FIRST_FRAME as C_FIRST_FRAME
    from headrace.protocol.v0_10.assembly import FIRST_WHOLE as C_FIRST_WHOLE
    from headrace.protocol.v0_10.assembly import FRAME_HEAD as C_FRAME_HEAD
    from headrace.protocol.v0_10.assembly import HEADER as C_HEADER
    from headrace.protocol.v0_10.assembly import LAST_FRAME as C_LAST_FRAME
    from headrace.protocol.v0_10.assembly import ONE_SEGMENT as C_ONE_SEGMENT
    from headrace.protocol.v0_10.assembly import SIZE_AT as C_SIZE_AT
    from headrace.protocol.v0_10.assembly import TYPE_AT as C_TYPE_AT
    from headrace.protocol.v0_10.assembly import WHOLE as C_WHOLE
    from headrace.protocol.v0_10.session.port import ATTACHED as C_ATTACHED
    from headrace.protocol.v0_10.session.session import Session
    from headrace.protocol.v0_10.session_connection import SessionConnection
    from headrace.protocol.v0_x.handshake import (
        STATE_AUTHENTICATING,
        STATE_AWAITING_HEADER,
        STATE_CLOSED,
        STATE_CLOSING,
        STATE_GREETED,
        STATE_OPEN,
        STATE_OPENING,
    )
    from headrace.wire.memory import cut, get16, get32

from headrace.protocol.errors_0_10 import CloseError
from headrace.spec.reply_0_10 import CloseCode

SERIAL_MASK = 0xFFFFFFFF  # A name: as a literal it would be an object when compiled.
SERIAL_HALF = 0x7FFFFFFF
HANDSHAKE_BYTES_MAX = 16384  # The maximum bytes from a peer before the opening.
CONTROL_BYTES_MAX = 262144  # The maximum bytes of unfinished controls, on all channels.
EMPTY_FRAMES_MAX = 64  # The maximum empty frames of unfinished controls.
INLINE_WAIT_MAX = 98304  # The maximum bytes of an unfinished transfer in the read buffer.
# Code and session header of a command, without the sync flag.
TRANSFER_START = 0x04010100 >> 1
ACCEPT_START = 0x04020100 >> 1


class FrameReader:
    """Splits the input of a connection into frames and dispatches them."""

    def __init__(self, connection: SessionConnection) -> None:
        self.connection = connection
        # Keeps 0-10/s013, 0-10/s016.
        self.frame_limit = HANDSHAKE_BYTES_MAX  # The maximum bytes of a frame now.
        self.held = b""  # Input that waits until the state has changed.
        self.is_handling = False  # True: a call of ``feed`` is handling frames.
        self.frame_end = 0  # The offset after the frame that is being handled.
        self.handshake_bytes = 0
        self.hold_above = 1 << 62  # Bytes of output above which nothing more is handled.
        self.ignores_input = False
        self.controls: dict[int, bytes] = {}  # Unfinished controls, by channel.
        self.control_bytes = 0  # The bytes of all unfinished controls.
        self.control_empty = 0

    # --- Input --------------------------------------------------------------------------------

    def feed(self, buffer: bytes | bytearray, length: int) -> int:
        """Handle the complete frames in ``buffer[:length]``; return how many bytes were consumed.

        The owner passes the remaining ones again, followed by more. They are fewer than
        ``max_frame_size`` plus ``INLINE_WAIT_MAX``.
        """
        if self.held:
            return self.feed_held(cut(buffer, 0, length))
        self.is_handling = True
        pos = self.handle(buffer, length)
        if self.awaits_owner() and length > pos:
            if length - pos > HANDSHAKE_BYTES_MAX:
                self.refuse_flood()
            else:
                self.held = cut(buffer, pos, length)
            pos = length
        self.is_handling = False
        self.connection.on_turn_end()
        return pos

    def feed_held(self, data: bytes) -> int:
        """Handle the held input, then ``data``."""
        size = len(data)
        data = self.held + data
        self.held = b""
        total = len(data)
        self.is_handling = True
        pos = self.handle(data, total)
        if self.awaits_owner() or total - pos > size:
            if self.awaits_owner() and total - pos > HANDSHAKE_BYTES_MAX:
                self.refuse_flood()
            elif total > pos:
                self.held = data[pos:]
            pos = total
        self.is_handling = False
        self.connection.on_turn_end()
        return size - (total - pos)

    def awaits_owner(self) -> bool:
        """Return True if input of the client has to wait for an answer of the owner."""
        state = self.connection.state_number
        return self.connection.is_server and state in (
            STATE_GREETED,
            STATE_AUTHENTICATING,
            STATE_OPENING,
        )

    def refuse_flood(self) -> None:
        """Close a connection whose peer sent too many bytes before it was open."""
        self.ignores_input = True
        self.connection.fail(
            CloseError(
                CloseCode.FRAMING_ERROR,
                f"more than {HANDSHAKE_BYTES_MAX} octets before connection.open-ok",
            )
        )

    def handle(self, buffer: bytes | bytearray, length: int) -> int:
        """Handle the complete frames of ``buffer``; return how many bytes were consumed.

        All errors end in :meth:`SessionConnection.fail`.
        """
        connection = self.connection
        pos = 0
        connection.begin_turn()
        while True:
            if self.ignores_input or connection.state_number == STATE_CLOSED:
                return length
            try:
                if connection.state_number == STATE_AWAITING_HEADER:
                    if connection.is_server or length == pos or buffer[pos] == 65:  # "A"
                        if length - pos < 8:
                            connection.check_header(buffer, pos, length)
                            break
                        self.frame_end = pos + 8
                        connection.accept_header(cut(buffer, pos, pos + 8))
                        pos = self.frame_end
                        continue
                    connection.state_number = (
                        STATE_GREETED  # A server may begin without its header.
                    )
                pos = self.frames(buffer, pos, length)
                break
            except Exception as error:  # noqa: BLE001 - nothing leaves the machine
                connection.answer_error(error)
                pos = self.frame_end
                connection.work_left -= C_METHOD_WORK
        return pos

    # --- Frames -------------------------------------------------------------------------------

    def frames(self, buffer: bytes | bytearray, pos: int, length: int) -> int:
        """Handle frame after frame; return the start of the first incomplete one."""
        # This is one function because several would have to pass ``pos``, a C local, per frame.
        connection = self.connection
        while length - pos >= C_FRAME_HEAD:
            if connection.work_left <= 0 and connection.turn_is_over():
                break
            connection.work_left -= 1
            flags = buffer[pos]
            segment_type = buffer[pos + C_TYPE_AT]
            size = get16(buffer, pos + C_SIZE_AT)
            number = get16(buffer, pos + C_CHANNEL_AT)
            # Keeps 0-10/s004, 0-10/s005, 0-10/s019.
            if (
                flags > 15
                or segment_type > 3
                or size < C_FRAME_HEAD
                or size > self.frame_limit
                or buffer[pos + 5] != (segment_type > 0)
                or number >= connection.channel_max
            ):
                self.frame_end = length
                raise self.frame_error(flags, segment_type, size, buffer[pos + 5], number)
            end = pos + size
            if end > length:
                break
            if connection.state_number < STATE_OPEN:
                if self.awaits_owner():
                    break
                self.handshake_bytes += size
                if self.handshake_bytes > HANDSHAKE_BYTES_MAX:
                    self.frame_end = length
                    self.refuse_flood()
                    return length
            self.frame_end = end
            connection.current = 0
            session = connection.last
            if session is None or session.channel != number:
                session = connection.attached.get(number)
                connection.last = session
            connection.session = session
            if (
                segment_type == C_COMMAND
                and session is not None
                and session.takes_fast_path
                and connection.state_number == STATE_OPEN
            ):
                if (
                    flags == C_FIRST_WHOLE
                    and size > 15
                    and get32(buffer, pos + C_FRAME_HEAD) >> 1 == TRANSFER_START
                ):
                    pos = self.transfer_frames(session, buffer, pos, end, length)
                    if pos < 0:
                        return -pos - 1
                    if connection.tail - connection.head + connection.chained > self.hold_above:
                        return pos
                    continue
                if (
                    flags == C_WHOLE
                    and size > 19
                    and get32(buffer, pos + C_FRAME_HEAD) >> 1 == ACCEPT_START
                    and get16(buffer, pos + 16) == 0x0100
                    and get16(buffer, pos + 18) == size - 20
                    and check_ranges(buffer, pos + 20, end)
                ):
                    session.assign_number(buffer[pos + 15] & 1 != 0)
                    connection.current = 0x0402
                    connection.on_accept(session, buffer, pos + 20, end)
                    pos = end
                    if connection.tail - connection.head + connection.chained > self.hold_above:
                        return pos
                    continue
            connection.work_left -= C_METHOD_WORK
            if segment_type == C_CONTROL:
                self.control_frame(session, flags, number, buffer, pos + C_FRAME_HEAD, end)
            elif connection.state_number == STATE_CLOSING:
                pass
            elif connection.state_number != STATE_OPEN:
                self.frame_end = length
                raise CloseError(CloseCode.FRAMING_ERROR, "a command before connection.open-ok")
            elif session is None:
                # Keeps 0-10/s031.
                if flags & C_BEGINS == C_BEGINS:
                    connection.refuse_unattached(number)
            else:
                connection.current = 0
                session.command_frame(flags, segment_type, buffer, pos + C_FRAME_HEAD, end)
            pos = end
            if self.ignores_input or connection.state_number == STATE_CLOSED:
                return length
            if connection.tail - connection.head + connection.chained > self.hold_above:
                return pos
        return pos

    def frame_error(
        self, flags: int, segment_type: int, size: int, track: int, number: int
    ) -> CloseError:
        """Return the error for an invalid frame header."""
        if flags > 15:
            text = f"unknown frame flags {flags:#x}"
        elif segment_type > 3:
            text = f"unknown segment type {segment_type}"
        elif track > 1:
            text = f"unknown track {track}"
        elif track != (segment_type > 0):
            text = f"a segment of type {segment_type} on track {track}"
        elif size < C_FRAME_HEAD:
            text = f"a frame of {size} octets is shorter than its head"
        elif size > self.frame_limit:
            text = f"a frame of {size} octets is larger than the maximum of {self.frame_limit}"
        else:
            text = f"channel {number} is above the highest of {self.connection.channel_max - 1}"
        return CloseError(CloseCode.FRAMING_ERROR, text)

    def transfer_frames(
        self, session: Session, buffer: bytes | bytearray, pos: int, end: int, length: int
    ) -> int:
        """Handle a transfer at ``pos``.

        A transfer whose segments are single frames in the buffer is passed on with offsets. An
        incomplete one waits for more input if it is small; else its frames are assembled.

        Returns:
            The offset after the handled frames; -1 - ``pos`` to wait for more input.
        """
        position = end
        header = end
        header_end = end
        body = end
        number = session.channel
        waits = length - position < C_FRAME_HEAD
        if not waits and buffer[position + C_TYPE_AT] == C_HEADER:
            size = get16(buffer, position + C_SIZE_AT)
            if (
                (buffer[position] | 4) == 7
                and get16(buffer, position + C_CHANNEL_AT) == number
                and buffer[position + 5] == 1
                and C_FRAME_HEAD <= size <= self.frame_limit
            ):
                header = position + C_FRAME_HEAD
                header_end = position + size
                position = header_end
                body = position
                waits = position > length
                if not waits and buffer[header - C_FRAME_HEAD] == 7:
                    return self.transfer(
                        session, buffer, pos, end, header, header_end, position, position
                    )
                if not waits:
                    waits = length - position < C_FRAME_HEAD
        if not waits and buffer[position + C_TYPE_AT] == C_BODY:
            size = get16(buffer, position + C_SIZE_AT)
            if (
                buffer[position] == 7
                and get16(buffer, position + C_CHANNEL_AT) == number
                and buffer[position + 5] == 1
                and C_FRAME_HEAD <= size <= self.frame_limit
                and size - C_FRAME_HEAD <= self.connection.body_max
            ):
                body = position + C_FRAME_HEAD
                position += size
                if position <= length:
                    return self.transfer(
                        session, buffer, pos, end, header, header_end, body, position
                    )
                waits = True
        if waits and length - pos < INLINE_WAIT_MAX:
            return -1 - pos
        session.command_frame(buffer[pos], 1, buffer, pos + C_FRAME_HEAD, end)
        return end

    def transfer(
        self,
        session: Session,
        buffer: bytes | bytearray,
        pos: int,
        end: int,
        header: int,
        header_end: int,
        body: int,
        position: int,
    ) -> int:
        """Pass a transfer that ends at ``position`` to the owner; return ``position``."""
        self.frame_end = position
        session.command_id = session.next_in
        session.sync = buffer[pos + 15] & 1 != 0
        session.next_in = (session.next_in + 1) & SERIAL_MASK
        session.cursor = session.next_in
        self.connection.current = 0x0401
        self.connection.on_transfer(
            session, buffer, pos + 14, end, header, header_end, body, position
        )
        return position

    def control_frame(
        self,
        session: Session | None,
        flags: int,
        number: int,
        buffer: bytes | bytearray,
        start: int,
        end: int,
    ) -> None:
        """Handle a frame of the control track."""
        if (
            session is not None
            and session.state == C_ATTACHED
            and flags == C_WHOLE
            and end - start > 6
            and get16(buffer, start) == 0x020A
            and buffer[start + 2] | 2 == 3
            and buffer[start + 3] == 0
            and get16(buffer, start + 4) == end - start - 6
            and not self.controls
            and check_ranges(buffer, start + 6, end)
            and self.connection.state_number == STATE_OPEN
        ):
            session.completed_frame(buffer, start, end)
            return
        if flags & C_ONE_SEGMENT != C_ONE_SEGMENT:
            raise CloseError(CloseCode.FRAMING_ERROR, "a control has one segment")
        begun = self.controls.pop(number, None)
        if (begun is None) != (flags & C_FIRST_FRAME != 0):
            raise CloseError(CloseCode.FRAMING_ERROR, "a control's frames are out of order")
        payload = cut(buffer, start, end)
        if begun is not None:
            self.control_bytes -= len(begun)
            payload = begun + payload
        if not flags & C_LAST_FRAME:
            self.control_bytes += len(payload)
            self.control_empty += end == start
            if self.control_bytes > CONTROL_BYTES_MAX or self.control_empty > EMPTY_FRAMES_MAX:
                raise CloseError(CloseCode.FRAMING_ERROR, "a control does not end")
            self.controls[number] = payload
            return
        if not self.controls:
            self.control_empty = 0
        self.connection.control(session, number, payload)


def check_ranges(buffer: bytes | bytearray, start: int, end: int) -> bool:
    """Return True if ``buffer[start:end]`` holds ordered ranges of a sequence-set with gaps."""
    if (end - start) & 7 or start == end:
        return False
    base = get32(buffer, start)
    before = -2
    while start < end:
        first = (get32(buffer, start) - base) & SERIAL_MASK
        last = (get32(buffer, start + 4) - base) & SERIAL_MASK
        if first < before + 2 or last < first or last > SERIAL_HALF:
            return False
        before = last
        start += 8
    return True
