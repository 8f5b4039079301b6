# SPDX-License-Identifier: Apache-2.0
"""A job is all or nothing, wherever the power fails.

From each seed: messages that come and go in a queue; jobs that move, copy and delete some of
them, to a queue and to a stream, which are cancelled now and then; and a disk that takes the broker
down at any write or sync. After each death, what is where must be what the jobs that are
remembered say, and every other message must be where it was. HEADRACE_SEEDS=1000 tries that many.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from headrace.model.errors import IllegalState
from headrace.model.message import REDELIVERED
from headrace.model.operations import message_job, prepared_copies
from headrace.model.operations.message_job import Job
from headrace.model.queue.destination import Consumer
from headrace.model.selector import compile_selector
from headrace.model.stream.stream import Stream
from support.disks.crash_disk import FOREVER, Dead, Life, Lives, MortalDisk, records_of
from support.stored_message import stored_message

if TYPE_CHECKING:
    from random import Random

    from headrace.model.message import Message

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "12"))
ADDRESS = b"\x00\x01a"
SOURCE, QUEUE, STREAM = "a", "b", "s"
IDS = {SOURCE: 1, QUEUE: 2, STREAM: 3}


def encoded(number: int, persistent: bool, size: int) -> Message:
    """A message as a gateway makes it; the body begins with its number."""
    message = stored_message(
        number.to_bytes(8, "big") + bytes(size),
        SOURCE,
        delivery_mode=2 if persistent else 1,
        headers={"n": number},
        priority=number % 10,
    )
    message.priority = number % 10
    return message


def number_in(data: bytes | None) -> int:
    assert data is not None
    at = len(ADDRESS) + 2
    at += 8 + int.from_bytes(data[at + 3 : at + 7], "big")
    return int.from_bytes(data[at + 7 : at + 15], "big")


class JobLife(Life):
    """A broker that does jobs."""

    ids = IDS

    def __init__(self, disk: MortalDisk, random: Random, *, taken: bool) -> None:
        # Memory is short now and then, so that bodies are on disk only.
        memory_max = random.choice((1000, FOREVER))
        super().__init__(disk, random, 1_000_000, memory_max=memory_max)
        assert not self.store.prepared_branches
        self.taken = taken  # So that what may have been delivered says so.

    def declare(self) -> None:
        for name in (SOURCE, QUEUE):
            self.vhost.declare_queue(name, durable=True)
        self.vhost.declare_queue(STREAM, durable=True, arguments={"x-queue-type": "stream"})

    def turn(self) -> None:
        """Let the writer do some of its work, and jobs theirs."""
        self.counters.now_ms += 2
        self.scheduler.run(self.counters.now_ms)
        super().turn()

    def seen(self, name: str) -> list[int]:
        """Return the messages that a consumer or reader could get now, in order."""
        queue = self.queues[name]
        if isinstance(queue, Stream):
            return [number_in(record[1]) for record in records_of(queue)]
        there = queue.ready.peek(0, 1 << 60, 1 << 60, queue.ready.requeued_between(0, 1 << 60))
        numbers = []
        for message in there:
            assert self.taken or not message.flags & REDELIVERED
            with_data = message_job.load_copy(self.vhost, message)
            assert with_data is not None
            numbers.append(number_in(with_data.data))
        return numbers


class Driver(Lives):
    """Publishes, consumes, and has jobs done; knows what must be where."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.takes = bool(seed % 2)  # Whether there is a consumer.
        self.next = 0
        self.jobs = 0
        self.chosen: dict[str, list[int]] = {}  # By job.
        self.source: set[int] = set()  # What must be in the source, or ...
        self.maybe: set[int] = set()  # of that: published, and not known to be durable;
        self.consumed: set[int] = set()  # or settled, and not known to be durable.
        self.there: dict[str, Counter[int]] = {QUEUE: Counter(), STREAM: Counter()}
        self.transient: set[int] = set()
        self.counted: set[str] = set()  # Jobs that are in the figures,
        self.witnessed = ""  # and the last one with a visible effect.

    def live(self) -> None:
        life = JobLife(self.disk, self.random, taken=self.takes)
        self.look(life, died=True)
        self.disk.fuse = self.random.choice((self.random.randrange(30), self.random.randrange(200)))
        try:
            while True:
                self.work(life)
        except Dead:
            self.cut()

    def work(self, life: JobLife) -> None:
        """Some comings and goings, and a job among them."""
        for _ in range(self.random.randrange(40)):
            self.publish(life)
        if self.random.random() < 0.7:
            self.sync(life)
        if self.takes and self.random.random() < 0.3:
            self.consume(life)
        before = life.seen(SOURCE)
        running = self.begin(life)
        quiet = True
        while not running.is_finished:
            if self.random.random() < 0.03:
                life.vhost.jobs.cancel(running.name)
            if self.takes and self.random.random() < 0.02:
                self.consume(life)
                quiet = False
            if self.random.random() < 0.05:
                self.publish(life)
                quiet = False
            life.turn()
            if life.queues[QUEUE].ready_count > self.there[QUEUE].total():
                self.witnessed = running.name
        if running.error is not None:
            assert isinstance(running.error, IllegalState)
            assert not quiet or life.seen(SOURCE) == before
        self.sync(life)
        self.look(life, died=False)

    def sync(self, life: JobLife) -> None:
        life.sync()
        self.maybe.clear()
        self.consumed.clear()

    def publish(self, life: JobLife) -> None:
        persistent = self.random.random() < 0.9
        size = self.random.choice((0, 0, 300, 3000))
        message = encoded(self.next, persistent, size)
        life.vhost.deliver(message, [life.queues[SOURCE]], persistent)
        self.source.add(self.next)
        (self.maybe if persistent else self.transient).add(self.next)
        self.next += 1

    def consume(self, life: JobLife) -> None:
        """Consume a message, and settle or requeue it."""
        queue = life.queues[SOURCE]
        message = queue.get(Consumer(queue, "", False))
        if message is None:
            return
        if self.random.random() < 0.5:
            queue.release(message)
        else:
            number = number_in(message.data)
            self.consumed.add(number)
            self.source.discard(number)
            queue.settle(message)

    def begin(self, life: JobLife) -> Any:
        """Have a job done, and note what it chooses."""
        self.jobs += 1
        do = self.random.choice(("move", "move", "copy", "delete"))
        to = self.random.choice((QUEUE, STREAM))
        count = self.random.choice((None, None, self.random.randrange(1, 30)))
        selector = self.random.choice((None, None, "n % 3 = 1"))
        job = Job(
            life.vhost,
            life.queues[SOURCE],
            target=None if do == "delete" else life.queues[to],
            keeps=do == "copy",
            selector=None if selector is None else compile_selector(selector),
            count=count,
        )
        name = f"job {self.jobs}"
        chosen = self.chosen[name] = []
        prepare = job._copies.prepare

        def noting(batch: list[prepared_copies.SelectedMessage]) -> None:
            for each in batch:
                message = each.copy or each.source
                assert message is not None
                with_data = message_job.load_copy(life.vhost, message)
                assert with_data is not None
                chosen.append(number_in(with_data.data))
            prepare(batch)

        job._copies.prepare = noting  # type: ignore[assignment,method-assign]
        what = {"do": do, "from": SOURCE, "to": to, "count": count, "selector": selector}
        return life.vhost.jobs.begin(name, what, job, 0)

    def look(self, life: JobLife, *, died: bool) -> None:
        """Check that each message is where the stored jobs say, and nowhere else."""
        for key, raw in life.vhost.facts.items(b"errand/"):
            name = key.partition(b"/")[2].decode()
            known = json.loads(raw)
            chosen = self.chosen[name]
            assert known["did"]["done"] == len(chosen)
            if name in self.counted:
                continue
            self.counted.add(name)
            if known["of"]["do"] != "copy":
                assert not self.source.isdisjoint(chosen) or not chosen
                self.source -= set(chosen)
            if known["of"]["do"] != "delete":
                self.there[known["of"]["to"]].update(chosen)
        assert not self.witnessed or self.witnessed in self.counted, "seen, and taken back"
        if died:
            life.sync()  # A stream shows what is durable in it.
        found = life.seen(SOURCE)
        assert found == sorted(set(found)), "out of order, or twice"
        if died:
            self.source |= self.consumed & set(found)  # That it was settled was lost.
            self.source -= self.maybe - set(found)
            self.source -= self.transient
            self.there[QUEUE] = Counter(
                {n: count for n, count in self.there[QUEUE].items() if n not in self.transient}
            )
            self.transient.clear()
            self.maybe.clear()
            self.consumed.clear()
        assert set(found) == self.source
        for name, expected in self.there.items():
            assert Counter(life.seen(name)) == expected, name


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_job_is_all_or_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_job, "BATCH_MAX", 5)
    monkeypatch.setattr(message_job, "LOOKS_MAX", 7)
    monkeypatch.setattr(message_job, "BEHIND_MAX", 3)
    monkeypatch.setattr(prepared_copies, "SLICE", 6)
    driver = Driver(seed)
    for _ in range(10):
        driver.live()
    life = JobLife(driver.disk, driver.random, taken=driver.takes)
    driver.look(life, died=True)
    for _ in range(3):
        driver.work(life)
    assert life.counters.memory_used >= 0
    assert not life.store.prepared
    assert all(q.pending_count == q.unacked_count == 0 for q in life.queues.values())
