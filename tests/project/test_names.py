# SPDX-License-Identifier: Apache-2.0
"""Names in pages exist: modules, files, tests, targets, commands and options."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from pathlib import Path

import click
import pytest

from headrace.cli import main

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SOURCE = ROOT / "src" / "headrace"
ROOMS = {path.parent.name for path in SOURCE.glob("*/__init__.py")} - {"spark"}  # Has settings so.
ENDINGS = "py|pxd|sh|toml|pl|cjs|rb|c"

CODE = re.compile(r"`([^`\n]+)`")
MODULE = re.compile(rf"(?:headrace\.|(?:{'|'.join(ROOMS)})\.)\w+(?:\.\w+)*")
FILE = re.compile(rf"[\w.-]+(?:/[\w.-]+)+\.(?:{ENDINGS})")
TEST = re.compile(r"(?:[\w/]+\.py::)?(test_\w+)")
TARGET = re.compile(r"make ([\w-]+)")
COMMAND_LINE = re.compile(
    r"`headrace ([a-z][^`\n{]*)`|^(?:\$ )?headrace ([a-z][^\n|#>{]*)$", re.MULTILINE
)
SAVED = re.compile(r'^```python title="([^"\n]+)"$', re.MULTILINE)  # Programs of tutorials.
ELSEWHERE = frozenset({"headrace.sasl"})  # An entry point, under which others have modules.


def named(page: Path) -> list[str]:
    """Return the code spans of a page, without its blocks."""
    return CODE.findall(page.read_text())


@cache
def sources() -> dict[str, str]:
    """The text of every file of ours with code, by its path."""
    places = ("src", "tests", "tools", "demo")
    found = (path for place in places for path in (ROOT / place).rglob("*") if path.is_file())
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in (*found, ROOT / "build_ext.py")
        if re.fullmatch(ENDINGS, path.suffix[1:])
    }


@cache
def cited() -> set[str]:
    """Every test, and every module of tests."""
    ours = {path: text for path, text in sources().items() if path.startswith("tests/")}
    defined = re.findall(r"def (test_\w+)", "\n".join(ours.values()))
    return {*defined, *(Path(path).stem for path in ours)}


def is_there(module: str) -> bool:
    """Return True if a module of that name exists, or one that defines its last words."""
    words = module.removeprefix("headrace.").split(".")
    for length in range(len(words), 0, -1):
        path = SOURCE.joinpath(*words[:length])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.exists():
                return all(re.search(rf"\b{word}\b", file.read_text()) for word in words[length:])
    return False


def check_command(words: list[str]) -> None:
    """Follow the words to a command, which must have the options."""
    found: click.Command = main
    for word in words:
        if isinstance(found, click.Group) and not word.startswith("-"):
            inner = found.get_command(click.Context(main), word)
            assert inner is not None, words
            found = inner
    known = {option for one in found.params for option in (*one.opts, *one.secondary_opts)}
    for word in words:
        option = re.match(r"--[\w-]+", word)
        assert option is None or option[0] in {*known, "--help"}, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_files_and_tests_that_a_page_names_are_there(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    saved = SAVED.findall(page.read_text())
    for name in named(page):
        if name in ELSEWHERE or name in saved or name.endswith(".json"):
            continue
        if MODULE.fullmatch(name):
            assert is_there(name), name
        elif FILE.fullmatch(name):
            assert any(f"/{path}".endswith(f"/{name}") for path in sources()), name
        elif test := TEST.fullmatch(name.removesuffix(".py")):
            assert test[1] in cited(), name
        elif target := TARGET.fullmatch(name):
            assert re.search(rf"^{target[1]}:", makefile, re.MULTILINE), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text().replace("\\\n", " ")
    for inline, line in COMMAND_LINE.findall(text):
        words = [word.split("|") for word in (inline or line).split()]
        for one in product(*words) if all(map(all, words)) else ():
            check_command(list(one))
