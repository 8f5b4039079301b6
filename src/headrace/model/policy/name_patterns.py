# SPDX-License-Identifier: Apache-2.0
r"""Name patterns of operators: RE2, so that matching takes linear time.

RE2 has no look-around. One form of it is common on other brokers, a pattern that begins by
excluding names, ``^(?!amq\.).*``; it is compiled as two patterns.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import re2

from headrace.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

CHARACTERS_MAX = 1024
BYTES_MAX = 1 << 20  # Bytes of memory for one compiled pattern.
_EXCLUSION = "^(?!"
# Reasons of RE2 for forms that other engines have: look-around, backreferences, possessive
# quantifiers and the like.
_FOREIGN = re.compile(
    r"invalid (?:perl operator|escape sequence): (.+)|bad repetition operator: (.*\+)"
)


class ForeignPattern(InvalidArgument):
    """A pattern with a form that RE2 lacks, such as look-behind."""


def foreign_form(reason: str) -> str:
    """Return the form that RE2 lacks, from its reason of an error; "" for other errors."""
    match = _FOREIGN.fullmatch(reason)
    return "" if match is None else match[1] or match[2]


class NamePattern:
    """A pattern; it matches anywhere in a name unless it is anchored."""

    __slots__ = ("_excluded", "_search", "text")

    def __init__(self, text: str) -> None:
        """Compile a pattern.

        Raises:
            InvalidArgument: the pattern is malformed, or too large.
        """
        if len(text) > CHARACTERS_MAX:
            raise InvalidArgument(f"a pattern may not be longer than {CHARACTERS_MAX} characters")
        self.text = text
        excluded, remainder = _split(text)
        self._excluded = None if excluded is None else _compile(f"^(?:{excluded})", text)
        self._search = _compile(remainder, text)

    def matches(self, name: str) -> bool:
        """Return True if the pattern matches a name; takes time linear in its length."""
        if self._excluded is not None and self._excluded(name) is not None:
            return False
        return self._search(name) is not None


def _split(text: str) -> tuple[str | None, str]:
    """Split a pattern into the names it excludes at its beginning and the rest."""
    if not text.startswith(_EXCLUSION):
        return None, text
    depth, offset = 1, len(_EXCLUSION)
    in_class = False
    while offset < len(text) and depth:
        character = text[offset]
        if character == "\\":
            offset += 1
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
            offset += text.startswith("^", offset + 1)
            offset += text.startswith("]", offset + 1)
        else:
            depth += (character == "(") - (character == ")")
        offset += 1
    if depth:
        return None, text  # RE2 reports the error.
    return text[len(_EXCLUSION) : offset - 1], "^" + text[offset:]


def _compile(pattern: str, text: str) -> Callable[[str], object]:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # Captures make a search a thousand times as long.
    options.max_mem = BYTES_MAX
    try:
        search: Callable[[str], object] = re2.compile(pattern, options).search
    except re2.error as error:
        reason = error.args[0] if error.args else error
        if isinstance(reason, bytes):
            reason = reason.decode("utf-8", "replace")
        kind = ForeignPattern if foreign_form(str(reason)) else InvalidArgument
        raise kind(f"pattern '{text}' is not a valid regular expression: {reason}") from None
    return search
