# SPDX-License-Identifier: Apache-2.0
"""Jobs by name: done once, remembered, and no more of them than there may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.gateway.conversion.contents import Contents
from headrace.model.counters import Counters
from headrace.model.errors import AccessRefused, IllegalState, ResourceError
from headrace.model.message import REDELIVERED
from headrace.model.operations import jobs, message_job
from headrace.model.operations.message_job import Job
from headrace.model.ports import Store
from headrace.model.queue.destination import Consumer
from headrace.model.vhost.virtual_host import VirtualHost
from support.stored_message import stored_message

if TYPE_CHECKING:
    from headrace.model.contents import Content
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue


@pytest.fixture
def vhost() -> VirtualHost:
    vhost = VirtualHost(
        "/", store=Store(), counters=Counters(now_ms=1_000_000), contents=Contents()
    )
    for name in ("a", "b"):
        vhost.declare_queue(name)
    fill(vhost, 10)
    return vhost


def fill(vhost: VirtualHost, count: int, queue: str = "a") -> None:
    for n in range(count):
        message = stored_message(b"x", "a", headers={"n": n})
        vhost.deliver(message, [vhost.queues[queue]], False)


def begin(vhost: VirtualHost, name: str, **options: Any) -> jobs.JobRun:
    request = {"do": "move", "from": "a", "to": "b", "count": options.get("count")}
    job = Job(vhost, vhost.queues["a"], target=vhost.queues["b"], **options)
    return vhost.jobs.begin(name, request, job, 1)


def finish(vhost: VirtualHost, running: jobs.JobRun) -> None:
    while not running.is_finished:
        step(vhost)


def test_the_latest_are_remembered(vhost: VirtualHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "KEPT_MAX", 3)
    for n in range(5):
        finish(vhost, begin(vhost, f"e{n}", count=1))
    assert [vhost.jobs.describe(f"e{n}") is None for n in range(5)] == [True, True, *[False] * 3]
    result = vhost.jobs.find("e4", {"do": "move", "from": "a", "to": "b", "count": 1})
    assert isinstance(result, dict)
    assert result["done"] == 1
    again = jobs.Jobs(vhost)  # As after a restart.
    assert again.describe("e4") == vhost.jobs.describe("e4")
    with pytest.raises(IllegalState):
        again.find("e4", {"do": "copy", "from": "a", "to": "b", "count": 1})


def test_no_more_at_once_than_there_may_be(
    vhost: VirtualHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "RUNNING_MAX", 2)
    running = [begin(vhost, name, count=3) for name in ("", "named")]
    with pytest.raises(ResourceError, match="2 jobs are running"):
        begin(vhost, "third")
    assert len(vhost.jobs) == 2
    for each in running:
        finish(vhost, each)
    assert [len(vhost.jobs), vhost.queues["b"].ready_count] == [0, 6]


def test_what_is_too_large_to_remember_is_remembered_in_short(
    vhost: VirtualHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "FACT_VALUE_MAX", 150)
    finish(vhost, begin(vhost, "long"))
    described = vhost.jobs.describe("long")
    assert described is not None
    assert (described[1]["done"], described[1]["to"]) == (10, {})


def test_reasons_are_told_apart_up_to_a_bound(
    vhost: VirtualHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_job, "REASONS_MAX", 4)

    def nowhere(content: Content) -> Queue | str:
        return f"reason {content.headers['n']}"

    running = vhost.jobs.begin("", {}, Job(vhost, vhost.queues["a"], target=nowhere), 1)
    finish(vhost, running)
    assert running.result is not None
    reasons = {f"reason {n}": 1 for n in range(4)}
    assert running.result.skipped == {**reasons, "for other reasons": 6}


def test_the_broker_stops_and_nothing_happened(
    vhost: VirtualHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_job, "LOOKS_MAX", 2)
    monkeypatch.setattr(message_job, "BATCH_MAX", 3)
    begin(vhost, "stopped")
    for _ in range(3):
        step(vhost)
    source, target = vhost.queues["a"], vhost.queues["b"]
    assert (source.ready_count, source.unacked_count, target.pending_count) == (4, 6, 6)
    vhost.jobs.close()
    assert (source.ready_count, source.unacked_count, target.pending_count) == (10, 0, 0)
    back = source.get(Consumer(source, "", True))
    assert back is not None
    assert not back.flags & REDELIVERED


def test_a_moved_message_does_not_tell_how_often_it_came_back(vhost: VirtualHost) -> None:
    source, target = vhost.queues["a"], vhost.queues["b"]
    source.delivery_limit = 5
    message = source.get(Consumer(source, "", False))
    assert message is not None
    source.requeue(message)
    assert vhost.contents is not None
    assert vhost.contents.read(message).headers["x-delivery-count"] == 1
    finish(vhost, begin(vhost, ""))
    moved = target.get(Consumer(target, "", True))
    assert moved is not None
    assert vhost.contents.read(moved).headers == {"n": 0}
    assert (moved.deliveries, moved.flags & REDELIVERED) == (0, 0)


def test_the_brokers_own_queues_are_left_alone(vhost: VirtualHost) -> None:
    hidden = vhost.queues["b"]
    hidden.is_hidden = True
    with pytest.raises(AccessRefused, match="is the broker's own"):
        Job(vhost, vhost.queues["a"], target=hidden)
    with pytest.raises(AccessRefused, match="is the broker's own"):
        Job(vhost, hidden, target=None)


def test_a_group_waits_for_what_is_withdrawn_from_it(
    vhost: VirtualHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_job, "LOOKS_MAX", 1)
    shared = {"qpid.group_header_key": "n", "qpid.shared_msg_group": 1}
    queue = vhost.declare_queue("grouped", arguments=shared)
    for _ in range(3):
        fill(vhost, 2, "grouped")  # 0 1 0 1 0 1
    job = Job(vhost, queue, target=vhost.queues["b"], count=3)
    running = vhost.jobs.begin("", {}, job, 1)
    step(vhost)  # Withdraws the first 0.
    holder = Consumer(queue, "", False)
    first = queue.get(holder)
    assert first is not None
    assert number_in(vhost, first) == 1
    assert queue.get(Consumer(queue, "", False)) is None  # Both groups wait.
    job.cancel("enough")
    finish(vhost, running)
    back = queue.get(Consumer(queue, "", False))
    assert back is not None
    assert (number_in(vhost, back), back.seq < first.seq) == (0, True)
    queue.settle(first)
    queue.settle(back)
    assert taken(vhost, queue) == [0, 1, 0, 1]


def test_a_value_that_was_replaced_meanwhile_is_gone(
    vhost: VirtualHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_job, "LOOKS_MAX", 1)
    queue = vhost.declare_queue("last", arguments={"qpid.last_value_queue_key": "n"})
    fill(vhost, 3, "last")
    job = Job(vhost, queue, target=vhost.queues["b"])
    running = vhost.jobs.begin("", {}, job, 1)
    step(vhost)
    fill(vhost, 1, "last")  # A newer 0.
    job.cancel("enough")
    finish(vhost, running)
    assert taken(vhost, queue) == [1, 2, 0]
    assert queue.ready_count == 0


def step(vhost: VirtualHost) -> None:
    vhost.counters.now_ms += 1
    vhost.scheduler.run(vhost.counters.now_ms)


def taken(vhost: VirtualHost, queue: Queue) -> list[int]:
    """Return the ready messages in order."""
    bodies = []
    while (message := queue.get(Consumer(queue, "", False))) is not None:
        bodies.append(number_in(vhost, message))
        queue.settle(message)
    return bodies


def number_in(vhost: VirtualHost, message: Message) -> Any:
    assert vhost.contents is not None
    return vhost.contents.read(message).headers["n"]
