# SPDX-License-Identifier: Apache-2.0
"""Brokers for tests, on a thread of this process or in a child process.

A ``LocalBroker`` runs on a thread and starts within milliseconds. Without a data directory it
stores everything in memory. A ``ChildBroker`` runs ``headrace serve``, for tests that kill the
broker. Both are context managers. Both reserve their port for their lifetime, so that a restarted
broker has the same URL.
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

START_TIMEOUT_S = 120.0  # Enough for a busy machine. A start usually takes tenths of a second.
STOP_TIMEOUT_S = 120.0


class BrokerFailed(Exception):
    """The broker did not start or did not stop in time; the message has the reason."""


class _BrokerAddress:
    """The host, port and URLs of a broker. The port is 0 until the first start."""

    host = "127.0.0.1"
    port = 0

    @property
    def url(self) -> str:
        """The broker's URL for the user ``guest`` and the virtual host ``/``."""
        return self.url_of()

    def url_of(self, user: str = "guest", password: str = "guest", vhost: str = "/") -> str:
        """Return the broker's URL for a user, a password and a virtual host."""
        login = f"{quote(user, safe='')}:{quote(password, safe='')}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"amqp://{login}@{host}:{self.port}/{quote(vhost, safe='')}"


class LocalBroker(_BrokerAddress):
    """A broker on a thread of this process.

    Args:
        data: the data directory. None stores everything in memory until the broker stops.
        settings: settings of the broker by name, as in docs/reference/settings.md:
            ``LocalBroker(frame_max=4096)``. A text is parsed as in a settings file.
    """

    defaults: ClassVar[Fields] = {}  # Settings of every LocalBroker; keywords take precedence.

    def __init__(self, data: Path | None = None, **settings: Json) -> None:
        settings = {**self.defaults, **settings}
        # Addresses (host:port) by protocol: amqp, and amqps if the broker has a certificate.
        self.addresses: dict[str, str] = {}
        self.host = str(settings.pop("host", self.host))
        self._data = data
        self._settings = settings
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._broker: Json = None  # Headrace's own tests read its state.
        self._stopping: asyncio.Event | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the broker and wait until it accepts connections.

        Raises:
            BrokerFailed: a setting is invalid, the port is in use, or ``START_TIMEOUT_S`` passed.
        """
        assert self._thread is None, "the broker already runs"
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
        """Stop the broker as SIGTERM would: close its connections and write pending records.

        A broker that does not run is left alone.

        Raises:
            BrokerFailed: the stop takes longer than ``STOP_TIMEOUT_S``.
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
        """Stop the broker and start it again on the same port.

        Durable objects and persistent messages survive if it has a data directory.
        """
        self.stop()
        return self.start()

    def _run(self, started: Future[None]) -> None:
        try:
            from headrace.server.net.hot_sockets import HotLoop

            with asyncio.Runner(loop_factory=HotLoop) as runner:
                runner.run(self._serve(started))
        except BaseException as error:
            if started.done():
                raise  # The broker had started: threading prints the error, pytest reports it.
            started.set_exception(error)

    async def _serve(self, started: Future[None]) -> None:
        from headrace.server.broker import Broker
        from headrace.server.config.settings import Settings

        self.port = self.port or reserve_for(self, self.host)
        values = {"host": self.host, "port": self.port, **read_settings(self._settings)}
        if self._data is None:
            values["memory"] = True
        else:
            values["data"] = self._data
        settings = Settings(**values)
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


def read_settings(settings: Fields) -> Fields:
    """Parse settings that are texts, such as ``"64MiB"``; return the values of all settings.

    Raises:
        SettingError: a setting does not exist, or its text is not a valid value.
    """
    from headrace.server.config.settings import BY_NAME, SettingError, suggestion_for

    values = {}
    for name, value in settings.items():
        setting = BY_NAME.get(name)
        if setting is None:
            raise SettingError(name, "test", f"there is no such setting{suggestion_for(name)}")
        values[setting.name] = setting.read(value, "test") if isinstance(value, str) else value
    return values


def format_flags(settings: Fields) -> list[str]:
    """Return settings as flags of ``headrace serve``; a setting that is None has no flag.

    Raises:
        SettingError: a setting does not exist, or its text is not a valid value.
    """
    flags = []
    for name, value in read_settings(settings).items():
        flag = name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags.append(f"--{flag}={value}")
    return flags


class ChildBroker(_BrokerAddress):
    """A ``headrace serve`` in a child process, for tests that kill the broker.

    Args:
        data: the data directory. None stores everything in memory until the broker stops.
        options: flags of ``headrace serve``, such as ``"--segment-size=1MiB"``.
    """

    def __init__(self, data: Path | None = None, *options: str) -> None:
        self._storage_flags = ("--memory",) if data is None else ("--data", str(data))
        self._options = options
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self.stop()

    @property
    def pid(self) -> int:
        """The process id of the broker, which must run."""
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    def start(self) -> Self:
        """Start the process and wait until the broker accepts connections.

        Raises:
            BrokerFailed: the process ended, or ``START_TIMEOUT_S`` passed, before it was ready.
        """
        assert self._process is None, "the broker already runs"
        self.port = self.port or reserve_for(self, self.host)
        command = [sys.executable, "-m", "headrace.cli", "serve"]
        command += ["--host", self.host, "--port", str(self.port)]
        command += [*self._storage_flags, *self._options]
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        line = self._first_line(self._process)
        if not line.startswith("headrace ready "):
            status = self._end(signal.SIGKILL)
            raise BrokerFailed(
                f"the broker did not start (exit status {status}); its first line was {line!r}"
            )
        addresses = json.loads(line.removeprefix("headrace ready "))
        self.port = int(addresses["amqp"].rpartition(":")[2])
        return self

    def stop(self) -> int:
        """Stop the process with SIGTERM and return its exit status.

        Raises:
            BrokerFailed: the stop takes longer than ``STOP_TIMEOUT_S``; the process is killed then.
        """
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """Kill the process with SIGKILL, as a crash would; return its exit status."""
        return self._end(signal.SIGKILL)

    def restart(self) -> Self:
        """Stop the broker and start it again on the same port.

        Durable objects and persistent messages survive if it has a data directory.
        """
        self.stop()
        return self.start()

    def _first_line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(START_TIMEOUT_S):
                return ""
        return process.stdout.readline()

    def _end(self, signal_number: signal.Signals) -> int:
        assert self._process is not None, "the broker does not run"
        process, self._process = self._process, None
        process.send_signal(signal_number)
        try:
            return process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailed(f"the broker did not stop within {STOP_TIMEOUT_S} s") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()
