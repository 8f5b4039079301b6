# SPDX-License-Identifier: Apache-2.0
"""Every page's links lead somewhere, and its tables are whole."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
RULE = re.compile(r"\|[-| :]+\|")


def text_of(page: Path) -> str:
    """A page without its code."""
    return FENCED.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    heads = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere_and_tables_are_whole(page: Path) -> None:
    for path, anchor in LINK.findall(text_of(page)):
        target = page if not path else page.parent / path
        assert target.exists(), path
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{path}#{anchor}"
    lines = text_of(page).splitlines()
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        if line.startswith("|") and not before.startswith("|"):
            assert RULE.fullmatch(after), f"no table begins with {line[:60]!r}"
