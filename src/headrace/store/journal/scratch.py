# SPDX-License-Identifier: Apache-2.0
"""The scratch log: transient messages that do not fit in memory.

It is a file without a name that is never synced and ends with the process. It grows in chunks; a
chunk without messages is used again.

    0          4          8                 8 + n
    +----------+----------+-----------------+----------+
    | data (n) | body (m) | data            | body     |   body: only of large messages
    +----------+----------+-----------------+----------+

The position of a message is its offset plus 1. Releasing a message reads nothing: only a message at
the start of several chunks is in more than one, and their number is remembered.
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
BUFFER = 256 << 10  # Bytes gathered before they are written.
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
        self.at = 0  # Offset of the next message.
        self.limit = 0  # End of the free chunks around ``at``.
        self.buffer = bytearray()
        self.gathered = 0  # Bytes in the buffer.
        self.buffer_at = 0  # Offset of the buffer in the file.
        self.live: dict[int, int] = {}  # By chunk: number of messages in it.
        self.unused: deque[int] = deque()  # Free chunks.
        self.spans: dict[int, int] = {}  # By position: number of chunks of a message with several.
        self.ahead = ReadAhead()

    def put(self, message: Message) -> bool:
        """Store a message's data; return False if the disk does not take it."""
        data = message.data or b""
        n = len(data)
        body = 0
        if message.parts is not None:
            body = sum(map(len, message.parts))
        size = HEAD + n + body
        try:
            if self.handle < 0:
                self.handle = self.disk.open_unnamed(self.directory)
            if self.gathered >= BUFFER or body or self.at + size > self.limit:
                self.flush()
            if self.at + size > self.limit:
                self.claim_chunks(size)
            if body:
                head = n.to_bytes(4, "big") + body.to_bytes(4, "big")
                self.disk.write(self.handle, [head, data, *message.parts], self.at)
                self.buffer_at += size
            else:
                self.gather(data, n)
        except OSError as error:  # The buffer is kept.
            log.warning("cannot page out to %s: %s", self.directory, error)
            return False
        message.position = self.at + 1
        chunk = self.at // self.chunk
        last = (self.at + size - 1) // self.chunk
        if last > chunk:
            self.spans[message.position] = last - chunk + 1
        while chunk <= last:
            self.live[chunk] = self.live.get(chunk, 0) + 1
            chunk += 1
        self.at += size
        return True

    def gather(self, data: bytes, n: int) -> None:
        """Append a message without body to the buffer."""
        offset = self.gathered
        if len(self.buffer) < offset + HEAD + n:
            self.buffer.extend(bytes(max(BUFFER, HEAD + n)))
        put32(self.buffer, offset, n)
        put32(self.buffer, offset + 4, 0)
        copy(self.buffer, offset + HEAD, data, 0, n)
        self.gathered = offset + HEAD + n

    def claim_chunks(self, size: int) -> None:
        """Find room: a free chunk, or new ones at the end of the file."""
        if self.limit and not self.live.get(self.limit // self.chunk - 1):
            self.unused.append(self.limit // self.chunk - 1)
        if size <= self.chunk and self.unused:
            self.at = self.unused.popleft() * self.chunk
            self.limit = self.at + self.chunk
            self.ahead.clear()
        else:
            self.at = self.end
            self.limit = self.end + (size + self.chunk - 1) // self.chunk * self.chunk
            self.end = self.limit
        self.buffer_at = self.at

    def flush(self) -> None:
        """Write the buffer."""
        if self.gathered:
            with memoryview(self.buffer) as view, view[: self.gathered] as data:
                self.disk.write(self.handle, [data], self.buffer_at)
            self.buffer_at += self.gathered
            self.gathered = 0

    def read(self, offset: int, size: int, expected: int) -> bytes:
        """Return bytes from the buffer, an earlier read, or the file.

        ``expected`` is how many from ``offset`` on will be needed, at least ``size``.
        """
        if offset >= self.buffer_at and offset - self.buffer_at + size <= self.gathered:
            offset -= self.buffer_at
            return cut(self.buffer, offset, offset + size)
        block = self.ahead.find(0, offset, size)
        if block is None:
            ahead = self.ahead.plan(0, offset, expected)
            if offset < self.buffer_at <= offset + ahead:
                ahead = self.buffer_at - offset  # The bytes behind that are not written yet.
            data = self.read_file(max(min(ahead, KEEP_MAX), size), offset)
            if len(data) < size or len(data) > KEEP_MAX:
                return data[:size]
            block = self.ahead.keep(0, offset, data)
        block.used += size
        offset -= block.start
        return cut(block.data, offset, offset + size)

    def read_file(self, size: int, offset: int) -> bytes:
        """Return bytes from the file, fewer at its end."""
        return bytes(self.disk.read(self.handle, size, offset))

    def load(self, message: Message) -> None:
        """Load a message's data; its room stays reserved until it is released.

        Raises:
            OSError: it cannot be read.
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
        """Free the room of a message."""
        chunk = (message.position - 1) // self.chunk
        last = chunk
        if self.spans:
            last += self.spans.pop(message.position, 1) - 1
        while chunk <= last:
            left = self.live[chunk] - 1
            self.live[chunk] = left
            if left == 0:
                del self.live[chunk]
                if not (self.limit and chunk == (self.limit - 1) // self.chunk):
                    self.unused.append(chunk)
            chunk += 1

    def close(self) -> None:
        """Close the file."""
        if self.handle >= 0:
            self.disk.close(self.handle)
            self.handle = -1
