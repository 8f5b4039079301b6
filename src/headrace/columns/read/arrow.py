# SPDX-License-Identifier: Apache-2.0
"""Records of a stream, as they were on the wire, into Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.columns.read.header_columns import Columns, Numbers, Texts
from headrace.columns.schema.columns import (
    COLUMNS,
    CONTENT_HEADER,
    HEADERS,
    MOMENT,
    OCTETS,
    PROPERTIES,
    PROPERTIES_TYPE,
)

if TYPE_CHECKING:
    from headrace.client.stream.blocks import Block, Octets

MOMENT_MS: Final = pa.timestamp("ms", tz="UTC")
MOMENT_S: Final = pa.timestamp("s", tz="UTC")
DERIVED: Final = frozenset({"properties", "headers", "timestamp", "redelivered"})


class RecordError(ValueError):
    """A record of a stream cannot be understood."""


class Batch:
    """A block of records of one stream on its way into one Arrow record batch."""

    def __init__(self, stream: str, names: tuple[str, ...], block: Block) -> None:
        self.stream = stream
        self.names = names
        self.block = block
        self._headers: Columns | None = None
        if DERIVED & set(names):
            self._headers = Columns(block.count)
            taken = self._headers.add_all(block.heads, block.count)
            if taken < block.count:
                offset = memoryview(block.offsets).cast("q")[taken]
                raise RecordError(
                    f"offset {offset} of stream {stream!r} has a malformed content header"
                )

    def to_arrow(self) -> pa.RecordBatch:
        """The columns that were asked for."""
        schema = pa.schema([COLUMNS.field(name) for name in self.names])
        return pa.RecordBatch.from_arrays(
            [self._column(name) for name in self.names], schema=schema
        )

    def _column(self, name: str) -> pa.Array:
        block, count = self.block, self.block.count
        if name == "body":
            return _octets(block.bodies, count)
        if name == CONTENT_HEADER:
            return _octets(block.heads, count)
        if name == "exchange":
            return _octets(block.exchanges, count, pa.string())
        if name == "routing_key":
            return _octets(block.routing_keys, count, pa.string())
        if name == "stream":
            return pa.repeat(pa.scalar(self.stream, pa.string()), count)
        if name == "offset":
            return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(block.offsets)])
        assert self._headers is not None, name
        return _derive_column(self._headers, name, count)


class Archived:
    """Archived records of one stream on their way into an Arrow record batch as from the broker."""

    def __init__(self, stream: str, names: tuple[str, ...], rows: pa.RecordBatch) -> None:
        """`rows` have the columns of `names` that are in messages, or the header they are of."""
        self.stream = stream
        self.names = names
        self.rows = rows
        self._headers: Columns | None = None
        if DERIVED & set(names):
            columns = Columns(rows.num_rows)
            for row, header in enumerate(rows.column(CONTENT_HEADER).to_pylist()):
                if header is None or not columns.add(header, 0, len(header)):
                    offset = rows.column("offset")[row].as_py()
                    raise RecordError(
                        f"offset {offset} of stream {stream!r} has a malformed content header in "
                        "the archive"
                    )
            self._headers = columns

    def to_arrow(self) -> pa.RecordBatch:
        """The columns that were asked for."""
        schema = pa.schema([COLUMNS.field(name) for name in self.names])
        return pa.RecordBatch.from_arrays(
            [self._column(name) for name in self.names], schema=schema
        )

    def _column(self, name: str) -> pa.Array:
        if self._headers is not None and name in DERIVED:
            return _derive_column(self._headers, name, self.rows.num_rows)
        if name == "stream":
            return pa.repeat(pa.scalar(self.stream, pa.string()), self.rows.num_rows)
        return self.rows.column(name).cast(COLUMNS.field(name).type)


def _derive_column(columns: Columns, name: str, count: int) -> pa.Array:
    """Return a column that is made of content headers."""
    if name == "timestamp":
        return _numbers(columns.arrival_ms, count, MOMENT_MS).cast(MOMENT)
    if name == "redelivered":
        return _numbers(columns.redelivered, count, pa.int64()).is_valid()
    if name == "properties":
        return _properties(columns)
    assert name == "headers", name
    return _headers(columns)


def batches(
    stream: str, names: tuple[str, ...], blocks: Iterable[Block]
) -> Iterator[pa.RecordBatch]:
    """Yield an Arrow batch for each block."""
    for block in blocks:
        if block.count:
            yield Batch(stream, names, block).to_arrow()


def _octets(column: Octets, count: int, kind: pa.DataType | None = None) -> pa.Array:
    buffers = [None, pa.py_buffer(column.ends), pa.py_buffer(column.view())]
    return pa.Array.from_buffers(kind or pa.binary(), count, buffers)


def _texts(column: Texts, count: int) -> pa.Array:
    if not column.known:
        return pa.nulls(count, pa.string())
    column.reach(count)
    valid = None if column.known == count else pa.py_buffer(column.valid)
    data = pa.py_buffer(memoryview(column.data)[: column.used])
    return pa.Array.from_buffers(pa.string(), count, [valid, pa.py_buffer(column.ends), data])


def _numbers(column: Numbers, count: int, kind: pa.DataType) -> pa.Array:
    if not column.known:
        return pa.nulls(count, kind)
    valid = None if column.known == count else pa.py_buffer(column.valid)
    return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(column.data)])


def _properties(columns: Columns) -> pa.Array:
    fields = [_property(columns, name) for name in PROPERTIES]
    return pa.StructArray.from_arrays(fields, fields=list(PROPERTIES_TYPE))


def _property(columns: Columns, name: str) -> pa.Array:
    kind = PROPERTIES_TYPE.field(name).type
    column = getattr(columns, name)
    if name == "timestamp":
        seconds = _numbers(column, columns.count, pa.int64())
        if column.known:  # -1 stands for a time outside of the calendar.
            seconds = pc.if_else(pc.less(seconds, 0), pa.scalar(None, pa.int64()), seconds)
        return seconds.cast(MOMENT_S).cast(kind)
    if name in OCTETS:
        return _numbers(column, columns.count, pa.int64()).cast(kind)
    return _texts(column, columns.count)


def _headers(columns: Columns) -> pa.Array:
    ends = pa.Array.from_buffers(
        pa.int32(), columns.count + 1, [None, pa.py_buffer(columns.header_ends)]
    )
    names = _texts(columns.header_names, columns.header_count)
    values = _texts(columns.header_values, columns.header_count)
    return pa.MapArray.from_arrays(ends, names, values, type=HEADERS)
