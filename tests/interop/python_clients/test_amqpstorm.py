# SPDX-License-Identifier: Apache-2.0
"""amqpstorm: a threaded client that checks reply codes rather than classes."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import amqpstorm
import pytest
from amqpstorm import AMQPChannelError, AMQPConnectionError, AMQPMessageError, Message  # type: ignore[attr-defined]

from support.brokers.broker_process import until
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator


def connect(broker, **options: Any) -> amqpstorm.Connection:  # type: ignore[name-defined]
    return amqpstorm.Connection(broker.host, "guest", "guest", port=broker.port, **options)  # type: ignore[attr-defined]


@pytest.fixture
def connection(broker) -> Iterator[amqpstorm.Connection]:  # type: ignore[name-defined]
    with connect(broker) as connection:
        yield connection


@pytest.fixture
def channel(connection) -> Iterator[amqpstorm.Channel]:  # type: ignore[name-defined]
    with connection.channel() as channel:
        yield channel


@pytest.fixture
def queue(channel, name) -> str:
    channel.queue.declare(name, exclusive=True)
    return name


def test_confirmed_publish_get_ack(channel, queue):
    channel.confirm_deliveries()
    properties = {
        "headers": {"key": "value", "n": 3},
        "content_type": "text/plain",
        "delivery_mode": 2,
        "priority": 2,
        "message_id": "m",
        "expiration": "60000",
    }
    assert channel.basic.publish("body", queue, properties=properties, mandatory=True) is True
    message = channel.basic.get(queue)
    assert message.body == "body"
    assert message.properties["headers"] == properties["headers"]
    assert message.properties["message_id"] == "m"
    message.ack()
    assert channel.basic.get(queue) is None


def test_consume_with_prefetch_nack_and_reject(channel, queue):
    for number in range(3):
        Message.create(channel, str(number)).publish(queue)
    channel.basic.qos(1)
    got = []

    def take(message: Message) -> None:
        got.append((message.body, message.redelivered))
        if len(got) == 1:
            message.nack(requeue=True)
        elif len(got) == 2:
            message.reject(requeue=True)
        else:
            message.ack()
        if len(got) == 5:
            channel.stop_consuming()

    channel.basic.consume(take, queue)
    channel.start_consuming()
    assert got == [("0", False), ("0", True), ("0", True), ("1", False), ("2", False)]


def test_unroutable_message_raises(channel, name):
    channel.confirm_deliveries()
    with pytest.raises(AMQPMessageError) as raised:
        channel.basic.publish("lost", name, mandatory=True)
    assert raised.value.error_code == 312
    assert "NO_ROUTE" in str(raised.value)


def test_nacked_by_a_full_queue(channel, name):
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue.declare(name, exclusive=True, arguments=arguments)
    channel.confirm_deliveries()
    assert channel.basic.publish("1", name) is True
    assert channel.basic.publish("2", name) is False


def test_transaction_commits_or_rolls_back(channel, queue):
    with channel.tx:
        channel.basic.publish("kept", queue)
        channel.tx.commit()
        channel.basic.publish("undone", queue)
        channel.tx.rollback()
    assert channel.basic.get(queue, no_ack=True).body == "kept"
    assert channel.basic.get(queue, no_ack=True) is None


def test_recover(channel, queue):
    channel.basic.publish("x", queue)
    assert not channel.basic.get(queue).redelivered
    channel.basic.recover(requeue=True)
    assert until(lambda: channel.basic.get(queue), "the message again").redelivered


def test_cancelled_by_the_broker(connection, channel, queue):
    tag = channel.basic.consume(lambda message: None, queue)
    assert channel.consumer_tags == [tag]
    with connection.channel() as other:
        other.queue.delete(queue)
    until(lambda: not channel.consumer_tags, "the cancel from the broker")
    assert channel.is_open


def test_exchange_bind_and_topic(channel, queue, name):
    channel.exchange.declare(name, "topic", auto_delete=True)
    channel.exchange.declare(name + ".in", "fanout", auto_delete=True)
    channel.exchange.bind(destination=name, source=name + ".in")
    channel.queue.bind(queue, name, "a.#")
    channel.basic.publish("x", "a.b.c", exchange=name + ".in")
    assert until(lambda: channel.basic.get(queue), "the message").body == "x"
    channel.queue.unbind(queue, name, "a.#")


@pytest.mark.parametrize("size", [0, 131_064, 1_000_000])
def test_bodies(channel, queue, size):
    channel.confirm_deliveries()
    channel.basic.publish(b"\xff" * size, queue)
    assert len(channel.basic.get(queue, auto_decode=False).body) == size


def test_errors_by_code_and_text(connection, name):
    channel = connection.channel()
    with pytest.raises(AMQPChannelError) as raised:
        channel.queue.declare(name, passive=True)
    assert raised.value.error_code == 404
    assert f"NOT_FOUND - no queue '{name}' in vhost '/'" in str(raised.value)
    channel = connection.channel()
    with pytest.raises(AMQPChannelError) as raised:
        channel.queue.declare("amq.mine")
    assert raised.value.error_code == 403
    assert connection.is_open


def test_login_refused(broker):
    with pytest.raises(AMQPConnectionError) as raised:
        amqpstorm.Connection(broker.host, "guest", "wrong", port=broker.port, timeout=PATIENCE_S)  # type: ignore[attr-defined]
    assert raised.value.error_code == 403


def test_reconnection_after_a_restart(own_broker, name):
    connection = connect(own_broker)
    channel = connection.channel()
    channel.queue.declare(name, durable=True)
    channel.confirm_deliveries()
    channel.basic.publish("kept", name, properties={"delivery_mode": 2})
    consuming = threading.Event()

    def consume() -> None:
        consumer = connection.channel()
        consumer.basic.consume(lambda message: consuming.set(), name)
        with suppress(AMQPConnectionError):
            consumer.start_consuming()

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    assert consuming.wait(PATIENCE_S)
    own_broker.restart()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    with pytest.raises(AMQPConnectionError):
        connection.check_for_errors()
    with connect(own_broker) as connection, connection.channel() as channel:
        message = channel.basic.get(name)
        assert (message.body, message.redelivered) == ("kept", True)
        message.ack()
        channel.queue.delete(name)
