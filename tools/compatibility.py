# SPDX-License-Identifier: Apache-2.0
"""Check docs/compatibility.md: a row that says yes names a test, and the tests that it names exist.

python tools/compatibility.py --check
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
CELLS = 7  # Feature, names, Headrace, RabbitMQ, LavinMQ, Broker-J, qpidd.
VERDICTS = ("yes", "no", "different")
TEST = re.compile(r"`(tests/[\w/.]+\.py)(?:::(\w+))?`")


def wrong_in(line: str) -> str | None:
    """Return what is wrong with a row of the table, if anything."""
    cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
    if len(cells) != CELLS:
        return f"has {len(cells)} cells, not {CELLS}"
    verdict, _, reason = cells[2].partition(":")
    if verdict not in VERDICTS:
        return f"says {verdict!r}, which is none of {', '.join(VERDICTS)}"
    if not reason.strip():
        return "gives neither test nor reason"
    tests = TEST.findall(cells[2])
    if verdict == "yes" and not tests:
        return "says yes and names no test"
    for path, name in tests:
        file = ROOT / path
        if not file.is_file():
            return f"names {path}, which is not there"
        if name and not re.search(rf"^\s*(async )?def {name}\b", file.read_text(), re.MULTILINE):
            return f"names {name}, which is not in {path}"
    return None


def main() -> int:
    """Print what is wrong; return the exit code."""
    rows = 0
    wrong = 0
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        if not line.startswith("|") or line.startswith(("| Feature |", "|---")):
            continue
        rows += 1
        what = wrong_in(line)
        if what is not None:
            wrong += 1
            print(f"docs/compatibility.md:{number}: this row {what}")
    if not rows:
        print("docs/compatibility.md has no rows")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
