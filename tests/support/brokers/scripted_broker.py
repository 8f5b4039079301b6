# SPDX-License-Identifier: Apache-2.0
"""A broker that does what a test tells it, over a real socket: also what no broker should do."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from headrace.protocol.codec_0_x import (
    BasicProperties,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    MethodBase,
    encode_content_header,
)
from headrace.protocol.v0_x.connection import Connection
from headrace.protocol.v0_x.events import ContentReceived, Event, HeartbeatReceived, MethodReceived
from headrace.protocol.v0_x.handshake import Role
from headrace.spec.tables import V0_8, V0_9_1

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from headrace.wire.table import Value

CAPABILITIES = ("publisher_confirms", "exchange_exchange_bindings", "basic.nack")
PROPERTIES: dict[str, Value] = {
    "product": "Scripted",
    "capabilities": dict.fromkeys(CAPABILITIES, True),
}

Expected = TypeVar("Expected", bound=MethodBase)


class HungUp(Exception):
    """The client closed the socket."""


class Peer:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.machine = Connection(Role.SERVER, frame_max=1 << 20)
        self.reader = reader
        self.writer = writer
        self.channel = 0  # Of the last thing that was expected and came.
        self.content: ContentReceived | None = None
        self.heartbeats = 0
        self.octets = b""  # What came last.
        self._events: deque[Event] = deque()

    async def handshake(
        self,
        *,
        frame_max: int = 131072,
        channel_max: int = 2047,
        heartbeat: int = 0,
        mechanisms: bytes = b"PLAIN AMQPLAIN",
        properties: dict[str, Value] = PROPERTIES,
    ) -> tuple[ConnectionStartOk, ConnectionTuneOk, ConnectionOpen]:
        """Let the client in."""
        while not self.machine.state.value:
            await self._receive()
        major, minor = (8, 0) if self.machine.version is V0_8 else (0, 9)
        start = ConnectionStart(
            version_major=major,
            version_minor=minor,
            server_properties=properties,
            mechanisms=mechanisms,
            locales=b"en_US",
        )
        self.send(0, start)
        start_ok = await self.expect(ConnectionStartOk)
        tune = ConnectionTune(channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)
        self.send(0, tune)
        tune_ok = await self.expect(ConnectionTuneOk)
        opened = await self.expect(ConnectionOpen)
        self.send(0, ConnectionOpenOk())
        return start_ok, tune_ok, opened

    async def open_channel(self, *, confirm: bool = False) -> int:
        """Let the client open a channel, and publish on it."""
        await self.expect(ChannelOpen)
        self.send(self.channel, ChannelOpenOk())
        if confirm:
            await self.expect(ConfirmSelect)
            self.send(self.channel, ConfirmSelectOk())
        return self.channel

    async def greet(self, *, confirm: bool = False) -> int:
        """Let the client in, and open a channel."""
        await self.handshake()
        return await self.open_channel(confirm=confirm)

    async def expect(self, kind: type[Expected]) -> Expected:
        """The next thing that the client sends, which must be that."""
        event = await self.next_event()
        assert isinstance(event, MethodReceived | ContentReceived), event
        assert isinstance(event.method, kind), event
        self.channel = event.channel
        self.content = event if isinstance(event, ContentReceived) else None
        return event.method

    async def next_event(self) -> Event:
        """The next thing that the client does, but for heartbeats."""
        while True:
            while self._events:
                event = self._events.popleft()
                if not isinstance(event, HeartbeatReceived):
                    return event
                self.heartbeats += 1
            await self._receive()

    async def wait_heartbeats(self, count: int) -> None:
        """Wait until so many have come."""
        while self.heartbeats < count:
            await self._receive()
            while self._events and isinstance(self._events[0], HeartbeatReceived):
                self._events.popleft()
                self.heartbeats += 1

    async def hung_up(self) -> None:
        """Wait until the client closes the socket, whatever it says before."""
        try:
            while True:
                await self._receive()
        except (HungUp, ConnectionError):
            pass

    def send(self, channel: int, method: MethodBase) -> None:
        """Send a method."""
        self.machine.send_method(channel, method)
        self._flush()

    def send_content(
        self,
        channel: int,
        method: MethodBase,
        body: bytes,
        properties: BasicProperties | None = None,
    ) -> None:
        """Send a method with content."""
        header = encode_content_header(V0_9_1, 60, len(body), properties or BasicProperties())
        self.machine.send_content(channel, method, header, body)
        self._flush()

    def send_raw(self, octets: bytes) -> None:
        """Send anything."""
        self.writer.write(octets)

    def hang_up(self) -> None:
        """Close the socket without a word."""
        self.writer.transport.abort()

    async def _receive(self) -> None:
        data = await self.reader.read(65536)
        if not data:
            raise HungUp
        self.octets = data
        self._events.extend(self.machine.receive(data))
        self._flush()

    def _flush(self) -> None:
        if not self.writer.is_closing():
            self.writer.write(self.machine.data_to_send())


class ScriptedBroker:
    """Takes connections one after another, each with the next script."""

    def __init__(self, *scripts: Callable[[Peer], Awaitable[None]]) -> None:
        self.url = ""
        self.port = 0
        self.connections = 0
        self._scripts = scripts
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client connects."""
        script = self._scripts[min(self.connections, len(self._scripts) - 1)]
        self.connections += 1
        self._writers.append(writer)
        self._tasks.append(asyncio.create_task(self._play(script, Peer(reader, writer))))

    async def _play(self, script: Callable[[Peer], Awaitable[None]], peer: Peer) -> None:
        try:
            await script(peer)
            await peer.hung_up()
        except (HungUp, ConnectionError):
            pass
        finally:
            peer.writer.close()

    async def finish(self) -> None:
        """End the connections; raise what a script raised."""
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks)


@asynccontextmanager
async def scripted(*scripts: Callable[[Peer], Awaitable[None]]) -> AsyncIterator[ScriptedBroker]:
    """A listening broker; the last script serves all further connections."""
    broker = ScriptedBroker(*scripts)
    server = await asyncio.start_server(broker.take, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    broker.url = f"amqp://guest:guest@127.0.0.1:{broker.port}"
    try:
        yield broker
    finally:
        server.close()
        await broker.finish()
