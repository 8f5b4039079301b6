# SPDX-License-Identifier: Apache-2.0
"""A broker in AMQP 0-10 that does what a test tells it, over a real socket."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.protocol.codec_0_10 import (
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Control,
)
from headrace.protocol.v0_10.connection.connection import Connection
from headrace.protocol.v0_10.events import ControlReceived, Event
from headrace.protocol.v0_10.session.registry import Sessions
from headrace.protocol.v0_10.session.session import Session
from headrace.protocol.v0_x.handshake import Role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

Expected = TypeVar("Expected", bound=Control)
Anything = TypeVar("Anything", bound=Event)


class HungUp(Exception):
    """The client closed the socket."""


@dataclass
class Peer:
    """One connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    machine: Connection = field(init=False)
    events: list[Event] = field(default_factory=list)
    heartbeats: int = 0

    def __post_init__(self) -> None:
        sessions = Sessions(Session, asyncio.get_running_loop().time)
        self.machine = Connection(Role.SERVER, sessions=sessions)
        self.machine.user = "user"

    async def event(self, kind: type[Anything]) -> Anything:
        """The next event of that kind; others before it are dropped."""
        while True:
            while self.events:
                event = self.events.pop(0)
                if isinstance(event, kind):
                    return event
            data = await self.reader.read(65536)
            if not data:
                raise HungUp
            self.events += self.machine.receive(data)
            await self.flush()

    async def control(self, kind: type[Expected]) -> Expected:
        """The next control of that kind."""
        while True:
            received = await self.event(ControlReceived)
            if isinstance(received.control, kind):
                return received.control

    async def flush(self) -> None:
        """Send what is queued."""
        self.machine.announce()
        data = self.machine.data_to_send()
        self.machine.pool.dirty.clear()
        if data:
            self.writer.write(data)
            await self.writer.drain()

    async def send(self, control: Control) -> None:
        """Send a control of the connection class."""
        self.machine.send_control(control)
        await self.flush()

    async def handshake(
        self,
        *,
        tune: ConnectionTune | None = None,
        mechanisms: tuple[str, ...] = ("PLAIN",),
        answer: Control | None = None,
    ) -> tuple[ConnectionStartOk, ConnectionTuneOk, ConnectionOpen]:
        """Let the client in, or answer connection.open with something else."""
        while self.machine.state_number == 0:
            data = await self.reader.read(65536)
            if not data:
                raise HungUp
            self.events += self.machine.receive(data)
        await self.send(
            ConnectionStart(
                server_properties={"product": "scripted"},
                mechanisms=list(mechanisms),
                locales=["en_US"],
            )
        )
        start_ok = await self.control(ConnectionStartOk)
        await self.send(tune or ConnectionTune(channel_max=100, max_frame_size=65535))
        tune_ok = await self.control(ConnectionTuneOk)
        opened = await self.control(ConnectionOpen)
        await self.send(answer or ConnectionOpenOk(known_hosts=[]))
        return start_ok, tune_ok, opened


@asynccontextmanager
async def scripted(*scripts: Callable[[Peer], Awaitable[Any]]) -> AsyncIterator[str]:
    """A broker whose connections, one after the other, follow the scripts; its URL."""
    waiting = list(scripts)
    tasks: list[asyncio.Task[None]] = []
    failures: list[BaseException] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())  # type: ignore[arg-type]  # There is one.
        try:
            await waiting.pop(0)(Peer(reader, writer))
        except HungUp:
            pass
        except Exception as error:  # noqa: BLE001 - raised in the test
            failures.append(error)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"amqp://guest:guest@127.0.0.1:{port}/?version=0-10"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if failures:
        raise failures[0]
