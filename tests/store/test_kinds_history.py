# SPDX-License-Identifier: Apache-2.0
"""Kinds of queue on a disk that dies at any write or sync: what they promise holds after it.

From each seed: a queue that is published to and consumed from; after each death a comparison of
what comes back with what was told. HEADRACE_SEEDS=1000 tries that many more.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from headrace.gateway.conversion.contents import Contents
from headrace.model.counters import Counters
from headrace.model.queue.destination import Consumer
from headrace.model.scheduler import Scheduler
from headrace.model.vhost.virtual_host import VirtualHost
from support.disks.crash_history import Run, number_of, numbered

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "2"))
READY, GONE = "ready", "gone"
KINDS: dict[str, dict[str, Any]] = {
    "last value": {"qpid.last_value_queue_key": "k"},
    "sorted": {"qpid.queue_sort_key": "k"},
    "shared groups": {"qpid.group_header_key": "k", "qpid.shared_msg_group": 1},
    "exclusive groups": {"qpid.group_header_key": "k"},
    "fair share": {"qpid.priorities": 4, "qpid.fairshare": 2},
    "later": {"holdOnPublishEnabled": True},
}


class KindRun(Run):
    """A queue of one kind, which is published to and consumed from."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.now_ms = 1_000_000
        self.keys: dict[int, int] = {}
        self.back = 0
        super().__init__(seed)
        self.vhost.declare_queue("q", durable=True, arguments=KINDS[kind])

    @property
    def queue(self) -> Queue:
        return self.vhost.queues["q"]

    def open(self) -> None:
        self.counters = Counters(now_ms=self.now_ms)
        self.scheduler = Scheduler()
        self.held: list[Message] = []
        self.new_journal()
        self.vhost = VirtualHost(
            "/",
            store=self.journal,
            counters=self.counters,
            definitions=self.definitions,
            scheduler=self.scheduler,
            contents=Contents(),
        )
        self.vhost.load()
        for _, message, arrived_ms in self.journal.recover():
            self.queue.restore(message, arrived_ms)
        self.counters.next_seq = self.journal.last_seq + 1

    # --- What clients do ------------------------------------------------------------------------

    def publish(self) -> None:
        for _ in range(self.random.choice((1, 5, 30))):
            self.number += 1
            key = self.random.randrange(5)
            self.keys[self.number] = key
            headers: dict[str, Any] = {"k": str(key)}
            if self.kind == "later":
                self.keys[self.number] = self.now_ms + self.random.choice((-1, 5, 50))
                headers = {"x-qpid-not-valid-before": self.keys[self.number]}
            message = numbered(self.number, self.random.choice((0, 10, 900)), headers)
            message.priority = key + 3 if self.kind == "fair share" else 0
            if self.kind == "last value":
                for number in self.alike(key):
                    self.doing[number] = GONE
            self.vhost.deliver(message, [self.queue], True)
            self.tell([self.number], READY)
            if self.kind == "last value":
                self.journal.flush_settled()
                for number in self.alike(key):
                    self.tell([number], GONE)

    def alike(self, key: int) -> list[int]:
        """Ready messages of a key that the last one replaces."""
        held = {number_of(message) for message in self.held}
        return [
            number
            for number, states in self.told.items()
            if self.keys[number] == key
            and states[-1][0] == READY
            and number not in held
            and number != self.number
        ]

    def consume(self) -> None:
        for _ in range(self.random.randrange(5)):
            message = self.queue.get(Consumer(self.queue, "", False))
            if message is None:
                break
            self.held.append(message)

    def settle(self) -> None:
        self.random.shuffle(self.held)
        some = [self.held.pop() for _ in range(len(self.held) // 2)]
        for message in some:
            number = number_of(message)
            held = {number_of(other) for other in self.held}
            newer = self.kind == "last value" and any(
                self.keys[other] == self.keys[number] and self.told[other][-1][0] == READY
                for other in range(number + 1, self.number + 1)
            )
            if self.random.random() < 0.6:
                self.doing[number] = GONE
                self.queue.settle(message)
                self.journal.flush_settled()
                self.tell([number], GONE)
            else:
                if newer:
                    self.doing[number] = GONE
                older = [n for n in self.alike(self.keys[number]) if n < number and n not in held]
                if self.kind == "last value" and not newer:
                    self.doing.update(dict.fromkeys(older, GONE))
                self.queue.requeue(message)
                self.journal.flush_settled()
                if newer:
                    self.tell([number], GONE)
                elif self.kind == "last value":
                    for other in older:
                        self.tell([other], GONE)
        self.queue.drain()

    def wait(self) -> None:
        self.now_ms += self.random.choice((1, 10))
        self.counters.now_ms = self.now_ms
        self.scheduler.run(self.now_ms)

    def turn(self) -> None:
        deeds: list[Callable[[], None]] = [self.publish, self.consume, self.settle, self.wait]
        self.random.choice(deeds)()
        if self.random.random() < 0.7:
            self.journal.flush_settled()
            self.write()

    def compare(self, synced: int) -> None:
        if self.kind == "later":
            waiting = [number_of(message) for message in taken(self.queue)]
            assert all(self.keys[number] <= self.now_ms for number in waiting)
            self.now_ms += 50
            self.counters.now_ms = self.now_ms
            self.scheduler.run(self.now_ms)
        found = [number_of(message) for message in taken(self.queue)]
        assert len(found) == len(set(found)), "something is there twice"
        keys = [self.keys[number] for number in found]
        if self.kind == "last value":
            assert len(keys) == len(set(keys)), "two last values of one key"
        elif self.kind == "sorted":
            assert keys == sorted(keys)
        elif self.kind == "later":
            assert found == sorted(found)
        for key in set(keys) if "groups" in self.kind else ():
            group = [number for number in found if self.keys[number] == key]
            assert group == sorted(group)
        for number in self.told:
            state = READY if number in found else GONE
            allowed = self.allowed(number, synced)
            if self.kind == "last value" and any(
                other > number and self.keys[other] == self.keys[number] for other in found
            ):
                allowed = {GONE}
            assert state in allowed, f"{number}: {state}, not {allowed}"
            self.told[number] = [(state, 0)]
        self.back += len(found)


def taken(queue: Queue) -> list[Message]:
    """Return the ready messages of a queue in delivery order; they stay there."""
    found: list[Message] = []
    while (message := queue.dequeue()) is not None:
        found.append(message)
        queue.unacked_count += 1
    for message in found:
        queue.release(message)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_kind_of_queue_keeps_its_promises(kind: str, seed: int) -> None:
    run = KindRun(kind, seed)
    for _ in range(4):
        run.live()
    assert run.back
