# SPDX-License-Identifier: Apache-2.0
"""The table of abuses in docs/security.md: each names a test that is there, or says why there is
none.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text()
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
