# SPDX-License-Identifier: Apache-2.0
"""The bounded number of clients of the management socket, when several connect at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from headrace.management_socket import short_address
from headrace.server.management import socket as management
from headrace.server.management.socket import ManagementSocket, SocketClient
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

PLACES = 8
REQUEST = b'{"do":"none"}\n'


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management, "CLIENTS_MAX", PLACES)


class Operators:
    """A management socket, and clients of it in the same event loop."""

    def __init__(self, path: Path, stack: contextlib.ExitStack) -> None:
        broker: Any = SimpleNamespace(
            reactor=SimpleNamespace(turn=lambda: None), audit=SimpleNamespace(active=False)
        )
        self.path = path
        self.socket = ManagementSocket(broker, path, {})
        self._stack = stack

    def connect(self, count: int, request: bytes = b"") -> list[socket.socket]:
        """Connect clients, which the event loop accepts in one turn."""
        return [self._connect(request) for _ in range(count)]

    def _connect(self, request: bytes) -> socket.socket:
        client = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        with short_address(self.path) as address:
            client.connect(address)
        client.sendall(request)
        client.setblocking(False)
        return client

    async def until(self, condition: Callable[[ManagementSocket], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition(self.socket):
                await asyncio.sleep(0)


async def read(client: socket.socket) -> Any:
    """Return the next answer; None at the end."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            line = await asyncio.get_running_loop().sock_recv(client, 4096)
        except ConnectionResetError:
            return None
    return json.loads(line) if line else None


def is_open(client: socket.socket) -> bool:
    try:
        return client.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


@contextlib.asynccontextmanager
async def operators(path: Path) -> AsyncIterator[Operators]:
    with contextlib.ExitStack() as stack:
        found = Operators(path / "management.sock", stack)
        await found.socket.open()
        yield found
        await found.socket.close()


def test_new_clients_replace_no_more_idle_ones_than_they_need(tmp_path: Path) -> None:
    async def run() -> None:
        async with operators(tmp_path) as served:
            idle = served.connect(PLACES - 2)
            await served.until(lambda its: len(its.idle) == PLACES - 2)
            new = served.connect(4, REQUEST)
            for client in new:
                assert (await read(client))["code"] == "bad-request"
            await served.until(lambda its: len(its.clients) == PLACES)
            assert [is_open(client) for client in idle] == [False, False, True, True, True, True]
            assert all(map(is_open, new))

    asyncio.run(run())


def test_new_clients_take_all_free_places_beside_busy_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = asyncio.Event()

    async def work(client: SocketClient, request: dict[str, object]) -> None:
        await is_over.wait()
        await client.send('{"done":{}}')

    monkeypatch.setattr(SocketClient, "run", work)

    async def run() -> None:
        async with operators(tmp_path) as served:
            busy = served.connect(PLACES - 2, REQUEST)
            await served.until(lambda its: len(its.clients) == PLACES - 2 and not its.idle)
            new = served.connect(4, REQUEST)
            for client in new[2:]:
                assert (await read(client))["code"] == "limit"
            is_over.set()
            for client in (*busy, *new[:2]):
                assert await read(client) == {"done": {}}

    asyncio.run(run())


def test_a_client_that_leaves_gives_its_place_to_the_next(tmp_path: Path) -> None:
    async def run() -> None:
        async with operators(tmp_path) as served:
            idle = served.connect(PLACES)
            await served.until(lambda its: len(its.idle) == PLACES)
            idle[0].close()
            await served.until(lambda its: len(its.clients) == PLACES - 1)
            (new,) = served.connect(1, REQUEST)
            assert (await read(new))["code"] == "bad-request"
            assert all(map(is_open, idle[1:]))

    asyncio.run(run())
