# SPDX-License-Identifier: Apache-2.0
"""What waits to be sent on one connection.

Frames are written in place into one buffer that is taken from a pool when the first octet comes and
goes back when the last has left: an idle connection holds none. A body too large for that is not
copied: the buffer is sealed into ``chain``, the body's parts follow there as they are, and each is
framed only when its turn comes. The chain is as long as what the peer has not read, which the
consumers' high-water mark bounds.

What comes from the disk is fed: a :class:`Feed` gives one piece at a time, and only when nothing
else waits, so that it neither fills memory nor keeps other channels waiting. Several take turns.
Whoever feeds sees to it that nothing else is written to that channel meanwhile.
"""

from collections import deque
from typing import Any

import cython

if not cython.compiled:
    from headrace.wire.memory import copy, cut, put16, put32

FRAME_BODY = 3
FRAME_END = 0xCE
BUFFER_SIZE = 16384  # Octets of a pooled buffer when new.
BUFFER_KEPT_MAX = 1 << 21  # A buffer that grew beyond this is not pooled again.
POOL_MAX = 64  # Buffers.


class BufferPool:
    """Buffers that no connection needs now, and the connections that have something to send."""

    def __init__(self) -> None:
        self.buffers: list[bytearray] = []
        self.dirty: list[Any] = []  # Output objects.
        self.finished: list[Any] = []  # Feeds that are over: (feed, error or None).

    def take(self) -> bytearray:
        """Return a buffer of at least ``BUFFER_SIZE`` octets."""
        if self.buffers:
            return self.buffers.pop()
        return bytearray(BUFFER_SIZE)

    def give(self, buffer: bytearray) -> None:
        """Take a buffer back."""
        if len(self.buffers) < POOL_MAX and len(buffer) <= BUFFER_KEPT_MAX:
            self.buffers.append(buffer)

    def finish(self) -> None:
        """Tell the feeds that gave their last piece."""
        if self.finished:
            finished = self.finished
            self.finished = []
            for feed, error in finished:
                feed.over(error)


class Feed:
    """Octets too many for memory, in pieces."""

    def piece(self) -> tuple[bytes, bool]:
        """Return the next octets to send, framed, and whether they are the last.

        Raises:
            OSError: they cannot be read.
        """
        return b"", True

    def over(self, error: OSError | None) -> None:
        """The last piece is about to be sent, or there will be no more; called between reads."""

    def drop(self) -> None:
        """The peer is gone."""


class Output:
    """The sending side of a connection, up to the socket."""

    def __init__(self, pool: BufferPool) -> None:
        self.pool = pool
        self.buffer: Any = None  # A bytearray while there is something to send.
        self.head = 0  # Where the unsent part of ``buffer`` begins.
        self.tail = 0  # Where it ends, and where the next octet goes.
        self.capacity = 0
        self.chain: Any = None  # deque of (octets, from, to, how to frame them), once needed.
        self.chained = 0  # Octets in the chain.
        self.dirty = False
        self.feeds: Any = None  # deque of Feed, once needed.
        self.feeding = 0  # How many there are.

    def pending(self) -> int:
        """Octets that wait to be sent; a feed counts as few, however long it is."""
        return self.tail - self.head + self.chained + self.feeding

    def reserve(self, size: int) -> None:
        """Make room for ``size`` octets from ``tail`` on, and have the connection flushed."""
        if self.buffer is None:
            self.buffer = self.pool.take()
            self.capacity = len(self.buffer)
            self.head = 0
            self.tail = 0
        if self.tail + size > self.capacity:
            if self.head > self.capacity >> 1:
                used = self.tail - self.head
                self.buffer[:used] = self.buffer[self.head : self.tail]
                self.head = 0
                self.tail = used
            while self.tail + size > self.capacity:
                self.capacity *= 2
            self.buffer.extend(bytes(self.capacity - len(self.buffer)))
        if not self.dirty:
            self.dirty = True
            self.pool.dirty.append(self)

    def write(self, octets: bytes) -> None:
        """Append octets as they are."""
        size = len(octets)
        self.reserve(size)
        copy(self.buffer, self.tail, octets, 0, size)
        self.tail += size

    def write_frame(self, kind: int, number: int, payload: bytes) -> None:
        """Append one frame."""
        size = len(payload)
        self.reserve(size + 8)
        buffer = self.buffer
        at = self.tail
        buffer[at] = kind
        put16(buffer, at + 1, number)
        put32(buffer, at + 3, size)
        copy(buffer, at + 7, payload, 0, size)
        buffer[at + 7 + size] = FRAME_END
        self.tail = at + 8 + size

    def write_parts(self, number: int, parts: tuple[bytes, ...], frame_max: int) -> None:
        """Append a body as body frames of at most ``frame_max`` octets, without copying it."""
        if self.chain is None:
            self.chain = deque()
        self.seal()
        limit = frame_max - 8
        for part in parts:
            size = len(part)
            at = 0
            while at < size:
                to = min(size, at + limit)
                self.chain.append((part, at, to, number))
                self.chained += to - at + 8
                at = to

    def write_parts_0_10(self, number: int, parts: tuple[bytes, ...], frame_max: int) -> None:
        """Append a body as a body segment of AMQP 0-10, without copying it; it is not empty."""
        if self.chain is None:
            self.chain = deque()
        self.seal()
        limit = frame_max - 12
        flags = 6  # Last segment, first frame.
        last = len(parts) - 1
        for place in range(last + 1):
            part = parts[place]
            size = len(part)
            at = 0
            while at < size:
                to = min(size, at + limit)
                if place == last and to == size:
                    flags |= 1  # Last frame.
                self.chain.append((part, at, to, -2 - (flags << 16 | number)))
                self.chained += to - at + 12
                flags = 4
                at = to

    def seal(self) -> None:
        """Move what the buffer holds into the chain."""
        if self.tail > self.head:
            self.chain.append(
                (cut(self.buffer, self.head, self.tail), 0, self.tail - self.head, -1)
            )
            self.chained += self.tail - self.head
            self.head = 0
            self.tail = 0

    def front(self) -> tuple[bytes | bytearray, int, int]:
        """Return the next octets to send: where they are, from where, to where."""
        if self.chain:
            source, lo, hi, number = self.chain[0]
            if number == -2:
                return self.front_in_order(source)
            if number >= 0:  # A body part: frame it now.
                frame = bytearray(hi - lo + 8)
                frame[0] = FRAME_BODY
                put16(frame, 1, number)
                put32(frame, 3, hi - lo)
                copy(frame, 7, source, lo, hi)
                frame[7 + hi - lo] = FRAME_END
                self.chain[0] = (frame, 0, len(frame), -1)
                return frame, 0, len(frame)
            if number < -1:  # One of AMQP 0-10.
                number = -2 - number
                frame = bytearray(hi - lo + 12)
                frame[0] = number >> 16
                frame[1] = FRAME_BODY
                put16(frame, 2, hi - lo + 12)
                frame[5] = 1  # Track.
                put16(frame, 6, number)
                copy(frame, 12, source, lo, hi)
                self.chain[0] = (frame, 0, len(frame), -1)
                return frame, 0, len(frame)
            return source, lo, hi
        if self.feeds and self.tail == self.head:
            return self.front_of_feed()
        if self.buffer is None:
            return b"", 0, 0
        return self.buffer, self.head, self.tail

    def feed_from(self, feed: Feed) -> None:
        """Send what a feed gives, when there is nothing else to send."""
        if self.feeds is None:
            self.feeds = deque()
        self.feeds.append(feed)
        self.feeding += 1
        if not self.dirty:
            self.dirty = True
            self.pool.dirty.append(self)

    def feed_in_order(self, feed: Feed) -> None:
        """Send what a feed gives, all of it before anything that is written later."""
        if self.chain is None:
            self.chain = deque()
        self.seal()
        self.chain.append((feed, 0, 0, -2))
        self.feeding += 1
        if not self.dirty:
            self.dirty = True
            self.pool.dirty.append(self)

    def front_in_order(self, feed: Feed) -> tuple[bytes, int, int]:
        """Put the next piece of a feed before it in the chain, and return it."""
        error = None
        try:
            piece, last = feed.piece()
        except OSError as trouble:
            piece, last, error = b"", True, trouble
        if last:
            self.chain.popleft()
            self.feeding -= 1
            self.pool.finished.append((feed, error))
        self.chain.appendleft((piece, 0, len(piece), -1))
        self.chained += len(piece)
        return piece, 0, len(piece)

    def front_of_feed(self) -> tuple[bytes, int, int]:
        """Take the next piece of the next feed into the chain, and return it."""
        feed = self.feeds.popleft()
        error = None
        try:
            piece, last = feed.piece()
        except OSError as trouble:
            piece, last, error = b"", True, trouble
        if last:
            self.feeding -= 1
            self.pool.finished.append((feed, error))
        else:
            self.feeds.append(feed)
        if piece:
            if self.chain is None:
                self.chain = deque()
            self.chain.append((piece, 0, len(piece), -1))
            self.chained += len(piece)
        return piece, 0, len(piece)

    def advance(self, size: int) -> None:
        """``size`` octets from :meth:`front` are gone."""
        if self.chain:
            source, lo, hi, number = self.chain.popleft()
            self.chained -= size
            if lo + size < hi:
                self.chain.appendleft((source, lo + size, hi, number))
            elif not self.chain:
                self.chain = None
            return
        self.head += size
        if self.head == self.tail:
            self.release()

    def release(self) -> None:
        """Give the empty buffer back to the pool."""
        if self.buffer is not None:
            self.pool.give(self.buffer)
            self.buffer = None
        self.capacity = 0
        self.head = 0
        self.tail = 0

    def drop(self) -> None:
        """Forget what was not sent: the peer is gone."""
        dropped = [entry[0] for entry in self.chain or () if entry[3] == -2]
        dropped += self.feeds or ()
        self.chain = None
        self.chained = 0
        self.feeds = None
        self.feeding = 0
        for feed in dropped:
            feed.drop()
        self.release()

    def data_to_send(self) -> bytes:
        """Return and forget all that waits: for an owner that does its own sending."""
        pieces = []
        while self.pending():
            source, lo, hi = self.front()
            pieces.append(bytes(source[lo:hi]))
            self.advance(hi - lo)
            self.pool.finish()
        self.dirty = False
        return b"".join(pieces)
