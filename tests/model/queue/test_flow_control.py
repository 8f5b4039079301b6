# SPDX-License-Identifier: Apache-2.0
"""Thresholds of a queue: overflow policies, flow control, alerts."""

from typing import Any

import pytest

from headrace.model.errors import InvalidArgument
from headrace.model.events import Event
from headrace.model.policy.policy import Policies
from headrace.model.policy.rules import Rules
from headrace.model.queue.queue import Queue
from support.brokers.queue_kind_host import Host, Taker, left


class Publisher:
    """One that waits."""

    waits = True

    def resume_publishing(self) -> None:
        self.waits = False


def wait(queue: Queue) -> Publisher:
    publisher = Publisher()
    queue.add_waiter(publisher)
    return publisher


# --- Overflow ----------------------------------------------------------------------------------


def test_a_strict_ring_refuses_while_a_message_is_unacked(host: Host) -> None:
    queue = host.queue(**{"x-overflow": "ring-strict", "x-max-length": 2})
    for body in "abc":
        assert host.enqueue(queue, body) == 0
    taker = Taker(queue, room=1).start()
    assert taker.got == ["b"]
    assert host.enqueue(queue, "d") == 1
    taker.room = -1
    taker.settle("b")
    assert host.enqueue(queue, "d") == 0
    assert left(queue) == ["c", "d"]
    queue = host.queue("bytes", **{"x-overflow": "ring-strict", "x-max-length-bytes": 2})
    for body in "abc":
        assert host.enqueue(queue, body) == 0
    assert left(queue) == ["b", "c"]


def test_a_strict_ring_counts_the_bytes_of_unacked_messages(host: Host) -> None:
    queue = host.queue(**{"x-overflow": "ring-strict", "x-max-length-bytes": 3})
    taker = Taker(queue, room=2).start()
    for body in "abc":
        assert host.enqueue(queue, body) == 0
    assert (taker.got, queue.ready_bytes) == (["a", "b"], 1)
    assert host.enqueue(queue, "d") == 1
    taker.room = -1
    taker.settle("a")
    assert host.enqueue(queue, "d") == 0
    assert left(queue) == ["c", "d"]


def test_a_queue_that_destroys_itself(host: Host) -> None:
    queue = host.queue(**{"x-overflow": "self-destruct", "x-max-length": 2})
    assert host.enqueue(queue, "a") == host.enqueue(queue, "b") == 0
    assert host.enqueue(queue, "c") == 1
    assert queue.deleted
    assert "q" not in host.vhost.queues
    assert host.counters.memory_used == 0


def test_a_limit_of_policy_none_is_none_and_what_flows_to_disk_is_all_there(host: Host) -> None:
    for overflow in ("none", "flow-to-disk", "flow-control"):
        queue = host.queue(overflow, **{"x-overflow": overflow, "x-max-length": 1})
        for body in "abc":
            assert host.enqueue(queue, body) == 0
        assert left(queue) == ["a", "b", "c"]


# --- Flow control -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"qpid.flow_stop_count": 4, "qpid.flow_resume_count": 2},
        {"qpid.flow_stop_size": 4, "qpid.flow_resume_size": 2},
        {"x-qpid-capacity": 4, "x-qpid-flow-resume-capacity": 2},
        {"x-qpid-capacity": "4", "x-qpid-flow-resume-capacity": "2"},
        {"x-overflow": "flow-control", "x-max-length": 4, "qpid.flow_resume_count": 2},
    ],
)
def test_publishers_wait_from_stop_to_resume(host: Host, arguments: dict[str, Any]) -> None:
    queue = host.queue(**arguments)
    for body in "abc":
        host.enqueue(queue, body)
    assert not queue.publishers_stopped
    host.enqueue(queue, "d")
    assert queue.publishers_stopped
    assert queue.ready_count > queue.pace_above
    publisher = wait(queue)
    taker = Taker(queue, room=1).start()
    assert publisher.waits
    taker.settle("a")
    assert taker.got == ["a", "b"]
    if "x-max-length" not in arguments:  # By Qpid's names, what is held counts.
        assert publisher.waits
        taker.settle("b")
    assert not publisher.waits
    assert not queue.publishers_stopped
    host.enqueue(queue, "e")
    host.enqueue(queue, "f")
    assert queue.publishers_stopped


@pytest.mark.parametrize("said", ["by the queue", "by a policy", "by a policy, late"])
@pytest.mark.parametrize(
    "bound",
    [
        {"qpid.flow_stop_count": 2},
        {"qpid.flow_stop_size": 2},
        {"qpid.alert_count": 2},
        {"qpid.alert_size": 2},
    ],
)
def test_what_is_handed_out_at_once_counts_until_it_is_settled(
    host: Host, heard: list[Event], bound: dict[str, Any], said: str
) -> None:
    policies = Policies(policies={"p": {"pattern": "", "definition": bound}})
    if said == "by a policy":
        host.vhost.set_rules(Rules(policies))
    queue = host.queue(**(bound if said == "by the queue" else {}))
    taker = Taker(queue).start()
    for body in "ab":
        assert not queue.publishers_stopped
        host.enqueue(queue, body)
        if body == "a" and said == "by a policy, late":
            host.vhost.set_rules(Rules(policies))
    assert taker.got == ["a", "b"]
    assert queue.publishers_stopped != bool(alerts(heard))
    publisher = wait(queue)
    taker.settle("a")
    host.pass_time(50)
    assert not publisher.waits
    taker.room = 0
    Taker(queue, no_ack=True).start()
    for body in "cdef":  # These are not unacked.
        host.enqueue(queue, body)
    assert not queue.publishers_stopped
    host.vhost.set_rules(Rules())
    taker.settle("b")
    assert (queue.unacked_count, queue.unacked_bytes) == (0, 0)
    if said != "by the queue":
        assert queue.guard is None
        assert not queue.reports_deliveries


def test_all_ways_to_let_go_of_a_message_are_weighed(host: Host) -> None:
    host.queue("dead")
    queue = host.queue(
        **{
            "qpid.alert_count": 100,
            "x-delivery-limit": 1,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        }
    )
    for body in ("a", "bb", "ccc", "dddd", "eeeee"):
        host.enqueue(queue, body)
    taker = Taker(queue, room=5).start()
    assert queue.get(Taker(queue)) is None
    assert queue.unacked_bytes == 15
    a, bb, ccc, dddd, eeeee = taker.held
    queue.settle(a)
    queue.discard(bb)
    queue.on_unconvertible(ccc, taker, "no")
    queue.release(dddd)
    queue.requeue(eeeee)
    assert (queue.unacked_count, queue.unacked_bytes) == (0, 0)
    for octets in (4, 9):
        taken = queue.get(taker)
        assert taken is not None
        assert queue.unacked_bytes == octets
    for message in (dddd, eeeee):
        queue.requeue(message)
    assert queue.unacked_bytes == 0
    again = queue.get(Taker(queue))
    assert again is not None
    assert queue.acquire(again, taker) is False
    queue.requeue_now(again)
    assert queue.acquire(again, taker)
    assert queue.unacked_bytes == 4
    queue.dead_letter_over_limit(again)
    assert (queue.unacked_count, queue.unacked_bytes, queue.ready_count) == (0, 0, 0)
    assert left(host.vhost.queues["dead"]) == ["bb", "ccc", "eeeee", "dddd"]


# --- Length limits -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [{}, {"qpid.queue_sort_key": "k"}, {"x-message-deduplication": True}]
)
@pytest.mark.parametrize(
    ("limit", "counts"),
    [
        ({"qpid.max_count": 2, "x-max-length": 2}, True),
        ({"qpid.max_size": 2, "x-max-length-bytes": 2}, True),
        ({"x-max-length": 2}, False),
        ({"x-max-length-bytes": 2}, False),
    ],
)
def test_what_is_held_counts_for_limits_by_qpids_names(
    host: Host, limit: dict[str, Any], counts: bool, kind: dict[str, Any]
) -> None:
    queue = host.queue(**limit, **kind, **{"x-overflow": "reject-publish"})
    taker = Taker(queue, room=2).start()
    for body in "ab":
        assert host.enqueue(queue, body) == 0
    assert taker.got == ["a", "b"]
    assert host.enqueue(queue, "c") == counts
    taker.room = -2
    taker.give_back("a")
    assert host.enqueue(queue, "d") == 1
    taker.settle("b")
    assert queue.unacked_bytes == 0
    assert host.enqueue(queue, "e") == (not counts)
    assert left(queue) == (["a", "e"] if counts else ["a", "c"])


def test_a_ring_by_qpids_names_drops_what_it_has_no_place_for(host: Host) -> None:
    queue = host.queue(**{"qpid.max_count": 2, "x-max-length": 2})
    taker = Taker(queue, room=1).start()
    for body in "abc":
        assert host.enqueue(queue, body) == 0
    assert taker.got == ["a"]
    assert queue.ready_count == 1
    taker.settle("a")
    assert taker.got == ["a", "c"]


def test_flow_control_ends_by_a_timer_without_consumers(host: Host) -> None:
    queue = host.queue(**{"qpid.flow_stop_count": 2})
    host.enqueue(queue, "a")
    host.enqueue(queue, "b")
    publisher = wait(queue)
    assert left(queue) == ["a", "b"]
    assert publisher.waits
    host.pass_time(50)
    assert not publisher.waits
    assert len(host.scheduler) == 0


def test_publishers_go_on_when_the_queue_is_deleted(host: Host) -> None:
    queue = host.queue(**{"qpid.flow_stop_count": 1})
    host.enqueue(queue, "a")
    publisher = wait(queue)
    host.vhost.delete_queue("q")
    assert not publisher.waits


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (
            {"qpid.flow_stop_count": 2, "qpid.flow_resume_count": 3},
            ("qpid.flow_stop_count", "qpid.flow_resume_count"),
        ),
        ({"qpid.flow_resume_size": 3}, ("qpid.flow_resume_size", "qpid.flow_stop_size")),
        ({"qpid.flow_stop_count": -1}, ("qpid.flow_stop_count",)),
        ({"qpid.alert_count": "much"}, ("qpid.alert_count",)),
        ({"x-queue-type": "stream", "qpid.alert_count": 5}, ("qpid.alert_count",)),
    ],
)
def test_thresholds_that_make_no_sense(
    host: Host, arguments: dict[str, Any], named: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        host.vhost.declare_queue("bad", durable=True, arguments=arguments)
    assert all(name in refused.value.text for name in named)


# --- Alerts -------------------------------------------------------------------------------------


@pytest.fixture
def heard(host: Host) -> list[Event]:
    events: list[Event] = []
    host.vhost.events.add_listener(lambda event: events.append(event))
    return events


def alerts(heard: list[Event]) -> list[tuple[str, int, int]]:
    return [
        (event.facts["reason"], event.facts["value"], event.facts["threshold"])
        for event in heard
        if event.kind == "queue.alert"
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"qpid.alert_count": 2}, ("message-count", 2, 2)),
        ({"x-qpid-maximum-message-count": 2}, ("message-count", 2, 2)),
        ({"qpid.alert_size": 3}, ("queue-depth", 4, 3)),
        ({"x-qpid-maximum-queue-depth": 3}, ("queue-depth", 4, 3)),
    ],
)
def test_alerts_are_told_once_within_the_gap(
    host: Host, heard: list[Event], arguments: dict[str, Any], told: tuple[str, int, int]
) -> None:
    queue = host.queue(**arguments, **{"x-qpid-minimum-alert-repeat-gap": 5000})
    host.enqueue(queue, "aa")
    assert alerts(heard) == []
    host.enqueue(queue, "bb")
    host.enqueue(queue, "cc")
    assert alerts(heard) == [told]
    host.pass_time(4999)
    host.enqueue(queue, "dd")
    assert len(alerts(heard)) == 1
    host.pass_time(1)
    host.enqueue(queue, "ee")
    assert len(alerts(heard)) == 2


def test_a_large_message_is_told_of_even_if_it_is_delivered_at_once(
    host: Host, heard: list[Event]
) -> None:
    queue = host.queue(**{"x-qpid-maximum-message-size": 3, "qpid.alert_repeat_gap": 0})
    Taker(queue, no_ack=True).start()
    for body in ("aa", "aaa", "aaaa"):
        host.enqueue(queue, body)
    assert alerts(heard) == [("message-size", 3, 3), ("message-size", 4, 3)]


def test_an_old_message_is_told_of(host: Host, heard: list[Event]) -> None:
    queue = host.queue(**{"x-qpid-maximum-message-age": 20_000})
    for _ in range(20):
        host.pass_time(2000)
    host.enqueue(queue, "a")
    for _ in range(10):
        host.pass_time(2000)
        assert alerts(heard) == []
    host.pass_time(2000)
    assert alerts(heard) == [("message-age", 20_000, 20_000)]
    assert left(queue) == ["a"]
    host.enqueue(queue, "b")
    for _ in range(9):
        host.pass_time(2000)
    assert len(alerts(heard)) == 1
