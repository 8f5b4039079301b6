# SPDX-License-Identifier: Apache-2.0
"""Where messages go that need not survive but do not fit in memory.

A file without a name, never synced, gone with the process. Space is given out from the end of the
file in chunks; a chunk none of whose messages is left is used again.

    0          4          8                 8 + n
    +----------+----------+-----------------+----------+
    | data (n) | body (m) | data            | body     |   body: only of large messages
    +----------+----------+-----------------+----------+

The position of a message is where it starts, plus 1. Letting go of one reads nothing: only messages
that begin a stretch of several chunks touch more than one, and how many is remembered.
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

CHUNK = 16 << 20  # Octets.
BUFFER = 256 << 10  # Octets gathered before they are written.
PART_SIZE = 131064
READ_SLACK = 512  # Octets that a message may have beside its body and headers, as a rule.
KEEP_MAX = 256 << 10  # Octets read at once that are kept for what follows.
HEAD = 8


class Scratch:
    """The scratch log of one virtual host."""

    def __init__(self, disk: Disk, directory: str, chunk: int = CHUNK) -> None:
        self.disk = disk
        self.directory = directory
        self.chunk = chunk
        self.handle = -1  # Opened when first needed.
        self.end = 0  # Where the file ends, in whole chunks.
        self.at = 0  # Where the next message goes.
        self.limit = 0  # Where the stretch of free chunks that ``at`` is in ends.
        self.buffer = bytearray()
        self.gathered = 0  # Octets in the buffer.
        self.buffer_at = 0  # Where the buffer belongs in the file.
        self.live: dict[int, int] = {}  # By chunk: messages that touch it.
        self.unused: deque[int] = deque()  # Chunks without any.
        self.spans: dict[int, int] = {}  # By position: chunks of a message that has several.
        self.ahead = ReadAhead()

    def put(self, message: Message) -> bool:
        """Keep a message's data; false if the disk does not take it."""
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
                self.begin_stretch(size)
            if body:
                head = n.to_bytes(4, "big") + body.to_bytes(4, "big")
                self.disk.write(self.handle, [head, data, *message.parts], self.at)
                self.buffer_at += size
            else:
                self.gather(data, n)
        except OSError as error:  # What is in the buffer stays there.
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
        """Append a message without a body to the buffer."""
        at = self.gathered
        if len(self.buffer) < at + HEAD + n:
            self.buffer.extend(bytes(max(BUFFER, HEAD + n)))
        put32(self.buffer, at, n)
        put32(self.buffer, at + 4, 0)
        copy(self.buffer, at + HEAD, data, 0, n)
        self.gathered = at + HEAD + n

    def begin_stretch(self, size: int) -> None:
        """Find room: an unused chunk, or new ones at the end of the file."""
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
        """Write what was gathered."""
        if self.gathered:
            with memoryview(self.buffer) as view, view[: self.gathered] as octets:
                self.disk.write(self.handle, [octets], self.buffer_at)
            self.buffer_at += self.gathered
            self.gathered = 0

    def read(self, at: int, size: int, expected: int) -> bytes:
        """Return octets from the buffer, from what was read before, or from the file.

        ``expected`` is how many from ``at`` on will be wanted, at least ``size``.
        """
        if at >= self.buffer_at and at - self.buffer_at + size <= self.gathered:
            at -= self.buffer_at
            return cut(self.buffer, at, at + size)
        stretch = self.ahead.find(0, at, size)
        if stretch is None:
            ahead = self.ahead.plan(0, at, expected)
            if at < self.buffer_at <= at + ahead:
                ahead = self.buffer_at - at  # What follows is not written yet.
            octets = self.read_file(max(min(ahead, KEEP_MAX), size), at)
            if len(octets) < size or len(octets) > KEEP_MAX:
                return octets[:size]
            stretch = self.ahead.keep(0, at, octets)
        stretch.used += size
        at -= stretch.lo
        return cut(stretch.octets, at, at + size)

    def read_file(self, size: int, at: int) -> bytes:
        """Return octets from the file, fewer where it ends."""
        return bytes(self.disk.read(self.handle, size, at))

    def load(self, message: Message) -> None:
        """Bring a message's data back; its place stays its own until it is released.

        Raises:
            OSError: it cannot be read.
        """
        at = message.position - 1
        expected = HEAD + READ_SLACK + (message.header_units << 8)
        if not message.flags & C_LARGE:
            expected += message.body_size
        head = self.read(at, HEAD, expected)
        if len(head) < HEAD:
            raise OSError(f"the scratch log ends before {at + HEAD}")
        n = get32(head, 0)
        body = get32(head, 4)
        data = self.read(at + HEAD, n, n)
        if len(data) < n:
            raise OSError(f"the scratch log ends before {at + HEAD + n}")
        if body:
            lo = at + HEAD + n
            message.parts = tuple(
                [
                    self.read_file(min(PART_SIZE, body - k), lo + k)
                    for k in range(0, body, PART_SIZE)
                ]
            )
        message.data = data

    def release(self, message: Message) -> None:
        """Let the place of a message be used again."""
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
        """Let go of the file."""
        if self.handle >= 0:
            self.disk.close(self.handle)
            self.handle = -1
