# SPDX-License-Identifier: Apache-2.0
"""A channel of 0-8 to 0-9-1 in the protocol machine: its state, and its unfinished content.

The methods of the channel class are handled in :mod:`headrace.protocol.v0_x.connection`.

Content comes as a method frame, a header frame and body frames, possibly between frames of other
channels. Small bodies are joined at the end; the parts of a large one are kept as they came, where
frames of a few octets are gathered first, so that what is held never exceeds the body by much.
"""

from typing import TYPE_CHECKING, Protocol

import cython

if not cython.compiled:
    from headrace.protocol.output import BufferPool
    from headrace.wire.memory import cut

if TYPE_CHECKING:
    from collections import deque

    from headrace.protocol.codec_0_x import MethodBase
    from headrace.protocol.endpoint import BodySink
    from headrace.protocol.errors import AmqpError


OPENING = 0  # We asked for it.
OPEN = 1
CLOSING = 2  # We sent channel.close; what comes before close-ok is ignored.
BUSY = 3  # What comes waits until something that takes its time is done:
FOR_BODY = 1  # a body on its way from or to the disk,
FOR_OUTPUT = 2  # too much that waits to be sent,
FOR_ANSWERS = 4  # answers to earlier requests.

PART_MIN = 32768  # Octets; smaller frames are gathered.
PART_MAX = 131072


class Gatherer:
    """Takes the deliveries and confirms of a channel straight from what was received.

    A client's channel may have one. What it does not take goes the ordinary way.
    """

    def put(
        self,
        d: bytes | bytearray,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        end: int,
        body_size: int,
    ) -> int:
        """Take a whole basic.deliver, or return 0.

        ``d[args:args_end]`` holds the method's fields and ``d[header:header_end]`` the payload of
        the header frame; the body frames follow an octet later and reach up to ``end``.
        """
        return 0

    def confirm(self, delivery_tag: int, multiple: int) -> int:
        """Take a basic.ack of the broker, or return 0."""
        return 0


class Channel:
    """One channel: its number, its state, and its unfinished content."""

    pool: BufferPool  # Counts the bytes of the body; set when its header was received.

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = OPENING
        self.method: MethodBase | None = None  # The method whose content is awaited.
        self.address: bytes | None = None  # Or, for a publish, its address and flags undecoded.
        self.header: bytes | None = None  # The header frame's payload.
        self.body_size = 0
        self.missing = 0
        self.parts: list[bytes] = []  # Of the body.
        self.gathered: bytearray | None = None
        self.counted = 0  # Octets of it that the pool counts.
        self.sink: BodySink | None = None  # Takes the body instead.
        self.busy = 0  # Why it is BUSY: a sum of FOR_BODY, FOR_OUTPUT, FOR_ANSWERS.
        self.waiting: list[bytes] | None = None  # Frames that came while BUSY.
        #: Answers that wait for the first of them.
        self.answers: deque[bytes | DeferredAnswer] | None = None
        self.gatherer: Gatherer | None = None  # On a client's channel that has one.

    def expects_content(self) -> bool:
        """Return True if a content has begun and is not complete."""
        return self.method is not None or self.address is not None

    def pause(self, reason: int) -> None:
        """Let what comes wait; several reasons may hold at a time."""
        if self.state == OPEN or self.state == BUSY:
            self.state = BUSY
            self.busy |= reason

    def put_first(self, octets: bytes) -> None:
        """Let frames wait before those that wait already."""
        self.waiting = [octets, *(self.waiting or ())]

    def sends_body(self) -> bool:
        """Return True while nothing may come between the frames of a body."""
        return self.busy & FOR_BODY != 0

    def begin_body(self, pool: BufferPool, header: bytes, body_size: int) -> None:
        """The header came; ``pool`` counts what comes of the body."""
        self.pool = pool
        self.header = header
        self.body_size = body_size
        self.missing = body_size
        self.parts = []

    def add_body(self, d: bytes | bytearray, lo: int, hi: int) -> None:
        """A body frame came, not larger than what is missing."""
        self.missing -= hi - lo
        if self.sink is not None:
            self.sink.add(cut(d, lo, hi))
            return
        self.counted += hi - lo
        self.pool.count(hi - lo)
        if self.gathered is None and hi - lo >= PART_MIN:
            self.parts.append(cut(d, lo, hi))
            return
        if self.gathered is None:
            self.gathered = bytearray()
        self.gathered += cut(d, lo, hi)
        if len(self.gathered) >= PART_MAX or not self.missing:
            self.parts.append(bytes(self.gathered))
            self.gathered = None

    def finish(self) -> tuple[bytes, ...]:
        """Return the parts of the complete body and forget the content."""
        parts = tuple(self.parts)
        self.sink = None
        self.abandon()
        return parts

    def abandon(self) -> None:
        """Forget an unfinished content."""
        if self.sink is not None:
            self.sink.abandon()
            self.sink = None
        if self.counted:
            self.pool.count(-self.counted)
            self.counted = 0
        self.method = None
        self.address = None
        self.header = None
        self.parts = []
        self.gathered = None
        self.body_size = 0
        self.missing = 0


class AnswerSender(Protocol):
    """The connection of a deferred answer."""

    def send_answers(self, channel: Channel) -> None:
        """Send the answers of a channel up to the first that is still deferred."""


class DeferredAnswer:
    """An answer that waits for something; :meth:`released` or :meth:`refuse` ends that, once."""

    __slots__ = ("channel", "connection", "error", "payload", "ready", "request")

    def __init__(
        self, connection: AnswerSender, channel: Channel, payload: bytes, request: int
    ) -> None:
        self.connection = connection
        self.channel = channel
        self.payload = payload
        self.request = request  # The method that it answers, class id << 16 | method id.
        self.ready = False
        self.error: AmqpError | None = None

    def released(self, token: int) -> None:
        """Send it, once those before it are sent."""
        self.ready = True
        self.connection.send_answers(self.channel)

    def refuse(self, error: "AmqpError") -> None:
        """Close what the error says instead, in the answer's place."""
        self.error = error
        self.released(0)
