# SPDX-License-Identifier: Apache-2.0
"""Messages of an archive in the order in which they were published, without Spark.

A lake is a directory of Parquet files or a Delta table with the columns of an archive. Each source
stream is read by ascending offset, each offset once; several streams are merged by time of arrival.
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

ROWS: Final = 1000  # Read at a time from a file.
NEEDED: Final = ("body", "exchange", "routing_key", "stream", "offset", "timestamp")
WANTED: Final = (*NEEDED, "properties", "headers", "content_header")

Row = dict[str, Cell]


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter of the messages of a lake, by stream (empty for all) and by time of arrival."""

    streams: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None  # Exclusive.

    def has(self, stream: str, moment: datetime | None) -> bool:
        """Return True if a message matches; one without time of arrival matches no time span."""
        if self.streams and stream not in self.streams:
            return False
        if moment is None:
            return self.since is None and self.until is None
        after = self.since is None or moment >= self.since
        return after and (self.until is None or moment < self.until)

    def may_have(self, folder: str) -> bool:
        """Return True if a partition `date=…` may have chosen messages."""
        value = partition_values(folder).get("date")
        if value is None:
            return True
        day = date.fromisoformat(value)
        if self.since is not None and day < self.since.date():
            return False
        return self.until is None or day <= self.until.date()


@dataclass(frozen=True, slots=True)
class FileRange:
    """The messages of one stream in one file."""

    path: Path
    first: int
    last: int
    is_sorted: bool


def pieces(lake: Path, message_filter: MessageFilter) -> dict[str, list[FileRange]]:
    """Return the files of each stream; PipelineError if the directory is not an archive."""
    by_stream: dict[str, list[FileRange]] = {}
    for path in _files(lake, message_filter):
        for stream, piece in _pieces_of(path, message_filter):
            by_stream.setdefault(stream, []).append(piece)
    return by_stream


def messages(
    lake: Path, message_filter: MessageFilter, after: dict[str, int] | None = None
) -> Iterator[Row]:
    """Yield the matching messages in order; `after` has the first offset to read, by stream."""
    by_stream = pieces(lake, message_filter)
    begin = after or {}
    streams = [
        _stream(stream, stream_pieces, message_filter, begin.get(stream, 0))
        for stream, stream_pieces in by_stream.items()
    ]
    return heapq.merge(*streams, key=_moment)


def _moment(row: Row) -> float:
    moment = row["timestamp"]
    return 0.0 if moment is None else float(moment.timestamp())


def _files(lake: Path, message_filter: MessageFilter) -> Iterator[Path]:
    if not lake.is_dir():
        raise PipelineError(f"{lake} is not a directory")
    if (lake / "_delta_log").is_dir():
        from headrace.pipeline.sinks.delta import files_of, table_at

        table = table_at(str(lake))
        assert table is not None
        paths = [Path(uri) for uri in files_of(table)[1]]
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
        if message_filter.may_have("" if folder == "." else folder):
            yield path


def _pieces_of(path: Path, message_filter: MessageFilter) -> Iterator[tuple[str, FileRange]]:
    """Return the offsets of each stream in a file, by its columns `stream` and `offset` alone."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    missing = set(NEEDED) - set(pq.read_schema(path).names)
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
        rising = len(numbers) < 2 or pc.all(pc.less(numbers[:-1], numbers[1:])).as_py()
        ends = pc.min_max(numbers)
        yield stream, FileRange(path, ends["min"].as_py(), ends["max"].as_py(), bool(rising))


def _stream(
    stream: str, stream_pieces: list[FileRange], message_filter: MessageFilter, begin: int
) -> Iterator[Row]:
    """Yield the messages of one stream, each offset once; a file is opened when it is due."""
    waiting: list[tuple[int, int, Row | None]] = []
    rows: list[Iterator[Row]] = []
    for index, piece in enumerate(stream_pieces):
        rows.append(_rows(piece, stream, message_filter))
        if piece.last >= begin:
            heapq.heappush(waiting, (piece.first, index, None))
    done = begin - 1
    while waiting:
        offset, index, row = heapq.heappop(waiting)
        if row is not None and offset > done:
            done = offset
            yield row
        following = next(rows[index], None)
        if following is not None:
            heapq.heappush(waiting, (following["offset"], index, following))


def _rows(piece: FileRange, stream: str, message_filter: MessageFilter) -> Iterator[Row]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(piece.path) as file:
        columns = [name for name in WANTED if name in file.schema_arrow.names]
        batches: Cell = file.iter_batches(ROWS, columns=columns)
        if not piece.is_sorted:
            batches = file.read(columns=columns).sort_by("offset").to_batches(ROWS)
        for batch in batches:
            yield from _chosen(batch, stream, message_filter)


def _chosen(batch: pa.RecordBatch, stream: str, message_filter: MessageFilter) -> Iterator[Row]:
    row: Row
    for row in batch.to_pylist():
        if row["stream"] == stream and message_filter.has(stream, row["timestamp"]):
            yield row
