# SPDX-License-Identifier: Apache-2.0
"""The index of a headers exchange: bindings by the header values they ask for.

A condition is a header's name with a value, or with any value; bindings with the same condition
share it. Lookup goes through the message's headers whose names occur in conditions. A binding that
needs any of its conditions is listed under each of them. A binding that needs all of them is listed
under the one that the fewest others are listed under; only if that holds are the others checked,
newest first, because conditions of many bindings tend to be old.

The cost of a lookup depends on the message's headers and on the bindings listed under its
conditions, not on the number of bindings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.arguments.canonical import canonical
from headrace.model.arguments.memory_estimate import CONDITION, INDEXED, ITEM, value_octets
from headrace.model.exchange.binding import add_binding, destinations, remove_binding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.exchange.binding import Binding, Bound, Destination

Asked = tuple[str, object]  # A header's name and canonical value, or None for any value.


class Condition:
    """A condition shared by bindings."""

    __slots__ = ("all_of", "any_of", "number", "uses")

    def __init__(self, number: int) -> None:
        self.number = number
        self.uses = 0  # Number of bindings that have it.
        self.any_of: dict[int, Bound] | None = None  # Bindings that need only this one,
        # and bindings that need all of theirs.
        self.all_of: dict[tuple[Condition, ...], Bound] | None = None


_HERE = 0  # The only key of ``any_of``.


def order_of(condition: Condition) -> int:
    """Return the sort key of a binding's conditions, newest first."""
    return -condition.number


def rarity_of(condition: Condition) -> int:
    """Return the number of condition sets listed under a condition."""
    return 0 if condition.all_of is None else len(condition.all_of)


class HeadersIndex:
    """The conditions of one headers exchange."""

    def __init__(self) -> None:
        self.conditions: dict[Asked, Condition] = {}
        self.names: dict[str, int] = {}  # Number of conditions for each header name.
        self.made = 0  # Number of conditions ever made.
        self.looked_at = 0  # Condition sets checked; for tests.

    def add(self, binding: Binding, every: bool, asked: list[Asked]) -> None:
        """Add a binding with conditions; with ``every`` all of them must add_binding."""
        found = []
        for key in asked:
            condition = self.conditions.get(key)
            if condition is None:
                self.made += 1
                condition = self.conditions[key] = Condition(self.made)
                self.names[key[0]] = self.names.get(key[0], 0) + 1
            condition.uses += 1
            found.append(condition)
        if every:
            found.sort(key=order_of)
            needed = tuple(found)
            home = self._home(needed) or min(needed, key=rarity_of)
            if home.all_of is None:
                home.all_of = {}
            add_binding(home.all_of, needed, binding)
            return
        for condition in found:
            if condition.any_of is None:
                condition.any_of = {}
            add_binding(condition.any_of, _HERE, binding)

    def remove(self, binding: Binding, every: bool, asked: list[Asked]) -> None:
        """Remove a binding, and conditions that no other binding has."""
        found = [self.conditions[key] for key in asked]
        if every:
            needed = tuple(sorted(found, key=order_of))
            home = self._home(needed)
            if home is not None and home.all_of is not None:
                remove_binding(home.all_of, needed, binding)
                home.all_of = home.all_of or None
        for key, condition in zip(asked, found, strict=True):
            if not every and condition.any_of is not None:
                remove_binding(condition.any_of, _HERE, binding)
                condition.any_of = condition.any_of or None
            condition.uses -= 1
            if not condition.uses:
                del self.conditions[key]
                self.names[key[0]] -= 1
                if not self.names[key[0]]:
                    del self.names[key[0]]

    @staticmethod
    def _home(needed: tuple[Condition, ...]) -> Condition | None:
        """Return the condition under which a set of conditions is listed; None if it is not."""
        for condition in needed:
            if condition.all_of is not None and needed in condition.all_of:
                return condition
        return None

    def octets(self, every: bool, asked: list[Asked], values: Mapping[str, object]) -> int:
        """Return the memory of a binding in bytes; ``values`` are the values it asks for."""
        octets = (CONDITION + ITEM * len(asked)) if every else 0
        for key in asked:
            octets += 0 if key in self.conditions else INDEXED + value_octets(values[key[0]])
        return octets

    def match(self, headers: Mapping[str, object], into: dict[Destination, None]) -> None:
        """Add the destinations of the bindings that the headers satisfy."""
        names, conditions = self.names, self.conditions
        found: list[Condition] = []
        few = len(names) < len(headers)  # A message may have very many headers.
        for name in names if few else headers:
            if name not in (headers if few else names):
                continue
            value = headers[name]
            condition = conditions.get((name, None))
            if condition is not None:
                found.append(condition)
            if value is not None:
                condition = conditions.get((name, canonical(value)))
                if condition is not None:
                    found.append(condition)
        given = set(found)
        for condition in found:
            if condition.any_of is not None:
                destinations(condition.any_of[_HERE], into)
            if condition.all_of is not None:
                self.looked_at += len(condition.all_of)
                for needed, held in condition.all_of.items():
                    if given.issuperset(needed):
                        destinations(held, into)
