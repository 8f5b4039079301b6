# SPDX-License-Identifier: Apache-2.0
"""Brokers that a benchmark can kill and start again."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from headrace.bench.load.link import BenchError
from headrace.bench.usage import find_listener

if TYPE_CHECKING:
    from headrace.client.url import Settings

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0


class Restartable(Protocol):
    """A broker that a benchmark can kill and start again."""

    def kill_and_start(self) -> tuple[int, float]:
        """Kill the broker with SIGKILL and start it again.

        Returns:
            Its new process id, and the monotonic time in seconds at which the start began.
        """


class BenchBroker:
    """A `headrace serve` in a child process with a temporary data directory."""

    def __init__(self, options: list[str] | None = None) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="headrace-bench-")
        self.options = options or []
        self.port = 0
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        command = [
            *(sys.executable, "-m", "headrace.cli"),
            *("serve", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--data", os.path.join(self.directory.name, "data"), *self.options),  # noqa: PTH118
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("headrace ready "):
            process.kill()
            process.wait()
            raise BenchError("headrace serve did not start; its log has the reason")
        ready = json.loads(line.removeprefix("headrace ready "))
        self.port = int(ready["amqp"].rpartition(":")[2])
        return process

    @property
    def url(self) -> str:
        """The URL of the broker, without a user."""
        return f"amqp://127.0.0.1:{self.port}/"

    def kill_and_start(self) -> tuple[int, float]:
        """Kill the broker and start it again on the same directory and port."""
        self.process.kill()
        self.process.wait()
        self._close_pipe()
        began = time.monotonic()
        self.process = self._start()
        return self.process.pid, began

    def close(self) -> None:
        """Stop the broker and remove its data directory."""
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._close_pipe()
        self.directory.cleanup()

    def _close_pipe(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()


class RestartedBroker:
    """A broker on this machine that a command of the user starts again."""

    def __init__(self, settings: Settings, command: str) -> None:
        self.settings = settings
        self.command = shlex.split(command)

    def kill_and_start(self) -> tuple[int, float]:
        """Kill the process that listens at the address, and run the command.

        Raises:
            BenchError: no process of this machine listens there, before or after the command.
        """
        host, port = self.settings.host, self.settings.port
        pid = find_listener(host, port)
        if not pid:
            raise BenchError(f"no process of this machine listens on {self.settings.address}")
        os.kill(pid, signal.SIGKILL)
        while find_listener(host, port) == pid:
            time.sleep(0.01)
        began = time.monotonic()
        # The new process outlives this one, as only the user can stop the broker.
        subprocess.Popen(  # noqa: S603
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = began + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            with suppress(OSError):
                if new_pid := find_listener(host, port):
                    return new_pid, began
            time.sleep(0.01)
        raise BenchError(f"nothing listens on {self.settings.address} after its restart")
