# SPDX-License-Identifier: Apache-2.0
"""Messages that are not ready before their time."""

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.model.errors import PreconditionFailed
from headrace.model.queue.not_before import TimedMessages
from headrace.model.queue.queue import Queue
from headrace.model.queue_kinds.inspecting import InspectingQueue
from support.brokers.queue_kind_host import Host, Taker, left

HOLD = "holdOnPublishEnabled"
WHEN = "x-qpid-not-valid-before"


def test_a_message_is_ready_at_its_time_in_its_place_and_others_pass(host: Host) -> None:
    queue = host.queue(**{HOLD: True})
    taker = Taker(queue).start()
    now = host.counters.now_ms
    host.enqueue(queue, "later", **{WHEN: now + 50})
    host.enqueue(queue, "sooner", **{WHEN: f"{now + 20}"})  # For want of wide numbers.
    host.enqueue(queue, "now", **{WHEN: now})
    host.enqueue(queue, "plain")
    host.enqueue(queue, "odd", **{WHEN: "soon"})
    assert taker.got == ["now", "plain", "odd"]
    host.pass_time(19)
    assert len(taker.got) == 3
    host.pass_time(1)
    assert taker.got[3:] == ["sooner"]
    host.pass_time(30)
    assert taker.got[4:] == ["later"]


def test_a_time_may_be_a_timestamp(host: Host) -> None:
    queue = host.queue(**{HOLD: True})
    moment = datetime.fromtimestamp(host.counters.now_ms // 1000 + 2, UTC)
    host.enqueue(queue, "1", **{WHEN: moment})
    host.pass_time(int(moment.timestamp() * 1000) - host.counters.now_ms - 1)
    assert left(queue) == []
    host.pass_time(1)
    assert left(queue) == ["1"]


def test_it_goes_to_its_place(host: Host) -> None:
    queue = host.queue(**{HOLD: True})
    host.enqueue(queue, "1")
    host.enqueue(queue, "2", **{WHEN: host.counters.now_ms + 10})
    host.enqueue(queue, "3")
    assert queue.ready_count == 2
    host.pass_time(10)
    assert left(queue) == ["1", "2", "3"]
    assert host.counters.memory_used == 0


def test_without_the_argument_the_header_means_nothing(host: Host) -> None:
    queue = host.queue()
    host.enqueue(queue, "1", **{WHEN: host.counters.now_ms + 10})
    assert left(queue) == ["1"]


@pytest.mark.parametrize(
    "kind",
    [
        {"qpid.queue_sort_key": "k"},
        {"qpid.group_header_key": "k", "qpid.shared_msg_group": 1},
        {"qpid.priorities": 10},
        {"qpid.priorities": 10, "qpid.fairshare": 2},
        {"x-max-priority": 5},
    ],
)
def test_every_kind_but_last_values_may_hold_messages_until_their_time(
    host: Host, kind: dict[str, Any]
) -> None:
    queue = host.queue(**{HOLD: True, **kind})
    host.enqueue(queue, "b", k="b")
    host.enqueue(queue, "a", k="a", **{WHEN: host.counters.now_ms + 10})
    assert queue.ready_count == 1
    host.pass_time(10)
    assert sorted(left(queue)) == ["a", "b"]


def test_a_message_that_waits_goes_with_a_purge_and_with_its_queue(host: Host) -> None:
    queue = host.queue(**{HOLD: True})
    host.enqueue(queue, "1", **{WHEN: host.counters.now_ms + 10})
    assert queue.purge() == 1
    host.enqueue(queue, "2", **{WHEN: host.counters.now_ms + 10})
    host.vhost.delete_queue("q")
    assert host.counters.memory_used == 0
    assert len(host.scheduler) == 0


def test_a_queue_with_a_message_that_waits_is_not_empty(host: Host) -> None:
    queue = host.queue(**{HOLD: True})
    host.enqueue(queue, "1", **{WHEN: host.counters.now_ms + 10})
    assert queue.message_count() == 0
    with pytest.raises(PreconditionFailed, match="not empty"):
        host.vhost.delete_queue("q", if_empty=True)
    queue.purge()
    host.vhost.delete_queue("q", if_empty=True)
    assert queue.deleted


def test_a_message_that_is_dead_by_its_time_is_a_dead_letter(host: Host) -> None:
    dead = host.queue("dead")
    queue = host.queue(
        **{
            HOLD: True,
            "x-message-ttl": 5,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        }
    )
    host.enqueue(queue, "1", **{WHEN: host.counters.now_ms + 10})
    host.pass_time(10)
    assert (queue.ready_count, dead.ready_count) == (0, 1)


def test_many_come_in_portions(host: Host) -> None:
    queue = host.queue(**{HOLD: True})
    assert isinstance(queue, InspectingQueue)
    for i in range(5000):
        host.enqueue(queue, str(i), **{WHEN: host.counters.now_ms + 10})
    host.pass_time(10)
    assert queue.ready_count == 4096
    host.pass_time(1)
    assert queue.ready_count == 5000


def test_the_earliest_is_first_and_far_is_never() -> None:
    later = TimedMessages()
    host = Host()
    assert later.next_ms == 0
    later.add(1 << 63, host.message("1"))
    later.add(5, host.message("2"))
    assert (later.next_ms, len(later)) == (5, 2)
    assert later.pop_due(4, 9) == []
    assert len(later.pop_due(5, 9)) == 1
    assert len(later.pop_all()) == 1
    assert type(host.queue()) is Queue
