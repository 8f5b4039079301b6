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

An operation with more input reads the lines that follow, up to ``{"end": true}``. Then the next
request may follow. Where such an operation is refused before the end, the connection is closed.

With ``as``, a ticket of the operation ``login``, an operation runs as that user, with its rights
only (:mod:`headrace.server.management.operation_table`); ``peer`` and ``agent`` are the user's
address and program, for the audit log. Without it the system user has all rights. The kernel names
the peer's user (SO_PEERCRED): only the broker's own system user and root are served.

Everything is bounded: clients (a new one replaces the one idle longest), the length of a line,
the time to send a request and to read an answer.
A long list is made in slices, between which the loop serves others, and no
faster than it is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import os
import socket
import stat
import struct
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.exact_json import UnfitValue, read_json
from headrace.gateway.messages.pending_confirms import NOT_DURABLE
from headrace.gateway.requests.requests import refusal_code
from headrace.management_socket import FILE_NAME, short_address
from headrace.model.errors import ModelError
from headrace.model.policy.accounts import AccountError
from headrace.server.definitions.document import DocumentError
from headrace.server.management.call import SLICE_S, Answer, Call, OperationRefused, Steps
from headrace.server.management.resources.logins import peer_of
from headrace.server.net.transport import clock_ms
from headrace.server.observe.account_events import Operator
from headrace.server.observe.audited_events import QUIET_COMMANDS, REPAIRS, is_audited, is_read_only
from headrace.store.errors import StoreError

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
STEPS_PER_SLICE = 64  # Steps of a list, within SLICE_S, before the loop serves others.
BUSY_S = 10.0  # Seconds without output before a busy line is sent.
# Fields that the audit log has under other names, or must not have.
UNAUDITED = frozenset(("do", "as", "peer", "agent", "payload", "username", "password", "token"))
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
            # No client can connect before listen(), so the mode is never another.
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
        """Close all clients, and remove the socket if it is still ours."""
        if self._server is None:
            return
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(ACCEPT_TURNS):  # Else asyncio loses connections that it has accepted.
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
            self.idle.pop(task, None)
            if task.cancelled():  # It was idle, or the broker stops: unsent output is dropped.
                writer.transport.abort()
            else:
                writer.close()

        task.add_done_callback(clean_up)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            client = Client(self, reader, writer)
            if len(self.clients) > CLIENTS_MAX and self.idle and client.is_trusted():
                longest_idle = next(iter(self.idle))
                del self.idle[longest_idle]
                longest_idle.cancel()
                await client.serve()
            elif len(self.clients) > CLIENTS_MAX:
                await client.fail("limit", f"{CLIENTS_MAX} operators are served at a time")
            elif client.is_trusted():
                await client.serve()
            else:
                log.warning("management: %s is refused", client.operator)
                client.audit({}, "only the broker's own user and root are served")
                await client.fail("refused", "only the broker's own user and root are served")
            await client.end()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # Closed, or idle for too long.


class Client:
    """The connection of one operator."""

    def __init__(
        self, owner: ManagementSocket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.owner = owner
        self.reader = reader
        self.writer = writer
        end = writer.get_extra_info("socket")
        raw = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        self.pid, self.uid, _ = CREDENTIALS.unpack(raw)
        self.operator = f"system user {self.uid}, process {self.pid}"
        self.actor = Operator(f"system user {self.uid}", f"process {self.pid}")
        self.current: Answer = {}  # The request that is served.
        self.has_unread_lines = False  # Lines follow the request that are not read yet.
        self.acting: Operator | None = None  # The user of the request; None: the system user.

    def is_trusted(self) -> bool:
        """Return True if the peer's user is ours, or root."""
        return self.uid in (0, os.geteuid())

    async def serve(self) -> None:
        """Serve requests one after the other."""
        task = asyncio.current_task()
        assert task is not None
        while True:
            self.owner.idle[task] = None
            try:
                request = await self.receive()
            except OperationRefused as error:
                await self.fail(error.code, error.text)
                return  # The begin of the next line is unknown.
            finally:
                self.owner.idle.pop(task, None)
            if request is None:
                return
            await self.run(request)
            if self.has_unread_lines:
                return  # The lines are data, and may look like requests.

    async def receive(self) -> Answer | None:
        """Return the object of the next line; None at the end, or at ``{"end": true}``.

        Raises:
            OperationRefused: the line is too long, or is not an object.
        """
        try:
            line = await asyncio.wait_for(self.reader.readline(), IDLE_S)
        except ValueError:
            raise OperationRefused("limit", f"a line has {LINE_SIZE_MAX} bytes at most") from None
        if not line:
            return None
        try:
            request = read_json(line)
        except UnfitValue as error:
            raise OperationRefused(
                "bad-request", f"each line must be a JSON object: {error}"
            ) from None
        except ValueError:
            raise OperationRefused("bad-request", "each line must be a JSON object") from None
        if not isinstance(request, dict):
            raise OperationRefused("bad-request", "each line must be a JSON object")
        if request.get("end") is True and len(request) == 1:
            self.has_unread_lines = False
            return None
        return request

    async def run(self, request: Answer) -> None:
        """Run a request, and answer it."""
        name = request.get("do")
        if isinstance(name, str) and name in self.owner.former_names:
            name = self.owner.former_names[name]
            request = {**request, "do": name}
        self.current = request
        operation = self.owner.operations.get(name) if isinstance(name, str) else None
        self.has_unread_lines = request.get("lines") is True or (
            operation is not None and operation.takes_lines
        )
        if operation is None:
            await self.fail("bad-request", f"there is no operation {name!r}")
            return
        broker = self.owner.broker
        if name not in QUIET_COMMANDS | REPAIRS and (reason := broker.audit.refusal()):
            await self.fail("precondition", f"command {reason}")
            return
        broker.counters.now_ms = clock_ms()
        call = Call(
            broker, request, operator=self.operator, actor=self.actor, send=self.send_item,
            busy=self.busy, receive=self.receive,
        )  # fmt: skip
        try:
            self.act_as(call)
            operation.check(call)
            with call.acting():
                outcome = operation.run(call)
            if inspect.isawaitable(outcome):
                outcome = await outcome
            if isinstance(outcome, Generator):
                answer = await self.stream(call, outcome)
            else:
                answer = outcome
        except OperationRefused as error:
            await self.fail(error.code, error.text)
        except ModelError as error:
            broker.access.last_audited = ""  # It is for connections.
            await self.fail(refusal_code(error), error.text)
        except DocumentError as error:
            await self.fail("bad-request", error.text)
        except (AccountError, StoreError) as error:
            await self.fail("precondition", str(error))
        except (ConnectionError, TimeoutError):
            raise  # The operator has disconnected.
        except OSError as error:
            await self.fail("internal", f"{error.filename or 'disk'}: {error.strerror or error}")
        except Exception:
            log.exception("management: %s failed", name)
            await self.fail("internal", "internal error; see the broker's log")
        else:
            self.audit(request)
            self.turn()
            # Reading operations are answered while the disk fails, when operators need them.
            if not is_read_only(operation.name) and not await broker.unsynced.wait():
                await self.fail("precondition", NOT_DURABLE)
                return
            await self.send(json.dumps({"done": answer}))

    def act_as(self, call: Call) -> None:
        """Find the user of a request with a ticket.

        Raises:
            OperationRefused: the ticket is unknown, or has ended.
        """
        self.acting = None
        if "as" not in call.request:
            return
        text = call.text("peer", "")
        peer = peer_of(text)
        if text and peer is None:
            raise OperationRefused("bad-request", "'peer' is not an address with a port")
        user = self.owner.broker.tickets.user_of(call.text("as"), peer)
        if user is None:
            raise OperationRefused("refused", "the ticket is unknown, or has ended")
        call.user = user
        call.actor = self.acting = Operator(user.name, str(peer or user.peer))
        call.operator = f"user '{user.name}' from {call.actor.peer}, for {self.operator}"

    def audit(self, request: Answer, reason: str = "") -> None:
        """Audit a request, with the reason if it was refused."""
        audit = self.owner.broker.audit
        name = request.get("do")
        if audit.active and (reason or is_audited(name, by_ticket=self.acting is not None)):
            actor = self.acting or self.actor
            audit.record(
                "command",
                user=actor,
                peer=actor.peer,
                allowed=not reason,
                reason=reason,
                command=name,
                agent=request.get("agent"),
                via=None if self.acting is None else "console",
                request={name: value for name, value in request.items() if name not in UNAUDITED},
            )

    async def stream(self, call: Call, steps: Steps) -> Answer:
        """Send the lines of a generator, slice by slice; return its result."""
        sent_s = time.monotonic()
        with contextlib.closing(steps):
            while True:
                lines: list[str] = []
                began_s = time.monotonic()
                for _ in range(STEPS_PER_SLICE):
                    try:
                        with call.acting():
                            item = next(steps)
                    except StopIteration as end:
                        await self.send(*lines)
                        return dict(end.value)
                    if item is not None:
                        lines.append(json.dumps({"item": item}))
                    if time.monotonic() - began_s > SLICE_S:
                        break
                if lines:
                    sent_s = began_s
                elif began_s - sent_s > BUSY_S:
                    sent_s = began_s
                    lines.append(json.dumps({"busy": True}))
                self.turn()
                await self.send(*lines)
                await asyncio.sleep(0)  # Serve others first, even when all can be sent at once.

    async def send_item(self, item: Answer) -> None:
        """Send one line of an answer."""
        self.turn()
        await self.send(json.dumps({"item": item}))

    async def busy(self) -> None:
        """Send a keep-alive line while the operation runs."""
        await self.send(json.dumps({"busy": True}))

    async def fail(self, code: str, text: str) -> None:
        """Answer with an error."""
        doing, self.current = self.current, {}
        if doing:
            self.audit(doing, text)
        self.turn()
        await self.send(json.dumps({"error": text, "code": code}))

    async def end(self) -> None:
        """End the answers, and read further input of the client, up to a limit.

        A socket closed with unread input would reset the client before it reads its answer.
        """
        self.writer.write_eof()
        unread = LINE_SIZE_MAX
        async with asyncio.timeout(LINGER_S):
            while unread > 0 and (read := await self.reader.read(unread)):
                unread -= len(read)

    async def send(self, *lines: str) -> None:
        """Send lines, and wait while too much is unread."""
        if lines:
            self.writer.write(("\n".join(lines) + "\n").encode())
            await asyncio.wait_for(self.writer.drain(), READ_S)

    def turn(self) -> None:
        """Send the output that the operation caused for clients of the broker."""
        self.owner.broker.reactor.turn()


def remove_stale(path: Path, address: str) -> None:
    """Remove the socket of a broker that has ended.

    Raises:
        SocketError: another process listens there, or it is not a socket.
    """
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(facts.st_mode):
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
    """Return the path of the socket: the setting, or in the data directory; None for no socket."""
    if setting == "none":
        return None
    if setting:
        return Path(setting)
    return None if data is None else data / FILE_NAME
