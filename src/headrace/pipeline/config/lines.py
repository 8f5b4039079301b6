# SPDX-License-Identifier: Apache-2.0
"""The line of each key in a TOML file.

Python's `tomllib` gives values without places. `Lines` walks over a text that `tomllib` has already
accepted, so it only has to find where keys and values are, not whether they are right.
"""

from __future__ import annotations

import bisect
import json
import re
from typing import Final

KeyPath = tuple[str | int, ...]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_BASIC: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_LITERAL: Final = re.compile(r"'[^']*'")
_LONG_BASIC: Final = re.compile(r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})', re.DOTALL)
_LONG_LITERAL: Final = re.compile(r"'''.*?'''(?:'{0,2})", re.DOTALL)
_SCALAR: Final = re.compile(r"[^,\]}#\r\n]*")


class Lines:
    """The lines, from 1, of the keys, values and elements of a valid TOML text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ends = [at for at, character in enumerate(text) if character == "\n"]
        self._lines: dict[KeyPath, int] = {(): 1}
        self._inner: dict[KeyPath, int] = {}  # The first line inside of a string.
        self._counts: dict[KeyPath, int] = {}  # The tables of an array of tables.
        self._at = 0
        self._walk()

    def of(self, path: KeyPath) -> int:
        """Return the line of a key, or of the nearest table around a missing key."""
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]

    def __contains__(self, path: KeyPath) -> bool:
        """Return True if the file has the key."""
        return path in self._lines

    def inside(self, path: KeyPath, line: int) -> int:
        """Return the line of the file that has line `line`, from 1, of the string at `path`."""
        return self._inner.get(path, self.of(path)) + line - 1

    def _line(self, at: int) -> int:
        return bisect.bisect_left(self._ends, at) + 1

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        assert match is not None, (pattern, self._at)
        self._at = match.end()
        return match.group()

    def _walk(self) -> None:
        table: KeyPath = ()
        while True:
            self._skip(_BLANK)
            if self._at >= len(self._text):
                return
            begin = self._at
            if self._text.startswith("[[", begin):
                self._at += 2
                table = self._array_table(self._key())
                self._at += 2
            elif self._text[begin] == "[":
                self._at += 1
                table = self._resolve(self._key())
                self._at += 1
            else:
                self._pair(table)
                continue
            self._note(table, begin)

    def _note(self, path: KeyPath, at: int) -> None:
        """Record the line of a path, and of its parents."""
        for size in range(1, len(path) + 1):
            self._lines.setdefault(path[:size], self._line(at))
        self._lines[path] = self._line(at)

    def _array_table(self, key: tuple[str, ...]) -> KeyPath:
        path = (*self._resolve(key[:-1]), key[-1])
        index = self._counts.get(path, 0)
        self._counts[path] = index + 1
        return (*path, index)

    def _resolve(self, key: tuple[str, ...]) -> KeyPath:
        """Return the path of a key: with the index of the last table of each array on its way."""
        path: KeyPath = ()
        for part in key:
            path = (*path, part)
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        return path

    def _key(self) -> tuple[str, ...]:
        parts = []
        while True:
            self._skip(_SPACE)
            first = self._text[self._at]
            if first == '"':
                parts.append(str(json.loads(self._skip(_BASIC))))
            elif first == "'":
                parts.append(self._skip(_LITERAL)[1:-1])
            else:
                parts.append(self._skip(_BARE))
            self._skip(_SPACE)
            if self._text[self._at : self._at + 1] != ".":
                return tuple(parts)
            self._at += 1

    def _pair(self, table: KeyPath) -> None:
        begin = self._at
        path = (*table, *self._key())
        self._note(path, begin)
        self._at += 1  # The sign of equality.
        self._skip(_SPACE)
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        text, at = self._text, self._at
        if text.startswith('"""', at) or text.startswith("'''", at):
            self._skip(_LONG_BASIC if text[at] == '"' else _LONG_LITERAL)
            starts_below = text[at + 3 : at + 4] == "\n" or text[at + 3 : at + 5] == "\r\n"
            self._inner[path] = self._line(at) + starts_below
        elif text[at] == '"':
            self._skip(_BASIC)
        elif text[at] == "'":
            self._skip(_LITERAL)
        elif text[at] == "[":
            self._elements(path)
        elif text[at] == "{":
            self._inline(path)
        else:
            self._skip(_SCALAR)

    def _elements(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        while True:
            self._skip(_BLANK)
            if self._text[self._at] == "]":
                self._at += 1
                return
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._note((*path, index), self._at)
            self._value((*path, index))
            index += 1

    def _inline(self, path: KeyPath) -> None:
        self._at += 1
        while True:
            self._skip(_BLANK)
            if self._text[self._at] == "}":
                self._at += 1
                return
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._pair(path)


def shown(path: KeyPath) -> str:
    """Return a path as text: `steps[2].sql`."""
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text
