# SPDX-License-Identifier: Apache-2.0
"""A small project with tests, which runs with the plugins of this test suite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from support.timeouts import PATIENCE_S

TESTS = Path(__file__).parent.parent
CONFTEST = """
pytest_plugins = ("support.second_tries", "support.time_limits")

def pytest_configure():
    from support import time_limits
    time_limits.GRACE_S = 2.0
"""

# The beginning of every file of the suite. `count` counts calls over all tries and processes.
BEGIN = """
    from pathlib import Path
    import pytest

    PLACES = Path(__file__).parents
    COUNTS = next(place for place in PLACES if place.name == "tests").with_name("counts")

    def count(name):
        with (COUNTS / name).open("a") as file:
            file.write("x")
        return (COUNTS / name).stat().st_size
"""


class Suite:
    """A project in a temporary directory. `errors` is the standard error of its last run."""

    def __init__(self, home: Path, files: dict[str, str]) -> None:
        self.home = home
        self.errors = ""
        tests = home / "tests"
        (home / "counts").mkdir()
        for name, text in files.items():
            (tests / name).parent.mkdir(parents=True, exist_ok=True)
            (tests / name).write_text(dedent(BEGIN) + dedent(text))
        (tests / "conftest.py").write_text(CONFTEST)
        (home / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -ra\n")

    def run(self, *arguments: str) -> list[str]:
        """Run pytest and return the lines of its output."""
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        environment.pop("PYTEST_ADDOPTS", None)
        options = ("-p", "no:headrace.testing.plugin", "-p", "no:cacheprovider")
        result = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *arguments, "tests"],
            cwd=self.home,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        self.errors = result.stderr
        return result.stdout.splitlines()

    def counted(self, name: str) -> int:
        """Return the number of calls of `count` with a name."""
        return (self.home / "counts" / name).stat().st_size
