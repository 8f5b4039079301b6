# SPDX-License-Identifier: Apache-2.0
"""Loading messages that queues paged out.

A message is read together with the messages after it if they are probably needed next
(:mod:`headrace.store.segment.read_ahead`). A message that is not written yet is read from the log's
buffers, a message that compaction copied from its copy. A large body is verified with its record,
and never read ahead.
"""

import errno
from typing import TYPE_CHECKING

import cython

from headrace.store.segment.segment import file_name

if not cython.compiled:
    from headrace.model.message import LARGE as C_LARGE
    from headrace.model.message import Message
    from headrace.store.segment.read_ahead import ReadAhead
    from headrace.store.segment.record import HEAD as C_HEAD
    from headrace.store.segment.record import MESSAGE_HEAD as C_MESSAGE_HEAD
    from headrace.store.segment.record import check_record, first_word, residue
    from headrace.store.segment.segment import Segment
    from headrace.wire.memory import cut, get32, get64

if TYPE_CHECKING:
    from headrace.store.journal.log import SegmentLog

READ_SLACK = 512  # The usual bytes of a record besides body and headers.
PART_SIZE = 131064  # Bytes; large bodies are read in parts of this size.
INDEX_MASK = 0xFFFFFFFF  # Mask of the record's index in a position.


class PageIn:
    """Loads the messages of one log."""

    def __init__(self, log: "SegmentLog") -> None:
        self.log = log
        self.disk = log.disk
        self.files = log.files
        self.segments: dict[int, Segment] = log.segments
        self.read_ahead = ReadAhead()

    def locate(self, position: int) -> tuple["Segment | None", int]:
        """Return the segment and index of a message, or of its copy."""
        i = position & INDEX_MASK
        segment = self.segments.get(position >> 32)
        while segment is not None and segment.forward is not None and i < segment.count:
            position = get64(segment.forward, 8 * i)
            if position == 0:
                break
            i = position & INDEX_MASK
            segment = self.segments.get(position >> 32)
        return segment, i

    def find(self, position: int) -> tuple["Segment", int]:
        """Return the segment and offset of an unsettled message."""
        segment, i = self.locate(position)
        if segment is None or i >= segment.count:
            raise OSError(errno.ENOENT, f"no message at position {position:#x} of the journal")
        return segment, segment.offset(i)

    def load(self, message: Message) -> None:
        """Load a message's data from the buffers or the disk."""
        segment, offset = self.find(message.position)
        buffer: bytes | bytearray
        if offset < segment.written:
            size = READ_SLACK + (message.header_units << 8)
            if not message.flags & C_LARGE:
                size += message.body_size
            buffer, base = self.read_record(segment, offset, size)
        else:
            buffer, base = self.log.pending(segment, offset)
        q = 4 * get32(buffer, base + 44)
        n = get32(buffer, base + 48)
        start = base + C_MESSAGE_HEAD + q
        if message.flags & C_LARGE:
            message.parts = self.load_body(segment, offset, buffer, base, C_MESSAGE_HEAD + q + n)
        message.data = cut(buffer, start, start + n)

    def read_arrival_ms(self, position: int) -> int:
        """Return the arrival time of a message (ms); nothing else of it is read."""
        segment, offset = self.find(position)
        if offset >= segment.written:
            buffer, base = self.log.pending(segment, offset)
            return get64(buffer, base + 24)
        block = self.read_ahead.find_block(segment.number, offset, 32)
        if block is not None:
            return get64(block.data, offset - block.start + 24)
        handle = segment.handle if segment.handle >= 0 else self.files.handle(segment)
        data = self.disk.read(handle, 8, offset + 24)
        return get64(data, 0) if len(data) == 8 else 0

    def read_record(self, segment: "Segment", offset: int, size: int) -> tuple[bytes, int]:
        """Return bytes that contain a verified record, and the offset of the record in them.

        A large body is not read. ``size`` is the expected size of the record without it.
        """
        block = self.read_ahead.find_block(segment.number, offset, C_MESSAGE_HEAD)
        if block is not None:
            data = block.data
            base = offset - block.start
            length = check_record(data, base, len(data), segment.seed)
            if length:
                block.used += length
                return data, base
        handle = self.files.handle(segment)
        size = self.read_ahead.plan_read(segment.number, offset, size)
        data = self.disk.read(handle, min(size, segment.written - offset), offset)
        if len(data) >= C_MESSAGE_HEAD:
            length = get32(data, 0)
            if length > len(data) and not data[54] & C_LARGE and length <= segment.written - offset:
                data = self.disk.read(handle, (length + 7) & ~7, offset)
            elif data[54] & C_LARGE:
                head_size = C_MESSAGE_HEAD + 4 * get32(data, 44) + get32(data, 48)
                if len(data) < head_size <= segment.written - offset:
                    data = self.disk.read(handle, head_size, offset)
                if head_size <= len(data) < length:
                    return data, 0  # Verified together with the body.
            length = check_record(data, 0, len(data), segment.seed)
            if length:
                block = self.read_ahead.add_block(segment.number, offset, data)
                block.used = length
                return data, 0
        raise OSError(errno.EIO, f"damaged record at {offset} of {file_name(segment.number)}")

    def load_body(
        self, segment: "Segment", offset: int, data: bytes | bytearray, base: int, head_size: int
    ) -> tuple[bytes, ...]:
        """Return the body of a large message."""
        length = get32(data, base)
        if offset >= segment.written:
            filled = 1 if length & 7 else 0  # The last part is padding.
            for write in self.log.pending_writes():
                if write.segment is segment and write.parts and write.offset == offset + head_size:
                    return tuple(write.parts[: len(write.parts) - filled])
            raise OSError(errno.ENOENT, f"no body at {offset + head_size} in the journal's buffers")
        if len(data) - base >= length:  # The whole record was read ahead.
            return tuple(
                cut(data, base + start, base + min(start + PART_SIZE, length))
                for start in range(head_size, length, PART_SIZE)
            )
        handle = self.files.handle(segment)
        x = residue(
            first_word(segment.seed, length, data[base + 4]), data, base + C_HEAD, base + head_size
        )
        parts = []
        for start in range(head_size, length, PART_SIZE):
            part = self.disk.read(handle, min(PART_SIZE, length - start), offset + start)
            x = residue(x, part, 0, len(part))
            parts.append(part)
        x = residue(x, bytes(-length & 7), 0, -length & 7)
        if x != get64(data, base + 8):
            raise OSError(errno.EIO, f"damaged record at {offset} of {file_name(segment.number)}")
        return tuple(parts)
