# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ's and Qpid's extensions of AMQP, over every version, on a running broker."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import ClientError, Message, blocking
from headrace.client.errors import PreconditionFailed
from support.brokers.broker_process import until
from support.clients.client_fixtures import channel_of
from support.queue_contents import all_ready
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from headrace.testing.broker import LocalBroker

VERSIONS = ["0-8", "0-9", "0-9-1", "0-10"]
every = pytest.mark.parametrize("version", VERSIONS)
Channels = Callable[[], blocking.Channel]


@pytest.fixture
def channels(headrace_broker: LocalBroker, version: str) -> Iterator[Channels]:
    """Opens channels, each on a connection of its own."""
    with contextlib.ExitStack() as stack:

        def opened() -> blocking.Channel:
            url = f"{headrace_broker.url}?version={version}"
            connection = stack.enter_context(blocking.connect(url, reconnect=None))
            return stack.enter_context(connection.channel())

        yield opened


def bodies(consumer: blocking.Consumer, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        delivery = consumer.receive(PATIENCE_S)
        found.append(delivery.body)
        delivery.ack()
    return found


@every
def test_a_single_active_consumer_and_who_comes_after_it(
    channels: Channels, name: Callable[[], str]
) -> None:
    queue, first, second, third = name(), channels(), channels(), channels()
    # The tables of 0-8 and 0-9 have no booleans, so a number does as well.
    first.declare_queue(queue, arguments={"x-single-active-consumer": 1})
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as next_stack:
        active = stack.enter_context(second.consume(queue, prefetch=1))
        with first.consume(queue, prefetch=1) as waiting:
            # A higher priority is next in line; it does not replace the active consumer.
            favoured = third.consume(queue, prefetch=1, arguments={"x-priority": 5})
            next_stack.enter_context(favoured)
            first.publish_many([b"1", b"2"], queue)
            assert bodies(active, 2) == [b"1", b"2"]
            stack.close()
            first.publish(b"3", queue)
            assert bodies(favoured, 1) == [b"3"]
            next_stack.close()
            first.publish(b"4", queue)
            assert bodies(waiting, 1) == [b"4"]


@every
def test_consumers_have_priorities(channels: Channels, name: Callable[[], str]) -> None:
    queue, first, second = name(), channels(), channels()
    first.declare_queue(queue)
    low, high = {"x-priority": -1}, {"x-priority": 5}
    with (
        first.consume(queue, prefetch=2, arguments=low) as after,
        second.consume(queue, prefetch=2, arguments=high) as before,
    ):
        first.publish_many([b"1", b"2", b"3"], queue)
        assert bodies(after, 1) == [b"3"]  # The other consumer has two unacked messages.
        assert bodies(before, 2) == [b"1", b"2"]


@every
@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("ring", [b"2", b"3"]),
        ("ring_strict", [b"1"]),
        ("reject", [b"0", b"1"]),
        ("paging", [b"0", b"1", b"2", b"3"]),
        ("self-destruct", None),
    ],
)
def test_what_a_full_queue_does(
    channels: Channels, name: Callable[[], str], policy: str, left: list[bytes] | None
) -> None:
    queue, channel, other = name(), channels(), channels()
    limit: dict[str, Any] = {"qpid.max_count": 2, "qpid.policy_type": policy}
    channel.declare_queue(queue, durable=False, arguments=limit)
    held = None
    for number in range(3 if left is None else 4):
        with contextlib.suppress(ClientError):  # With confirms the refusal is an error.
            channel.publish(b"%d" % number, queue)
        if policy == "ring_strict" and held is None:
            held = other.get(queue)
    if left is None:
        with pytest.raises(ClientError, match="no queue"):
            channels().declare_queue(queue, passive=True)
        return
    assert [message.body for message in all_ready(channel, queue)] == left
    if held is not None:
        held.ack()
    channel.delete_queue(queue)


@every
def test_alerts_are_events(
    channels: Channels, headrace_broker: LocalBroker, name: Callable[..., str]
) -> None:
    queue, alerts, channel = name("q"), name("alerts"), channels()
    with blocking.connect(headrace_broker.url) as connection, connection.channel() as listener:
        listener.declare_queue(alerts, auto_delete=True)
        listener.bind_queue(alerts, "amq.rabbitmq.event", "queue.alert")
        limits = {"qpid.alert_count": 2, "x-qpid-maximum-message-size": 50}
        channel.declare_queue(queue, auto_delete=True, arguments=limits)
        channel.publish_many([b"1", b"2", b"x" * 50], queue)
        with listener.consume(alerts) as told:
            facts = [told.receive(PATIENCE_S).headers for _ in range(2)]
        assert [(fact["name"], fact["reason"], fact["value"]) for fact in facts] == [
            (queue, "message-count", 2),
            (queue, "message-size", 50),
        ]


@every
def test_what_comes_back_waits(channels: Channels, name: Callable[[], str]) -> None:
    queue, channel, other = name(), channels(), channels()
    retries: dict[str, Any] = {"x-delayed-retry-min": 60, "x-delayed-retry-type": "failed"}
    channel.declare_queue(queue, auto_delete=True, arguments=retries)
    channel.publish(Message(b"again"), queue)
    delivery = channel.get(queue)
    assert delivery is not None
    started = time.monotonic()
    delivery.nack()
    # In 0-8 and 0-9 only another channel gets a rejected message.
    with other.consume(queue) as consumer:
        assert bodies(consumer, 1) == [b"again"]
    assert time.monotonic() - started >= 0.055


def test_auto_delete_queues_may_linger(
    headrace_broker: LocalBroker, name: Callable[..., str]
) -> None:
    queues = []
    for version in VERSIONS:
        with channel_of(f"{headrace_broker.url}?version={version}") as channel:
            queues.append(name(version))
            for queue, lingers_s in ((queues[-1], 1), (f"{queues[-1]}.long", 3600)):
                linger = {"qpid.auto_delete_timeout": lingers_s}
                channel.declare_queue(queue, auto_delete=True, arguments=linger)
                with channel.consume(queue):
                    pass
            channel.declare_queue(queue, passive=True)  # The queue still exists.
            channel.delete_queue(queue)
    with blocking.connect(headrace_broker.url, reconnect=None) as connection:

        def is_gone(queue: str) -> bool:
            try:
                with connection.channel() as channel:
                    channel.declare_queue(queue, passive=True)
            except ClientError:
                return True
            return False

        for queue in queues:
            until(lambda queue=queue: is_gone(queue), f"{queue} goes")


@every
def test_a_stream_with_records_is_not_empty(channels: Channels, name: Callable[[], str]) -> None:
    stream, first = name(), channels()
    first.declare_queue(stream, arguments={"x-queue-type": "stream"})
    first.publish(b"kept", stream)
    with pytest.raises(PreconditionFailed):
        first.delete_queue(stream, if_empty=True)
    again = channels()
    assert again.declare_queue(stream, passive=True).message_count == 1
    again.delete_queue(stream)
