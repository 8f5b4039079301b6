# SPDX-License-Identifier: Apache-2.0
"""Archived records of a range as Arrow batches, in the process of a task.

Their columns are made of the content headers, like those of records from the broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.columns.archive.index import Archive, Cover, Run, lacking
from headrace.columns.archive.lake import Lake
from headrace.columns.errors import ArchiveError
from headrace.columns.read.arrow import Archived
from headrace.columns.schema.columns import CONTENT_HEADER

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from headrace.columns.schema.offsets import Range

ROWS_MAX: Final = 10_000  # Rows of one batch.
OCTETS_MAX: Final = 16 << 20  # Bytes of one batch, about.
REPLACED_MAX: Final = 5  # Replacements of files by compaction in a row, without a record.
RAW: Final = ("body", "exchange", "routing_key", CONTENT_HEADER)


def read(
    where: str, piece: Range, names: tuple[str, ...], runs: Sequence[Run] = ()
) -> Iterator[pa.RecordBatch]:
    """Read a range in order, each record once; ArchiveError when the archive lacks a record.

    `runs` are the runs of a plan. Files that compaction replaced since then are looked up again.
    """
    lake = Lake(where)
    at, replaced = piece.first, 0
    while at < piece.last:
        try:
            for run in runs or _runs(where, piece.stream, at, piece.last):
                if run.last <= at or run.first >= piece.last:
                    continue
                unread = Run(max(run.first, at), min(run.last, piece.last), run.path)
                for batch in _run(lake, piece.stream, unread, names):
                    yield Archived(piece.stream, names, batch).to_arrow()
                    at, replaced = at + batch.num_rows, 0
        except FileNotFoundError:
            replaced += 1
            if replaced > REPLACED_MAX:
                raise ArchiveError(
                    f"archive {where}: the file with offset {at} of stream {piece.stream!r} is "
                    "replaced faster than it can be read"
                ) from None
        except ArchiveError as error:
            raise ArchiveError(f"stream {piece.stream!r} at offset {at}: {error}") from None
        runs = ()


def look_up(where: str, stream: str, first: int, last: int) -> Cover:
    """Return the part of a range that the archive has at present."""
    archive = Archive(where)
    archive.refresh()
    return archive.cover(stream, first, last)


def _runs(where: str, stream: str, first: int, last: int) -> list[Run]:
    cover = look_up(where, stream, first, last)
    if cover.holes:
        raise lacking(where, stream, *cover.holes[0])
    return cover.runs


def _run(lake: Lake, stream: str, run: Run, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Read the rows of a run, with the columns of the file that `names` are made of."""
    derived = set(names) - {*RAW, "stream", "offset"}
    raw_names = {name for name in RAW if name in names} | ({CONTENT_HEADER} if derived else set())
    columns = ["stream", "offset", *sorted(raw_names)]
    at = run.first
    with lake.open_file(run.path) as file:
        groups = _groups(file, run)
        for batch in file.iter_batches(_rows_max(file, groups), groups, columns):
            chosen = batch.filter(_within(batch, stream, at, run.last))
            if not chosen.num_rows:
                continue
            if not _is_next(chosen, at):
                break  # The file is not sorted.
            yield chosen
            at += chosen.num_rows
        if at == run.last:
            return
        rest = file.read_row_groups(groups, columns).combine_chunks()
    rest = rest.filter(_within(rest, stream, at, run.last)).sort_by("offset").combine_chunks()
    for batch in rest.to_batches(ROWS_MAX):
        chosen = _once(batch, at)
        if chosen.num_rows and not _is_next(chosen, at):
            offsets = set(chosen.column("offset").to_pylist())
            at = next(offset for offset in range(at, run.last) if offset not in offsets)
            break
        yield chosen
        at += chosen.num_rows
    if at < run.last:
        raise ArchiveError(
            f"archive {lake.where}: file {run.path} has no offset {at} of stream {stream!r}, "
            f"though its statistics cover {run.first} to {run.last - 1}"
        )


def _groups(file: pq.ParquetFile, run: Run) -> list[int]:
    """Return the row groups that may have offsets of a run."""
    metadata = file.metadata
    names = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    index = names.index("offset")
    groups = []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(index).statistics
        if (
            statistics is None
            or not statistics.has_min_max
            or (statistics.min < run.last and statistics.max >= run.first)
        ):
            groups.append(group)
    return groups


def _rows_max(file: pq.ParquetFile, groups: list[int]) -> int:
    """Return the rows of a batch, by the mean row size of the largest row group."""
    sizes = [
        file.metadata.row_group(group).total_byte_size
        // max(1, file.metadata.row_group(group).num_rows)
        for group in groups
    ]
    rows: int = min(ROWS_MAX, OCTETS_MAX // max(1, *sizes, 1))
    return max(1, rows)


def _within(rows: pa.RecordBatch | pa.Table, stream: str, first: int, last: int) -> pa.Array:
    offsets = rows.column("offset")
    inside = pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, last))
    return pc.and_(inside, pc.equal(rows.column("stream"), stream))


def _is_next(batch: pa.RecordBatch, at: int) -> bool:
    offsets = pa.array(range(at, at + batch.num_rows), pa.int64())
    same: bool = batch.column("offset").cast(pa.int64()).equals(offsets)
    return same


def _once(batch: pa.RecordBatch, at: int) -> pa.RecordBatch:
    """Return the first of sorted rows with each offset, from `at` on."""
    offsets = batch.column("offset").to_pylist()
    keep = []
    last = at - 1
    for offset in offsets:
        keep.append(offset > last)
        last = max(last, offset)
    return batch.filter(pa.array(keep, pa.bool_()))
