# SPDX-License-Identifier: Apache-2.0
"""Streams that are kept in memory: counted, and trimmed in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.model.counters import MESSAGE_OVERHEAD, Counters
from headrace.model.message import new_message
from headrace.model.ports import Store
from headrace.model.stream.log import StreamLog
from headrace.model.stream.stream import Stream
from headrace.model.vhost.virtual_host import VirtualHost

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def counters() -> Counters:
    return Counters(now_ms=1_000_000)


def host(counters: Counters, **limits: int) -> VirtualHost:
    def make(name: str, **options: Any) -> Queue:
        return Stream(name, StreamLog(**limits), **options)

    return VirtualHost("/", store=Store(), counters=counters, make_stream=make)


def publish(vhost: VirtualHost, stream: Queue, size: int) -> None:
    vhost.deliver(new_message(bytes(size), 0, size), [stream], False)


def test_its_messages_are_counted(counters: Counters) -> None:
    vhost = host(counters, max_length_bytes=10_000)
    stream = vhost.declare_queue("s", durable=True, arguments=STREAM)
    for _ in range(5):
        publish(vhost, stream, 1000)
    assert counters.memory_used == 5 * (1000 + MESSAGE_OVERHEAD)
    for _ in range(100):
        publish(vhost, stream, 1000)
    assert counters.memory_used <= 12 * (1000 + MESSAGE_OVERHEAD)
    vhost.delete_queue("s")
    assert counters.memory_used == 0


def test_what_is_too_old_goes_while_nothing_comes(counters: Counters) -> None:
    vhost = host(counters, max_age_ms=60_000)
    stream = vhost.declare_queue("s", durable=True, arguments=STREAM)
    for _ in range(10):
        publish(vhost, stream, 1000)
    vhost.scheduler.run(counters.now_ms)
    counters.now_ms += 59_000
    vhost.scheduler.run(counters.now_ms)
    assert stream.message_count() == 10
    counters.now_ms += 10_000
    vhost.scheduler.run(counters.now_ms)
    assert stream.message_count() == 1  # The last one stays: it knows the next offset.
    assert counters.memory_used == 1000 + MESSAGE_OVERHEAD
    publish(vhost, stream, 1000)
    counters.now_ms += 120_000
    vhost.scheduler.run(counters.now_ms)
    assert stream.message_count() == 1
    vhost.delete_queue("s")
    assert len(vhost.scheduler) == 0
