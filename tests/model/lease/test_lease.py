# SPDX-License-Identifier: Apache-2.0
"""Leases in memory: what is taken, settled, rejected and given back, and by whom."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from headrace.gateway.conversion.contents import Contents
from headrace.model.counters import Counters
from headrace.model.errors import (
    IllegalState,
    InvalidArgument,
    NotFound,
    PreconditionFailed,
    ResourceError,
)
from headrace.model.lease.lease import Lease
from headrace.model.lease.log import LeaseLog
from headrace.model.lease.registry import SettleResult, TakeResult
from headrace.model.lease.rejects import BLOCK
from headrace.model.message import REDELIVERED, Message
from headrace.model.ports import Store
from headrace.model.queue.destination import Consumer
from headrace.model.scheduler import Scheduler
from headrace.model.stream.log import StreamLog
from headrace.model.stream.stream import Stream
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.protocol.codec_0_x import (
    BasicProperties,
    decode_content_header,
)
from headrace.spec.tables import V0_9_1
from headrace.wire.memory import get32
from support.stored_message import stored_message

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

T = TypeVar("T")
FINISHED = object()


def make_stream(name: str, **options: Any) -> Queue:
    if "x-lease-of" in options["arguments"]:
        return Lease(name, LeaseLog(), **options)
    return Stream(name, StreamLog(), **options)


def finish(steps: Generator[None, None, T], most: int = 10_000) -> T:
    for _ in range(most):
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
    raise AssertionError("it does not end")


def properties_of(data: bytes, address_len: int) -> BasicProperties:
    at = address_len + 2
    size = get32(data, at + 3)
    properties = decode_content_header(V0_9_1, data[at + 7 : at + 7 + size])[2]
    assert isinstance(properties, BasicProperties)
    return properties


class Host:
    """A virtual host in memory with one queue."""

    def __init__(self, **arguments: Any) -> None:
        self.counters = Counters(now_ms=1_000_000)
        self.scheduler = Scheduler()
        self.open: set[int] = {1, 2}
        self.vhost = VirtualHost(
            "/",
            store=Store(),
            counters=self.counters,
            scheduler=self.scheduler,
            contents=Contents(),
            make_stream=make_stream,
        )
        self.vhost.leases.ownerships.is_open = self.open.__contains__
        fields = {name.replace("_", "-"): value for name, value in arguments.items()}
        self.queue = self.vhost.declare_queue("q", durable=True, arguments=fields)
        self.dead = self.vhost.declare_queue("dead", durable=True)
        self.number = 0

    def publish(self, count: int = 1, *, priority: int = 0, ttl_ms: int = 0) -> None:
        for _ in range(count):
            message = stored_message(b"%d" % self.number)
            self.number += 1
            message.priority = priority
            message.deadline_ms = self.counters.now_ms + ttl_ms if ttl_ms else 0
            self.vhost.deliver(message, [self.queue], True)

    def claim(self, group: str = "g", owner: str = "o", connection: int = 1, **terms: Any) -> Lease:
        return self.vhost.leases.claim(self.queue, group, owner, connection, **terms)

    def take(self, lease: Lease, *args: int, **limits: int) -> TakeResult:
        return finish(self.vhost.leases.take(lease, *args, **limits))

    def settle(self, lease: Lease, upto: int, rejects: tuple[int, ...] = ()) -> SettleResult:
        return finish(self.vhost.leases.settle(lease, upto, rejects))

    def release(self, lease: Lease, *, forget: bool = False) -> int:
        return finish(self.vhost.leases.release(lease, forget=forget))

    def read(self, lease: Lease) -> list[int]:
        return [number_of(data) for _, data, *_ in lease.log.read(lease.settled, 1 << 30)]

    def rest(self, queue: Queue | None = None) -> list[int]:
        """Take what is in a queue off it."""
        queue = queue or self.queue
        bodies = []
        while (message := queue.get(Consumer(queue, "", True))) is not None:
            assert message.data is not None
            bodies.append(number_of(message.data))
            queue.remove(message)
        return bodies

    def pass_time(self, seconds: float) -> None:
        for _ in range(20):
            self.counters.now_ms += int(seconds * 50)
            while self.scheduler.next_ms and self.scheduler.next_ms <= self.counters.now_ms:
                self.scheduler.run(self.counters.now_ms)
                self.counters.now_ms += 1


def claimed(count: int) -> tuple[Host, Lease]:
    """A host with so many messages, and a lease of its queue."""
    host = Host()
    host.publish(count)
    return host, host.claim()


def number_of(data: bytes) -> int:
    at = 5
    at += 8 + get32(data, at + 3)
    return int(data[at + 7 : -1])


def test_a_lease_is_a_range_that_is_read_again_and_again() -> None:
    host, lease = claimed(10)
    assert lease.name == "amq.headrace.lease.q.g"
    taken = host.take(lease, messages=4)
    assert (taken.first, taken.last) == (0, 4)
    assert host.queue.ready_count == 6
    assert host.read(lease) == host.read(lease) == [0, 1, 2, 3]
    assert host.settle(lease, 2) == SettleResult(2, 4, 0)
    assert host.read(lease) == [2, 3]
    assert host.take(lease, 4, messages=100)[:2] == (4, 10)
    assert host.settle(lease, 10).settled == 10
    assert lease.count() == 0
    assert host.take(lease) == TakeResult(10, 10, 0)
    assert host.counters.memory_used == 0


def test_the_answer_to_a_take_that_was_lost_is_given_again() -> None:
    host, lease = claimed(10)
    first = host.take(lease, 0, messages=6)
    assert host.take(lease, 0, messages=6) == first
    assert host.queue.ready_count == 4
    assert host.take(lease, 2, messages=3)[:2] == (2, 5)
    assert host.take(lease, 0, bytes_max=1)[:2] == (0, 1)
    assert host.take(lease, 0, messages=6, bytes_max=first.size // 2)[:2] == (0, 3)
    with pytest.raises(PreconditionFailed, match="7 is not within the lease, 0 to 6"):
        host.take(lease, 7)
    host.settle(lease, 3)
    with pytest.raises(PreconditionFailed, match="2 is not within the lease, 3 to 6"):
        host.take(lease, 2)


def test_octets_limit_a_take_but_never_to_nothing() -> None:
    host, lease = claimed(10)
    smallest = host.take(lease, bytes_max=1)
    assert smallest.last == 1
    assert host.take(lease, bytes_max=3 * smallest.size)[:2] == (1, 4)
    assert host.take(lease, bytes_max=4 * smallest.size - 1)[:2] == (4, 7)
    assert host.rest() == [7, 8, 9]


def test_what_a_reader_rejects_in_advance_is_a_dead_letter_when_it_is_settled() -> None:
    host = Host(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    host.publish(12)
    lease = host.claim()
    host.take(lease, messages=10)
    rejects = host.vhost.leases.rejects
    for _ in range(2):  # A task that runs again says the same.
        rejects.set_verdict(lease, 0, 5, [1, 3])
    rejects.set_verdict(lease, 5, 10, [6, 9])
    assert rejects.ranges(lease, 0, 10) == [(1, 2), (3, 4), (6, 7), (9, 10)]
    assert rejects.count(lease) == 4
    assert letters(host) == []
    assert host.settle(lease, 5) == SettleResult(5, 10, 2)
    assert host.settle(lease, 5) == SettleResult(5, 10, 0)
    assert letters(host) == [1, 3]
    rejects.set_verdict(lease, 0, 10, [1, 7, 8])  # With other rules; what is settled stays so.
    assert rejects.ranges(lease, 5, 10) == [(7, 9)]
    assert rejects.count(lease) == 2
    assert host.settle(lease, 8, (6,)) == SettleResult(8, 10, 2)
    assert letters(host) == [6, 7]
    host.release(lease)  # What is given back was not rejected.
    assert rejects.count(lease) == 0
    assert sorted(host.rest()) == [8, 9, 10, 11]
    with pytest.raises(PreconditionFailed, match="11 is beyond the lease, which ends with 10"):
        rejects.set_verdict(lease, 8, 11, [])
    with pytest.raises(PreconditionFailed, match="not in the range from 8 to before 9"):
        rejects.set_verdict(lease, 8, 9, [9])
    host.release(lease, forget=True)
    assert list(host.vhost.facts.items(b"reject/")) == []


def test_many_numbers_are_rejected_in_advance() -> None:
    """More than one fact holds; what is settled of them is forgotten."""
    host = Host(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    count = BLOCK + 1000
    host.publish(count)
    lease = host.claim()
    host.take(lease)
    host.vhost.leases.rejects.set_verdict(lease, 0, count, range(10, count))
    assert host.vhost.leases.rejects.blocks(lease) == [0, 1]
    assert host.settle(lease, BLOCK - 10).rejected == BLOCK - 20
    assert host.vhost.leases.rejects.count(lease) == 1010
    assert host.settle(lease, count).rejected == 1010
    assert list(host.vhost.facts.items(b"reject/")) == []
    assert letters(host) == list(range(10, count))


def test_nothing_is_rejected_in_advance_that_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    host, lease = claimed(5)
    host.take(lease)
    rejects = host.vhost.leases.rejects
    rejects.set_verdict(lease, 0, 5, [])
    with pytest.raises(PreconditionFailed, match="queue 'q' has no dead-letter exchange"):
        rejects.set_verdict(lease, 0, 5, [1])
    host.queue.dead_letter_exchange = ""
    monkeypatch.setattr("headrace.model.lease.rejects.REJECTED_MAX", 2)
    rejects.set_verdict(lease, 0, 5, [1, 2])
    rejects.set_verdict(lease, 0, 5, [3, 4])
    with pytest.raises(
        ResourceError, match="at most 2 numbers of a lease may be rejected in advance"
    ):
        rejects.set_verdict(lease, 0, 3, [0])
    assert rejects.ranges(lease, 0, 5) == [(3, 5)]


def test_what_is_rejected_is_a_dead_letter_once() -> None:
    host = Host(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    host.publish(10)
    lease = host.claim()
    host.take(lease)
    assert host.settle(lease, 5, (1, 3)) == SettleResult(5, 10, 2)
    assert host.settle(lease, 5, (1, 3)) == SettleResult(5, 10, 0)
    assert host.settle(lease, 7, (1, 3, 6)) == SettleResult(7, 10, 1)
    message = host.dead.get(Consumer(host.dead, "", True))
    assert message is not None
    assert message.data is not None
    headers = properties_of(message.data, message.address_len).headers
    assert headers is not None
    assert headers["x-first-death-reason"] == "rejected"
    assert headers["x-first-death-queue"] == "q"
    assert [number_of_letter(message), *letters(host)] == [1, 3, 6]
    with pytest.raises(PreconditionFailed, match="9 is rejected, but not below 9"):
        host.settle(lease, 9, (9,))
    with pytest.raises(PreconditionFailed, match="11 is beyond the lease, which ends with 10"):
        host.settle(lease, 11)


def number_of_letter(message: Message) -> int:
    assert message.data is not None
    return int(message.data[message.data.rindex(b"\x00", 0, -2) + 2 : -1])


def letters(host: Host) -> list[int]:
    bodies = []
    while (message := host.dead.get(Consumer(host.dead, "", True))) is not None:
        bodies.append(number_of_letter(message))
        host.dead.remove(message)
    return bodies


def test_many_rejects_are_done_in_slices() -> None:
    host = Host(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    host.publish(1000)
    lease = host.claim()
    host.take(lease)
    steps = host.vhost.leases.settle(lease, 1000, range(0, 1000, 2))
    next(steps)
    done = host.dead.ready_count
    assert 0 < done < 500
    steps.close()  # The client is gone; it asks again.
    assert lease.settled == 2 * done - 1
    assert host.settle(lease, 1000, tuple(range(0, 1000, 2))).rejected == 500 - done
    assert letters(host) == list(range(0, 1000, 2))


def test_what_is_given_back_returns_to_its_place() -> None:
    host, lease = claimed(6)
    host.take(lease, messages=4)
    host.publish(2)
    host.settle(lease, 1)
    assert host.release(lease) == 3
    message = host.queue.get(Consumer(host.queue, "", True))
    assert message is not None
    assert message.flags & REDELIVERED
    host.queue.remove(message)
    assert host.rest() == [2, 3, 4, 5, 6, 7]
    assert lease.count() == 0
    assert host.counters.memory_used == 0
    host.publish(1)
    assert host.take(lease)[:2] == (4, 5)  # Numbers are never used again.


def test_priorities_are_those_of_the_queue() -> None:
    host = Host(x_max_priority=3)
    for priority in (0, 3, 1, 3):
        host.publish(1, priority=priority)
    lease = host.claim()
    host.take(lease, messages=3)
    assert host.read(lease) == [1, 3, 2]
    host.publish(1, priority=3)
    host.release(lease)
    assert host.rest() == [1, 3, 4, 2, 0]


def test_nothing_expires_while_it_is_leased() -> None:
    host = Host(x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    host.publish(2, ttl_ms=1000)
    host.publish(1, ttl_ms=50_000)
    lease = host.claim()
    host.take(lease)
    host.pass_time(10)
    assert host.read(lease) == [0, 1, 2]
    host.release(lease)
    assert host.rest() == [2]
    assert letters(host) == [0, 1]


def test_what_expired_is_not_taken() -> None:
    host = Host()
    host.publish(2, ttl_ms=1000)
    host.publish(1)
    lease = host.claim()
    host.counters.now_ms += 2000
    assert host.take(lease)[:2] == (0, 1)
    assert host.read(lease) == [2]


def test_the_length_limit_counts_what_is_ready() -> None:
    host = Host(x_max_length=3)
    host.publish(3)
    lease = host.claim()
    host.take(lease)
    host.publish(3)
    assert host.queue.ready_count == 3
    host.release(lease)
    assert host.rest() == [3, 4, 5]  # As what consumers give back: there is room for three.


def test_a_message_comes_back_as_often_as_the_queue_allows() -> None:
    host = Host(x_delivery_limit=2, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    host.publish(1)
    lease = host.claim()
    for _ in range(3):
        host.take(lease)
        host.release(lease)
    assert host.queue.ready_count == 0
    assert letters(host) == [0]


def test_a_redelivered_message_says_so_to_readers() -> None:
    host, lease = claimed(2)
    host.take(lease, messages=1)
    host.release(lease)
    host.take(lease)
    shown = lease.log.read(1, 1 << 20)
    assert [properties_of(data, 3).headers for _, data, *_ in shown] == [
        {"x-redelivered": True},
        None,
    ]
    host.release(lease)
    message = host.queue.get(Consumer(host.queue, "", True))
    assert message is not None
    assert message.data is not None
    assert properties_of(message.data, 3).headers is None  # The message itself is as it was.


def test_two_groups_take_different_messages() -> None:
    host = Host()
    host.publish(6)
    one, two = host.claim("one"), host.claim("two")
    host.take(one, messages=2)
    host.take(two, messages=2)
    host.take(one, messages=2)
    assert (host.read(one), host.read(two)) == ([0, 1, 4, 5], [2, 3])
    host.release(one)
    host.release(two)
    assert host.rest() == list(range(6))


def test_consumers_go_first() -> None:
    host = Host()

    class Greedy(Consumer):
        def has_room(self) -> bool:
            return True

    host.queue.add_consumer(Greedy(host.queue, "", True))
    host.publish(3)
    lease = host.claim()
    assert host.take(lease)[:2] == (0, 0)


def test_a_second_owner_is_refused_while_the_first_is_alive() -> None:
    host = Host()
    leases = host.vhost.leases
    lease = host.claim(owner="first", connection=1, timeout_s=10)
    with pytest.raises(IllegalState, match="'first', whose connection is open"):
        host.claim(owner="second", connection=2)
    host.pass_time(100)
    with pytest.raises(IllegalState, match="whose connection is open"):
        leases.own_lease(lease, "second", 2)
    host.open.discard(1)
    with pytest.raises(IllegalState, match=r"'first', for another \d+\.\d s"):
        leases.own_lease(lease, "second", 2)
    host.pass_time(10)
    leases.own_lease(lease, "second", 2)
    assert leases.ownerships.live_owner(lease) == "second"
    host.open.add(3)
    host.claim(owner="third", connection=3, force=True)
    with pytest.raises(IllegalState, match="'third'"):
        leases.own_lease(lease, "second", 2)
    leases.remove_owner(lease, "second")
    assert leases.ownerships.live_owner(lease) == "third"
    leases.remove_owner(lease, "third")
    leases.own_lease(lease, "second", 2)


def test_an_owner_that_reconnects_is_the_same_owner() -> None:
    host = Host()
    lease = host.claim(owner="o", connection=1, timeout_s=10)
    host.open.discard(1)
    host.pass_time(5)
    host.vhost.leases.own_lease(lease, "o", 2)
    host.pass_time(100)
    assert host.vhost.leases.ownerships.live_owner(lease) == "o"


@pytest.mark.parametrize("on_timeout", ["keep", "release"])
def test_what_becomes_of_a_lease_without_an_owner(on_timeout: str) -> None:
    host = Host()
    host.publish(3)
    lease = host.claim(timeout_s=10, on_timeout=on_timeout)
    host.take(lease)
    host.open.discard(1)
    host.pass_time(5)
    assert host.queue.ready_count == 0
    host.pass_time(20)
    assert host.vhost.leases.ownerships.live_owner(lease) == ""
    assert host.queue.ready_count == (3 if on_timeout == "release" else 0)


def test_deleting_the_queue_ends_its_leases() -> None:
    host, lease = claimed(3)
    host.take(lease)
    host.vhost.delete_queue("q")
    assert lease.deleted
    assert lease.name not in host.vhost.queues
    assert list(host.vhost.facts.items(b"lease/")) == []
    with pytest.raises(NotFound):
        host.take(lease)
    assert host.counters.memory_used == 0


def test_what_is_leased_from_a_deleted_queue_goes_to_its_alternate_exchange() -> None:
    host = Host(alternate_exchange="amq.fanout")
    host.vhost.bind("amq.fanout", ("queue", "dead"))
    host.publish(300)
    lease = host.claim()
    host.take(lease, messages=250)
    host.vhost.delete_queue("q")
    host.pass_time(1)
    assert sorted(host.rest(host.dead)) == list(range(300))
    assert lease.deleted


def test_a_lease_that_is_released_for_good_is_forgotten() -> None:
    host, lease = claimed(3)
    host.take(lease)
    assert host.release(lease, forget=True) == 3
    assert lease.deleted
    with pytest.raises(NotFound):
        host.vhost.leases.find(host.queue, "g")
    assert host.vhost.leases.ownerships.live_owner(lease) == "", "a list may still have the lease"
    again = host.claim()
    assert host.take(again)[:2] == (0, 3)
    assert again.id != lease.id


def test_a_queue_with_a_lease_is_in_use() -> None:
    host = Host(x_expires=1000)
    host.publish(3)
    lease = host.claim(timeout_s=2)
    host.take(lease)
    host.open.discard(1)
    host.pass_time(60)
    assert not host.queue.deleted
    host.settle(lease, 3)
    host.pass_time(60)
    assert host.queue.deleted


def test_purging_spares_what_is_leased() -> None:
    host, lease = claimed(4)
    host.take(lease, messages=2)
    assert host.queue.purge() == 2
    host.release(lease)
    assert host.rest() == [0, 1]


def test_what_cannot_be_leased() -> None:
    host = Host()
    stream = host.vhost.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    brief = host.vhost.declare_queue("brief")
    leases = host.vhost.leases
    for queue in (stream, brief, host.claim()):
        with pytest.raises(InvalidArgument):
            leases.claim(queue, "h", "o", 1)
    for bad in ("", "a\nb", "x" * 129):
        with pytest.raises(PreconditionFailed):
            leases.claim(host.queue, bad, "o", 1)


def test_an_exclusive_consumer_keeps_the_queue_for_itself() -> None:
    host, lease = claimed(1)
    consumer = Consumer(host.queue, "", False)
    consumer.exclusive = True
    host.queue.add_consumer(consumer)
    with pytest.raises(IllegalState, match="in exclusive use"):
        host.take(lease)
    host.queue.remove_consumer(consumer)
    assert host.take(lease).last == 1


def test_a_queue_with_a_single_active_consumer_has_one_group_at_a_time() -> None:
    host = Host(x_single_active_consumer=True)
    host.publish(4)
    one, two = host.claim("one"), host.claim("two")
    host.take(one, messages=2)
    with pytest.raises(IllegalState, match="single active consumer"):
        host.take(two)
    host.settle(one, 2)
    assert host.take(two)[:2] == (0, 2)


def test_a_lease_refuses_publishes() -> None:
    host = Host()
    lease = host.claim()
    assert host.vhost.route("", lease.name, dict).queues == ()
    with pytest.raises(Exception, match="the broker's own"):
        host.vhost.bind("amq.fanout", ("queue", lease.name))
    with pytest.raises(Exception, match="the broker's own"):
        host.vhost.delete_queue(lease.name)


def test_a_large_take_lets_others_go_on() -> None:
    host, lease = claimed(3500)
    steps = host.vhost.leases.take(lease)
    other = host.vhost.leases.take(lease, 0, messages=10)
    slices = 0
    while next(steps, FINISHED) is None:
        slices += 1
        assert next(other) is None  # It waits for the first to be done.
    assert slices >= 3
    assert finish(other)[:2] == (0, 10)
    assert host.queue.ready_count == 0


def test_work_on_a_lease_ends_with_it() -> None:
    host, lease = claimed(3000)
    taking = host.vhost.leases.take(lease)
    settling = host.vhost.leases.settle(lease, 3000, range(0, 3000, 2))
    releasing = host.vhost.leases.release(lease)
    assert next(taking) is None
    host.vhost.delete_queue("q")
    assert finish(taking).last == 1000
    with pytest.raises(NotFound):
        finish(settling)
    with pytest.raises(NotFound):
        finish(releasing)
