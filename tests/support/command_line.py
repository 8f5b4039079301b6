# SPDX-License-Identifier: Apache-2.0
"""The command line, run in the process of the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
