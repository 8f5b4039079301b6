# SPDX-License-Identifier: Apache-2.0
"""A channel of 0-8 to 0-9-1 in the protocol machine: its state, and its unfinished content.

The methods of the channel class are handled in :mod:`headrace.protocol.v0_x.connection`.

Content is a method frame, a header frame and body frames, possibly between frames of other
channels. Small bodies are joined at the end; the parts of a large one are kept as received, except
that small frames are joined first, so that the memory never exceeds the body by much.
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


OPENING = 0  # channel.open was sent.
OPEN = 1
CLOSING = 2  # channel.close was sent; frames before close-ok are ignored.
BUSY = 3  # Received frames wait, for one or more of the following reasons.
FOR_BODY = 1  # A body is read from or written to the disk.
FOR_OUTPUT = 2  # The output is full.
FOR_ANSWERS = 4  # Answers to earlier requests are deferred.

PART_MIN = 32768  # The minimum bytes of a part; the payloads of smaller frames are joined.
PART_MAX = 131072  # The bytes after which joined payloads become a part.


class DeliveryCollector:
    """Handles deliveries and confirms of a client's channel straight from the receive buffer.

    Deliveries and confirms that it does not handle become events.
    """

    def put(
        self,
        buffer: bytes | bytearray,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        end: int,
        body_size: int,
    ) -> int:
        """Handle a complete basic.deliver; return 0 if it is to become an event.

        ``buffer[args:args_end]`` holds the method's fields, ``buffer[header:header_end]`` the
        payload of the header frame. The body frames begin one byte later and end at ``end``.
        """
        return 0

    def confirm(self, delivery_tag: int, multiple: int) -> int:
        """Handle a basic.ack of the broker; return 0 if it is to become an event."""
        return 0


class Channel:
    """One channel: its number, its state, and its unfinished content."""

    pool: BufferPool  # Counts the bytes of the body; set when its header was received.

    def __init__(self, number: int) -> None:
        self.number = number
        self.state = OPENING
        self.method: MethodBase | None = None  # The method whose content is awaited.
        self.address: bytes | None = None  # The encoded address and flags of an awaited publish.
        self.header: bytes | None = None  # The payload of the header frame.
        self.body_size = 0
        self.missing = 0  # The bytes of the body that are not received yet.
        self.parts: list[bytes] = []  # The received parts of the body.
        #: The payloads of small frames, before they are a part.
        self.gathered: bytearray | None = None
        self.counted = 0  # The bytes of the body that the pool counts.
        self.sink: BodySink | None = None  # Gets the body; None if it is kept in memory.
        self.busy = 0  # The reasons of BUSY: the bits FOR_BODY, FOR_OUTPUT and FOR_ANSWERS.
        self.waiting: list[bytes] | None = None  # Frames that were received while BUSY.
        #: The deferred answers; the first is a DeferredAnswer, for which the others wait.
        self.answers: deque[bytes | DeferredAnswer] | None = None
        self.collector: DeliveryCollector | None = None  # Set on a client's channel; else None.

    def expects_content(self) -> bool:
        """Return True if a content has begun and is not complete."""
        return self.method is not None or self.address is not None

    def pause(self, reason: int) -> None:
        """Keep received frames until :meth:`.connection.Connection.resume` removes all reasons."""
        if self.state == OPEN or self.state == BUSY:
            self.state = BUSY
            self.busy |= reason

    def put_first(self, frames: bytes) -> None:
        """Add frames before the frames that wait already."""
        self.waiting = [frames, *(self.waiting or ())]

    def sends_body(self) -> bool:
        """Return True while a body is sent, whose frames must not be interrupted."""
        return self.busy & FOR_BODY != 0

    def begin_body(self, pool: BufferPool, header: bytes, body_size: int) -> None:
        """Begin a body after its header; ``pool`` counts the bytes in memory."""
        self.pool = pool
        self.header = header
        self.body_size = body_size
        self.missing = body_size
        self.parts = []

    def add_body(self, buffer: bytes | bytearray, start: int, end: int) -> None:
        """Add the payload of a body frame, of at most ``missing`` bytes."""
        self.missing -= end - start
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
        if len(self.gathered) >= PART_MAX or not self.missing:
            self.parts.append(bytes(self.gathered))
            self.gathered = None

    def finish(self) -> tuple[bytes, ...]:
        """Return the parts of the complete body, and clear the content."""
        parts = tuple(self.parts)
        self.sink = None
        self.abandon()
        return parts

    def abandon(self) -> None:
        """Discard an unfinished content."""
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
    """An answer that waits until :meth:`on_released` or :meth:`refuse` is called, once."""

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

    def on_released(self, token: int) -> None:
        """Send the answer once the answers before it are sent."""
        self.ready = True
        self.connection.send_answers(self.channel)

    def refuse(self, error: "AmqpError") -> None:
        """Send the close for an error instead of the answer."""
        self.error = error
        self.on_released(0)
