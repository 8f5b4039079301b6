# SPDX-License-Identifier: Apache-2.0
"""``headrace serve --console``: the ready line, and a console that dies."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import pytest

from headrace.cli.server import console_child
from headrace.cli.server.console_child import ConsoleChild
from headrace.server.config.settings import Settings
from support.console import basic
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


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
        [sys.executable, "-m", "headrace.cli", "serve", *options],
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


SILENT = [sys.executable, "-c", "import sys; sys.stdin.read()"]  # Ends with its parent.


def settings(**changes: Any) -> Settings:
    """Return settings with free ports for the console."""
    free: dict[str, Any] = {"console_port": 0, "metrics_port": 0}
    return replace(Settings(), **(free | changes))


class Said(logging.Handler):
    """Waits on a loop for lines of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.put_nowait(record.getMessage())

    async def wait(self, words: str) -> str:
        async with asyncio.timeout(PATIENCE_S):
            while words not in (line := await self.lines.get()):
                pass
        return line

    def __enter__(self) -> Self:
        console_child.log.addHandler(self)
        console_child.log.setLevel(logging.INFO)
        return self

    def __exit__(self, *_: object) -> None:
        console_child.log.removeHandler(self)
        console_child.log.setLevel(logging.NOTSET)


@asynccontextmanager
async def started(child: ConsoleChild) -> AsyncIterator[dict[str, str]]:
    try:
        yield await child.start()
    finally:
        await child.stop()


def reach(url: str) -> None:
    """Connect to the port of an address."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    socket.create_connection((parts.hostname, parts.port or 0), PATIENCE_S).close()


def test_the_addresses_are_known_before_the_console_is_ready(tmp_path, monkeypatch) -> None:
    """Connections wait until it accepts them."""
    child = ConsoleChild(settings(), tmp_path / "management.sock")
    monkeypatch.setattr(child, "command", lambda: SILENT)

    async def run() -> dict[str, str]:
        async with started(child) as addresses:
            for url in addresses.values():
                reach(url)
            return addresses

    addresses = asyncio.run(run())
    assert set(addresses) == {"http", "metrics"}
    assert addresses["metrics"].endswith("/metrics")
    for url in addresses.values():
        with pytest.raises(ConnectionRefusedError):
            reach(url)


def test_without_metrics_there_is_one_address(tmp_path, monkeypatch) -> None:
    child = ConsoleChild(settings(metrics_port=None), tmp_path / "management.sock")
    monkeypatch.setattr(child, "command", lambda: SILENT)

    async def run() -> dict[str, str]:
        async with started(child) as addresses:
            return addresses

    assert set(asyncio.run(run())) == {"http"}


def test_each_host_has_the_same_port(tmp_path, monkeypatch) -> None:
    changes = settings(console_host="127.0.0.1, 127.0.0.2")
    child = ConsoleChild(changes, tmp_path / "management.sock")
    monkeypatch.setattr(child, "command", lambda: SILENT)

    async def run() -> None:
        async with started(child) as addresses:
            for url in addresses.values():
                assert url.startswith("http://127.0.0.1:")
                reach(url)
                reach(url.replace("127.0.0.1", "127.0.0.2"))

    asyncio.run(run())


def test_addresses_of_tls_say_so(tmp_path, monkeypatch) -> None:
    files = {"tls_cert": tmp_path / "chain.pem", "tls_key": tmp_path / "key.pem"}
    child = ConsoleChild(
        settings(console_tls=True, console_host="0.0.0.0", **files), tmp_path / "management.sock"
    )
    monkeypatch.setattr(child, "command", lambda: SILENT)

    async def run() -> dict[str, str]:
        async with started(child) as addresses:
            return addresses

    for url in asyncio.run(run()).values():
        assert url.startswith("https://0.0.0.0:")


def test_passwords_do_not_cross_the_network_in_clear(tmp_path, monkeypatch, caplog) -> None:
    child = ConsoleChild(settings(console_host="0.0.0.0"), tmp_path / "management.sock")
    monkeypatch.setattr(child, "command", lambda: SILENT)

    async def run() -> dict[str, str]:
        async with started(child) as addresses:
            return addresses

    assert asyncio.run(run()) == {}
    assert "0.0.0.0 is not a loopback address" in caplog.text


@pytest.mark.parametrize("name", ["console_port", "metrics_port"])
def test_a_port_in_use_is_named_and_tried_again(tmp_path, monkeypatch, name: str) -> None:
    monkeypatch.setattr(console_child, "PAUSE_S", 0.0)
    says = f"print({console_child.READY + '{}'!r}, flush=True); import sys; sys.stdin.read()"

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other, Said() as log:
            number = other.getsockname()[1]
            child = ConsoleChild(settings(**{name: number}), tmp_path / "management.sock")
            monkeypatch.setattr(child, "command", lambda: [sys.executable, "-c", says])
            async with started(child) as addresses:
                assert addresses == {}
                assert f"'127.0.0.1', {number}" in await log.wait("already in use")
                other.close()
                assert f":{number}" in await log.wait("the console listens on")

    asyncio.run(run())


def test_a_console_that_ends_before_it_is_ready_leaves_no_port_open(tmp_path, monkeypatch) -> None:
    """Clients are refused; they would wait for what may never come."""
    child = ConsoleChild(settings(), tmp_path / "management.sock")
    monkeypatch.setattr(child, "command", lambda: [sys.executable, "-c", ""])

    async def run() -> None:
        with Said() as log:
            async with started(child) as addresses:
                await log.wait("the console has ended")
                with pytest.raises(ConnectionRefusedError):
                    reach(addresses["http"])

    asyncio.run(run())


def test_a_console_that_cannot_be_started_is_started_later(tmp_path, monkeypatch) -> None:
    """The ports stay the same."""
    monkeypatch.setattr(console_child, "PAUSE_S", 0.0)
    says = f"print({console_child.READY + '{}'!r}, flush=True); import sys; sys.stdin.read()"
    lines = [
        [str(tmp_path / "absent")],
        [sys.executable, "-c", "print('x' * 100_000)"],
        [sys.executable, "-c", ""],
        [sys.executable, "-c", says],
    ]
    child = ConsoleChild(settings(), tmp_path / "management.sock")
    monkeypatch.setattr(child, "command", lambda: lines.pop(0) if len(lines) > 1 else lines[0])

    async def run() -> None:
        with Said() as log:
            async with started(child) as addresses:
                line = await log.wait("the console listens on")
                assert line.endswith(", ".join(addresses.values()))

    asyncio.run(run())


@pytest.mark.parametrize("free", range(10))
def test_too_many_open_files_end_no_keeper(tmp_path, monkeypatch, free: int) -> None:
    """Whichever of the files that a start needs is the first that cannot be opened."""
    monkeypatch.setattr(console_child, "PAUSE_S", 0.0)
    says = f"print({console_child.READY + '{}'!r}, flush=True); import sys; sys.stdin.read()"
    child = ConsoleChild(settings(), tmp_path / "management.sock")
    monkeypatch.setattr(child, "command", lambda: [sys.executable, "-c", says])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def run() -> None:
        next_one = os.dup(0)
        os.close(next_one)
        with Said() as log:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (next_one + free, hard))
                async with started(child):
                    if "listens" not in await log.wait("the console"):
                        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                        await log.wait("the console listens on")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    asyncio.run(run())


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_no_error_ends_the_keeper(tmp_path, monkeypatch, error: Exception) -> None:
    monkeypatch.setattr(console_child, "PAUSE_S", 0.0)
    says = f"print({console_child.READY + '{}'!r}, flush=True); import sys; sys.stdin.read()"
    child = ConsoleChild(settings(), tmp_path / "management.sock")
    answers: list[object] = [error, [sys.executable, "-c", says]]

    def command() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(child, "command", command)

    async def run() -> None:
        with Said() as log:
            async with started(child):
                await log.wait("the console has ended")
                await log.wait("the console listens on")

    asyncio.run(run())


def test_the_console_ends_with_the_broker(served) -> None:
    process, ready = served
    whoami(ready["http"])  # It runs.
    console = child_of(process.pid)
    process.kill()
    process.wait(PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{console}/exe").exists() and time.monotonic() < until:
        os.sched_yield()
    assert not Path(f"/proc/{console}/exe").exists()
