# SPDX-License-Identifier: Apache-2.0
"""The management socket: requests of operators on this machine.

A Unix socket with mode 0600. A client sends a line with a JSON object that names the operation in
``do``; the answer is lines with one JSON object each, the last of which has ``done`` or ``error``::

    {"do": "list queues", "vhost": "/"}
                                    {"item": {"name": "orders", "ready": 7, ...}}
                                    {"item": {"name": "invoices", "ready": 0, ...}}
                                    {"done": {"items": 2}}
    {"do": "close connection", "id": 99}
                                    {"error": "there is no connection 99", "code": "not-found"}

A long operation without output sends ``{"busy": true}`` now and then.

An operation with more input reads the lines that follow the request, up to ``{"end": true}``. If
the broker refuses such an operation before the end, it closes the connection.

With ``as``, a ticket of the operation ``login``, an operation runs as that user, with its rights
only (:mod:`headrace.server.management.operation_table`); ``peer`` and ``agent`` are the user's
address and program, for the audit log. Without it the system user has all rights. The kernel names
the peer's user (SO_PEERCRED): only the broker's own system user and root are served.

The number of clients, the length of a line, and the time to send a request or to read an answer
are bounded. A new client beyond the bound replaces the one that has been idle longest. A long list
is made in slices, no faster than the client reads it; the loop serves others between two slices.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.management_socket import FILE_NAME, short_address
from headrace.server.management.call import JsonLine, OperationRefused
from headrace.server.management.client import OperatorClient
from headrace.server.observe.account_events import Operator

if TYPE_CHECKING:
    from headrace.server.management.managed_broker import ManagedBroker
    from headrace.server.management.operation_table import OperationRow

log = logging.getLogger(__name__)

CLIENTS_MAX = 64  # Clients at the same time.
LINE_SIZE_MAX = 1 << 20  # Bytes of a request, or of a line that follows one.
IDLE_S = 300.0  # The longest time between two requests of a client.
READ_S = 60.0  # The longest time that an answer may stay unread.
ACCEPT_TURNS = 3  # Turns of the loop until asyncio reports an accepted connection.
LINGER_S = 1.0  # The time for which input after the last answer is read.
CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group.


class SocketError(Exception):
    """The management socket cannot be opened; the text is the reason."""


class ManagementSocket:
    """Listens on a Unix socket, and serves a table of operations."""

    def __init__(
        self, broker: ManagedBroker, path: Path, operations: Mapping[str, OperationRow]
    ) -> None:
        """``operations`` has each operation by its name."""
        self.broker = broker
        self.path = path
        self.operations = operations
        self.former_names = {
            row.former_name: row.name for row in operations.values() if row.former_name
        }
        self.clients: set[asyncio.Task[None]] = set()
        self.places: set[asyncio.Task[None]] = set()  # Clients within CLIENTS_MAX.
        self.idle: dict[asyncio.Task[None], None] = {}  # Idle clients, longest first.
        self._server: asyncio.Server | None = None
        self._inode = 0

    async def open(self) -> None:
        """Listen; replace the socket of a killed broker.

        Raises:
            SocketError: another broker listens there, or the path cannot be used.
        """
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_address(self.path) as address:
                remove_stale(self.path, address)
                listening.bind(address)
            # No client can connect with the initial mode, since the socket does not listen yet.
            self.path.chmod(0o600)
            self._inode = self.path.stat().st_ino
            listening.setblocking(False)
            self._server = await asyncio.start_unix_server(
                self._accept, sock=listening, limit=LINE_SIZE_MAX
            )
        except OSError as error:
            listening.close()
            raise SocketError(f"{self.path}: {error.strerror or error}") from error
        except SocketError:
            listening.close()
            raise

    async def close(self) -> None:
        """Close all clients, and remove the socket, unless another broker has replaced it."""
        if self._server is None:
            return
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        # asyncio would lose connections that it has accepted and not reported yet.
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        self._server.close()
        self._server = None
        for task in list(self.clients):
            task.cancel()
        if self.clients:
            await asyncio.wait(self.clients, timeout=1.0)
        with contextlib.suppress(OSError):
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self.clients.add(task)

        def clean_up(task: asyncio.Task[None]) -> None:
            self.clients.discard(task)
            self.places.discard(task)
            self.idle.pop(task, None)
            if task.cancelled():  # An idle client was replaced, or the broker stops.
                writer.transport.abort()
            else:
                writer.close()

        task.add_done_callback(clean_up)

    def _take_place(self, client: SocketClient) -> bool:
        """Take a place for the current task, that of the longest idle client if none is free.

        Return False if there is none. Clients that are being refused or closed have no place.
        """
        if len(self.places) >= CLIENTS_MAX:
            if not self.idle or not client.is_trusted():
                return False
            longest_idle = next(iter(self.idle))
            del self.idle[longest_idle]
            self.places.discard(longest_idle)
            longest_idle.cancel()
        task = asyncio.current_task()
        assert task is not None
        self.places.add(task)
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client, or refuse it; a trusted one may replace the longest idle client."""
        try:
            client = SocketClient(self, reader, writer)
            if not self._take_place(client):
                await client.fail("limit", f"{CLIENTS_MAX} operators are served at a time")
            elif client.is_trusted():
                await client.serve()
            else:
                log.warning("management: %s is refused", client.operator)
                client.audit({}, "only the broker's own user and root are served")
                await client.fail("refused", "only the broker's own user and root are served")
            await client.end()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # The client has disconnected, or was idle for too long.


class SocketClient(OperatorClient):
    """The connection of one operator of this machine, whose user the kernel names."""

    def __init__(
        self, owner: ManagementSocket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        connection = writer.get_extra_info("socket")
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        pid, self.uid, _ = CREDENTIALS.unpack(credentials)
        user, process = f"system user {self.uid}", f"process {pid}"
        super().__init__(
            owner.broker, owner.operations, f"{user}, {process}", Operator(user, process)
        )
        self.owner = owner
        self.reader = reader
        self.writer = writer

    def is_trusted(self) -> bool:
        """Return True if the peer's system user is the broker's own, or root."""
        return self.uid in (0, os.geteuid())

    async def serve(self) -> None:
        """Serve requests one after the other."""
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)  # The first request may be there already: the client is not idle.
        while True:
            self.owner.idle[task] = None
            try:
                request = await self.receive()
            except OperationRefused as error:
                await self.fail(error.code, error.text)
                return  # The rest of the line is unread, so the next line cannot be found.
            finally:
                self.owner.idle.pop(task, None)
            if request is None:
                return
            await self.run(request)
            if self.has_unread_lines:
                return  # The unread lines are data, which must not be run as requests.

    async def run(self, request: JsonLine) -> None:
        """Run a request, which may have a former name of its operation."""
        name = request.get("do")
        if isinstance(name, str) and name in self.owner.former_names:
            request = {**request, "do": self.owner.former_names[name]}
        await super().run(request)

    async def read_line(self) -> bytes:
        """Return the next line; see :class:`OperatorClient`."""
        try:
            return await asyncio.wait_for(self.reader.readline(), IDLE_S)
        except ValueError:
            raise OperationRefused(
                "limit", f"a line may have at most {LINE_SIZE_MAX} bytes"
            ) from None

    async def end(self) -> None:
        """End the answers, then read and drop further input, up to a limit.

        Closing a socket with unread input resets the connection, so that the client might lose the
        answer.
        """
        self.writer.write_eof()
        unread = LINE_SIZE_MAX
        async with asyncio.timeout(LINGER_S):
            while unread > 0 and (read := await self.reader.read(unread)):
                unread -= len(read)

    async def send(self, *lines: str) -> None:
        """Send lines; see :class:`OperatorClient`."""
        if lines:
            self.writer.write(("\n".join(lines) + "\n").encode())
            await asyncio.wait_for(self.writer.drain(), READ_S)


def remove_stale(path: Path, address: str) -> None:
    """Remove the socket of a broker that has ended.

    Raises:
        SocketError: another process listens on it, or the path is not a socket.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise SocketError(f"{path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise SocketError(f"{path}: {error.strerror or error}") from error
    raise SocketError(f"{path}: another broker listens there")


def socket_path(setting: str, data: Path | None) -> Path | None:
    """Return the path of the socket: that of the setting, or one in the data directory.

    Return None without a socket.
    """
    if setting == "none":
        return None
    if setting:
        return Path(setting)
    return None if data is None else data / FILE_NAME
