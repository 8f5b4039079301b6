# SPDX-License-Identifier: Apache-2.0
"""A segment: a file of a journal, and the index of its messages in memory.

A segment starts with a header of 64 bytes::

    0            8         12       16       24          32       40         48         56      64
    +------------+---------+--------+--------+-----------+--------+----------+----------+-------+
    | "HEADRACE" | version | number | secret | first_seq | oldest | begun_ms | previous | check |
    +------------+---------+--------+--------+-----------+--------+----------+----------+-------+

- ``secret``: the journal's secret, from which the seeds of its segments are derived
- ``first_seq``: lower seqs were used in earlier segments
- ``oldest``: earlier segments were not needed when this segment was begun
- ``begun_ms``: when the first message of a stream's segment arrived; 0 in a journal
- ``previous``: the number of the journal's previous segment; 0 if there is none

Records (:mod:`headrace.store.segment.record`) follow, up to a SEALED record or, in the last
segment, to the first place without a record.

Memory has 8 bytes for each message: its offset, and the number of queues that have not settled it.
A message for several queues has 12 more bytes, for the queues that have settled it. The position of
a message is ``number << 32 | index``. When compaction has copied the unsettled messages of a
segment, the segment object stays in memory with ``forward``, the positions of the copies.
"""

import struct
from typing import NamedTuple

import cython

if not cython.compiled:
    from headrace.store.segment.record import residue
    from headrace.wire.memory import get32, get64, put32, put64

MAGIC = b"HEADRACE"
VERSION = 5  # 2: records of transaction branches; 3: of facts; 4: of counts; 5: of definitions.
HEADER = 64  # Bytes.
SEAL_ROOM = 16  # Bytes that are always left for a SEALED record.
SEVERAL = 0x80000000  # Set if the message was for several queues.

MASK_BITS = 64

if not cython.compiled:
    C_SEVERAL = SEVERAL


class Segment:
    """The sizes of one segment file, and the unsettled messages in it."""

    def __init__(self, number: int, seed: int, size: int) -> None:
        self.number = number
        self.seed = seed
        self.size = size  # Maximum size of the file in bytes.
        self.end = 0  # End of the last appended record.
        self.written = 0  # End of the records that are in the file.
        self.heads = bytearray()  # For each message: offset (4), unsettled queues (4).
        self.capacity = 0  # Capacity of ``heads`` in messages.
        self.count = 0  # Messages.
        self.live = 0  # Unsettled messages.
        # For messages in several queues: route number (4), a bit for each queue that
        # settled the message (8).
        self.masks: bytearray | None = None
        self.routes: dict[bytes, int] = {}  # Queue ids, as in the record, to a number.
        self.bits: list[dict[int, int]] = []  # The bits of queue ids, by route number.
        # The queues that settled a message and have no bit in its mask, by message index.
        self.partial: dict[int, set[int]] | None = None
        self.forward: bytearray | None = None  # The positions of copies (8) by index.
        self.is_moved = False  # All unsettled messages have been copied.
        self.is_retired = False  # The file is no longer a part of the log.
        self.handle = -1
        self.allocated = 0  # Bytes reserved in the file.
        self.is_suspect = False  # A write failed: see headrace.store.replacement.
        self.is_sealed = False
        self.reserved: dict[int, int] | None = None  # Seqs of RESERVED records by queue id.
        # Numbers of its committed transactions that have records in a stream's log.
        self.shared_transactions: list[int] | None = None
        self.marks: list[bytes] | None = None  # The runs of its MARKED records.
        self.facts: set[bytes] | None = None  # Keys of current facts recorded in it.
        self.fact_bytes = 0  # Bytes of current facts and definitions recorded in it.
        self.defined: dict[bytes, bytes] | None = None  # Current definitions recorded in it.
        self.counts: bytearray | None = None  # The entries of its COUNTED records.
        self.count_positions: bytearray | None = None  # The positions of their messages.
        self.counts_room = 0  # Bytes of ``counts`` at which they are swept.

    def __repr__(self) -> str:
        return f"<Segment {self.number} live={self.live}/{self.count} end={self.end}>"

    def add_message(self, offset: int, unsettled: int, ids: bytes) -> int:
        """Add a message for the queues in ``ids``; return its index in the segment."""
        i = self.count
        if i == self.capacity:
            self.capacity = 512 if i == 0 else i * 2
            self.heads.extend(bytes(8 * (self.capacity - i)))
            if self.masks is not None:
                self.masks.extend(bytes(12 * (self.capacity - i)))
        put32(self.heads, 8 * i, offset)
        put32(self.heads, 8 * i + 4, unsettled)
        self.count = i + 1
        if unsettled:
            self.live += 1
            if unsettled > 1:
                self.set_queues(i, unsettled, ids)
        return i

    def set_queues(self, i: int, unsettled: int, ids: bytes) -> None:
        """Prepare to track which of several queues settle a message."""
        put32(self.heads, 8 * i + 4, unsettled | C_SEVERAL)
        if self.masks is None:
            self.masks = bytearray(12 * self.capacity)
        number = self.routes.get(ids, -1)
        if number < 0:
            number = self.routes[ids] = len(self.bits)
            queues = [get32(ids, offset) for offset in range(0, len(ids), 4)]
            self.bits.append({queue_id: bit for bit, queue_id in enumerate(queues)})
        put32(self.masks, 12 * i, number)
        put64(self.masks, 12 * i + 4, 0)

    def offset(self, i: int) -> int:
        """Return the offset of a message in the file."""
        return get32(self.heads, 8 * i)

    def unsettled_queues(self, i: int) -> int:
        """Return the number of queues that have not settled a message."""
        return get32(self.heads, 8 * i + 4) & 0x7FFFFFFF

    def settle(self, i: int, queue_id: int) -> int:
        """Settle a message for a queue.

        Returns:
            1 if it was the last queue, 0 if others are left, -1 if the message was settled before.
        """
        if i >= self.count:
            return -1
        unsettled = get32(self.heads, 8 * i + 4)
        if unsettled == 0:
            return -1
        if unsettled & C_SEVERAL:
            if not self.settle_one(i, queue_id):
                return -1
            unsettled -= 1
            if unsettled != C_SEVERAL:
                put32(self.heads, 8 * i + 4, unsettled)
                return 0
            if self.partial is not None:
                self.partial.pop(i, None)
        put32(self.heads, 8 * i + 4, 0)
        self.live -= 1
        return 1

    def settle_one(self, i: int, queue_id: int) -> int:
        """Settle a message for one of several queues; return 0 if it was settled before."""
        assert self.masks is not None
        bit = self.bits[get32(self.masks, 12 * i)].get(queue_id, -1)
        if bit < 0:
            return 0
        if bit >= MASK_BITS:
            if self.partial is None:
                self.partial = {}
            settled = self.partial.setdefault(i, set())
            if queue_id in settled:
                return 0
            settled.add(queue_id)
            return 1
        mask = get64(self.masks, 12 * i + 4)
        flag = 1
        flag = flag << bit
        if mask & flag:
            return 0
        put64(self.masks, 12 * i + 4, mask | flag)
        return 1

    def is_unsettled(self, i: int, queue_id: int) -> bool:
        """Return True if a queue has not settled a message."""
        if i >= self.count:
            return False
        unsettled = get32(self.heads, 8 * i + 4)
        if not unsettled & C_SEVERAL:
            return unsettled > 0
        assert self.masks is not None
        bit = self.bits[get32(self.masks, 12 * i)].get(queue_id, -1)
        if bit >= MASK_BITS:
            return queue_id not in (self.partial or {}).get(i, ())
        return bit >= 0 and not get64(self.masks, 12 * i + 4) >> bit & 1

    def unsettled_ids(self, i: int, ids: bytes) -> bytes:
        """Return the ids of the queues that have not settled a message."""
        if not get32(self.heads, 8 * i + 4) & C_SEVERAL:
            return ids
        assert self.masks is not None
        mask = get64(self.masks, 12 * i + 4)
        settled = (self.partial or {}).get(i, ())
        left = []
        for bit in range(len(ids) >> 2):
            id = ids[4 * bit : 4 * bit + 4]
            is_settled = (
                mask >> bit & 1 if bit < MASK_BITS else int.from_bytes(id, "big") in settled
            )
            if not is_settled:
                left.append(id)
        return b"".join(left)


class Header(NamedTuple):
    """The header of a segment file, decoded."""

    version: int
    number: int
    secret: int
    first_seq: int
    oldest: int
    begun_ms: int
    previous: int


def header(
    number: int, secret: int, first_seq: int, oldest: int, begun_ms: int = 0, previous: int = 0
) -> bytes:
    """Return the encoded header of a segment, ``HEADER`` bytes long."""
    data = bytearray(HEADER)
    data[:8] = MAGIC
    put32(data, 8, VERSION)
    put32(data, 12, number)
    put64(data, 16, secret)
    put64(data, 24, first_seq)
    put64(data, 32, oldest)
    put64(data, 40, begun_ms)
    put64(data, 48, previous)
    put64(data, 56, residue(0, data, 0, 56))
    return bytes(data)


def read_header(data: bytes | bytearray) -> Header | None:
    """Return the header in a segment's first bytes; None if it is damaged."""
    if len(data) < HEADER or data[:8] != MAGIC:
        return None
    if int.from_bytes(data[56:64], "big") != residue(0, bytes(data[:56]), 0, 56):
        return None
    return Header(*struct.unpack_from(">IIQQQQQ", data, 8))


def file_name(number: int) -> str:
    """Return the name of a segment's file."""
    return f"{number:010d}.segment"


def segment_numbers(names: list[str]) -> list[int]:
    """Return the sorted numbers of the segments among file names."""
    parts = [name.partition(".") for name in names]
    return sorted(int(stem) for stem, _, suffix in parts if suffix == "segment" and stem.isdigit())
