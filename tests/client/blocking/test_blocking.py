# SPDX-License-Identifier: Apache-2.0
"""The blocking client has the calls of the asyncio client, and works from threads."""

from __future__ import annotations

import inspect
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from headrace.client import (
    ConnectFailed,
    ConnectionClosed,
    ConsumerCancelled,
    Lost,
    Message,
    NotFound,
    Reconnect,
    Recovered,
    Returned,
    UsageError,
    blocking,
    blocking_pipeline,
    blocking_publisher,
    groups,
    lease,
    publisher,
    requests,
    staging,
)
from headrace.client.blocking import Confirmation, connect
from headrace.client.blocking import bulk as blocking_bulk
from headrace.client.bulk import publisher as bulk
from headrace.client.channel import channel, consumer, delivery
from headrace.client.connection import connection
from headrace.client.session import session, subscription
from headrace.client.stream import stream
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client import Event
    from headrace.testing import LocalBroker

    Name = Callable[[str], str]

STREAM = {"x-queue-type": "stream"}


TWINS = [
    (blocking.Channel, channel.Channel),
    (blocking.Connection, connection.Connection),
    (blocking.Consumer, consumer.Consumer),
    (blocking.Delivery, delivery.Delivery),
    (blocking.Session, session.Session),
    (blocking.Stream, stream.Stream),
    (blocking.Subscription, subscription.Subscription),
    (blocking_bulk.BulkPublisher, bulk.BulkPublisher),
    (blocking_pipeline.Groups, groups.Groups),
    (blocking_pipeline.Lease, lease.Lease),
    (blocking_pipeline.Requests, requests.Requests),
    (blocking_pipeline.Sink, staging.Sink),
    (blocking_pipeline.Stage, staging.Stage),
    (blocking_publisher.Publisher, publisher.Publisher),
]
DIFFERENT = {
    "Connection.channel": "a channel of 0-9 cannot be resumed here",
    "Consumer.receive": "a timeout in place of asyncio's",
    "Publisher.publish_many": "no asynchronous iterables",
    "Channel.publish_many": "no asynchronous iterables",
}


@pytest.mark.parametrize(("blocks", "awaits"), TWINS, ids=lambda one: str(one.__name__))
def test_each_call_is_that_of_the_asyncio_client(blocks: type, awaits: type) -> None:
    """The parameters have the same names, order, kinds, defaults and types."""
    for name, twin in vars(blocks).items():
        other = getattr(awaits, name, None)
        if name.startswith("_") or not (inspect.isfunction(twin) and inspect.isfunction(other)):
            continue
        blocking_parameters = list(inspect.signature(twin).parameters.values())
        asyncio_parameters = list(inspect.signature(other).parameters.values())
        assert (blocking_parameters == asyncio_parameters) is (
            f"{blocks.__name__}.{name}" not in DIFFERENT
        ), (name, blocking_parameters, asyncio_parameters)


def test_publish_get_and_settle(url: str, name: Name) -> None:
    queue = name("q")
    with connect(url, timeout_s=PATIENCE_S) as connection, connection.channel() as channel:
        assert connection.is_ready
        assert channel.number == 1
        assert channel.declare_queue(queue, durable=False, exclusive=True).name == queue
        assert channel.get(queue) is None
        channel.publish(Message(b"a", headers={"n": 1}), queue)
        delivery = channel.get(queue)
        assert delivery is not None
        assert (delivery.body, delivery.headers, delivery.settled) == (b"a", {"n": 1}, False)
        assert delivery.nack()
        with pytest.raises(UsageError, match="settled already"):
            delivery.ack()
        delivery = channel.get(queue)
        assert delivery is not None
        assert delivery.redelivered
        with delivery.process():
            pass
        assert delivery.settled
        channel.publish(b"b", queue)
        delivery = channel.get(queue)
        assert delivery is not None
        with pytest.raises(ZeroDivisionError), delivery.process():
            _ = 1 // 0
        assert channel.get(queue) is None
        assert channel.purge_queue(queue) == 0
        assert channel.delete_queue(queue) == 0
    assert connection.is_closed
    assert channel.is_closed


def test_exchanges_and_bindings(url: str, name: Name) -> None:
    queue, topic, fanout = name("q"), name("topic"), name("fanout")
    with connect(url) as connection, connection.channel() as channel:
        channel.declare_exchange(topic, "topic", durable=False)
        channel.declare_exchange(fanout, "fanout", durable=False)
        channel.declare_queue(queue, exclusive=True, durable=False)
        channel.bind_queue(queue, topic, "a.#")
        channel.bind_exchange(topic, fanout)
        channel.publish("1", "a.b", fanout, mandatory=True)
        channel.unbind_exchange(topic, fanout)
        channel.unbind_queue(queue, topic, "a.#")
        with pytest.raises(Returned):
            channel.publish("2", "a.b", topic, mandatory=True)
        channel.delete_exchange(topic)
        channel.delete_exchange(fanout)


def test_publishing_with_many_in_flight(url: str, name: Name) -> None:
    queue = name("q")
    with connect(url) as connection, connection.channel(unconfirmed_max=100) as channel:
        channel.declare_queue(queue, exclusive=True, durable=False)
        assert channel.publish_many((f"{n}" for n in range(1500)), queue) == 1500
        confirmations = [channel.publish_soon(f"{n}", queue) for n in range(10)]
        for confirmation in confirmations:
            assert isinstance(confirmation, Confirmation)
            confirmation.wait()
            assert confirmation.is_known
        lost = channel.publish_soon("x", name("nowhere"), mandatory=True)
        with pytest.raises(Returned):
            lost.wait()
        with pytest.raises(Returned):
            channel.publish_many(["x"] * 10, name("nowhere"), mandatory=True)
        assert channel.declare_queue(queue, passive=True).message_count == 1510


def test_consume(url: str, name: Name) -> None:
    queue = name("q")
    with connect(url) as connection, connection.channel() as channel:
        channel.declare_queue(queue, exclusive=True, durable=False)
        channel.publish_many((f"{n}" for n in range(1000)), queue)
        numbers = []
        with channel.consume(queue, prefetch=50) as consumer:
            assert consumer.queue == queue
            for delivery in consumer:
                numbers.append(int(delivery.text()))
                assert delivery.ack()
                if len(numbers) == 990:
                    break
        assert numbers == list(range(990))
        assert list(consumer) == []
        with pytest.raises(UsageError):
            consumer.receive()
        # Buffered messages were requeued, at their positions.
        with channel.consume(queue, prefetch=50) as consumer:
            rest = [consumer.receive(PATIENCE_S).text() for _ in range(10)]
            assert rest == [f"{n}" for n in range(990, 1000)]
            with pytest.raises(TimeoutError):
                consumer.receive(0.05)


def test_a_consumer_learns_that_its_queue_is_gone(url: str, name: Name) -> None:
    with connect(url) as connection, connection.channel() as channel:
        channel.declare_queue(name("q"))
        with channel.consume(name("q")) as consumer:
            channel.delete_queue(name("q"))
            with pytest.raises(ConsumerCancelled):
                consumer.receive()
    with connect(url) as connection:
        channel = connection.channel()
        with pytest.raises(NotFound), channel.consume(name("missing")):
            pass


def test_transactions(url: str, name: Name) -> None:
    queue = name("q")
    with connect(url) as connection, connection.channel() as channel:
        channel.declare_queue(queue, exclusive=True, durable=False)
        with pytest.raises(ZeroDivisionError), channel.transaction():  # noqa: PT012
            channel.publish("a", queue)
            _ = 1 // 0
        with channel.transaction() as transaction:
            channel.publish("b", queue)
        assert transaction.returned == []
        assert channel.declare_queue(queue, passive=True).message_count == 1


def test_qos_and_recover(url: str, name: Name) -> None:
    queue = name("q")
    with connect(url) as connection, connection.channel() as channel:
        channel.declare_queue(queue, exclusive=True, durable=False)
        channel.qos(1)
        channel.publish_many(["a", "b"], queue)
        with channel.consume(queue, prefetch=0) as consumer:
            assert consumer.receive().text() == "a"
            with pytest.raises(TimeoutError):
                consumer.receive(0.05)
            channel.recover()
            assert consumer.receive().redelivered


def test_streams(url: str, name: Name) -> None:
    with connect(url) as connection:
        with connection.channel() as channel:
            channel.declare_queue(name("s"), arguments=STREAM)
            channel.publish_many((f"{n}" for n in range(120)), name("s"))
        stream = connection.stream(name("s"))
        assert stream.name == name("s")
        first, last = stream.first_offset(), stream.last_offset()
        assert (first, last) == (0, 120)
        bodies = [record.body for batch in stream.read(20, last) for record in batch]
        assert bodies == [b"%d" % n for n in range(20, 120)]
        assert stream.offset_at(datetime.now(UTC) - timedelta(minutes=1)) == 0
        reading = stream.read(0, 120, batch_max=10)
        assert len(next(iter(reading))) <= 10
        reading.close()  # type: ignore[attr-defined]


def test_timeouts(url: str, name: Name) -> None:
    with connect(url) as connection, connection.channel() as channel:
        channel.declare_queue(name("s"), arguments=STREAM)
    with connect(url, timeout_s=0.1) as connection:
        with pytest.raises(TimeoutError, match=r"0.1 s"):
            list(connection.stream(name("s")).read(0, 1))
    with pytest.raises(ConnectFailed):
        connect("amqp://broker.invalid")


def test_many_threads_share_a_connection(url: str, name: Name) -> None:
    failures: list[BaseException] = []

    with connect(url) as connection:

        def work(number: int) -> None:
            try:
                queue = f"{name('q')}.{number}"
                with connection.channel() as channel:
                    channel.declare_queue(queue, exclusive=True, durable=False)
                    channel.publish_many((f"{n}" for n in range(50)), queue)
                    with channel.consume(queue, prefetch=5) as consumer:
                        for n in range(50):
                            delivery = consumer.receive(PATIENCE_S)
                            assert delivery.text() == f"{n}"
                            delivery.ack()
            except BaseException as error:  # noqa: BLE001
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert failures == []


def test_a_callback_must_not_block(headrace_broker: LocalBroker) -> None:
    caught: list[BaseException] = []
    called = threading.Event()

    def on_event(event: Event) -> None:
        try:
            connection.channel()  # type: ignore[attr-defined]
        except UsageError as error:
            caught.append(error)
        called.set()

    connection = connect(headrace_broker.url, on_event=on_event, reconnect=None)
    headrace_broker.stop()
    assert called.wait(PATIENCE_S)
    assert "callback" in str(caught[0])
    with pytest.raises(ConnectionClosed, match="320"):
        connection.channel()
    connection.close()


def test_reconnection(headrace_durable_broker: LocalBroker) -> None:
    events: list[Event] = []
    recovered = threading.Event()

    def on_event(event: Event) -> None:
        events.append(event)
        if isinstance(event, Recovered):
            recovered.set()

    reconnect = Reconnect(delay_s=0.01, delay_max_s=0.1)
    with connect(headrace_durable_broker.url, reconnect=reconnect, on_event=on_event) as connection:
        channel = connection.channel()
        channel.declare_queue("q")
        channel.publish_many(["a", "b", "c"], "q")
        with channel.consume("q", prefetch=10) as consumer:
            assert consumer.receive().ack()
            stale = consumer.receive()
            # An ack is not confirmed, so let the broker have it before it goes.
            while channel.declare_queue("q", passive=True).message_count:
                time.sleep(0)
            headrace_durable_broker.restart()
            assert recovered.wait(PATIENCE_S)
            connection.wait_ready()
            assert not stale.ack()
            redelivered = [consumer.receive(PATIENCE_S), consumer.receive(PATIENCE_S)]
            assert [delivery.text() for delivery in redelivered] == ["b", "c"]
            assert all(delivery.ack() for delivery in redelivered)
            channel.publish("d", "q")
            assert consumer.receive(PATIENCE_S).text() == "d"
    assert isinstance(events[0], Lost)
    assert isinstance(events[1], Recovered)


def test_a_forked_child_has_a_client_of_its_own(url: str, name: Name) -> None:
    queue = name("q")
    with connect(url) as connection, connection.channel() as channel:
        channel.declare_queue(queue, durable=False)
        child = os.fork()
        if child == 0:  # The exit status is the result of the child.
            status = 1
            try:
                with connect(url, timeout_s=PATIENCE_S) as own, own.channel() as other:
                    other.publish("from the child", queue)
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        delivery = channel.get(queue)
        assert delivery is not None
        assert delivery.text() == "from the child"
        channel.delete_queue(queue)
