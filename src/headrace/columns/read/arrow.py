# SPDX-License-Identifier: Apache-2.0
"""Conversion of records in wire form to Arrow record convert_blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.columns.read.header_columns import HeaderColumns, NumberColumn, TextColumn
from headrace.columns.schema.columns import (
    COLUMNS,
    CONTENT_HEADER,
    HEADERS_TYPE,
    MOMENT_TYPE,
    OCTET_PROPERTIES,
    PROPERTIES,
    PROPERTIES_TYPE,
)

if TYPE_CHECKING:
    from headrace.client.stream.blocks import Block, Octets

MOMENT_MS: Final = pa.timestamp("ms", tz="UTC")
MOMENT_S: Final = pa.timestamp("s", tz="UTC")
# Columns that are computed from content headers.
DERIVED: Final = frozenset({"properties", "headers", "timestamp", "redelivered"})


class RecordError(ValueError):
    """A record of a stream has a malformed content header."""


class BlockBatch:
    """A block of records of one stream, to be converted to a record batch."""

    def __init__(self, stream: str, names: tuple[str, ...], block: Block) -> None:
        self.stream = stream
        self.names = names
        self.block = block
        self._headers: HeaderColumns | None = None
        if DERIVED & set(names):
            self._headers = HeaderColumns(block.count)
            valid_count = self._headers.add_all(block.heads, block.count)
            if valid_count < block.count:
                offset = memoryview(block.offsets).cast("q")[valid_count]
                raise RecordError(
                    f"offset {offset} of stream {stream!r} has a malformed content header"
                )

    def to_arrow(self) -> pa.RecordBatch:
        """Return a batch with the columns `names`, in order."""
        schema = pa.schema([COLUMNS.field(name) for name in self.names])
        return pa.RecordBatch.from_arrays(
            [self._column(name) for name in self.names], schema=schema
        )

    def _column(self, name: str) -> pa.Array:
        block, count = self.block, self.block.count
        if name == "body":
            return _binary_column(block.bodies, count)
        if name == CONTENT_HEADER:
            return _binary_column(block.heads, count)
        if name == "exchange":
            return _binary_column(block.exchanges, count, pa.string())
        if name == "routing_key":
            return _binary_column(block.routing_keys, count, pa.string())
        if name == "stream":
            return pa.repeat(pa.scalar(self.stream, pa.string()), count)
        if name == "offset":
            return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(block.offsets)])
        assert self._headers is not None, name
        return _derive_column(self._headers, name, count)


class ArchivedBatch:
    """Archived rows of one stream, to be converted to the same batch as the broker's records."""

    def __init__(self, stream: str, names: tuple[str, ...], rows: pa.RecordBatch) -> None:
        """Parse the content headers of `rows` if a column is derived from them.

        `rows` has the stored columns among `names`, and `content_header` for derived columns.
        """
        self.stream = stream
        self.names = names
        self.rows = rows
        self._headers: HeaderColumns | None = None
        if DERIVED & set(names):
            columns = HeaderColumns(rows.num_rows)
            for row, header in enumerate(rows.column(CONTENT_HEADER).to_pylist()):
                if header is None or not columns.add(header, 0, len(header)):
                    offset = rows.column("offset")[row].as_py()
                    raise RecordError(
                        f"offset {offset} of stream {stream!r} has a malformed content header in "
                        "the archive"
                    )
            self._headers = columns

    def to_arrow(self) -> pa.RecordBatch:
        """Return a batch with the columns `names`, in order."""
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


def _derive_column(columns: HeaderColumns, name: str, count: int) -> pa.Array:
    """Return a column of `DERIVED`."""
    if name == "timestamp":
        return _number_column(columns.arrival_ms, count, MOMENT_MS).cast(MOMENT_TYPE)
    if name == "redelivered":
        return _number_column(columns.redelivered, count, pa.int64()).is_valid()
    if name == "properties":
        return _properties_column(columns)
    assert name == "headers", name
    return _headers_column(columns)


def convert_blocks(
    stream: str, names: tuple[str, ...], blocks: Iterable[Block]
) -> Iterator[pa.RecordBatch]:
    """Yield an Arrow batch for each block."""
    for block in blocks:
        if block.count:
            yield BlockBatch(stream, names, block).to_arrow()


def _binary_column(column: Octets, count: int, kind: pa.DataType | None = None) -> pa.Array:
    buffers = [None, pa.py_buffer(column.ends), pa.py_buffer(column.view())]
    return pa.Array.from_buffers(kind or pa.binary(), count, buffers)


def _text_column(column: TextColumn, count: int) -> pa.Array:
    if not column.valid_count:
        return pa.nulls(count, pa.string())
    column.fill_to(count)
    validity = None if column.valid_count == count else pa.py_buffer(column.valid)
    data = pa.py_buffer(memoryview(column.data)[: column.data_size])
    return pa.Array.from_buffers(pa.string(), count, [validity, pa.py_buffer(column.ends), data])


def _number_column(column: NumberColumn, count: int, kind: pa.DataType) -> pa.Array:
    if not column.valid_count:
        return pa.nulls(count, kind)
    validity = None if column.valid_count == count else pa.py_buffer(column.valid)
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(column.data)])


def _properties_column(columns: HeaderColumns) -> pa.Array:
    fields = [_property_column(columns, name) for name in PROPERTIES]
    return pa.StructArray.from_arrays(fields, fields=list(PROPERTIES_TYPE))


def _property_column(columns: HeaderColumns, name: str) -> pa.Array:
    kind = PROPERTIES_TYPE.field(name).type
    column = getattr(columns, name)
    if name == "timestamp":
        seconds = _number_column(column, columns.count, pa.int64())
        if column.valid_count:  # The value -1 stands for a time beyond the year 9999.
            seconds = pc.if_else(pc.less(seconds, 0), pa.scalar(None, pa.int64()), seconds)
        return seconds.cast(MOMENT_S).cast(kind)
    if name in OCTET_PROPERTIES:
        return _number_column(column, columns.count, pa.int64()).cast(kind)
    return _text_column(column, columns.count)


def _headers_column(columns: HeaderColumns) -> pa.Array:
    ends = pa.Array.from_buffers(
        pa.int32(), columns.count + 1, [None, pa.py_buffer(columns.header_ends)]
    )
    names = _text_column(columns.header_names, columns.header_count)
    values = _text_column(columns.header_values, columns.header_count)
    return pa.MapArray.from_arrays(ends, names, values, type=HEADERS_TYPE)
