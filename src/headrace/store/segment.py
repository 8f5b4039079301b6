# SPDX-License-Identifier: Apache-2.0
"""One file of a journal, and what memory knows of its records.

A segment starts with a header of 64 octets::

    0            8         12       16       24          32       40         48      56      64
    +------------+---------+--------+--------+-----------+--------+----------+-------+-------+
    | "HEADRACE" | version | number | secret | first_seq | oldest | begun_ms | zeros | check |
    +------------+---------+--------+--------+-----------+--------+----------+-------+-------+

``secret`` is the journal's, and gives the segments their seeds; every seq below ``first_seq`` was
given away before; segments before ``oldest`` were of no use any more when this one was begun;
``begun_ms`` is when the first message of a stream's segment arrived, otherwise 0. Then come records
(:mod:`headrace.store.record`) up to a SEALED one or, in the last segment, up to the first place
that holds none.

Memory keeps 8 octets for each message: where it starts and how many queues still owe it. A position
is ``number << 32 | index``. When compaction has copied what was left of a segment, the segment
stays known under its number with ``forward``, which says where each message went.
"""

import struct
from typing import NamedTuple

import cython

if not cython.compiled:
    from headrace.store.record import residue
    from headrace.wire.memory import get32, put32, put64

MAGIC = b"HEADRACE"
VERSION = 1
HEADER = 64  # Octets.
SEAL_ROOM = 16  # Octets that are always left for a SEALED record.
SEVERAL = 0x80000000  # More than one queue owed the message at first.

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
        self.partial: dict[int, set[int]] | None = None  # By index, who settled; only if several.
        self.forward: bytearray | None = None  # By index, the position of the copy (8).
        self.moved = False  # All that was left has been copied.
        self.retired = False  # Its file is not part of the log any more.
        self.handle = -1
        self.sealed = False
        self.reserved: dict[int, int] | None = None  # RESERVED records in it: queue id to seq.
        self.marks: list[bytes] | None = None  # What its MARKED records say.

    def __repr__(self) -> str:
        return f"<Segment {self.number} live={self.live}/{self.count} end={self.end}>"

    def note(self, offset: int, owed: int) -> int:
        """Take a message into the index; return its place there."""
        i = self.count
        if i == self.room:
            self.room = 512 if i == 0 else i * 2
            self.heads.extend(bytes(8 * (self.room - i)))
        put32(self.heads, 8 * i, offset)
        put32(self.heads, 8 * i + 4, owed if owed < 2 else owed | C_SEVERAL)
        self.count = i + 1
        if owed:
            self.live += 1
        return i

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
            if self.partial is None:
                self.partial = {}
            settled = self.partial.get(i)
            if settled is None:
                settled = self.partial[i] = set()
            if queue_id in settled:
                return -1
            owed -= 1
            if owed != C_SEVERAL:
                settled.add(queue_id)
                put32(self.heads, 8 * i + 4, owed)
                return 0
            del self.partial[i]
        put32(self.heads, 8 * i + 4, 0)
        self.live -= 1
        return 1


class Header(NamedTuple):
    """What the first octets of a segment say."""

    version: int
    number: int
    secret: int
    first_seq: int
    oldest: int
    begun_ms: int


def header(number: int, secret: int, first_seq: int, oldest: int, begun_ms: int = 0) -> bytes:
    """Return the first octets of a segment."""
    b = bytearray(HEADER)
    b[:8] = MAGIC
    put32(b, 8, VERSION)
    put32(b, 12, number)
    put64(b, 16, secret)
    put64(b, 24, first_seq)
    put64(b, 32, oldest)
    put64(b, 40, begun_ms)
    put64(b, 56, residue(0, b, 0, 56))
    return bytes(b)


def read_header(b: bytes | bytearray) -> Header | None:
    """Return what a segment's first octets say; None when they are damaged."""
    if len(b) < HEADER or b[:8] != MAGIC:
        return None
    if int.from_bytes(b[56:64], "big") != residue(0, bytes(b[:56]), 0, 56):
        return None
    return Header(*struct.unpack_from(">IIQQQQ", b, 8))


def file_name(number: int) -> str:
    """Return the name of a segment's file."""
    return f"{number:010d}.segment"


def numbered(names: list[str]) -> list[int]:
    """Return the numbers of the segments among file names, in order."""
    ends = [name.partition(".") for name in names]
    return sorted(int(n) for n, _, kind in ends if kind == "segment" and n.isdigit())
