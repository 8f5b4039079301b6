# SPDX-License-Identifier: Apache-2.0
"""Builds closures that evaluate a selector.

A closure takes the values of a message and returns a value; the closure of a condition returns
True, False or None for unknown. The result of a comparison with a missing value is unknown, and so
is arithmetic with operands that are not numbers, division by zero, or overflow of a long. Comparing
values of different types is False.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from headrace.model.selector.like import LikePattern
from headrace.model.selector.values import (
    BOOLEAN,
    KINDS,
    LONG_MAX,
    LONG_MIN,
    NUMBER,
    OTHER,
    STRING,
    Values,
    exact,
    plain,
)

LENGTH_MAX = 4096  # Characters of a selector.
TERMS_MAX = 256  # Operators and conditions of a selector.
DEPTH_MAX = 64  # Levels of nesting.
LIST_MAX = 256  # Values of one IN.

# A value of a message, or None for unknown. Any: operators look the type up in KINDS first, which
# is faster than a call that narrows the type.
Value: TypeAlias = Any
Evaluate: TypeAlias = Callable[[Values], Value]

ANY = -1  # The type of an identifier's value, which depends on the message.
NAMES = {NUMBER: "a number", STRING: "a string", BOOLEAN: "a condition"}
ORDERED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
SIGNS: dict[str, Callable[[Value], Value]] = {"+": operator.pos, "-": operator.neg}


class SelectorError(Exception):
    """A text is not a selector."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset  # Index of the character.


class Node(NamedTuple):
    """A part of a selector."""

    evaluate: Evaluate
    kind: int  # NUMBER, STRING, BOOLEAN or ANY.
    offset: int  # Index of its first character.
    depth: int = 1
    terms: int = 0  # Number of operators and conditions.
    value: Value = None  # The value of a literal.
    name: str = ""  # The name of an identifier.
    names: frozenset[str] = frozenset()  # Headers and properties it reads.


class Builder:
    """Builds selectors from the inside out."""

    # --- Values -----------------------------------------------------------------------------

    def literal(self, value: Value, offset: int) -> Node:
        """Build a literal."""
        if isinstance(value, float) and math.isinf(value):
            raise SelectorError("a number that is too large", offset)
        if type(value) is int and value > LONG_MAX + 1:
            raise SelectorError("a number that is too large", offset)
        return Node(_always(value), KINDS[type(value)], offset, value=value)

    def identifier(self, name: str, offset: int) -> Node:
        """Build the value of a property or header."""

        def read(values: Values) -> Value:
            return plain(values.get(name))

        return Node(read, ANY, offset, name=name, names=frozenset((name,)))

    def sign(self, sign: str, node: Node, offset: int) -> Node:
        """Build a signed number."""
        self._check_type(node, NUMBER, low=sign == "-")
        apply, evaluate = SIGNS[sign], node.evaluate
        if node.value is not None:
            value = apply(node.value)
            return Node(_always(value), NUMBER, offset, value=value)

        def signed(values: Values) -> Value:
            value = evaluate(values)
            if KINDS.get(type(value)) != NUMBER:
                return None
            return exact(apply(value)) if type(value) is int else apply(value)

        return self._node(signed, NUMBER, offset, node)

    def arithmetic(self, first: Node, operands: Sequence[tuple[str, Node]]) -> Node:
        """Build a sum or a product, evaluated from left to right."""
        for node in (first, *(node for _, node in operands)):
            self._check_type(node, NUMBER)
        start = first.evaluate
        steps = [(ARITHMETIC[sign], node.evaluate) for sign, node in operands]

        def calculate(values: Values) -> Value:
            result = start(values)
            if KINDS.get(type(result)) != NUMBER:
                return None
            for apply, evaluate in steps:
                value = evaluate(values)
                if KINDS.get(type(value)) != NUMBER:
                    return None
                result = apply(result, value)
                if result is None:
                    return None
            return result

        nodes = [first, *(node for _, node in operands)]
        return self._node(calculate, NUMBER, first.offset, *nodes, terms=len(operands))

    # --- Conditions -------------------------------------------------------------------------

    def compare(self, left: Node, sign: str, right: Node) -> Node:
        """Build a comparison."""
        self._check_long(left)
        self._check_long(right)
        if left.kind != ANY and right.kind != ANY and left.kind != right.kind:
            raise SelectorError(f"{NAMES[right.kind]} is never {NAMES[left.kind]}:", right.offset)
        if sign in ORDERED:
            for node in (left, right):
                if node.kind in (STRING, BOOLEAN):
                    raise SelectorError(f"{NAMES[node.kind]} has no order:", node.offset)
            evaluate = _ordered(left.evaluate, right.evaluate, ORDERED[sign])
        elif sign == "=":
            evaluate = _equal(left.evaluate, right.evaluate)
        else:
            evaluate = _unequal(left.evaluate, right.evaluate)
        return self._node(evaluate, BOOLEAN, left.offset, left, right)

    def between(self, node: Node, low: Node, high: Node) -> Node:
        """Build a BETWEEN: a number in a closed range."""
        for number in (node, low, high):
            self._check_type(number, NUMBER)
        above = _ordered(node.evaluate, low.evaluate, operator.ge)
        below = _ordered(node.evaluate, high.evaluate, operator.le)
        return self._node(_all((above, below)), BOOLEAN, node.offset, node, low, high)

    def among(self, node: Node, items: Sequence[Node]) -> Node:
        """Build an IN: a value of a list."""
        if not node.name:
            raise SelectorError("only an identifier is IN a list:", node.offset)
        if len(items) > LIST_MAX:
            raise SelectorError(f"a list of more than {LIST_MAX} values", items[LIST_MAX].offset)
        for item in items:
            self._check_long(item)
        allowed = frozenset((item.kind, item.value) for item in items)
        read = node.evaluate

        def is_among(values: Values) -> bool | None:
            value = read(values)
            if value is None:
                return None
            kind = KINDS.get(type(value), OTHER)
            return kind != OTHER and (kind, value) in allowed

        return self._node(is_among, BOOLEAN, node.offset, node)

    def like(self, node: Node, pattern: Node, escape: Node | None) -> Node:
        """Build a LIKE."""
        if not node.name:
            raise SelectorError("only an identifier is LIKE a pattern:", node.offset)
        if escape is not None and len(escape.value) != 1:
            raise SelectorError("an ESCAPE that is not one character", escape.offset)
        try:
            matches = LikePattern(pattern.value, None if escape is None else escape.value).matches
        except ValueError as error:
            raise SelectorError(str(error), pattern.offset) from None
        read = node.evaluate

        def is_like(values: Values) -> bool | None:
            value = read(values)
            if value is None:
                return None
            return type(value) is str and matches(value)

        return self._node(is_like, BOOLEAN, node.offset, node)

    def null(self, node: Node) -> Node:
        """Build an IS NULL, which is never unknown."""
        if not node.name:
            raise SelectorError("only an identifier IS NULL or not:", node.offset)
        read = node.evaluate
        return self._node(lambda values: read(values) is None, BOOLEAN, node.offset, node)

    def conjunction(self, nodes: Sequence[Node]) -> Node:
        """Build an AND."""
        return self._node(
            _all(self._conditions(nodes)), BOOLEAN, nodes[0].offset, *nodes, terms=len(nodes) - 1
        )

    def disjunction(self, nodes: Sequence[Node]) -> Node:
        """Build an OR."""
        return self._node(
            _any(self._conditions(nodes)), BOOLEAN, nodes[0].offset, *nodes, terms=len(nodes) - 1
        )

    def inverse(self, node: Node, offset: int) -> Node:
        """Build a NOT; unknown stays unknown."""
        (evaluate,) = self._conditions((node,))

        def inverted(values: Values) -> bool | None:
            truth = evaluate(values)
            return None if truth is None else not truth

        return self._node(inverted, BOOLEAN, offset, node)

    def finish(self, node: Node) -> tuple[frozenset[str], Evaluate]:
        """Return the names that a selector reads, and its closure."""
        (evaluate,) = self._conditions((node,))
        return node.names, evaluate

    # --- Checks -----------------------------------------------------------------------------

    def _node(
        self, evaluate: Evaluate, kind: int, offset: int, *nodes: Node, terms: int = 1
    ) -> Node:
        terms += sum([node.terms for node in nodes])
        if terms > TERMS_MAX:
            raise SelectorError(f"more than {TERMS_MAX} operators", offset)
        depth = 1 + max(node.depth for node in nodes)
        if depth > DEPTH_MAX:
            raise SelectorError(f"nesting deeper than {DEPTH_MAX}", offset)
        names = frozenset().union(*[node.names for node in nodes])
        return Node(evaluate, kind, offset, depth, terms, names=names)

    def _check_type(self, node: Node, kind: int, *, low: bool = False) -> None:
        """Refuse an operand that can never be of a kind."""
        if node.kind not in (kind, ANY):
            raise SelectorError(f"{NAMES[node.kind]} where {NAMES[kind]} must be", node.offset)
        if not low:
            self._check_long(node)

    def _check_long(self, node: Node) -> None:
        """Refuse 2**63, which fits a long only with a minus sign."""
        if type(node.value) is int and not LONG_MIN <= node.value <= LONG_MAX:
            raise SelectorError("a number that is too large", node.offset)

    def _conditions(self, nodes: Sequence[Node]) -> tuple[Evaluate, ...]:
        for node in nodes:
            self._check_type(node, BOOLEAN)
        return tuple(_truth(node) for node in nodes)


def _always(value: Value) -> Evaluate:
    return lambda _: value


def _truth(node: Node) -> Evaluate:
    """Build a condition from a value; other types than boolean are unknown."""
    evaluate = node.evaluate
    if node.kind == BOOLEAN:
        return evaluate

    def truth(values: Values) -> bool | None:
        value = evaluate(values)
        return value if type(value) is bool else None

    return truth


def _all(conditions: Sequence[Evaluate]) -> Evaluate:
    def every(values: Values) -> bool | None:
        result: bool | None = True
        for condition in conditions:
            truth = condition(values)
            if truth is False:
                return False
            if truth is None:
                result = None
        return result

    return every


def _any(conditions: Sequence[Evaluate]) -> Evaluate:
    def some(values: Values) -> bool | None:
        result: bool | None = False
        for condition in conditions:
            truth = condition(values)
            if truth is True:
                return True
            if truth is None:
                result = None
        return result

    return some


def _equal(left: Evaluate, right: Evaluate) -> Evaluate:
    def equal(values: Values) -> bool | None:
        a = left(values)
        b = right(values)
        if a is None or b is None:
            return None
        kind = KINDS.get(type(a), OTHER)
        return kind != OTHER and kind == KINDS.get(type(b), OTHER) and a == b

    return equal


def _unequal(left: Evaluate, right: Evaluate) -> Evaluate:
    def unequal(values: Values) -> bool | None:
        a = left(values)
        b = right(values)
        if a is None or b is None:
            return None
        kind = KINDS.get(type(a), OTHER)
        return kind != OTHER and kind == KINDS.get(type(b), OTHER) and a != b

    return unequal


def _ordered(left: Evaluate, right: Evaluate, holds: Callable[[Value, Value], bool]) -> Evaluate:
    def ordered(values: Values) -> bool | None:
        a = left(values)
        b = right(values)
        if a is None or b is None:
            return None
        if KINDS.get(type(a)) != NUMBER or KINDS.get(type(b)) != NUMBER:
            return False
        return holds(a, b)

    return ordered


def _arithmetic(apply: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    def calculate(a: Value, b: Value) -> Value:
        if type(a) is int and type(b) is int:
            return exact(apply(a, b))
        try:
            return apply(float(a), float(b))
        except OverflowError:
            return None

    return calculate


def _divide(a: Value, b: Value) -> Value:
    """Divide as in Java: integers round towards zero."""
    if b == 0:
        return None
    if type(a) is int and type(b) is int:
        return exact(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))
    return float(a) / float(b)


def _remainder(a: Value, b: Value) -> Value:
    """Return the remainder as in Java, with the sign of the dividend."""
    if b == 0:
        return None
    if type(a) is int and type(b) is int:
        return abs(a) % abs(b) * (-1 if a < 0 else 1)
    try:
        return math.fmod(a, b)
    except (ValueError, OverflowError):
        return None


ARITHMETIC: dict[str, Callable[[Value, Value], Value]] = {
    "+": _arithmetic(operator.add),
    "-": _arithmetic(operator.sub),
    "*": _arithmetic(operator.mul),
    "/": _divide,
    "%": _remainder,
}
