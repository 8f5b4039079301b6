# SPDX-License-Identifier: Apache-2.0
"""Messages that come back, over cuts at any write or sync: they are counted, and wait their time.

One queue has a delivery limit, one lets what comes back wait. Consumers settle some, return some
and keep some until the broker dies. What is told of a message is what happened to it; a message is
tried once more than its limit at most beyond what it returned, and then is a dead letter.
HEADRACE_SEEDS=1000 tries that many.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from headrace.gateway.conversion.contents import Contents
from headrace.model.message import REDELIVERED, Message
from headrace.model.queue.destination import Consumer
from support.disks.crash_disk import FOREVER, Dead, DurableRig, Lives

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue
    from support.brokers.in_memory_broker import Client

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "12"))
IDS = {"limited": 1, "later": 2, "dead": 3}
LIMIT = 3
STEP_MS = 1000
START_MS = 1_700_000_000_000
ROOM = 4


def number_of(message: Message) -> int:
    assert message.data is not None
    return int.from_bytes(message.data[-9:-1], "big")


class Taker(Consumer):
    """Takes a few at a time; sees what it was handed once that may leave the broker."""

    def __init__(self, queue: Queue, look: Callable[[Message], None]) -> None:
        super().__init__(queue, "taker", False)
        self.look = look
        self.held_to = 0
        self.got: list[tuple[Message, int]] = []  # With what must be durable first.

    def has_room(self) -> bool:
        return len(self.got) < ROOM

    def delay_deliveries(self, position: int) -> None:
        self.held_to = max(self.held_to, position)

    def deliver(self, message: Message) -> None:
        self.got.append((message, self.held_to))
        self.look(message)


class ReturnsRig(DurableRig):
    """Knows what is a dead letter."""

    ids = IDS

    def declare(self) -> None:
        limited = {
            "x-delivery-limit": LIMIT,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        }
        later = {"x-delayed-retry-min": STEP_MS, "x-delayed-retry-max": 10 * STEP_MS}
        self.there: set[int] = set()
        self.dead: set[int] = set()
        self.vhost.declare_queue("limited", durable=True, arguments=limited)
        self.vhost.declare_queue("later", durable=True, arguments=later)
        self.vhost.declare_queue("dead", durable=True)

    def recovered(self, queue_id: int, message: Message) -> None:
        number = int.from_bytes(self.data_of(message)[-9:-1], "big")
        (self.dead if queue_id == IDS["dead"] else self.there).add(number)


class Run(Lives):
    """Consumers, and the brokers that they talk to, one after the other."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.now_ms = START_MS
        self.next_number = 0
        self.sent: dict[int, int] = {}  # Published, and durable when the log is, up to here.
        self.owed: set[int] = set()  # Published durably, and not accepted.
        self.handed: dict[int, int] = {}  # How often a message was handed out,
        self.seen: dict[int, int] = {}  # and how often it was delivered.
        self.due: dict[int, tuple[int, int]] = {}  # Returned: durable when, not before.
        self.died = 0
        self.waited = 0

    def live(self, *, die: bool = True) -> ReturnsRig:
        rig = ReturnsRig(self.disk, self.random, self.now_ms)
        assert self.owed <= rig.there | rig.dead, "a message is lost"
        self.died = max(self.died, len(rig.dead))
        client = rig.client()
        limited, later = rig.vhost.queues["limited"], rig.vhost.queues["later"]
        takers = [
            Taker(limited, lambda message: self.check(limited, message)),
            Taker(later, lambda message: self.check(later, message)),
        ]
        for taker in takers:
            taker.queue.add_consumer(taker)
        try:
            self.disk.fuse = self.random.randint(1, 25) if die else FOREVER
            for _ in range(1 << 20 if die else 200):
                if die or self.random.random() < 0.1:
                    self.publish(client)
                for taker in takers:
                    self.consume(rig, taker, greedy=not die)
                rig.turn()
                if self.random.random() < 0.3:
                    rig.pass_time(self.random.choice((1, STEP_MS // 2, 3 * STEP_MS)))
                    self.now_ms = rig.counters.now_ms
        except Dead:
            assert die
        synced = rig.store.synced
        self.owed |= {number for number, at in self.sent.items() if at <= synced}
        self.sent = {}
        self.due = {number: (0, when) for number, (at, when) in self.due.items() if at <= synced}
        for message, held_to in (entry for taker in takers for entry in taker.got):
            if held_to <= synced:
                self.see(number_of(message))
        self.cut()
        return rig

    def publish(self, client: Client) -> None:
        number = self.next_number
        self.next_number += 1
        name = self.random.choice(("limited", "limited", "later"))
        client.publish(name, number.to_bytes(8, "big"), delivery_mode=2)
        self.sent[number] = client.rig.store.appended

    def consume(self, rig: ReturnsRig, taker: Taker, *, greedy: bool) -> None:
        """Let the queue hand out; look at what may leave, and do something with it."""
        queue = taker.queue
        queue.drain()
        for message, held_to in list(taker.got):
            if held_to > rig.store.synced:
                continue
            number = number_of(message)
            pick = self.random.random()
            if pick < 0.4:
                continue  # Perhaps it is kept until the end.
            self.see(number)
            taker.got = [entry for entry in taker.got if entry[0] is not message]
            if pick < 0.5 or greedy:
                queue.settle(message)
                self.owed.discard(number)
                self.sent.pop(number, None)
            else:
                queue.requeue(message)
                if queue.backoff is not None:
                    wait_ms = min(10, message.deliveries) * STEP_MS
                    self.due[number] = rig.store.appended + 1, rig.counters.now_ms + wait_ms
        if taker.is_parked and taker.has_room():
            queue.unpark(taker)

    def see(self, number: int) -> None:
        self.seen[number] = self.seen.get(number, 0) + 1

    def check(self, queue: Queue, message: Message) -> None:
        """Check that the history of a delivered message is true."""
        number = number_of(message)
        handed, seen = self.handed.get(number, 0), self.seen.get(number, 0)
        self.handed[number] = handed + 1
        told = message.deliveries
        assert told <= handed, f"{number} is told of more tries than it had"
        assert not told or message.flags & REDELIVERED
        assert not handed or seen == 0 or message.flags & REDELIVERED
        if queue.name == "limited":
            assert told >= seen - 1, f"{number} is told of {told} tries and had {seen}"
            assert told <= LIMIT, f"{number} should be dead"
            assert Contents().read(message).headers.get("x-delivery-count", 0) == told
            return
        at, due_ms = self.due.pop(number, (1, 0))
        assert queue.counters.now_ms >= due_ms, f"{number} did not wait"
        self.waited += at == 0 and due_ms > 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_returns_are_counted_and_waits_are_kept_whatever_is_cut(seed: int) -> None:
    run = Run(seed)
    for _ in range(25):
        run.live()
    run.live(die=False)
    assert run.died, "nothing died"
    assert run.waited, "nothing waited over an end"
