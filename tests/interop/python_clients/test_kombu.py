# SPDX-License-Identifier: Apache-2.0
"""kombu: producers, consumers, its simple queues, its pools and its own reconnection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kombu
import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue  # type: ignore[attr-defined]
from kombu.mixins import ConsumerProducerMixin
from kombu.pools import producers

from support.brokers.broker_process import until
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def connection(broker) -> Iterator[Connection]:
    with Connection(broker.url, transport_options={"confirm_publish": True}) as connection:
        yield connection


def drain(connection: Connection, done: Callable[[], object], wanted: str) -> None:
    def step() -> object:
        try:
            connection.drain_events(timeout=0.01)
        except TimeoutError:
            pass
        return done()

    until(step, wanted)


def topology(name: str, **options: Any) -> Queue:
    exchange = Exchange(name, "topic", durable=False, auto_delete=True)
    return Queue(name, exchange, routing_key="task.#", durable=False, auto_delete=True, **options)


def test_declared_published_consumed_acknowledged(connection, name):
    queue = topology(name)
    got = []
    with (
        connection.channel() as channel,
        Consumer(channel, queue, accept=["json"], prefetch_count=2) as consumer,
    ):
        consumer.register_callback(lambda body, message: got.append((body, message)))
        producer = Producer(channel, serializer="json", compression="zlib")
        for number in range(4):
            producer.publish(
                {"n": number}, exchange=queue.exchange, routing_key="task.new",
                declare=[queue], delivery_mode=2, headers={"id": str(number)},
            )  # fmt: skip
        drain(connection, lambda: len(got) == 2, "two messages")
        got[0][1].ack()
        got[1][1].requeue()
        drain(connection, lambda: len(got) == 4, "one new and one again")
        assert sorted(body["n"] for body, _ in got) == [0, 1, 1, 2]
        got[2][1].reject()
        got[3][1].ack()
        drain(connection, lambda: len(got) == 5, "the last")
        assert got[4][0] == {"n": 3}


def test_growing_and_shrinking_prefetch_as_the_worker_does(connection, name):
    queue = topology(name)
    with connection.channel() as channel:
        got = []
        consumer = Consumer(channel, queue)
        consumer.qos(prefetch_count=1, apply_global=True)
        consumer.register_callback(lambda body, message: got.append(message))
        consumer.consume()
        producer = Producer(channel)
        for number in range(4):
            producer.publish(str(number), exchange=queue.exchange, routing_key="task.x")
        drain(connection, lambda: len(got) == 1, "one message")
        consumer.qos(prefetch_count=3, apply_global=True)
        drain(connection, lambda: len(got) == 3, "two more without an acknowledgement")
        got[0].ack()
        drain(connection, lambda: len(got) == 4, "the last")


def test_simple_queue(connection):
    with connection.SimpleBuffer("simple-interop") as simple:
        simple.put({"hello": "world"})
        message = simple.get(timeout=PATIENCE_S)
        assert message.payload == {"hello": "world"}
        message.ack()
        with pytest.raises(simple.Empty):
            simple.get_nowait()
    simple.queue(connection.channel()).delete()


def test_message_returned(connection, name):
    returned = []
    with connection.channel() as channel:
        producer = Producer(channel, on_return=lambda *answer: returned.append(answer))
        producer.publish("x", routing_key=name, mandatory=True)
        drain(connection, lambda: returned, "the returned message")
        assert returned[0][0].reply_code == 312


def test_unbind_purge_and_delete(connection, name):
    queue = topology(name)(connection.channel())
    queue.declare()
    producer = Producer(queue.channel)
    producer.publish("x", exchange=queue.exchange, routing_key="task.1")
    assert queue.purge() == 1
    queue.unbind_from(queue.exchange, "task.#")
    queue.delete()
    with pytest.raises(connection.channel_errors):
        queue.queue_declare(passive=True)


def test_priorities_and_expiry_by_queue_options(connection, name):
    queue = topology(name, max_priority=10, message_ttl=60, expires=60, max_length=100)
    with connection.channel() as channel:
        bound = queue(channel)
        bound.declare()
        producer = Producer(channel)
        for priority in (0, 9, 3):
            producer.publish(
                priority, exchange=queue.exchange, routing_key="task.p", priority=priority,
                expiration=60,
            )  # fmt: skip
        assert [bound.get(no_ack=True).payload for _ in range(3)] == [9, 3, 0]


def test_pool_of_producers(connection, name):
    queue = topology(name)
    queue(connection.channel()).declare()
    with producers[connection].acquire(block=True, timeout=PATIENCE_S) as producer:
        producer.publish("pooled", exchange=queue.exchange, routing_key="task.p")
    assert queue(connection.channel()).get(no_ack=True).payload == "pooled"


class Answering(ConsumerProducerMixin):
    """kombu's documented service: it answers questions and survives the loss of its broker."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.queue = Queue(name, durable=True)
        self.got: list[str] = []

    def get_consumers(self, consumer: type[Consumer], channel: object) -> list[Consumer]:
        return [consumer([self.queue], on_message=self.on_message, prefetch_count=1)]

    def on_message(self, message: kombu.Message) -> None:  # type: ignore[name-defined]
        self.got.append(message.payload)
        message.ack()
        if message.payload == "stop":
            self.should_stop = True


def test_mixin_reconnects_after_a_restart(own_broker, name):
    service = Answering(Connection(own_broker.url, heartbeat=10), name)
    restarted = []

    def on_iteration() -> None:
        if service.got == ["first"] and not restarted:
            restarted.append(True)
            own_broker.restart()
            publish("stop")

    def publish(body: str) -> None:
        with Connection(own_broker.url) as connection, connection.channel() as channel:
            service.queue(channel).declare()
            Producer(channel).publish(body, routing_key=name)

    publish("first")
    service.on_iteration = on_iteration  # type: ignore[method-assign]
    service.run()
    assert service.got == ["first", "stop"]
    with Connection(own_broker.url) as connection:
        service.queue(connection.channel()).delete()


def test_ensure_retries_a_publish_through_a_restart(own_broker, name):
    with Connection(own_broker.url, transport_options={"confirm_publish": True}) as connection:
        queue = Queue(name, durable=True)
        producer = Producer(connection, auto_declare=True)
        publish = connection.ensure(
            producer, producer.publish, max_retries=50, interval_start=0.05, interval_max=0.1
        )
        publish("before", routing_key=name, declare=[queue])
        own_broker.restart()
        publish("after", routing_key=name, declare=[queue])
        channel = connection.default_channel
        assert [queue(channel).get(no_ack=True).payload for _ in range(2)] == ["before", "after"]
        queue(channel).delete()
