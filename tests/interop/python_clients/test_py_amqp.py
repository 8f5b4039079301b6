# SPDX-License-Identifier: Apache-2.0
"""py-amqp, the client under kombu and Celery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amqp
import pytest
from amqp.exceptions import (
    AccessRefused,
    ConsumerCancelled,
    MessageNacked,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)

from support.brokers.broker_process import undisturbed, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.brokers.broker_process import Remote, Served

    Broker = Served | Remote


def connect(broker: Broker, **options: Any) -> amqp.Connection:
    connection = amqp.Connection(f"{broker.host}:{broker.port}", **options)
    connection.connect()
    return connection


@pytest.fixture
def connection(broker: Broker) -> Iterator[amqp.Connection]:
    with connect(broker, confirm_publish=True) as connection:
        yield connection


@pytest.fixture
def channel(connection: amqp.Connection) -> amqp.Channel:
    return connection.channel()


@pytest.fixture
def queue(channel: amqp.Channel, name: str) -> str:
    channel.queue_declare(name, exclusive=True, auto_delete=False)
    return name


def pump(connection: amqp.Connection, done: Callable[[], object], wanted: str) -> None:
    def step() -> object:
        try:
            connection.drain_events(timeout=0.01)
        except TimeoutError:
            pass
        return done()

    until(step, wanted)


def publish(channel: amqp.Channel, queue: str, *bodies: str, **properties: Any) -> None:
    for body in bodies:
        channel.basic_publish(amqp.Message(body, **properties), routing_key=queue)


def test_confirmed_publish_get_and_ack(channel, queue):
    headers = {"n": 2, "text": "☃", "ratio": 0.25, "list": ["a", {"b": None}], "yes": True}
    publish(
        channel,
        queue,
        "body",
        delivery_mode=2,
        priority=4,
        content_type="text/plain",
        content_encoding="utf-8",
        application_headers=headers,
        expiration="60000",
        correlation_id="c",
    )
    message = channel.basic_get(queue)
    assert message.body == "body"
    assert message.headers == headers
    assert message.properties["priority"] == 4
    assert message.properties["delivery_mode"] == 2
    assert message.properties["expiration"] == "60000"
    channel.basic_ack(message.delivery_tag)
    assert channel.basic_get(queue) is None


def test_queue_declare_reports_messages_and_consumers(channel, queue):
    publish(channel, queue, "1", "2")
    channel.basic_qos(0, 1, False)
    channel.basic_consume(queue, callback=lambda message: None)
    answer = channel.queue_declare(queue, passive=True)
    assert (answer.queue, answer.consumer_count) == (queue, 1)
    assert answer.message_count == 1


def test_consume_nack_requeue_and_reject(connection, channel, queue):
    got = []
    channel.basic_consume(queue, callback=got.append)
    publish(channel, queue, "x")
    pump(connection, lambda: len(got) == 1, "the delivery")
    channel.basic_reject(got[0].delivery_tag, requeue=True)
    pump(connection, lambda: len(got) == 2, "the redelivery")
    assert [message.delivery_info["redelivered"] for message in got] == [False, True]
    channel.basic_reject(got[1].delivery_tag, requeue=False)
    assert channel.queue_purge(queue) == 0


def test_recover_and_recover_async(connection, channel, queue):
    publish(channel, queue, "x")
    got = []
    channel.basic_consume(queue, callback=got.append)
    pump(connection, lambda: len(got) == 1, "the delivery")
    channel.basic_recover(requeue=True)
    pump(connection, lambda: len(got) == 2, "one redelivery")
    channel.basic_recover_async(requeue=True)
    pump(connection, lambda: len(got) == 3, "another redelivery")
    assert [message.delivery_info["redelivered"] for message in got] == [False, True, True]


def test_returned_message(connection, channel, name):
    returned = []
    channel.events["basic_return"].add(lambda *answer: returned.append(answer))
    channel.basic_publish(amqp.Message("lost"), routing_key=name, mandatory=True)
    pump(connection, lambda: returned, "the returned message")
    error, exchange, routing_key, message = returned[0]
    assert (error.reply_code, error.reply_text) == (312, "NO_ROUTE")
    assert (exchange, routing_key, message.body) == ("", name, "lost")


def test_nacked_by_a_full_queue(channel, name):
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    publish(channel, name, "1")
    with pytest.raises(MessageNacked):
        publish(channel, name, "2")


def test_transaction(broker, name):
    with connect(broker) as connection:
        channel = connection.channel()
        channel.queue_declare(name, exclusive=True, auto_delete=False)
        channel.tx_select()
        publish(channel, name, "undone")
        channel.tx_rollback()
        publish(channel, name, "done")
        channel.tx_commit()
        assert channel.basic_get(name, no_ack=True).body == "done"
        assert channel.basic_get(name, no_ack=True) is None


def test_cancel_by_client_and_by_broker(connection, channel, queue):
    cancelled = []
    tag = channel.basic_consume(queue, callback=lambda m: None)
    channel.basic_cancel(tag)
    channel.basic_consume(
        queue, consumer_tag="t", callback=lambda m: None, on_cancel=cancelled.append
    )
    connection.channel().queue_delete(queue)
    pump(connection, lambda: cancelled, "the cancel from the broker")
    assert cancelled == ["t"]
    other = connection.channel()
    other.queue_declare(queue, exclusive=True)
    other.basic_consume(queue, callback=lambda m: None)
    last = connection.channel()

    def delete() -> None:
        last.queue_delete(queue)
        pump(connection, lambda: False, "the error of a cancelled consumer")

    with pytest.raises(ConsumerCancelled):
        delete()


def test_exchange_to_exchange_binding(channel, queue, name):
    channel.exchange_declare(name + ".a", "fanout", auto_delete=True)
    channel.exchange_declare(name + ".b", "topic", auto_delete=True)
    channel.exchange_bind(destination=name + ".b", source=name + ".a")
    channel.queue_bind(queue, name + ".b", "#.z")
    channel.basic_publish(amqp.Message("1"), exchange=name + ".a", routing_key="x.y.z")
    channel.basic_publish(amqp.Message("2"), exchange=name + ".a", routing_key="x.y")
    assert channel.basic_get(queue, no_ack=True).body == "1"
    assert channel.basic_get(queue, no_ack=True) is None
    channel.exchange_unbind(destination=name + ".b", source=name + ".a")
    channel.queue_unbind(queue, name + ".b", "#.z")


def test_flow(channel):
    channel.flow(True)


def test_heartbeat_is_kept(broker):
    def beats(in_time) -> None:
        with connect(broker, heartbeat=2) as connection:
            seen = connection.bytes_recv

            def beat() -> bool:
                in_time()
                connection.heartbeat_tick()
                return connection.bytes_recv > seen + 2

            pump(connection, beat, "heartbeats of the broker")
            assert connection.connected

    undisturbed(beats, 2)


def test_errors_by_class(connection, name):
    with pytest.raises(NotFound) as raised:
        connection.channel().queue_declare(name, passive=True)
    assert raised.value.reply_text == f"NOT_FOUND - no queue '{name}' in vhost '/'"
    assert raised.value.method_sig == (50, 10)
    with pytest.raises(NotFound):
        connection.channel().exchange_declare(name, "direct", passive=True)
    channel = connection.channel()
    channel.queue_declare(name, exclusive=True, auto_delete=False)
    with pytest.raises(PreconditionFailed) as raised:
        channel.queue_declare(name, exclusive=True, auto_delete=True)
    assert raised.value.reply_text == (
        f"PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue '{name}' in vhost '/': "
        "received 'true' but current is 'false'"
    )
    with pytest.raises(AccessRefused):
        connection.channel().queue_declare("amq.mine")
    assert connection.channel().is_open


def test_locked_queue(broker, connection, queue):
    with connect(broker) as other, pytest.raises(ResourceLocked):
        other.channel().queue_declare(queue, passive=True)


def test_login_errors(broker):
    with pytest.raises(AccessRefused) as raised:
        connect(broker, password="wrong", login_method="PLAIN")
    assert raised.value.reply_code == 403
    with pytest.raises(NotAllowed):
        connect(broker, virtual_host="nowhere")


def test_amqplain_login(broker):
    with connect(broker, login_method="AMQPLAIN") as connection:
        assert connection.channel().is_open


def test_reconnection_after_a_restart(own_broker, name):
    connection = connect(own_broker, confirm_publish=True)
    channel = connection.channel()
    channel.queue_declare(name, durable=True, auto_delete=False)
    publish(channel, name, "kept", delivery_mode=2)
    own_broker.restart()
    with pytest.raises(connection.connection_errors):
        pump(connection, lambda: False, "the end of the connection")
    with connect(own_broker) as connection:
        channel = connection.channel()
        assert channel.basic_get(name, no_ack=True).body == "kept"
        channel.queue_delete(name)
