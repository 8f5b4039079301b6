# SPDX-License-Identifier: Apache-2.0
"""Reads from disk of paged-out messages: the wanted ones, and few others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.gateway.conversion.headers import BasicContents
from headrace.model.counters import Counters
from headrace.model.message import PAGED, Message, new_message
from headrace.model.queue.destination import Consumer
from headrace.model.queue.overflow import Overflow
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.store.journal.journal import Journal
from headrace.testing.disk import FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.model.queue.queue import Queue


QUEUES, MESSAGES, BODY = 12, 40, 10_000  # Octets.
HELD = MESSAGES * BODY
DUE_MS = 60_000


class CountingDisk(FaultyDisk):
    """Says how much was read of it."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.octets = 0

    def read(self, handle: int, size: int, at: int) -> bytes:
        found = super().read(handle, size, at)
        self.reads += 1
        self.octets += len(found)
        return found


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk()


@pytest.fixture
def vhost(disk: CountingDisk) -> VirtualHost:
    journal = Journal(
        "/journal", disk=disk, threaded=False, name="test", free_min=0, segment_size=64 << 20
    )
    assert list(journal.recover()) == []
    counters = Counters(now_ms=1_000)
    counters.memory_max = 0
    return VirtualHost("/", store=journal, counters=counters, contents=BasicContents())  # type: ignore[arg-type]


def filled(
    vhost: VirtualHost, *, durable: bool = False, **arguments: Any
) -> tuple[list[Queue], CountingDisk]:
    """Queues whose messages lie between those of the others on the disk."""
    disk = vhost.store.disk  # type: ignore[attr-defined]
    queues = [
        vhost.declare_queue(f"q{i}", durable=durable, arguments=arguments) for i in range(QUEUES)
    ]
    for number in range(MESSAGES):
        for queue in queues:
            body = number.to_bytes(2, "big") * (BODY // 2)
            vhost.deliver(new_message(b"\x00\x01q\x00\x00" + body, 3, BODY), [queue], durable)
    assert all(message.flags & PAGED for queue in queues for message in ready(queue))
    if durable:
        settled(vhost)
    disk.reads = disk.octets = 0
    return queues, disk


def settled(vhost: VirtualHost) -> None:
    """The journal has written all that it was told."""
    journal = vhost.store
    journal.start_write()
    while journal.synced < journal.appended:
        journal.start_write()
        assert journal.writer.step()  # type: ignore[attr-defined]
        journal.woken()


def in_scratch(vhost: VirtualHost) -> int:
    return sum(vhost.store.scratch.live.values())  # type: ignore[attr-defined]


def ready(queue: Queue) -> list[Message]:
    return queue.ready.peek(0, queue.counters.next_seq, 1 << 60, [])


def expire(vhost: VirtualHost, queue: Queue) -> None:
    vhost.counters.now_ms += DUE_MS + 1
    while queue.expire(vhost.counters.now_ms):
        vhost.counters.now_ms += 1


def shorten(vhost: VirtualHost, queue: Queue) -> None:
    queue.limits = Overflow(0)
    queue.drain()


def reject(vhost: VirtualHost, queue: Queue) -> None:
    for message in ready(queue):
        queue.acquire_quietly(message, Consumer(queue, "", False))
        queue.discard(message)


FORGETTING: dict[str, Callable[[VirtualHost, Queue], object]] = {
    "delete": lambda vhost, queue: vhost.delete_queue(queue.name),
    "purge": lambda vhost, queue: queue.purge(),
    "expire": expire,
    "maxlen": shorten,
    "reject": reject,
}


@pytest.mark.parametrize("how", FORGETTING)
@pytest.mark.parametrize(
    ("durable", "letters"),
    [(True, ""), (False, ""), (False, "alternate-exchange"), (False, "x-dead-letter-exchange")],
)
def test_forgetting_reads_nothing(
    vhost: VirtualHost, how: str, durable: bool, letters: str
) -> None:
    arguments = {letters: "nowhere"} if letters else {}
    queues, disk = filled(vhost, durable=durable, **arguments, **{"x-message-ttl": DUE_MS})
    for queue in queues:
        FORGETTING[how](vhost, queue)
        assert queue.ready_count == 0
    while due_ms := vhost.scheduler.next_ms:  # Some of the deaths were put off for a moment.
        vhost.counters.now_ms = due_ms
        vhost.scheduler.run(due_ms)
    assert disk.octets == 0
    assert in_scratch(vhost) == 0
    assert vhost.counters.memory_used == 0


def consume(queue: Queue) -> bytes:
    """Take the first message, and settle it."""
    message = queue.get(Consumer(queue, "", False))
    assert message is not None
    data = message.data
    assert data is not None
    queue.settle(message)
    return data[5:]


@pytest.mark.parametrize("durable", [False, True], ids=("transient", "persistent"))
def test_one_queue_among_many_reads_little_more_than_its_own(
    vhost: VirtualHost, durable: bool
) -> None:
    queues, disk = filled(vhost, durable=durable)
    for number in range(MESSAGES):
        assert consume(queues[7]) == number.to_bytes(2, "big") * (BODY // 2)
    assert disk.octets < 1.2 * HELD


@pytest.mark.parametrize("durable", [False, True], ids=("transient", "persistent"))
def test_all_queues_together_read_ahead_and_nothing_twice(
    vhost: VirtualHost, durable: bool
) -> None:
    queues, disk = filled(vhost, durable=durable)
    for number in range(MESSAGES):
        for queue in queues:
            assert consume(queue) == number.to_bytes(2, "big") * (BODY // 2)
    assert disk.octets < 1.2 * QUEUES * HELD
    assert disk.reads < QUEUES * MESSAGES / 10


@pytest.mark.parametrize("durable", [False, True], ids=("transient", "persistent"))
@pytest.mark.parametrize("of", [2, 3, 6, 11])
def test_no_reader_reads_much_more_than_it_wants(
    vhost: VirtualHost, durable: bool, of: int
) -> None:
    queues, disk = filled(vhost, durable=durable)
    for number in range(MESSAGES):
        for queue in queues[::of]:
            assert consume(queue) == number.to_bytes(2, "big") * (BODY // 2)
    assert disk.octets < 4.5 * len(queues[::of]) * HELD


def test_a_large_body_in_the_scratch_file_gives_all_its_room_back(vhost: VirtualHost) -> None:
    scratch = vhost.store.scratch  # type: ignore[attr-defined]
    scratch.chunk = 10_000
    queue = vhost.declare_queue("q")
    for size in (95_000, 3_000, 25_000, 9_000):
        body = b"p" * size
        message = new_message(b"\x00\x01q\x00\x00", 3, size)
        message.parts = (body,)
        message.flags = 32  # LARGE.
        vhost.deliver(message, [queue], False)
    assert all(message.flags & PAGED for message in ready(queue))
    queue.purge()
    assert not scratch.live
    assert not scratch.chunk_counts
