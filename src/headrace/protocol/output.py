# SPDX-License-Identifier: Apache-2.0
"""The output of one connection: bytes that wait to be sent.

Frames are written in place into one buffer, which comes from a pool with the first byte and returns
after the last is sent: an idle connection holds none. Large bodies, and bodies for slow peers, are
not copied: the buffer is sealed into ``chain``, a reference to the body follows, and many outputs
refer to the same body. The chain holds what the peer has not read; the consumers' high-water mark
bounds it.

The pool counts the bytes of all outputs, and of incomplete received contents. Above its limit every
output is full at ``OUTPUT_MIN`` bytes: peers that read are served as before, others get no more.

Content from disk is fed: a :class:`Feed` returns one chunk at a time, and only when no other output
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
BUFFER_SIZE = 16384  # Bytes of a pooled buffer when new.
BUFFER_KEPT_MAX = 1 << 21  # Bytes of the largest buffer that returns to the pool.
POOL_BYTES_MAX = 8 << 20  # Bytes of all pooled buffers.
KEPT_TICKS = 20  # Half seconds between two times that the pool frees its buffers.
OUTPUT_MIN = 65536  # Bytes that an output may hold even if memory is short.
SHARE_MIN = 4096  # Minimum bytes of a body that is referred to, not copied, for a slow peer.
SHARE_ABOVE = 32768  # Bytes of output above which a peer counts as slow.
GATHERED_MAX = 64  # Chunks of the chain that are sent at once.
if not cython.compiled:
    C_OUTPUT_MIN = OUTPUT_MIN
    C_SHARE_MIN = SHARE_MIN
    C_SHARE_ABOVE = SHARE_ABOVE


class BufferPool:
    """Unused buffers, and the connections with output."""

    def __init__(self) -> None:
        self.buffers: list[bytearray] = []
        self.dirty: list[Any] = []  # Output objects.
        self.finished: list[Any] = []  # Feeds that have ended: (feed, error or None).
        self.kept = 0  # Bytes of ``buffers``.
        self.ticks = 0  # Half seconds since the buffers were freed.
        self.used = 0  # Bytes of outputs and unfinished contents.
        self.used_max = 1 << 62  # Bytes above which every output is full at OUTPUT_MIN.
        self.tight = False  # ``used`` exceeds ``used_max``.
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
        if size <= BUFFER_KEPT_MAX and self.kept + size <= POOL_BYTES_MAX:
            self.buffers.append(buffer)
            self.kept += size

    def tick(self) -> None:
        """Count half a second; free the unused buffers every ``KEPT_TICKS``.

        A buffer never shrinks: each would in the end be as large as the largest output.
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
        """Call ``on_end`` of the feeds that have ended."""
        if self.finished:
            finished = self.finished
            self.finished = []
            for feed, error in finished:
                feed.on_end(error)


class Feed:
    """A body too large for memory, in chunks."""

    def next_chunk(self) -> tuple[bytes, bool]:
        """Return the next chunk, framed, and True if it is the last.

        Raises:
            OSError: the file cannot be read.
        """
        return b"", True

    def on_end(self, error: OSError | None) -> None:
        """Called between reads, when the last chunk is about to be sent, or after :meth:`drop`."""

    def drop(self) -> None:
        """Called when the connection is lost."""


class Output:
    """The sending side of a connection, up to the socket."""

    def __init__(self, pool: BufferPool) -> None:
        self.pool = pool
        self.buffer: Any = None  # A bytearray while it holds output.
        self.head = 0  # The start of the unsent part of ``buffer``.
        self.tail = 0  # Its end, where the next byte is written.
        self.capacity = 0
        self.chain: Any = None  # deque of (bytes, start, end, -1; or feed, 0, 0, -2), or None.
        self.chained = 0  # Bytes in the chain.
        self.dirty = False
        self.feeds: Any = None  # deque of Feed, or None.
        self.feeding = 0  # The number of feeds.
        self.output_max = 1 << 62  # Bytes of output above which consumers get no more messages.
        self.room = OUTPUT_MIN  # Bytes up to which it is never full.

    def pending(self) -> int:
        """Return the bytes that wait to be sent; a feed counts as one, whatever its length."""
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
        """Set the bytes of output above which consumers get no more messages."""
        self.output_max = output_max
        self.room = min(output_max, OUTPUT_MIN)

    def is_full(self) -> bool:
        """Return True if the peer has to read before it gets more messages."""
        waiting = self.tail - self.head + self.chained
        return waiting > self.output_max or (waiting > C_OUTPUT_MIN and self.pool.tight)

    def lags(self) -> bool:
        """Return True for a slow peer: large bodies are better not copied."""
        return self.tail - self.head + self.chained > C_SHARE_ABOVE or self.pool.tight

    def reserve(self, size: int) -> None:
        """Make room for ``size`` bytes after ``tail``, and schedule the connection for sending."""
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
        """Append ``source[lo:hi]`` unchanged, without copying it."""
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
        """Move the buffer's output into the chain; a grown buffer returns to the pool."""
        size = self.tail - self.head
        if size:
            self.put_in_chain(cut(self.buffer, self.head, self.tail), 0, size, True)
            self.head = 0
            self.tail = 0
            if self.capacity > BUFFER_SIZE:
                self.release()

    def front(self) -> tuple[bytes | bytearray, int, int]:
        """Return the next bytes to send: their source, start and end."""
        if self.chain:
            source, lo, hi, number = self.chain[0]
            if number == -2:
                return self.front_in_order(source)
            return source, lo, hi
        if self.feeds and self.tail == self.head:
            return self.take_from_feed()
        if self.buffer is None:
            return b"", 0, 0
        return self.buffer, self.head, self.tail

    def gather(self) -> list[tuple[bytes | bytearray, int, int]]:
        """Return the chunks that can be sent together, each as from :meth:`front`."""
        gathered: list[tuple[bytes | bytearray, int, int]] = []
        for source, lo, hi, number in self.chain or ():
            if number == -2 or len(gathered) >= GATHERED_MAX:
                break
            gathered.append((source, lo, hi))
        return gathered or [self.front()]

    def feed_from(self, feed: Feed) -> None:
        """Send the chunks of a feed while there is no other output."""
        if self.feeds is None:
            self.feeds = deque()
        self.feeds.append(feed)
        self.feeding += 1
        if not self.dirty:
            self.dirty = True
            self.pool.dirty.append(self)

    def feed_in_order(self, feed: Feed) -> None:
        """Send all chunks of a feed before any later output."""
        self.seal()
        if self.chain is None:
            self.chain = deque()
        self.chain.append((feed, 0, 0, -2))
        self.feeding += 1
        if not self.dirty:
            self.dirty = True
            self.pool.dirty.append(self)

    def front_in_order(self, feed: Feed) -> tuple[bytes, int, int]:
        """Put the next chunk of a feed before it in the chain, and return it."""
        failure = None
        try:
            chunk, last = feed.next_chunk()
        except OSError as error:
            chunk, last, failure = b"", True, error
        if last:
            self.chain.popleft()
            self.feeding -= 1
            self.pool.finished.append((feed, failure))
        self.put_in_chain(chunk, 0, len(chunk), False)
        return chunk, 0, len(chunk)

    def take_from_feed(self) -> tuple[bytes, int, int]:
        """Move the next chunk of the next feed into the chain, and return it."""
        feed = self.feeds.popleft()
        failure = None
        try:
            chunk, last = feed.next_chunk()
        except OSError as error:
            chunk, last, failure = b"", True, error
        if last:
            self.feeding -= 1
            self.pool.finished.append((feed, failure))
        else:
            self.feeds.append(feed)
        if chunk:
            self.put_in_chain(chunk, 0, len(chunk), True)
        return chunk, 0, len(chunk)

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
