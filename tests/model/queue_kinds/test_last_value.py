# SPDX-License-Identifier: Apache-2.0
"""Queues that keep the last value of each key."""

from random import Random
from typing import Any

import pytest

from headrace.gateway.conversion.contents import Contents
from headrace.model.errors import InvalidArgument
from headrace.model.lease.lease import Lease
from headrace.model.lease.log import LeaseLog
from headrace.model.ports import Store
from headrace.model.queue.queue import Queue
from headrace.model.queue_kinds.last_value import LastValueQueue
from headrace.model.vhost.virtual_host import VirtualHost
from support.brokers.queue_kind_host import Host, Taker, body_of, left

KEY = "qpid.last_value_queue_key"


@pytest.fixture
def queue(host: Host) -> Queue:
    return host.queue(**{KEY: "k"})


def test_a_message_replaces_the_ready_one_of_its_key_and_goes_to_the_end(
    host: Host, queue: Queue
) -> None:
    host.enqueue(queue, "a1", k="a")
    host.enqueue(queue, "b1", k="b")
    host.enqueue(queue, "plain")
    host.enqueue(queue, "a2", k="a")
    host.enqueue(queue, "plain")
    assert queue.ready_count == 4
    assert left(queue) == ["b1", "plain", "a2", "plain"]
    assert queue.ready_count == queue.ready_bytes == host.counters.memory_used == 0


def test_what_a_consumer_holds_is_left_alone_and_goes_when_it_comes_back_too_late(
    host: Host, queue: Queue
) -> None:
    taker = Taker(queue, room=1).start()
    host.enqueue(queue, "a1", k="a")
    host.enqueue(queue, "a2", k="a")
    host.enqueue(queue, "a3", k="a")
    assert (taker.got, queue.ready_count, queue.unacked_count) == (["a1"], 1, 1)
    taker.give_back("a1")
    assert taker.got == ["a1", "a3"]
    assert queue.unacked_count == 1
    taker.give_back("a3")
    assert taker.got == ["a1", "a3", "a3"]
    assert (queue.ready_count, queue.unacked_count) == (0, 1)


def test_what_comes_back_when_the_newer_one_is_done_is_the_newest(host: Host, queue: Queue) -> None:
    taker = Taker(queue).start()
    host.enqueue(queue, "a1", k="a")
    host.enqueue(queue, "a2", k="a")
    taker.settle("a2")
    taker.room = 0
    taker.give_back("a1")
    assert taker.got == ["a1", "a2", "a1"]
    taker.room = 0
    host.enqueue(queue, "a3", k="a")
    taker.give_back("a1")
    assert taker.got[3:] == ["a3"]


def test_browsers_see_every_update_that_they_have_not_passed(host: Host, queue: Queue) -> None:
    looker = Taker(queue, browses=True).start()
    host.enqueue(queue, "a1", k="a")
    host.turn()
    host.enqueue(queue, "a2", k="a")
    host.enqueue(queue, "a3", k="a")
    host.turn()
    assert looker.got == ["a1", "a3"]
    assert Taker(queue, browses=True).start().got == ["a3"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(1, 1, True), (1, True, False), ("1", 1, False), (b"x", "x", True), ([1], [1], True)],
)
def test_keys_compare_as_values_of_the_wire_do(
    host: Host, queue: Queue, one: object, other: object, same: bool
) -> None:
    host.enqueue(queue, "1", k=one)
    host.enqueue(queue, "2", k=other)
    assert queue.ready_count == (1 if same else 2)


def test_the_legacy_names(host: Host) -> None:
    queue = host.queue(**{"qpid.last_value_queue": 1})
    assert isinstance(queue, LastValueQueue)
    host.enqueue(queue, "a1", **{"qpid.LVQ_key": "a"})
    host.enqueue(queue, "a2", **{"qpid.LVQ_key": "a"})
    assert left(queue) == ["a2"]
    assert type(host.queue("other", **{"qpid.last_value_queue": 0})) is Queue


def test_a_full_queue_takes_what_replaces_something(host: Host) -> None:
    queue = host.queue(**{KEY: "k", "x-max-length": 1, "x-overflow": "reject-publish"})
    assert host.enqueue(queue, "a1", k="a") == 0
    assert host.enqueue(queue, "b1", k="b") == 1
    assert host.enqueue(queue, "a2", k="a") == 0
    assert left(queue) == ["a2"]


def test_what_expired_or_was_purged_is_no_key_any_more(host: Host) -> None:
    queue = host.queue(**{KEY: "k", "x-message-ttl": 10})
    host.enqueue(queue, "a1", k="a")
    host.pass_time(11)
    assert queue.ready_count == 0
    host.enqueue(queue, "a2", k="a")
    queue.purge()
    host.enqueue(queue, "a3", k="a")
    assert left(queue) == ["a3"]
    assert isinstance(queue, LastValueQueue)
    assert not queue.alike
    assert not queue.keys


def test_what_a_lease_gives_back_too_late_is_gone(host: Host) -> None:
    vhost = VirtualHost(
        "/",
        store=Store(),
        counters=host.counters,
        contents=Contents(),
        make_stream=lambda name, **options: Lease(name, LeaseLog(), **options),
    )
    queue = vhost.declare_queue("q", durable=True, arguments={KEY: "k"})
    host.enqueue(queue, "a1", k="a")
    host.enqueue(queue, "b1", k="b")
    lease = vhost.leases.claim(queue, "g", "o", 0)
    for _ in vhost.leases.take(lease, lease.log.next_offset, messages=9, bytes_max=1 << 20):
        pass
    assert queue.ready_count == 0
    host.enqueue(queue, "a2", k="a")
    host.counters.memory_max = 0
    for _ in vhost.leases.release(lease):
        pass
    assert sorted(left(queue)) == ["a2", "b1"]


def test_many_updates_of_few_keys_leave_no_shells_behind(host: Host, queue: Queue) -> None:
    for i in range(6_000):
        host.enqueue(queue, str(i), k=i % 10)
    assert queue.ready_count == 10
    assert queue.ready.stale_count <= 1100
    assert left(queue) == [str(i) for i in range(5_990, 6_000)]


def test_against_a_model(host: Host, queue: Queue) -> None:
    random = Random(5)
    ready: dict[int, tuple[str, int]] = {}  # By place: body and key.
    held: dict[int, tuple[str, int]] = {}
    taker = Taker(queue, room=0).start()
    for i in range(3000):
        draw = random.random()
        if draw < 0.5:
            key = random.randrange(6)
            place = host.counters.next_seq
            host.enqueue(queue, str(i), k=key)
            ready = {at: r for at, r in ready.items() if r[1] != key}
            ready[place] = (str(i), key)
        elif draw < 0.7 and ready:
            taker.room = 1
            queue.unpark(taker)
            queue.drain()
            at = min(ready)
            assert body_of(taker.held[-1]) == ready[at][0]
            held[at] = ready.pop(at)
        elif held:
            at = random.choice(list(held))
            body, key = held.pop(at)
            if random.random() < 0.5:
                taker.settle(body)
            else:
                newer = any(a > at and r[1] == key for a, r in [*ready.items(), *held.items()])
                taker.give_back(body)
                if not newer:
                    ready = {a: r for a, r in ready.items() if r[1] != key}
                    ready[at] = (body, key)
            taker.room = 0
            while len(taker.held) > len(held):  # The room that it gained was used at once.
                at = min(ready)
                held[at] = ready.pop(at)
        assert queue.ready_count == len(ready)
        assert queue.unacked_count == len(held)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({KEY: "k", "qpid.queue_sort_key": "s"}, (KEY, "qpid.queue_sort_key")),
        ({KEY: "k", "x-max-priority": 5}, (KEY, "x-max-priority")),
        ({KEY: "k", "qpid.group_header_key": "g"}, (KEY, "qpid.group_header_key")),
        ({KEY: "k", "holdOnPublishEnabled": True}, (KEY, "holdOnPublishEnabled")),
        (
            {"qpid.group_header_key": "g", "qpid.queue_sort_key": "s"},
            ("qpid.group_header_key", "qpid.queue_sort_key"),
        ),
        (
            {"qpid.group_header_key": "g", "qpid.priorities": 3},
            ("qpid.group_header_key", "qpid.priorities"),
        ),
        ({"qpid.priorities": 3, "x-max-priority": 5}, ("qpid.priorities", "x-max-priority")),
        ({"qpid.fairshare": 3}, ("qpid.fairshare", "qpid.priorities")),
        ({"qpid.shared_msg_group": 1}, ("qpid.shared_msg_group", "qpid.group_header_key")),
        ({KEY: "k", "x-queue-type": "stream"}, (KEY, "stream")),
        ({KEY: "k", "x-message-deduplication": True}, (KEY, "x-message-deduplication")),
        ({KEY: ""}, (KEY,)),
        ({KEY: 5}, (KEY,)),
        ({"qpid.priorities": 11}, ("qpid.priorities",)),
        ({"qpid.priorities": "many"}, ("qpid.priorities",)),
    ],
)
def test_contradictions_and_bad_values_name_the_arguments(
    host: Host, arguments: dict[str, Any], named: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        host.vhost.declare_queue("bad", arguments=arguments)
    assert all(name in refused.value.text for name in named)
    assert "bad" not in host.vhost.queues
