# SPDX-License-Identifier: Apache-2.0
"""Write the pages of docs that are made from tables: settings, the HTTP API, operations, ADRs.

python tools/gen_pages.py            # write them
python tools/gen_pages.py --check    # exit 1 when one is not what would be written
"""

import sys
from pathlib import Path

from headrace.columns.options import page as spark_options
from headrace.console.api.manual import manual as management_api
from headrace.server.config import settings_page as settings
from headrace.server.management.operations import OPERATIONS
from headrace.user_tags import ADMINISTER, LOOK, MONITOR, POLICY, USE

DOCS = Path(__file__).parent.parent / "docs"
DECISIONS = """# Decisions

<!-- Generated from the pages of this folder by `make docs`; do not edit. -->

Each page states a question, the options, the choice, and its consequences.

"""


def decisions() -> str:
    """Return the list of the architecture decision records, in their order."""
    lines = []
    for page in sorted((DOCS / "adr").glob("[0-9]*.md")):
        number, _, title = page.read_text().partition("\n")[0].removeprefix("# ").partition(". ")
        lines.append(f"{number}. [{title}]({page.name})\n")
    return DECISIONS + "".join(lines)


TABLE_MARKS = ("<!-- The operations, written by `make docs`; do not edit. -->\n", "\n<!-- End. -->")
TAGS = {
    LOOK: "any",
    USE: "any but `viewer`",
    MONITOR: "`monitoring`, `viewer`, `administrator`",
    POLICY: "`policymaker`, `administrator`",
    ADMINISTER: "`administrator`",
}


def management() -> str:
    """Return the page of the management socket with the table of operations as it is."""
    page = (DOCS / "reference/management.md").read_text()
    begin, end = TABLE_MARKS
    head, _, rest = page.partition(begin)
    lines = ["| Operation | Fields | Tag | Permission |", "|---|---|---|---|"]
    for row in OPERATIONS.values():
        needs = ", ".join(f"{need.permission} `{need.field}`" for need in row.permissions)
        permission = needs or row.note or ("access to the virtual host" if row.own_vhost else "")
        lines.append(f"| `{row.name}` | {row.fields} | {TAGS[row.tags]} | {permission} |")
    return head + begin + "\n".join(lines) + end + rest.partition(end)[2]


PAGES = {
    "reference/management.md": management,
    "reference/settings.md": settings.manual,
    "reference/management-api.md": management_api,
    "reference/spark-options.md": spark_options.render_page,
    "adr/index.md": decisions,
}


def main() -> int:
    stale = []
    for name, text in PAGES.items():
        page = DOCS / name
        if "--check" not in sys.argv[1:]:
            page.write_text(text())
        elif page.read_text() != text():
            stale.append(name)
    for name in stale:
        sys.stderr.write(f"docs/{name} is not what its table says: run make docs\n")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
