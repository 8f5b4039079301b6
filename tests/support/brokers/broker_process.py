# SPDX-License-Identifier: Apache-2.0
"""A broker in a process of its own, for tests that need real sockets, signals and restarts."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

import headrace
from headrace.testing.ports import reserve_for
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

POLL_S = 0.01
CPUCLOCK_SCHED = 2
TRIES = 10
T = TypeVar("T")


def until(asked: Callable[[], T], wanted: str, timeout_s: float = PATIENCE_S) -> T:
    """Ask again and again until the answer is true, and return it; fail after the deadline."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = asked()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {wanted} (last answer {answer!r})")
        time.sleep(POLL_S)


def undisturbed(act: Callable[[Callable[[], None]], T], pause_s: float) -> T:
    """Do what fails if this process is held up for so long, and then do it again.

    ``act`` is given what it is to call whenever it has to be in time.
    """
    for _ in range(TRIES):
        called_at = time.monotonic()
        longest_s = 0.0

        def in_time() -> None:
            nonlocal called_at, longest_s
            longest_s = max(longest_s, time.monotonic() - called_at)
            called_at = time.monotonic()

        try:
            return act(in_time)
        except Exception:  # Raised again unless it was this process that was late.
            in_time()
            if longest_s < pause_s:
                raise
    raise AssertionError(f"in {TRIES} tries the machine stood still for {pause_s:g} s")


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a log of JSON that are written to their end: the last may be half there."""
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def files_below(folder: Path, pattern: str) -> Iterator[tuple[Path, bytes]]:
    """The files of a tree whose owner may remove them meanwhile, and what is in them."""
    for path in folder.rglob(pattern):
        with contextlib.suppress(FileNotFoundError):
            yield path, path.read_bytes()


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill a broker that nobody holds any more, if it runs."""
    if child.poll() is None:
        child.kill()
        child.wait()
    if child.stdout is not None:
        child.stdout.close()


class Served:
    """`headrace serve` as a child: it can be stopped, killed and started again in its place."""

    def __init__(self, home: Path, *options: str, memory: bool = False) -> None:
        self.home = home
        self.options = options
        self.memory = memory
        self.host = "127.0.0.1"
        self.port = 0
        self.ready: dict[str, str] = {}
        self.log_path = home / "broker.log"
        self.program = [sys.executable, "-m", "headrace.cli"]
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> Served:
        """Start the broker and wait for its ready line; from the second time on the same port."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.port = self.port or reserve_for(self, self.host)
        where = ["--memory"] if self.memory else ["--data", str(self.home / "data")]
        command = [
            *self.program,
            "serve",
            *("--host", self.host, "--port", str(self.port)),
            *where,
            *self.options,
        ]
        package = Path(headrace.__file__).parent.parent
        environment = {**os.environ, "PYTHONPATH": str(package)}
        with self.log_path.open("ab") as log:
            self._child = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env=environment
            )
        # A test that fails before it stops its broker leaves none behind.
        weakref.finalize(self, _end, self._child)
        line = self._first_line(self._child)
        word, _, rest = line.partition(" {")
        assert word == "headrace ready", line
        self.ready = json.loads("{" + rest)
        self.port = int(self.ready["amqp"].rpartition(":")[2])
        return self

    def _first_line(self, child: subprocess.Popen[bytes]) -> str:
        assert child.stdout is not None
        deadline = time.monotonic() + PATIENCE_S
        line = b""
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([child.stdout], [], [], deadline - time.monotonic())
            got = os.read(child.stdout.fileno(), 4096) if readable else b""
            if not got:
                child.kill()
                child.wait()
                child.stdout.close()
                raise AssertionError(f"the broker did not start: {line!r}\n{self.log()}")
            line += got
        return line.decode()

    def administer(self, *words: str) -> None:
        """Run `headrace` on the data directory."""
        environment = {**os.environ, "PYTHONPATH": str(Path(headrace.__file__).parent.parent)}
        command = [sys.executable, "-m", "headrace.cli", *words, "--data", str(self.home / "data")]
        subprocess.run(command, check=True, capture_output=True, env=environment)

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.host}:{self.port}/%2F"

    @property
    def process(self) -> psutil.Process:
        assert self._child is not None
        return psutil.Process(self._child.pid)

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def cpu_s(self) -> float:
        """The processor seconds that the broker has used: what else the machine does is not in.

        By the clock of the process, to the nanosecond; its times are told in hundredths.
        """
        clock = (~self.process.pid << 3) | CPUCLOCK_SCHED  # As clock_getcpuclockid(3) makes it.
        return time.clock_gettime(clock)

    def memory_bytes(self) -> int:
        """Return the broker's resident memory now."""
        return int(self.process.memory_info().rss)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, return the exit status."""
        assert self._child is not None
        child = self._child
        if child.poll() is None:
            child.send_signal(how)
        try:
            status = child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise AssertionError(f"still running after {how.name}\n{self.log()}") from None
        finally:
            if child.stdout is not None:
                child.stdout.close()
        return status

    def end(self) -> None:
        """Stop it: it must end with status 0, and have logged no traceback."""
        assert self.stop() == 0, self.log()
        assert "Traceback" not in self.log(), self.log()

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def restart(self, how: signal.Signals = signal.SIGTERM) -> Served:
        """The same data directory and the same port again, in a new process."""
        self.stop(how)
        return self.start()


class Remote:
    """Another broker, named by a URL: the same tests against another implementation."""

    def __init__(self, url: str, restart_command: str | None) -> None:
        from urllib.parse import urlsplit

        parts = urlsplit(url)
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or 5672
        self.url = url
        self._restart_command = restart_command

    @property
    def restartable(self) -> bool:
        return self._restart_command is not None

    def restart(self) -> Remote:
        assert self._restart_command is not None
        subprocess.run(self._restart_command, shell=True, check=True, capture_output=True)
        return self
