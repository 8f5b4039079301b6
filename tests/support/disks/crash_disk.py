# SPDX-License-Identifier: Apache-2.0
"""A disk that ends the process after some writes, for tests of the data that survives a crash."""

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
    from headrace.model.stream.log import StreamRecord

FOREVER = 1 << 60


class Dead(BaseException):
    """The simulated process ends."""


class MortalDisk(FaultyDisk):
    """A disk that raises Dead after a number of writes and syncs."""

    fuse = FOREVER  # The remaining number of writes and syncs.

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
    """Definitions that give each queue a fixed id by its name."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        super().__init__()
        self.ids = ids

    def save_queue(self, queue: QueueRecord) -> int:
        return self.ids[queue.name]


class Life:
    """A virtual host from its start to its crash, on a disk that survives it."""

    ids: Mapping[str, int] = {}  # The ids of all queues, by name.
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
        """Handle a recovered message before it is added to its queue."""

    def data_of(self, message: Message) -> bytes:
        """Return the data of a message that is paged out."""
        self.store.load(message)
        data = message.data
        assert data is not None
        self.store.page_out(message)
        return data

    def make_stream(self, name: str, **options: Any) -> Queue:
        log = DiskStreamLog(f"/streams/{self.ids[name]}", self.store, segment_size=64 << 10)
        return Stream(name, log, **options)

    def write(self) -> None:
        """Run some of the writer's jobs."""
        while self.store.writer.jobs and self.random.random() < 0.8:
            self.store.writer.step()
            self.store.woken()

    def turn(self) -> None:
        """End an iteration of the event loop, and run some of the writer's jobs."""
        self.store.start_write()
        self.write()

    def sync(self) -> None:
        """Run the writer until all records are durable."""
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
    """Successive stores on a disk, each of which ends with a crash."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = MortalDisk(seed)

    def cut(self) -> None:
        """End a life by a power cut, or by killing the process."""
        if self.random.random() < 0.5:
            self.disk.power_cut()
        else:
            self.disk.kill()


class JournalLives(Lives):
    """Lives of a journal without a broker; subclasses implement their actions and checks."""

    segment_size = 16 << 10
    longest = 80  # The maximum of writes and syncs in a life.

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.number = 0  # The number of the last message.
        self.open()

    def open(self) -> None:
        """Begin a life: recover from the journal that :meth:`new_journal` returns."""
        raise NotImplementedError

    def turn(self) -> None:
        """Make a random action."""
        raise NotImplementedError

    def compare(self, synced: int) -> None:
        """Compare the recovered records with the history, which is durable up to ``synced``."""
        raise NotImplementedError

    def new_journal(self) -> Journal:
        self.disk.fuse = FOREVER
        self.journal = journal_on(self.disk, self.segment_size)
        return self.journal

    def write(self) -> None:
        """Write the records as event loop and writer thread do after an iteration."""
        self.journal.start_write()
        while self.journal.writer.jobs:
            self.journal.writer.step()
            self.journal.woken()

    def live(self) -> None:
        """Make actions until the disk ends the process; recover and compare the records."""
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


def records_of(stream: Stream) -> list[StreamRecord]:
    """Return all readable records of a stream, in order."""
    records: list[StreamRecord] = []
    offset = stream.log.first_offset
    while batch := stream.log.read(offset, 1 << 20):
        assert [record[0] for record in batch] == list(range(offset, offset + len(batch)))
        records += batch
        offset += len(batch)
    return records
