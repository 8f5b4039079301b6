# SPDX-License-Identifier: Apache-2.0
"""Selectors and browsing consumers, the same in every version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.client import Message, blocking
from headrace.client.errors import ChannelClosed, ClientError, ConsumerCancelled
from headrace.testing.broker import LocalBroker
from support.clients.client_fixtures import channel_of
from support.timeouts import PATIENCE_S

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")
SELECTOR = "x-filter-jms-selector"


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


@pytest.fixture(params=VERSIONS)
def channel(
    shared_broker: LocalBroker, request: pytest.FixtureRequest
) -> Iterator[blocking.Channel]:
    with channel_of(f"{shared_broker.url}?version={request.param}") as channel:
        yield channel


@pytest.fixture
def other(shared_broker: LocalBroker) -> Iterator[blocking.Channel]:
    with blocking.connect(shared_broker.url) as connection, connection.channel() as channel:
        yield channel


@pytest.fixture
def queue(other: blocking.Channel, name: Callable[..., str]) -> str:
    queue = name("orders")
    other.declare_queue(queue)
    return queue


def fill(channel: blocking.Channel, queue: str, count: int, start: int = 0) -> None:
    for n in range(start, start + count):
        colour = ("red", "green", "blue")[n % 3]
        channel.publish_soon(Message(b"%d" % n, headers={"n": n, "colour": colour}), queue)
    channel.publish(b"", "nowhere")


def receive_bodies(consumer: blocking.Consumer, count: int, *, ack: bool = True) -> list[int]:
    received = []
    for _ in range(count):
        delivery = consumer.receive(PATIENCE_S)
        assert not delivery.redelivered
        received.append(int(delivery.body))
        if ack:
            delivery.ack()
    return received


def receive_all(consumer: blocking.Consumer) -> list[int]:
    """Return the messages until the broker ends the consumer."""
    received = []
    try:
        for delivery in consumer:
            assert not delivery.redelivered
            received.append(int(delivery.body))
            delivery.ack()
    except ConsumerCancelled:
        pass
    return received


def remaining_bodies(channel: blocking.Channel, queue: str) -> list[int]:
    received = []
    while (message := channel.get(queue, no_ack=True)) is not None:
        assert not message.redelivered
        received.append(int(message.body))
    return received


@pytest.mark.parametrize("argument", [SELECTOR, "x-apache-selector"])
def test_a_consumer_with_a_selector(
    channel: blocking.Channel, other: blocking.Channel, queue: str, argument: str
) -> None:
    fill(other, queue, 9)
    with channel.consume(queue, arguments={argument: "colour = 'red' AND n < 100"}) as consumer:
        assert receive_bodies(consumer, 3) == [0, 3, 6]
        fill(other, queue, 6, start=9)
        assert receive_bodies(consumer, 2) == [9, 12]
    assert remaining_bodies(other, queue) == [n for n in range(15) if n % 3]


def test_a_selector_sees_all_properties_in_every_version(
    channel: blocking.Channel, other: blocking.Channel, queue: str
) -> None:
    message = Message(
        b"1",
        type="order",
        priority=3,
        persistent=True,
        correlation_id="c-1",
        message_id="m-1",
        reply_to="answers",
        timestamp=datetime.fromtimestamp(1700000000, UTC),
        expiration=timedelta(minutes=10),
        app_id="shop",
        content_type="text/plain",
        headers={"x-tenant": "acme", "deep": {"x": 1}, "price": 2.5},
    )
    text = (
        "JMSType = 'order' AND JMSPriority = 3 AND JMSDeliveryMode = 'PERSISTENT'"
        " AND JMSCorrelationID = 'c-1' AND JMSMessageID = 'm-1' AND JMSReplyTo LIKE '%answers%'"
        " AND JMSTimestamp = 1700000000000 AND JMSExpiration > JMSTimestamp"
        " AND NOT JMSRedelivered AND JMSXDeliveryCount = 1 AND amqp.app_id = 'shop'"
        " AND \"amqp.content-type\" LIKE 'text/%' AND \"x-tenant\" = 'acme' AND deep IS NOT NULL"
        f" AND price * 2 = 5 AND amqp.routing_key = '{queue}' AND qpid.subject = '{queue}'"
        f" AND amqp.exchange = '' AND amqp.to = '{queue}' AND amqp.size = 1 AND JMSXUserID IS NULL"
    )
    channel.publish(message, queue)  # In this version, and chosen in each other,
    for term in text.split(" AND "):
        if term.startswith("JMSMessageID"):
            continue  # A name that is no UUID is another in 0-10.
        with other.consume(queue, arguments={SELECTOR: term, "x-filter-no-consume": True}) as look:
            assert receive_bodies(look, 1) == [1], term
    other.purge_queue(queue)
    other.publish(message, queue)  # and the other way round.
    with channel.consume(queue, arguments={SELECTOR: text}) as consumer:
        assert receive_bodies(consumer, 1) == [1]
    other.publish(Message(b"2", persistent=False), queue)
    bare = "JMSPriority = 4 AND JMSDeliveryMode = 'NON_PERSISTENT' AND JMSType IS NULL"
    with channel.consume(queue, arguments={SELECTOR: bare}) as consumer:
        assert receive_bodies(consumer, 1) == [2]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        # The consumer would acquire messages.
        ({"x-stream-offset": "first"}, "of queue type rabbit_classic_queue"),
        ({"x-stream-filter": "a"}, "of queue type rabbit_classic_queue"),
        ({SELECTOR: "colour = 'red' AND"}, "it ends too early at position 19"),
        ({SELECTOR: "colour ~ 'red'"}, "unexpected '~' at position 8"),
        ({SELECTOR: 7}, "expected a string"),
        (
            {SELECTOR: "a = 1", "x-apache-selector": "a = 2"},
            "another argument has a different selector",
        ),
        ({SELECTOR: "a = " + "1" * 5000}, "5004 characters are more than 4096"),
        ({"x-filter-auto-close": "maybe"}, "expected a boolean"),
    ],
)
def test_a_bad_selector_is_refused_and_nothing_changed(
    channel: blocking.Channel,
    other: blocking.Channel,
    queue: str,
    arguments: dict[str, Any],
    why: str,
) -> None:
    fill(other, queue, 2)
    with pytest.raises(ClientError, match="invalid arg") as caught:
        with channel.consume(queue, arguments=arguments):
            pass
    assert why in str(caught.value)
    if isinstance(caught.value, ChannelClosed):
        assert caught.value.code in (406, 530, 542)
    assert other.declare_queue(queue, passive=True).consumer_count == 0
    assert remaining_bodies(other, queue) == [0, 1]


def test_no_local(channel: blocking.Channel, other: blocking.Channel, queue: str) -> None:
    with channel.consume(queue, arguments={"x-qpid-no-local": True}) as consumer:
        fill(channel, queue, 3)
        fill(other, queue, 3, start=3)
        assert receive_bodies(consumer, 3) == [3, 4, 5]
    assert remaining_bodies(other, queue) == [0, 1, 2]


def test_a_browsing_consumer_takes_nothing(
    channel: blocking.Channel, other: blocking.Channel, queue: str
) -> None:
    fill(other, queue, 5)
    with channel.consume(queue, prefetch=2, arguments={"x-filter-no-consume": True}) as browser:
        assert receive_bodies(browser, 5) == [0, 1, 2, 3, 4]
        fill(other, queue, 2, start=5)
        assert receive_bodies(browser, 2, ack=False) == [5, 6]
        assert other.declare_queue(queue, passive=True).message_count == 7
    assert remaining_bodies(other, queue) == list(range(7))


def test_a_browser_gives_nothing_back_that_it_does_not_have(
    channel: blocking.Channel, other: blocking.Channel, queue: str
) -> None:
    fill(other, queue, 3)
    with channel.consume(queue, arguments={"x-filter-no-consume": True}) as browser:
        deliveries = [browser.receive(PATIENCE_S) for _ in range(3)]
        deliveries[0].reject(requeue=True)
        deliveries[1].reject(requeue=False)
    assert remaining_bodies(other, queue) == [0, 1, 2]


@pytest.mark.parametrize("look", ["x-browse", "x-filter-no-consume"])
def test_browsing_by_property_until_there_is_no_more(
    channel: blocking.Channel, other: blocking.Channel, queue: str, look: str
) -> None:
    fill(other, queue, 1500)
    arguments: dict[str, Any] = {
        look: True,
        "x-filter-auto-close": True,
        SELECTOR: "colour = 'blue' AND n > 700",
    }
    expected = [n for n in range(1500) if n % 3 == 2 and n > 700]
    for _ in range(2):
        with channel.consume(queue, prefetch=50, arguments=arguments) as browser:
            assert receive_all(browser) == expected
    assert other.declare_queue(queue, passive=True).message_count == 1500
    first = other.get(queue)
    assert first is not None
    assert not first.redelivered


@pytest.mark.parametrize("look", ["x-browse", "x-filter-no-consume"])
def test_browsing_from_a_position(
    channel: blocking.Channel, other: blocking.Channel, queue: str, look: str
) -> None:
    fill(other, queue, 10)
    with other.consume(queue, arguments={"x-browse": True}) as all_there:
        positions = {
            int(d.body): int(str(d.headers["x-stream-offset"])) for d in until_end(all_there)
        }
    arguments: dict[str, Any] = {
        look: True,
        "x-filter-auto-close": True,
        "x-stream-offset": positions[6],
    }
    with channel.consume(queue, arguments=arguments) as browser:
        assert receive_all(browser) == [6, 7, 8, 9]


def until_end(consumer: blocking.Consumer) -> Iterator[blocking.Delivery]:
    try:
        for delivery in consumer:
            delivery.ack()
            yield delivery
    except ConsumerCancelled:
        return


def test_a_consumer_that_closes_itself_has_taken_all(
    channel: blocking.Channel, other: blocking.Channel, queue: str
) -> None:
    fill(other, queue, 30)
    arguments: dict[str, Any] = {SELECTOR: "n >= 10", "x-filter-auto-close": True}
    with channel.consume(queue, prefetch=7, arguments=arguments) as consumer:
        assert receive_all(consumer) == list(range(10, 30))
        with pytest.raises(ClientError, match="has received all its messages"):
            consumer.receive()
    assert remaining_bodies(other, queue) == list(range(10))


@pytest.mark.parametrize("kind", ["priority", "stream"])
def test_other_queues_are_browsed_as_well(
    channel: blocking.Channel, other: blocking.Channel, name: Callable[..., str], kind: str
) -> None:
    queue = name(kind)
    queue_arguments = {"x-queue-type": "stream"} if kind == "stream" else {"x-max-priority": 9}
    other.declare_queue(queue, durable=kind == "stream", arguments=queue_arguments)
    for n in range(12):
        other.publish(Message(b"%d" % n, priority=n % 3, headers={"n": n}), queue)
    arguments: dict[str, Any] = {
        "x-filter-no-consume": True,
        "x-filter-auto-close": True,
        SELECTOR: "n > 2",
    }
    with channel.consume(queue, prefetch=5, arguments=arguments) as browser:
        received = receive_all(browser)
    priority = [5, 8, 11, 4, 7, 10, 3, 6, 9]
    assert received == (list(range(3, 12)) if kind == "stream" else priority)
    with channel.consume(queue, prefetch=5, arguments={"x-browse": True}) as browser:
        assert receive_all(browser) == list(range(12))


def test_a_selector_on_a_stream(
    channel: blocking.Channel, other: blocking.Channel, name: Callable[..., str]
) -> None:
    queue = name("stream")
    other.declare_queue(queue, durable=True, arguments={"x-queue-type": "stream"})
    fill(other, queue, 60)
    arguments: dict[str, Any] = {"x-stream-offset": 5, SELECTOR: "colour = 'green' OR n = 59"}
    with channel.consume(queue, prefetch=10, arguments=arguments) as reader:
        expected = [n for n in range(5, 60) if n % 3 == 1 or n == 59]
        assert receive_bodies(reader, len(expected)) == expected
        fill(other, queue, 3, start=60)
        assert receive_bodies(reader, 1) == [61]


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_a_selector_on_a_binding(
    channel: blocking.Channel, other: blocking.Channel, name: Callable[..., str], kind: str
) -> None:
    exchange, plain, chosen = name("exchange"), name("plain"), name("chosen")
    channel.declare_exchange(exchange, kind)
    for queue in (plain, chosen):
        channel.declare_queue(queue)
    key = "a.*.c" if kind == "topic" else "a.b.c"
    also = {"colour": "red"} if kind == "headers" else {}
    channel.bind_queue(plain, exchange, "b", also)
    channel.bind_queue(plain, exchange, key, also)
    channel.bind_queue(chosen, exchange, key, {SELECTOR: "n % 2 = 0 AND JMSPriority > 4", **also})
    for _ in range(2):  # The second publish uses cached routes.
        for publisher in (channel, other):
            for n in range(4):
                message = Message(b"%d" % n, priority=7, headers={"n": n, "colour": "red"})
                publisher.publish(message, exchange=exchange, routing_key="a.b.c")
        assert remaining_bodies(other, plain) == [0, 1, 2, 3] * 2
        assert remaining_bodies(other, chosen) == [0, 2] * 2
    other.publish(Message(b"9", headers={"n": 8, "colour": "red"}), "b", exchange=exchange)
    channel.unbind_queue(chosen, exchange, key, {SELECTOR: "n % 2 = 0 AND JMSPriority > 4", **also})
    other.publish(Message(b"4", priority=7, headers={"n": 4, "colour": "red"}), "a.b.c", exchange)
    assert remaining_bodies(other, chosen) == []


def test_a_bad_selector_on_a_binding(
    channel: blocking.Channel, other: blocking.Channel, queue: str, name: Callable[..., str]
) -> None:
    other.declare_exchange(name("hash"), "x-modulus-hash")
    with pytest.raises(ClientError, match="unexpected '<=' at position 4"):
        channel.bind_queue(queue, "amq.topic", "#", {SELECTOR: "a <<= 1"})
    other.publish(b"x", "any", exchange="amq.topic")
    assert other.get(queue) is None
    with pytest.raises(ClientError, match="no selectors"):
        other.bind_queue(queue, name("hash"), "", {SELECTOR: "a = 1"})


def test_a_flush_of_0_10_waits_until_all_was_looked_at(
    shared_broker: LocalBroker, other: blocking.Channel, queue: str
) -> None:
    fill(other, queue, 2000)
    with (
        blocking.connect(f"{shared_broker.url}?version=0-10") as connection,
        connection.session() as session,
    ):
        arguments: dict[str, Any] = {SELECTOR: "n >= 1998"}
        with session.subscribe(queue, arguments=arguments) as chosen:
            chosen.flow(10)
            chosen.flush()
            received = [chosen.receive_nowait() for _ in range(3)]
        assert [None if each is None else int(each.body) for each in received] == [1998, 1999, None]
        look = {SELECTOR: "n = 1997"}
        with session.subscribe(queue, acquire=False, arguments=look) as browser:
            browser.flow(10)
            browser.flush()
            shown = browser.receive_nowait()
            assert shown is not None
            assert int(shown.body) == 1997
            assert browser.receive_nowait() is None
            assert [int(each.body) for each in session.acquire(shown)] == [1997]


def test_a_flush_ends_when_the_credit_does(
    shared_broker: LocalBroker, other: blocking.Channel, queue: str
) -> None:
    fill(other, queue, 1600)
    with (
        blocking.connect(f"{shared_broker.url}?version=0-10") as connection,
        connection.session() as session,
    ):
        choices: tuple[dict[str, str | bool], ...] = (
            {SELECTOR: "n >= 1500"},
            {SELECTOR: "n >= 1500", "x-browse": True},
            {SELECTOR: "n >= 1500", "x-filter-no-consume": True},
        )
        for arguments in choices:
            with session.subscribe(queue, arguments=arguments) as chosen:
                for _ in range(2):
                    chosen.flow(1)
                    chosen.flush()
                    assert chosen.receive_nowait() is not None
                    assert chosen.receive_nowait() is None


def test_clients_of_qpid_learn_that_the_broker_selects(shared_broker: LocalBroker) -> None:
    with blocking.connect(f"{shared_broker.url}?version=0-10") as connection:
        assert connection.server_properties["qpid.features"] == ["qpid.jms-selector"]
