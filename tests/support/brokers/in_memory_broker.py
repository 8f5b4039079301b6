# SPDX-License-Identifier: Apache-2.0
"""A broker without sockets and files, and clients that talk to it at once: every answer is there
when a call returns.
"""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from headrace.gateway.conversion.contents import Contents
from headrace.gateway.security.permissions import Rights
from headrace.gateway.v0_x.connection.connection import GatewayConnection
from headrace.gateway.v0_x.connection.context import V0xContext
from headrace.gateway.v0_x.plug_ins import SERVED
from headrace.model.counters import Counters
from headrace.model.ports import Store
from headrace.model.scheduler import Scheduler
from headrace.model.stream.log import StreamLog
from headrace.model.stream.stream import Stream
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.protocol.codec_0_x import (
    BasicProperties,
    BasicPublish,
    ChannelOpen,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    MethodBase,
    encode_content_header,
)
from headrace.protocol.v0_x.connection import Connection
from headrace.protocol.v0_x.events import ContentReceived, Event, Failed, MethodReceived
from headrace.protocol.v0_x.handshake import Role
from headrace.spec.tables import V0_9_1, Version

BODY_MAX = 8 << 20
M = TypeVar("M", bound=MethodBase)


class Everybody(Rights):
    """Everything is allowed."""

    def allowed(self, user: Any, vhost: str, permission: str, name: str) -> bool:
        return True

    def vhost_exists(self, name: str) -> bool:
        return name == "/"


class User:
    name = "guest"
    tags: tuple[str, ...] = ()
    source = ""
    expires_s = None

    def may_open(self, vhost: str) -> bool:
        return True

    def same_as(self, other: Any) -> bool:
        return self.name == other.name


def let_in(connection: Any, mechanism: str, response: bytes) -> None:
    connection.accept_login(User())


class LateStore(Store):
    """Its disk takes its time: nothing is durable before :meth:`sync`."""

    def __init__(self) -> None:
        super().__init__()
        self.late = True

    def commit(self) -> None:
        self.appended += 1
        if not self.late:
            self.sync()

    def sync(self) -> None:
        self.synced = self.appended


class Rig:
    """The broker."""

    def __init__(self, store: Store | None = None, **options: Any) -> None:
        self.counters = Counters(now_ms=1_700_000_000_000)
        self.store = store if store is not None else Store()
        self.scheduler = Scheduler()
        self.vhost = VirtualHost(
            "/",
            store=self.store,
            counters=self.counters,
            scheduler=self.scheduler,
            contents=Contents(),
            make_stream=lambda name, **options: Stream(name, StreamLog(), **options),
        )
        self.admit(**options)

    def admit(self, **options: Any) -> None:
        """Let clients in."""
        self.context = V0xContext(
            SERVED,
            access=Everybody(),
            vhosts={"/": self.vhost},
            stores={"/": self.store},
            counters=self.counters,
            authenticate=let_in,
            frame_max=131072,
            channel_max=2047,
            body_max=BODY_MAX,
            **options,
        )
        self.number = 0

    def turn(self) -> None:
        """Do as the event loop does after each read."""
        self.store.start_write()
        waking = self.counters.to_drain
        while waking:
            waking.pop().drain()
        self.context.pending_confirms("/").advance()
        self.context.pool.dirty.clear()

    def pass_time(self, ms: int) -> None:
        """Let time go by."""
        self.counters.now_ms += ms
        self.scheduler.run(self.counters.now_ms)

    def client(
        self,
        version: Version = V0_9_1,
        *,
        frame_max: int = 131072,
        product: str = "rig",
        says: dict[str, Any] | None = None,
    ) -> Client:
        """A client with channel 1 open; ``says`` are its properties, instead of its product."""
        self.number += 1
        return Client(self, self.number, version, frame_max, says or {"product": product})


class Client:
    """A client of 0-8, 0-9 or 0-9-1."""

    def __init__(
        self,
        rig: Rig,
        number: int,
        version: Version,
        frame_max: int,
        properties: dict[str, Any],
    ) -> None:
        self.rig = rig
        self.version = version
        self.here = Connection(Role.CLIENT, version=version, frame_max=frame_max, body_max=BODY_MAX)
        self.there = GatewayConnection(rig.context, number, True)
        rig.context.connections[number] = self.there
        self.events: list[Event] = []
        self.pump()
        start_ok = ConnectionStartOk(
            client_properties=properties,
            mechanism="PLAIN",
            response=b"\0guest\0guest",
        )
        self.send(start_ok, 0)
        self.send(ConnectionTuneOk(channel_max=64, frame_max=frame_max), 0)
        self.send(ConnectionOpen(virtual_host="/"), 0)
        self.send(ChannelOpen())
        self.events.clear()

    def pump(self) -> None:
        """Let both talk until neither has anything to say."""
        while True:
            asked, said = self.here.data_to_send(), self.there.data_to_send()
            if not asked and not said:
                return
            self.there.receive(asked)
            self.rig.turn()
            self.events += self.here.receive(said)

    def send(self, method: MethodBase, channel: int = 1) -> None:
        """Send a method and hear what it brings about."""
        self.here.send_method(channel, method)
        self.pump()

    def send_content(
        self, method: MethodBase, header: bytes, body: bytes, channel: int = 1
    ) -> None:
        """Send a method with content; ``header`` is an encoded content header."""
        self.here.send_content(channel, method, header, body)
        self.pump()

    def publish(
        self,
        routing_key: str,
        body: bytes = b"body",
        *,
        exchange: str = "",
        mandatory: bool = False,
        immediate: bool = False,
        **properties: Any,
    ) -> None:
        """Publish a message with these properties, and hear what it brings about."""
        method = BasicPublish(
            exchange=exchange, routing_key=routing_key, mandatory=mandatory, immediate=immediate
        )
        said = BasicProperties(**properties)
        header = encode_content_header(self.version, said.CLASS_ID, len(body), said)
        self.send_content(method, header, body)

    def heard(self) -> list[MethodBase]:
        """All methods since the last call, those with content included."""
        self.pump()
        events, self.events = self.events, []
        for event in events:
            assert not isinstance(event, Failed), event
        return [
            event.method for event in events if isinstance(event, MethodReceived | ContentReceived)
        ]

    def contents(self) -> list[ContentReceived]:
        """All contents since the last call; there must be nothing else."""
        self.pump()
        events, self.events = self.events, []
        contents = [event for event in events if isinstance(event, ContentReceived)]
        assert len(contents) == len(events), events
        return contents

    def call(self, method: MethodBase, answer: type[M], channel: int = 1) -> M:
        """Send a method; the first thing that comes is its answer."""
        assert not self.events, self.events
        self.send(method, channel)
        event = self.events.pop(0)
        assert isinstance(event, MethodReceived | ContentReceived), event
        assert isinstance(event.method, answer), event
        return event.method

    def end(self) -> None:
        """The connection is lost."""
        self.there.end()
        self.rig.turn()


@pytest.fixture
def rig() -> Rig:
    return Rig()
