# SPDX-License-Identifier: Apache-2.0
"""Read-ahead: how much is read at once when messages are loaded.

Messages of queues that page out together alternate in the file. Whether the next message is needed
depends on the readers: one queue skips the others' messages, all together skip none. So a read
begins with a single message. A read near the end of an earlier one takes twice as much as that did,
up to ``READ_AHEAD``, if at least one byte in ``WASTE_MAX`` of it was used; else half as much.
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
    """A cache of the latest reads of files, so that neighbouring messages need one read."""

    def __init__(self) -> None:
        self.blocks: list[ReadBlock] = []  # The latest is last.

    def find(self, file: int, offset: int, size: int) -> ReadBlock | None:
        """Return a read with ``size`` bytes from ``offset`` on, if there is one."""
        block: ReadBlock
        i = len(self.blocks)
        while i:
            i -= 1
            block = self.blocks[i]
            if block.file == file and block.start <= offset and offset + size <= block.end:
                return block
        return None

    def plan(self, file: int, offset: int, size: int) -> int:
        """Return the number of bytes to read at ``offset``, of which ``size`` are needed."""
        block: ReadBlock
        size = max(size, READ_MIN)
        i = len(self.blocks)
        while i:
            i -= 1
            block = self.blocks[i]
            length = block.end - block.start
            if block.file == file and block.start <= offset <= block.end + length:
                del self.blocks[i]  # The new read takes its place.
                ahead = 2 * length if block.used * WASTE_MAX >= length else length >> 1
                return max(size, min(ahead, READ_AHEAD))
        return size

    def keep(self, file: int, start: int, data: bytes) -> ReadBlock:
        """Keep a read in place of the oldest."""
        if len(self.blocks) == BLOCKS_MAX:
            del self.blocks[0]
        block = ReadBlock(file, start, data)
        self.blocks.append(block)
        return block

    def clear(self) -> None:
        """Forget all reads: the file changes."""
        self.blocks = []
