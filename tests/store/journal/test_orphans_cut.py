# SPDX-License-Identifier: Apache-2.0
"""A deleted queue with an alternate exchange over a journal that is torn anywhere.

Whatever is cut, each message is there once: in the queue, or on its way, or where it was to go; and
once all are there, they are in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.conversion.contents import Contents
from headrace.model.counters import LETTERS_MAX, Counters
from headrace.model.queue.destination import Consumer
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.store.catalog.definitions import JournalDefinitions
from headrace.store.journal.journal import Journal
from support.disks.crash_disk import MortalDisk
from support.disks.torn_journal import cuts, journal_of, torn
from support.stored_message import stored_message

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

COUNT = 3 * LETTERS_MAX
CUTS_MAX = 150


class Host:
    """A virtual host on a disk, from its start on."""

    def __init__(self, disk: MortalDisk) -> None:
        disk.fuse = 1 << 60
        self.journal = Journal("/journal", disk=disk, segment_size=256 << 10, free_min=0,
                               threaded=False, name="test")  # fmt: skip
        self.journal.read()
        self.counters = Counters(now_ms=1_700_000_000_000)
        self.vhost = VirtualHost(
            "/",
            store=self.journal,
            counters=self.counters,
            contents=Contents(),
            definitions=JournalDefinitions(self.journal),
        )
        self.vhost.load()
        queues = self.vhost.durable_queues()
        for queue_id, message, arrived_ms in self.journal.recover():
            queues[queue_id].restore(message, arrived_ms)
        self.counters.next_seq = max(self.counters.next_seq, self.journal.last_seq + 1)
        self.vhost.orphans.resume()

    def publish(self) -> None:
        for number in range(COUNT):
            message = stored_message(number.to_bytes(4, "big"), delivery_mode=2)
            self.vhost.deliver(message, [self.vhost.queues["q"]], True)

    def write(self) -> None:
        self.journal.start_write()
        while self.journal.writer.jobs:
            self.journal.writer.step()
            self.journal.woken()

    def go_on(self) -> None:
        self.counters.now_ms += 1
        self.vhost.scheduler.run(self.counters.now_ms)
        self.write()

    def finish(self) -> None:
        while len(self.vhost.orphans):
            self.go_on()


def numbers(queue: Queue) -> list[int]:
    """The numbers of what is ready in a queue, in order, each of which is taken."""
    found = []
    while (message := queue.get(Consumer(queue, "", False))) is not None:
        assert message.data is not None
        found.append(int.from_bytes(message.data[-5:-1], "big"))
        queue.settle(message)
    return found


def test_each_message_is_there_once_wherever_the_journal_ends() -> None:
    disk = MortalDisk(0)
    host = Host(disk)
    host.vhost.declare_queue("dead", durable=True)
    arguments = {"alternate-exchange": "amq.fanout"}
    host.vhost.declare_queue("q", durable=True, arguments=arguments)
    host.vhost.bind("amq.fanout", ("queue", "dead"))
    host.publish()
    host.write()
    before = journal_of(disk)
    assert host.vhost.delete_queue("q") == COUNT
    host.write()
    told = journal_of(disk)
    host.finish()
    assert host.vhost.queues["dead"].ready_count == COUNT
    after = journal_of(disk)
    answered = set(cuts(told, after))
    found = list(cuts(before, after))
    states = set()
    for segment, at in found[:: max(1, len(found) // CUTS_MAX)] + found[-4:]:
        again = Host(torn(disk, segment, at))
        dead = again.vhost.queues["dead"]
        passed = dead.ready_count
        if (segment, at) in answered:
            assert "q" not in again.vhost.queues
        states.add("q" if "q" in again.vhost.queues else f"ending {len(again.vhost.orphans)}")
        again.finish()
        left = numbers(again.vhost.queues["q"]) if "q" in again.vhost.queues else []
        assert passed % LETTERS_MAX == 0
        assert numbers(dead) + left == list(range(COUNT))
        assert not again.vhost.serves_as_alternate("amq.fanout") or left
    assert states == {"q", "ending 1", "ending 0"}


def test_what_is_on_its_way_is_as_its_queue_was() -> None:
    disk = MortalDisk(0)
    host = Host(disk)
    host.vhost.declare_queue("dead", durable=True)
    arguments = {"alternate-exchange": "amq.fanout", "x-queue-type": "quorum"}
    host.vhost.declare_queue("q", durable=True, arguments=arguments)
    host.vhost.bind("amq.fanout", ("queue", "dead"))
    host.publish()
    host.vhost.delete_queue("q")
    again_there = host.vhost.declare_queue("q", durable=True)
    host.write()
    disk.kill()
    again = Host(disk)
    (ending,) = again.vhost.orphans
    assert (ending.name, ending.ready_count) == ("q", COUNT - LETTERS_MAX)
    assert ending.arguments["x-queue-type"] == "quorum"
    assert again.vhost.queues["q"].id == again_there.id
    assert again.vhost.queues["q"].ready_count == 0
    again.finish()
    again.write()
    disk.kill()
    last = Host(disk)
    assert not len(last.vhost.orphans)
    assert numbers(last.vhost.queues["dead"]) == list(range(COUNT))
