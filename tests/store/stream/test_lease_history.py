# SPDX-License-Identifier: Apache-2.0
"""Leases on a disk that dies at any write or sync: no message is lost, none is there twice.

From each seed: a queue that is published to, consumed from and leased by two groups, whose leases
are settled, rejected from and given back; after each death a comparison of what comes back with
what was told. HEADRACE_SEEDS=1000 tries that many more.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from headrace.gateway.conversion.contents import Contents
from headrace.model.counters import Counters
from headrace.model.lease.lease import Lease
from headrace.model.message import KIND_MASK, REDELIVERED
from headrace.model.queue.destination import Consumer
from headrace.model.queue_kinds.content_lanes import get_lane
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.store.stream.lease_log import DiskLeaseLog
from support.disks.crash_history import Run, number_in, number_of, numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from headrace.model.queue.queue import Queue

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "12"))
GROUPS = ("one", "two")
READY, LEASED, DEAD, DONE = "ready", "leased", "dead", "done"

T = TypeVar("T")


class LeaseRun(Run):
    """A queue that is published to, consumed from and leased."""

    gone = DONE

    def __init__(self, seed: int) -> None:
        self.counts = dict.fromkeys((READY, LEASED, DEAD, DONE), 0)
        self.redelivered = 0
        super().__init__(seed)
        self.vhost.declare_queue(
            "q",
            durable=True,
            arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
        )
        self.vhost.declare_queue("dead", durable=True)
        self.vhost.declare_queue("other", durable=True)

    # --- The host -------------------------------------------------------------------------------

    def open(self) -> None:
        self.counters = Counters(now_ms=1_000_000)
        self.new_journal()

        def make_stream(name: str, **options: Any) -> Queue:
            directory = f"/streams/{options['id']}"
            return Lease(name, DiskLeaseLog(directory, self.journal, segment_size=0), **options)

        self.vhost = VirtualHost(
            "/",
            store=self.journal,
            counters=self.counters,
            definitions=self.definitions,
            contents=Contents(),
            make_stream=make_stream,
        )
        self.vhost.load()
        queues = {queue.id: queue for queue in self.vhost.queues.values()}
        recovered = self.journal.recover()
        self.vhost.facts.restore()
        for queue_id, message, arrived_ms in recovered:
            get_lane(queues[queue_id], message.flags & KIND_MASK).restore(message, arrived_ms)
        self.vhost.leases.restore()
        self.counters.next_seq = self.journal.last_seq + 1

    def queue(self, name: str = "q") -> Queue:
        return self.vhost.queues[name]

    def leases(self) -> list[Lease]:
        return self.vhost.leases.find_all(self.queue())

    def finish(self, steps: Generator[None, None, T], broken_off: bool = False) -> T | None:
        """Run all slices of a job; perhaps no caller waits for the last ones."""
        for slice_ in range(1000):
            try:
                next(steps)
            except StopIteration as end:
                value: T = end.value
                return value
            if broken_off and slice_ == 1:
                steps.close()
                return None
            self.write()
        raise AssertionError("it does not end")

    # --- What clients do ------------------------------------------------------------------------

    def publish(self) -> None:
        for _ in range(self.random.choice((1, 5, 40))):
            self.number += 1
            message = numbered(self.number, self.random.choice((0, 10, 900)))
            targets = [self.queue()]
            if self.random.random() < 0.3:
                targets.append(self.queue("other"))  # Which owes it for ever.
            self.vhost.deliver(message, targets, True)
            self.tell([self.number], READY)

    def consume(self) -> None:
        queue = self.queue()
        numbers = []
        for _ in range(self.random.randrange(5)):
            message = queue.get(Consumer(queue, "", False))
            if message is None:
                break
            if self.random.random() < 0.5:
                numbers.append(number_of(message))
                self.doing[numbers[-1]] = DONE
                queue.settle(message)
            else:
                queue.requeue(message)
        self.journal.flush_settled()
        self.tell(numbers, DONE)

    def claim(self) -> Lease:
        group = self.random.choice(GROUPS)
        return self.vhost.leases.claim(self.queue(), group, "o", 0)

    def take(self) -> None:
        lease = self.claim()
        first = lease.log.next_offset
        limits = {"messages": self.random.choice((1, 7, 50)), "bytes_max": 1 << 20}
        self.doing = dict.fromkeys(self.bodies(self.queue()), LEASED)
        self.finish(self.vhost.leases.take(lease, first, **limits))
        self.write()
        self.tell([n for n, at in numbers_of(lease, first)], LEASED)

    def settle(self) -> None:
        lease = self.claim()
        leased = numbers_of(lease, lease.settled)
        if not leased:
            return
        some = leased[: self.random.randint(1, len(leased))]
        rejects = [at for _, at in some if self.random.random() < 0.2]
        before = lease.settled
        self.doing = {number: DEAD if at in rejects else DONE for number, at in some}
        broken_off = self.random.random() < 0.3
        self.finish(
            self.vhost.leases.settle(lease, before + len(some), rejects), broken_off=broken_off
        )
        for number, at in some:
            if at < lease.settled:
                self.tell([number], DEAD if at in rejects else DONE)

    def release(self) -> None:
        lease = self.claim()
        leased = numbers_of(lease, lease.settled)
        self.doing = {number: READY for number, _ in leased}
        broken_off = self.random.random() < 0.3
        self.finish(self.vhost.leases.release(lease), broken_off=broken_off)
        self.tell([number for number, at in leased if at < lease.settled], READY)

    def turn(self) -> None:
        deeds: list[Callable[[], None]] = [self.publish, self.consume, self.take, self.settle]
        if self.random.random() < 0.5:
            deeds.append(self.release)
        self.random.choice(deeds)()
        self.doing = {}
        if self.random.random() < 0.7:
            self.write()

    def compare(self, synced: int) -> None:
        places: dict[int, list[str]] = {}
        ready = self.bodies(self.queue())
        assert ready == sorted(ready), "what was given back is not in its place"
        for number in ready:
            places.setdefault(number, []).append(READY)
        for lease in self.leases():
            for number, _ in numbers_of(lease, lease.settled):
                places.setdefault(number, []).append(LEASED)
        dead = self.bodies(self.queue("dead"))
        for number in dead:
            places.setdefault(number, []).append(DEAD)
        for number in self.told:
            found = places.get(number, [])
            assert len(found) < 2, f"{number} is there twice: {found}"
            state = found[0] if found else DONE
            allowed = self.allowed(number, synced)
            assert state in allowed, f"{number}: {state}, not {allowed}"
            self.counts[state] += 1
            self.told[number] = [(state, 0)]

    def bodies(self, queue: Queue) -> list[int]:
        """The numbers of what is in a queue, which stays there."""
        held = []
        while (message := queue.get(Consumer(queue, "", False))) is not None:
            held.append(message)
        for message in held:
            self.redelivered += message.flags & REDELIVERED != 0
            queue.release(message)
        return [number_of(message) for message in held]


def numbers_of(lease: Lease, first: int) -> list[tuple[int, int]]:
    """Return the durable leased messages: their numbers, and those in the lease."""
    found = []
    while batch := lease.log.read(first, 1 << 20):
        found += [(number_in(data), offset) for offset, data, *_ in batch]
        first = batch[-1][0] + 1
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_message_is_lost_and_none_is_there_twice(seed: int) -> None:
    run = LeaseRun(seed)
    for _ in range(8):
        run.live()


def test_all_of_it_happens() -> None:
    run = LeaseRun(7)
    for _ in range(16):
        run.live()
    assert all(count > 10 for count in run.counts.values()), run.counts
    assert run.redelivered > 10
