# SPDX-License-Identifier: Apache-2.0
"""Delays, retries and time limits, as pika's users know them from plugins and quorum queues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pika
import pytest
from pika import BasicProperties

from support.brokers.broker_process import until
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pika.adapters.blocking_connection import BlockingChannel

    from support.brokers.broker_process import Remote, Served


@pytest.fixture
def channel(broker: Served | Remote) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        yield connection.channel()


def take(channel: BlockingChannel, queue: str) -> tuple[int, BasicProperties, bytes]:
    """Get one message that must come; it is held."""

    def some() -> tuple[int, BasicProperties, bytes] | None:
        method, properties, body = channel.basic_get(queue)
        return None if method is None else (method.delivery_tag, properties, body)

    return until(some, f"a message in {queue}")  # type: ignore[return-value]


def test_a_delayed_message_exchange(channel: BlockingChannel, name: str) -> None:
    arguments = {"x-delayed-type": "direct"}
    channel.exchange_declare(name, "x-delayed-message", arguments=arguments)
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, name, "key")
    channel.confirm_delivery()
    for delays in ((3_600_000, 50), (150,)):  # A later message delays no earlier one.
        start = time.time()
        for delay in delays:
            properties = BasicProperties(headers={"x-delay": delay})
            channel.basic_publish(name, "key", b"%d" % delay, properties)
        _, properties, body = take(channel, name)
        assert body == b"%d" % delay
        assert properties.headers == {"x-delay": -delay}
        assert time.time() - start >= delay / 1000 - 0.002
    channel.exchange_delete(name)


def test_a_quorum_queue_retries_later_and_gives_up(channel: BlockingChannel, name: str) -> None:
    dead = f"{name}.dead"
    arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": 2,
        "x-delayed-retry-type": "failed",
        "x-delayed-retry-min": 30,
        "x-delayed-retry-max": 1000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    channel.queue_declare(name, durable=True, arguments=arguments)
    channel.basic_publish("", name, b"poison", BasicProperties(delivery_mode=2))
    for count in range(3):
        before = time.time()
        tag, properties, _ = take(channel, name)
        assert time.time() - before >= 30 * count / 1000 - 0.01
        assert (properties.headers or {}).get("x-delivery-count", 0) == count
        channel.basic_reject(tag, requeue=True)
    assert channel.queue_declare(dead).method.message_count == 0  # Only now can it go there.
    _, properties, body = take(channel, dead)
    assert body == b"poison"
    assert properties.headers["x-first-death-reason"] == "delivery_limit"
    channel.queue_delete(name)
    channel.queue_delete(dead)


def test_a_consumer_that_takes_too_long_loses_its_message(
    channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-consumer-timeout": 60})
    got: list[tuple[bytes, bool]] = []
    tags: list[int] = []

    def on_message(_: object, method: object, __: object, body: bytes) -> None:
        got.append((body, method.redelivered))  # type: ignore[attr-defined]
        tags.append(method.delivery_tag)  # type: ignore[attr-defined]

    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(name, on_message)
    channel.basic_publish("", name, b"slow")
    until(lambda: channel.connection.process_data_events(0.01) or got, "it")
    until(
        lambda: channel.queue_declare(name, passive=True).method.message_count,
        "the message back in its queue",
        PATIENCE_S,
    )
    channel.basic_ack(tags[0])  # Too late, and no error: the consumer goes on with the message.
    until(lambda: channel.connection.process_data_events(0.01) or got[1:], "it")
    assert got == [(b"slow", False), (b"slow", True)]
    channel.basic_ack(tags[1])
