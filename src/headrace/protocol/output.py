# SPDX-License-Identifier: Apache-2.0
"""The output of one connection: bytes that wait to be sent.

Frames are written in place into one buffer, which comes from a pool with the first byte and returns
after the last is sent: an idle connection holds none. Large bodies, and bodies for slow peers, are
not copied: the buffer is sealed into ``chain``, a reference to the body follows, and many outputs
refer to the same body. The chain holds what the peer has not read; the consumers' high-water mark
bounds it.

The pool counts the bytes of all outputs, and of incomplete received contents. Above its limit every
output is full at ``OUTPUT_MIN`` bytes: peers that read are served as before, others get no more.

Content from disk is fed: a :class:`Feed` gives one piece at a time, and only when no other output
waits, so it neither fills memory nor delays other channels. Several feeds alternate.
The feeding class writes nothing else to that channel meanwhile.
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
POOL_OCTETS_MAX = 8 << 20  # Octets of all pooled buffers.
KEPT_TICKS = 20  # Half seconds between two times that the pool lets go of its buffers.
OUTPUT_MIN = 65536  # Octets that an output may hold however little memory there is.
SHARE_MIN = 4096  # Octets of a body that may be referred to, where its reader does not keep up:
SHARE_ABOVE = 32768  # where so many octets wait already.
GATHERED_MAX = 64  # Pieces of the chain that are sent at once.
if not cython.compiled:
    C_OUTPUT_MIN = OUTPUT_MIN
    C_SHARE_MIN = SHARE_MIN
    C_SHARE_ABOVE = SHARE_ABOVE


class BufferPool:
    """Buffers that no connection needs now, and the connections that have something to send."""

    def __init__(self) -> None:
        self.buffers: list[bytearray] = []
        self.dirty: list[Any] = []  # Output objects.
        self.finished: list[Any] = []  # Feeds that are over: (feed, error or None).
        self.kept = 0  # Octets of ``buffers``.
        self.ticks = 0  # Since it last let go of them.
        self.used = 0  # Octets that outputs and unfinished contents hold.
        self.used_max = 1 << 62  # Octets above which every output is full at OUTPUT_MIN.
        self.tight = False  # That is so now.
        self.step = 0  # The number of the event loop's step.

    def take(self) -> bytearray:
        """Return a buffer of at least ``BUFFER_SIZE`` octets."""
        if self.buffers:
            buffer = self.buffers.pop()
            self.kept -= len(buffer)
            return buffer
        return bytearray(BUFFER_SIZE)

    def put_back(self, buffer: bytearray) -> None:
        """Return a buffer to the pool."""
        size = len(buffer)
        if size <= BUFFER_KEPT_MAX and self.kept + size <= POOL_OCTETS_MAX:
            self.buffers.append(buffer)
            self.kept += size

    def tick(self) -> None:
        """Half a second passed: let go of the idle buffers now and then.

        A buffer never shrinks, so that in the end each would be as large as the largest output.
        """
        self.ticks += 1
        if self.ticks >= KEPT_TICKS:
            self.ticks = 0
            self.buffers = []
            self.kept = 0

    def count(self, octets: int) -> None:
        """Add to the count of bytes held; a negative number subtracts."""
        self.used += octets
        self.tight = self.used > self.used_max

    def finish(self) -> None:
        """Call ``over`` of the feeds that gave their last piece."""
        if self.finished:
            finished = self.finished
            self.finished = []
            for feed, error in finished:
                feed.over(error)


class Feed:
    """A body too large for memory, in pieces."""

    def piece(self) -> tuple[bytes, bool]:
        """Return the next octets to send, framed, and whether they are the last.

        Raises:
            OSError: the file cannot be read.
        """
        return b"", True

    def over(self, error: OSError | None) -> None:
        """Called between reads, when the last piece is about to be sent, or after :meth:`drop`."""

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
        self.output_max = 1 << 62  # Octets of output above which consumers get nothing more.
        self.room = OUTPUT_MIN  # Octets up to which it is not full, whatever else.

    def pending(self) -> int:
        """Return the bytes that wait to be sent; a feed counts as few, at any length."""
        return self.tail - self.head + self.chained + self.feeding

    def written(self) -> int:
        """Return the bytes that wait, up to the next feed that is sent in order."""
        size = 0
        for _, lo, hi, number in self.chain or ():
            if number == -2:
                return size
            size += hi - lo
        return size + self.tail - self.head

    def limit(self, output_max: int) -> None:
        """Set the bytes of output above which consumers deliver no more."""
        self.output_max = output_max
        self.room = min(output_max, OUTPUT_MIN)

    def is_full(self) -> bool:
        """Return True if the peer has to read before it is given more."""
        waiting = self.tail - self.head + self.chained
        return waiting > self.output_max or (waiting > C_OUTPUT_MIN and self.pool.tight)

    def lags(self) -> bool:
        """Return True if the peer does not keep up: large bodies are better not copied."""
        return self.tail - self.head + self.chained > C_SHARE_ABOVE or self.pool.tight

    def reserve(self, size: int) -> None:
        """Make room for ``size`` octets from ``tail`` on, and have the connection flushed."""
        if self.buffer is None:
            self.buffer = self.pool.take()
            self.capacity = len(self.buffer)
            self.head = 0
            self.tail = 0
            self.pool.count(self.capacity)
        if self.tail + size > self.capacity:
            if self.head > self.capacity >> 1:
                used = self.tail - self.head
                self.buffer[:used] = self.buffer[self.head : self.tail]
                self.head = 0
                self.tail = used
            before = self.capacity
            while self.tail + size > self.capacity:
                self.capacity *= 2
            self.pool.count(self.capacity - before)
            self.buffer.extend(bytes(self.capacity - len(self.buffer)))
        if not self.dirty:
            self.dirty = True
            self.pool.dirty.append(self)

    def write(self, octets: bytes) -> None:
        """Append bytes unchanged."""
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
        for part in parts:
            self.refer_body(number, part, 0, len(part), frame_max)

    def refer_body(self, number: int, source: bytes, at: int, end: int, frame_max: int) -> None:
        """Append ``source[at:end]`` as body frames, without copying it."""
        limit = frame_max - 8
        while at < end:
            to = min(end, at + limit)
            self.reserve(7)
            buffer = self.buffer
            tail = self.tail
            buffer[tail] = FRAME_BODY
            put16(buffer, tail + 1, number)
            put32(buffer, tail + 3, to - at)
            self.tail = tail + 7
            self.refer(source, at, to)
            self.reserve(1)
            self.buffer[self.tail] = FRAME_END
            self.tail += 1
            at = to

    def write_parts_0_10(self, number: int, parts: tuple[bytes, ...], frame_max: int) -> None:
        """Append a body as a body segment of AMQP 0-10, without copying it; it is not empty."""
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
                self.reserve(12)
                buffer = self.buffer
                tail = self.tail
                buffer[tail] = flags
                buffer[tail + 1] = FRAME_BODY
                put16(buffer, tail + 2, to - at + 12)
                buffer[tail + 4] = 0
                buffer[tail + 5] = 1  # Track.
                put16(buffer, tail + 6, number)
                put32(buffer, tail + 8, 0)
                self.tail = tail + 12
                self.refer(part, at, to)
                flags = 4
                at = to

    def refer(self, source: bytes, lo: int, hi: int) -> None:
        """Append ``source[lo:hi]`` as it is, without copying it."""
        self.seal()
        self.put_in_chain(source, lo, hi, True)

    def put_in_chain(self, source: bytes, lo: int, hi: int, last: bool) -> None:
        """Add bytes at the end or the front of the chain."""
        if self.chain is None:
            self.chain = deque()
        if last:
            self.chain.append((source, lo, hi, -1))
        else:
            self.chain.appendleft((source, lo, hi, -1))
        self.chained += hi - lo
        self.pool.count(hi - lo)

    def seal(self) -> None:
        """Move what the buffer holds into the chain; a buffer that grew goes back."""
        size = self.tail - self.head
        if size:
            self.put_in_chain(cut(self.buffer, self.head, self.tail), 0, size, True)
            self.head = 0
            self.tail = 0
            if self.capacity > BUFFER_SIZE:
                self.release()

    def front(self) -> tuple[bytes | bytearray, int, int]:
        """Return the next octets to send: where they are, from where, to where."""
        if self.chain:
            source, lo, hi, number = self.chain[0]
            if number == -2:
                return self.front_in_order(source)
            return source, lo, hi
        if self.feeds and self.tail == self.head:
            return self.front_of_feed()
        if self.buffer is None:
            return b"", 0, 0
        return self.buffer, self.head, self.tail

    def gather(self) -> list[tuple[bytes | bytearray, int, int]]:
        """Return the octets that can be sent together, as :meth:`front` would one by one."""
        gathered: list[tuple[bytes | bytearray, int, int]] = []
        for source, lo, hi, number in self.chain or ():
            if number == -2 or len(gathered) >= GATHERED_MAX:
                break
            gathered.append((source, lo, hi))
        return gathered or [self.front()]

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
        self.seal()
        if self.chain is None:
            self.chain = deque()
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
        self.put_in_chain(piece, 0, len(piece), False)
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
            self.put_in_chain(piece, 0, len(piece), True)
        return piece, 0, len(piece)

    def advance(self, size: int) -> None:
        """Remove ``size`` bytes of :meth:`front` or :meth:`gather`: they were sent."""
        if self.chain:
            self.chained -= size
            self.pool.count(-size)
            while True:
                source, lo, hi, number = self.chain.popleft()
                if lo + size < hi:
                    self.chain.appendleft((source, lo + size, hi, number))
                    return
                size -= hi - lo
                if not size:
                    break
            if not self.chain:
                self.chain = None
                if self.head == self.tail:
                    self.release()
            return
        self.head += size
        if self.head == self.tail:
            self.release()

    def release(self) -> None:
        """Return the empty buffer to the pool."""
        if self.buffer is not None:
            self.pool.count(-self.capacity)
            self.pool.put_back(self.buffer)
            self.buffer = None
        self.capacity = 0
        self.head = 0
        self.tail = 0

    def drop(self) -> None:
        """Drop unsent output: the peer is gone."""
        dropped = [entry[0] for entry in self.chain or () if entry[3] == -2]
        dropped += self.feeds or ()
        self.chain = None
        self.pool.count(-self.chained)
        self.chained = 0
        self.feeds = None
        self.feeding = 0
        for feed in dropped:
            feed.drop()
        self.release()

    def cut_back(self, size: int) -> None:
        """Drop the output after the next ``size`` waiting bytes, except feeds."""
        over = self.tail - self.head + self.chained - size
        if over <= 0:
            return
        more = min(over, self.tail - self.head)
        self.tail -= more
        over -= more
        while over > 0 and self.chain:
            source, lo, hi, number = self.chain.pop()
            if number == -2:
                self.chain.append((source, lo, hi, number))
                return
            octets = hi - lo
            if octets > over:  # A buffer that was sealed later.
                self.chain.append((source, lo, hi - over, number))
                octets = over
            self.chained -= octets
            self.pool.count(-octets)
            over -= octets
        if not self.chain:
            self.chain = None
            if self.head == self.tail:
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
