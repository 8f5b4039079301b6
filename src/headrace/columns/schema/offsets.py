# SPDX-License-Identifier: Apache-2.0
"""The position of a streaming query: the next offset to read of each stream.

Spark keeps it as JSON in the checkpoint and compares it as text, so the keys have one order::

    {"v": 2, "broker": "5f…", "epoch": 0, "ids": {"orders": 7}, "pos": {"orders": 1200}}
    {"v": 2, "broker": "5f…", "epoch": 0, "from": {"orders": 1000}, "ids": {"orders": 7},
     "lost": {"orders": 40}, "pos": {"orders": 1200}}

`pos` has an exclusive end: 1200 means that 0 to 1199 were read. `broker` is the broker's identity
and `ids` are the ids of the streams: another stream of the same name would have other records.
`epoch` counts the batches without records, which make Spark commit the batch before them. An offset
has no address and no secret.

`from` is the start of a batch that does not start at the end of the batch before. The first batch
of a stream has it: Spark does not log the initial offset, and asks for it again when it replays
that batch after a crash. "latest" has another meaning by then, but the end of the batch is logged
and has the offset. A batch also has `from` when retention dropped unread records: `lost` counts
them over the life of the query. `skipped` counts records that retention dropped after their batch
was planned; the tasks report them to the broker.

`owner` is the name under which the query owns its group, and under which its tasks report gaps. It
is in the checkpoint, so the query gets its group back after a restart. For a queue, `pos` and
`from` have numbers of leased messages under the queue's name, and `ids` has the id of the lease.

`archived` has, by stream, the end of the part of a batch that retention has dropped and that is
read from the archive (option `archive`); the rest is read from the broker. `gaps` has the ranges
that neither of them has, as first offset and end, if gaps are allowed. A batch that runs again uses
the same values, even if retention or the archive has changed since then.

Format 1 had neither `broker`, `ids` nor `lost`. It can be read, and the next batch has format 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

FORMAT: Final = 2


class OffsetError(ValueError):
    """The checkpoint holds an offset that this version or this query cannot use."""


@dataclass(frozen=True, slots=True)
class Range:
    """The records [first, last) of one stream."""

    stream: str
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class Offset:
    """The next offset of each stream, and the first offset of streams whose reading just began.

    `broker` is "" for a broker without an identity, and None in a checkpoint of format 1; then
    `ids` is empty. `owner` is "" for a query without a group.
    """

    positions: Mapping[str, int]
    origin: Mapping[str, int] = field(default_factory=dict)
    epoch: int = 0
    broker: str | None = None
    ids: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    owner: str = ""
    archived: Mapping[str, int] = field(default_factory=dict)
    gaps: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)

    def begun(self) -> dict[str, int]:
        """The streams of which nothing has been read, and where each begins."""
        return {
            stream: position
            for stream, position in self.origin.items()
            if self.positions.get(stream) == position
        }

    def to_json(self) -> dict[str, object]:
        """Return the offset as JSON for Spark's checkpoint."""
        offset: dict[str, object] = {"v": FORMAT}
        if self.archived:
            offset["archived"] = dict(sorted(self.archived.items()))
        offset["broker"] = self.broker or ""
        offset["epoch"] = self.epoch
        for key, values in (("from", self.origin), ("ids", self.ids), ("lost", self.lost)):
            if values:
                offset[key] = dict(sorted(values.items()))
        if self.gaps:
            offset["gaps"] = {
                stream: [list(gap) for gap in gaps] for stream, gaps in sorted(self.gaps.items())
            }
        if self.owner:
            offset["owner"] = self.owner
        offset["pos"] = dict(sorted(self.positions.items()))
        if self.skipped:
            offset["skipped"] = dict(sorted(self.skipped.items()))
        return offset

    @classmethod
    def from_json(cls, offset: Mapping[str, object]) -> Offset:
        """Return the offset of a checkpoint; OffsetError if it cannot be used."""
        version = offset.get("v")
        if version not in (1, FORMAT):
            raise OffsetError(
                f"the checkpoint has offsets of format {version!r}, not {FORMAT}: it was "
                "written by another version, or by another source"
            )
        epoch, broker = offset.get("epoch", 0), offset.get("broker")
        owner = offset.get("owner", "")
        if not (
            isinstance(epoch, int) and isinstance(broker, str | None) and isinstance(owner, str)
        ):
            raise OffsetError("the checkpoint has an offset with a malformed epoch or broker")
        positions, *others = (
            _numbers(offset.get(key, missing))
            for key, missing in (
                *(("pos", None), ("from", {}), ("ids", {}), ("lost", {})),
                ("skipped", {}),
                ("archived", {}),
            )
        )
        origin, ids, lost, skipped, archived = others
        gaps = _gaps(offset.get("gaps", {}))
        return cls(positions, origin, epoch, broker, ids, lost, skipped, owner, archived, gaps)


def first_of(start: Offset, end: Offset) -> dict[str, int]:
    """Return the offset of each stream at which the batch between two offsets begins."""
    return {**start.positions, **end.origin}


def _numbers(value: object) -> dict[str, int]:
    if not isinstance(value, dict) or not all(
        isinstance(position, int) and position >= 0 for position in value.values()
    ):
        raise OffsetError("the checkpoint has an offset without positions")
    return dict(value)


def _gaps(value: object) -> dict[str, list[list[int]]]:
    if not isinstance(value, dict) or not all(
        isinstance(gaps, list)
        and all(
            isinstance(gap, list) and len(gap) == 2 and all(isinstance(at, int) for at in gap)
            for gap in gaps
        )
        for gaps in value.values()
    ):
        raise OffsetError("the checkpoint has an offset with malformed gaps")
    return dict(value)


def ranges(start: Mapping[str, int], end: Mapping[str, int]) -> list[Range]:
    """Return the ranges between two offsets, of the streams of `end` that `start` has, too."""
    pieces = []
    for stream in sorted(end):
        first = start[stream]
        if end[stream] < first:
            raise OffsetError(
                f"stream {stream!r} ends at offset {end[stream]}, before {first} where this query "
                "stands: it was deleted and made again; start with a new checkpoint"
            )
        if end[stream] > first:
            pieces.append(Range(stream, first, end[stream]))
    return pieces


def without(piece: Range, gaps: Iterable[Sequence[int]]) -> list[Range]:
    """Return the pieces of a range between gaps; the gaps, first and end of each, are in order."""
    pieces, at = [], piece.first
    for first, last in gaps:
        if last <= at or first >= piece.last:
            continue
        if first > at:
            pieces.append(Range(piece.stream, at, first))
        at = last
    if at < piece.last:
        pieces.append(Range(piece.stream, at, piece.last))
    return pieces


def split(
    uncut: Iterable[Range], count: int, size_min: int = 1, size_max: int | None = None
) -> list[Range]:
    """Cut ranges into about `count` pieces of nearly equal size, none below `size_min` for it.

    Every range gives at least one piece, and as many as it takes for none to be above `size_max`.
    A pure function, so that a replay plans the same tasks.
    """
    whole = list(uncut)
    total = sum(map(len, whole))
    pieces = []
    for span in whole:
        share = max(1, round(count * len(span) / total))
        share = min(share, max(1, len(span) // size_min))
        if size_max is not None:
            share = max(share, -(-len(span) // size_max))
        cuts = [span.first + len(span) * i // share for i in range(share + 1)]
        pieces += [Range(span.stream, a, b) for a, b in pairwise(cuts)]
    return pieces
