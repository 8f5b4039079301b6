# SPDX-License-Identifier: Apache-2.0
"""Reading of archived records as Arrow batches, in the process of a task.

The columns `properties` and `headers` are derived from the stored content headers, as for records
from the broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.columns.archive.index import Archive, Coverage, OffsetRun, missing_records_error
from headrace.columns.archive.lake import Lake
from headrace.columns.errors import ArchiveError
from headrace.columns.read.arrow import ArchivedBatch
from headrace.columns.schema.columns import CONTENT_HEADER

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from headrace.columns.schema.offsets import Range

BATCH_ROWS_MAX: Final = 10_000  # Rows of one batch.
BATCH_BYTES_MAX: Final = 16 << 20  # The approximate maximum size of a batch.
REPLACEMENTS_MAX: Final = 5  # Replacements of files in a row without a record read in between.
RAW_COLUMNS: Final = ("body", "exchange", "routing_key", CONTENT_HEADER)


def read_archived_range(
    location: str, stream_range: Range, names: tuple[str, ...], runs: Sequence[OffsetRun] = ()
) -> Iterator[pa.RecordBatch]:
    """Read the columns `names` of a range in order, each record once.

    `runs` are the runs that the planner found. If compaction has replaced their files since then,
    the runs are looked up again.

    Raises:
        ArchiveError: the archive lacks a record of the range, or cannot be read.
    """
    lake = Lake(location)
    offset, replacements = stream_range.first, 0
    while offset < stream_range.last:
        try:
            for run in runs or _find_runs(location, stream_range.stream, offset, stream_range.last):
                if run.last <= offset or run.first >= stream_range.last:
                    continue
                unread = OffsetRun(
                    max(run.first, offset), min(run.last, stream_range.last), run.path
                )
                for batch in _read_run(lake, stream_range.stream, unread, names):
                    yield ArchivedBatch(stream_range.stream, names, batch).to_arrow()
                    offset, replacements = offset + batch.num_rows, 0
        except FileNotFoundError:
            replacements += 1
            if replacements > REPLACEMENTS_MAX:
                raise ArchiveError(
                    f"archive {location}: the file with offset {offset} of stream "
                    f"{stream_range.stream!r} is replaced faster than it can be read"
                ) from None
        except ArchiveError as error:
            raise ArchiveError(
                f"stream {stream_range.stream!r} at offset {offset}: {error}"
            ) from None
        runs = ()


def look_up_coverage(location: str, stream: str, first: int, last: int) -> Coverage:
    """Return the records of a range that the archive has now."""
    archive = Archive(location)
    archive.refresh()
    return archive.coverage(stream, first, last)


def _find_runs(location: str, stream: str, first: int, last: int) -> list[OffsetRun]:
    coverage = look_up_coverage(location, stream, first, last)
    if coverage.holes:
        raise missing_records_error(location, stream, *coverage.holes[0])
    return coverage.runs


def _read_run(
    lake: Lake, stream: str, run: OffsetRun, names: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a run, with the stored columns from which `names` are derived."""
    derived = set(names) - {*RAW_COLUMNS, "stream", "offset"}
    raw_names = {name for name in RAW_COLUMNS if name in names} | (
        {CONTENT_HEADER} if derived else set()
    )
    columns = ["stream", "offset", *sorted(raw_names)]
    offset = run.first
    with lake.open_file(run.path) as file:
        row_groups = _find_row_groups(file, run)
        for batch in file.iter_batches(_batch_rows_max(file, row_groups), row_groups, columns):
            run_rows = batch.filter(_is_in_range(batch, stream, offset, run.last))
            if not run_rows.num_rows:
                continue
            if not _is_consecutive(run_rows, offset):
                break  # The file is not sorted; the code below reads and sorts it.
            yield run_rows
            offset += run_rows.num_rows
        if offset == run.last:
            return
        remaining_rows = file.read_row_groups(row_groups, columns).combine_chunks()
    remaining_rows = (
        remaining_rows.filter(_is_in_range(remaining_rows, stream, offset, run.last))
        .sort_by("offset")
        .combine_chunks()
    )
    for batch in remaining_rows.to_batches(BATCH_ROWS_MAX):
        run_rows = _drop_repeated(batch, offset)
        if run_rows.num_rows and not _is_consecutive(run_rows, offset):
            offsets = set(run_rows.column("offset").to_pylist())
            offset = next(offset for offset in range(offset, run.last) if offset not in offsets)
            break
        yield run_rows
        offset += run_rows.num_rows
    if offset < run.last:
        raise ArchiveError(
            f"archive {lake.location}: file {run.path} has no offset {offset} of stream "
            f"{stream!r}, though its statistics cover {run.first} to {run.last - 1}"
        )


def _find_row_groups(file: pq.ParquetFile, run: OffsetRun) -> list[int]:
    """Return the row groups that may have offsets of a run."""
    metadata = file.metadata
    names = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    index = names.index("offset")
    row_groups = []
    for row_group in range(metadata.num_row_groups):
        statistics = metadata.row_group(row_group).column(index).statistics
        if (
            statistics is None
            or not statistics.has_min_max
            or (statistics.min < run.last and statistics.max >= run.first)
        ):
            row_groups.append(row_group)
    return row_groups


def _batch_rows_max(file: pq.ParquetFile, row_groups: list[int]) -> int:
    """Return the maximum rows of a batch, from the largest mean row size of the row groups."""
    sizes = [
        file.metadata.row_group(group).total_byte_size
        // max(1, file.metadata.row_group(group).num_rows)
        for group in row_groups
    ]
    rows: int = min(BATCH_ROWS_MAX, BATCH_BYTES_MAX // max(1, *sizes, 1))
    return max(1, rows)


def _is_in_range(rows: pa.RecordBatch | pa.Table, stream: str, first: int, last: int) -> pa.Array:
    """Return True for each row of the stream with an offset in [first, last)."""
    offsets = rows.column("offset")
    is_inside = pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, last))
    return pc.and_(is_inside, pc.equal(rows.column("stream"), stream))


def _is_consecutive(batch: pa.RecordBatch, offset: int) -> bool:
    """Return True if the offsets of the rows are `offset` and the numbers after it, in order."""
    offsets = pa.array(range(offset, offset + batch.num_rows), pa.int64())
    is_equal: bool = batch.column("offset").cast(pa.int64()).equals(offsets)
    return is_equal


def _drop_repeated(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Return one row for each offset from `first` on; the rows of `batch` are sorted by offset."""
    is_new = []
    previous = first - 1
    for offset in batch.column("offset").to_pylist():
        is_new.append(offset > previous)
        previous = max(previous, offset)
    return batch.filter(pa.array(is_new, pa.bool_()))
