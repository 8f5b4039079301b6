# SPDX-License-Identifier: Apache-2.0
"""Every key of a TOML text is found on its line."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from headrace.pipeline.config.lines import KeyPath, Lines, format_path

TEXT = '''# A comment with [brackets] = "and more"
title = "one"

[a.b]  # The table.
"quoted.key" = 1
c.d = [1, 2, # two
  3,
]
text = """
first ] line
second = \\"line\\"
"""
same = """at once"""
literal = \'\'\'
[not.a.table]
\'\'\'
inline = { x = 1, y = { z = [ "}", \'#\' ] } }

[[list]]
name = "l0"
[list.inner]
k = 1
[[list.deep]]
q = 0
[[list]]
name = "l1"
[[list.deep]]
q = 1
[[list.deep]]
q = 2
'''
WHERE: list[tuple[KeyPath, int]] = [
    (("title",), 2),
    (("a", "b"), 4),
    (("a", "b", "quoted.key"), 5),
    (("a", "b", "c", "d"), 6),
    (("a", "b", "c", "d", 2), 7),
    (("a", "b", "text"), 9),
    (("a", "b", "same"), 13),
    (("a", "b", "inline", "y", "z", 1), 17),
    (("list", 0, "name"), 20),
    (("list", 0, "inner", "k"), 22),
    (("list", 0, "deep", 0, "q"), 24),
    (("list", 1), 25),
    (("list", 1, "deep", 0, "q"), 28),
    (("list", 1, "deep", 1), 29),
    (("a", "b", "missing"), 4),
    (("nowhere",), 1),
]


@pytest.mark.parametrize(("path", "line"), WHERE, ids=[format_path(path) for path, _ in WHERE])
def test_the_line_of_a_key(path: KeyPath, line: int) -> None:
    assert Lines(TEXT).find(path) == line


def test_every_value_that_toml_reads_has_a_line() -> None:
    lines = Lines(TEXT)

    def check(value: Any, path: KeyPath) -> None:
        assert path in lines, path
        if isinstance(value, dict):
            for key, part in value.items():
                check(part, (*path, key))
        elif isinstance(value, list):
            for index, part in enumerate(value):
                check(part, (*path, index))

    for key, value in tomllib.loads(TEXT).items():
        if key != "list":  # An array of tables has lines for its tables.
            check(value, (key,))
    assert ("list", 1, "deep", 1, "q") in lines


def test_a_line_inside_of_a_text() -> None:
    lines = Lines(TEXT)
    assert lines.find_inside(("a", "b", "text"), 2) == 11
    assert lines.find_inside(("a", "b", "same"), 1) == 13
