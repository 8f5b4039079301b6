# SPDX-License-Identifier: Apache-2.0
"""Where a streaming query stands: the offset of each stream that is the next to be read.

Spark keeps it as JSON in the checkpoint and compares it as text, so the keys have one order::

    {"v": 1, "epoch": 0, "pos": {"orders": 1200}}
    {"v": 1, "epoch": 0, "from": {"orders": 1000}, "pos": {"orders": 1200}}

`pos` has an exclusive end: 1200 means that 0 to 1199 were read. `epoch` is 0; it leaves room for
sources whose acknowledgement needs a batch without records. Nothing else is in it, no address and
no secret.

`from` is in the end of the first batch with a stream: where reading it began. Spark does not log
the initial offset, and asks for it again when it replays that batch after a crash. By then "latest"
is somewhere else; the end of the batch, which is logged, remembers what it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

FORMAT: Final = 1


class OffsetError(ValueError):
    """The checkpoint holds an offset that this version or this query cannot use."""


@dataclass(frozen=True, slots=True)
class Range:
    """The records first to last - 1 of one stream."""

    stream: str
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class Offset:
    """The next offset to be read of each stream, and where reading began of those just begun."""

    positions: Mapping[str, int]
    origin: Mapping[str, int] = field(default_factory=dict)

    def begun(self) -> dict[str, int]:
        """The streams of which nothing has been read, and where each begins."""
        return {
            stream: position
            for stream, position in self.origin.items()
            if self.positions.get(stream) == position
        }

    def to_json(self) -> dict[str, Any]:
        """The offset as Spark keeps it."""
        offset: dict[str, Any] = {"v": FORMAT, "epoch": 0}
        if self.origin:
            offset["from"] = dict(sorted(self.origin.items()))
        offset["pos"] = dict(sorted(self.positions.items()))
        return offset

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> Offset:
        """The offset as it was in the checkpoint."""
        if offset.get("v") != FORMAT:
            raise OffsetError(
                f"the checkpoint has offsets of format {offset.get('v')!r}, not {FORMAT}: it was "
                "written by another version, or by another source"
            )
        return cls(_positions(offset.get("pos")), _positions(offset.get("from", {})))


def _positions(value: object) -> dict[str, int]:
    if not isinstance(value, dict) or not all(
        isinstance(position, int) and position >= 0 for position in value.values()
    ):
        raise OffsetError("the checkpoint has an offset without positions")
    return dict(value)


def ranges(start: Mapping[str, int], end: Mapping[str, int]) -> list[Range]:
    """What lies between two offsets; of the streams of `end`, which `start` has too."""
    found = []
    for stream in sorted(end):
        first = start[stream]
        if end[stream] < first:
            raise OffsetError(
                f"stream {stream!r} ends at offset {end[stream]}, before {first} where this query "
                "stands: it was deleted and made again; start with a new checkpoint"
            )
        if end[stream] > first:
            found.append(Range(stream, first, end[stream]))
    return found


def split(found: Iterable[Range], count: int, size_min: int = 1) -> list[Range]:
    """Cut ranges into about `count` pieces of nearly equal size, none below `size_min` for it.

    Every range gives at least one piece; a pure function, so that a replay plans the same tasks.
    """
    whole = list(found)
    total = sum(map(len, whole))
    pieces = []
    for one in whole:
        share = max(1, round(count * len(one) / total))
        share = min(share, max(1, len(one) // size_min))
        cuts = [one.first + len(one) * i // share for i in range(share + 1)]
        pieces += [Range(one.stream, a, b) for a, b in pairwise(cuts)]
    return pieces


def limited(start: Mapping[str, int], end: Mapping[str, int], records_max: int) -> dict[str, int]:
    """Move from `start` towards `end` by at most `records_max` records, shared by backlog.

    Every stream with a backlog advances while there are records to give, so that none starves.
    """
    found = ranges(start, end)
    total = sum(map(len, found))
    if total <= records_max:
        return dict(end)
    limits = {one.stream: records_max * len(one) // total for one in found}
    spare = records_max - sum(limits.values())
    for one in sorted(found, key=lambda one: limits[one.stream]):
        if spare == 0:
            break
        limits[one.stream] += 1
        spare -= 1
    return {
        stream: start[stream] + limits[stream] if stream in limits else position
        for stream, position in end.items()
    }
