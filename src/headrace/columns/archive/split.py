# SPDX-License-Identifier: Apache-2.0
"""The split of a read between the archive, for earlier records, and the broker, for later ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.columns.archive.index import missing_records_error
from headrace.columns.schema.offsets import Range, subtract_gaps

if TYPE_CHECKING:
    from headrace.columns.archive.index import Archive, OffsetRun
    from headrace.columns.schema.offsets import Offset

GAPS_MAX: Final = 100  # Gaps of a stream in one batch; the batch ends before the next gap.


@dataclass(frozen=True, slots=True)
class ArchiveSplit:
    """The end of the archived part of each stream, and the gaps to skip in that part."""

    archived: Mapping[str, int] = field(default_factory=dict)
    gaps: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    cut_short: frozenset[str] = frozenset()  # Streams whose batch ends at the split.

    @classmethod
    def from_offset(cls, end: Offset) -> ArchiveSplit:
        """Return the split of the batch that ends at `end`."""
        return cls(end.archived, end.gaps)

    def cut(self, ranges: Iterable[Range]) -> list[Range]:
        """Cut ranges at the split, and leave out the gaps."""
        parts = []
        for stream_range in ranges:
            split_offset = min(
                max(self.archived.get(stream_range.stream, 0), stream_range.first),
                stream_range.last,
            )
            if split_offset > stream_range.first:
                archived_range = Range(stream_range.stream, stream_range.first, split_offset)
                parts += subtract_gaps(archived_range, self.gaps.get(stream_range.stream, ()))
            if split_offset < stream_range.last:
                parts.append(Range(stream_range.stream, split_offset, stream_range.last))
        return parts

    def is_archived(self, stream_range: Range) -> bool:
        """Return True if a range that `cut` returned is read from the archive."""
        return stream_range.first < self.archived.get(stream_range.stream, 0)

    def lost_counts(self) -> dict[str, int]:
        """Return the number of records in the gaps of each stream."""
        return {
            stream: sum(last - first for first, last in gaps) for stream, gaps in self.gaps.items()
        }


def split_ranges(
    archive: Archive, oldest: Mapping[str, int], ranges: Iterable[Range], *, fail: bool
) -> ArchiveSplit:
    """Return the split of ranges; `oldest` has the first offset of each stream at the broker.

    Raises:
        ArchiveError: with `fail`, the archive lacks a record or has it twice.
    """
    archived: dict[str, int] = {}
    gaps: dict[str, list[list[int]]] = {}
    cut_short = set()
    for stream_range in ranges:
        end = min(oldest[stream_range.stream], stream_range.last)
        if end <= stream_range.first:
            continue
        if not archived:
            archive.refresh()
        coverage = archive.coverage(stream_range.stream, stream_range.first, end)
        if len(coverage.holes) > GAPS_MAX and not fail:
            end = coverage.holes[GAPS_MAX][0]
            cut_short.add(stream_range.stream)
            coverage = archive.coverage(stream_range.stream, stream_range.first, end)
        coverage.check(archive.location, stream_range.stream, fail=fail)
        archived[stream_range.stream] = end
        if coverage.holes:
            gaps[stream_range.stream] = [list(hole) for hole in coverage.holes]
    return ArchiveSplit(archived, gaps, frozenset(cut_short))


def find_runs(archive: Archive, stream_range: Range) -> list[OffsetRun]:
    """Return the runs of a planned range.

    Raises:
        ArchiveError: the archive lacks records of the range.
    """
    coverage = archive.coverage(stream_range.stream, stream_range.first, stream_range.last)
    if coverage.holes:
        archive.refresh()
        coverage = archive.coverage(stream_range.stream, stream_range.first, stream_range.last)
    if coverage.holes:
        raise missing_records_error(archive.location, stream_range.stream, *coverage.holes[0])
    return coverage.runs
