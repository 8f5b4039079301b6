# SPDX-License-Identifier: Apache-2.0
"""Files that a tool writes are as it would write them now."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.mark.parametrize("tool", ["gen_codecs.py", "gen_blocking.py", "gen_counters.py"])
def test_generated_modules_are_current(tool: str) -> None:
    command = [sys.executable, str(TOOLS / tool), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
