# SPDX-License-Identifier: Apache-2.0
"""Bounds on one client's methods before the others are served.

The clock tells one millisecond more each time it is looked at, and the loop does one step when it
is told to: so steps are counted, not time.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from headrace.model.policy.rate_limit import RateLimit
from headrace.protocol.codec_0_x import (
    BasicGet,
    BasicProperties,
    BasicPublish,
    BasicQos,
    MethodBase,
    QueueBind,
    QueueDeclare,
    TxCommit,
    TxSelect,
    encode_content_header,
)
from headrace.protocol.v0_x.events import ContentReceived, MethodReceived
from headrace.server.net.tls_transport import TlsTransport
from headrace.server.net.transport import Reactor, Transport
from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version
from support.brokers.in_memory_broker import Rig

if TYPE_CHECKING:
    from headrace.server.net.watched_socket import WatchedSocket

TURN_NS = 5_000_000
LOOK_NS = 1_000_000
LOOKS = TURN_NS // LOOK_NS
METHODS = 1000
PLAIN = encode_content_header(V0_9_1, 60, 1, BasicProperties())


class Timer:
    """A callback that a loop runs at a given time."""

    def __init__(self, delay_s: float, call: Callable[[], None]) -> None:
        self.delay_s = delay_s
        self.call = call

    def cancel(self) -> None:
        self.call = lambda: None


class Loop:
    """An event loop that does a step at a time."""

    def __init__(self) -> None:
        self.transports: dict[int, WatchedSocket] = {}
        self.calls: list[Callable[[], None]] = []
        self.timers: list[Timer] = []

    def change(self, watched: WatchedSocket) -> None:
        self.transports[watched.fd] = watched

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(delay_s, call))
        return self.timers[-1]

    def step(self) -> None:
        """Call what is ready now."""
        calls, self.calls = self.calls, []
        readers = [fd for fd, each in self.transports.items() if each.reading]
        writers = [fd for fd, each in self.transports.items() if each.writing]
        reads, writes, _ = select.select(readers, writers, [], 0)
        calls += [self.transports[fd].read for fd in reads]
        calls += [self.transports[fd].write_more for fd in writes]
        for call in calls:
            call()


class Broker:
    """A broker with sockets, and a loop that does what a test wants."""

    def __init__(self, loop: Any = None) -> None:
        """Without a ``loop`` it has one that does a step at a time."""
        self.rig = Rig()
        self.loop = loop or Loop()
        context = self.rig.context
        self.reactor = Reactor(
            self.loop, self.loop, context.pool, self.rig.counters, 65536, context.frame_max
        )
        self.now_ms = 1_700_000_000_000
        self.reactor.clock = lambda: self.now_ms
        self.now_ns = 1
        self.reactor.stopwatch = self.look
        self.sockets: list[socket.socket] = []

    def look(self) -> int:
        self.now_ns += LOOK_NS
        return self.now_ns


class Peer:
    """A client with channel 1 open, on a socket."""

    def __init__(self, broker: Broker, version: Version = V0_9_1) -> None:
        self.broker = broker
        client = broker.rig.client(version)
        self.here, self.there = client.here, client.there
        self.socket, far = socket.socketpair()
        for end in (self.socket, far):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        broker.sockets += [self.socket, far]
        self.transport = Transport(broker.reactor, far, self.there)
        self.heard: list[str] = []

    def write(self, *methods: MethodBase) -> None:
        for method in methods:
            self.here.send_method(1, method)
        self.send()

    def publish(self, exchange: str, headers: dict[str, Any], count: int) -> None:
        header = encode_content_header(self.here.version, 60, 1, BasicProperties(headers=headers))
        for _ in range(count):
            self.here.send_content(1, BasicPublish(exchange=exchange), header, b"x")
        self.send()

    def send(self) -> int:
        octets = self.here.data_to_send()
        assert self.socket.send(octets) == len(octets)
        return len(octets)

    def hear(self) -> list[str]:
        """The names of all methods that came."""
        while select.select([self.socket], [], [], 0)[0] and (octets := self.socket.recv(1 << 20)):
            for event in self.here.receive(octets):
                assert isinstance(event, MethodReceived | ContentReceived), event
                self.heard.append(event.method.NAME)
        return self.heard


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    assert not made.loop.timers  # Turns wait for nothing but the other connections.
    for end in made.sockets:
        end.close()


def go_on(broker: Broker, until: Callable[[], bool]) -> int:
    """Do steps until something is so; return how many."""
    steps = 0
    while not until():
        broker.loop.step()
        steps += 1
        assert steps < 10 * METHODS
    return steps


COSTLY: dict[str, Callable[[int], MethodBase]] = {
    "declare-ok": lambda n: QueueDeclare(queue=f"q{n}"),
    "bind-ok": lambda n: QueueBind(queue="q", exchange="amq.topic", routing_key=f"a.{n}.#"),
    "qos-ok": lambda n: BasicQos(prefetch_count=n),
    "get-empty": lambda n: BasicGet(queue="q"),
    "get-ok": lambda n: BasicGet(queue="full", no_ack=True),
}
PER_TURN = 2 * (LOOKS + 2)  # Methods, of which two are done between looks at the clock.


@pytest.mark.parametrize("version", [V0_8, V0_9, V0_9_1], ids=str)
@pytest.mark.parametrize("answer", COSTLY)
def test_others_are_served_between_the_methods_of_one_client(
    broker: Broker, version: Version, answer: str
) -> None:
    busy, other = Peer(broker, version), Peer(broker)
    vhost = broker.rig.vhost
    vhost.declare_queue("q")
    if answer == "get-ok":
        vhost.declare_queue("full")
        other.here.send_content(1, BasicPublish(routing_key="full"), PLAIN, b"x")
        for _ in range(METHODS - 1):
            other.here.send_content(1, BasicPublish(routing_key="full"), PLAIN, b"x")
        other.send()
        go_on(broker, lambda: vhost.queues["full"].ready_count == METHODS)
    busy.write(*[COSTLY[answer](n) for n in range(METHODS)])
    other.write(QueueDeclare(queue="other"))
    assert go_on(broker, lambda: bool(other.hear())) <= 2
    assert len(busy.hear()) <= 2 * PER_TURN
    for n in range(20):  # And again, as often as it asks.
        other.write(QueueDeclare(queue=f"other-{n}"))
        assert go_on(broker, lambda n=n: len(other.hear()) == n + 2) <= 2
    steps = go_on(broker, lambda: len(busy.hear()) == METHODS)
    assert steps + 22 * 2 >= METHODS // PER_TURN
    assert all(name.endswith(answer) for name in busy.heard)
    go_on(broker, lambda: not broker.loop.calls)
    assert busy.transport.reading


def test_publishes_that_are_looked_at_one_by_one_are_such_methods(broker: Broker) -> None:
    busy, other = Peer(broker), Peer(broker)
    vhost = broker.rig.vhost
    vhost.declare_queue("q")
    vhost.bind("amq.headers", ("queue", "q"), "", {"a": 1})
    busy.publish("amq.headers", {"a": 1}, METHODS)
    other.write(QueueDeclare(queue="other"))
    assert go_on(broker, lambda: bool(other.hear())) <= 2
    assert vhost.queues["q"].ready_count <= 2 * PER_TURN
    go_on(broker, lambda: vhost.queues["q"].ready_count == METHODS)


def test_a_publish_to_very_many_queues_is_much_work(broker: Broker) -> None:
    busy, other = Peer(broker), Peer(broker)
    vhost = broker.rig.vhost
    for n in range(100):
        vhost.declare_queue(f"q{n}")
        vhost.bind("amq.fanout", ("queue", f"q{n}"), "")
    busy.publish("amq.fanout", {}, METHODS)
    other.write(QueueDeclare(queue="other"))
    assert go_on(broker, lambda: bool(other.hear())) <= 2
    assert vhost.queues["q99"].ready_count <= 2 * PER_TURN
    go_on(broker, lambda: vhost.queues["q99"].ready_count == METHODS)


def test_plain_publishes_are_handled_as_they_are_read(broker: Broker) -> None:
    busy = Peer(broker)
    vhost = broker.rig.vhost
    vhost.declare_queue("q")
    broker.reactor.stopwatch = busy.there.stopwatch = lambda: 1  # They take no time.
    for _ in range(METHODS):
        busy.here.send_content(1, BasicPublish(routing_key="q"), PLAIN, b"x")
    size = busy.send()
    steps = go_on(broker, lambda: vhost.queues["q"].ready_count == METHODS)
    assert steps == -(-size // 65536)


def test_what_waited_for_a_commit_has_turns_as_well(broker: Broker) -> None:
    busy, other = Peer(broker), Peer(broker)
    busy.write(TxSelect(), TxCommit(), *[QueueDeclare(queue=f"q{n}") for n in range(METHODS)])
    other.write(QueueDeclare(queue="other"))
    go_on(broker, lambda: "tx.commit-ok" in busy.hear())
    other.write(QueueDeclare(queue="another"))
    assert go_on(broker, lambda: len(other.hear()) == 2) <= 3
    assert len(busy.hear()) < METHODS
    go_on(broker, lambda: len(busy.hear()) == METHODS + 2)
    assert busy.heard[:2] == ["tx.select-ok", "tx.commit-ok"]


def test_a_close_ends_what_waits_for_its_turn(broker: Broker) -> None:
    busy = Peer(broker)
    busy.write(*[QueueDeclare(queue=f"q{n}") for n in range(METHODS)])
    broker.loop.step()
    assert busy.transport.due
    busy.transport.abort()
    go_on(broker, lambda: not broker.loop.calls)
    assert len(broker.rig.vhost.queues) <= PER_TURN


def test_who_is_held_goes_on_with_what_it_has_read(broker: Broker) -> None:
    busy = Peer(broker)
    busy.write(*[QueueDeclare(queue=f"q{n}") for n in range(METHODS)])
    broker.loop.step()
    busy.transport.hold()
    broker.loop.step()
    before = len(busy.hear())
    broker.loop.step()
    assert len(busy.hear()) == before
    busy.transport.unhold()
    go_on(broker, lambda: len(busy.hear()) == METHODS)


@pytest.fixture
def metered() -> Iterator[Broker]:
    """A broker where time goes by when a test says so."""
    made = Broker()
    yield made
    for end in made.sockets:
        end.close()


RATE = 1000  # Messages a second,
BURST = 100  # of which so many may come at once.


def test_what_is_published_in_a_turn_that_ends_early_counts_for_the_rate(metered: Broker) -> None:
    busy = Peer(metered)
    vhost, timers = metered.rig.vhost, metered.loop.timers
    queue = vhost.declare_queue("q")
    vhost.bind("amq.headers", ("queue", "q"), "", {"a": 1})
    busy.transport.measure((RateLimit(RATE),))
    busy.publish("amq.headers", {"a": 1}, METHODS)
    early = 0
    while not timers:
        metered.loop.step()
        early += busy.there.is_turn_spent
        assert queue.ready_count <= BURST + PER_TURN
    assert early >= BURST // PER_TURN - 1  # Most of it was published in such turns.
    held_at = queue.ready_count
    assert BURST < held_at <= BURST + PER_TURN
    for _ in range(10):  # No turn comes before the time that this takes at the rate.
        metered.loop.step()
    assert queue.ready_count == held_at
    while queue.ready_count < METHODS:
        while not timers:
            metered.loop.step()
        (timer,) = timers
        assert 0 < timer.delay_s <= PER_TURN / RATE
        timers.clear()
        metered.now_ms += round(timer.delay_s * 1000)
        timer.call()
    passed_s = (metered.now_ms - 1_700_000_000_000) / 1000
    assert (METHODS - BURST - PER_TURN) / RATE <= passed_s <= METHODS / RATE


class TlsPeer:
    """A client over TLS, on a loop of asyncio that does a step at a time."""

    def __init__(self, broker: Broker, authority: trustme.CA) -> None:
        self.loop: asyncio.AbstractEventLoop = broker.loop  # type: ignore[assignment]
        client = broker.rig.client()
        self.here, there = client.here, client.there
        near, far = socket.socketpair()
        for end in (near, far):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        broker.sockets.append(far)
        ours, theirs = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.configure_trust(ours)
        authority.issue_cert("localhost").configure_cert(theirs)
        self.transport = TlsTransport(broker.reactor, far, there)
        accepted = self.loop.create_task(
            self.loop.connect_accepted_socket(lambda: self.transport, far, ssl=theirs)  # type: ignore[type-var]
        )
        self.socket = ours.wrap_socket(
            near, server_hostname="localhost", do_handshake_on_connect=False
        )
        broker.sockets.append(self.socket)
        self.heard: list[str] = []
        while not accepted.done():
            with contextlib.suppress(ssl.SSLWantReadError):
                self.socket.do_handshake()
            step(self.loop)
        self.stream, _ = accepted.result()

    def write(self, *methods: MethodBase) -> None:
        for method in methods:
            self.here.send_method(1, method)
        octets = self.here.data_to_send()
        assert self.socket.send(octets) == len(octets)

    def hear(self) -> list[str]:
        with contextlib.suppress(ssl.SSLWantReadError):
            while octets := self.socket.recv(1 << 16):
                for event in self.here.receive(octets):
                    assert isinstance(event, MethodReceived), event
                    self.heard.append(event.method.NAME)
        return self.heard


def step(loop: asyncio.AbstractEventLoop) -> None:
    """Have a loop do what is ready now."""
    loop.call_soon(loop.stop)
    loop.run_forever()


def test_turns_are_as_fair_over_tls() -> None:
    loop = asyncio.new_event_loop()
    broker = Broker(loop)
    authority = trustme.CA()
    busy, other = TlsPeer(broker, authority), TlsPeer(broker, authority)
    busy.write(*[QueueDeclare(queue=f"q{n}") for n in range(METHODS)])
    while not busy.transport.due:
        step(loop)
    assert len(broker.rig.vhost.queues) <= PER_TURN
    for n in range(5):
        other.write(QueueDeclare(queue=f"other-{n}"))
        while len(other.hear()) <= n:
            step(loop)
            assert busy.transport.due
            assert not busy.transport.reading  # What it read already comes first.
    assert len(busy.hear()) < METHODS
    while len(busy.hear()) < METHODS:
        step(loop)
    assert set(busy.heard) == {"queue.declare-ok"}
    step(loop)
    assert busy.transport.reading
    for peer in (busy, other):
        peer.transport.abort()
        peer.stream.abort()
    step(loop)
    step(loop)  # It closed what was aborted.
    for end in broker.sockets:
        end.close()
    loop.close()
