# SPDX-License-Identifier: Apache-2.0
"""Which bindings of a headers exchange a message's headers satisfy.

A condition is a header's name with a value, or with any value; bindings that ask for the same share
it. A message is looked up by those of its headers whose names are asked for. A binding that any of
its conditions satisfies stands with each of them. One that needs all stands with the one that the
fewest others stand with, and only where that holds are its other conditions looked at, those that
were asked for last first: what many bindings ask for, as a rule, was asked for early.

Cost. What a lookup takes follows from the message's headers and from the bindings that stand with
its conditions, not from how many bindings there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.arguments.canonical import canonical
from headrace.model.arguments.memory_estimate import CONDITION, INDEXED, ITEM, value_octets
from headrace.model.exchange.binding import destinations, drop, hold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.exchange.binding import Binding, Bound, Destination

Asked = tuple[str, object]  # A header's name, and its canonical value, or None for any value.


class Condition:
    """What some bindings ask for."""

    __slots__ = ("all_of", "any_of", "number", "uses")

    def __init__(self, number: int) -> None:
        self.number = number
        self.uses = 0  # Bindings that ask for it.
        self.any_of: dict[int, Bound] | None = None  # Those to which it is enough,
        self.all_of: dict[tuple[Condition, ...], Bound] | None = None  # and those that need all.


_HERE = 0  # The one key of ``any_of``.


def order_of(condition: Condition) -> int:
    """Return what the conditions of a binding are sorted by: the newest is first."""
    return -condition.number


def rarity_of(condition: Condition) -> int:
    """Return how many sets of conditions stand with one."""
    return 0 if condition.all_of is None else len(condition.all_of)


class HeadersIndex:
    """The conditions of all bindings of one headers exchange."""

    def __init__(self) -> None:
        self.conditions: dict[Asked, Condition] = {}
        self.names: dict[str, int] = {}  # How many conditions there are of each header.
        self.made = 0  # So many conditions were made.
        self.looked_at = 0  # Sets of conditions that were looked at; for tests.

    def add(self, binding: Binding, every: bool, asked: list[Asked]) -> None:
        """Add a binding that asks for something; ``every`` says that all of it must hold."""
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
            hold(home.all_of, needed, binding)
            return
        for condition in found:
            if condition.any_of is None:
                condition.any_of = {}
            hold(condition.any_of, _HERE, binding)

    def remove(self, binding: Binding, every: bool, asked: list[Asked]) -> None:
        """Remove a binding, and the conditions that only it asked for."""
        found = [self.conditions[key] for key in asked]
        if every:
            needed = tuple(sorted(found, key=order_of))
            home = self._home(needed)
            if home is not None and home.all_of is not None:
                drop(home.all_of, needed, binding)
                home.all_of = home.all_of or None
        for key, condition in zip(asked, found, strict=True):
            if not every and condition.any_of is not None:
                drop(condition.any_of, _HERE, binding)
                condition.any_of = condition.any_of or None
            condition.uses -= 1
            if not condition.uses:
                del self.conditions[key]
                self.names[key[0]] -= 1
                if not self.names[key[0]]:
                    del self.names[key[0]]

    @staticmethod
    def _home(needed: tuple[Condition, ...]) -> Condition | None:
        """Return the condition with which a set of them stands, if one does."""
        for condition in needed:
            if condition.all_of is not None and needed in condition.all_of:
                return condition
        return None

    def octets(self, every: bool, asked: list[Asked], values: Mapping[str, object]) -> int:
        """What a binding takes in memory; ``values`` are the arguments that it asks with."""
        octets = (CONDITION + ITEM * len(asked)) if every else 0
        for key in asked:
            octets += 0 if key in self.conditions else INDEXED + value_octets(values[key[0]])
        return octets

    def match(self, headers: Mapping[str, object], into: dict[Destination, None]) -> None:
        """Add where the bindings lead that headers satisfy."""
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
