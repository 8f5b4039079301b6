# SPDX-License-Identifier: Apache-2.0
"""Records of a stream, as they were on the wire, into Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from headrace.spark.columns import Columns
from headrace.spark.schema import (
    COLUMNS,
    CONTENT_HEADER,
    HEADERS,
    MOMENT,
    OCTETS,
    PROPERTIES,
    PROPERTIES_TYPE,
)

BATCH_RECORDS_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 16 << 20  # Bodies; a larger one is a batch of its own.
MOMENT_MS: Final = pa.timestamp("ms", tz="UTC")
SECONDS_MAX: Final = 253_402_300_799  # The last second of the year 9999: the calendar ends there.

# Offset, payload of the header frame, body, exchange, routing key.
Record = tuple[int, bytes, bytes, str, str]


class RecordError(ValueError):
    """A record of a stream cannot be understood."""


class Batch:
    """Records of one stream on their way into one Arrow record batch."""

    def __init__(self, stream: str, names: tuple[str, ...]) -> None:
        self.stream = stream
        self.names = names
        self.size = 0
        self._headers = Columns() if {"properties", "headers", "timestamp"} & set(names) else None
        self._raw_headers: list[bytes] | None = [] if CONTENT_HEADER in names else None
        self._bodies: list[bytes] = []
        self._exchanges: list[str] = []
        self._routing_keys: list[str] = []
        self._offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, record: Record) -> None:
        """Take one more record."""
        offset, header, body, exchange, routing_key = record
        if self._headers is not None and not self._headers.add(header):
            raise RecordError(
                f"offset {offset} of stream {self.stream!r} has a malformed content header"
            )
        if self._raw_headers is not None:
            self._raw_headers.append(header)
        self._offsets.append(offset)
        self._bodies.append(body)
        self._exchanges.append(exchange)
        self._routing_keys.append(routing_key)
        self.size += len(body)

    def to_arrow(self) -> pa.RecordBatch:
        """The columns that were asked for."""
        schema = pa.schema([COLUMNS.field(name) for name in self.names])
        return pa.RecordBatch.from_arrays(
            [self._column(name) for name in self.names], schema=schema
        )

    def _column(self, name: str) -> pa.Array:
        count = len(self)
        if name == "body":
            return pa.array(self._bodies, pa.binary())
        if name == CONTENT_HEADER:
            return pa.array(self._raw_headers, pa.binary())
        if name == "exchange":
            return pa.array(self._exchanges, pa.string())
        if name == "routing_key":
            return pa.array(self._routing_keys, pa.string())
        if name == "redelivered":  # Reading a stream settles nothing, so nothing is redelivered.
            return pa.repeat(pa.scalar(False), count)
        if name == "stream":
            return pa.repeat(pa.scalar(self.stream, pa.string()), count)
        if name == "offset":
            return pa.array(self._offsets, pa.int64())
        assert self._headers is not None, name
        if name == "timestamp":
            arrival_ms = _filled(self._headers.arrival_ms, count)
            return pa.array(arrival_ms, pa.int64()).cast(MOMENT_MS).cast(MOMENT)
        if name == "properties":
            return _properties(self._headers)
        assert name == "headers", name
        return _headers(self._headers)


def batches(
    stream: str, names: tuple[str, ...], records: Iterable[Iterable[Record]]
) -> Iterator[pa.RecordBatch]:
    """Arrow batches of a bounded size from batches of whatever size they were read in."""
    batch = Batch(stream, names)
    for some in records:
        for record in some:
            batch.add(record)
            if len(batch) == BATCH_RECORDS_MAX or batch.size >= BATCH_BYTES_MAX:
                yield batch.to_arrow()
                batch = Batch(stream, names)
    if len(batch):
        yield batch.to_arrow()


def _properties(columns: Columns) -> pa.Array:
    fields = [_property(columns, name) for name in PROPERTIES]
    return pa.StructArray.from_arrays(fields, fields=list(PROPERTIES_TYPE))


def _property(columns: Columns, name: str) -> pa.Array:
    kind = PROPERTIES_TYPE.field(name).type
    values = getattr(columns, name)
    if not values:
        return pa.nulls(columns.count, kind)
    values = _filled(values, columns.count)
    if name == "timestamp":
        moments = [None if s is None or s > SECONDS_MAX else s * 1_000_000 for s in values]
        return pa.array(moments, pa.int64()).cast(kind)
    if name in OCTETS:
        return pa.array(values, kind)
    return pa.array(values, pa.binary()).cast(kind)  # The cast checks that it is UTF-8.


def _headers(columns: Columns) -> pa.Array:
    return pa.MapArray.from_arrays(
        pa.array(columns.header_ends, pa.int32()),
        pa.array(columns.header_names, pa.binary()).cast(pa.string()),
        pa.array(columns.header_values, pa.binary()).cast(pa.string()),
        type=HEADERS,
    )


def _filled(values: list[int | None], count: int) -> list[int | None]:
    """A column with None for the messages after the last that had the property."""
    return values + [None] * (count - len(values))
