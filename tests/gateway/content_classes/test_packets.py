# SPDX-License-Identifier: Apache-2.0
"""The pace of stream packets, on a clock that the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.gateway.content_classes.stream import PacketClass, PacketRate, StreamConsumer, packet
from headrace.model.counters import Counters
from headrace.model.message import KIND_STREAM, Message
from headrace.model.ports import Store
from headrace.model.queue_kinds.content_lanes import get_lane
from headrace.model.scheduler import Scheduler
from headrace.model.vhost.virtual_host import VirtualHost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue

START_MS = 1_000_000


class Packets(PacketClass):
    """Notes when packets were delivered."""

    def __init__(self, vhost: VirtualHost, shared: PacketRate) -> None:
        super().__init__(vhost, 1, shared)
        self.times: list[int] = []
        self.own: list[Consumer] = []

    def send_deliver(self, consumer: StreamConsumer, tag: int, message: Message) -> None:
        self.times.append(self.vhost.counters.now_ms - START_MS)

    def ready(self, lane: Queue) -> bool:
        return True

    def consumers(self) -> Iterable[Consumer]:
        return self.own

    def consume(self, queue: Queue) -> StreamConsumer:
        consumer = StreamConsumer(self, get_lane(queue, KIND_STREAM), "tag")
        self.own.append(consumer)
        consumer.queue.add_consumer(consumer)
        consumer.queue.drain()
        return consumer


@pytest.fixture
def vhost() -> VirtualHost:
    return VirtualHost(
        "/", store=Store(), counters=Counters(now_ms=START_MS), scheduler=Scheduler()
    )


def publish(vhost: VirtualHost, queue: Queue, count: int, size: int = 1000) -> None:
    for _ in range(count):
        vhost.deliver(packet("", queue.name, bytes(14), bytes(size)), [queue], persistent=False)


def pass_time(vhost: VirtualHost, until_ms: int) -> None:
    while vhost.scheduler.next_ms and vhost.scheduler.next_ms <= START_MS + until_ms:
        vhost.counters.now_ms = vhost.scheduler.next_ms
        vhost.scheduler.run(vhost.counters.now_ms)
    vhost.counters.now_ms = START_MS + until_ms


@pytest.mark.rule("0-9/stream.qos.consume-rate#01", "0-10/s238")
@pytest.mark.parametrize("everywhere", [False, True])
def test_packets_keep_the_rate(vhost: VirtualHost, everywhere: bool) -> None:
    packets = Packets(vhost, PacketRate())
    queue = vhost.declare_queue("q")
    packets.consume(queue)
    packets.qos(10_000, everywhere)
    publish(vhost, queue, 20)
    pass_time(vhost, 950)
    assert len(packets.times) == 10
    gaps = [b - a for a, b in zip(packets.times, packets.times[1:], strict=False)]
    assert 79 <= gaps[0] <= 102  # A consumer may be 20 ms ahead.
    assert all(99 <= gap <= 102 for gap in gaps[1:])
    packets.qos(0, everywhere)
    assert len(packets.times) == 20


def test_a_late_timer_is_made_up_for_a_little_only(vhost: VirtualHost) -> None:
    packets = Packets(vhost, PacketRate())
    queue = vhost.declare_queue("q")
    packets.consume(queue)
    packets.qos(1_000_000, False)
    publish(vhost, queue, 1)
    vhost.counters.now_ms += 10_000
    publish(vhost, queue, 100)
    assert 15 <= len(packets.times) <= 25


def test_a_connections_pace_is_all_its_channels(vhost: VirtualHost) -> None:
    shared = PacketRate()
    first, second = Packets(vhost, shared), Packets(vhost, shared)
    queue = vhost.declare_queue("q")
    first.consume(queue)
    second.consume(queue)
    first.qos(10_000, True)
    publish(vhost, queue, 20)
    pass_time(vhost, 950)
    assert len(first.times) + len(second.times) == 10
    assert first.times
    assert second.times


def test_packets_that_are_over_wake_no_consumer(vhost: VirtualHost) -> None:
    packets = Packets(vhost, PacketRate())
    queue = vhost.declare_queue("q")
    packets.consume(queue)
    packets.qos(10, False)
    publish(vhost, queue, 3)
    assert len(vhost.scheduler) == 1
    packets.end()
    assert len(vhost.scheduler) == 0
    assert len(packets.times) == 1
