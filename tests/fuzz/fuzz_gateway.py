# SPDX-License-Identifier: Apache-2.0
"""The third target: a whole broker but for sockets and files, with one hostile client on it.

Whatever the client sends, its connection ends with a reply code of the standard or goes on; 541
(internal error) and exceptions are findings; how its octets were split changes nothing of what the
broker holds in the end; and another client gets only what is right, in frames of its size.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from fuzz_journal import run_journal
from fuzz_target import Finding, holds, run_stream

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
    BasicConsume,
    ChannelOpen,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    MethodBase,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    decode_content_header,
)
from headrace.protocol.v0_x.connection import Connection
from headrace.protocol.v0_x.events import ContentReceived, Event, Failed, MethodReceived
from headrace.protocol.v0_x.handshake import Role
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import V0_9_1
from headrace.store.file_bodies.staging import Staging
from headrace.testing.disk import FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.protocol.errors import AmqpError

SERVER_NAMED = re.compile(rb"amq\.gen-[\w-]{22}")
FRAME_MAX = 131072
CHANNEL_MAX = 2047
WITNESS_FRAME_MAX = 4096
BODY_MAX = 1 << 20
OUTPUT_MAX = 16 << 20  # Octets that one input may make the broker write.


class Everybody(Rights):
    """Access for all, but write access to one exchange."""

    def allowed(self, user: Any, vhost: str, permission: str, name: str) -> bool:
        return not (permission == "write" and name == "amq.fanout")

    def vhost_exists(self, name: str) -> bool:
        return name == "/"


class User:
    name = "guest"
    source = ""
    expires_s = None
    tags: tuple[str, ...] = ()

    def may_open(self, vhost: str) -> bool:
        return True

    def same_as(self, other: Any) -> bool:
        return self.name == other.name  # type: ignore[no-any-return]


def let_in(connection: Any, mechanism: str, response: bytes) -> None:
    if response.endswith(b"refuse"):
        connection.refuse_login()
    else:
        connection.accept_login(User())


class Listening(logging.Handler):
    """Turns what the broker logs as an error of its own into a finding."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(logging.Formatter().format(record))


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collect what is logged as an error of our own."""
    handler = Listening()
    logger = logging.getLogger("headrace")
    logger.addHandler(handler)
    level, logger.propagate = logger.level, False
    logger.setLevel(logging.ERROR)
    try:
        yield handler.heard
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = True


class Watched(V0xContext):
    """Remembers what connections were told when they failed."""

    errors: list[AmqpError]

    def log_failure(self, connection: Any, error: AmqpError) -> None:
        self.errors.append(error)


class Rig:
    """A broker in memory, and a witness: a client of it that takes small frames."""

    def __init__(self) -> None:
        self.counters = Counters(now_ms=1_700_000_000_000)
        self.store = Store()
        self.scheduler = Scheduler()
        self.staging = Staging("/staging", disk=FaultyDisk(1), threaded=False)
        self.vhost = VirtualHost(
            "/",
            store=self.store,
            counters=self.counters,
            scheduler=self.scheduler,
            contents=Contents(),
            files=self.staging,
            make_stream=lambda name, **options: Stream(name, StreamLog(), **options),
        )
        self.context = Watched(
            SERVED,
            access=Everybody(),
            vhosts={"/": self.vhost},
            stores={"/": self.store},
            counters=self.counters,
            authenticate=let_in,
            frame_max=FRAME_MAX,
            channel_max=CHANNEL_MAX,
            body_max=BODY_MAX,
        )
        self.context.errors = []
        self.witness = self.connect(1)
        self.seen = Connection(Role.CLIENT, frame_max=WITNESS_FRAME_MAX, body_max=BODY_MAX)
        self.heard: list[Event] = []
        self.pump()
        self.say(0, ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest"))
        self.say(0, ConnectionTuneOk(channel_max=64, frame_max=WITNESS_FRAME_MAX))
        self.say(0, ConnectionOpen(virtual_host="/"))
        self.say(1, ChannelOpen())
        for queue, no_ack in (("witness-a", True), ("witness-b", False)):
            self.say(1, QueueDeclare(queue=queue, exclusive=True))
            self.say(1, QueueBind(queue=queue, exchange="amq.topic", routing_key="#"))
            self.say(1, BasicConsume(queue=queue, consumer_tag=queue, no_ack=no_ack))
        answers = [event.method.NAME for event in self.heard if isinstance(event, MethodReceived)]
        assert answers.count("basic.consume-ok") == 2, answers

    def connect(self, number: int) -> GatewayConnection:
        connection = GatewayConnection(self.context, number, True)
        self.context.connections[number] = connection
        return connection

    def turn(self) -> None:
        """Do as the event loop does after each read."""
        self.store.start_write()
        self.staging.woken()
        self.context.pending_confirms("/").advance()
        self.context.pool.dirty.clear()

    def tell(self, connection: GatewayConnection, octets: bytes) -> bytes:
        """Give the broker octets of a client; return what it answers."""
        connection.receive(octets)
        self.turn()
        self.pump()
        return connection.data_to_send()

    def pump(self) -> None:
        """Let witness and broker talk until neither has anything to say."""
        while True:
            asked, said = self.seen.data_to_send(), self.witness.data_to_send()
            if not asked and not said:
                return
            self.witness.receive(asked)
            self.turn()
            self.heard += self.seen.receive(said)

    def say(self, channel: int, method: MethodBase) -> None:
        """The witness sends a method and hears the answer."""
        self.seen.send_method(channel, method)
        self.pump()

    def check_witness(self) -> None:
        """All that the witness was sent is right, and it is still served."""
        for event in self.heard:
            holds(not isinstance(event, Failed), f"the witness was sent {event!r}")
            if isinstance(event, ContentReceived):
                _, size, _ = decode_content_header(V0_9_1, event.header)
                holds(size == len(event.body), f"the witness got {len(event.body)} of {size}")
        self.heard.clear()
        self.say(1, QueueDeclare(queue="witness-a", passive=True))
        answers = [event.method for event in self.heard if isinstance(event, MethodReceived)]
        holds(answers and isinstance(answers[-1], QueueDeclareOk), f"the witness heard {answers}")

    def state(self, client: GatewayConnection) -> str:
        """Return the broker's state, and how the client ended."""
        queues = [
            f"{queue.name} {queue.ready_count} {queue.unacked_count} {queue.consumer_count()}"
            for queue in self.vhost.queues.values()
            if not queue.name.startswith("witness-")
        ]
        errors = [f"{error} {error.scope}" for error in self.context.errors]
        exchanges = sorted(self.vhost.exchanges)
        return "\n".join([client.state.name, *errors, *sorted(queues), *exchanges])


def run_split(chunks: Iterable[bytes]) -> tuple[str, bytes]:
    with names_in_order():
        return run_on(Rig(), chunks)


@contextmanager
def names_in_order() -> Iterator[None]:
    """Names that the broker makes up are the same in every run."""
    numbers = count()
    real = secrets.token_urlsafe
    secrets.token_urlsafe = lambda nbytes=None: f"{next(numbers):022d}"
    try:
        yield
    finally:
        secrets.token_urlsafe = real


def run_on(rig: Rig, chunks: Iterable[bytes]) -> tuple[str, bytes]:
    client = rig.connect(2)
    written = b""
    for chunk in chunks:
        written += rig.tell(client, chunk)
        holds(len(written) <= OUTPUT_MAX, f"{len(written)} octets of output")
    for error in rig.context.errors:
        holds(error.code is not ReplyCode.INTERNAL_ERROR, f"an internal error: {error}")
    rig.check_witness()
    state = rig.state(client)
    client.end()
    rig.scheduler.run(rig.counters.now_ms + 1_000_000_000)
    holds(client.unacked == 0, f"a connection that ended holds {client.unacked} messages")
    rig.staging.close()
    return state, written


def localised(stream: bytes) -> bytes:
    """The stream with the names of server-named queues as this broker will give them."""
    known: dict[bytes, bytes] = {}
    for name in SERVER_NAMED.findall(stream):
        known.setdefault(name, b"amq.gen-%022d" % len(known))
    for name, here in known.items():
        stream = stream.replace(name, here)
    return stream


def run_gateway(data: bytes) -> str:
    """Feed a client's stream whole and in odd chunks; return all that happened in one piece."""
    with listening() as heard:
        data = localised(data)
        state, written = run_split([data])
        step = 1 + len(data) % 97
        chunks = [data[at : at + step] for at in range(0, len(data), step)]
        other, _ = run_split(chunks)
        if other != state:
            raise Finding(f"in chunks of {step}:\n{other}\nin one:\n{state}")
        holds(not heard, "\n".join(heard))
    return f"{state}\n{written.hex()}"


def run_all(data: bytes) -> str:
    """Every target on one input; return a digest of all that happened."""
    said = run_stream(data) + run_gateway(data) + run_journal(data)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
