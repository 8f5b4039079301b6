# SPDX-License-Identifier: Apache-2.0
"""The frames that one side of a local stream has not yet sent."""

from typing import Any

import cython

if not cython.compiled:
    from headrace.wire.memory import put32

from headrace.server.relay.frames import HEADER_SIZE


class FrameOutput:
    """A buffer of frames, sent from ``head`` on and extended at ``tail``."""

    def __init__(self, size: int) -> None:
        """``size`` is the buffer's size in bytes; one that grew is replaced when it is empty."""
        self.size = size
        self.data = bytearray(size)
        self.view = memoryview(self.data)
        self.head = 0  # Offset in ``data`` of the first unsent byte.
        self.tail = 0  # Offset in ``data`` of the end of the unsent bytes.

    def unsent(self) -> int:
        """Return the number of unsent bytes."""
        return self.tail - self.head

    def begin_frame(self, number: int, kind: int, size: int) -> int:
        """Append the header of a frame; return the offset of its payload of ``size`` bytes."""
        if self.tail + HEADER_SIZE + size > len(self.data):
            self.grow(HEADER_SIZE + size)
        position = self.tail
        put32(self.data, position, number)
        put32(self.data, position + 4, kind << 24 | size)
        self.tail = position + HEADER_SIZE + size
        return position + HEADER_SIZE

    def put_number(self, number: int, kind: int, value: int) -> None:
        """Append a frame with a number as its payload."""
        position = self.begin_frame(number, kind, 4)
        put32(self.data, position, value)

    def grow(self, size: int) -> None:
        """Make room for ``size`` more bytes."""
        unsent = self.tail - self.head
        capacity = len(self.data)
        while unsent + size > capacity:
            capacity *= 2
        data = bytearray(capacity)
        data[:unsent] = self.view[self.head : self.tail]
        self.replace(data, unsent)

    def replace(self, data: bytearray, unsent: int) -> None:
        """Use ``data`` as the buffer, which begins with the unsent bytes."""
        self.data = data
        self.view = memoryview(data)
        self.head = 0
        self.tail = unsent

    def move_to_start(self) -> None:
        """Move the unsent bytes to the start of the buffer."""
        unsent = self.tail - self.head
        self.view[:unsent] = self.view[self.head : self.tail]
        self.head = 0
        self.tail = unsent

    def send(self, sock: Any) -> bool:
        """Send as many bytes as ``sock`` accepts; return True if none are left.

        Raises OSError if the stream has ended.
        """
        while self.tail > self.head:
            try:
                sent = sock.send(self.view[self.head : self.tail])
            except (BlockingIOError, InterruptedError):
                return False
            self.head += sent
        self.clear()
        return True

    def clear(self) -> None:
        """Drop all bytes."""
        self.head = self.tail = 0
        if len(self.data) > self.size:
            self.replace(bytearray(self.size), 0)
