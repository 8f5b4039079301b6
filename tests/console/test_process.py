# SPDX-License-Identifier: Apache-2.0
"""``headrace serve --console``: the ready line, and a console that dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.cli.server import console_child
from headrace.cli.server.console_child import ConsoleChild
from headrace.server.config.settings import Settings
from support.console import basic
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator


# The command, whose ready line waits longer for the console: the machine may be busy.
PATIENT = f"""
from headrace.cli import main
from headrace.cli.server import console_child
console_child.READY_S = {PATIENCE_S}
main()
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """``headrace serve --console`` on free ports, and its ready line."""
    options = (
        "--console",
        "--port=0",
        "--console-port=0",
        "--metrics-port=0",
        f"--data={tmp_path}",
    )
    process = subprocess.Popen(
        [sys.executable, "-c", PATIENT, "serve", *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        yield process, json.loads(line.removeprefix("headrace ready "))
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        process.stdout.close()


def whoami(url: str) -> dict[str, object]:
    request = urllib.request.Request(
        f"{url}/api/whoami", headers={"Authorization": basic("guest", "guest")}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        found: dict[str, object] = json.load(answer)
        return found


def child_of(parent: int) -> int:
    """Return the console's process."""
    (found,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return int(found)


def test_the_ready_line_has_the_addresses_and_a_killed_console_returns(served) -> None:
    process, ready = served
    assert set(ready) == {"amqp", "http", "metrics", "pid"}
    assert ready["pid"] == process.pid
    assert ready["metrics"].endswith("/metrics")
    assert whoami(ready["http"])["name"] == "guest"
    first = child_of(process.pid)
    os.kill(first, signal.SIGKILL)
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            assert whoami(ready["http"])["name"] == "guest"  # On the same port.
            break
        except OSError:
            continue
    assert child_of(process.pid) != first


def test_the_ready_line_does_not_wait_for_a_late_console(tmp_path, monkeypatch) -> None:
    assert console_child.READY_S == 2
    monkeypatch.setattr(console_child, "READY_S", 0.01)
    child = ConsoleChild(Settings(), tmp_path / "management.sock")
    silent = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    monkeypatch.setattr(child, "command", lambda: silent)

    async def started() -> dict[str, str]:
        try:
            return await child.start()
        finally:
            await child.stop()

    assert asyncio.run(started()) == {}


def test_a_console_that_cannot_be_started_is_started_later(tmp_path, monkeypatch) -> None:
    """Such as while the system has no room for a process, or when it writes what is no JSON."""
    monkeypatch.setattr(console_child, "PAUSE_S", 0.0)
    says = "print('headrace console ready ' + {!r}, flush=True)"
    lines = [
        [str(tmp_path / "absent")],
        [sys.executable, "-c", says.format("no JSON")],
        [sys.executable, "-c", says.format('{"http": "http://127.0.0.1:15672"}')],
    ]
    child = ConsoleChild(Settings(), tmp_path / "management.sock")
    monkeypatch.setattr(child, "command", lambda: lines.pop(0) if len(lines) > 1 else lines[0])

    async def started() -> dict[str, str]:
        monkeypatch.setattr(console_child, "READY_S", PATIENCE_S)
        try:
            return await child.start()
        finally:
            await child.stop()

    assert asyncio.run(started()) == {"http": "http://127.0.0.1:15672"}


def test_the_console_ends_with_the_broker(served) -> None:
    process, _ = served
    console = child_of(process.pid)
    process.kill()
    process.wait(PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{console}/exe").exists() and time.monotonic() < until:
        os.sched_yield()
    assert not Path(f"/proc/{console}/exe").exists()
