# SPDX-License-Identifier: Apache-2.0
"""File and stream content in one queue with messages: independent and bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.model.counters import Counters
from headrace.model.errors import NotImplementedHere
from headrace.model.message import (
    KIND_BASIC,
    KIND_FILE,
    KIND_STREAM,
    KIND_TRANSFER,
    REDELIVERED,
    Message,
    new_message,
)
from headrace.model.ports import Files, Store
from headrace.model.queue_kinds.content_lanes import (
    FILE_DELIVERIES,
    FileQueue,
    PacketQueue,
    apply_to_lanes,
    get_lane,
)
from headrace.model.vhost.virtual_host import VirtualHost
from support.clients.manual_consumer import Taker

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue


class Bodies(Files):
    """Counts the references to each body; those in ``lost`` are not there."""

    def __init__(self) -> None:
        self.held: dict[bytes, int] = {}
        self.lost: set[bytes] = set()

    def add_reference(self, data: bytes) -> bool:
        self.held[data] = self.held.get(data, 0) + 1
        return data not in self.lost

    def remove_reference(self, data: bytes) -> None:
        self.held[data] -= 1


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


@pytest.fixture
def vhost(bodies: Bodies) -> VirtualHost:
    return VirtualHost("/", store=Store(), counters=Counters(now_ms=1_000_000), files=bodies)


def enqueue(
    queue: Queue, kind: int, data: bytes, *, priority: int = 0, size: int = 10, deadline_ms: int = 0
) -> Message:
    message = new_message(data, 0, size)
    message.seq = queue.counters.next_seq
    queue.counters.next_seq += 1
    message.flags = kind
    message.priority = priority
    message.deadline_ms = deadline_ms
    assert get_lane(queue, kind).enqueue(message) == 0
    return message


def attach(queue: Queue, kind: int, *, room: int = 1000, no_ack: bool = True) -> Taker:
    lane = get_lane(queue, kind)
    taker = Taker(lane, room, no_ack=no_ack)
    lane.add_consumer(taker)
    lane.drain()
    return taker


def test_each_class_of_consumer_gets_its_own_in_order(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q")
    assert get_lane(queue, KIND_BASIC) is queue
    assert get_lane(queue, KIND_TRANSFER) is queue
    assert queue.lanes is None
    for n in range(3):
        for kind in (KIND_BASIC, KIND_FILE, KIND_STREAM):
            enqueue(queue, kind, bytes((kind, n)))
    assert queue.message_count() == 9
    for kind in (KIND_STREAM, KIND_BASIC, KIND_FILE):
        taker = attach(queue, kind)
        assert taker.bodies == [bytes((kind, n)) for n in range(3)]
        enqueue(queue, kind, b"late")
        assert taker.bodies[3] == b"late"
    assert (queue.message_count(), queue.consumer_count()) == (0, 3)


def test_purge_and_delete_cover_all_classes(vhost: VirtualHost, bodies: Bodies) -> None:
    queue = vhost.declare_queue("q")
    for kind in (KIND_BASIC, KIND_FILE, KIND_STREAM):
        enqueue(queue, kind, b"x")
    assert queue.purge() == 3
    assert queue.message_count() == 0
    assert bodies.held == {b"x": 0}
    enqueue(queue, KIND_FILE, b"y")
    held = attach(queue, KIND_FILE, no_ack=False)
    enqueue(queue, KIND_FILE, b"z")
    assert len(held.taken) == 2
    assert vhost.delete_queue("q") == 0
    assert held.queue.deleted
    held.queue.requeue(held.taken[0])
    assert bodies.held == {b"x": 0, b"y": 0, b"z": 1}


def test_a_queue_with_a_file_is_not_empty_and_its_consumer_keeps_it_in_use(
    vhost: VirtualHost,
) -> None:
    queue = vhost.declare_queue("q")
    enqueue(queue, KIND_FILE, b"x")
    with pytest.raises(Exception, match="not empty"):
        vhost.delete_queue("q", if_empty=True)
    attach(queue, KIND_FILE)
    with pytest.raises(Exception, match="in use"):
        vhost.delete_queue("q", if_unused=True)


def test_an_exclusive_consumer_has_the_whole_queue(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q")
    lane = get_lane(queue, KIND_FILE)
    taker = Taker(lane, no_ack=True)
    taker.exclusive = True
    lane.add_consumer(taker)
    assert queue.exclusive_consumer is taker
    lane.remove_consumer(taker)
    assert queue.exclusive_consumer is None


def test_the_body_of_a_file_is_no_memory(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q")
    enqueue(queue, KIND_FILE, b"x", size=3 << 30)
    assert vhost.counters.memory_used < 1000
    lane = get_lane(queue, KIND_FILE)
    assert lane.ready_bytes == 3 << 30
    attach(queue, KIND_FILE)
    assert vhost.counters.memory_used == 0


@pytest.mark.rule("0-9/file#02", "0-10/s203")
@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish", "reject-publish-dlx"])
def test_no_file_is_dropped_for_want_of_room(vhost: VirtualHost, overflow: str) -> None:
    queue = vhost.declare_queue("q", arguments={"x-max-length": 2, "x-overflow": overflow})
    lane = get_lane(queue, KIND_FILE)
    assert isinstance(lane, FileQueue)
    for n in range(5):
        assert lane.is_full() == (n >= 2)
        enqueue(queue, KIND_FILE, bytes((n,)))
    assert lane.ready_count == 5
    vhost.counters.memory_max = 1
    enqueue(queue, KIND_FILE, b"\x05")
    woken: list[int] = []

    class Publisher:
        def resume_publishing(self) -> None:
            woken.append(lane.ready_count)

    lane.add_waiter(Publisher())
    taker = attach(queue, KIND_FILE, room=3)
    assert taker.bodies == [b"\x00", b"\x01", b"\x02"]
    assert woken == []
    taker.room = 10
    lane.unpark(taker)
    assert (woken, lane.waiters) == ([0], None)


@pytest.mark.rule("0-9/stream#01", "0-9/stream.qos.consume-rate#01", "0-10/s234", "0-10/s238")
@pytest.mark.rule("0-10/s239")
def test_packets_of_low_priority_give_way_first(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q", arguments={"x-max-length": 4})
    for n, priority in enumerate((5, 0, 9, 0, 4, 5, 9)):
        enqueue(queue, KIND_STREAM, bytes((n,)), priority=priority)
    lane = get_lane(queue, KIND_STREAM)
    assert isinstance(lane, PacketQueue)
    assert lane.discarded == 3
    assert attach(queue, KIND_STREAM).bodies == [b"\x02", b"\x06", b"\x00", b"\x05"]


@pytest.mark.rule("0-9/stream#01", "0-10/s234")
def test_packets_of_low_priority_give_way_first_to_a_lower_limit(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q", arguments={"x-max-length": 10})
    for n, priority in enumerate((5, 0, 9, 0, 4, 5, 9)):
        enqueue(queue, KIND_STREAM, bytes((n,)), priority=priority)
    lane = get_lane(queue, KIND_STREAM)
    assert isinstance(lane, PacketQueue)
    apply_to_lanes(queue, {"x-max-length": 4})
    lane.drain()
    assert lane.discarded == 3
    assert attach(queue, KIND_STREAM).bodies == [b"\x02", b"\x06", b"\x00", b"\x05"]


def test_packets_are_bounded_in_octets_and_give_way_when_memory_is_short(
    vhost: VirtualHost,
) -> None:
    queue = vhost.declare_queue("q", arguments={"x-max-length-bytes": 1000})
    for n in range(30):
        enqueue(queue, KIND_STREAM, bytes((n,)), size=100, priority=n % 3)
    lane = get_lane(queue, KIND_STREAM)
    assert lane.ready_bytes == 1000
    free = vhost.declare_queue("free")
    vhost.counters.memory_max = 400_000
    for _ in range(2000):
        enqueue(free, KIND_STREAM, b"x", size=1000)
    assert get_lane(free, KIND_STREAM).ready_count < 1000
    assert vhost.counters.memory_used <= 460_000
    other = vhost.declare_queue("other")
    vhost.counters.memory_max = 1 << 30
    for _ in range(20):
        enqueue(other, KIND_STREAM, b"x", size=1 << 20)
    assert get_lane(other, KIND_STREAM).ready_bytes == 16 << 20


@pytest.mark.rule("0-9/file#03", "0-9/stream#02", "0-10/s205", "0-10/s206", "0-10/s235")
@pytest.mark.rule("0-10/s236")
@pytest.mark.parametrize("kind", [KIND_FILE, KIND_STREAM])
def test_high_priorities_overtake_low_ones(vhost: VirtualHost, kind: int) -> None:
    queue = vhost.declare_queue("q")
    for n, priority in enumerate((4, 5, 4, 5)):
        enqueue(queue, kind, bytes((n,)), priority=priority)
    assert attach(queue, kind).bodies == [b"\x01", b"\x03", b"\x00", b"\x02"]
    ten = vhost.declare_queue("ten", arguments={"x-max-priority": 9})
    for priority in range(10):
        enqueue(ten, kind, bytes((priority,)), priority=priority)
    assert attach(ten, kind).bodies == [bytes((n,)) for n in reversed(range(10))]


@pytest.mark.parametrize("kind", [KIND_FILE, KIND_STREAM])
def test_the_life_of_a_queue_bounds_what_is_in_its_lanes(vhost: VirtualHost, kind: int) -> None:
    queue = vhost.declare_queue("q", arguments={"x-message-ttl": 100})
    enqueue(queue, kind, b"a")
    enqueue(queue, kind, b"b", deadline_ms=1_000_050)
    assert vhost.scheduler.next_ms == 1_000_050
    vhost.counters.now_ms = 1_000_060
    vhost.scheduler.run(1_000_060)
    assert queue.message_count() == 1
    vhost.scheduler.run(1_000_100)
    assert queue.message_count() == 0
    enqueue(queue, kind, b"c", deadline_ms=1_000_150)
    vhost.delete_queue("q")
    assert len(vhost.scheduler) == 0


@pytest.mark.rule("0-9/file.deliver#01", "0-10/s224")
def test_a_file_that_keeps_coming_back_is_a_dead_letter(vhost: VirtualHost) -> None:
    plain = vhost.declare_queue("plain")
    assert get_lane(plain, KIND_FILE).delivery_limit == -1
    limited = vhost.declare_queue("limited", arguments={"x-delivery-limit": 2})
    assert get_lane(limited, KIND_FILE).delivery_limit == 2
    queue = vhost.declare_queue("q", arguments={"x-dead-letter-exchange": "amq.fanout"})
    enqueue(queue, KIND_FILE, b"x")
    taker = attach(queue, KIND_FILE, no_ack=False)
    for n in range(FILE_DELIVERIES):
        assert len(taker.taken) == n + 1
        assert bool(taker.taken[n].flags & REDELIVERED) == (n > 0)
        taker.queue.requeue(taker.taken[n])
        taker.queue.drain()
    taker.queue.requeue(taker.taken[-1])
    taker.queue.drain()
    assert len(taker.taken) == FILE_DELIVERIES + 1
    assert queue.message_count() == 0


def test_a_recovered_file_without_its_body_is_left_out(
    vhost: VirtualHost, bodies: Bodies, caplog: pytest.LogCaptureFixture
) -> None:
    queue = vhost.declare_queue("q")
    bodies.lost.add(b"gone")
    for data in (b"here", b"gone"):
        message = new_message(data, 0, 5)
        message.flags = KIND_FILE
        message.seq = 7
        get_lane(queue, KIND_FILE).restore(message, 0)
    assert queue.message_count() == 1
    assert "the body of file 7 is lost" in caplog.text


def test_marks_of_a_stop_in_peace_cover_lanes(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q")
    enqueue(queue, KIND_FILE, b"x")
    taker = attach(queue, KIND_FILE, no_ack=False, room=1)
    taker.queue.requeue(taker.taken[0])
    assert queue.redelivered_seqs() == [taker.taken[0].seq]


def test_a_queue_of_type_stream_keeps_messages_only(vhost: VirtualHost) -> None:
    queue = vhost.declare_queue("q")
    queue.is_stream = True
    with pytest.raises(NotImplementedHere, match="keeps messages only"):
        get_lane(queue, KIND_FILE)
