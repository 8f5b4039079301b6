# SPDX-License-Identifier: Apache-2.0
"""Child processes of the demo, the two pika programs, with their output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

SOURCE_FOLDER = Path(__file__).parent.parent


class Program:
    """A child process `python -m MODULE …`; a thread reads its lines."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.module = module
        self.last = ""  # The last line.
        self.lines: list[tuple[float, str]] = []  # Lines with the monotonic times of their arrival.
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [environment.get("PYTHONPATH"), str(SOURCE_FOLDER)])
        )
        self._child = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._errors = ""
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self.lines.append((time.monotonic(), line.strip()))
            self.last = line.strip()

    def _read_errors(self) -> None:
        assert self._child.stderr is not None
        self._errors = self._child.stderr.read()

    def check(self) -> None:
        """Raise SystemExit if the program has failed."""
        status = self._child.poll()
        if status:
            self.wait()

    @property
    def is_running(self) -> bool:
        """True while the program runs."""
        return self._child.poll() is None

    def wait(self) -> None:
        """Wait for the end of the program and its output; raise SystemExit if it failed."""
        status = self._child.wait()
        for reader in self._readers:
            reader.join()
        if status:
            raise SystemExit(f"{self.module} ended with status {status}:\n{self._errors}")

    def finish(self) -> None:
        """Send SIGTERM, which makes the program finish its work, and wait for its end."""
        self._child.send_signal(signal.SIGTERM)
        self.wait()

    def kill(self) -> None:
        """End the program at once."""
        if self.is_running:
            self._child.kill()
        self._child.wait()
