# SPDX-License-Identifier: Apache-2.0
"""Many publishes of AMQP 0-8, 0-9 or 0-9-1, encoded at once into the frames of one channel.

The parts of publishes are columns (:class:`Octets`): a value for each row, or one for all rows. A
column may be the buffers of an Arrow array of type binary or string, which are read in place: no
object is made for a row. The frames of one publish are::

    method   class 60, method 40, ticket, exchange, routing key, flags
    header   class 60, weight 0, size of the body, properties
    body     as many frames as the frame size requires; none when the body is empty
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

import cython

from headrace.client.message import Message, encode_header

if not cython.compiled:
    from headrace.spec.ids import BASIC_PUBLISH
    from headrace.wire.memory import copy, native, put16, put32, put64, start
    from headrace.wire.property_bits import BASIC_HEADER

if TYPE_CHECKING:
    from typing import Protocol

    from _typeshed import ReadableBuffer

    class ArrowColumn(Protocol):
        """The members used of a `pyarrow.Array` of type (large) binary or string."""

        null_count: int
        offset: int
        type: object

        def __len__(self) -> int: ...
        def buffers(self) -> list[ReadableBuffer | None]: ...


SHORT_MAX = 255  # Octets of an exchange's name and of a routing key.
FRAME_ROOM = 8  # Octets of a frame beside its payload.
MANDATORY = 1  # A message that no queue gets is refused.
OUTPUT = 1 << 18  # Octets that one call encodes, unless a single publish has more.


class RowError(ValueError):
    """A row that cannot be published; ``row`` says which."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row}: {reason}")
        self.row = row
        self.reason = reason


class Octets:
    """A column of octet strings."""

    def __init__(
        self,
        data: ReadableBuffer,
        offsets: ReadableBuffer | None = None,
        *,
        width: int = 8,
        first: int = 0,
        rows: int = -1,
    ) -> None:
        """Without ``offsets``, ``data`` is the value of every row.

        Else row i is ``data`` from the number ``first + i`` of ``offsets`` up to the next one;
        these are signed, of ``width`` (4 or 8) octets each in the machine's order, as Arrow has
        them. Both may be anything with a buffer; it must not change while the column is used.

        Raises:
            ValueError: the width is neither 4 nor 8, or ``offsets`` are too short, or they are
                not in order, or go beyond ``data``.
        """
        self.data = memoryview(data).cast("B")
        self.size = len(self.data)
        self.width = width
        self.first = first
        self.rows = rows
        if offsets is None:
            self.offsets = memoryview(b"")
            self.one = True
            return
        self.one = False
        self.offsets = memoryview(offsets).cast("B")
        if width not in (4, 8):
            raise ValueError(f"offsets have 4 or 8 octets each, not {width}")
        available = len(self.offsets) // width - 1 - first
        if rows < 0:
            self.rows = max(available, 0)
        if first < 0 or self.rows > max(available, 0):
            raise ValueError(f"a column of {self.rows} rows has offsets for {available}")
        self.check()

    @classmethod
    def of(cls, values: Iterable[bytes]) -> Octets:
        """Return the column of some octet strings."""
        values = list(values)
        ends = array("q", accumulate(map(len, values), initial=0))
        return cls(b"".join(values), ends)

    @classmethod
    def arrow(cls, column: ArrowColumn) -> Octets:
        """Return the column of an Arrow array without nulls, of type (large) binary or string.

        Raises:
            ValueError: it has nulls.
        """
        if column.null_count:
            raise ValueError("a column with nulls has no octets for every row")
        _, offsets, data = column.buffers()
        width = 8 if str(column.type).startswith("large_") else 4
        if not len(column):
            return cls(b"", bytes(width), width=width)
        return cls(
            data if data is not None else b"",
            offsets,
            width=width,
            first=column.offset,
            rows=len(column),
        )

    def check(self) -> None:
        """Make sure that every row lies within the data."""
        offsets = start(self.offsets)
        i = self.first
        stop = i + self.rows
        before = native(offsets, i, self.width) if stop >= i and len(self.offsets) else 0
        if before < 0:
            raise ValueError("an offset of a column is negative")
        while i < stop:
            i += 1
            end = native(offsets, i, self.width)
            if end < before:
                raise ValueError(f"offset {i} of a column is less than the one before")
            before = end
        if before > self.size:
            raise ValueError("the offsets of a column go beyond its data")


def properties_of(message: Message) -> bytes:
    """Return the encoded properties of a message, which follow the body size in a header.

    Raises:
        ValueError: one of them cannot be sent.
    """
    return encode_header(message)[12:]


def encode_publishes(
    number: int,
    frame_max: int,
    exchange: Octets,
    routing_key: Octets,
    properties: Octets,
    body: Octets,
    first: int,
    stop: int,
    flags: int = MANDATORY,
    octets_max: int = OUTPUT,
) -> tuple[bytearray, int]:
    """Return the frames of publishes on channel ``number``, and the next row.

    Rows are encoded from ``first`` on, up to ``stop`` exclusive or until the frames have
    ``octets_max`` octets; at least one row is. ``properties`` are as :func:`properties_of` makes
    them. No frame is larger than ``frame_max``.

    Raises:
        RowError: an exchange or a routing key has more than ``SHORT_MAX`` octets, or the
            properties of a row do not fit into a frame.
        ValueError: a column has fewer rows than ``stop``.
    """
    for column in (exchange, routing_key, properties, body):
        if not column.one and column.rows < stop:
            raise ValueError(f"a column has {column.rows} rows, fewer than {stop}")
    limit = frame_max - FRAME_ROOM
    following, total = measure(
        limit, exchange, routing_key, properties, body, first, stop, octets_max
    )
    out = bytearray(total)
    fill(out, number, limit, exchange, routing_key, properties, body, first, following, flags)
    return out, following


def measure(
    limit: int,
    exchange: Octets,
    routing_key: Octets,
    properties: Octets,
    body: Octets,
    first: int,
    stop: int,
    octets_max: int,
) -> tuple[int, int]:
    """Return the row before which the frames have enough octets, and how many these are."""
    total = 0
    row = first
    exchange_len = exchange.size
    key_len = routing_key.size
    properties_len = properties.size
    body_len = body.size
    while row < stop and total < octets_max:
        if not exchange.one:
            exchange_len = length(exchange, row)
        if not routing_key.one:
            key_len = length(routing_key, row)
        if not properties.one:
            properties_len = length(properties, row)
        if not body.one:
            body_len = length(body, row)
        if exchange_len > SHORT_MAX:
            raise RowError(row, f"the exchange's name has more than {SHORT_MAX} octets")
        if key_len > SHORT_MAX:
            raise RowError(row, f"the routing key has more than {SHORT_MAX} octets")
        if properties_len < 2 or properties_len + 12 > limit:
            raise RowError(row, "the properties do not fit into a frame")
        total += 37 + exchange_len + key_len + properties_len + body_len
        total += (body_len + limit - 1) // limit * 8
        row += 1
    return row, total


def length(column: Octets, row: int) -> int:
    """Return how many octets a row of a column with offsets has."""
    offsets = start(column.offsets)
    i = column.first + row
    return native(offsets, i + 1, column.width) - native(offsets, i, column.width)


def place(column: Octets, row: int) -> int:
    """Return where in its column's data a row begins."""
    if column.one:
        return 0
    return native(start(column.offsets), column.first + row, column.width)


def fill(
    out: bytearray,
    number: int,
    limit: int,
    exchange: Octets,
    routing_key: Octets,
    properties: Octets,
    body: Octets,
    first: int,
    stop: int,
    flags: int,
) -> None:
    """Write the frames of rows that :func:`measure` has looked at; ``out`` is as large as they."""
    # One function, because each step moves the write position, which is a C local.
    b = out
    at = 0
    row = first
    exchanges = start(exchange.data)
    keys = start(routing_key.data)
    headers = start(properties.data)
    bodies = start(body.data)
    exchange_len = exchange.size
    key_len = routing_key.size
    properties_len = properties.size
    body_len = body.size
    while row < stop:
        if not exchange.one:
            exchange_len = length(exchange, row)
        if not routing_key.one:
            key_len = length(routing_key, row)
        if not properties.one:
            properties_len = length(properties, row)
        if not body.one:
            body_len = length(body, row)
        b[at] = 1
        put16(b, at + 1, number)
        put32(b, at + 3, 9 + exchange_len + key_len)
        put32(b, at + 7, BASIC_PUBLISH)
        put16(b, at + 11, 0)
        at += 13
        b[at] = exchange_len
        lo = place(exchange, row)
        copy(b, at + 1, exchanges, lo, lo + exchange_len)
        at += 1 + exchange_len
        b[at] = key_len
        lo = place(routing_key, row)
        copy(b, at + 1, keys, lo, lo + key_len)
        at += 1 + key_len
        b[at] = flags
        b[at + 1] = 0xCE
        b[at + 2] = 2
        put16(b, at + 3, number)
        put32(b, at + 5, 12 + properties_len)
        put32(b, at + 9, BASIC_HEADER)
        put64(b, at + 13, body_len)
        at += 21
        lo = place(properties, row)
        copy(b, at, headers, lo, lo + properties_len)
        at += properties_len
        b[at] = 0xCE
        at += 1
        lo = place(body, row)
        hi = lo + body_len
        while lo < hi:
            end = min(hi, lo + limit)
            b[at] = 3
            put16(b, at + 1, number)
            put32(b, at + 3, end - lo)
            copy(b, at + 7, bodies, lo, end)
            at += 7 + end - lo
            b[at] = 0xCE
            at += 1
            lo = end
        row += 1
