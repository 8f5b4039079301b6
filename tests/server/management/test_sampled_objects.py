# SPDX-License-Identifier: Apache-2.0
"""Whatever is created and deleted, samples have the objects that lists have, and nothing else."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client.blocking import connect
from headrace.protocol.codec_0_x import BasicConsume, ChannelClose, MessageConsume
from headrace.spec.tables import V0_9, V0_9_1
from headrace.testing.raw_client import RawClient
from support.brokers.broker_process import until
from support.management_socket import Mirror

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.client.blocking import Channel, Connection
    from headrace.protocol.plan_0_x import MethodBase
    from headrace.spec.tables import Version
    from headrace.testing import LocalBroker
    from support.management_socket import ManagementClient

REPLY_TO = "amq.rabbitmq.reply-to"
COUNTED = ("published", "delivered", "acknowledged", "received", "queues_deleted")
STEPS = 60


def of_lists(operator: ManagementClient) -> dict[str, Sequence[object]]:
    """What lists have, by kind: names with their virtual hosts, and the consumers of queues."""
    queues = operator.items("list queues")
    return {
        "queue": sorted((one["vhost"], one["name"], one["consumers"]) for one in queues),
        "exchange": sorted((one["vhost"], one["name"]) for one in operator.items("list exchanges")),
        "connection": sorted(one["id"] for one in operator.items("list connections")),
        "channel": sorted(
            (one["connection"], one["number"], one["consumers"])
            for one in operator.items("list channels")
        ),
        "vhost": sorted((one["name"], one["queues"]) for one in operator.items("list vhosts")),
    }


def of_samples(seen: Mirror) -> dict[str, Sequence[object]]:
    """The same as samples have it."""

    def each(kind: str) -> Iterator[dict[str, Any]]:
        for number, static in seen.static.get(kind, {}).items():
            yield {**static, **seen.rows[kind][number]}

    return {
        "queue": sorted((one["vhost"], one["name"], one["consumers"]) for one in each("queue")),
        "exchange": sorted((one["vhost"], one["name"]) for one in each("exchange")),
        "connection": sorted(one["number"] for one in each("connection")),
        "channel": sorted(
            (one["connection"], one["number"], one["consumers"]) for one in each("channel")
        ),
        "vhost": sorted((one["name"], one["queues"]) for one in each("vhost")),
    }


class Clients:
    """Clients that come and go, each of which leaves something or takes it away."""

    def __init__(self, broker: LocalBroker, operator: ManagementClient, seed: int) -> None:
        self.url = broker.url
        self.operator = operator
        self.random = random.Random(seed)
        self.seen = Mirror(operator)
        self.open: list[tuple[Connection, Channel]] = []
        self.names: list[str] = []
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"object-{self.count}"

    def compare(self) -> None:
        """Compare a sample with the lists; a close that goes on meanwhile is waited for."""
        until(lambda: of_samples(self.seen.look()) == of_lists(self.operator), "the same objects")

    def some_channel(self) -> Channel:
        if not self.open:
            self.come()
        return self.random.choice(self.open)[1]

    def come(self) -> None:
        connection = connect(self.url, reconnect=None)
        self.open.append((connection, connection.channel()))

    def go(self) -> None:
        """Close a connection, with its consumers and its exclusive queues."""
        if self.open:
            self.open.pop(self.random.randrange(len(self.open)))[0].close()

    def declare(self) -> None:
        arguments = self.random.choice(({}, {"x-max-priority": 3}, {"x-queue-type": "stream"}))
        self.names.append(self.name())
        self.operator.ask("declare queue", name=self.names[-1], arguments=arguments)

    def declare_exclusive(self) -> None:
        channel = self.some_channel()
        queue = self.name()
        channel.declare_queue(queue, exclusive=True, auto_delete=True)
        channel.publish(b"m", routing_key=queue)

    def delete(self) -> None:
        if self.names:
            name = self.names.pop(self.random.randrange(len(self.names)))
            self.operator.ask("delete queue", name=name)

    def publish(self) -> None:
        if self.names:
            self.operator.ask("publish", routing_key=self.random.choice(self.names), payload="m")

    def ask(self) -> None:
        """Wait for an answer by direct reply-to, while a sample is taken."""
        with connect(self.url, reconnect=None) as connection, connection.channel() as channel:
            with channel.consume(REPLY_TO, no_ack=True):
                self.compare()
                if self.random.random() < 0.5:
                    return
            self.compare()

    def exchange(self) -> None:
        name = self.name()
        kind = self.random.choice(("direct", "x-delayed-message"))
        arguments = {"x-delayed-type": "direct"} if kind == "x-delayed-message" else {}
        self.operator.ask("declare exchange", name=name, type=kind, arguments=arguments)
        if self.random.random() < 0.5:
            self.compare()
            self.operator.ask("delete exchange", name=name)

    def vhost(self) -> None:
        name = self.name()
        self.operator.ask("put vhost", name=name)
        self.operator.ask("declare queue", vhost=name, name="q")
        self.compare()
        self.operator.ask("delete vhost", name=name)

    def session(self) -> None:
        """Open a session of 0-10 with a queue of its own."""
        with connect(f"{self.url}?version=0-10") as connection, connection.channel() as channel:
            channel.declare_queue(self.name(), exclusive=True, auto_delete=True)
            self.compare()

    def counts(self) -> dict[str, int]:
        (totals,) = self.seen.rows["totals"].values()
        return {name: totals[name] for name in COUNTED}


@pytest.mark.parametrize("seed", range(3))
def test_samples_have_what_lists_have(
    broker: LocalBroker, operator: ManagementClient, seed: int
) -> None:
    clients = Clients(broker, operator, seed)
    steps = (
        *(clients.come, clients.go, clients.declare, clients.declare_exclusive, clients.delete),
        *(clients.publish, clients.ask, clients.exchange, clients.vhost, clients.session),
    )
    clients.compare()
    before = clients.counts()
    for _ in range(STEPS):
        clients.random.choice(steps)()
        if clients.random.random() < 0.5:
            clients.compare()
        if clients.seen.since:
            counts = clients.counts()
            assert all(counts[name] >= before[name] for name in COUNTED), "a counter went back"
            before = counts
    while clients.open:
        clients.go()
    clients.compare()
    assert of_samples(clients.seen)["channel"] == []


def test_no_ghost_of_direct_reply_to_stays(broker: LocalBroker, operator: ManagementClient) -> None:
    seen = Mirror(operator)
    for _ in range(3):
        with connect(broker.url, reconnect=None) as connection, connection.channel() as channel:
            with channel.consume(REPLY_TO, no_ack=True):
                (name,) = seen.look().named("queue")
                assert name.startswith(REPLY_TO)
    until(lambda: not seen.look().named("queue"), "no queue")
    (totals,) = seen.rows["totals"].values()
    assert (totals["queues"], totals["consumers"]) == (0, 0)


@pytest.mark.parametrize(
    ("version", "refused"),
    [
        (V0_9_1, BasicConsume(queue=REPLY_TO, no_ack=True, arguments={"x-priority": "high"})),
        (V0_9_1, BasicConsume(queue=REPLY_TO, no_ack=True, arguments={"x-filter-jms-selector": 1})),
        (V0_9, MessageConsume(queue=REPLY_TO, no_ack=True, filter={"x-priority": "high"})),
    ],
)
def test_a_refused_consumer_of_direct_reply_to_leaves_no_queue(
    broker: LocalBroker, operator: ManagementClient, version: Version, refused: MethodBase
) -> None:
    client = RawClient(broker.host, broker.port, version).open()
    client.send(refused)
    client.expect(ChannelClose)
    assert operator.items("list queues") == []
    client.drop()
