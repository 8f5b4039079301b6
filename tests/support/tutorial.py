# SPDX-License-Identifier: Apache-2.0
"""Runs a tutorial: saves its programs, runs its commands, and compares what they print.

A terminal is a new shell in the home directory, with the PATH of a new login. So a page has to say
how each one comes to its programs and its directory. A block of code says by its title what it is:

- ``sh title="install"`` makes a virtual environment that has what it says, and nothing else
  (:mod:`support.tutorial_environment`);
- ``sh title="every terminal"`` is what every terminal begins with;
- ``python title="NAME"`` is saved as the file NAME, or added to it, where a terminal begins;
- ``sh`` runs in the one terminal whose commands end;
- ``sh title="NAME"`` is a terminal whose last command goes on, such as the broker's, and
  takes the place of the command that ran in that terminal before;
- ``text`` is what the block before it printed, and ``text title="NAME"`` what that terminal did.
  Three dots stand for anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from headrace.spark.runtime import quick_start
from support.timeouts import PATIENCE_S
from support.tutorial_environment import Environment

BLOCK = re.compile(r'^```(\w+)(?: title="([^"\n]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```\w", re.MULTILINE)
DEFAULT_URL = re.compile(r"amqp://guest:guest@(?:127\.0\.0\.1|localhost)/")
REPEATABLE = ("headrace list ", "headrace peek ")  # Commands that change nothing.
INSTALL, BEGIN, BROKER = "install", "every terminal", "broker"
#: Of our own environment: language and places, what makes Java start faster, and relays.
KEPT = (
    *("LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME", "JDK_JAVA_OPTIONS", quick_start.CACHE),
    "HEADRACE_RELAYS",
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in their order."""
    text = page.read_text()
    blocks = [Block(*found) for found in BLOCK.findall(text)]
    assert len(blocks) == len(FENCE.findall(text)), "a block is not closed, or has an odd title"
    return blocks


def matches(printed: str, expected: str) -> bool:
    """Return True if a text is the expected one, where three dots stand for anything."""
    pattern = ".*".join(re.escape(part) for part in expected.rstrip("\n").split("..."))
    return re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL) is not None


class Terminal:
    """A terminal with a command that goes on."""

    def __init__(self, command: str, home: Path, environment: dict[str, str]) -> None:
        environment = {**environment, "PYTHONFAULTHANDLER": "1"}
        self._errors = (home.parent / "stderr").open("ab")
        self._child = subprocess.Popen(
            ["bash", "-ec", command],
            cwd=home,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )

    def read_lines(self, count: int) -> str:
        """Return the next lines, for which it waits; fewer when the command ends, or hangs."""
        assert self._child.stdout is not None
        guard = threading.Timer(PATIENCE_S, self._signal, [signal.SIGKILL])
        guard.start()
        try:
            return "".join(self._child.stdout.readline() for _ in range(count))
        finally:
            guard.cancel()

    def close(self) -> None:
        """End the command as Ctrl-C does."""
        assert self._child.stdout is not None
        self._signal(signal.SIGINT)
        try:
            self._child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGABRT)  # Python's fault handler prints where each thread is.
            self._child.wait()
            raise AssertionError(Path(self._errors.name).read_text()) from None
        finally:
            self._child.stdout.close()
            self._errors.close()

    def _signal(self, number: int) -> None:
        if self._child.poll() is None:
            os.killpg(self._child.pid, number)


class Tutorial:
    """The run of a page with a home directory of its own."""

    def __init__(self, page: Path, home: Path) -> None:
        self._blocks = blocks_of(page)
        self._home = home / "home"
        self._home.mkdir()
        self._installed = Environment(self._home)
        self._begin = ""
        self._place = self._home  # Where a terminal begins, and programs are saved,
        self._here = self._home  # and where the terminal is whose commands end.
        self._terminals: dict[str, Terminal] = {}
        self._url = ""
        path = os.environ["PATH"].split(os.pathsep)
        if sys.prefix != sys.base_prefix:  # The environment of the tests.
            path = [one for one in path if Path(one) != Path(sys.prefix, "bin")]
        self._environment = {
            **{name: os.environ[name] for name in KEPT if name in os.environ},
            "PATH": os.pathsep.join(path),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "HOME": str(self._home),
        }

    def run(self) -> int:
        """Run every block; return how many texts were compared."""
        compared = 0
        before: Block | None = None
        try:
            for block in self._blocks:
                if block.language == "text":
                    compared += 1
                    if block.title:
                        self._compare_terminal(block)
                    else:
                        assert before is not None, block.text
                        self._run(before.text, block.text)
                        before = None
                    continue
                if before is not None:
                    self._run(before.text, None)
                    before = None
                if block.language == "python":
                    assert block.title, "a program without the name of its file"
                    with (self._place / block.title).open("a") as file:
                        file.write(DEFAULT_URL.sub(lambda _: self._url, block.text))
                elif block.title == INSTALL:
                    self._installed.run(block.text)
                elif block.title == BEGIN:
                    self._begin = block.text
                    self._run("", None)
                    self._place = self._here
                elif block.title:
                    self._open(block)
                else:
                    assert block.language == "sh", block.language
                    before = block
            if before is not None:
                self._run(before.text, None)
        finally:
            with contextlib.ExitStack() as ending:  # All of them, though one does not end.
                for terminal in self._terminals.values():
                    ending.callback(terminal.close)
        return compared

    def _open(self, block: Block) -> None:
        """Start a terminal's command; of a broker, wait until it listens."""
        command = block.text
        if block.title == BROKER:
            assert command == "headrace serve\n"
            command = "exec headrace serve --port 0"
        if block.title in self._terminals:
            self._terminals.pop(block.title).close()
        terminal = Terminal(self._begin + command, self._home, self._environment)
        self._terminals[block.title] = terminal
        if block.title == BROKER:
            ready = terminal.read_lines(1)
            assert ready.startswith("headrace ready "), self._errors()
            address = json.loads(ready.removeprefix("headrace ready "))["amqp"]
            self._url = f"amqp://guest:guest@{address}/"
            self._environment["HEADRACE_URL"] = self._url

    def _compare_terminal(self, block: Block) -> None:
        printed = self._terminals[block.title].read_lines(block.text.count("\n"))
        assert matches(printed, block.text), printed + self._errors()

    def _run(self, commands: str, expected: str | None) -> None:
        """Run commands, which must succeed and print what the page has."""
        where = self._home.parent / "where"
        back = f"cd {shlex.quote(str(self._here))}\n" if self._here != self._home else ""
        whole = f"{self._begin}{back}{commands}\npwd > {shlex.quote(str(where))}"
        again = all(line.startswith(REPEATABLE) for line in commands.splitlines())
        end = monotonic() + PATIENCE_S
        while True:
            done = subprocess.run(
                ["bash", "-ec", whole],
                cwd=self._home,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == 0, commands + done.stdout + done.stderr + self._errors()
            if expected is None or matches(done.stdout, expected):
                self._here = Path(where.read_text().rstrip("\n"))
                return
            if not again or monotonic() > end:
                raise AssertionError(commands + done.stdout + done.stderr + self._errors())

    def _errors(self) -> str:
        errors = self._home.parent / "stderr"
        return errors.read_text() if errors.exists() else ""
