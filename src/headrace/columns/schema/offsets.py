# SPDX-License-Identifier: Apache-2.0
"""The position of a streaming query: the next offset to read of each stream.

Spark keeps it as JSON in the checkpoint and compares it as text, so the keys have one order::

    {"v": 2, "broker": "5f…", "epoch": 0, "ids": {"orders": 7}, "pos": {"orders": 1200}}
    {"v": 2, "broker": "5f…", "epoch": 0, "from": {"orders": 1000}, "ids": {"orders": 7},
     "lost": {"orders": 40}, "pos": {"orders": 1200}}

`pos` is exclusive: at 1200, records 0 to 1199 have been read. `broker` is the broker's identity.
`ids` are the ids of the streams, because another stream of the same name has other records. `epoch`
counts the batches without records, which make Spark commit the batch before them. An offset has no
address and no secret.

`from` is the start of a batch that does not start at the end of the previous batch. The first batch
of a stream has `from`, because Spark does not log the initial offset. Spark asks for the initial
offset again when it replays that batch after a crash. By then "latest" is another offset, but the
logged end of the batch has the original one. A batch also has `from` when retention dropped unread
records. `lost` counts these records since the query first started. `skipped` counts records that
retention dropped after their batch was planned; the tasks report them to the broker.

`owner` is the name under which the query owns its group, and under which its tasks report gaps. It
is in the checkpoint, so the query gets its group back after a restart. For a queue, `pos` and
`from` have numbers of leased messages under the queue's name, and `ids` has the id of the lease.

With the option `archive`, a batch reads dropped records from the archive and later records from the
broker. `archived` has the end of the archived part of each stream. If the options allow gaps,
`gaps` has the ranges that are missing in both, as pairs of first offset and end. A batch that runs
again uses the same values, even if retention or the archive has changed meanwhile.

Format 1 lacks `broker`, `ids` and `lost`. Offsets of format 1 can be read; the next batch has
format 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

FORMAT: Final = 2


class OffsetError(ValueError):
    """The checkpoint has an offset that this version or this query cannot use."""


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
    """The position of a query, with the fields that the module describes.

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

    def unread_starts(self) -> dict[str, int]:
        """Return the start of each stream of which no record has been read."""
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
        """Return the offset in a checkpoint; raise OffsetError if it is malformed."""
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
        positions, *remaining = (
            _parse_positions(offset.get(key, default))
            for key, default in (
                ("pos", None),
                ("from", {}),
                ("ids", {}),
                ("lost", {}),
                ("skipped", {}),
                ("archived", {}),
            )
        )
        origin, ids, lost, skipped, archived = remaining
        gaps = _parse_gaps(offset.get("gaps", {}))
        return cls(positions, origin, epoch, broker, ids, lost, skipped, owner, archived, gaps)


def batch_start(start: Offset, end: Offset) -> dict[str, int]:
    """Return the offset in each stream at which the batch between two offsets starts."""
    return {**start.positions, **end.origin}


def _parse_positions(value: object) -> dict[str, int]:
    if not isinstance(value, dict) or not all(
        isinstance(position, int) and position >= 0 for position in value.values()
    ):
        raise OffsetError("the checkpoint has an offset without positions")
    return dict(value)


def _parse_gaps(value: object) -> dict[str, list[list[int]]]:
    if not isinstance(value, dict) or not all(
        isinstance(gaps, list)
        and all(
            isinstance(gap, list)
            and len(gap) == 2
            and all(isinstance(offset, int) for offset in gap)
            for gap in gaps
        )
        for gaps in value.values()
    ):
        raise OffsetError("the checkpoint has an offset with malformed gaps")
    return dict(value)


def ranges_between(start: Mapping[str, int], end: Mapping[str, int]) -> list[Range]:
    """Return the nonempty ranges from `start` to `end`; `start` has every stream of `end`.

    Raises:
        OffsetError: a stream ends before its start.
    """
    stream_ranges = []
    for stream in sorted(end):
        first = start[stream]
        if end[stream] < first:
            raise OffsetError(
                f"stream {stream!r} ends at offset {end[stream]}, before {first}, the position of "
                "this query: the stream was deleted and created again; start with a new checkpoint"
            )
        if end[stream] > first:
            stream_ranges.append(Range(stream, first, end[stream]))
    return stream_ranges


def subtract_gaps(stream_range: Range, gaps: Iterable[Sequence[int]]) -> list[Range]:
    """Return the parts of a range outside of its gaps, which are sorted pairs [first, last)."""
    parts, position = [], stream_range.first
    for first, last in gaps:
        if last <= position or first >= stream_range.last:
            continue
        if first > position:
            parts.append(Range(stream_range.stream, position, first))
        position = last
    if position < stream_range.last:
        parts.append(Range(stream_range.stream, position, stream_range.last))
    return parts


def cut_ranges(
    ranges: Iterable[Range], count: int, size_min: int = 1, size_max: int | None = None
) -> list[Range]:
    """Cut ranges into about `count` parts of nearly equal size, each within one range.

    A range is not cut into parts of fewer than `size_min` records, unless `size_max` requires it.
    No part has more than `size_max` records. The result depends on the arguments only, so a batch
    that runs again has the same tasks.
    """
    stream_ranges = list(ranges)
    total = sum(map(len, stream_ranges))
    parts = []
    for stream_range in stream_ranges:
        part_count = max(1, round(count * len(stream_range) / total))
        part_count = min(part_count, max(1, len(stream_range) // size_min))
        if size_max is not None:
            part_count = max(part_count, -(-len(stream_range) // size_max))
        cuts = [
            stream_range.first + len(stream_range) * index // part_count
            for index in range(part_count + 1)
        ]
        parts += [Range(stream_range.stream, first, last) for first, last in pairwise(cuts)]
    return parts
