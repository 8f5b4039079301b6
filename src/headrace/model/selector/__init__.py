# SPDX-License-Identifier: Apache-2.0
"""Message selectors: the conditional expressions of JMS, a subset of SQL-92.

    >>> compile_selector("colour = 'red' AND weight BETWEEN 2 AND 5").matches({"colour": "red"})
    False

A text is parsed once and becomes Python closures; no part of it is run as code. A selector is
bounded in characters, conditions, depth and values of a list, and a LIKE takes time linear in the
text that it is compared with.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from headrace.model.errors import InvalidArgument
from headrace.model.selector.build import LENGTH_MAX, Evaluate, SelectorError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.selector.values import Values

SELECTORS_CACHED_MAX = 256  # Compiled selectors in the cache.


class Selector:
    """A selector that was parsed and compiled once, to be evaluated for each message."""

    __slots__ = ("_evaluate", "names", "text")

    def __init__(self, text: str, names: frozenset[str], evaluate: Evaluate) -> None:
        self.text = text
        self.names = names  # The headers and properties that the selector reads.
        self._evaluate = evaluate

    def __repr__(self) -> str:
        return f"<Selector {self.text!r}>"

    def matches(self, values: Values | Mapping[str, object]) -> bool:
        """Return True if the selector accepts a message; unknown counts as False."""
        return self._evaluate(values) is True

    def truth(self, values: Values | Mapping[str, object]) -> bool | None:
        """Return True, False, or None for unknown."""
        truth: bool | None = self._evaluate(values)
        return truth


def compile_selector(text: str) -> Selector:
    """Compile a selector.

    Raises:
        InvalidArgument: the selector is malformed; the text gives the position, from 1.
    """
    if len(text) > LENGTH_MAX:
        raise InvalidArgument(
            f"invalid selector: {len(text)} characters are more than {LENGTH_MAX}"
        )
    return _compile(text)


@lru_cache(maxsize=SELECTORS_CACHED_MAX)
def _compile(text: str) -> Selector:
    from headrace.model.selector.grammar import (
        parse,
    )  # Imported on first use: the import of lark is slow.

    try:
        names, evaluate = parse(text)
    except SelectorError as error:
        raise InvalidArgument(
            f"invalid selector: {error.reason} at position {error.offset + 1}"
        ) from None
    return Selector(text, names, evaluate)
