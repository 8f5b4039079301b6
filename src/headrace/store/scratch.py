# SPDX-License-Identifier: Apache-2.0
"""Where messages go that need not survive but do not fit in memory.

A file without a name, never synced, gone with the process. Space is given out from the end of the
file in chunks; a chunk none of whose messages is left is used again.

    0          4          8                 8 + n
    +----------+----------+-----------------+----------+
    | data (n) | body (m) | data            | body     |   body: only of large messages
    +----------+----------+-----------------+----------+

The position of a message is where it starts, plus 1.
"""

import logging
from collections import deque

from headrace.model.message import Message
from headrace.store.disk import Disk

log = logging.getLogger(__name__)

CHUNK = 16 << 20  # Octets.
BUFFER = 256 << 10  # Octets gathered before they are written.
READ_AHEAD = 256 << 10
SLABS = 4
PART_SIZE = 131064
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
        self.buffer_at = 0  # Where the buffer belongs in the file.
        self.live: dict[int, int] = {}  # By chunk: messages that touch it.
        self.unused: deque[int] = deque()  # Chunks without any.
        self.slabs: deque[tuple[int, bytes]] = deque(maxlen=SLABS)

    def put(self, message: Message) -> bool:
        """Keep a message's data; false if the disk does not take it."""
        data = message.data or b""
        parts = message.parts or ()
        body = sum(map(len, parts))
        size = HEAD + len(data) + body
        head = len(data).to_bytes(4, "big") + body.to_bytes(4, "big")
        try:
            if self.handle < 0:
                self.handle = self.disk.open_unnamed(self.directory)
            if len(self.buffer) >= BUFFER or body or self.at + size > self.limit:
                self.flush()
            if self.at + size > self.limit:
                self.begin_stretch(size)
            if body:
                self.disk.write(self.handle, [head, data, *parts], self.at)
                self.buffer_at += size
            else:
                self.buffer += head
                self.buffer += data
        except OSError as error:  # What is in the buffer stays there.
            log.warning("cannot page out to %s: %s", self.directory, error)
            return False
        message.position = self.at + 1
        for chunk in range(self.at // self.chunk, (self.at + size - 1) // self.chunk + 1):
            self.live[chunk] = self.live.get(chunk, 0) + 1
        self.at += size
        return True

    def begin_stretch(self, size: int) -> None:
        """Find room: an unused chunk, or new ones at the end of the file."""
        if self.limit and not self.live.get(self.limit // self.chunk - 1):
            self.unused.append(self.limit // self.chunk - 1)
        if size <= self.chunk and self.unused:
            self.at = self.unused.popleft() * self.chunk
            self.limit = self.at + self.chunk
            self.slabs.clear()
        else:
            self.at = self.end
            self.limit = self.end + -(-size // self.chunk) * self.chunk
            self.end = self.limit
        self.buffer_at = self.at

    def flush(self) -> None:
        """Write what was gathered."""
        if self.buffer:
            self.disk.write(self.handle, [self.buffer], self.buffer_at)
            self.buffer_at += len(self.buffer)
            self.buffer.clear()

    def read(self, at: int, size: int) -> bytes:
        """Return octets from the buffer, from what was read ahead, or from the file."""
        if at >= self.buffer_at and at - self.buffer_at + size <= len(self.buffer):
            at -= self.buffer_at
            return bytes(self.buffer[at : at + size])
        for lo, slab in self.slabs:
            if lo <= at and at + size <= lo + len(slab):
                return slab[at - lo : at - lo + size]
        if size > READ_AHEAD:
            return self.disk.read(self.handle, size, at)
        ahead = READ_AHEAD
        if at < self.buffer_at <= at + ahead:
            ahead = self.buffer_at - at  # What follows is not written yet.
        slab = self.disk.read(self.handle, ahead, at)
        self.slabs.append((at, slab))
        return slab[:size]

    def load(self, message: Message) -> None:
        """Bring a message's data back; its place stays its own until it is released.

        Raises:
            OSError: it cannot be read.
        """
        at = message.position - 1
        head = self.read(at, HEAD)
        n, body = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
        data = self.read(at + HEAD, n)
        if len(data) < n:
            raise OSError(f"the scratch log ends before {at + HEAD + n}")
        if body:
            lo = at + HEAD + n
            message.parts = tuple(
                self.read(lo + k, min(PART_SIZE, body - k)) for k in range(0, body, PART_SIZE)
            )
        message.data = data

    def release(self, position: int) -> None:
        """Let the place of a message be used again."""
        at = position - 1
        head = self.read(at, HEAD)
        size = HEAD + int.from_bytes(head[:4], "big") + int.from_bytes(head[4:], "big")
        for chunk in range(at // self.chunk, (at + size - 1) // self.chunk + 1):
            self.live[chunk] -= 1
            if not self.live[chunk]:
                del self.live[chunk]
                if not (self.limit and chunk == (self.limit - 1) // self.chunk):
                    self.unused.append(chunk)

    def close(self) -> None:
        """Let go of the file."""
        if self.handle >= 0:
            self.disk.close(self.handle)
            self.handle = -1
