# SPDX-License-Identifier: Apache-2.0
"""Real brokers for tests: one on a thread of this process, one in a process of its own.

`LocalBroker` is there in milliseconds and keeps everything in memory unless it is given a
directory. `ChildBroker` is `headrace serve`, for tests that kill it. Both keep their port when
they are started again, which no other process is assigned meanwhile; both are context managers.
"""

from __future__ import annotations

import asyncio
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self
from urllib.parse import quote

from headrace.testing.ports import reserve_for

if TYPE_CHECKING:
    from headrace.untyped import Fields, Json

START_TIMEOUT_S = 120.0  # Of a machine that is busy otherwise; some tenths of a second are needed.
STOP_TIMEOUT_S = 120.0


class BrokerFailed(Exception):
    """The broker did not start, or did not stop."""


class _Address:
    """The address of a broker; known once it has started."""

    host = "127.0.0.1"
    port = 0

    @property
    def url(self) -> str:
        """Return the URL for clients: user guest, virtual host /."""
        return self.url_of()

    def url_of(self, user: str = "guest", password: str = "guest", vhost: str = "/") -> str:
        """The URL for another user or virtual host."""
        login = f"{quote(user, safe='')}:{quote(password, safe='')}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"amqp://{login}@{host}:{self.port}/{quote(vhost, safe='')}"


class LocalBroker(_Address):
    """A broker on a thread of this process.

    The keywords are settings of the broker, as in docs/reference/settings.md:
    `LocalBroker(frame_max=4096)`.
    """

    defaults: ClassVar[Fields] = {}  # Settings of all such brokers; keywords take precedence.

    def __init__(self, data: Path | None = None, **settings: Json) -> None:
        settings = {**self.defaults, **settings}
        self.addresses: dict[str, str] = {}  # By protocol: amqp, and amqps when it listens to TLS.
        self.host = str(settings.pop("host", self.host))
        self._data = data
        self._settings = settings
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._broker: Json = None  # For our own tests.
        self._stopping: asyncio.Event | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start it and wait until it accepts connections. Raises BrokerFailed."""
        assert self._thread is None, "the broker runs"
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="headrace-broker", daemon=True
        )
        self._thread.start()
        try:
            started.result(START_TIMEOUT_S)
        except TimeoutError:
            raise BrokerFailed(f"the broker did not start within {START_TIMEOUT_S} s") from None
        except Exception as error:
            self._thread.join()
            self._thread = None
            raise BrokerFailed(f"the broker did not start: {error}") from error
        return self

    def stop(self) -> None:
        """Stop it as SIGTERM would: clients are notified, pending records are written.

        Raises BrokerFailed when it takes longer than `STOP_TIMEOUT_S`.
        """
        if self._thread is None:
            return
        assert self._loop is not None
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise BrokerFailed(f"the broker did not stop within {STOP_TIMEOUT_S} s")
        self._thread = None

    def restart(self) -> Self:
        """Stop it and start it again on the same port; with a directory it has what it kept."""
        self.stop()
        return self.start()

    def _run(self, started: Future[None]) -> None:
        try:
            from headrace.server.net.hot_sockets import HotLoop

            with asyncio.Runner(loop_factory=HotLoop) as runner:
                runner.run(self._serve(started))
        except BaseException as error:
            if started.done():
                raise  # While it ran or stopped: threading prints it, pytest reports it.
            started.set_exception(error)

    async def _serve(self, started: Future[None]) -> None:
        from headrace.server.broker import Broker
        from headrace.server.config.settings import Settings

        self.port = self.port or reserve_for(self, self.host)
        asked: Fields = {"host": self.host, "port": self.port, **read(self._settings)}
        if self._data is None:
            asked["memory"] = True
        else:
            asked["data"] = self._data
        settings = Settings(**asked)
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._broker = broker = Broker(settings)
        self.addresses = await broker.start()
        try:
            self.port = int(self.addresses["amqp"].rpartition(":")[2])
            started.set_result(None)
            await self._stopping.wait()
        finally:
            await broker.stop()


def read(settings: Fields) -> Fields:
    """Return settings with texts such as "64MiB" as values.

    Raises:
        SettingError: a setting does not exist, or a text is not a value of it.
    """
    from headrace.server.config.settings import BY_NAME, SettingError, suggestion_for

    values = {}
    for name, value in settings.items():
        row = BY_NAME.get(name)
        if row is None:
            raise SettingError(name, "test", f"there is no such setting{suggestion_for(name)}")
        values[row.name] = row.read(value, "test") if isinstance(value, str) else value
    return values


def flags(settings: Fields) -> list[str]:
    """Return settings as flags of `headrace serve`. Raises SettingError as `read` does."""
    words = []
    for name, value in read(settings).items():
        flag = name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words.append(f"--{flag}={value}")
    return words


class ChildBroker(_Address):
    """`headrace serve` in a process of its own, for tests that kill it."""

    def __init__(self, data: Path | None = None, *options: str) -> None:
        self._where = ("--memory",) if data is None else ("--data", str(data))
        self._options = options
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self.stop()

    @property
    def pid(self) -> int:
        """The process, while it runs."""
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    def start(self) -> Self:
        """Start it and wait until it accepts connections. Raises BrokerFailed."""
        assert self._process is None, "the broker runs"
        self.port = self.port or reserve_for(self, self.host)
        command = [sys.executable, "-m", "headrace.cli", "serve"]
        command += ["--host", self.host, "--port", str(self.port), *self._where, *self._options]
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._process = subprocess.Popen(  # Our own program.
            command,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        line = self._first_line(self._process)
        if not line.startswith("headrace ready "):
            status = self._end(signal.SIGKILL)
            raise BrokerFailed(f"the broker did not start (exit status {status}); it said {line!r}")
        addresses = json.loads(line.removeprefix("headrace ready "))
        self.port = int(addresses["amqp"].rpartition(":")[2])
        return self

    def stop(self) -> int:
        """Stop the process with SIGTERM; return its exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """Kill it at once, as a crash would; return its exit status."""
        return self._end(signal.SIGKILL)

    def restart(self) -> Self:
        """Stop it and start it again on the same port, with what it kept."""
        self.stop()
        return self.start()

    def _first_line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(START_TIMEOUT_S):
                return ""
        return process.stdout.readline()

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None, "the broker does not run"
        process, self._process = self._process, None
        process.send_signal(how)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailed(f"the broker did not stop within {STOP_TIMEOUT_S} s") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()
