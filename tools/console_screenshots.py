# SPDX-License-Identifier: Apache-2.0
"""Take the screenshots of docs/images/console in Chromium, of a broker with traffic.

    .venv/bin/python tools/console_screenshots.py [FOLDER]

It takes about a minute and a half: the charts need numbers of a minute. The browser's tests take
the same ones, after fewer numbers.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from support.console_shots import busy_console, take  # noqa: E402  # The path comes first.

TRAFFIC_S = 65.0


def main() -> None:
    """Take the screenshots after some traffic."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/images/console"
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headrace-") as made:
        os.chdir(made)
        with busy_console(Path(made)) as browser:
            time.sleep(TRAFFIC_S)
            for file in take(browser, folder):
                sys.stderr.write(f"{file} {file.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
