# SPDX-License-Identifier: Apache-2.0
"""Check docs/reference/compatibility.md: each supported feature names a test that exists.

The last table shows how clients of every version see features. It must have all features of some
sections, and the test modules in its second column must cover every version.

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
VERSIONS_OF = "From every version"  # The start of the last table's heading.
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
    """Return the fault of a row of the table; None if it has none."""
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
    """Return a text about the first of these tests that does not exist; None if all exist."""
    for path, name in tests:
        file = ROOT / path
        if not file.is_file():
            return f"names {path}, which does not exist"
        if name and not re.search(rf"^\s*(async )?def {name}\b", file.read_text(), re.MULTILINE):
            return f"names {name}, which is not in {path}"
    return None


def version_row_fault(line: str) -> str | None:
    """Return the fault of a row of the last table; None if it has none."""
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
    """Print all faults; return the exit code."""
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
