# SPDX-License-Identifier: Apache-2.0
"""Changes of many objects over time, in columns.

A delta has the objects that changed between two samples, and the differences of their numbers.
The value of a number at an earlier time is its present value minus the differences since then.
Objects and columns that do not change take no memory in a delta.
"""

from __future__ import annotations

import bisect
from array import array
from collections import deque
from collections.abc import Generator
from operator import le
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

SAMPLE_S = 5  # Seconds between two samples.
MS = 1000
EARLY_MS = 500  # A sample may arrive this long before its interval ends.
WIDTHS = ("b", "h", "i")  # Types of columns of small numbers; "q" for the others.
NUMBER_BYTES = 8  # Bytes of a number in a column of type "q".

WorkResult = TypeVar("WorkResult")
Steps = Generator[None, None, WorkResult]  # A task in steps of a few milliseconds each.


class Tier(NamedTuple):
    """The period that each delta covers, and the age up to which deltas are kept."""

    step_s: int
    kept_s: int


# RabbitMQ's names; :mod:`.snapshot` chooses one for each kind of objects.
DETAILED = (Tier(SAMPLE_S, 605),)  # 10 minutes.
BASIC = (*DETAILED, Tier(60, 3660))  # 1 hour.
GLOBAL = (*BASIC, Tier(600, 29_400), Tier(1800, 86_400))  # 24 hours.


class Delta:
    """The changes between two moments."""

    __slots__ = ("began_ms", "changes", "ended_ms", "ids", "size")

    def __init__(
        self, began_ms: int, ended_ms: int, ids: array[int], changes: dict[str, array[int]]
    ) -> None:
        """``ids`` are in order; each column of ``changes`` has a value for each of them."""
        self.began_ms = began_ms
        self.ended_ms = ended_ms
        self.ids = ids
        self.changes = {name: narrow(column) for name, column in changes.items() if any(column)}
        self.size = sum(len(column) * column.itemsize for column in (ids, *self.changes.values()))

    def find(self, number: int) -> int:
        """Return the index of an object in the columns; -1 if it did not change."""
        index = bisect.bisect_left(self.ids, number)
        return index if index < len(self.ids) and self.ids[index] == number else -1

    def select(self, selected: AbstractSet[int]) -> Delta:
        """Return a delta with only the objects of these ids."""
        indexes = [index for index, number in enumerate(self.ids) if number in selected]
        ids = array("q", map(self.ids.__getitem__, indexes))
        changes = {
            name: array("q", map(column.__getitem__, indexes))
            for name, column in self.changes.items()
        }
        return Delta(self.began_ms, self.ended_ms, ids, changes)

    def change(self, index: int, columns: Sequence[str]) -> int:
        """Return the sum of the changes of some columns, for the object at an index."""
        changes = self.changes
        return sum(changes[name][index] for name in columns if name in changes)


def narrow(column: array[int]) -> array[int]:
    """Return a column in the narrowest type that holds its numbers."""
    low, high = min(column), max(column)
    for width in WIDTHS:
        limit = 1 << (8 * array(width).itemsize - 1)
        if -limit <= low and high < limit:
            return array(width, column)
    return column


def make_delta(
    began_ms: int,
    ended_ms: int,
    parts: Sequence[tuple[Sequence[int], Mapping[str, Sequence[int]]]],
) -> Steps[Delta]:
    """Return the delta of the changes of several parts; each object is in one part."""
    ids = array("q")
    for part_ids, _ in parts:
        ids.extend(part_ids)
    changes: dict[str, array[int]] = {}
    for name in {name for _, columns in parts for name in columns}:
        yield
        column = changes[name] = array("q")
        for part_ids, columns in parts:
            values = columns.get(name)
            column.extend(bytes(len(part_ids)) if values is None else values)
    if not all(map(le, ids, ids[1:])):
        order = sorted(range(len(ids)), key=ids.__getitem__)
        ids = array("q", map(ids.__getitem__, order))
        for name, column in changes.items():
            yield
            changes[name] = array("q", map(column.__getitem__, order))
    yield
    return Delta(began_ms, ended_ms, ids, changes)


def join_deltas(deltas: Sequence[Delta]) -> Steps[Delta]:
    """Return one delta that covers several consecutive ones."""
    if len(deltas) == 1:
        return deltas[0]
    changed: set[int] = set()
    for delta in deltas:
        changed.update(delta.ids)
        yield
    ids = array("q", sorted(changed))
    indexes = dict(zip(ids, range(len(ids)), strict=True))
    changes: dict[str, array[int]] = {}
    for delta in deltas:
        yield
        positions = [indexes[number] for number in delta.ids]
        for name, column in delta.changes.items():
            yield
            total = changes.setdefault(name, array("q", bytes(NUMBER_BYTES * len(ids))))
            for index, change in zip(positions, column, strict=True):
                total[index] += change
    yield
    return Delta(deltas[0].began_ms, deltas[-1].ended_ms, ids, changes)


def run_steps(steps: Steps[WorkResult]) -> WorkResult:
    """Run all steps of a task at once; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return cast("WorkResult", done.value)


class Deltas:
    """The deltas of one kind of objects, the oldest first; wider ones before narrower ones."""

    def __init__(self, tiers: Sequence[Tier], bytes_max: int) -> None:
        """``bytes_max`` bounds the columns of all deltas; above it the oldest are dropped."""
        self._tiers = tuple(tiers)
        self._kept: list[deque[Delta]] = [deque() for _ in tiers]
        self._bytes_max = bytes_max
        self.size = 0

    def add(self, delta: Delta) -> Steps[None]:
        """Add the latest delta; deltas within one interval become one."""
        latest = self._kept[0]
        if latest and delta.ended_ms - latest[-1].began_ms <= SAMPLE_S * MS + EARLY_MS:
            delta = yield from join_deltas((latest[-1], delta))
            self._drop(latest, last=True)
        self._push(latest, delta)
        for index, tier in enumerate(self._tiers):
            yield from self._widen_old(index, tier, delta.ended_ms)
        while self.size > self._bytes_max and len(latest) > 1:
            self._drop(next(kept for kept in reversed(self._kept) if kept))

    def _widen_old(self, index: int, tier: Tier, now_ms: int) -> Steps[None]:
        """Join the deltas too old for a tier into wider ones of the next; the last drops them."""
        kept = self._kept[index]
        is_last = index + 1 == len(self._tiers)
        while kept and now_ms - kept[0].ended_ms > tier.kept_s * MS:
            if is_last:
                self._drop(kept)
                continue
            until_ms = kept[0].began_ms + self._tiers[index + 1].step_s * MS + EARLY_MS
            if kept[-1].ended_ms < until_ms:
                return
            old_deltas = [delta for delta in kept if delta.ended_ms <= until_ms] or [kept[0]]
            wide_delta = yield from join_deltas(old_deltas)
            for _ in old_deltas:
                self._drop(kept)
            self._push(self._kept[index + 1], wide_delta)

    def _push(self, kept: deque[Delta], delta: Delta) -> None:
        kept.append(delta)
        self.size += delta.size

    def _drop(self, kept: deque[Delta], *, last: bool = False) -> None:
        delta = kept.pop() if last else kept.popleft()
        self.size -= delta.size

    def latest_first(self) -> Iterator[Delta]:
        """Yield the deltas, the latest first."""
        for kept in self._kept:
            yield from reversed(kept)

    def recent(self, now_ms: int) -> list[Delta]:
        """Return the deltas of the last interval."""
        deltas = []
        for delta in self.latest_first():
            if delta.ended_ms <= now_ms - SAMPLE_S * MS + EARLY_MS:
                break
            deltas.append(delta)
        return deltas
