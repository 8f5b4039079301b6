# SPDX-License-Identifier: Apache-2.0
"""Sums over connections by virtual host and by user, which include ended connections."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from headrace.console.state.table import Part

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.console.state.table import Changes, Table

KEYS_MAX = 10_000  # Users that are counted; tokens may name any number of users.


class ConnectionSums:
    """Sums of columns of connections, by the value of one of their fields."""

    def __init__(self, field: str, columns: Collection[str]) -> None:
        self._field = field
        self._columns = tuple(columns)
        self._sums: dict[str, dict[str, int]] = {}
        self._ids: dict[str, int] = {}
        self._changed: set[str] = set()  # Keys whose sums no table has yet.

    def count(self, connections: Table, part: Part, changes: Changes) -> None:
        """Add the changes of a part of the connections."""
        columns = [(name, changes[name]) for name in self._columns if name in changes]
        for index, number in enumerate(part.ids):
            key = connections.text(self._field, connections.slots[number])
            if key not in self._sums and len(self._sums) >= KEYS_MAX:
                continue
            sums = self._sums.setdefault(key, {})
            self._changed.add(key)
            for name, column in columns:
                sums[name] = sums.get(name, 0) + column[index]

    def add_to(self, table: Table, now_ms: int) -> None:
        """Put the changed sums into the objects of a table that are named by the keys."""
        slots = [(key, slot) for key in self._changed if (slot := table.find(key)) is not None]
        self._changed.difference_update(key for key, _ in slots)
        if slots:
            ids = array("q", [table.ids[slot] for _, slot in slots])
            columns = self._sum_columns([key for key, _ in slots])
            table.add(Part(ids, columns, (), (), ()), now_ms, more=True)

    def add_objects(self, table: Table, now_ms: int) -> None:
        """Put the changed sums into a table, with a new object for each new key."""
        keys, self._changed = sorted(self._changed), set()
        new = [key for key in keys if key not in self._ids]
        for key in new:
            self._ids[key] = len(self._ids) + 1
        ids = array("q", [self._ids[key] for key in keys])
        if keys:
            rows = [(self._ids[key], key) for key in new]
            table.add(Part(ids, self._sum_columns(keys), ("name",), rows, ()), now_ms)

    def _sum_columns(self, keys: list[str]) -> dict[str, array[int]]:
        return {
            name: array("q", [self._sums[key].get(name, 0) for key in keys])
            for name in self._columns
        }
