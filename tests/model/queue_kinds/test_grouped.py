# SPDX-License-Identifier: Apache-2.0
"""Message groups: one consumer at a time, in order; a blocked group delays no other."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from headrace.model.queue.queue import Queue
from headrace.model.queue_kinds.grouped import GroupedQueue
from headrace.model.transaction.transaction import ACCEPT, Transaction
from support.brokers.queue_kind_host import Host, Taker, body_of, left

EXCLUSIVE = {"qpid.group_header_key": "g"}
SHARED: dict[str, Any] = {**EXCLUSIVE, "qpid.shared_msg_group": 1}


def fill(host: Host, queue: Queue, *bodies: str) -> None:
    """Publish messages of the groups that their first characters name; "-" is none."""
    for body in bodies:
        host.enqueue(queue, body, **({} if body[0] == "-" else {"g": body[0]}))


def test_a_shared_group_is_one_consumers_until_all_of_it_is_settled(host: Host) -> None:
    queue = host.queue(**SHARED)
    one, two = Taker(queue, room=1).start(), Taker(queue, room=1).start()
    fill(host, queue, "a1", "a2", "b1", "a3")
    assert (one.got, two.got) == (["a1"], ["b1"])
    two.settle("b1")
    assert two.got == ["b1"]  # All that is left is of a group that the other holds.
    one.room = -1
    one.settle("a1")
    host.turn()
    assert (one.got, two.got) == (["a1"], ["b1", "a2"])


@pytest.mark.parametrize("arguments", [EXCLUSIVE, SHARED], ids=["exclusive", "shared"])
def test_a_message_without_time_to_live_reaches_a_consumer_with_room(
    host: Host, arguments: dict[str, Any]
) -> None:
    queue = host.queue(**arguments)
    queue.message_ttl_ms = 0
    taker = Taker(queue, room=1).start()
    fill(host, queue, "a1", "a2", "b1")
    queue.expire(queue.counters.now_ms)
    assert taker.got == ["a1"]
    assert queue.ready_count == 0


def test_an_exclusive_group_stays_with_its_consumer_while_that_lives(host: Host) -> None:
    queue = host.queue(**EXCLUSIVE)
    one, two = Taker(queue, room=1).start(), Taker(queue, room=5).start()
    fill(host, queue, "a1", "b1", "-x", "a2", "b2")
    assert (one.got, two.got) == (["a1"], ["b1", "-x", "b2"])
    one.room = -1
    one.settle("a1")
    host.turn()
    assert two.got == ["b1", "-x", "b2"]
    queue.remove_consumer(one)
    host.turn()
    assert two.got == ["b1", "-x", "b2", "a2"]


def test_what_a_consumer_that_is_gone_holds_binds_its_group(host: Host) -> None:
    for arguments in (EXCLUSIVE, SHARED):
        queue = host.queue(str(arguments), **arguments)
        one = Taker(queue, room=1).start()
        fill(host, queue, "a1", "a2")
        queue.remove_consumer(one)
        two = Taker(queue).start()
        host.turn()
        assert two.got == []
        one.give_back("a1")
        host.turn()
        assert two.got == ["a1", "a2"]


def test_a_group_is_in_order_when_something_comes_back(host: Host) -> None:
    queue = host.queue(**SHARED)
    one = Taker(queue, room=2).start()
    fill(host, queue, "a1", "a2", "a3")
    one.room = -2
    one.give_back("a1")
    two = Taker(queue).start()
    assert two.got == []
    one.give_back("a2")
    host.turn()
    assert one.got + two.got == ["a1", "a2", "a1", "a2", "a3"]


def test_without_the_header_messages_are_one_group_only_where_groups_are_shared(
    host: Host,
) -> None:
    for arguments, count in ((SHARED, 1), (EXCLUSIVE, 2)):
        queue = host.queue(str(arguments), **arguments)
        one, two = Taker(queue, room=1).start(), Taker(queue, room=1).start()
        fill(host, queue, "-1", "-2")
        assert len(one.got) + len(two.got) == count
    queue = host.queue("named", **{**EXCLUSIVE, "qpid.default-message-group": "a"})
    one, two = Taker(queue, room=1).start(), Taker(queue, room=1).start()
    fill(host, queue, "-1", "a2")
    assert (one.got, two.got) == (["-1"], [])


def test_a_get_holds_its_group_until_it_is_settled(host: Host) -> None:
    for arguments in (EXCLUSIVE, SHARED):
        queue = host.queue(str(arguments), **arguments)
        fill(host, queue, "a1", "a2", "b1")
        getter = Taker(queue)
        first, second = queue.get(getter), queue.get(getter)
        assert first is not None
        assert second is not None
        assert (body_of(first), body_of(second)) == ("a1", "b1")
        assert queue.get(getter) is None
        assert queue.ready_count == 1
        queue.settle(first)
        third = queue.get(getter)
        assert third is not None
        assert body_of(third) == "a2"


def test_only_the_owner_of_a_group_acquires_of_it(host: Host) -> None:
    queue = host.queue(**SHARED)
    looker, other = Taker(queue, browses=True), Taker(queue)
    fill(host, queue, "a1", "a2")
    looker.start()
    first, second = looker.held
    assert queue.acquire(first, looker)
    assert not queue.acquire(second, other)
    assert queue.acquire(second, looker)
    queue.settle(first)
    queue.settle(second)
    assert (queue.ready_count, queue.unacked_count) == (0, 0)


def test_what_is_held_in_a_transaction_branch_binds_its_group(host: Host) -> None:
    queue = host.queue(**SHARED)
    one = Taker(queue, room=1).start()
    fill(host, queue, "a1", "a2")
    transaction = Transaction(host.vhost, owns_messages=True)
    transaction.settle(queue, one.held.pop(), ACCEPT)
    two = Taker(queue).start()
    assert two.got == []
    queue.remove_consumer(one)
    transaction.undo()
    host.turn()
    assert two.got == ["a1", "a2"]


def test_expired_dropped_and_purged_messages_leave_their_groups(host: Host) -> None:
    queue = host.queue(**{**SHARED, "x-message-ttl": 10, "x-max-length": 3})
    assert isinstance(queue, GroupedQueue)
    fill(host, queue, "a1", "a2", "b1", "b2")
    assert queue.ready_count == 3
    host.pass_time(11)
    assert queue.ready_count == 0
    fill(host, queue, "a3", "b3")
    assert queue.purge() == 2
    fill(host, queue, "b4", "a4")
    assert left(queue) == ["b4", "a4"]
    assert not queue.group_list.groups
    assert queue.ready_bytes == host.counters.memory_used == 0


def test_a_requeue_drops_messages_of_owned_groups_beyond_the_limit(host: Host) -> None:
    queue = host.queue(**{**SHARED, "x-max-length": 2})
    one = Taker(queue, room=2).start()
    fill(host, queue, "a1", "a2", "a3", "a4")
    assert (one.got, queue.ready_count) == (["a1", "a2"], 2)
    one.room = -1
    one.give_back("a2")  # Its group has an owner without room.
    host.turn()
    assert queue.ready_count == 2
    one.room = 2
    one.settle("a1")
    host.turn()
    assert one.got == ["a1", "a2", "a3", "a4"]


def test_a_purge_takes_what_is_of_blocked_groups_too(host: Host) -> None:
    queue = host.queue(**SHARED)
    one = Taker(queue, room=1).start()
    fill(host, queue, "a1", "a2", "b1")
    assert queue.purge() == 2
    one.settle("a1")
    assert isinstance(queue, GroupedQueue)
    assert not queue.group_list.groups


def test_only_so_many_empty_groups_are_remembered(host: Host) -> None:
    queue = host.queue(**EXCLUSIVE)
    assert isinstance(queue, GroupedQueue)
    Taker(queue, room=1 << 30, no_ack=True).start()
    for i in range(16_400):
        host.enqueue(queue, "x", g=i)
    assert len(queue.group_list.groups) == 16_384


@pytest.mark.parametrize("arguments", [EXCLUSIVE, SHARED], ids=["exclusive", "shared"])
def test_under_a_random_load_groups_are_never_split(host: Host, arguments: dict[str, Any]) -> None:
    random = Random(7)
    queue = host.queue(**arguments)
    takers = [Taker(queue, room=3).start() for _ in range(4)]
    done: list[str] = []
    sent: list[str] = []

    def settle(taker: Taker) -> None:
        body = body_of(random.choice(taker.held))
        done.append(body)
        taker.settle(body)

    def give_back(taker: Taker) -> None:
        taker.give_back(body_of(random.choice(taker.held)))

    def replace(taker: Taker) -> None:
        queue.remove_consumer(taker)
        for message in list(taker.held):
            queue.requeue(message)
        taker.held.clear()
        takers.remove(taker)
        takers.append(Taker(queue, room=3).start())

    deeds: list[Callable[[Taker], None]] = [settle] * 8 + [give_back] * 3 + [replace]  # type: ignore[assignment]
    for i in range(2500):
        if random.random() < 0.5 and len(sent) < 1000:
            sent.append(f"{random.choice('abcdefg')}{i}")
            fill(host, queue, sent[-1])
        busy = [taker for taker in takers if taker.held]
        if busy:
            random.choice(deeds)(random.choice(busy))
        host.turn()
        holders: dict[str, int] = {}
        for number, taker in enumerate(takers):
            for message in taker.held:
                group = body_of(message)[0]
                assert holders.setdefault(group, number) == number
        assert queue.unacked_count == sum(len(taker.held) for taker in takers)
    while any(taker.held for taker in takers):
        settle(next(taker for taker in takers if taker.held))
        host.turn()
    assert sorted(done) == sorted(sent)
    assert (queue.ready_count, queue.unacked_count, queue.ready_bytes) == (0, 0, 0)


def test_a_blocked_group_costs_the_others_nothing(host: Host) -> None:
    queue = host.queue(**SHARED)
    blocked = Taker(queue, room=1).start()
    fill(host, queue, *[f"a{i}" for i in range(5000)])
    free = Taker(queue, room=1).start()
    for i in range(2000):
        fill(host, queue, f"b{i}")
        assert free.got[-1] == f"b{i}"
        free.settle(f"b{i}")
    assert blocked.got == ["a0"]
