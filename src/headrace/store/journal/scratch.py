# SPDX-License-Identifier: Apache-2.0
"""The scratch log: transient messages that do not fit in memory.

The log is an unsynced file without a name, which the system removes at the end of the process. It
grows in chunks; a chunk without messages is used again.

    0          4          8                 8 + n
    +----------+----------+-----------------+----------+
    | data (n) | body (m) | data            | body     |   body: only of large messages
    +----------+----------+-----------------+----------+

The position of a message is its offset plus 1. Releasing a message reads nothing from the file: for
each message that extends over several chunks, memory has their number.
"""

import logging
from collections import deque

import cython

from headrace.store.disk import Disk

if not cython.compiled:
    from headrace.model.message import LARGE as C_LARGE
    from headrace.model.message import Message
    from headrace.store.segment.read_ahead import ReadAhead
    from headrace.wire.memory import copy, cut, get32, put32

log = logging.getLogger(__name__)

CHUNK = 16 << 20  # Bytes.
BUFFER = 256 << 10  # Bytes buffered before they are written.
PART_SIZE = 131064
READ_SLACK = 512  # Bytes of a message besides body and headers, usually.
KEEP_MAX = 256 << 10  # Bytes of a read that are kept for the next messages.
HEAD = 8


class Scratch:
    """The scratch log of one virtual host."""

    def __init__(self, disk: Disk, directory: str, chunk: int = CHUNK) -> None:
        self.disk = disk
        self.directory = directory
        self.chunk = chunk
        self.handle = -1  # Opened on first use.
        self.end = 0  # Size of the file, in whole chunks.
        self.next_offset = 0  # The offset of the next message.
        self.limit = 0  # The end of the free chunks around ``next_offset``.
        self.buffer = bytearray()
        self.buffered_bytes = 0  # Bytes in the buffer.
        self.buffer_offset = 0  # Offset of the buffer in the file.
        self.live: dict[int, int] = {}  # The number of messages in each chunk.
        self.unused: deque[int] = deque()  # Free chunks.
        # The number of chunks of each message in more than one chunk, by position.
        self.chunk_counts: dict[int, int] = {}
        self.read_ahead = ReadAhead()

    def put(self, message: Message) -> bool:
        """Store a message's data; return False if the write fails."""
        data = message.data or b""
        n = len(data)
        body = 0
        if message.parts is not None:
            body = sum(map(len, message.parts))
        size = HEAD + n + body
        try:
            if self.handle < 0:
                self.handle = self.disk.open_unnamed(self.directory)
            if self.buffered_bytes >= BUFFER or body or self.next_offset + size > self.limit:
                self.flush()
            if self.next_offset + size > self.limit:
                self.claim_chunks(size)
            if body:
                head = n.to_bytes(4, "big") + body.to_bytes(4, "big")
                self.disk.write(self.handle, [head, data, *message.parts], self.next_offset)
                self.buffer_offset += size
            else:
                self.buffer_message(data, n)
        except OSError as error:  # The buffered messages stay in memory.
            log.warning("cannot page out to %s: %s", self.directory, error)
            return False
        message.position = self.next_offset + 1
        chunk = self.next_offset // self.chunk
        last = (self.next_offset + size - 1) // self.chunk
        if last > chunk:
            self.chunk_counts[message.position] = last - chunk + 1
        while chunk <= last:
            self.live[chunk] = self.live.get(chunk, 0) + 1
            chunk += 1
        self.next_offset += size
        return True

    def buffer_message(self, data: bytes, n: int) -> None:
        """Append a message without body to the buffer."""
        offset = self.buffered_bytes
        if len(self.buffer) < offset + HEAD + n:
            self.buffer.extend(bytes(max(BUFFER, HEAD + n)))
        put32(self.buffer, offset, n)
        put32(self.buffer, offset + 4, 0)
        copy(self.buffer, offset + HEAD, data, 0, n)
        self.buffered_bytes = offset + HEAD + n

    def claim_chunks(self, size: int) -> None:
        """Claim room for a message: a free chunk, or new chunks at the end of the file."""
        if self.limit and not self.live.get(self.limit // self.chunk - 1):
            self.unused.append(self.limit // self.chunk - 1)
        if size <= self.chunk and self.unused:
            self.next_offset = self.unused.popleft() * self.chunk
            self.limit = self.next_offset + self.chunk
            self.read_ahead.clear()
        else:
            self.next_offset = self.end
            self.limit = self.end + (size + self.chunk - 1) // self.chunk * self.chunk
            self.end = self.limit
        self.buffer_offset = self.next_offset

    def flush(self) -> None:
        """Write the buffer."""
        if self.buffered_bytes:
            with memoryview(self.buffer) as view, view[: self.buffered_bytes] as data:
                self.disk.write(self.handle, [data], self.buffer_offset)
            self.buffer_offset += self.buffered_bytes
            self.buffered_bytes = 0

    def read(self, offset: int, size: int, expected: int) -> bytes:
        """Return bytes from the buffer, an earlier read, or the file.

        ``expected`` is the number of bytes from ``offset`` on that will be needed, at least
        ``size``.
        """
        if (
            offset >= self.buffer_offset
            and offset - self.buffer_offset + size <= self.buffered_bytes
        ):
            offset -= self.buffer_offset
            return cut(self.buffer, offset, offset + size)
        block = self.read_ahead.find_block(0, offset, size)
        if block is None:
            ahead = self.read_ahead.plan_read(0, offset, expected)
            if offset < self.buffer_offset <= offset + ahead:
                ahead = self.buffer_offset - offset  # Later bytes are not written yet.
            data = self.read_file(max(min(ahead, KEEP_MAX), size), offset)
            if len(data) < size or len(data) > KEEP_MAX:
                return data[:size]
            block = self.read_ahead.add_block(0, offset, data)
        block.used += size
        offset -= block.start
        return cut(block.data, offset, offset + size)

    def read_file(self, size: int, offset: int) -> bytes:
        """Return bytes from the file, fewer at its end."""
        return bytes(self.disk.read(self.handle, size, offset))

    def load(self, message: Message) -> None:
        """Load a message's data, which stays in the file until the message is released.

        Raises:
            OSError: the file cannot be read.
        """
        offset = message.position - 1
        expected = HEAD + READ_SLACK + (message.header_units << 8)
        if not message.flags & C_LARGE:
            expected += message.body_size
        head = self.read(offset, HEAD, expected)
        if len(head) < HEAD:
            raise OSError(f"the scratch log ends before {offset + HEAD}")
        n = get32(head, 0)
        body = get32(head, 4)
        data = self.read(offset + HEAD, n, n)
        if len(data) < n:
            raise OSError(f"the scratch log ends before {offset + HEAD + n}")
        if body:
            start = offset + HEAD + n
            message.parts = tuple(
                [
                    self.read_file(min(PART_SIZE, body - k), start + k)
                    for k in range(0, body, PART_SIZE)
                ]
            )
        message.data = data

    def release(self, message: Message) -> None:
        """Free the bytes of a message."""
        chunk = (message.position - 1) // self.chunk
        last = chunk
        if self.chunk_counts:
            last += self.chunk_counts.pop(message.position, 1) - 1
        while chunk <= last:
            remaining = self.live[chunk] - 1
            self.live[chunk] = remaining
            if remaining == 0:
                del self.live[chunk]
                if not (self.limit and chunk == (self.limit - 1) // self.chunk):
                    self.unused.append(chunk)
            chunk += 1

    def close(self) -> None:
        """Close the file."""
        if self.handle >= 0:
            self.disk.close(self.handle)
            self.handle = -1
