# SPDX-License-Identifier: Apache-2.0
"""Records of a stream, gathered by the thousand without an object for each.

A `Block` keeps many records column by column, in buffers of the layout that Arrow and numpy share:
the bytes of one column one after the other, and their ends as 32-bit numbers in the machine's byte
order, with a 0 before the first. A `RangeCollector` takes the deliveries of a channel
while a range of a stream is read. It fills blocks, and keeps a list of the ready ones.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.protocol.v0_x.channel import DeliveryCollector
    from headrace.wire.memory import copy, get32, get64, store32, store64
    from headrace.wire.table import check_utf8

BLOCK_RECORDS_MAX = 10_000
BLOCK_OCTETS_MAX = 16 << 20  # Bodies; a larger one is a block of its own.
ROOM = 4096  # Octets that a column has at first.

_OCTETS_MAX = BLOCK_OCTETS_MAX  # As a number of C.
_OFFSET_KEY = b"\x0fx-stream-offsetl"
_OFFSET_KEY_LEN = 17


class Octets:
    """A column of byte strings of any length."""

    def __init__(self, rows: int) -> None:
        self.data = bytearray(ROOM)
        self.used = 0
        self.ends = bytearray(4 * (rows + 1))
        self.room = ROOM

    def grow(self, size: int) -> None:
        """Make room for `size` more octets."""
        while self.used + size > self.room:
            self.room *= 2
        self.data.extend(bytes(self.room - len(self.data)))

    def add(self, row: int, d: bytes | bytearray, lo: int, hi: int) -> int:
        """Set the next row, number `row`, to ``d[lo:hi]``."""
        if self.used + hi - lo > self.room:
            self.grow(hi - lo)
        copy(self.data, self.used, d, lo, hi)
        self.used += hi - lo
        store32(self.ends, 4 * row + 4, self.used)
        return 0

    def view(self) -> memoryview:
        """Return the bytes of all rows."""
        return memoryview(self.data)[: self.used]

    def row(self, row: int) -> bytes:
        """Return the bytes of one row."""
        ends = memoryview(self.ends).cast("i")
        return bytes(self.data[ends[row] : ends[row + 1]])


class Block:
    """Consecutive records of one stream."""

    def __init__(self, records_max: int = BLOCK_RECORDS_MAX) -> None:
        self.records_max = records_max
        self.count = 0
        self.offsets = bytearray(8 * records_max)
        self.redelivered = bytearray(records_max)  # 1 for each record that was delivered before.
        self.bodies = Octets(records_max)
        self.heads = Octets(records_max)  # Payloads of the content header frames.
        self.exchanges = Octets(records_max)
        self.routing_keys = Octets(records_max)

    def add(
        self,
        offset: int,
        header: bytes,
        body: bytes,
        exchange: bytes,
        routing_key: bytes,
        redelivered: bool,
    ) -> None:
        """Add a record."""
        row = self.count
        store64(self.offsets, 8 * row, offset)
        self.redelivered[row] = 1 if redelivered else 0
        self.bodies.add(row, body, 0, len(body))
        self.heads.add(row, header, 0, len(header))
        self.exchanges.add(row, exchange, 0, len(exchange))
        self.routing_keys.add(row, routing_key, 0, len(routing_key))
        self.count = row + 1

    def is_full(self) -> bool:
        """Return True if no more records should be added."""
        return self.count >= self.records_max or self.bodies.used >= _OCTETS_MAX

    def first(self) -> int:
        """The offset of the first record; there must be one."""
        return memoryview(self.offsets).cast("q")[0]

    def last(self) -> int:
        """The offset of the last record; there must be one."""
        return memoryview(self.offsets).cast("q")[self.count - 1]


class RangeCollector(DeliveryCollector):
    """Takes the records of [first, last) of one stream, in order."""

    def __init__(self, first: int, last: int, records_max: int = BLOCK_RECORDS_MAX) -> None:
        self.first = first
        self.last = last
        self.records_max = records_max
        self.block = Block(records_max)
        self.ready: list[Block] = []
        self.tag = 0  # The newest delivery.
        self.complete = first >= last  # Whether no further record will arrive.
        self.fresh = False  # A record was added since the last look.

    def put(
        self,
        d: bytes | bytearray,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        end: int,
        body_size: int,
    ) -> int:
        at = args + 1 + d[args]  # The consumer tag is known: a reader has a channel of its own.
        exchange = at + 10
        if exchange >= args_end:
            return 0
        routing_key = exchange + 1 + d[at + 9]
        if routing_key > args_end or routing_key + d[routing_key - 1] != args_end:
            return 0
        offset = offset_in(d, header, header_end)
        if offset < 0:
            return 0
        self.fresh = True
        self.tag = get64(d, at)
        if offset < self.first or self.complete:
            return 1
        if offset >= self.last:
            self.finish()
            return 1
        if not check_utf8(d, exchange, routing_key - 1) or not check_utf8(d, routing_key, args_end):
            return 0
        block = self.block
        row = block.count
        store64(block.offsets, 8 * row, offset)
        redelivered = block.redelivered
        redelivered[row] = d[at + 8] & 1
        block.exchanges.add(row, d, exchange, routing_key - 1)
        block.routing_keys.add(row, d, routing_key, args_end)
        block.heads.add(row, d, header, header_end)
        self.add_body(block.bodies, row, d, header_end + 1, end, body_size)
        block.count = row + 1
        if offset >= self.last - 1:
            self.finish()
        elif block.is_full():
            self.seal()
        return 1

    def add_body(
        self, bodies: Octets, row: int, d: bytes | bytearray, at: int, end: int, body_size: int
    ) -> int:
        """Join the body frames in ``d[at:end]``."""
        if at + 8 + body_size == end:  # One frame, the usual case.
            return bodies.add(row, d, at + 7, end - 1)
        store32(bodies.ends, 4 * row + 4, bodies.used)
        while at < end:
            size = get32(d, at + 3)
            bodies.add(row, d, at + 7, at + 7 + size)
            at += 8 + size
        return 0

    def add(
        self,
        offset: int,
        tag: int,
        header: bytes,
        body: bytes,
        exchange: str,
        routing_key: str,
        redelivered: bool,
    ) -> None:
        """Take a record that was received as a whole message."""
        self.fresh = True
        self.tag = tag
        if offset < self.first or self.complete:
            return
        if offset >= self.last:
            self.finish()
            return
        block = self.block
        block.add(offset, header, body, exchange.encode(), routing_key.encode(), redelivered)
        if offset >= self.last - 1:
            self.finish()
        elif block.is_full():
            self.seal()

    def seal(self) -> None:
        """Make the current block ready, unless it is empty."""
        if self.block.count:
            self.first = self.block.last() + 1
            self.ready.append(self.block)
            self.block = Block(self.records_max)

    def finish(self) -> None:
        """End the range: no more records will arrive."""
        self.seal()
        self.complete = True


def offset_in(d: bytes | bytearray, lo: int, hi: int) -> int:
    """Return the offset in the payload ``d[lo:hi]`` of a delivery's header, or -1.

    The broker always adds its header, so if the name occurs once, that is it.
    """
    key_at = -1
    at = hi - 8 - _OFFSET_KEY_LEN
    while at >= lo:
        if d[at] == 15 and d[at + 1] == 120 and same_key(d, at):
            if key_at >= 0:
                return -1
            key_at = at
        at -= 1
    if key_at < 0 or d[key_at + _OFFSET_KEY_LEN] & 0x80:
        return -1
    return get64(d, key_at + _OFFSET_KEY_LEN)


def same_key(d: bytes | bytearray, at: int) -> bool:
    """Return True if the name and type of the header x-stream-offset are there."""
    key = _OFFSET_KEY
    for i in range(_OFFSET_KEY_LEN):  # noqa: SIM110 - Compiled it is a loop in C.
        if d[at + i] != key[i]:
            return False
    return True
