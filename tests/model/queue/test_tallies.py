# SPDX-License-Identifier: Apache-2.0
"""What a queue counts, and for how long its consumers had no room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.measures import SIZE_BUCKETS
from headrace.model.counters import Counters
from headrace.model.message import REDELIVERED
from headrace.model.tallies import ChannelTally, QueueTally, SizeHistogram
from support.brokers.queue_kind_host import Taker

if TYPE_CHECKING:
    from support.brokers.queue_kind_host import Host


def test_deliveries_are_counted_by_kind(host: Host) -> None:
    queue = host.queue()
    for body in ("a", "b", "c"):
        host.enqueue(queue, body)
    consumer = Taker(queue, room=1).start()
    assert (queue.tally.publish, queue.tally.deliver) == (3, 1)
    consumer.give_back("a")
    assert queue.tally.redeliver == 1
    consumer.settle("a")
    tally = queue.tally
    assert (tally.deliver, tally.redeliver, tally.ack) == (3, 1, 1)
    assert (tally.deliver_no_ack, tally.get, tally.get_no_ack, tally.get_empty) == (0, 0, 0, 0)
    assert tally.delivered() == 3


def test_a_deleted_queue_leaves_its_counts_to_its_virtual_host(host: Host) -> None:
    for name in ("one", "two"):
        queue = host.queue(name)
        host.enqueue(queue, "a")
        consumer = Taker(queue).start()
        host.vhost.delete_queue(name)
        consumer.settle("a")  # It counts still.
        assert queue.tally is host.vhost.queues_ended
    ended = host.vhost.queues_ended
    assert (ended.publish, ended.deliver, ended.ack) == (2, 2, 2)


def test_messages_that_no_consumer_has_room_for_wait(host: Host) -> None:
    queue = host.queue()
    consumer = Taker(queue, room=1).start()
    host.enqueue(queue, "a")
    host.counters.now_ms += 1000  # No message waits.
    host.enqueue(queue, "b")
    assert queue.round is not None
    assert queue.round.total_wait_ms() == 0
    host.counters.now_ms += 300
    assert queue.round.total_wait_ms() == 300
    consumer.settle("a")
    host.counters.now_ms += 500  # It has "b" now, and nothing waits.
    assert queue.round.total_wait_ms() == 300


@pytest.mark.parametrize("tally", [QueueTally(), ChannelTally()])
def test_tallies_are_added_count_by_count(tally: QueueTally | ChannelTally) -> None:
    kind = type(tally)
    one, other = kind(), kind()
    names = [name for name in dir(one) if isinstance(getattr(one, name), int)]
    names = [name for name in names if name != "ended" and not name.startswith("_")]
    for at, name in enumerate(names, 1):
        setattr(one, name, at)
        setattr(other, name, 1000 * at)
    one.add(other)  # type: ignore[arg-type]  # Both are of the same class.
    assert [getattr(one, name) for name in names] == [1001 * at for at in range(1, len(names) + 1)]
    assert sorted(one.values()) == sorted(getattr(one, name) for name in names)


@pytest.mark.parametrize(("place", "most"), list(enumerate(SIZE_BUCKETS)))
def test_a_body_falls_into_the_bucket_that_it_fits(place: int, most: int) -> None:
    counters = Counters()
    counters.count_publish(most)
    counters.count_publish(most + 1)
    counts = counters.sizes.counts(counters.published)
    assert counts[place : place + 2] == (1, 1)
    assert (sum(counts), counters.published_bytes) == (2, 2 * most + 1)
    assert SizeHistogram().counts(0) == (0,) * (len(SIZE_BUCKETS) + 1)


def test_a_message_that_comes_back_is_redelivered_once_for_each_time(host: Host) -> None:
    queue = host.queue()
    host.enqueue(queue, "a")
    consumer = Taker(queue, room=1)
    for times in range(1, 4):
        got = queue.get(consumer)
        assert got is not None
        assert bool(got.flags & REDELIVERED) == (times > 1)
        queue.requeue(got)
    assert (queue.tally.get, queue.tally.redeliver) == (3, 2)
    empty = host.queue("empty")
    assert empty.get(Taker(empty)) is None
    assert empty.tally.get_empty == 1
