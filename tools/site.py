# SPDX-License-Identifier: Apache-2.0
"""Build the site of docs/ into build/site, and check it.

A link or an anchor that leads nowhere is an error, and so is a page that loads a script, a style
sheet, a font or an image from another host. Search must know every page of `docs`.

python tools/site.py            # then: python -m http.server -d build/site
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
LOADED = re.compile(r'<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)="((?:https?:)?//[^"]+)"')
COLOR = re.compile(r"\x1b\[[0-9;]*m")
STYLE = re.compile(r"@import|url\([\"']?(?:https?:)?//")


def build() -> str | None:
    """Build the site; return the builder's output when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    output = COLOR.sub("", done.stdout).partition("Traceback")[0]
    return output if done.returncode else None


def problems() -> list[str]:
    """Return the faults of the built site."""
    faults = [
        f"{page.relative_to(SITE)} loads {address}"
        for page in SITE.rglob("*.html")
        for address in LOADED.findall(page.read_text())
    ]
    faults += [
        f"{sheet.relative_to(SITE)} loads a part of another host"
        for sheet in SITE.rglob("*.css")
        if STYLE.search(sheet.read_text())
    ]
    items = json.loads((SITE / "search.json").read_text())["items"]
    known = {item["location"].partition("#")[0] for item in items}
    for page in (ROOT / "docs").rglob("*.md"):
        name = str(page.relative_to(ROOT / "docs").with_suffix(".html"))
        if name not in known and name.removesuffix("index.html") not in known:
            faults.append(f"search lacks {name}")
    return faults


def main() -> int:
    """Print all faults; return the exit code."""
    failure = build()
    wrong = [failure] if failure else problems()
    for text in wrong:
        sys.stderr.write(f"{text}\n")
    if not wrong:
        pages = sum(1 for _ in SITE.rglob("*.html"))
        print(f"{pages} pages in build/site")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
