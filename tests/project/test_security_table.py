# SPDX-License-Identifier: Apache-2.0
"""The table of abuses in docs/guides/security.md: each names a test that is there, or says why
there is none.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "guides" / "security.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT[TEXT.index("| Abuse | Test |") :].splitlines()[2:]
    if line.startswith("|")
]
CITED = re.compile(r"`((?:tests/)?[\w/]*\w+(?:\.py)?)(?:::(\w+)(…)?)?`")
REASONS = ("there is", "there are", "one set", "nothing reads", "nothing is")


def files_named(name: str) -> list[Path]:
    """A file or directory by its path, or by its name alone."""
    if name.startswith("tests/"):
        return [path for path in (ROOT / name,) if path.exists()]
    return list((ROOT / "tests").rglob(name)) if name.endswith(".py") else []


def test_every_test_that_is_cited_exists() -> None:
    missing = []
    cited = 0
    for abuse, how in ROWS:
        for name, test, _ in CITED.findall(how):
            if not name.startswith("tests/") and not name.endswith(".py"):
                continue  # The name of a test of the file before.
            files = files_named(name)
            cited += 1
            if not files or (test and f"def {test}" not in files[0].read_text()):
                missing.append((abuse, name, test))
    assert missing == []
    assert cited > 40


def test_every_abuse_has_a_test_or_a_reason() -> None:
    assert len(ROWS) > 30
    for abuse, how in ROWS:
        assert "`tests/" in how or how.startswith(REASONS), abuse


def test_the_limits_of_what_clients_hold_are_there() -> None:
    """The other table: each of its constants is in the code, each setting and limit in its page."""
    begin = TEXT.index("| Held | Bounded by | Beyond it |")
    rows = [line.split("|") for line in TEXT[begin : TEXT.index("\n\n", begin)].splitlines()[2:]]
    assert len(rows) > 35
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    pages = "".join(
        (ROOT / "docs" / page).read_text()
        for page in ("reference/settings.md", "guides/policies.md")
    )
    for _, held, bounds, beyond, _ in rows:
        assert held.strip(), rows
        assert beyond.strip(), held
        names = re.findall(r"`([\w-]+)`", bounds)
        assert names or re.search(r"\d|part of", bounds), held
        for name in names:
            if name.isupper():
                assert re.search(rf"^{name}\b", source, re.MULTILINE), name
            elif not name.startswith("x-"):
                assert f"`{name}`" in pages, name
