# SPDX-License-Identifier: Apache-2.0
"""A broker with a console in this process, and a client of its HTTP API."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import socket
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from headrace.console.run import Console
from headrace.console.settings import ConsoleSettings
from headrace.testing import LocalBroker
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GUEST = ("guest", "guest")


class HttpAnswer(NamedTuple):
    """An answer, with its body read."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ConsoleOnThread:
    """A console of a running broker, on a thread of this process."""

    def __init__(self, data: Path, **settings: Any) -> None:
        """``data`` is the directory of the broker, ``settings`` are those of the console."""
        self.socket = data / "management.sock"
        self._settings = ConsoleSettings(socket=self.socket, port=0, metrics_port=0, **settings)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="console")
        self.console: Console | None = None
        self.addresses: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        self.addresses = self.run(self._start())
        return self

    async def _start(self) -> dict[str, str]:
        self.console = Console(self._settings)
        return await self.console.start()

    def __exit__(self, *_: object) -> None:
        assert self.console is not None
        self.run(self.console.stop())
        self.run(end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def run(self, work: Any) -> Any:
        """Run a coroutine on the console's loop."""
        done: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(PATIENCE_S)

    @property
    def port(self) -> int:
        """The port of the API."""
        return int(self.addresses["http"].rpartition(":")[2])

    @property
    def metrics_port(self) -> int:
        """The port of the metrics."""
        return int(self.addresses["metrics"].removesuffix("/metrics").rpartition(":")[2])

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: tuple[str, str] | None = GUEST,
        headers: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> HttpAnswer:
        """Send one request and return the answer; ``body`` is bytes, or becomes JSON."""
        sent = dict(headers or {})
        if user is not None:
            sent["Authorization"] = basic(*user)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=PATIENCE_S)
        try:
            connection.putrequest(method, path, skip_host="Host" in sent)
            if body is not None:
                sent.setdefault("Content-Length", str(len(body)))
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return HttpAnswer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Any:
        """Return the JSON of a GET that is answered with 200."""
        answer = self.ask("GET", path, **options)
        assert answer.status == 200, (answer.status, answer.body)
        return answer.json

    def send(self, raw: bytes) -> bytes:
        """Send bytes, which have the server close; return all that comes until then."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as end:
            end.sendall(raw)
            found = b""
            while piece := end.recv(65536):
                found += piece
            return found


class LocalConsole(ConsoleOnThread):
    """A broker and its console, on threads of this process."""

    def __init__(
        self, data: Path, *, broker: Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        """``settings`` are those of the console, ``broker`` those of the broker."""
        super().__init__(data, **settings)
        self.broker = LocalBroker(data, **(broker or {}))

    def __enter__(self) -> Self:
        self.broker.start()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.broker.stop()


def basic(username: str, password: str) -> str:
    """Return an Authorization header."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


async def end_tasks() -> None:
    """Cancel the other tasks of the loop, as ``asyncio.run`` does: idle connections have some."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
