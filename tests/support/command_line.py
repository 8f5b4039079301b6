# SPDX-License-Identifier: Apache-2.0
"""The command line, run in the process of the test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from headrace.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def run(*words: str | Path) -> Result:
    """Run `headrace` in this process."""
    return CliRunner().invoke(main, [str(word) for word in words])


def works(*words: str | Path) -> str:
    """Run a command that must succeed; return what it prints."""
    done = run(*words)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*words: str | Path) -> str:
    """Run a command that must fail; return the sentence that it says."""
    done = run(*words)
    assert done.exit_code != 0, done.output
    assert done.stdout == ""
    return done.stderr.strip().splitlines()[-1]


def on_data(data: Path, *words: str) -> None:
    """Run a command on a data directory."""
    works(*words, "--data", data)


def as_json(*words: str | Path) -> list[dict[str, Any]]:
    """Run a command that prints a JSON object a line."""
    return [json.loads(line) for line in works(*words, "--format", "json").splitlines()]
