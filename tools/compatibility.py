# SPDX-License-Identifier: Apache-2.0
"""Check docs/reference/compatibility.md: a row that says yes names a test, and the tests that it
names exist.

Its last table says how features are seen from every version: it has all that are there, and the
modules of the tests in its second column name every version.

python tools/compatibility.py --check
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "compatibility.md"
CELLS = 7  # Feature, names, Headrace, RabbitMQ, LavinMQ, Broker-J, qpidd.
VERDICTS = ("yes", "no", "different")
VERSIONS_OF = "From every version"  # How the heading of the last table begins.
# The sections whose features must be in the last table.
LISTED_SECTIONS = ("Extensions", "Queues", "Exchanges")
LABELS = ('"0-8"', '"0-9"', '"0-9-1"', '"0-10"')
ALL_VERSIONS = re.compile(
    r"for version in Version\]|\bSPEAKERS\b"
    r"|^from support\.conversations\.version_conversations import [\w, (\n]*\bevery\b",
    re.MULTILINE,
)
TEST = re.compile(r"`(tests/[\w/.]+\.py)(?:::(\w+))?`")


def row_fault(line: str) -> str | None:
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
    return missing(tests)


def missing(tests: list[tuple[str, str]]) -> str | None:
    """Return the reason if one of these tests does not exist."""
    for path, name in tests:
        file = ROOT / path
        if not file.is_file():
            return f"names {path}, which does not exist"
        if name and not re.search(rf"^\s*(async )?def {name}\b", file.read_text(), re.MULTILINE):
            return f"names {name}, which is not in {path}"
    return None


def version_row_fault(line: str) -> str | None:
    """Return what is wrong with a row about versions, if anything."""
    cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
    if len(cells) != 3:
        return f"has {len(cells)} cells, not 3"
    if " only: " in cells[1]:
        return missing(TEST.findall(line))
    tests = TEST.findall(cells[1])
    if not tests:
        return "names no test from every version"
    fault = missing(TEST.findall(line))
    if fault:
        return fault
    for path, _ in tests:
        text = (ROOT / path).read_text()
        if not ALL_VERSIONS.search(text) and not all(label in text for label in LABELS):
            return f"names {path}, which does not name every version"
    return None


def main() -> int:
    """Print what is wrong; return the exit code."""
    rows = 0
    fault_count = 0
    section = ""
    unlisted: dict[str, int] = {}  # Line numbers of features that the last table lacks so far.
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        section = line.removeprefix("## ") if line.startswith("## ") else section
        if not line.startswith("|") or line.startswith(("| Feature |", "| What |", "|---")):
            continue
        rows += 1
        name = line.split(" | ")[0].removeprefix("| ")
        if section.startswith(VERSIONS_OF):
            fault = version_row_fault(line)
            unlisted.pop(name, None)
        else:
            fault = row_fault(line)
            if section in LISTED_SECTIONS and not line.split(" | ")[2].startswith("no:"):
                unlisted[name] = number
        if fault is not None:
            fault_count += 1
            print(f"docs/reference/compatibility.md:{number}: this row {fault}")
    for name, number in unlisted.items():
        fault_count += 1
        print(f"{PAGE.relative_to(ROOT)}:{number}: {name!r} is not in the table about versions")
    if not rows:
        print("docs/reference/compatibility.md has no rows")
    return 1 if fault_count or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
