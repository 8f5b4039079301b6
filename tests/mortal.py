# SPDX-License-Identifier: Apache-2.0
"""A disk that takes the process down, and a broker on it: for tests of what a cut leaves behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from headrace.gateway.context import Context
from headrace.gateway.conversion.contents import Contents
from headrace.model.definitions import NoDefinitions, QueueRecord
from headrace.model.delivery_counts import restore
from headrace.model.tally import Tally
from headrace.model.vhost import VirtualHost
from headrace.store.journal import Journal
from headrace.testing.disk import FaultyDisk
from rig import Everybody, Rig, let_in

if TYPE_CHECKING:
    from headrace.model.message import Message
    from headrace.model.queue import Queue


class Dead(BaseException):
    """The process dies here."""


class MortalDisk(FaultyDisk):
    """A disk that takes the process down after so many writes and syncs."""

    fuse = 1 << 60

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

    def save_queue(self, vhost: str, queue: QueueRecord) -> int:
        return self.ids[queue.name]


class DurableRig(Rig):
    """A broker on a disk, without sockets."""

    ids: Mapping[str, int] = {}  # Of all queues that are ever made.

    def __init__(self, disk: FaultyDisk, random: Random, now_ms: int) -> None:
        self.random = random
        self.tally = Tally(now_ms=now_ms)
        self.store: Any = Journal(
            "/journal", disk=disk, segment_size=8 << 10, free_min=0, threaded=False
        )
        self.vhost = VirtualHost(
            "/",
            store=self.store,
            tally=self.tally,
            contents=Contents(),
            make_stream=self.make_stream,
            definitions=Ids(self.ids),
        )
        self.agenda = self.vhost.agenda
        by_id = self.declare()
        for queue_id, message, arrived_ms in self.store.recover():
            self.store.load(message)
            self.recovered(queue_id, message)
            restore(by_id[queue_id], message, arrived_ms)
        self.vhost.facts.restore()
        self.tally.next_seq = max(self.tally.next_seq, self.store.last_seq + 1)
        self.context = Context(
            access=Everybody(),
            vhosts={"/": self.vhost},
            stores={"/": self.store},
            tally=self.tally,
            authenticate=let_in,
        )
        self.number = 0

    def declare(self) -> dict[int, Queue]:
        """Declare the queues; return them by their ids."""
        raise NotImplementedError

    def recovered(self, queue_id: int, message: Message) -> None:
        """Take note of a message that is still there, in memory, before its queue has it."""

    def make_stream(self, name: str, **options: Any) -> Queue:
        """Make a queue of type stream."""
        raise NotImplementedError

    def turn(self) -> None:
        Rig.turn(self)
        while self.store.writer.jobs and self.random.random() < 0.8:
            self.store.writer.step()
            self.store.woken()
        self.context.line("/").advance()
