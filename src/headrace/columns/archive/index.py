# SPDX-License-Identifier: Apache-2.0
"""Index of an archive: the runs of consecutive offsets of each stream, by file.

If a file has a single run, the statistics in its footer describe the run. In other files the index
reads the columns `stream` and `offset`. It reads each file once, because files never change.
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

REQUIRED_COLUMNS: Final = ("stream", "offset", "body", "exchange", "routing_key", "content_header")
RUNS_MAX: Final = 10_000  # Runs in one file; a file that is sorted by offset has few.
CONTINUE_HINT: Final = (
    "set option 'failOnDataLoss' to 'false' to go on, with each offset at most once"
)
LISTINGS_MAX: Final = 5  # Attempts; compaction may replace files while their footers are read.


class OffsetRun(NamedTuple):
    """The records [first, last) of a stream in one file."""

    first: int
    last: int
    path: str


@dataclass(slots=True)
class Coverage:
    """The records of a range in an archive: runs and holes as [first, last), in order."""

    runs: list[OffsetRun] = field(default_factory=list)
    holes: list[tuple[int, int]] = field(default_factory=list)
    repeated_count: int = 0  # Records that are in several files.
    # The first repeated offset, and the paths of two files with it.
    first_repeat: tuple[int, str, str] | None = None

    def check(self, location: str, stream: str, *, fail: bool) -> None:
        """Log holes and repeated offsets; with `fail` raise ArchiveError instead."""
        if self.holes:
            error = missing_records_error(location, stream, *self.holes[0])
            if fail:
                raise error
            missing_count = sum(last - first for first, last in self.holes)
            log.warning("%s; going on without %d records", error, missing_count)
        if self.first_repeat is not None:
            offset, path, other_path = self.first_repeat
            error = ArchiveError(
                f"archive {location} has offset {offset} of stream {stream!r} twice, in {path} and "
                f"in {other_path}: it was written again from an earlier offset"
            )
            if fail:
                raise ArchiveError(f"{error}; {CONTINUE_HINT}")
            log.warning("%s; %d records are read once", error, self.repeated_count)


def missing_records_error(location: str, stream: str, first: int, last: int) -> ArchiveError:
    """Return the error for records that neither the broker nor the archive has."""
    return ArchiveError(
        f"archive {location} has no records of stream {stream!r} from offset {first} to "
        f"{last - 1}, and the stream no longer has them; {CONTINUE_HINT}"
    )


class Archive:
    """The index of an archive, which the planning process keeps in memory."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._lake = Lake(location)
        self._runs_by_file: dict[LakeFile, dict[str, list[tuple[int, int]]]] = {}
        self._runs_by_stream: dict[str, list[OffsetRun]] = {}

    def refresh(self) -> None:
        """List the files again, and index the new ones.

        Raises:
            ArchiveError: the files cannot be read, or are not an archive of messages.
        """
        for _ in range(LISTINGS_MAX):
            try:
                self._runs_by_file = {
                    file: self._runs_by_file[file]
                    if file in self._runs_by_file
                    else self._read_runs(file)
                    for file in self._lake.files()
                }
            except FileNotFoundError:
                continue
            break
        else:
            raise ArchiveError(
                f"archive {self.location}: its files are replaced faster than listed"
            )
        self._runs_by_stream = {}
        for file, streams in self._runs_by_file.items():
            for stream, runs in streams.items():
                stream_runs = self._runs_by_stream.setdefault(stream, [])
                stream_runs += [OffsetRun(first, last, file.path) for first, last in runs]
        for stream_runs in self._runs_by_stream.values():
            stream_runs.sort()

    def first(self, stream: str) -> int | None:
        """Return the smallest offset of a stream; None if the archive does not have the stream."""
        runs = self._runs_by_stream.get(stream)
        return runs[0].first if runs else None

    def end(self, stream: str) -> int:
        """Return the offset after the largest one of a stream; 0 without records."""
        return max((run.last for run in self._runs_by_stream.get(stream, ())), default=0)

    def coverage(self, stream: str, first: int, last: int) -> Coverage:
        """Return the runs that cover [first, last), with their holes and repeated offsets."""
        coverage = Coverage()
        position, position_path = first, ""
        for run in self._runs_by_stream.get(stream, ()):
            low, high = max(run.first, first), min(run.last, last)
            if low >= high:
                continue
            if low < position:
                coverage.repeated_count += min(high, position) - low
                coverage.first_repeat = coverage.first_repeat or (low, position_path, run.path)
                low = position
            elif low > position:
                coverage.holes.append((position, low))
            if low < high:
                coverage.runs.append(OffsetRun(low, high, run.path))
                position, position_path = high, run.path
        if position < last:
            coverage.holes.append((position, last))
        return coverage

    def offset_at(self, stream: str, moment: datetime) -> int | None:
        """Return the first offset that arrived at `moment` or later; None if there is none."""
        runs = self._runs_by_stream.get(stream, [])
        low, high = 0, len(runs)
        while low < high:  # Records arrive in the order of their offsets.
            middle = (low + high) // 2
            if self._first_since(stream, runs[middle], moment) is None:
                low = middle + 1
            else:
                high = middle
        return self._first_since(stream, runs[low], moment) if low < len(runs) else None

    def _first_since(self, stream: str, run: OffsetRun, moment: datetime) -> int | None:
        """Return the first offset of a run that arrived at `moment` or later, if there is one."""
        with self._lake.open_file(run.path) as file:
            if "timestamp" not in file.schema_arrow.names:
                raise ArchiveError(
                    f"archive {self.location}: file {run.path} has no column timestamp, by which a "
                    "moment is found"
                )
            table = file.read(columns=["stream", "offset", "timestamp"])
        import pyarrow as pa

        earliest = pa.scalar(moment, pa.timestamp("us", tz="UTC"))
        arrivals = table.column("timestamp").cast(pa.timestamp("us", tz="UTC"), safe=False)
        mask = pc.and_(
            pc.equal(table.column("stream"), stream), pc.greater_equal(arrivals, earliest)
        )
        mask = pc.and_(mask, pc.greater_equal(table.column("offset"), run.first))
        mask = pc.and_(mask, pc.less(table.column("offset"), run.last))
        offset: int | None = pc.min(table.filter(mask).column("offset")).as_py()
        return offset

    def _read_runs(self, lake_file: LakeFile) -> dict[str, list[tuple[int, int]]]:
        """Return the runs of a file as [first, last), by stream."""
        with self._lake.open_file(lake_file.path) as file:
            missing = [name for name in REQUIRED_COLUMNS if name not in file.schema_arrow.names]
            if missing:
                raise ArchiveError(
                    f"archive {self.location}: file {lake_file.path} has no column "
                    f"{', '.join(missing)}; 'headrace pipeline archive' writes all of them"
                )
            if not file.metadata.num_rows:
                return {}
            footer_runs = _read_footer_runs(file)
            if footer_runs is not None:
                return footer_runs
            table = file.read(columns=["stream", "offset"])
        runs = {}
        for stream in pc.unique(table.column("stream")).to_pylist():
            offsets = table.filter(pc.equal(table.column("stream"), stream)).column("offset")
            runs[stream] = _find_runs(offsets.combine_chunks())
            if len(runs[stream]) > RUNS_MAX:
                raise ArchiveError(
                    f"archive {self.location}: file {lake_file.path} has more than {RUNS_MAX} "
                    "holes or "
                    f"repeated offsets of stream {stream!r}: write it sorted by stream and offset"
                )
        return runs


def _read_footer_runs(file: pq.ParquetFile) -> dict[str, list[tuple[int, int]]] | None:
    """Return the single run of a file, from its footer; None if the columns must be read."""
    metadata = file.metadata
    names = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    bounds: dict[str, tuple[object, object]] = {}
    for name in ("stream", "offset"):
        index = names.index(name)
        statistics = [
            metadata.row_group(group).column(index).statistics
            for group in range(metadata.num_row_groups)
        ]
        if not all(statistic is not None and statistic.has_min_max for statistic in statistics):
            return None
        bounds[name] = (
            min(statistic.min for statistic in statistics),
            max(statistic.max for statistic in statistics),
        )
    (stream, last_stream), (first, last) = bounds["stream"], bounds["offset"]
    if not isinstance(stream, str) or not isinstance(first, int) or not isinstance(last, int):
        return None
    if stream != last_stream or last - first + 1 != metadata.num_rows:
        return None
    return {stream: [(first, last + 1)]}


def _find_runs(offsets: pa.Array) -> list[tuple[int, int]]:
    """Return the runs of consecutive offsets as [first, last); a repeated offset begins a run."""
    import numpy as np

    numbers = np.sort(offsets.to_numpy(zero_copy_only=False))
    starts = np.flatnonzero(np.diff(numbers) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(numbers, starts[: RUNS_MAX + 1])]
