# SPDX-License-Identifier: Apache-2.0
"""Kinds of queue on a disk that dies at any write or sync: what they promise holds after it.

From each seed: a queue that is published to and consumed from; after each death a comparison of
what comes back with what was told. HEADRACE_SEEDS=1000 tries that many more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from headrace.gateway.conversion.contents import Contents
from headrace.model.agenda import Agenda
from headrace.model.definitions import NoDefinitions, QueueRecord, Saved
from headrace.model.message import Message, new_message
from headrace.model.served import Consumer
from headrace.model.tally import Tally
from headrace.model.vhost import VirtualHost
from headrace.protocol.codec_0_x import BasicProperties, encode_content_header
from headrace.protocol.connection_0_x import framed
from headrace.spec.tables import V0_9_1
from headrace.store.journal import Journal
from headrace.testing.disk import FaultyDisk

if TYPE_CHECKING:
    from headrace.model.queue import Queue

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "2"))
READY, GONE = "ready", "gone"
MARK = b"\x00\xffnumber:"
KINDS: dict[str, dict[str, Any]] = {
    "last value": {"qpid.last_value_queue_key": "k"},
    "sorted": {"qpid.queue_sort_key": "k"},
    "shared groups": {"qpid.group_header_key": "k", "qpid.shared_msg_group": 1},
    "exclusive groups": {"qpid.group_header_key": "k"},
    "fair share": {"qpid.priorities": 4, "qpid.fairshare": 2},
    "later": {"holdOnPublishEnabled": True},
}


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


class Definitions(NoDefinitions):
    """Queues that survive."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[int, QueueRecord] = {}

    def load(self, vhost: str) -> Saved:
        return Saved([], list(self.queues.values()), [])

    def save_queue(self, vhost: str, record: QueueRecord) -> int:
        number = super().save_queue(vhost, record)
        self.queues[number] = record._replace(id=number)
        return number


class Run:
    """A virtual host on a disk, and what became of each message as far as anybody was told."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.random = Random(seed)
        self.disk = MortalDisk(seed)
        self.definitions = Definitions()
        self.now_ms = 1_000_000
        self.number = 0
        self.keys: dict[int, int] = {}
        self.told: dict[int, list[tuple[str, int]]] = {}  # States, and where each is durable.
        self.doing: dict[int, str] = {}  # What is under way, and told nobody.
        self.back = 0
        self.open()
        self.vhost.declare_queue("q", durable=True, arguments=KINDS[kind])

    @property
    def queue(self) -> Queue:
        return self.vhost.queues["q"]

    def open(self) -> None:
        self.disk.fuse = 1 << 60
        self.tally = Tally(now_ms=self.now_ms)
        self.agenda = Agenda()
        self.held: list[Message] = []
        self.journal = Journal(
            "/journal", disk=self.disk, segment_size=16 << 10, free_min=0, threaded=False
        )
        self.vhost = VirtualHost(
            "/",
            store=self.journal,
            tally=self.tally,
            definitions=self.definitions,
            agenda=self.agenda,
            contents=Contents(),
        )
        self.vhost.load()
        for _, message, arrived_ms in self.journal.recover():
            self.queue.restore(message, arrived_ms)
        self.tally.next_seq = self.journal.last_seq + 1

    def write(self) -> None:
        """What the event loop does at the end of a turn, and the writer's thread."""
        self.journal.kick()
        while self.journal.writer.jobs:
            self.journal.writer.step()
            self.journal.woken()

    def tell(self, number: int, state: str) -> None:
        self.told.setdefault(number, []).append((state, self.journal.appended))
        self.doing.pop(number, None)

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
            body = MARK + self.number.to_bytes(8, "big") + bytes(self.random.choice((0, 10, 900)))
            properties = BasicProperties(delivery_mode=2, headers=headers)
            header = encode_content_header(V0_9_1, 60, len(body), properties)
            data = b"\x00\x01q\x00\x00" + framed(2, 0, header) + framed(3, 0, body)
            message = new_message(data, 3, len(body))
            message.priority = key + 3 if self.kind == "fair share" else 0
            if self.kind == "last value":
                for number in self.alike(key):
                    self.doing[number] = GONE
            self.vhost.deliver(message, [self.queue], True)
            self.tell(self.number, READY)
            if self.kind == "last value":
                self.journal.flush_settled()
                for number in self.alike(key):
                    self.tell(number, GONE)

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
                self.tell(number, GONE)
            else:
                if newer:
                    self.doing[number] = GONE
                older = [n for n in self.alike(self.keys[number]) if n < number and n not in held]
                if self.kind == "last value" and not newer:
                    self.doing.update(dict.fromkeys(older, GONE))
                self.queue.requeue(message)
                self.journal.flush_settled()
                if newer:
                    self.tell(number, GONE)
                elif self.kind == "last value":
                    for other in older:
                        self.tell(other, GONE)
        self.queue.drain()

    def wait(self) -> None:
        self.now_ms += self.random.choice((1, 10))
        self.tally.now_ms = self.now_ms
        self.agenda.run(self.now_ms)

    def turn(self) -> None:
        deeds: list[Callable[[], None]] = [self.publish, self.consume, self.settle, self.wait]
        self.random.choice(deeds)()
        if self.random.random() < 0.7:
            self.journal.flush_settled()
            self.write()

    # --- Death ----------------------------------------------------------------------------------

    def live(self) -> None:
        self.disk.fuse = self.random.randint(1, 80)
        try:
            while True:
                self.turn()
        except Dead:
            pass
        synced = self.journal.synced
        if self.random.random() < 0.5:
            self.disk.power_cut()
        else:
            self.disk.kill()
        self.open()
        self.compare(synced)

    def compare(self, synced: int) -> None:
        if self.kind == "later":
            waiting = [number_of(message) for message in taken(self.queue)]
            assert all(self.keys[number] <= self.now_ms for number in waiting)
            self.now_ms += 50
            self.tally.now_ms = self.now_ms
            self.agenda.run(self.now_ms)
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
        for number, states in self.told.items():
            state = READY if number in found else GONE
            durable = [k for k, (_, at) in enumerate(states) if at <= synced]
            allowed = {said for said, _ in states[durable[-1] if durable else 0 :]}
            if not durable:
                allowed.add(GONE)  # It was never there.
            if number in self.doing:
                allowed.add(self.doing[number])
            if self.kind == "last value" and any(
                other > number and self.keys[other] == self.keys[number] for other in found
            ):
                allowed = {GONE}
            assert state in allowed, f"{number}: {state}, not {allowed}"
            self.told[number] = [(state, 0)]
        self.back += len(found)
        self.doing = {}


def taken(queue: Queue) -> list[Message]:
    """What is ready in a queue, in the order in which it leaves; it stays there."""
    found: list[Message] = []
    while (message := queue.take()) is not None:
        found.append(message)
        queue.unacked_count += 1
    for message in found:
        queue.release(message)
    return found


def number_of(message: Message) -> int:
    assert message.data is not None
    at = message.data.index(MARK) + len(MARK)
    return int.from_bytes(message.data[at : at + 8], "big")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_kind_of_queue_keeps_its_promises(kind: str, seed: int) -> None:
    run = Run(kind, seed)
    for _ in range(4):
        run.live()
    assert run.back
