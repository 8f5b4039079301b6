# SPDX-License-Identifier: Apache-2.0
"""The line of each key in a TOML file.

Python's `tomllib` returns values without their lines. `Lines` scans a text that `tomllib` has
accepted, so it need not validate keys and values.
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
        self._newlines = [offset for offset, character in enumerate(text) if character == "\n"]
        self._lines: dict[KeyPath, int] = {(): 1}
        self._string_lines: dict[KeyPath, int] = {}  # The first line of a multi-line string.
        self._array_sizes: dict[KeyPath, int] = {}  # The number of tables in an array.
        self._offset = 0
        self._scan()

    def find(self, path: KeyPath) -> int:
        """Return the line of a key; if it is missing, the line of the innermost existing table."""
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]

    def __contains__(self, path: KeyPath) -> bool:
        """Return True if the file has the key."""
        return path in self._lines

    def find_inside(self, path: KeyPath, line: int) -> int:
        """Return the line in the file of line `line`, from 1, of the string at `path`."""
        return self._string_lines.get(path, self.find(path)) + line - 1

    def _line_at(self, offset: int) -> int:
        return bisect.bisect_left(self._newlines, offset) + 1

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._offset)
        assert match is not None, (pattern, self._offset)
        self._offset = match.end()
        return match.group()

    def _scan(self) -> None:
        """Record the lines of all tables and keys."""
        table: KeyPath = ()
        while True:
            self._skip(_BLANK)
            if self._offset >= len(self._text):
                return
            start = self._offset
            if self._text.startswith("[[", start):
                self._offset += 2
                table = self._open_array_table(self._scan_key())
                self._offset += 2
            elif self._text[start] == "[":
                self._offset += 1
                table = self._resolve_key(self._scan_key())
                self._offset += 1
            else:
                self._scan_pair(table)
                continue
            self._record(table, start)

    def _record(self, path: KeyPath, offset: int) -> None:
        """Record the line of a path, and of parents without a line."""
        for size in range(1, len(path) + 1):
            self._lines.setdefault(path[:size], self._line_at(offset))
        self._lines[path] = self._line_at(offset)

    def _open_array_table(self, key: tuple[str, ...]) -> KeyPath:
        path = (*self._resolve_key(key[:-1]), key[-1])
        index = self._array_sizes.get(path, 0)
        self._array_sizes[path] = index + 1
        return (*path, index)

    def _resolve_key(self, key: tuple[str, ...]) -> KeyPath:
        """Return the path of a key, where an array of tables stands for its last table."""
        path: KeyPath = ()
        for part in key:
            path = (*path, part)
            if path in self._array_sizes:
                path = (*path, self._array_sizes[path] - 1)
        return path

    def _scan_key(self) -> tuple[str, ...]:
        """Skip a key, and return its parts."""
        parts = []
        while True:
            self._skip(_SPACE)
            character = self._text[self._offset]
            if character == '"':
                parts.append(str(json.loads(self._skip(_BASIC))))
            elif character == "'":
                parts.append(self._skip(_LITERAL)[1:-1])
            else:
                parts.append(self._skip(_BARE))
            self._skip(_SPACE)
            if self._text[self._offset : self._offset + 1] != ".":
                return tuple(parts)
            self._offset += 1

    def _scan_pair(self, table: KeyPath) -> None:
        start = self._offset
        path = (*table, *self._scan_key())
        self._record(path, start)
        self._offset += 1  # The equals sign.
        self._skip(_SPACE)
        self._scan_value(path)

    def _scan_value(self, path: KeyPath) -> None:
        """Skip a value; record the lines of its elements and keys."""
        text, offset = self._text, self._offset
        if text.startswith('"""', offset) or text.startswith("'''", offset):
            self._skip(_LONG_BASIC if text[offset] == '"' else _LONG_LITERAL)
            starts_on_next_line = (
                text[offset + 3 : offset + 4] == "\n" or text[offset + 3 : offset + 5] == "\r\n"
            )
            self._string_lines[path] = self._line_at(offset) + starts_on_next_line
        elif text[offset] == '"':
            self._skip(_BASIC)
        elif text[offset] == "'":
            self._skip(_LITERAL)
        elif text[offset] == "[":
            self._scan_array(path)
        elif text[offset] == "{":
            self._scan_inline_table(path)
        else:
            self._skip(_SCALAR)

    def _scan_array(self, path: KeyPath) -> None:
        self._offset += 1
        index = 0
        while True:
            self._skip(_BLANK)
            if self._text[self._offset] == "]":
                self._offset += 1
                return
            if self._text[self._offset] == ",":
                self._offset += 1
                continue
            self._record((*path, index), self._offset)
            self._scan_value((*path, index))
            index += 1

    def _scan_inline_table(self, path: KeyPath) -> None:
        self._offset += 1
        while True:
            self._skip(_BLANK)
            if self._text[self._offset] == "}":
                self._offset += 1
                return
            if self._text[self._offset] == ",":
                self._offset += 1
                continue
            self._scan_pair(path)


def format_path(path: KeyPath) -> str:
    """Return a path as text, with indexes from 1: `steps[2].sql`."""
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text
