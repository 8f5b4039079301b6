# SPDX-License-Identifier: Apache-2.0
"""References in docstrings and comments are to names that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.source_names import ModuleNames, Names, read_package

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headrace"
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`([^`]*)`")
CONSTANT = re.compile(r"`((?!HEADRACE_)[A-Z]+(?:_[A-Z]+)*_(?:MAX|MIN))`")  # No setting.
TARGET = re.compile(r"~?(\.?\w+(?:\.\w+)*)(?:\(\))?")


@pytest.fixture(scope="module")
def names() -> Names:
    return read_package(SOURCE)


def references(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each role of a text and the name in it; as it is if it is no name."""
    for role in ROLE.finditer(text):
        target = TARGET.fullmatch(role[1])
        yield text.count("\n", 0, role.start()) + 1, target[1] if target else role[1]


def unresolved(module: ModuleNames, names: Names) -> list[str]:
    """Return the references of a module that lead nowhere, each with its line."""
    return [
        f"{module.path}:{line}: {name}"
        for line, name in references(module.text)
        if not TARGET.fullmatch(name) or not names.resolves(name, module, line)
    ]


def test_every_reference_is_to_a_name_that_exists(names: Names) -> None:
    offenders = [each for module in names.modules.values() for each in unresolved(module, names)]
    assert offenders == []


def test_every_bound_in_a_page_is_a_constant_of_the_source(names: Names) -> None:
    text = "\n".join(module.text for module in names.modules.values())
    constants = set(re.findall(r"^([A-Z_]+)(?::[^=\n]+)? = ", text, re.MULTILINE))
    offenders = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in sorted((ROOT / "docs").glob("**/*.md"))
        for name in CONSTANT.findall(page.read_text())
        if name not in constants
    ]
    assert "INTERRUPTED_BYTES_MAX" in constants
    assert offenders == []


MADE_UP = '''
"""About :mod:`.disk`, :mod:`.disc`, :class:`~made.disk.Disk` and :class:`~made.disk.Disc`."""

from made.disk import Disk as Drive

class Journal(Drive):
    """It reads (:meth:`read`, :meth:`reed`), :meth:`Drive.sync` and :meth:`Drive.synch`."""

    def read(self):
        self.end = 0  # See :attr:`end` and :attr:`ends`; :exc:`OSError`, :exc:`OsError`.

def write():
    """:func:`read`, :func:`write()`, :func:`writes`; :class:`a disk`, :meth:`Journal.sync`."""
'''


def test_a_reference_to_a_missing_name_is_found() -> None:
    disk = ModuleNames("made.disk", "class Disk:\n    def sync(self): ...\n")
    journal = ModuleNames("made.journal", MADE_UP)
    found = unresolved(journal, Names([disk, journal]))
    assert [each.partition(": ")[2] for each in found] == [
        ".disc",
        "made.disk.Disc",
        "reed",
        "Drive.synch",
        "ends",
        "OsError",
        "writes",
        "a disk",
    ]
