# SPDX-License-Identifier: Apache-2.0
"""One file of a journal, and what memory knows of its records.

A segment starts with a header of 64 octets::

    0            8         12       16       24          32       40         48         56      64
    +------------+---------+--------+--------+-----------+--------+----------+----------+-------+
    | "HEADRACE" | version | number | secret | first_seq | oldest | begun_ms | previous | check |
    +------------+---------+--------+--------+-----------+--------+----------+----------+-------+

``secret`` is the journal's, and gives the segments their seeds; every seq below ``first_seq`` was
given away before; segments before ``oldest`` were of no use any more when this one was begun;
``begun_ms`` is when the first message of a stream's segment arrived, otherwise 0; ``previous`` is
the number of the journal's segment before this one, 0 where there is none. Then come records
(:mod:`headrace.store.segment.record`) up to a SEALED one or, in the last segment, up to the first
place that holds none.

Memory keeps 8 octets for each message: where it starts and how many queues still owe it; and 12
more where several did, to know which of them settled it. A position is ``number << 32 | index``.
When compaction has copied what was left of a segment, the segment stays known under its number with
``forward``, which says where each message went.
"""

import struct
from typing import NamedTuple

import cython

if not cython.compiled:
    from headrace.store.segment.record import residue
    from headrace.wire.memory import get32, get64, put32, put64

MAGIC = b"HEADRACE"
VERSION = 5  # 2: records of transaction branches; 3: of facts; 4: of counts; 5: of definitions.
HEADER = 64  # Octets.
SEAL_ROOM = 16  # Octets that are always left for a SEALED record.
SEVERAL = 0x80000000  # More than one queue owed the message at first.

MASK_BITS = 64

if not cython.compiled:
    C_SEVERAL = SEVERAL


class Segment:
    """A segment in memory."""

    def __init__(self, number: int, seed: int, size: int) -> None:
        self.number = number
        self.seed = seed
        self.size = size  # Octets that the file may hold.
        self.end = 0  # Where the last record that was appended ends.
        self.written = 0  # Up to here the file holds what was appended.
        self.heads = bytearray()  # By message: offset (4), queues that owe it (4).
        self.room = 0  # Messages that ``heads`` has room for.
        self.count = 0  # Messages in it.
        self.live = 0  # Messages that some queue owes.
        self.masks: bytearray | None = (
            None  # Where several queues owe one: the route's number (4), a bit for
        )
        # each queue that settled it (8).
        self.routes: dict[bytes, int] = {}  # Queue ids, as in the record, to their number.
        self.bits: list[dict[int, int]] = []  # By that number, queue id to bit.
        self.partial: dict[int, set[int]] | None = None  # Who settled, beyond 64 queues.
        self.forward: bytearray | None = None  # By index, the position of the copy (8).
        self.moved = False  # All that was left has been copied.
        self.retired = False  # Its file is not part of the log any more.
        self.handle = -1
        self.allocated = 0  # Octets that are reserved in the file.
        self.suspect = False  # A write to it failed: see headrace.store.replacement.
        self.sealed = False
        self.reserved: dict[int, int] | None = None  # RESERVED records in it: queue id to seq.
        self.shared: list[int] | None = None  # Transactions in it that some stream's log has, too.
        self.marks: list[bytes] | None = None  # What its MARKED records say.
        self.facts: set[bytes] | None = None  # Keys of the facts that stand in it and count,
        self.fact_octets = 0  # and what their records hold, and those of the definitions.
        self.defined: dict[bytes, bytes] | None = None  # The definitions that stand in it.
        self.counts: bytearray | None = None  # What its COUNTED records say (bytearray),
        self.count_places: bytearray | None = None  # the positions of the messages,
        self.counts_room = 0  # and at how many octets that is looked through.

    def __repr__(self) -> str:
        return f"<Segment {self.number} live={self.live}/{self.count} end={self.end}>"

    def note(self, offset: int, owed: int, ids: bytes) -> int:
        """Take a message into the index, for the queues in ``ids``; return its place there."""
        i = self.count
        if i == self.room:
            self.room = 512 if i == 0 else i * 2
            self.heads.extend(bytes(8 * (self.room - i)))
            if self.masks is not None:
                self.masks.extend(bytes(12 * (self.room - i)))
        put32(self.heads, 8 * i, offset)
        put32(self.heads, 8 * i + 4, owed)
        self.count = i + 1
        if owed:
            self.live += 1
            if owed > 1:
                self.several(i, owed, ids)
        return i

    def several(self, i: int, owed: int, ids: bytes) -> None:
        """Prepare to know which of several queues settled a message; none did so far."""
        put32(self.heads, 8 * i + 4, owed | C_SEVERAL)
        if self.masks is None:
            self.masks = bytearray(12 * self.room)
        number = self.routes.get(ids, -1)
        if number < 0:
            number = self.routes[ids] = len(self.bits)
            queues = [get32(ids, at) for at in range(0, len(ids), 4)]
            self.bits.append({queue_id: bit for bit, queue_id in enumerate(queues)})
        put32(self.masks, 12 * i, number)
        put64(self.masks, 12 * i + 4, 0)

    def offset(self, i: int) -> int:
        """Return where a message starts in the file."""
        return get32(self.heads, 8 * i)

    def owed(self, i: int) -> int:
        """Return how many queues owe a message."""
        return get32(self.heads, 8 * i + 4) & 0x7FFFFFFF

    def settle(self, i: int, queue_id: int) -> int:
        """Note that a queue no longer owes a message.

        Returns:
            1 when that queue was the last to owe it, 0 when others do, -1 when it was not owed.
        """
        if i >= self.count:
            return -1
        owed = get32(self.heads, 8 * i + 4)
        if owed == 0:
            return -1
        if owed & C_SEVERAL:
            if not self.settle_one(i, queue_id):
                return -1
            owed -= 1
            if owed != C_SEVERAL:
                put32(self.heads, 8 * i + 4, owed)
                return 0
            if self.partial is not None:
                self.partial.pop(i, None)
        put32(self.heads, 8 * i + 4, 0)
        self.live -= 1
        return 1

    def settle_one(self, i: int, queue_id: int) -> int:
        """Note that one of several queues settled a message; 0 when it had, or never owed it."""
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

    def owes(self, i: int, queue_id: int) -> bool:
        """Tell whether one of its queues still owes a message."""
        if i >= self.count:
            return False
        owed = get32(self.heads, 8 * i + 4)
        if not owed & C_SEVERAL:
            return owed > 0
        assert self.masks is not None
        bit = self.bits[get32(self.masks, 12 * i)].get(queue_id, -1)
        if bit >= MASK_BITS:
            return queue_id not in (self.partial or {}).get(i, ())
        return bit >= 0 and not get64(self.masks, 12 * i + 4) >> bit & 1

    def owing(self, i: int, ids: bytes) -> bytes:
        """Return those of a message's queues that still owe it."""
        if not get32(self.heads, 8 * i + 4) & C_SEVERAL:
            return ids
        assert self.masks is not None
        mask = get64(self.masks, 12 * i + 4)
        settled = (self.partial or {}).get(i, ())
        left = []
        for bit in range(len(ids) >> 2):
            id = ids[4 * bit : 4 * bit + 4]
            gone = mask >> bit & 1 if bit < MASK_BITS else int.from_bytes(id, "big") in settled
            if not gone:
                left.append(id)
        return b"".join(left)


class Header(NamedTuple):
    """What the first octets of a segment say."""

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
    """Return the first octets of a segment."""
    b = bytearray(HEADER)
    b[:8] = MAGIC
    put32(b, 8, VERSION)
    put32(b, 12, number)
    put64(b, 16, secret)
    put64(b, 24, first_seq)
    put64(b, 32, oldest)
    put64(b, 40, begun_ms)
    put64(b, 48, previous)
    put64(b, 56, residue(0, b, 0, 56))
    return bytes(b)


def read_header(b: bytes | bytearray) -> Header | None:
    """Return what a segment's first octets say; None when they are damaged."""
    if len(b) < HEADER or b[:8] != MAGIC:
        return None
    if int.from_bytes(b[56:64], "big") != residue(0, bytes(b[:56]), 0, 56):
        return None
    return Header(*struct.unpack_from(">IIQQQQQ", b, 8))


def file_name(number: int) -> str:
    """Return the name of a segment's file."""
    return f"{number:010d}.segment"


def numbered(names: list[str]) -> list[int]:
    """Return the numbers of the segments among file names, in order."""
    ends = [name.partition(".") for name in names]
    return sorted(int(n) for n, _, kind in ends if kind == "segment" and n.isdigit())
