# SPDX-License-Identifier: Apache-2.0
"""The patterns of LIKE: ``_`` is any character, ``%`` any characters, the rest is itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import re2

if TYPE_CHECKING:
    from collections.abc import Callable

_ONE, _MANY = 1, 2  # Among the characters of a pattern.


class Pattern:
    """A pattern. Comparing takes time linear in the text, whatever the pattern is."""

    __slots__ = ("matches",)

    def __init__(self, text: str, escape: str | None) -> None:
        """``escape`` is the character that makes the next one stand for itself.

        Raises:
            ValueError: the pattern ends with the escape character, or is too large.
        """
        self.matches: Callable[[str], bool] = _matcher(_parts(text, escape))


def _parts(text: str, escape: str | None) -> list[str | int]:
    """Return literal texts and what stands between them."""
    parts: list[str | int] = []
    literal: list[str] = []
    escaped = False
    for character in text:
        if escaped:
            literal.append(character)
            escaped = False
        elif character == escape:
            escaped = True
        elif character in "_%":
            if literal:
                parts.append("".join(literal))
                literal.clear()
            if character == "_":
                parts.append(_ONE)
            elif not parts or parts[-1] != _MANY:
                parts.append(_MANY)
        else:
            literal.append(character)
    if escaped:
        raise ValueError("a pattern that ends with its ESCAPE")
    if literal:
        parts.append("".join(literal))
    return parts


def _matcher(parts: list[str | int]) -> Callable[[str], bool]:
    """Return what compares a text with a pattern; the usual ones need no expression."""
    if not parts:
        return lambda value: not value
    if parts == [_MANY]:
        return lambda _: True
    first, last = parts[0], parts[-1]
    if isinstance(first, str) and len(parts) == 1:
        return lambda value: value == first
    if isinstance(first, str) and parts[1:] == [_MANY]:
        return lambda value: value.startswith(first)
    if isinstance(last, str) and parts[:-1] == [_MANY]:
        return lambda value: value.endswith(last)
    if len(parts) == 3 and first == last == _MANY and isinstance(parts[1], str):
        middle = parts[1]
        return lambda value: middle in value
    said = {_ONE: ".", _MANY: ".*"}
    expression = "".join([re2.escape(p) if isinstance(p, str) else said[p] for p in parts])
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    options.never_capture = True
    try:
        fullmatch = re2.compile(expression, options).fullmatch
    except (re2.error, UnicodeEncodeError):
        raise ValueError("a pattern that is too large") from None

    def matches(value: str) -> bool:
        try:
            return fullmatch(value) is not None
        except UnicodeEncodeError:
            return False

    return matches
