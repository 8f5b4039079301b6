# SPDX-License-Identifier: Apache-2.0
"""Records of a stream in columns, thousands at a time and without an object for each record.

A `Block` stores records in buffers with the layout of Arrow's binary arrays: the bytes of all rows
of a column, and the end of each row as a 32-bit number in the machine's byte order, with a 0 before
the first. A `RangeCollector` receives the deliveries of a channel while a range of a stream is
read. It fills blocks, and keeps a list of the full ones.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.protocol.v0_x.channel import DeliveryCollector
    from headrace.wire.memory import copy, get32, get64, store32, store64
    from headrace.wire.table import check_utf8

BLOCK_RECORDS_MAX = 10_000
BLOCK_BYTES_MAX = 16 << 20  # Bytes of bodies after which a block is full.
INITIAL_CAPACITY = 4096  # Bytes of an empty column.

_BLOCK_BYTES_MAX = BLOCK_BYTES_MAX  # Declared as a C integer; the public name is a Python object.
_OFFSET_KEY = b"\x0fx-stream-offsetl"
_OFFSET_KEY_LEN = 17


class Octets:
    """A column of byte strings of any length."""

    def __init__(self, rows: int) -> None:
        self.data = bytearray(INITIAL_CAPACITY)
        self.used = 0
        self.ends = bytearray(4 * (rows + 1))
        self.capacity = INITIAL_CAPACITY

    def grow(self, size: int) -> None:
        """Extend the capacity for `size` more bytes."""
        while self.used + size > self.capacity:
            self.capacity *= 2
        self.data.extend(bytes(self.capacity - len(self.data)))

    def add(self, row: int, d: bytes | bytearray, start: int, end: int) -> int:
        """Set the next row, number `row`, to ``d[start:end]``."""
        if self.used + end - start > self.capacity:
            self.grow(end - start)
        copy(self.data, self.used, d, start, end)
        self.used += end - start
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
        """Return True if the block has `records_max` records or BLOCK_BYTES_MAX bytes of bodies."""
        return self.count >= self.records_max or self.bodies.used >= _BLOCK_BYTES_MAX

    def first(self) -> int:
        """The offset of the first record; there must be one."""
        return memoryview(self.offsets).cast("q")[0]

    def last(self) -> int:
        """The offset of the last record; there must be one."""
        return memoryview(self.offsets).cast("q")[self.count - 1]


class RangeCollector(DeliveryCollector):
    """Collects the records of [first, last) of one stream in blocks."""

    def __init__(self, first: int, last: int, records_max: int = BLOCK_RECORDS_MAX) -> None:
        self.first = first
        self.last = last
        self.records_max = records_max
        self.block = Block(records_max)
        self.ready: list[Block] = []
        self.tag = 0  # The delivery tag of the newest delivery.
        self.is_complete = first >= last  # True if all records of the range have arrived.
        self.has_new = False  # Set by each delivery; the reader resets it.

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
        # The consumer tag before it is not compared: a reader is alone on its channel.
        tag_position = args + 1 + d[args]
        exchange = tag_position + 10
        if exchange >= args_end:
            return 0
        routing_key = exchange + 1 + d[tag_position + 9]
        if routing_key > args_end or routing_key + d[routing_key - 1] != args_end:
            return 0
        offset = offset_in(d, header, header_end)
        if offset < 0:
            return 0
        self.has_new = True
        self.tag = get64(d, tag_position)
        if offset < self.first or self.is_complete:
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
        redelivered[row] = d[tag_position + 8] & 1
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
        self,
        bodies: Octets,
        row: int,
        d: bytes | bytearray,
        position: int,
        end: int,
        body_size: int,
    ) -> int:
        """Join the body frames in ``d[position:end]``."""
        if position + 8 + body_size == end:  # One frame, the usual case.
            return bodies.add(row, d, position + 7, end - 1)
        store32(bodies.ends, 4 * row + 4, bodies.used)
        while position < end:
            size = get32(d, position + 3)
            bodies.add(row, d, position + 7, position + 7 + size)
            position += 8 + size
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
        """Add a record from a message that the fast path `put` did not accept."""
        self.has_new = True
        self.tag = tag
        if offset < self.first or self.is_complete:
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
        self.is_complete = True


def offset_in(d: bytes | bytearray, start: int, end: int) -> int:
    """Return the offset in the payload ``d[start:end]`` of a delivery's header, or -1.

    The broker always adds the header x-stream-offset. If its name occurs twice, the other may be in
    a value of the program, and the result is -1.
    """
    key_position = -1
    position = end - 8 - _OFFSET_KEY_LEN
    while position >= start:
        if d[position] == 15 and d[position + 1] == 120 and matches_key(d, position):
            if key_position >= 0:
                return -1
            key_position = position
        position -= 1
    if key_position < 0 or d[key_position + _OFFSET_KEY_LEN] & 0x80:
        return -1
    return get64(d, key_position + _OFFSET_KEY_LEN)


def matches_key(d: bytes | bytearray, position: int) -> bool:
    """Return True if ``d`` has the name and type of the header x-stream-offset at a position."""
    key = _OFFSET_KEY
    for i in range(_OFFSET_KEY_LEN):  # noqa: SIM110 - Compiled it is a loop in C.
        if d[position + i] != key[i]:
            return False
    return True
