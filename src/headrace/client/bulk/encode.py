# SPDX-License-Identifier: Apache-2.0
"""Many publishes of AMQP 0-8, 0-9 or 0-9-1, encoded at once into the frames of one channel.

The fields of the publishes are columns (:class:`Octets`): a value for each row, or one for all
rows. A column may be the buffers of an Arrow array of type binary or string. They are read in
place, without an object for each row. The frames of one publish are::

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


SHORTSTR_SIZE_MAX = 255  # The maximum bytes of an exchange's name and of a routing key.
FRAME_OVERHEAD = 8  # The bytes of a frame without its payload.
MANDATORY = 1  # The flag of basic.publish: the broker returns a message that it cannot route.
OUTPUT_SIZE_MAX = 1 << 18  # The maximum bytes of one call's frames, unless one publish has more.


class RowError(ValueError):
    """A row that cannot be published; ``row`` is its index, ``reason`` the cause."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row}: {reason}")
        self.row = row
        self.reason = reason


class Octets:
    """A column of byte strings."""

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

        Otherwise row i is ``data`` from the number ``first + i`` of ``offsets`` up to the next
        number. The numbers are signed, of ``width`` (4 or 8) bytes in the machine's byte order, as
        in Arrow. Both arguments are any object with a buffer, which must not change while the
        column is used.

        Raises:
            ValueError: the width is neither 4 nor 8, or ``offsets`` are too few, not in order or
                beyond the end of ``data``.
        """
        self.data = memoryview(data).cast("B")
        self.size = len(self.data)
        self.width = width
        self.first = first
        self.rows = rows
        if offsets is None:
            self.offsets = memoryview(b"")
            self.is_constant = True
            return
        self.is_constant = False
        self.offsets = memoryview(offsets).cast("B")
        if width not in (4, 8):
            raise ValueError(f"offsets have 4 or 8 bytes each, not {width}")
        available = len(self.offsets) // width - 1 - first
        if rows < 0:
            self.rows = max(available, 0)
        if first < 0 or self.rows > max(available, 0):
            raise ValueError(f"a column of {self.rows} rows has offsets for {available}")
        self.check()

    @classmethod
    def of(cls, values: Iterable[bytes]) -> Octets:
        """Return a column of these byte strings."""
        values = list(values)
        ends = array("q", accumulate(map(len, values), initial=0))
        return cls(b"".join(values), ends)

    @classmethod
    def arrow(cls, column: ArrowColumn) -> Octets:
        """Return the column of an Arrow array without nulls, of type (large) binary or string.

        Raises:
            ValueError: the column has nulls.
        """
        if column.null_count:
            raise ValueError("a column with nulls has no bytes for every row")
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
        """Check that every row lies within the data; raises ValueError."""
        offsets = start(self.offsets)
        index = self.first
        stop = index + self.rows
        previous_end = (
            native(offsets, index, self.width) if stop >= index and len(self.offsets) else 0
        )
        if previous_end < 0:
            raise ValueError("an offset of a column is negative")
        while index < stop:
            index += 1
            end = native(offsets, index, self.width)
            if end < previous_end:
                raise ValueError(f"offset {index} of a column is less than the one before")
            previous_end = end
        if previous_end > self.size:
            raise ValueError("the offsets of a column go beyond its data")


def encode_properties(message: Message) -> bytes:
    """Return the encoded properties of a message, which follow the body size in a header.

    Raises:
        ValueError: a property cannot be sent.
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
    octets_max: int = OUTPUT_SIZE_MAX,
) -> tuple[bytearray, int]:
    """Return the frames of publishes on channel ``number``, and the next row.

    Rows are encoded from ``first`` on, up to ``stop`` exclusive or until the frames have
    ``octets_max`` bytes; at least one row is. Each row of ``properties`` is a result of
    :func:`encode_properties`. No frame is larger than ``frame_max``.

    Raises:
        RowError: an exchange or a routing key has more than ``SHORTSTR_SIZE_MAX`` bytes, or the
            properties of a row do not fit into a frame.
        ValueError: a column has fewer rows than ``stop``.
    """
    for column in (exchange, routing_key, properties, body):
        if not column.is_constant and column.rows < stop:
            raise ValueError(f"a column has {column.rows} rows, fewer than {stop}")
    payload_max = frame_max - FRAME_OVERHEAD
    next_row, total_size = measure_frames(
        payload_max, exchange, routing_key, properties, body, first, stop, octets_max
    )
    frames = bytearray(total_size)
    write_frames(
        frames, number, payload_max, exchange, routing_key, properties, body, first, next_row, flags
    )
    return frames, next_row


def measure_frames(
    payload_max: int,
    exchange: Octets,
    routing_key: Octets,
    properties: Octets,
    body: Octets,
    first: int,
    stop: int,
    octets_max: int,
) -> tuple[int, int]:
    """Return the row after the last one to encode, and the size of all frames in bytes."""
    total_size = 0
    row = first
    exchange_len = exchange.size
    key_len = routing_key.size
    properties_len = properties.size
    body_len = body.size
    while row < stop and total_size < octets_max:
        if not exchange.is_constant:
            exchange_len = row_size(exchange, row)
        if not routing_key.is_constant:
            key_len = row_size(routing_key, row)
        if not properties.is_constant:
            properties_len = row_size(properties, row)
        if not body.is_constant:
            body_len = row_size(body, row)
        if exchange_len > SHORTSTR_SIZE_MAX:
            raise RowError(row, f"the exchange's name has more than {SHORTSTR_SIZE_MAX} bytes")
        if key_len > SHORTSTR_SIZE_MAX:
            raise RowError(row, f"the routing key has more than {SHORTSTR_SIZE_MAX} bytes")
        if properties_len < 2 or properties_len + 12 > payload_max:
            raise RowError(row, "the properties do not fit into a frame")
        total_size += 37 + exchange_len + key_len + properties_len + body_len
        total_size += (body_len + payload_max - 1) // payload_max * 8
        row += 1
    return row, total_size


def row_size(column: Octets, row: int) -> int:
    """Return the size of a row in bytes; the column must have offsets."""
    offsets = start(column.offsets)
    index = column.first + row
    return native(offsets, index + 1, column.width) - native(offsets, index, column.width)


def row_start(column: Octets, row: int) -> int:
    """Return the position of a row in its column's data."""
    if column.is_constant:
        return 0
    return native(start(column.offsets), column.first + row, column.width)


def write_frames(
    frames: bytearray,
    number: int,
    payload_max: int,
    exchange: Octets,
    routing_key: Octets,
    properties: Octets,
    body: Octets,
    first: int,
    stop: int,
    flags: int,
) -> None:
    """Write the frames of rows that :func:`measure_frames` has checked; they fill ``frames``."""
    # One function, because each step moves the write position, a local variable in C.
    buffer = frames
    position = 0
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
        if not exchange.is_constant:
            exchange_len = row_size(exchange, row)
        if not routing_key.is_constant:
            key_len = row_size(routing_key, row)
        if not properties.is_constant:
            properties_len = row_size(properties, row)
        if not body.is_constant:
            body_len = row_size(body, row)
        buffer[position] = 1
        put16(buffer, position + 1, number)
        put32(buffer, position + 3, 9 + exchange_len + key_len)
        put32(buffer, position + 7, BASIC_PUBLISH)
        put16(buffer, position + 11, 0)
        position += 13
        buffer[position] = exchange_len
        begin = row_start(exchange, row)
        copy(buffer, position + 1, exchanges, begin, begin + exchange_len)
        position += 1 + exchange_len
        buffer[position] = key_len
        begin = row_start(routing_key, row)
        copy(buffer, position + 1, keys, begin, begin + key_len)
        position += 1 + key_len
        buffer[position] = flags
        buffer[position + 1] = 0xCE
        buffer[position + 2] = 2
        put16(buffer, position + 3, number)
        put32(buffer, position + 5, 12 + properties_len)
        put32(buffer, position + 9, BASIC_HEADER)
        put64(buffer, position + 13, body_len)
        position += 21
        begin = row_start(properties, row)
        copy(buffer, position, headers, begin, begin + properties_len)
        position += properties_len
        buffer[position] = 0xCE
        position += 1
        begin = row_start(body, row)
        body_end = begin + body_len
        while begin < body_end:
            end = min(body_end, begin + payload_max)
            buffer[position] = 3
            put16(buffer, position + 1, number)
            put32(buffer, position + 3, end - begin)
            copy(buffer, position + 7, bodies, begin, end)
            position += 7 + end - begin
            buffer[position] = 0xCE
            position += 1
            begin = end
        row += 1
