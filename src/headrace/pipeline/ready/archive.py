# SPDX-License-Identifier: Apache-2.0
"""Reading of an archive's messages in the order of their publication, without Spark.

A lake is a directory of Parquet files, or a Delta table, with the columns of an archive. The
messages of a stream are read by ascending offset, each offset once. Several streams are merged by
time of arrival.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.sinks.staged import partition_values
from headrace.untyped import Cell

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_READ: Final = 1000  # Rows in one read from a file, at most.
REQUIRED_COLUMNS: Final = ("body", "exchange", "routing_key", "stream", "offset", "timestamp")
READ_COLUMNS: Final = (*REQUIRED_COLUMNS, "properties", "headers", "content_header")

Row = dict[str, Cell]


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter of messages by stream and by time of arrival."""

    streams: frozenset[str] = frozenset()  # Empty for all streams.
    since: datetime | None = None  # Inclusive; None for no bound.
    until: datetime | None = None  # Exclusive; None for no bound.

    def matches(self, stream: str, moment: datetime | None) -> bool:
        """Return True if a message matches.

        A message without a time matches only a filter without time bounds.
        """
        if self.streams and stream not in self.streams:
            return False
        if moment is None:
            return self.since is None and self.until is None
        after = self.since is None or moment >= self.since
        return after and (self.until is None or moment < self.until)

    def may_match_folder(self, folder: str) -> bool:
        """Return True if a partition directory `date=…` may have matching messages."""
        value = partition_values(folder).get("date")
        if value is None:
            return True
        day = date.fromisoformat(value)
        if self.since is not None and day < self.since.date():
            return False
        return self.until is None or day <= self.until.date()


@dataclass(frozen=True, slots=True)
class FileRange:
    """The offsets of one stream in one file, from the first to the last (inclusive)."""

    path: Path
    first_offset: int
    last_offset: int
    is_sorted: bool


def find_ranges(lake: Path, message_filter: MessageFilter) -> dict[str, list[FileRange]]:
    """Return the ranges of each stream in the files of a lake.

    Raises:
        PipelineError: the directory is not an archive.
    """
    ranges_by_stream: dict[str, list[FileRange]] = {}
    for path in _find_files(lake, message_filter):
        for stream, file_range in _read_file_ranges(path, message_filter):
            ranges_by_stream.setdefault(stream, []).append(file_range)
    return ranges_by_stream


def read_messages(
    lake: Path, message_filter: MessageFilter, after: dict[str, int] | None = None
) -> Iterator[Row]:
    """Yield the matching messages in order; `after` has the first offset to read, by stream."""
    ranges_by_stream = find_ranges(lake, message_filter)
    first_offsets = after or {}
    streams = [
        _read_stream(stream, file_ranges, message_filter, first_offsets.get(stream, 0))
        for stream, file_ranges in ranges_by_stream.items()
    ]
    return heapq.merge(*streams, key=_arrival_s)


def _arrival_s(row: Row) -> float:
    moment = row["timestamp"]
    return 0.0 if moment is None else float(moment.timestamp())


def _find_files(lake: Path, message_filter: MessageFilter) -> Iterator[Path]:
    """Yield the files of a lake that may have matching messages."""
    if not lake.is_dir():
        raise PipelineError(f"{lake} is not a directory")
    if (lake / "_delta_log").is_dir():
        from headrace.pipeline.sinks.delta import current_files, open_table

        table = open_table(str(lake))
        assert table is not None
        paths = [Path(uri) for uri in current_files(table)[1]]
    else:
        paths = [
            path
            for path in lake.rglob("*.parquet")
            if not any(part.startswith(("_", ".")) for part in path.relative_to(lake).parts)
        ]
    if not paths:
        raise PipelineError(f"{lake} has no Parquet files and is not a Delta table")
    for path in sorted(paths):
        folder = path.relative_to(lake).parent.as_posix()
        if message_filter.may_match_folder("" if folder == "." else folder):
            yield path


def _read_file_ranges(path: Path, message_filter: MessageFilter) -> Iterator[tuple[str, FileRange]]:
    """Yield each stream of a file with its range, from the columns `stream` and `offset`."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    missing = set(REQUIRED_COLUMNS) - set(pq.read_schema(path).names)
    if missing:
        raise PipelineError(
            f"{path} is not an archive of messages: it has no column {', '.join(sorted(missing))}"
        )
    table = pq.ParquetFile(path).read(columns=["stream", "offset"])
    for stream in pc.unique(table.column("stream")).to_pylist():
        if message_filter.streams and stream not in message_filter.streams:
            continue
        offsets = table.filter(pc.equal(table.column("stream"), stream)).column("offset")
        numbers = offsets.combine_chunks()
        is_sorted = len(numbers) < 2 or pc.all(pc.less(numbers[:-1], numbers[1:])).as_py()
        bounds = pc.min_max(numbers)
        yield stream, FileRange(path, bounds["min"].as_py(), bounds["max"].as_py(), bool(is_sorted))


def _read_stream(
    stream: str, file_ranges: list[FileRange], message_filter: MessageFilter, first_offset: int
) -> Iterator[Row]:
    """Yield the messages of one stream, each offset once.

    A file is opened only when its first offset is reached, so few files are open at a time.
    """
    heap: list[tuple[int, int, Row | None]] = []
    rows: list[Iterator[Row]] = []
    for index, file_range in enumerate(file_ranges):
        rows.append(_read_range(file_range, stream, message_filter))
        if file_range.last_offset >= first_offset:
            heapq.heappush(heap, (file_range.first_offset, index, None))
    last_offset = first_offset - 1
    while heap:
        offset, index, row = heapq.heappop(heap)
        if row is not None and offset > last_offset:
            last_offset = offset
            yield row
        next_row = next(rows[index], None)
        if next_row is not None:
            heapq.heappush(heap, (next_row["offset"], index, next_row))


def _read_range(file_range: FileRange, stream: str, message_filter: MessageFilter) -> Iterator[Row]:
    """Yield the matching messages of a stream in one file, by ascending offset."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(file_range.path) as file:
        columns = [name for name in READ_COLUMNS if name in file.schema_arrow.names]
        batches: Cell = file.iter_batches(ROWS_PER_READ, columns=columns)
        if not file_range.is_sorted:
            batches = file.read(columns=columns).sort_by("offset").to_batches(ROWS_PER_READ)
        for batch in batches:
            yield from _filter_rows(batch, stream, message_filter)


def _filter_rows(
    batch: pa.RecordBatch, stream: str, message_filter: MessageFilter
) -> Iterator[Row]:
    row: Row
    for row in batch.to_pylist():
        if row["stream"] == stream and message_filter.matches(stream, row["timestamp"]):
            yield row
