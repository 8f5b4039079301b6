# SPDX-License-Identifier: Apache-2.0
"""The work of a transaction, on the model alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from by_hand import bodies, message, put, take

from headrace.model.counters import Counters
from headrace.model.errors import ResourceError
from headrace.model.message import REDELIVERED
from headrace.model.ports import Store
from headrace.model.transaction import transaction as work_module
from headrace.model.transaction.transaction import ACCEPT, DISCARD, REQUEUE, Work
from headrace.model.vhost.virtual_host import VirtualHost

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue


@pytest.fixture
def vhost() -> VirtualHost:
    return VirtualHost("/", store=Store(), counters=Counters(now_ms=1_000_000))


@pytest.fixture
def queue(vhost: VirtualHost) -> Queue:
    return vhost.declare_queue("q")


def test_it_happens_at_the_commit(vhost: VirtualHost, queue: Queue) -> None:
    put(vhost, queue, b"a", b"b", b"c")
    taken = [take(queue) for _ in range(3)]
    work = Work(vhost)
    other = vhost.declare_queue("other")
    work.publish(message(b"new"), (queue, other), True)
    for delivery, outcome in zip(taken, (ACCEPT, REQUEUE, DISCARD), strict=True):
        work.settle(queue, delivery, outcome)
    assert work
    assert (queue.ready_count, queue.unacked_count, other.ready_count) == (0, 3, 0)
    work.commit()
    assert not work
    assert queue.unacked_count == 0
    assert bodies(other) == [b"new"]
    assert bodies(queue) == [b"b", b"new"]
    assert vhost.counters.memory_used == 0


def test_a_local_rollback_leaves_deliveries_with_their_client(
    vhost: VirtualHost, queue: Queue
) -> None:
    put(vhost, queue, b"a")
    delivery = take(queue)
    work = Work(vhost)
    work.publish(message(b"never"), (queue,), False)
    work.settle(queue, delivery, ACCEPT)
    work.forget()
    assert (queue.ready_count, queue.unacked_count) == (0, 1)
    work.settle(queue, delivery, ACCEPT)
    work.commit()
    assert queue.unacked_count == 0
    assert vhost.counters.memory_used == 0


def test_what_a_branch_owns_returns_when_it_is_undone(vhost: VirtualHost, queue: Queue) -> None:
    put(vhost, queue, b"a", b"b")
    first, second = take(queue), take(queue)
    session = first.consumer
    work = Work(vhost, owns=True)
    work.publish(message(b"never"), (queue,), False)
    work.settle(queue, first, ACCEPT)
    work.settle(queue, second, DISCARD)
    assert first.consumer is not session
    work.undo()
    assert queue.unacked_count == 0
    assert first.flags & REDELIVERED
    assert bodies(queue) == [b"a", b"b"]


def test_what_is_added_to_dead_work_is_undone_at_once(vhost: VirtualHost, queue: Queue) -> None:
    put(vhost, queue, b"a")
    delivery = take(queue)
    work = Work(vhost, owns=True)
    work.dead = True
    work.publish(message(b"never"), (queue,), False)
    work.settle(queue, delivery, ACCEPT)
    assert not work
    assert bodies(queue) == [b"a"]


def test_a_queue_that_went_meanwhile_gets_nothing(vhost: VirtualHost, queue: Queue) -> None:
    put(vhost, queue, b"a")
    work = Work(vhost, owns=True)
    work.settle(queue, take(queue), ACCEPT)
    work.publish(message(b"b"), (queue,), True)
    vhost.delete_queue("q")
    work.commit()
    assert vhost.counters.memory_used == 0


def test_a_transaction_is_bounded(
    vhost: VirtualHost, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(vhost, queue, b"a")
    delivery = take(queue)
    work = Work(vhost)
    monkeypatch.setattr(work_module, "OCTETS_MAX", 1000)
    work.publish(message(bytes(300)), (queue,), False)
    with pytest.raises(ResourceError, match="more than 1000 octets"):
        work.publish(message(bytes(300)), (queue,), False)
    monkeypatch.setattr(work_module, "ITEMS_MAX", 1)
    with pytest.raises(ResourceError, match="more than 1 publishes and acks"):
        work.settle(queue, delivery, ACCEPT)


def test_a_full_disk_refuses_publishes_and_keeps_the_work(vhost: VirtualHost, queue: Queue) -> None:
    work = Work(vhost)
    work.publish(message(b"a"), (queue,), True)
    vhost.store.full = True
    with pytest.raises(ResourceError, match="the disk is full"):
        work.commit()
    vhost.store.full = False
    work.commit()
    assert bodies(queue) == [b"a"]
