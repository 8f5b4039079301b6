# SPDX-License-Identifier: Apache-2.0
"""The headers exchange (``x-match``), and its index: bindings by the header values they match.

A condition is a header's name with a value, or with any value; bindings with the same condition
share it. A lookup reads the headers of the message whose names occur in conditions. A binding that
needs any of its conditions is listed under each of them. A binding that needs all of them is listed
under the condition with the fewest entries. If a message meets that condition, the binding's other
conditions are checked, newest first, since conditions that many bindings share tend to be old.

The cost of a lookup depends on the message's headers and on the bindings listed under its
conditions, not on the number of bindings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from headrace.model.arguments.canonical import canonical
from headrace.model.arguments.consumer import SELECTORS
from headrace.model.arguments.memory_estimate import CONDITION, INDEXED, ITEM, value_memory
from headrace.model.arguments.values import format_value, type_name
from headrace.model.errors import InvalidArgument
from headrace.model.exchange.binding import add_binding, add_destinations, remove_binding
from headrace.model.exchange.exchange import Exchange, ExchangeProperties, Headers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.exchange.binding import Binding, BindingDestination, BindingEntry

X_MATCH = "x-match"

Criterion = tuple[str, object]  # A header's name and canonical value, or None for any value.


class Condition:
    """A header's name and value, or any value, which bindings share as a condition."""

    __slots__ = ("all_of", "any_of", "number", "uses")

    def __init__(self, number: int) -> None:
        self.number = number
        self.uses = 0  # Number of bindings that have the condition.
        self.any_of: dict[int, BindingEntry] | None = None  # Bindings that need one condition.
        # Bindings that need all of their conditions.
        self.all_of: dict[tuple[Condition, ...], BindingEntry] | None = None


_ONLY_KEY = 0  # The only key of ``any_of``.


def age_sort_key(condition: Condition) -> int:
    """Return the sort key of a binding's conditions, newest first."""
    return -condition.number


def set_count(condition: Condition) -> int:
    """Return the number of condition sets listed under a condition."""
    return 0 if condition.all_of is None else len(condition.all_of)


class HeadersIndex:
    """The conditions of one headers exchange."""

    def __init__(self) -> None:
        self.conditions: dict[Criterion, Condition] = {}
        self.names: dict[str, int] = {}  # Number of conditions for each header name.
        self.last_number = 0  # The number of the newest condition.
        self.sets_checked = 0  # Condition sets checked; for tests.

    def add(self, binding: Binding, match_all: bool, criteria: list[Criterion]) -> None:
        """Add a binding with conditions; with ``match_all`` a message must meet all of them."""
        conditions = []
        for key in criteria:
            condition = self.conditions.get(key)
            if condition is None:
                self.last_number += 1
                condition = self.conditions[key] = Condition(self.last_number)
                self.names[key[0]] = self.names.get(key[0], 0) + 1
            condition.uses += 1
            conditions.append(condition)
        if match_all:
            conditions.sort(key=age_sort_key)
            condition_set = tuple(conditions)
            home = self._home(condition_set) or min(condition_set, key=set_count)
            if home.all_of is None:
                home.all_of = {}
            add_binding(home.all_of, condition_set, binding)
            return
        for condition in conditions:
            if condition.any_of is None:
                condition.any_of = {}
            add_binding(condition.any_of, _ONLY_KEY, binding)

    def remove(self, binding: Binding, match_all: bool, criteria: list[Criterion]) -> None:
        """Remove a binding, and conditions that no other binding has."""
        conditions = [self.conditions[key] for key in criteria]
        if match_all:
            condition_set = tuple(sorted(conditions, key=age_sort_key))
            home = self._home(condition_set)
            if home is not None and home.all_of is not None:
                remove_binding(home.all_of, condition_set, binding)
                home.all_of = home.all_of or None
        for key, condition in zip(criteria, conditions, strict=True):
            if not match_all and condition.any_of is not None:
                remove_binding(condition.any_of, _ONLY_KEY, binding)
                condition.any_of = condition.any_of or None
            condition.uses -= 1
            if not condition.uses:
                del self.conditions[key]
                self.names[key[0]] -= 1
                if not self.names[key[0]]:
                    del self.names[key[0]]

    @staticmethod
    def _home(condition_set: tuple[Condition, ...]) -> Condition | None:
        """Return the condition under which a set of conditions is listed; None if it is not."""
        for condition in condition_set:
            if condition.all_of is not None and condition_set in condition.all_of:
                return condition
        return None

    def memory(
        self, match_all: bool, criteria: list[Criterion], values: Mapping[str, object]
    ) -> int:
        """Return the memory of a binding in bytes; ``values`` are the values it matches."""
        memory = (CONDITION + ITEM * len(criteria)) if match_all else 0
        for key in criteria:
            memory += 0 if key in self.conditions else INDEXED + value_memory(values[key[0]])
        return memory

    def match(self, headers: Mapping[str, object], matched: dict[BindingDestination, None]) -> None:
        """Add the destinations of the bindings that the headers satisfy."""
        names, conditions = self.names, self.conditions
        satisfied: list[Condition] = []
        fewer_names = len(names) < len(headers)  # A message may have very many headers.
        for name in names if fewer_names else headers:
            if name not in (headers if fewer_names else names):
                continue
            value = headers[name]
            condition = conditions.get((name, None))
            if condition is not None:
                satisfied.append(condition)
            if value is not None:
                condition = conditions.get((name, canonical(value)))
                if condition is not None:
                    satisfied.append(condition)
        satisfied_set = set(satisfied)
        for condition in satisfied:
            if condition.any_of is not None:
                add_destinations(condition.any_of[_ONLY_KEY], matched)
            if condition.all_of is not None:
                self.sets_checked += len(condition.all_of)
                for condition_set, entry in condition.all_of.items():
                    if satisfied_set.issuperset(condition_set):
                        add_destinations(entry, matched)


class HeadersExchange(Exchange):
    """Matches bindings whose arguments occur among the message's headers."""

    type = "headers"
    cacheable = False
    reads_arguments = True
    supports_selectors = True
    unindexes_later = True

    def __init__(self, name: str, **properties: Unpack[ExchangeProperties]) -> None:
        super().__init__(name, **properties)
        self.conditions = HeadersIndex()
        self._unconditional: dict[Binding, None] = {}

    def check(self, routing_key: str, arguments: Mapping[str, object]) -> None:
        match = arguments.get(X_MATCH, "all")
        if not isinstance(match, str):
            raise InvalidArgument(
                f"Invalid x-match field type {type_name(match)} (value {format_value(match)}); "
                "expected longstr"
            )
        if match not in ("all", "any", "all-with-x", "any-with-x"):
            text = f'<<"{match}">>' if match else "<<>>"
            raise InvalidArgument(
                f"Invalid x-match field value {text}; expected all, any, all-with-x, or any-with-x"
            )

    def match(
        self, routing_key: str, headers: Headers, matched: dict[BindingDestination, None]
    ) -> None:
        for binding in self._unconditional:
            matched[binding.destination] = None
        if self.conditions.names:
            self.conditions.match(headers(), matched)

    def index_memory(self, binding: Binding) -> int:
        return self.conditions.memory(*conditions(binding), binding.arguments or {})

    def _add_to_index(self, binding: Binding) -> None:
        match_all, criteria = conditions(binding)
        if criteria:
            self.conditions.add(binding, match_all, criteria)
        elif match_all:
            self._unconditional[binding] = None

    def _remove_from_index(self, binding: Binding) -> None:
        match_all, criteria = conditions(binding)
        if criteria:
            self.conditions.remove(binding, match_all, criteria)
        else:
            self._unconditional.pop(binding, None)


def conditions(binding: Binding) -> tuple[bool, list[Criterion]]:
    """Return a binding's ``x-match``, True for all, and its criteria."""
    arguments = binding.arguments or {}
    match = str(arguments.get(X_MATCH, "all"))
    with_x = match.endswith("-with-x")
    criteria = [
        (name, canonical(value))
        for name, value in arguments.items()
        if name != X_MATCH and name not in SELECTORS and (with_x or not name.startswith("x-"))
    ]
    return match.startswith("all"), criteria
