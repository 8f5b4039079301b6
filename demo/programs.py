# SPDX-License-Identifier: Apache-2.0
"""The two pika programs as children, and what they have printed so far."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent.parent


class Program:
    """`python -m MODULE …` as a child; a thread keeps its last line."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.module = module
        self.last = ""
        self.lines: list[tuple[float, str]] = []
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [environment.get("PYTHONPATH"), str(HERE)])
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
        """Fail when the program has failed."""
        status = self._child.poll()
        if status:
            self.wait()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._child.poll() is None

    def wait(self) -> None:
        """Wait for the end, and for all of its output; fail when it failed."""
        status = self._child.wait()
        for reader in self._readers:
            reader.join()
        if status:
            raise SystemExit(f"{self.module} ended with status {status}:\n{self._errors}")

    def finish(self) -> None:
        """Have it take what is left, and wait for its end."""
        self._child.send_signal(signal.SIGTERM)
        self.wait()

    def kill(self) -> None:
        """End it now, whatever it does."""
        if self.running:
            self._child.kill()
        self._child.wait()
