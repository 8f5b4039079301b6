# SPDX-License-Identifier: Apache-2.0
"""Records between fixed offsets, which can be read any number of times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from headrace.columns.broker_streams import BrokerStreams
from headrace.columns.read.read_range import read_range
from headrace.columns.runtime.connections import reserve_pool
from headrace.columns.schema.columns import QueryColumns

if TYPE_CHECKING:
    from headrace.columns.options.options import ReadOptions
    from headrace.columns.schema.offsets import Range

BATCH_ROWS: Final = 10_000  # Rows of a batch by default; 16 MiB of bodies end it earlier.
BATCH_ROWS_MAX: Final = 1_000_000


class Records:
    """The records of streams, or the messages of a queue, as record batches of Arrow.

    Consumers of Arrow streams read the records by `__arrow_c_stream__`. Each call opens a
    connection and reads from the first record. A stream returns the same rows until retention
    deletes them. A queue returns the messages that are still ready. Memory is bounded: a batch has
    up to `batch_rows` rows or 16 MiB of bodies, and the client receives up to 16 MiB ahead.
    """

    def __init__(
        self,
        options: ReadOptions,
        query_columns: QueryColumns,
        ranges: tuple[Range, ...],
        batch_rows: int = BATCH_ROWS,
    ) -> None:
        """Create records of some ranges; programs call `stream` or `queue` instead."""
        self._options = options
        self._columns = query_columns
        self._ranges = ranges
        self._batch_rows = batch_rows
        rescued = "" if options.decoding is None else options.decoding.rescued
        self._schema = query_columns.arrow_schema(rescued)

    def __repr__(self) -> str:
        names = ", ".join(
            f"{stream_range.stream!r} {stream_range.first} to {stream_range.last}"
            for stream_range in self._ranges
        )
        return f"<Records of {names or 'nothing'}>"

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the selected columns."""
        return self._schema

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges to read, each with its stream, its first offset and its end offset."""
        return self._ranges

    def select(self, *columns: str) -> Records:
        """Return the same records with only these columns, in this order.

        Other columns are not computed.

        Raises:
            KeyError: a column does not exist, or none is given.
        """
        for name in columns:
            if name not in self._columns.names:
                raise KeyError(
                    f"no column {name!r}; the columns are {', '.join(self._columns.names)}"
                )
        if not columns:
            raise KeyError("at least one column is needed")
        query_columns = QueryColumns(columns, self._columns.value if "value" in columns else None)
        options = self._options
        if options.decoding is not None and not _needs_decoding(columns, options.decoding.rescued):
            # In other modes a malformed body drops its row, so bodies must be decoded anyway.
            if options.decoding.mode == "PERMISSIVE":
                options = replace(options, decoding=None)
            else:
                query_columns = QueryColumns(columns, self._columns.value)
        return Records(options, query_columns, self._ranges, self._batch_rows)

    def between(self, first: int, last: int) -> Records:
        """Return the records with offsets of at least `first` and less than `last`."""
        ranges = tuple(
            replace(
                stream_range,
                first=max(first, stream_range.first),
                last=min(last, stream_range.last),
            )
            for stream_range in self._ranges
            if max(first, stream_range.first) < min(last, stream_range.last)
        )
        return Records(self._options, self._columns, ranges, self._batch_rows)

    def during(self, since: datetime | None, until: datetime | None) -> Records:
        """Return the records of streams that arrived from `since` to before `until`.

        None means no bound. The broker looks up the offsets of the times.
        """
        ranges = self._ranges
        if ranges and (since is not None or until is not None):
            streams = BrokerStreams(self._options, plain=True)
            ranges = tuple(
                replace(
                    stream_range,
                    first=stream_range.first
                    if since is None
                    else streams.offset_at(stream_range.stream, since),
                    last=stream_range.last
                    if until is None
                    else streams.offset_at(stream_range.stream, until),
                )
                for stream_range in ranges
            )
        limited_ranges = [
            replace(new, first=max(new.first, old.first), last=min(new.last, old.last))
            for new, old in zip(ranges, self._ranges, strict=True)
        ]
        nonempty_ranges = tuple(
            stream_range
            for stream_range in limited_ranges
            if stream_range.first < stream_range.last
        )
        return Records(self._options, self._columns, nonempty_ranges, self._batch_rows)

    @property
    def is_queue(self) -> bool:
        """True if the records are messages of a queue."""
        return bool(self._options.queue)

    def reader(self) -> pa.RecordBatchReader:
        """Return a new reader, which begins with the first record."""
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Return a new iterator over the batches of all records."""
        return self._batches()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a new Arrow stream, which begins with the first record."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a capsule of Arrow's C interface."""
        return self._schema.__arrow_c_schema__()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Read the ranges one after the other, over connections of this reader."""
        if not self._ranges:
            return
        with reserve_pool(self._options.uri) as pool:
            for stream_range in self._ranges:
                batches = read_range(
                    self._options,
                    self._columns,
                    stream_range,
                    browse=bool(self._options.queue),
                    pool=pool,
                    batch_records_max=self._batch_rows,
                )
                yield from batches


def _needs_decoding(columns: tuple[str, ...], rescued: str) -> bool:
    """Return True if one of the columns results from decoding bodies."""
    return bool({"value", "_corrupt_record", "_corrupt_reason", rescued} & set(columns))
