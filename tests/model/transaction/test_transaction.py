# SPDX-License-Identifier: Apache-2.0
"""The work of a transaction, on the model alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.model.errors import ResourceError
from headrace.model.message import REDELIVERED
from headrace.model.transaction import transaction as transactions
from headrace.model.transaction.transaction import ACCEPT, DISCARD, REQUEUE, Transaction
from headrace.model.vhost.publishing_ids import PublishingIds
from support.brokers.small_host import SmallHost
from support.clients.manual_consumer import bodies, message, put, take

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue


@pytest.fixture
def host() -> SmallHost:
    return SmallHost("q", "other")


@pytest.fixture
def queue(host: SmallHost) -> Queue:
    return host.queues["q"]


def test_it_happens_at_the_commit(host: SmallHost, queue: Queue) -> None:
    put(host, queue, b"a", b"b", b"c")
    taken = [take(queue) for _ in range(3)]
    transaction = Transaction(host)
    other = host.queues["other"]
    transaction.publish(message(b"new"), (queue, other), True)
    for delivery, outcome in zip(taken, (ACCEPT, REQUEUE, DISCARD), strict=True):
        transaction.settle(queue, delivery, outcome)
    assert transaction
    assert (queue.ready_count, queue.unacked_count, other.ready_count) == (0, 3, 0)
    transaction.commit()
    assert not transaction
    assert queue.unacked_count == 0
    assert bodies(other) == [b"new"]
    assert bodies(queue) == [b"b", b"new"]
    assert host.counters.memory_used == 0


def test_a_commit_records_the_id_of_a_transient_message_in_memory_only(
    host: SmallHost, queue: Queue
) -> None:
    """A crash loses the message, so the fact must not outlive the crash."""
    queue.durable = True
    transaction = Transaction(host)
    for number, persistent in ((1, True), (2, False)):
        transaction.number((b"p", number))
        transaction.publish(message(b"numbered"), (queue,), persistent)
    transaction.commit()
    assert host.publishing_ids.highest(b"p") == 2
    assert PublishingIds(host.facts, host.counters).highest(b"p") == 1


def test_a_local_rollback_leaves_deliveries_with_their_client(
    host: SmallHost, queue: Queue
) -> None:
    put(host, queue, b"a")
    delivery = take(queue)
    transaction = Transaction(host)
    transaction.publish(message(b"never"), (queue,), False)
    transaction.settle(queue, delivery, ACCEPT)
    transaction.forget()
    assert (queue.ready_count, queue.unacked_count) == (0, 1)
    transaction.settle(queue, delivery, ACCEPT)
    transaction.commit()
    assert queue.unacked_count == 0
    assert host.counters.memory_used == 0


def test_what_a_branch_owns_returns_when_it_is_undone(host: SmallHost, queue: Queue) -> None:
    put(host, queue, b"a", b"b")
    first, second = take(queue), take(queue)
    session = first.consumer
    transaction = Transaction(host, owns_messages=True)
    transaction.publish(message(b"never"), (queue,), False)
    transaction.settle(queue, first, ACCEPT)
    transaction.settle(queue, second, DISCARD)
    assert first.consumer is not session
    transaction.undo()
    assert queue.unacked_count == 0
    assert first.flags & REDELIVERED
    assert bodies(queue) == [b"a", b"b"]


def test_what_is_added_to_dead_work_is_undone_at_once(host: SmallHost, queue: Queue) -> None:
    put(host, queue, b"a")
    delivery = take(queue)
    transaction = Transaction(host, owns_messages=True)
    transaction.is_ended = True
    transaction.publish(message(b"never"), (queue,), False)
    transaction.settle(queue, delivery, ACCEPT)
    assert not transaction
    assert bodies(queue) == [b"a"]


def test_a_queue_that_went_meanwhile_gets_nothing(host: SmallHost, queue: Queue) -> None:
    put(host, queue, b"a")
    transaction = Transaction(host, owns_messages=True)
    transaction.settle(queue, take(queue), ACCEPT)
    transaction.publish(message(b"b"), (queue,), True)
    queue.destroy()
    transaction.commit()
    assert host.counters.memory_used == 0


def test_a_transaction_is_bounded(
    host: SmallHost, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(host, queue, b"a")
    delivery = take(queue)
    transaction = Transaction(host)
    monkeypatch.setattr(transactions, "BYTES_MAX", 1000)
    transaction.publish(message(bytes(300)), (queue,), False)
    with pytest.raises(ResourceError, match="more than 1000 bytes"):
        transaction.publish(message(bytes(300)), (queue,), False)
    monkeypatch.setattr(transactions, "ITEMS_MAX", 1)
    with pytest.raises(ResourceError, match="more than 1 publishes and acks"):
        transaction.settle(queue, delivery, ACCEPT)


def test_a_full_disk_refuses_publishes_and_keeps_the_work(host: SmallHost, queue: Queue) -> None:
    transaction = Transaction(host)
    transaction.publish(message(b"a"), (queue,), True)
    host.store.full = True
    with pytest.raises(ResourceError, match="the disk is full"):
        transaction.commit()
    host.store.full = False
    transaction.commit()
    assert bodies(queue) == [b"a"]
