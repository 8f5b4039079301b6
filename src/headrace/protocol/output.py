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

FRAME_BODY = 3  # The frame type in 0-8 to 0-9-1, and the segment type in 0-10.
FRAME_END = 0xCE
BUFFER_SIZE = 16384  # The bytes of a new buffer.
BUFFER_KEPT_MAX = 1 << 21  # The bytes of the largest buffer that returns to the pool.
POOL_BYTES_MAX = 8 << 20  # The maximum bytes of all pooled buffers.
KEPT_TICKS = 20  # The half seconds after which the pool frees its unused buffers.
OUTPUT_MIN = 65536  # The bytes that an output may hold even if memory is short.
SHARE_MIN = 4096  # The minimum bytes of a body that a slow peer's output refers to, not copies.
SHARE_ABOVE = 32768  # The bytes of output above which a peer counts as slow.
GATHERED_MAX = 64  # The maximum chunks of the chain that one call sends.
if not cython.compiled:
    C_OUTPUT_MIN = OUTPUT_MIN
    C_SHARE_MIN = SHARE_MIN
    C_SHARE_ABOVE = SHARE_ABOVE


class BufferPool:
    """Unused buffers, and the connections with output."""

    def __init__(self) -> None:
        self.buffers: list[bytearray] = []
        self.dirty: list[Any] = []  # Outputs with bytes to send.
        self.finished: list[Any] = []  # Feeds that have ended: (feed, error or None).
        self.pooled_bytes = 0  # The bytes of ``buffers``.
        self.ticks = 0  # The half seconds since the buffers were freed.
        self.used = 0  # The bytes of outputs and unfinished contents.
        self.used_max = 1 << 62  # The value of ``used`` above which OUTPUT_MIN fills an output.
        self.is_tight = False  # True while ``used`` exceeds ``used_max``.
        self.step = 0  # The number of the event loop's step.

    def acquire_buffer(self) -> bytearray:
        """Return a buffer of at least ``BUFFER_SIZE`` bytes."""
        if self.buffers:
            buffer = self.buffers.pop()
            self.pooled_bytes -= len(buffer)
            return buffer
        return bytearray(BUFFER_SIZE)

    def return_buffer(self, buffer: bytearray) -> None:
        """Return a buffer to the pool, unless it or the pool is too large."""
        size = len(buffer)
        if size <= BUFFER_KEPT_MAX and self.pooled_bytes + size <= POOL_BYTES_MAX:
            self.buffers.append(buffer)
            self.pooled_bytes += size

    def tick(self) -> None:
        """Count half a second; free the unused buffers every ``KEPT_TICKS``.

        A pooled buffer never shrinks. Without this, each would grow to the largest output.
        """
        self.ticks += 1
        if self.ticks >= KEPT_TICKS:
            self.ticks = 0
            self.buffers = []
            self.pooled_bytes = 0

    def count(self, size: int) -> None:
        """Add ``size`` to the bytes in use; a negative size subtracts."""
        self.used += size
        self.is_tight = self.used > self.used_max

    def finish(self) -> None:
        """Call ``on_end`` of the feeds that have ended."""
        if self.finished:
            finished = self.finished
            self.finished = []
            for feed, error in finished:
                feed.on_end(error)


class Feed:
    """A body that is too large for memory and is read in chunks."""

    def next_chunk(self) -> tuple[bytes, bool]:
        """Return the next chunk, framed, and True if it is the last.

        Raises:
            OSError: the file cannot be read.
        """
        return b"", True

    def on_end(self, error: OSError | None) -> None:
        """Handle the end of the feed: its last chunk is in the output, or it was dropped.

        The call comes between reads of the connection.
        """

    def drop(self) -> None:
        """Stop reading: the connection is lost."""


class Output:
    """The sending side of a connection, up to the socket."""

    def __init__(self, pool: BufferPool) -> None:
        self.pool = pool
        self.buffer: Any = None  # A bytearray while there is output; else None.
        self.head = 0  # The start of the unsent bytes in ``buffer``.
        self.tail = 0  # The end of the unsent bytes in ``buffer``, where the next byte is written.
        self.capacity = 0
        self.chain: Any = None  # deque of (bytes, start, end, -1; or feed, 0, 0, -2), or None.
        self.chained = 0  # Bytes in the chain.
        self.dirty = False
        self.feeds: Any = None  # deque of Feed, or None.
        self.feeding = 0  # The number of feeds.
        self.output_max = 1 << 62  # Bytes of output above which consumers get no more messages.
        self.room = OUTPUT_MIN  # The bytes of output up to which it is never full.

    def pending(self) -> int:
        """Return the number of bytes that wait to be sent; each feed counts as one byte."""
        return self.tail - self.head + self.chained + self.feeding

    def written(self) -> int:
        """Return the number of bytes that wait before the next feed that is sent in order."""
        size = 0
        for _, start, end, number in self.chain or ():
            if number == -2:
                return size
            size += end - start
        return size + self.tail - self.head

    def limit(self, output_max: int) -> None:
        """Set the bytes of output above which consumers get no more messages."""
        self.output_max = output_max
        self.room = min(output_max, OUTPUT_MIN)

    def is_full(self) -> bool:
        """Return True if the peer gets no further messages until it has read some output."""
        waiting = self.tail - self.head + self.chained
        return waiting > self.output_max or (waiting > C_OUTPUT_MIN and self.pool.is_tight)

    def lags(self) -> bool:
        """Return True for a slow peer, for which large bodies are referred to, not copied."""
        return self.tail - self.head + self.chained > C_SHARE_ABOVE or self.pool.is_tight

    def reserve(self, size: int) -> None:
        """Make room for ``size`` bytes after ``tail``, and schedule the connection for sending."""
        if self.buffer is None:
            self.buffer = self.pool.acquire_buffer()
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

    def write(self, data: bytes) -> None:
        """Append bytes, such as a protocol header, without a frame around them."""
        size = len(data)
        self.reserve(size)
        copy(self.buffer, self.tail, data, 0, size)
        self.tail += size

    def write_frame(self, frame_type: int, number: int, payload: bytes) -> None:
        """Append a frame of 0-8 to 0-9-1."""
        size = len(payload)
        self.reserve(size + 8)
        buffer = self.buffer
        position = self.tail
        buffer[position] = frame_type
        put16(buffer, position + 1, number)
        put32(buffer, position + 3, size)
        copy(buffer, position + 7, payload, 0, size)
        buffer[position + 7 + size] = FRAME_END
        self.tail = position + 8 + size

    def write_parts(self, number: int, parts: tuple[bytes, ...], frame_max: int) -> None:
        """Append a body as body frames of at most ``frame_max`` bytes, without copying it."""
        for part in parts:
            self.refer_body(number, part, 0, len(part), frame_max)

    def refer_body(
        self, number: int, source: bytes, position: int, end: int, frame_max: int
    ) -> None:
        """Append ``source[position:end]`` as body frames, without copying it."""
        limit = frame_max - 8
        while position < end:
            chunk_end = min(end, position + limit)
            self.reserve(7)
            buffer = self.buffer
            tail = self.tail
            buffer[tail] = FRAME_BODY
            put16(buffer, tail + 1, number)
            put32(buffer, tail + 3, chunk_end - position)
            self.tail = tail + 7
            self.refer(source, position, chunk_end)
            self.reserve(1)
            self.buffer[self.tail] = FRAME_END
            self.tail += 1
            position = chunk_end

    # Keeps 0-10/s018.
    def write_parts_0_10(self, number: int, parts: tuple[bytes, ...], frame_max: int) -> None:
        """Append a body as a body segment of AMQP 0-10, without copying it; it is not empty."""
        limit = frame_max - 12
        flags = 6  # Last segment, first frame.
        last = len(parts) - 1
        for index in range(last + 1):
            part = parts[index]
            size = len(part)
            position = 0
            while position < size:
                chunk_end = min(size, position + limit)
                if index == last and chunk_end == size:
                    flags |= 1  # Last frame.
                self.reserve(12)
                buffer = self.buffer
                tail = self.tail
                buffer[tail] = flags
                buffer[tail + 1] = FRAME_BODY
                put16(buffer, tail + 2, chunk_end - position + 12)
                buffer[tail + 4] = 0
                buffer[tail + 5] = 1  # Track.
                put16(buffer, tail + 6, number)
                put32(buffer, tail + 8, 0)
                self.tail = tail + 12
                self.refer(part, position, chunk_end)
                flags = 4
                position = chunk_end

    def refer(self, source: bytes, start: int, end: int) -> None:
        """Append ``source[start:end]`` unchanged, without copying it."""
        self.seal()
        self.put_in_chain(source, start, end, True)

    def put_in_chain(self, source: bytes, start: int, end: int, last: bool) -> None:
        """Add bytes at the end or the front of the chain."""
        if self.chain is None:
            self.chain = deque()
        if last:
            self.chain.append((source, start, end, -1))
        else:
            self.chain.appendleft((source, start, end, -1))
        self.chained += end - start
        self.pool.count(end - start)

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
            source, start, end, number = self.chain[0]
            if number == -2:
                return self.front_in_order(source)
            return source, start, end
        if self.feeds and self.tail == self.head:
            return self.pull_from_feed()
        if self.buffer is None:
            return b"", 0, 0
        return self.buffer, self.head, self.tail

    def gather(self) -> list[tuple[bytes | bytearray, int, int]]:
        """Return the chunks that can be sent together, each as from :meth:`front`."""
        gathered: list[tuple[bytes | bytearray, int, int]] = []
        for source, start, end, number in self.chain or ():
            if number == -2 or len(gathered) >= GATHERED_MAX:
                break
            gathered.append((source, start, end))
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

    def pull_from_feed(self) -> tuple[bytes, int, int]:
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
                source, start, end, number = self.chain.popleft()
                if start + size < end:
                    self.chain.appendleft((source, start + size, end, number))
                    return
                size -= end - start
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
            self.pool.return_buffer(self.buffer)
            self.buffer = None
        self.capacity = 0
        self.head = 0
        self.tail = 0

    def drop(self) -> None:
        """Drop the unsent output, as the connection is lost."""
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
        excess = self.tail - self.head + self.chained - size
        if excess <= 0:
            return
        dropped_size = min(excess, self.tail - self.head)
        self.tail -= dropped_size
        excess -= dropped_size
        while excess > 0 and self.chain:
            source, start, end, number = self.chain.pop()
            if number == -2:
                self.chain.append((source, start, end, number))
                return
            chunk_size = end - start
            if chunk_size > excess:  # The chunk is a buffer that was sealed after the mark.
                self.chain.append((source, start, end - excess, number))
                chunk_size = excess
            self.chained -= chunk_size
            self.pool.count(-chunk_size)
            excess -= chunk_size
        if not self.chain:
            self.chain = None
            if self.head == self.tail:
                self.release()

    def data_to_send(self) -> bytes:
        """Return and remove all output, for an owner that sends it itself."""
        chunks = []
        while self.pending():
            source, start, end = self.front()
            chunks.append(bytes(source[start:end]))
            self.advance(end - start)
            self.pool.finish()
        self.dirty = False
        return b"".join(chunks)
