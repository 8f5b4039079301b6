# SPDX-License-Identifier: Apache-2.0
"""The split of a read between the archive, for earlier records, and the broker, for later ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.columns.archive.index import lacking
from headrace.columns.schema.offsets import Range, without

if TYPE_CHECKING:
    from headrace.columns.archive.index import Archive, Run
    from headrace.columns.schema.offsets import Offset

GAPS_MAX: Final = 100  # Gaps of a stream in one batch, which ends before the next gap.


@dataclass(frozen=True, slots=True)
class ArchiveSplit:
    """The end of the archived part of each stream, and the gaps in it that are skipped."""

    archived: Mapping[str, int] = field(default_factory=dict)
    gaps: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    cut_short: frozenset[str] = frozenset()  # Streams whose batch ends at the split.

    @classmethod
    def of(cls, end: Offset) -> ArchiveSplit:
        """Return the split of the batch that ends at an offset."""
        return cls(end.archived, end.gaps)

    def cut(self, ranges: Iterable[Range]) -> list[Range]:
        """Cut ranges at the split, and leave out the gaps."""
        parts = []
        for piece in ranges:
            at = min(max(self.archived.get(piece.stream, 0), piece.first), piece.last)
            if at > piece.first:
                cold = Range(piece.stream, piece.first, at)
                parts += without(cold, self.gaps.get(piece.stream, ()))
            if at < piece.last:
                parts.append(Range(piece.stream, at, piece.last))
        return parts

    def has(self, piece: Range) -> bool:
        """Return True if a piece of `cut` is read from the archive."""
        return piece.first < self.archived.get(piece.stream, 0)

    def lost(self) -> dict[str, int]:
        """Return the number of records in the gaps of each stream."""
        return {
            stream: sum(last - first for first, last in gaps) for stream, gaps in self.gaps.items()
        }


def split_ranges(
    archive: Archive, oldest: Mapping[str, int], ranges: Iterable[Range], *, fail: bool
) -> ArchiveSplit:
    """Return the split of some ranges; `oldest` are the first offsets that the broker still has.

    With `fail` a record that the archive lacks, or has twice, raises ArchiveError.
    """
    archived: dict[str, int] = {}
    gaps: dict[str, list[list[int]]] = {}
    short = set()
    for piece in ranges:
        end = min(oldest[piece.stream], piece.last)
        if end <= piece.first:
            continue
        if not archived:
            archive.refresh()
        cover = archive.cover(piece.stream, piece.first, end)
        if len(cover.holes) > GAPS_MAX and not fail:
            end = cover.holes[GAPS_MAX][0]
            short.add(piece.stream)
            cover = archive.cover(piece.stream, piece.first, end)
        cover.check(archive.where, piece.stream, fail=fail)
        archived[piece.stream] = end
        if cover.holes:
            gaps[piece.stream] = [list(hole) for hole in cover.holes]
    return ArchiveSplit(archived, gaps, frozenset(short))


def runs_of(archive: Archive, piece: Range) -> list[Run]:
    """Return the runs of a planned piece; ArchiveError when the archive has lost a part of it."""
    cover = archive.cover(piece.stream, piece.first, piece.last)
    if cover.holes:
        archive.refresh()
        cover = archive.cover(piece.stream, piece.first, piece.last)
    if cover.holes:
        raise lacking(archive.where, piece.stream, *cover.holes[0])
    return cover.runs
