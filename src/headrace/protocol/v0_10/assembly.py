# SPDX-License-Identifier: Apache-2.0
"""A command that is assembled from frames (AMQP 0-10, assemblies, segments and frames).

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

# Indexes in a frame; its flags are the first octet.
KIND_AT = 1
SIZE_AT = 2
TRACK_AT = 4  # 16 bits: a reserved octet, and the track.
CHANNEL_AT = 6
RESERVED_AT = 8
FRAME_HEAD = 12  # Octets before the payload.

CONTROL = 0
COMMAND = 1
HEADER = 2
BODY = 3

EMPTY_FRAMES_MAX = 64  # Empty frames of one assembly that do not end a segment.
PART_MIN = 32768  # Bytes; smaller chunks of a body are joined.
PART_MAX = 131072
if not cython.compiled:
    C_BEGINS = BEGINS


class Assembly:
    """The received segments of one command."""

    def __init__(self) -> None:
        self.active = False
        self.discarding = False  # Its frames are checked, but not kept.
        self.sink: BodySink | None = None  # Takes the body instead.
        self.pool: Any = None  # Counts the bytes of the body.
        self.counted = 0  # Octets of it that the pool counts.
        self.clear()

    def clear(self) -> None:
        """Forget the command."""
        if self.sink is not None:
            self.sink.abandon()
            self.sink = None
        if self.counted:
            self.pool.count(-self.counted)
            self.counted = 0
        self.active = False
        self.discarding = False
        self.kind = 0  # The kind of the latest segment; 0 if it is unknown.
        self.inside = False  # The last frame of that segment is missing.
        self.last_segment = False
        self.empty = 0
        self.octets = 0  # The bytes of all segments' payloads.
        self.command = b""
        self.header = b""
        self.body_size = 0
        self.parts: list[bytes] = []
        self.gathered: bytearray | None = None

    def begin(self, discarding: bool, pool: BufferPool) -> None:
        """Begin a command before its first frame; ``pool`` counts the bytes of its body."""
        self.clear()
        self.pool = pool
        self.active = True
        self.discarding = discarding

    def follow(self) -> None:
        """Check and discard the remaining frames of a command whose beginning was lost."""
        self.clear()
        self.active = True
        self.discarding = True
        self.inside = True

    def add(self, flags: int, kind: int, buffer: bytes | bytearray, start: int, end: int) -> bool:
        """Add a frame's payload ``buffer[start:end]``; return True if the segment is complete.

        Raises:
            CloseError: the flags do not fit.
        """
        if self.inside and self.kind == 0:  # Within a command whose beginning was lost.
            if flags & C_BEGINS == C_BEGINS:
                raise framing_error("a command begins where the rest of one is due")
            self.kind = kind
        elif self.inside:
            if (
                kind != self.kind
                or flags & FIRST_FRAME
                or bool(flags & LAST_SEGMENT) != self.last_segment
                or bool(flags & FIRST_SEGMENT) != (kind == COMMAND)
            ):
                raise framing_error("a frame does not continue its segment")
        elif (
            kind <= self.kind
            or not flags & FIRST_FRAME
            or bool(flags & FIRST_SEGMENT) != (kind == COMMAND)
            or (self.kind == 0) != (kind == COMMAND)
        ):
            raise framing_error("a frame does not begin the next segment")
        self.kind = kind
        self.last_segment = flags & LAST_SEGMENT != 0
        self.inside = flags & LAST_FRAME == 0
        if end == start and self.inside:
            self.empty += 1
            if self.empty > EMPTY_FRAMES_MAX:
                raise framing_error(f"more than {EMPTY_FRAMES_MAX} empty frames in one command")
        self.octets += end - start
        if not self.discarding:
            if kind == BODY:
                self.add_body(buffer, start, end)
            elif kind == COMMAND:
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
        return not self.inside

    def add_body(self, buffer: bytes | bytearray, start: int, end: int) -> None:
        """Keep a chunk of the body; small ones are joined."""
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
        """Return the parts of the body; none if it is empty."""
        if self.gathered:
            self.parts.append(bytes(self.gathered))
            self.gathered = None
        return tuple(self.parts)


def framing_error(text: str) -> CloseError:
    """Return a framing error, which closes the connection."""
    return CloseError(CloseCode.FRAMING_ERROR, text)
