# SPDX-License-Identifier: Apache-2.0
"""Dead letters over a journal that is torn anywhere: each message is in one place, once.

Messages die in every way there is; then the journal is cut at each end of a record and inside each
record, and read back. Whatever is cut, a message that was durable before is in the queue where it
died or where its dead letter went, never in both, never in none.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from headrace.model.queue.overflow import Overflow
from headrace.protocol.codec_0_x import (
    BasicConsume,
    BasicNack,
    BasicReject,
    QueueBind,
    QueueDelete,
)
from support.disks.crash_disk import DurableRig, MortalDisk, records_of
from support.disks.torn_journal import cuts, journal_of, torn

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.model.message import Message
    from support.brokers.in_memory_broker import Client

START_MS = 1_700_000_000_000
CUTS_MAX = 100  # Places where the journal is cut, the last ones of all.
FEW, MANY = 6, 70  # More die at once than become letters at once.
TO_DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


class Scene(NamedTuple):
    """A kind of queue, and the reason for which its messages become dead letters."""

    arguments: dict[str, Any]
    happens: Callable[[Torn, Client], None]
    count: int = FEW  # type: ignore[assignment]
    dead: dict[str, Any] = {}  # noqa: RUF012 - arguments of the queue for dead letters
    died: int = FEW


class Torn(DurableRig):
    """A broker with a queue whose messages die; knows where each of them is."""

    ids = {"q": 1, "dead": 2, "last": 3}  # noqa: RUF012
    segment_size = 64 << 10  # One holds all, and none is let go of before it is cut.

    def __init__(self, disk: MortalDisk, scene: Scene) -> None:
        self.scene = scene
        self.places: Counter[int] = Counter()
        super().__init__(disk, Random(0), START_MS)
        dead = self.queues["dead"]
        if dead.is_stream:
            for record in records_of(dead):
                self.places[int.from_bytes(record[1][-9:-1], "big")] += 1

    def declare(self) -> None:
        self.vhost.declare_queue("q", durable=True, arguments=self.scene.arguments)
        self.vhost.declare_queue("dead", durable=True, arguments=self.scene.dead)
        self.vhost.declare_queue("last", durable=True)

    def recovered(self, queue_id: int, message: Message) -> None:
        self.places[int.from_bytes(self.data_of(message)[-9:-1], "big")] += 1


def publish(client: Client, numbers: range) -> None:
    for number in numbers:
        body = number.to_bytes(8, "big")
        client.publish("q", body, exchange="amq.fanout", delivery_mode=2)


def reject(rig: Torn, client: Client) -> None:
    client.send(BasicConsume(queue="q"))
    for tag in range(1, FEW + 1):
        client.send(BasicReject(delivery_tag=tag, requeue=False))


def nack_all(rig: Torn, client: Client) -> None:
    """The journal has the first of them in one group."""
    client.send(BasicConsume(queue="q"))
    client.send(BasicNack(delivery_tag=0, multiple=True, requeue=False))
    rig.pass_time(1)
    rig.pass_time(1)


def give_back(rig: Torn, client: Client) -> None:
    """The consumer goes, and its messages have come back too often."""
    client.send(BasicConsume(queue="q"))
    client.send(BasicNack(delivery_tag=0, multiple=True, requeue=True))


def give_back_and_wait(rig: Torn, client: Client) -> None:
    give_back(rig, client)
    rig.pass_time(5000)


def expire(rig: Torn, client: Client) -> None:
    for _ in range(5):
        rig.pass_time(1000)


def take_late(rig: Torn, client: Client) -> None:
    """Messages are due that were not expired before a consumer attaches."""
    rig.counters.now_ms += 5000
    client.send(BasicConsume(queue="q"))


def overflow(rig: Torn, client: Client) -> None:
    publish(client, range(FEW, 2 * FEW))


def shorten(rig: Torn, client: Client) -> None:
    """A policy makes the queue shorter."""
    queue = rig.queues["q"]
    queue.limits = Overflow(0)
    queue.drain()
    rig.pass_time(1)
    rig.pass_time(1)


def delete(rig: Torn, client: Client) -> None:
    client.send(QueueDelete(queue="q"))


SCENES = {
    "rejected": Scene(TO_DEAD, reject),
    "rejected-to-stream": Scene(TO_DEAD, nack_all, dead={"x-queue-type": "stream"}),
    "rejected-twice": Scene(
        TO_DEAD,
        reject,
        dead={
            "x-max-length": 2,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "last",
        },
    ),
    "many": Scene(TO_DEAD, nack_all, count=MANY, died=MANY),
    "at-least-once": Scene(
        {**TO_DEAD, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
        nack_all,
    ),
    "alternate": Scene({"alternate-exchange": "amq.direct"}, reject),
    "orphaned": Scene({"alternate-exchange": "amq.direct"}, delete),
    "delivery-limit": Scene({**TO_DEAD, "x-delivery-limit": 0}, give_back),
    "retries": Scene(
        {**TO_DEAD, "x-delivery-limit": 0, "x-delayed-retry-min": 1000}, give_back_and_wait
    ),
    "expired": Scene({**TO_DEAD, "x-message-ttl": 2000}, expire, count=MANY, died=MANY),
    "expired-late": Scene({**TO_DEAD, "x-message-ttl": 2000}, take_late),
    "maxlen": Scene({**TO_DEAD, "x-max-length": FEW}, overflow),
    "turned-away": Scene(
        {**TO_DEAD, "x-max-length": FEW, "x-overflow": "reject-publish-dlx"}, overflow
    ),
    "shortened": Scene(TO_DEAD, shorten, count=MANY, died=MANY),
}


@pytest.mark.parametrize("name", SCENES)
def test_a_letter_and_what_it_was_are_in_one_place_whatever_is_torn(name: str) -> None:
    scene = SCENES[name]
    disk = MortalDisk(0)
    rig = Torn(disk, scene)
    client = rig.client()
    client.send(QueueBind(queue="q", exchange="amq.fanout"))
    client.send(QueueBind(queue="dead", exchange="amq.direct", routing_key="q"))
    publish(client, range(scene.count))
    rig.sync()
    before = journal_of(disk)
    scene.happens(rig, client)
    rig.sync()
    dead = rig.queues["dead"]
    letters = len(records_of(dead)) if dead.is_stream else dead.ready_count
    assert letters + rig.queues["last"].ready_count == scene.died
    after = journal_of(disk)
    lost, twice, seen = [], [], 0
    for segment, at in list(cuts(before, after))[-CUTS_MAX:]:
        places = Torn(torn(disk, segment, at), scene).places
        seen += 1
        if any(count > 1 for count in places.values()):
            twice.append((segment, at))
        if any(not places[number] for number in range(scene.count)):
            lost.append((segment, at))
    assert seen > scene.died, "nothing was cut"
    assert not lost
    assert not twice
