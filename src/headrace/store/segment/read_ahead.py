# SPDX-License-Identifier: Apache-2.0
"""Read-ahead: the number of bytes that one read loads.

Messages of queues that page out together alternate in the file. If only one queue is read, the
messages of the others between them are useless; if all are read, none is. So the first read loads
a single message. A read near the end of an earlier read loads twice as many bytes, up to
``READ_AHEAD``, if at least one byte in ``WASTE_MAX`` of that read was used; otherwise half as many.
"""

READ_AHEAD = 256 << 10  # Bytes of one read, unless a message is larger.
READ_MIN = 4096  # Bytes, a page of the kernel.
BLOCKS_MAX = 4  # Blocks kept, one for each sequential reader.
WASTE_MAX = 4  # Bytes read for each used one, while reads grow.


class ReadBlock:
    """The bytes of one read."""

    def __init__(self, file: int, start: int, data: bytes) -> None:
        self.file = file  # The number of the file.
        self.start = start  # Offset in the file.
        self.end = start + len(data)
        self.data = data
        self.used = 0  # Bytes used.


class ReadAhead:
    """A cache of the latest reads, so that neighbouring messages need one read."""

    def __init__(self) -> None:
        self.blocks: list[ReadBlock] = []  # The latest is last.

    def find_block(self, file: int, offset: int, size: int) -> ReadBlock | None:
        """Return a block with ``size`` bytes from ``offset`` on; None if there is none."""
        block: ReadBlock
        i = len(self.blocks)
        while i:
            i -= 1
            block = self.blocks[i]
            if block.file == file and block.start <= offset and offset + size <= block.end:
                return block
        return None

    def plan_read(self, file: int, offset: int, size: int) -> int:
        """Return the number of bytes to read at ``offset``, of which ``size`` are needed."""
        block: ReadBlock
        size = max(size, READ_MIN)
        i = len(self.blocks)
        while i:
            i -= 1
            block = self.blocks[i]
            length = block.end - block.start
            if block.file == file and block.start <= offset <= block.end + length:
                del self.blocks[i]  # The new block replaces it.
                ahead = 2 * length if block.used * WASTE_MAX >= length else length >> 1
                return max(size, min(ahead, READ_AHEAD))
        return size

    def add_block(self, file: int, start: int, data: bytes) -> ReadBlock:
        """Add the block of a read; the oldest of ``BLOCKS_MAX`` blocks is removed."""
        if len(self.blocks) == BLOCKS_MAX:
            del self.blocks[0]
        block = ReadBlock(file, start, data)
        self.blocks.append(block)
        return block

    def clear(self) -> None:
        """Remove all blocks, because the file changes."""
        self.blocks = []
