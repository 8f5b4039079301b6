# SPDX-License-Identifier: Apache-2.0
"""Loading messages that queues paged out.

A message is read together with those after it if they are needed next
(:mod:`headrace.store.segment.read_ahead`). One that is not written yet is in the log's buffers; one
that compaction copied is read from its copy. A large body is verified with its record and never
read ahead.
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
    from headrace.store.segment.record import first_word, intact, residue
    from headrace.store.segment.segment import Segment
    from headrace.wire.memory import cut, get32, get64

if TYPE_CHECKING:
    from headrace.store.journal.log import SegmentLog

READ_SLACK = 512  # Bytes of a record besides body and headers, usually.
PART_SIZE = 131064  # Bytes; large bodies are read in parts of this size.
INDEX_MASK = 0xFFFFFFFF  # Mask of the record's index in a position.


class PageIn:
    """Loads the messages of one log."""

    def __init__(self, log: "SegmentLog") -> None:
        self.log = log
        self.disk = log.disk
        self.files = log.files
        self.segments: dict[int, Segment] = log.segments
        self.ahead = ReadAhead()

    def whereabouts(self, position: int) -> tuple["Segment | None", int]:
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
        segment, i = self.whereabouts(position)
        if segment is None or i >= segment.count:
            raise OSError(errno.ENOENT, f"no message at position {position:#x} of the journal")
        return segment, segment.offset(i)

    def load(self, message: Message) -> None:
        """Load a message's data from the buffers or the disk."""
        segment, offset = self.find(message.position)
        slab: bytes | bytearray
        if offset < segment.written:
            size = READ_SLACK + (message.header_units << 8)
            if not message.flags & C_LARGE:
                size += message.body_size
            slab, at = self.slab(segment, offset, size)
        else:
            slab, at = self.log.pending(segment, offset)
        q = 4 * get32(slab, at + 44)
        n = get32(slab, at + 48)
        start = at + C_MESSAGE_HEAD + q
        if message.flags & C_LARGE:
            message.parts = self.load_body(segment, offset, slab, at, C_MESSAGE_HEAD + q + n)
        message.data = cut(slab, start, start + n)

    def arrival(self, position: int) -> int:
        """Return when a message arrived; reads only that field."""
        segment, offset = self.find(position)
        if offset >= segment.written:
            slab, at = self.log.pending(segment, offset)
            return get64(slab, at + 24)
        block = self.ahead.find(segment.number, offset, 32)
        if block is not None:
            return get64(block.data, offset - block.start + 24)
        handle = segment.handle if segment.handle >= 0 else self.files.handle(segment)
        data = self.disk.read(handle, 8, offset + 24)
        return get64(data, 0) if len(data) == 8 else 0

    def slab(self, segment: "Segment", offset: int, size: int) -> tuple[bytes, int]:
        """Return bytes with a verified record (without a large body), and its offset there.

        ``size`` is the expected size of the record, without a large body.
        """
        block = self.ahead.find(segment.number, offset, C_MESSAGE_HEAD)
        if block is not None:
            d = block.data
            at = offset - block.start
            length = intact(d, at, len(d), segment.seed)
            if length:
                block.used += length
                return d, at
        handle = self.files.handle(segment)
        size = self.ahead.plan(segment.number, offset, size)
        d = self.disk.read(handle, min(size, segment.written - offset), offset)
        if len(d) >= C_MESSAGE_HEAD:
            length = get32(d, 0)
            if length > len(d) and not d[54] & C_LARGE and length <= segment.written - offset:
                d = self.disk.read(handle, (length + 7) & ~7, offset)
            elif d[54] & C_LARGE:
                own = C_MESSAGE_HEAD + 4 * get32(d, 44) + get32(d, 48)
                if len(d) < own <= segment.written - offset:
                    d = self.disk.read(handle, own, offset)
                if own <= len(d) < length:
                    return d, 0  # Verified together with the body.
            length = intact(d, 0, len(d), segment.seed)
            if length:
                block = self.ahead.keep(segment.number, offset, d)
                block.used = length
                return d, 0
        raise OSError(errno.EIO, f"damaged record at {offset} of {file_name(segment.number)}")

    def load_body(
        self, segment: "Segment", offset: int, d: bytes | bytearray, at: int, own: int
    ) -> tuple[bytes, ...]:
        """Return the body of a large message."""
        length = get32(d, at)
        if offset >= segment.written:
            filled = 1 if length & 7 else 0  # The last part is padding.
            for write in self.log.pending_writes():
                if write.segment is segment and write.parts and write.offset == offset + own:
                    return tuple(write.parts[: len(write.parts) - filled])
            raise OSError(errno.ENOENT, f"no body at {offset + own} in the journal's buffers")
        if len(d) - at >= length:  # The whole record was read ahead.
            return tuple(
                cut(d, at + start, at + min(start + PART_SIZE, length))
                for start in range(own, length, PART_SIZE)
            )
        handle = self.files.handle(segment)
        x = residue(first_word(segment.seed, length, d[at + 4]), d, at + C_HEAD, at + own)
        parts = []
        for start in range(own, length, PART_SIZE):
            part = self.disk.read(handle, min(PART_SIZE, length - start), offset + start)
            x = residue(x, part, 0, len(part))
            parts.append(part)
        x = residue(x, bytes(-length & 7), 0, -length & 7)
        if x != get64(d, at + 8):
            raise OSError(errno.EIO, f"damaged record at {offset} of {file_name(segment.number)}")
        return tuple(parts)
