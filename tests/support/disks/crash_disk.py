# SPDX-License-Identifier: Apache-2.0
"""A disk that takes the process down, and lives on it: for tests of what a cut leaves behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from headrace.gateway.conversion.contents import Contents
from headrace.model.counters import Counters
from headrace.model.queue.retry_backoff import restore
from headrace.model.stream.stream import Stream
from headrace.model.vhost.definitions import NoDefinitions, QueueRecord
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.store.journal.journal import Journal
from headrace.store.stream.log import DiskStreamLog
from headrace.testing.disk import FaultyDisk
from support.brokers.in_memory_broker import Rig

if TYPE_CHECKING:
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue

FOREVER = 1 << 60


class Dead(BaseException):
    """The process dies here."""


class MortalDisk(FaultyDisk):
    """A disk that takes the process down after so many writes and syncs."""

    fuse = FOREVER

    def burn(self) -> None:
        self.fuse -= 1
        if self.fuse < 0:
            raise Dead

    def write_some(self, handle: int, pieces: Sequence[memoryview], at: int) -> int:
        self.burn()
        return super().write_some(handle, pieces, at)

    def sync(self, handle: int) -> None:
        self.burn()
        super().sync(handle)


class Ids(NoDefinitions):
    """Gives each queue the id that it had."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        super().__init__()
        self.ids = ids

    def save_queue(self, queue: QueueRecord) -> int:
        return self.ids[queue.name]


class Life:
    """A virtual host from its start to its end, on a disk that lasts."""

    ids: Mapping[str, int] = {}  # Of all queues that are ever made.
    segment_size = 8 << 10

    def __init__(
        self, disk: MortalDisk, random: Random, now_ms: int, *, memory_max: int = FOREVER
    ) -> None:
        disk.fuse = FOREVER
        self.random = random
        self.counters = Counters(memory_max=memory_max, now_ms=now_ms)
        self.store: Any = journal_on(disk, self.segment_size)
        self.vhost = VirtualHost(
            "/",
            store=self.store,
            counters=self.counters,
            contents=Contents(),
            make_stream=self.make_stream,
            definitions=Ids(self.ids),
        )
        self.scheduler = self.vhost.scheduler
        self.declare()
        self.queues: dict[str, Any] = dict(self.vhost.queues)
        by_id = {self.ids[name]: queue for name, queue in self.queues.items()}
        recovered = self.store.recover()
        self.vhost.facts.restore()
        for queue_id, message, arrived_ms in recovered:
            self.recovered(queue_id, message)
            restore(by_id[queue_id], message, arrived_ms)
        self.counters.next_seq = max(self.counters.next_seq, self.store.last_seq + 1)

    def declare(self) -> None:
        """Declare the queues."""
        raise NotImplementedError

    def recovered(self, queue_id: int, message: Message) -> None:
        """Take note of a message that is still there, before its queue has it."""

    def data_of(self, message: Message) -> bytes:
        """Read a message that is paged out."""
        self.store.load(message)
        data = message.data
        assert data is not None
        self.store.page_out(message)
        return data

    def make_stream(self, name: str, **options: Any) -> Queue:
        log = DiskStreamLog(f"/streams/{self.ids[name]}", self.store, segment_size=64 << 10)
        return Stream(name, log, **options)

    def write(self) -> None:
        """Let the writer do some of its work."""
        while self.store.writer.jobs and self.random.random() < 0.8:
            self.store.writer.step()
            self.store.woken()

    def turn(self) -> None:
        """The end of a turn of the event loop, and some work of the writer."""
        self.store.start_write()
        self.write()

    def sync(self) -> None:
        """Let all be durable that was done."""
        while self.store.synced < self.store.appended or self.store.writer.jobs:
            self.turn()


class DurableRig(Life, Rig):
    """A broker on a disk, without sockets."""

    def __init__(self, disk: MortalDisk, random: Random, now_ms: int) -> None:
        super().__init__(disk, random, now_ms)
        self.admit()

    def turn(self) -> None:
        Rig.turn(self)
        self.write()
        self.context.pending_confirms("/").advance()


class Lives:
    """The stores of one disk, one after the other."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = MortalDisk(seed)

    def cut(self) -> None:
        """The end of a life: the power fails, or the process is killed."""
        if self.random.random() < 0.5:
            self.disk.power_cut()
        else:
            self.disk.kill()


class JournalLives(Lives):
    """Lives that are a journal, without a broker; a simulation says what happens in them."""

    segment_size = 16 << 10
    longest = 80  # Writes and syncs.

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.number = 0  # Of the last message.
        self.open()

    def open(self) -> None:
        """Begin a life: recover, from :meth:`new_journal`."""
        raise NotImplementedError

    def turn(self) -> None:
        """Something happens."""
        raise NotImplementedError

    def compare(self, synced: int) -> None:
        """Compare what is there with what was told; ``synced`` is what was durable."""
        raise NotImplementedError

    def new_journal(self) -> Journal:
        self.disk.fuse = FOREVER
        self.journal = journal_on(self.disk, self.segment_size)
        return self.journal

    def write(self) -> None:
        """Do as the event loop and the writer's thread do at the end of a turn."""
        self.journal.start_write()
        while self.journal.writer.jobs:
            self.journal.writer.step()
            self.journal.woken()

    def live(self) -> None:
        """Do something until the disk dies, and look what is left."""
        self.disk.fuse = self.random.randint(1, self.longest)
        try:
            while True:
                self.turn()
        except Dead:
            pass
        synced = self.journal.synced
        self.cut()
        self.open()
        self.compare(synced)


def journal_on(disk: FaultyDisk, segment_size: int = 8 << 10) -> Journal:
    return Journal("/journal", disk=disk, segment_size=segment_size, free_min=0, threaded=False)


def records_of(stream: Stream) -> list[tuple[int, bytes, int, int, int]]:
    """All that a reader could have of a stream, in order."""
    found: list[tuple[int, bytes, int, int, int]] = []
    at = stream.log.first_offset
    while batch := stream.log.read(at, 1 << 20):
        assert [record[0] for record in batch] == list(range(at, at + len(batch)))
        found += batch
        at += len(batch)
    return found
