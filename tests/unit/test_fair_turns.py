# SPDX-License-Identifier: Apache-2.0
"""What one client's methods may take before the others are served.

The clock tells one millisecond more each time it is looked at, and the loop does one step when it
is told to: so steps are counted, not time.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

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
from headrace.protocol.events import ContentReceived, MethodReceived
from headrace.server.transport import Reactor, Transport
from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version
from rig import Rig

TURN_NS = 5_000_000
LOOK_NS = 1_000_000
LOOKS = TURN_NS // LOOK_NS
METHODS = 1000
PLAIN = encode_content_header(V0_9_1, 60, 1, BasicProperties())


class Loop:
    """An event loop that does a step at a time."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}
        self.writers: dict[int, Callable[[], None]] = {}
        self.calls: list[Callable[[], None]] = []

    def add_reader(self, fd: int, call: Callable[[], None]) -> None:
        self.readers[fd] = call

    def remove_reader(self, fd: int) -> None:
        del self.readers[fd]

    def add_writer(self, fd: int, call: Callable[[], None]) -> None:
        self.writers[fd] = call

    def remove_writer(self, fd: int) -> None:
        del self.writers[fd]

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Any:
        raise AssertionError("nothing waits for a time")

    def step(self) -> None:
        """Call what is ready now."""
        calls, self.calls = self.calls, []
        reads, writes, _ = select.select(list(self.readers), list(self.writers), [], 0)
        calls += [self.readers[fd] for fd in reads] + [self.writers[fd] for fd in writes]
        for call in calls:
            call()


class Broker:
    """A broker with sockets, and a loop that does what a test wants."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.loop = Loop()
        context = self.rig.context
        self.reactor = Reactor(self.loop, context.pool, self.rig.tally, 65536, context.frame_max)
        self.reactor.clock = lambda: 1_700_000_000_000
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
    busy.transport.lost()
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
