# SPDX-License-Identifier: Apache-2.0
"""The build cost of each compiled module, and its share of the work of each workload.

    PYTHONPATH=build/compiled .venv/bin/python tools/instructions.py \\
        --workload W1,W2,W3,W4,W5,W6,W1-0-10,W1a-0-10 --shares build/shares.json
    .venv/bin/python tools/build_cost.py \\
        [--shares build/shares.json] [--page docs/explanation/build.md]

All modules are built in an empty temporary directory, one after the other and without ccache. Times
are user and system processor seconds, which hardly depend on other load while a core is free. With
--page the table replaces the one in that page.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import Cython.Build.Dependencies
from setuptools import Distribution

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import build_ext  # noqa: E402  # It stands beside the packages.

if TYPE_CHECKING:
    from setuptools import Extension

HEAD = (
    "| Module | Lines | C, KB | Cython, s | C compiler, s | Flags | Largest share of a workload |"
)
TABLE = re.compile(r"^\| Module \|.*?(?=^[^|]|\Z)", re.MULTILINE | re.DOTALL)


def children_s() -> float:
    """Return the processor time of ended child processes, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class TimedBuild(build_ext.BuildExt):
    """Compiles one module after the other, and records the processor time of each."""

    def build_extension(self, module: Extension) -> None:
        """Compile and link a module."""
        begun = children_s()
        super().build_extension(module)
        compiler_s[module.name] = children_s() - begun


compiler_s: dict[str, float] = {}
cython_s: dict[str, float] = {}


def time_cython() -> None:
    """Make Cython record the processor time of each translation in ``cython_s``."""
    translate = Cython.Build.Dependencies.cythonize_one

    def timed(source: str, *arguments: object) -> None:
        begun = time.process_time()
        translate(source, *arguments)
        cython_s[source] = time.process_time() - begun

    Cython.Build.Dependencies.cythonize_one = timed


def build(place: Path) -> list[Extension]:
    """Build all modules under ``place``; return them."""
    extensions = build_ext.modules()
    command = TimedBuild(Distribution({"name": "headrace", "ext_modules": extensions}))
    command.c_dir = place / "c"
    command.build_lib = str(place / "compiled")
    command.build_temp = str(place / "objects")
    command.parallel = 0  # In this process, and one after the other.
    command.tells = True
    command.ensure_finalized()
    command.run()
    return extensions


def largest(shares: dict[str, dict[str, float]], module: str) -> str:
    """Return the workload with the largest share of its instructions in a module, and the share."""
    share, name = max((by_module.get(module, 0.0), name) for name, by_module in shares.items())
    return f"{name} {share:.1f}%" if share >= 0.05 else ""


def rows(extensions: list[Extension], shares: dict[str, dict[str, float]]) -> list[str]:
    """Return the table's lines, the most expensive module first."""
    lines: list[tuple[float, str]] = []
    total_lines = total_kb = 0
    for module in extensions:
        path = module.name.replace(".", "/")
        source = build_ext.SOURCE / f"{path}.py"
        written = len(source.read_text().splitlines()) if source.exists() else 0
        kb = Path(module.sources[0]).stat().st_size // 1000
        cython, compiler = cython_s.get(str(source), 0.0), compiler_s[module.name]
        flags = "hot" if f"{path}.py" in build_ext.HOT else ""
        cells = [f"`{path.removeprefix('headrace/')}`", f"{written:,}", f"{kb:,}", f"{cython:.1f}"]
        cells += [f"{compiler:.1f}", flags, largest(shares, path) if shares else ""]
        lines.append((cython + compiler, "| " + " | ".join(cells) + " |"))
        total_lines += written
        total_kb += kb
    cython, compiler = sum(cython_s.values()), sum(compiler_s.values())
    total = f"| all | {total_lines:,} | {total_kb:,} | {cython:.0f} | {compiler:.0f} | | |"
    rule = "|---|--:|--:|--:|--:|---|---|"
    return [HEAD, rule, total, *(line for _, line in sorted(lines, reverse=True))]


def main() -> None:
    """Build, and print or write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shares", type=Path, help="what tools/instructions.py --shares wrote")
    parser.add_argument("--page", type=Path, help="write the table into this page")
    options = parser.parse_args()
    shares = json.loads(options.shares.read_text()) if options.shares else {}
    page = options.page.resolve() if options.page else None
    os.chdir(ROOT)
    os.environ["CCACHE_DISABLE"] = "1"
    time_cython()
    with tempfile.TemporaryDirectory(prefix="headrace-build-cost-") as place:
        table = "\n".join(rows(build(Path(place)), shares)) + "\n"
    if page is None:
        sys.stdout.write(table)
        return
    text = page.read_text()
    if not TABLE.search(text):
        raise SystemExit(f"{page} has no table of modules")
    page.write_text(TABLE.sub(lambda _: table, text, count=1))


if __name__ == "__main__":
    main()
