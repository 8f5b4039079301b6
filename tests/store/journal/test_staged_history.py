# SPDX-License-Identifier: Apache-2.0
"""Staged batches, exactly once: over crashes of any process, and power failures at any point.

From each seed: a driver with its tasks, which are lost and tried again, a disk that dies at any
write or sync, and a driver that dies before, within and after a commit. A queue and a stream must
then hold each batch whole and once, in order. HEADRACE_SEEDS=1000 tries that many.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from headrace.model.message import new_message
from headrace.model.queue.destination import Consumer
from headrace.model.stream.stream import Stream
from headrace.model.transaction import staged_batch
from headrace.model.transaction.dtx import BranchState
from headrace.model.transaction.staged_batch import Stage, build_xid
from support.disks.crash_disk import FOREVER, Dead, Life, Lives, MortalDisk, records_of

if TYPE_CHECKING:
    from random import Random

    from headrace.model.transaction.transaction import Transaction

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "30"))
HEAD = b"\x00\x01q\x00\x00"
SINK = "sink"
IDS = {"q": 1, "s": 2, "gone": 3}


class Session:
    """Works for a branch."""

    transaction: Transaction | None = None


class SinkLife(Life):
    """A broker that batches are staged with."""

    ids = IDS

    def __init__(self, disk: MortalDisk, random: Random) -> None:
        # Memory is short now and then, so that staged work is paged out.
        memory_max = random.choice((1000, FOREVER))
        super().__init__(disk, random, 1_000_000, memory_max=memory_max)
        self.vhost.branches.restore(self.store.prepared_branches)
        self.vhost.sinks.resume()
        self.background: Iterator[None] = iter(())
        disk.fuse = random.choice((random.randrange(40), random.randrange(300), FOREVER))

    def declare(self) -> None:
        for name in ("q", "gone"):
            self.vhost.declare_queue(name, durable=True)
        self.vhost.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})

    def run(self, steps: Any) -> Any:
        """Do a request in its slices, until what it tells is durable."""
        while True:
            next(self.background, None)
            try:
                next(steps)
            except StopIteration as end:
                self.sync()
                return end.value
            self.turn()

    # --- Tasks ----------------------------------------------------------------------------------

    def task(self, epoch: int, batch: int, partition: int, size: int, attempt: int) -> Stage | None:
        """Stage a part of a batch; None when the attempt is lost."""
        name = f"{partition}.{attempt}.{self.random.randrange(1 << 24):06x}"
        chunks = 0
        session = Session()
        for first in range(0, size, 4):
            branch = f"{name}/{chunks}"
            xid = build_xid(SINK, batch, branch)
            self.vhost.branches.start(session, xid, ends_with_outcome=True)
            assert session.transaction is not None
            count = min(4, size - first)
            for n in range(first, first + count):
                self.publish(session.transaction, f"{batch}.{partition}.{n}".encode())
            if self.random.random() < 0.1:
                self.vhost.branches.on_worker_end(session)
                return None
            assert self.vhost.sinks.prepare(SINK, epoch, batch, branch, count)
            chunks += 1
            if self.random.random() < 0.5:
                self.turn()
        return None if self.random.random() < 0.1 else Stage(name, chunks)

    def publish(self, transaction: Transaction, body: bytes) -> None:
        message = new_message(HEAD + body + bytes(self.random.choice((0, 300))), 3, len(body))
        queues = self.queues.values()
        transaction.publish(message, [queue for queue in queues if not queue.deleted], True)
        transaction.publish_count += 1

    # --- What came of it ------------------------------------------------------------------------

    def seen(self, name: str) -> list[bytes]:
        """Return what a reader could have read by now; the queue keeps it."""
        queue = self.queues[name]
        if isinstance(queue, Stream):
            found = [record[1] for record in records_of(queue)]
        else:
            holder = Consumer(queue, "", False)
            taken = []
            while (message := queue.get(holder)) is not None:
                taken.append(message)
            found = [message.data or b"" for message in taken]
            for message in taken:
                queue.release(message)
        return [data[len(HEAD) :].rstrip(b"\x00") for data in found]


class Driver(Lives):
    """Counts batches, and writes each until it is committed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.committed: dict[int, list[bytes]] = {}  # What each batch must have become.
        self.sizes: list[int] = []
        self.lives = 0
        self.witnessed = -1  # The last batch of which a reader has seen anything.

    def live(self, batches: int) -> None:
        """One life: go on until the disk dies, or all is done."""
        self.lives += 1
        life = SinkLife(self.disk, self.random)
        self.check(life)
        if self.random.random() < 0.1:
            life.vhost._remove_queue(life.queues["gone"])
        try:
            self.drive(life, batches)
        except Dead:
            self.disk.kill()
        else:
            life.sync()
            self.check(life)
            self.disk.kill()

    def drive(self, life: SinkLife, batches: int) -> None:
        sinks = life.vhost.sinks
        state = life.run(sinks.begin(SINK, "query", f"run {self.lives}"))
        batch = 0 if state["last"] is None else state["last"] + 1
        while batch < batches:
            while len(self.sizes) <= batch:
                self.sizes.append(self.random.randrange(5))
            stages = []
            for partition in range(self.sizes[batch]):
                size = (batch + 7 * partition) % 11
                attempts = 0
                won = None
                while won is None or self.random.random() < 0.2:
                    attempts += 1
                    won = life.task(state["epoch"], batch, partition, size, attempts) or won
                stages.append(won)
                self.check(life)
            self.committed[batch] = [
                f"{batch}.{partition}.{n}".encode()
                for partition in range(self.sizes[batch])
                for n in range((batch + 7 * partition) % 11)
            ]
            if self.random.random() < 0.1:
                life.sync()
                self.disk.kill()
                raise Dead  # The driver dies before it decides.
            deciding = sinks.commit(SINK, state["epoch"], batch, stages)
            for _ in range(self.random.choice((0, 1, 3, 1 << 30))):
                if next(deciding, "done") == "done":
                    break
                life.turn()
                self.check(life)
            life.background = deciding  # The broker goes on when its client asks again.
            life.run(sinks.commit(SINK, state["epoch"], batch, stages))
            self.check(life, batch)
            batch += 1

    def check(self, life: SinkLife, done: int = -1) -> None:
        """Whatever is seen is whole batches, each once; only the last may be on its way."""
        for name in ("q", "s"):
            seen = life.seen(name)
            whole: list[bytes] = []
            for batch in sorted(self.committed):
                whole += sorted(self.committed[batch])
            ordered = [body for batch in self.split(seen) for body in sorted(batch)]
            known = life.vhost.facts.get(b"sink/sink")
            last = -1 if known is None else staged_batch.Sink.decode(known).last
            assert len(set(seen)) == len(seen), (name, seen)
            assert last >= self.witnessed  # What was seen is never taken back.
            for body in seen:
                self.witnessed = max(self.witnessed, int(body.split(b".")[0]))
            assert all(int(body.split(b".")[0]) <= last for body in seen), (name, seen, last)
            if done >= 0 or not life.vhost.sinks._deciding:
                expected = [
                    body
                    for batch in sorted(self.committed)
                    if batch <= last
                    for body in sorted(self.committed[batch])
                ]
                if name == "s" and life.store.synced < life.store.appended:
                    assert expected[: len(ordered)] == ordered or set(ordered) <= set(expected)
                else:
                    assert ordered == expected, (name, last)

    @staticmethod
    def split(seen: list[bytes]) -> list[list[bytes]]:
        """Bodies by their batch, in the order of their coming."""
        batches: dict[bytes, list[bytes]] = {}
        for body in seen:
            batches.setdefault(body.split(b".")[0], []).append(body)
        return list(batches.values())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_batch_is_there_once_and_whole(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_batch, "SLICE", 3)
    driver = Driver(seed)
    for _ in range(12):
        driver.live(6)
    life = SinkLife(driver.disk, driver.random)
    driver.disk.fuse = FOREVER
    driver.drive(life, 6)
    life.sync()
    driver.check(life, 5)
    assert life.counters.memory_used >= 0
    assert not [b for b in life.vhost.branches if b.state is BranchState.PREPARED]
    assert all(queue.pending_count == 0 for queue in life.queues.values())
