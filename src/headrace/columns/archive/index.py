# SPDX-License-Identifier: Apache-2.0
"""Index of an archive: for each stream the runs of consecutive offsets in its files.

The footer of a file of one stream has its run as statistics. The index reads the columns `stream`
and `offset` of any other file, once, because a file never changes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow.compute as pc

from headrace.columns.archive.lake import Lake, LakeFile
from headrace.columns.errors import ArchiveError

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa
    import pyarrow.parquet as pq

log = logging.getLogger(__name__)

NEEDED: Final = ("stream", "offset", "body", "exchange", "routing_key", "content_header")
RUNS_MAX: Final = 10_000  # Runs of one file; an archive that is sorted by offset has few.
GO_ON: Final = "set option 'failOnDataLoss' to 'false' to go on, with each offset at most once"
LISTINGS_MAX: Final = 5  # Compaction may replace files while their footers are read.


class Run(NamedTuple):
    """The records [first, last) of a stream in one file."""

    first: int
    last: int
    path: str


@dataclass(slots=True)
class Cover:
    """The part of a range that an archive has: runs, holes and repeated offsets, in order."""

    runs: list[Run] = field(default_factory=list)
    holes: list[tuple[int, int]] = field(default_factory=list)
    repeated: int = 0  # Records that several files have.
    twice: tuple[int, str, str] | None = None  # The first repeated offset, and two of its files.

    def check(self, where: str, stream: str, *, fail: bool) -> None:
        """Log holes and repeated offsets, or raise ArchiveError."""
        if self.holes:
            error = lacking(where, stream, *self.holes[0])
            if fail:
                raise error
            records = sum(last - first for first, last in self.holes)
            log.warning("%s; going on without %d records", error, records)
        if self.twice is not None:
            offset, one, other = self.twice
            error = ArchiveError(
                f"archive {where} has offset {offset} of stream {stream!r} twice, in {one} and in "
                f"{other}: it was written again from an earlier offset"
            )
            if fail:
                raise ArchiveError(f"{error}; {GO_ON}")
            log.warning("%s; %d records are read once", error, self.repeated)


def lacking(where: str, stream: str, first: int, last: int) -> ArchiveError:
    """Return the error for records that neither the broker nor the archive has."""
    return ArchiveError(
        f"archive {where} has no records of stream {stream!r} from offset {first} to {last - 1}, "
        f"and the stream no longer has them; {GO_ON}"
    )


class Archive:
    """An index of the files of an archive, for the process that plans."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._lake = Lake(where)
        self._known: dict[LakeFile, dict[str, list[tuple[int, int]]]] = {}
        self._streams: dict[str, list[Run]] = {}

    def refresh(self) -> None:
        """List the files again; ArchiveError if they are not an archive of messages."""
        for _ in range(LISTINGS_MAX):
            try:
                self._known = {
                    file: self._known[file] if file in self._known else self._runs_of(file)
                    for file in self._lake.files()
                }
            except FileNotFoundError:
                continue
            break
        else:
            raise ArchiveError(f"archive {self.where}: its files are replaced faster than listed")
        self._streams = {}
        for file, streams in self._known.items():
            for stream, runs in streams.items():
                stream_runs = self._streams.setdefault(stream, [])
                stream_runs += [Run(first, last, file.path) for first, last in runs]
        for stream_runs in self._streams.values():
            stream_runs.sort()

    def first(self, stream: str) -> int | None:
        """Return the smallest offset of a stream; None if the archive does not have the stream."""
        runs = self._streams.get(stream)
        return runs[0].first if runs else None

    def end(self, stream: str) -> int:
        """Return the offset after the largest one of a stream; 0 without records."""
        return max((run.last for run in self._streams.get(stream, ())), default=0)

    def cover(self, stream: str, first: int, last: int) -> Cover:
        """Return the runs that cover a range, with their holes and repeated offsets."""
        cover = Cover()
        at, owner = first, ""
        for run in self._streams.get(stream, ()):
            lo, hi = max(run.first, first), min(run.last, last)
            if lo >= hi:
                continue
            if lo < at:
                cover.repeated += min(hi, at) - lo
                cover.twice = cover.twice or (lo, owner, run.path)
                lo = at
            elif lo > at:
                cover.holes.append((at, lo))
            if lo < hi:
                cover.runs.append(Run(lo, hi, run.path))
                at, owner = hi, run.path
        if at < last:
            cover.holes.append((at, last))
        return cover

    def offset_at(self, stream: str, moment: datetime) -> int | None:
        """Return the first offset that arrived at `moment` or later; None if there is none."""
        runs = self._streams.get(stream, [])
        low, high = 0, len(runs)
        while low < high:  # Records arrive in the order of their offsets.
            middle = (low + high) // 2
            if self._first_since(stream, runs[middle], moment) is None:
                low = middle + 1
            else:
                high = middle
        return self._first_since(stream, runs[low], moment) if low < len(runs) else None

    def _first_since(self, stream: str, run: Run, moment: datetime) -> int | None:
        with self._lake.open_file(run.path) as file:
            if "timestamp" not in file.schema_arrow.names:
                raise ArchiveError(
                    f"archive {self.where}: file {run.path} has no column timestamp, by which a "
                    "moment is found"
                )
            table = file.read(columns=["stream", "offset", "timestamp"])
        import pyarrow as pa

        since = pa.scalar(moment, pa.timestamp("us", tz="UTC"))
        arrived = table.column("timestamp").cast(pa.timestamp("us", tz="UTC"), safe=False)
        here = pc.and_(pc.equal(table.column("stream"), stream), pc.greater_equal(arrived, since))
        here = pc.and_(here, pc.greater_equal(table.column("offset"), run.first))
        here = pc.and_(here, pc.less(table.column("offset"), run.last))
        offset: int | None = pc.min(table.filter(here).column("offset")).as_py()
        return offset

    def _runs_of(self, listed: LakeFile) -> dict[str, list[tuple[int, int]]]:
        with self._lake.open_file(listed.path) as file:
            missing = [name for name in NEEDED if name not in file.schema_arrow.names]
            if missing:
                raise ArchiveError(
                    f"archive {self.where}: file {listed.path} has no column "
                    f"{', '.join(missing)}; 'headrace pipeline archive' writes all of them"
                )
            if not file.metadata.num_rows:
                return {}
            by_footer = _by_footer(file)
            if by_footer is not None:
                return by_footer
            table = file.read(columns=["stream", "offset"])
        runs = {}
        for stream in pc.unique(table.column("stream")).to_pylist():
            offsets = table.filter(pc.equal(table.column("stream"), stream)).column("offset")
            runs[stream] = _runs(offsets.combine_chunks())
            if len(runs[stream]) > RUNS_MAX:
                raise ArchiveError(
                    f"archive {self.where}: file {listed.path} has more than {RUNS_MAX} holes or "
                    f"repeated offsets of stream {stream!r}: write it sorted by stream and offset"
                )
        return runs


def _by_footer(file: pq.ParquetFile) -> dict[str, list[tuple[int, int]]] | None:
    """Return the run of a file of one stream without holes; None for other footers."""
    metadata = file.metadata
    names = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    ends: dict[str, tuple[object, object]] = {}
    for name in ("stream", "offset"):
        index = names.index(name)
        columns = [
            metadata.row_group(group).column(index).statistics
            for group in range(metadata.num_row_groups)
        ]
        if not all(column is not None and column.has_min_max for column in columns):
            return None
        ends[name] = (min(column.min for column in columns), max(column.max for column in columns))
    (stream, other), (first, last) = ends["stream"], ends["offset"]
    if not isinstance(stream, str) or not isinstance(first, int) or not isinstance(last, int):
        return None
    if stream != other or last - first + 1 != metadata.num_rows:
        return None
    return {stream: [(first, last + 1)]}


def _runs(offsets: pa.Array) -> list[tuple[int, int]]:
    """Return runs of consecutive numbers; a repeated number begins a run of its own."""
    import numpy as np

    numbers = np.sort(offsets.to_numpy(zero_copy_only=False))
    begins = np.flatnonzero(np.diff(numbers) != 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(numbers, begins[: RUNS_MAX + 1])]
