# SPDX-License-Identifier: Apache-2.0
"""The assembly of a command from frames (AMQP 0-10: assemblies, segments and frames).

An assembly is a command segment, at most one header segment and at most one body segment, in that
order. Each segment is one or more frames. The flags of a frame must continue the assembly that the
frames before it began. Otherwise the boundaries of later segments are unknown, and the connection
is closed.
"""

from typing import TYPE_CHECKING, Any

import cython

if not cython.compiled:
    from headrace.protocol.output import BufferPool
    from headrace.wire.memory import cut

from headrace.protocol.errors_0_10 import CloseError
from headrace.spec.reply_0_10 import CloseCode

if TYPE_CHECKING:
    from headrace.protocol.endpoint import BodySink

FIRST_SEGMENT = 8
LAST_SEGMENT = 4
FIRST_FRAME = 2
LAST_FRAME = 1
BEGINS = FIRST_SEGMENT | FIRST_FRAME  # The first frame of an assembly.
ONE_SEGMENT = FIRST_SEGMENT | LAST_SEGMENT  # An assembly of one segment.
FIRST_WHOLE = BEGINS | LAST_FRAME  # A first segment of one frame; others follow.
WHOLE = FIRST_WHOLE | LAST_SEGMENT  # An assembly of one frame.

# Indexes in a frame, whose first byte holds the flags.
TYPE_AT = 1
SIZE_AT = 2
TRACK_AT = 4  # 16 bits: a reserved byte and the track.
CHANNEL_AT = 6
RESERVED_AT = 8
FRAME_HEAD = 12  # The bytes before the payload.

CONTROL = 0
COMMAND = 1
HEADER = 2
BODY = 3

EMPTY_FRAMES_MAX = 64  # The maximum empty frames of one assembly that do not end a segment.
PART_MIN = 32768  # The minimum bytes of a part; the payloads of smaller frames are joined.
PART_MAX = 131072  # The bytes after which joined payloads become a part.
if not cython.compiled:
    C_BEGINS = BEGINS


class Assembly:
    """The received segments of one command."""

    def __init__(self) -> None:
        self.is_active = False
        self.is_discarding = False  # True: frames are checked and dropped.
        self.sink: BodySink | None = None  # Gets the body; None if it is kept in memory.
        self.pool: Any = None  # Counts the bytes of the body.
        self.counted = 0  # The bytes of the body that the pool counts.
        self.clear()

    def clear(self) -> None:
        """Drop the command and its sink; the next frame begins a command."""
        if self.sink is not None:
            self.sink.abandon()
            self.sink = None
        if self.counted:
            self.pool.count(-self.counted)
            self.counted = 0
        self.is_active = False
        self.is_discarding = False
        self.segment_type = 0  # The type of the latest segment; 0 if it is unknown.
        self.is_segment_open = False  # True: the last frame of that segment is missing.
        self.is_last_segment = False
        self.empty = 0
        self.payload_bytes = 0  # The bytes of all segments' payloads.
        self.command = b""
        self.header = b""
        self.body_size = 0
        self.parts: list[bytes] = []
        self.gathered: bytearray | None = None

    def begin(self, discarding: bool, pool: BufferPool) -> None:
        """Begin a command before its first frame; ``pool`` counts the bytes of its body."""
        self.clear()
        self.pool = pool
        self.is_active = True
        self.is_discarding = discarding

    def follow(self) -> None:
        """Check and discard the remaining frames of a command whose beginning was lost."""
        self.clear()
        self.is_active = True
        self.is_discarding = True
        self.is_segment_open = True

    def add(
        self, flags: int, segment_type: int, buffer: bytes | bytearray, start: int, end: int
    ) -> bool:
        """Add a frame's payload ``buffer[start:end]``; return True if the segment is complete.

        Raises:
            CloseError: the flags do not continue the assembly.
        """
        if (
            self.is_segment_open and self.segment_type == 0
        ):  # Within a command whose beginning was lost.
            # Keeps 0-10/s039.
            if flags & C_BEGINS == C_BEGINS:
                raise framing_error("a command begins where the rest of one is due")
            self.segment_type = segment_type
        elif self.is_segment_open:
            if (
                segment_type != self.segment_type
                or flags & FIRST_FRAME
                or bool(flags & LAST_SEGMENT) != self.is_last_segment
                or bool(flags & FIRST_SEGMENT) != (segment_type == COMMAND)
            ):
                raise framing_error("a frame does not continue its segment")
        elif (
            segment_type <= self.segment_type
            or not flags & FIRST_FRAME
            or bool(flags & FIRST_SEGMENT) != (segment_type == COMMAND)
            or (self.segment_type == 0) != (segment_type == COMMAND)
        ):
            raise framing_error("a frame does not begin the next segment")
        self.segment_type = segment_type
        self.is_last_segment = flags & LAST_SEGMENT != 0
        self.is_segment_open = flags & LAST_FRAME == 0
        if end == start and self.is_segment_open:
            self.empty += 1
            if self.empty > EMPTY_FRAMES_MAX:
                raise framing_error(f"more than {EMPTY_FRAMES_MAX} empty frames in one command")
        self.payload_bytes += end - start
        if not self.is_discarding:
            if segment_type == BODY:
                self.add_body(buffer, start, end)
            elif segment_type == COMMAND:
                self.command = (
                    self.command + cut(buffer, start, end)
                    if self.command
                    else cut(buffer, start, end)
                )
            else:
                self.header = (
                    self.header + cut(buffer, start, end)
                    if self.header
                    else cut(buffer, start, end)
                )
        return not self.is_segment_open

    def add_body(self, buffer: bytes | bytearray, start: int, end: int) -> None:
        """Add the payload of a body frame; small ones are joined."""
        self.body_size += end - start
        if self.sink is not None:
            self.sink.add(cut(buffer, start, end))
            return
        self.counted += end - start
        self.pool.count(end - start)
        if self.gathered is None and end - start >= PART_MIN:
            self.parts.append(cut(buffer, start, end))
            return
        if self.gathered is None:
            self.gathered = bytearray()
        self.gathered += cut(buffer, start, end)
        if len(self.gathered) >= PART_MAX:
            self.parts.append(bytes(self.gathered))
            self.gathered = None

    def body(self) -> tuple[bytes, ...]:
        """Return the parts of the body; empty if the command has no body."""
        if self.gathered:
            self.parts.append(bytes(self.gathered))
            self.gathered = None
        return tuple(self.parts)


def framing_error(text: str) -> CloseError:
    """Return the error that closes the connection for wrong frames."""
    return CloseError(CloseCode.FRAMING_ERROR, text)
