# SPDX-License-Identifier: Apache-2.0
"""The effective arguments of a queue can change while it lives."""

from typing import Any

from headrace.model.counters import Counters
from headrace.model.message import KIND_STREAM
from headrace.model.ports import Store
from headrace.model.queue.queue import Queue
from headrace.model.queue_kinds.content_lanes import get_lane
from headrace.model.scheduler import Scheduler
from headrace.model.stream.log import StreamLog
from headrace.model.stream.stream import Stream
from headrace.model.vhost.apply_policies import configure
from headrace.model.vhost.virtual_host import VirtualHost


class Ruled(VirtualHost):
    """A virtual host with policies for its queues."""

    rule: dict[str, Any] | None = None

    def effective_arguments(self, queue: Queue) -> dict[str, Any]:
        return queue.arguments if self.rule is None else {**queue.arguments, **self.rule}


def made() -> Ruled:
    def make_stream(name: str, **options: Any) -> Queue:
        return Stream(name, StreamLog(), **options)

    counters = Counters(now_ms=1000)
    return Ruled(
        "/", store=Store(), counters=counters, scheduler=Scheduler(), make_stream=make_stream
    )


def test_settings_follow_the_effective_arguments() -> None:
    vhost = made()
    queue = vhost.declare_queue("q", arguments={"x-max-length": 5})
    lane = get_lane(queue, KIND_STREAM)
    vhost.rule = {
        "x-max-length": 3,
        "x-message-ttl": 10,
        "x-expires": 100,
        "x-overflow": "reject-publish",
        "alternate-exchange": "amq.fanout",
        "x-delivery-limit": 2,
    }
    vhost.configure(queue)
    assert queue.limits is not None
    assert (queue.max_length, queue.message_ttl_ms, queue.limits.policy) == (3, 10, 1)
    assert queue.delivery_limit == 2
    assert lane.limits is not None
    assert (lane.max_length, lane.delivery_limit, lane.limits.policy) == (3, 2, 0)
    assert vhost.serves_as_alternate("amq.fanout")
    assert vhost.scheduler.next_ms == 1100

    vhost.rule = None
    vhost.configure(queue)
    assert queue.limits is not None
    assert (queue.max_length, queue.message_ttl_ms, queue.limits.policy) == (5, -1, 0)
    assert not vhost.serves_as_alternate("amq.fanout")
    assert vhost.scheduler.next_ms == 0
    assert queue.arguments == {"x-max-length": 5}


def test_a_stream_keeps_what_its_settings_say() -> None:
    vhost = made()
    stream = vhost.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    assert isinstance(stream, Stream)
    for _ in range(100):
        stream.log.append(b"x" * 100, 0, 100, 900)
    vhost.rule = {"x-max-length-bytes": 1000}
    configure(vhost, stream)
    assert stream.message_count() == 10
    vhost.rule = {"x-max-age": "1s"}
    configure(vhost, stream)
    assert (stream.log.max_length_bytes, stream.log.max_age_ms) == (-1, 1000)
    assert vhost.scheduler.next_ms == 2000
    vhost.scheduler.run(2000)
    assert stream.message_count() == 1
