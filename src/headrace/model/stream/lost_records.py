# SPDX-License-Identifier: Apache-2.0
"""Records that retention removed before a reader read them.

Several processes may read the same part of a stream, repeatedly, as one reader. Each reports its
missing ranges, and the union of all reports counts. Ranges of a reader are merged. Beyond
RANGES_MAX ranges the lowest are only counted, and later reports below them are ignored. The fact
``gap/<id of the stream>/<reader>`` is deleted with the stream. Beyond READERS_MAX readers of a
stream, the fact of the reader with the oldest report is removed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypedDict

from headrace.model.errors import PreconditionFailed

if TYPE_CHECKING:
    from headrace.model.keyvalue import Facts
    from headrace.model.stream.stream import Stream

READER_BYTES_MAX = 64
RANGES_MAX = 100  # Ranges of one reader.
READERS_MAX = 100  # Readers of one stream.


class _Gaps(TypedDict):
    """The lost records of one reader, as in its fact."""

    at_ms: int  # The time of the last reported gap.
    before: int  # The number of records in gaps whose ranges were dropped.
    below: int  # The dropped ranges are below this offset.
    ranges: list[list[int]]  # The first offset and the exclusive end of each gap.


class LostRecords:
    """The lost records of all streams of a virtual host."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def record(self, stream: Stream, reader: str, first: int, last: int, now_ms: int) -> int:
        """Add a reported gap, [first, last); return the reader's total of lost records.

        Raises:
            PreconditionFailed: the records still exist.
            ResourceError: there are too many facts.
        """
        if last > stream.log.first_offset:
            raise PreconditionFailed(
                f"stream '{stream.name}' begins with {stream.log.first_offset}: the records before "
                f"{last} are not all gone"
            )
        key = _key(stream, reader)
        gaps = self._read(key)
        first = max(first, gaps["below"])
        if first < last:
            ranges = _union([*gaps["ranges"], [first, last]])
            while len(ranges) > RANGES_MAX:
                low, high = ranges.pop(0)
                gaps["before"] += high - low
                gaps["below"] = high
            gaps["ranges"] = ranges
            gaps["at_ms"] = now_ms
            self._make_room(stream, key)
            self._facts.put(key, json.dumps(gaps, separators=(",", ":")).encode())
        return _count(gaps)

    def count(self, stream: Stream, reader: str) -> int:
        """Return the number of records that a reader lost."""
        return _count(self._read(_key(stream, reader)))

    def delete_all(self, stream: Stream) -> None:
        """Remove the facts of a deleted stream."""
        self._facts.remove_all(_prefix(stream))

    def _read(self, key: bytes) -> _Gaps:
        raw = self._facts.get(key)
        if raw is None:
            return {"at_ms": 0, "before": 0, "below": 0, "ranges": []}
        gaps: _Gaps = json.loads(raw)
        return gaps

    def _make_room(self, stream: Stream, key: bytes) -> None:
        if self._facts.get(key) is not None:
            return
        others = [
            (json.loads(value)["at_ms"], other)
            for other, value in self._facts.items(_prefix(stream))
        ]
        if len(others) >= READERS_MAX:
            self._facts.put(min(others)[1], None)


def _union(ranges: list[list[int]]) -> list[list[int]]:
    merged: list[list[int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], last)
        else:
            merged.append([first, last])
    return merged


def _count(gaps: _Gaps) -> int:
    return gaps["before"] + sum(last - first for first, last in gaps["ranges"])


def _prefix(stream: Stream) -> bytes:
    return b"gap/%d/" % stream.id


def _key(stream: Stream, reader: str) -> bytes:
    return _prefix(stream) + reader.encode()
