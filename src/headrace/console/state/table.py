# SPDX-License-Identifier: Apache-2.0
"""The objects of one kind in columns: fields as lists, numbers as arrays, with past values.

An object has a slot, its index in all columns. Slots of ended objects are reused; the ids (numbers)
of objects are not.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from operator import itemgetter, sub
from typing import TYPE_CHECKING, NamedTuple

from headrace.console.state.deltas import (
    EARLY_MS,
    MS,
    NUMBER_BYTES,
    SAMPLE_S,
    Delta,
    Deltas,
    Steps,
    Tier,
    join_deltas,
    make_delta,
)
from headrace.measures import GAUGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.untyped import JsonObject

POINTS_MAX = 500  # Samples of an answer.
UNKNOWN_MS = 0  # The time of the last change of an object that the first sample has.
NODE_FIELD = "node"  # The node of an object of another broker; None: the console's own broker.
Changes = dict[str, "Sequence[int]"]  # Changes by column.
LATE_MS = 1000  # A sample also gives the values of moments up to this long before it.


@dataclass(frozen=True, slots=True)
class Window:
    """The samples that a request selects: their age, and the time between two."""

    age_s: int
    incr_s: int


class Part(NamedTuple):
    """A part of a sample: some objects of a kind that changed."""

    ids: array[int]
    columns: Mapping[str, array[int]]
    fields: Sequence[str]
    new: Sequence[Sequence[object]]  # The id of an object, then the values of its fields.
    gone: Sequence[int]


class Table:
    """The objects of one kind."""

    def __init__(self, key: Sequence[str], tiers: Sequence[Tier], bytes_max: int) -> None:
        """``key`` has the fields that identify an object; the others are those of ``Deltas``."""
        self._key = tuple(key)
        self.deltas = Deltas(tiers, bytes_max)
        self.slots: dict[int, int] = {}  # Slots by id.
        self.ids = array("q")  # Ids by slot; 0 for a free slot.
        self.fields: dict[str, list[object]] = {}
        self.columns: dict[str, array[int]] = {}
        self.keys: list[str] = []
        self.by_key: dict[str, int] = {}
        self.born_ms = array("q")
        self.moved_ms = array("q")  # Unix time of the last change of a number; 0: unknown.
        self.now_ms = 0  # The Unix time of the last sample.
        self._free: list[int] = []
        self._ordered: list[int] | None = None
        self._parts: list[tuple[Sequence[int], Changes]] = []  # Parts of the incomplete sample.
        self._further: list[tuple[Sequence[int], Changes]] = []  # Further columns of its objects.
        self._ended: list[int] = []  # Slots of objects that ended in the incomplete sample.
        # Ids of objects whose key a new object has: another broker serves the object now.
        self._replaced: list[int] = []
        self._totals: dict[tuple[str, ...], Sequence[float]] = {}  # Dropped by the next sample.
        self._rates: dict[tuple[str, ...], Sequence[float]] = {}
        self._recent: list[Delta] | None = None

    def __len__(self) -> int:
        return len(self.slots)

    # --- Samples ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a sample; drop the parts of an incomplete one."""
        self._parts, self._further = [], []

    def add(self, part: Part, now_ms: int, *, more: bool = False) -> Changes:
        """Add a part of a sample; return the changes of its numbers, by column.

        A sample has each object in one part. A further part, with ``more`` set, may hold more
        columns of the same objects.
        """
        new = self._add_new(part, now_ms) if part.new else set()
        slots = [self.slots.get(number, -1) for number in part.ids]
        changes: Changes = {}
        if -1 in slots or not slots:
            self._remove_gone(part.gone)
            return changes
        for name, values in part.columns.items():
            column = self.columns.get(name)
            if column is None:
                column = self.columns[name] = array("q", bytes(NUMBER_BYTES * len(self.ids)))
            before = select_values(column, slots)
            after = tuple(values)
            if before == after:
                continue
            changes[name] = list(map(sub, after, before))
            for slot, value in zip(slots, after, strict=True):
                column[slot] = value
        for slot in slots:
            self.moved_ms[slot] = now_ms
        if not self.now_ms:
            for slot in new:
                self.moved_ms[slot] = UNKNOWN_MS
        if changes:
            (self._further if more else self._parts).append((part.ids, changes))
        self._remove_gone(part.gone)
        return changes

    def _add_new(self, part: Part, now_ms: int) -> set[int]:
        new_slots = set()
        for name in part.fields:
            if name not in self.fields:
                self.fields[name] = [None] * len(self.ids)
        lists = [self.fields[name] for name in part.fields]
        for row in part.new:
            number = require_int(row[0])
            slot = self.slots.get(number)
            if slot is None:
                slot = self._assign_slot(number)
                self.born_ms[slot] = self.now_ms or now_ms
                new_slots.add(slot)
            else:
                self.by_key.pop(self.keys[slot], None)
            for values, value in zip(lists, row[1:], strict=False):
                values[slot] = value or None if isinstance(value, dict) else value
            key = self.keys[slot] = object_key([self.fields[name][slot] for name in self._key])
            if (former := self.by_key.get(key, slot)) != slot:
                self._replaced.append(self.ids[former])
            self.by_key[key] = slot
        self._forget_derived()
        return new_slots

    def _assign_slot(self, number: int) -> int:
        if self._free:
            slot = self._free.pop()
            self.ids[slot] = number
            for column in self.columns.values():
                column[slot] = 0
            if NODE_FIELD in self.fields:  # The console's own broker does not send it.
                self.fields[NODE_FIELD][slot] = None
        else:
            slot = len(self.ids)
            self.ids.append(number)
            self.keys.append("")
            for column in (self.born_ms, self.moved_ms, *self.columns.values()):
                column.append(0)
            for values in self.fields.values():
                values.append(None)
        self.slots[number] = slot
        return slot

    def _remove_gone(self, gone: Sequence[int]) -> None:
        for number in gone:
            slot = self.slots.pop(number, None)
            if slot is None:
                continue
            self.ids[slot] = 0
            if self.by_key.get(self.keys[slot]) == slot:
                del self.by_key[self.keys[slot]]
            self._ended.append(slot)
            self._forget_derived()

    def _forget_derived(self) -> None:
        self._ordered = None
        self._totals.clear()
        self._rates.clear()

    def complete(self, now_ms: int) -> Steps[Delta | None]:
        """End a sample; return the changes since the last one."""
        delta = None
        if self.now_ms:
            delta = yield from make_delta(self.now_ms, now_ms, self._parts)
            if self._further:
                more = yield from make_delta(self.now_ms, now_ms, self._further)
                delta = yield from join_deltas((delta, more))
            yield from self.deltas.add(delta)
        self._parts, self._further = [], []
        self._remove_gone(self._replaced)
        self._replaced = []
        self._free += self._ended  # The next sample may reuse them.
        self._ended = []
        self.now_ms = now_ms
        self._recent = None
        self._totals.clear()
        self._rates.clear()
        return delta

    # --- Values for requests ---------------------------------------------------------------------

    def slots_in_order(self) -> list[int]:
        """Return the slots of all objects in the order of their keys; do not change the list."""
        if self._ordered is None:
            self._ordered = sorted(self.slots.values(), key=self.keys.__getitem__)
        return self._ordered

    def own_slots(self) -> list[int]:
        """Return the slots of the objects of the console's broker, in the order of their keys.

        Each broker of a cluster has its own metrics, which are added up.
        """
        nodes = self.fields.get(NODE_FIELD)
        slots = self.slots_in_order()
        return slots if nodes is None else [slot for slot in slots if not nodes[slot]]

    def find(self, *key: object) -> int | None:
        """Return the slot of the object with a key; None without one."""
        return self.by_key.get(object_key(key))

    def field(self, name: str, slot: int) -> object:
        """Return a field of an object; None if the broker does not send it."""
        values = self.fields.get(name)
        return None if values is None else values[slot]

    def text(self, name: str, slot: int) -> str:
        """Return a field that is text."""
        value = self.field(name, slot)
        return value if isinstance(value, str) else ""

    def number(self, slot: int, *columns: str) -> int:
        """Return the sum of columns; a column that the broker does not send counts as zero."""
        return sum(self.columns[name][slot] for name in columns if name in self.columns)

    def totals(self, columns: tuple[str, ...]) -> Sequence[float]:
        """Return the sum of columns for every slot; valid until the next sample."""
        totals = self._totals.get(columns)
        if totals is None:
            totals = self._totals[columns] = self._add_up(columns)
        return totals

    def _add_up(self, columns: tuple[str, ...]) -> array[int]:
        present = [self.columns[name] for name in columns if name in self.columns]
        if len(present) == 1:
            return present[0]
        if not present:
            return array("q", bytes(NUMBER_BYTES * len(self.ids)))
        return array("q", map(sum, zip(*present, strict=True)))

    def rates(self, columns: tuple[str, ...]) -> Sequence[float]:
        """Return the change per second of the sum of columns, for every slot."""
        rates = self._rates.get(columns)
        if rates is None:
            rates = self._rates[columns] = self._compute_rates(columns)
        return rates

    def _compute_rates(self, columns: tuple[str, ...]) -> array[float]:
        rates = array("d", bytes(NUMBER_BYTES * len(self.ids)))
        deltas = self.recent()
        seconds = span_s(deltas, self.now_ms)
        for delta in deltas:
            for name in columns:
                for number, change in zip(delta.ids, delta.changes.get(name, ()), strict=False):
                    slot = self.slots.get(number)
                    if slot is not None:
                        rates[slot] += change / seconds
        return rates

    def recent(self) -> list[Delta]:
        """Return the deltas of the last interval, from which rates are computed."""
        if self._recent is None:
            self._recent = self.deltas.recent(self.now_ms)
        return self._recent

    def since_ms(self) -> int:
        """Return the Unix time since which the deltas have all changes."""
        return min((delta.began_ms for delta in self.deltas.latest_first()), default=self.now_ms)

    def values_at(self, slot: int, columns: Sequence[str], moments_ms: Sequence[int]) -> list[int]:
        """Return the sum of columns at moments, the latest first.

        Before its first sample, and before the oldest delta, an object has its first known number.
        A sample also counts for moments up to ``LATE_MS`` before it.
        """
        number, born_ms = self.ids[slot], self.born_ms[slot]
        value = self.number(slot, *columns)
        deltas = self.deltas.latest_first()
        delta = next(deltas, None)
        sums = []
        for moment in moments_ms:
            while delta is not None and delta.ended_ms > max(moment + LATE_MS, born_ms):
                index = delta.find(number)
                if index >= 0:
                    value -= delta.change(index, columns)
                delta = next(deltas, None)
            sums.append(value)
        return sums

    def counts_at(
        self, slot: int, columns: Sequence[str], moments_ms: Sequence[int]
    ) -> list[float]:
        """Return the sum of counters at moments, the latest first.

        Between two samples a counter is taken to grow evenly.
        """
        number, born_ms = self.ids[slot], self.born_ms[slot]
        value = self.number(slot, *columns)
        deltas = self.deltas.latest_first()
        delta, change = self._next_change(number, columns, deltas)
        sums = []
        for moment in moments_ms:
            since_ms = max(moment, born_ms)
            while delta is not None and delta.began_ms >= since_ms:
                value -= change
                delta, change = self._next_change(number, columns, deltas)
            later = 0.0
            if delta is not None and delta.ended_ms > since_ms:
                later = change * (delta.ended_ms - since_ms) / (delta.ended_ms - delta.began_ms)
            sums.append(value - later)
        return sums

    @staticmethod
    def _next_change(
        number: int, columns: Sequence[str], deltas: Iterator[Delta]
    ) -> tuple[Delta | None, int]:
        """Return the next earlier delta and the change of an object in it; None at the end."""
        delta = next(deltas, None)
        index = -1 if delta is None else delta.find(number)
        return delta, 0 if delta is None or index < 0 else delta.change(index, columns)


class SampledObject:
    """One object and its rates, as of the last sample."""

    __slots__ = ("_recent", "slot", "table")

    def __init__(self, table: Table, slot: int) -> None:
        self.table = table
        self.slot = slot
        self._recent: list[tuple[Delta, int]] | None = None

    @property
    def row(self) -> JsonObject:
        """Fields and numbers, by the names of the operation ``sample``."""
        table, slot = self.table, self.slot
        row: JsonObject = {name: values[slot] for name, values in table.fields.items()}
        row.update((name, column[slot]) for name, column in table.columns.items())
        return row

    @property
    def moved_ms(self) -> int:
        """The Unix time of the last change of its numbers; 0 if none since the first sample."""
        return self.table.moved_ms[self.slot]

    @property
    def born_ms(self) -> int:
        """The Unix time of the first sample with the object."""
        return self.table.born_ms[self.slot]

    def text(self, name: str) -> str:
        """Return a field that is text; empty if the broker does not send it."""
        return self.table.text(name, self.slot)

    @property
    def node(self) -> str:
        """The name of the node that serves the object; empty for the console's own broker."""
        return self.table.text(NODE_FIELD, self.slot)

    def number(self, *columns: str) -> int:
        """Return the sum of columns; a column that the broker does not send counts as zero."""
        return self.table.number(self.slot, *columns)

    def _recent_changes(self) -> list[tuple[Delta, int]]:
        """Return the deltas of the last interval with the object, and its index in each."""
        if self._recent is None:
            number = self.table.ids[self.slot]
            places = [(delta, delta.find(number)) for delta in self.table.recent()]
            self._recent = [(delta, index) for delta, index in places if index >= 0]
        return self._recent

    def is_idle(self) -> bool:
        """Return True if nothing changed in the last interval: all its rates are zero."""
        return not self._recent_changes()

    def rate(self, *columns: str) -> float:
        """Return the change per second of the sum of columns, over the last interval."""
        change = sum([delta.change(index, columns) for delta, index in self._recent_changes()])
        if not change:
            return 0.0
        return change / span_s(self.table.recent(), self.table.now_ms)

    def details(self, columns: Sequence[str], window: Window | None) -> dict[str, object]:
        """Return the rate of the sum of columns; with a window also averages and samples.

        The samples are in the order of time, the newest first.
        """
        details: dict[str, object] = {"rate": self.rate(*columns)}
        if window is None:
            return details
        step = window.incr_s * MS
        latest = self.table.now_ms - self.table.now_ms % (SAMPLE_S * MS)
        moments = [latest - step * number for number in range(window.age_s // window.incr_s + 1)]
        values: Sequence[float] = self.table.values_at(self.slot, columns, moments)
        if GAUGES.isdisjoint(columns):
            values = [round(value) for value in self.table.counts_at(self.slot, columns, moments)]
        seconds = (moments[0] - moments[-1]) / MS
        details["avg"] = sum(values) / len(values)
        details["avg_rate"] = (values[0] - values[-1]) / seconds if seconds else 0.0
        details["samples"] = [
            {"sample": value, "timestamp": at} for value, at in zip(values, moments, strict=True)
        ]
        return details


def select_values(column: array[int], slots: Sequence[int]) -> tuple[int, ...]:
    """Return the values of a column at some slots."""
    if len(slots) == 1:
        return (column[slots[0]],)
    values: tuple[int, ...] = itemgetter(*slots)(column)
    return values


def span_s(deltas: Sequence[Delta], now_ms: int) -> float:
    """Return the seconds that deltas cover, the latest first; at least one interval."""
    covered_ms = now_ms - deltas[-1].began_ms if deltas else 0
    return covered_ms / MS if covered_ms >= SAMPLE_S * MS - EARLY_MS else SAMPLE_S


def object_key(values: Sequence[object]) -> str:
    """Return the key of an object as a text; keys of numbers sort by value."""
    return "\0".join(f"{value:020d}" if isinstance(value, int) else str(value) for value in values)


def require_int(value: object) -> int:
    """Return a value that must be an integer.

    Raises:
        TypeError: the value is not an integer.
    """
    if not isinstance(value, int):
        raise TypeError(f"{value!r:.64} is not an integer")
    return value
