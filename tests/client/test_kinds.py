# SPDX-License-Identifier: Apache-2.0
"""Qpid's kinds of queue over every version, and over a broker that is killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Message, blocking
from headrace.client.errors import ClientError
from headrace.testing.broker import ChildBroker, LocalBroker
from support.clients.client_fixtures import channel_of
from support.timeouts import PATIENCE_S

VERSIONS = ["0-8", "0-9", "0-9-1", "0-10"]
every = pytest.mark.parametrize("version", VERSIONS)

LAST_VALUE = {"qpid.last_value_queue_key": "k"}
SORTED = {"qpid.queue_sort_key": "k"}
SHARED: dict[str, Any] = {"qpid.group_header_key": "k", "qpid.shared_msg_group": 1}
FAIR = {"qpid.priorities": 10, "qpid.fairshare": 1}


def make_message(body: str, priority: int | None = None, **headers: Any) -> Message:
    return Message(body.encode(), headers=headers, priority=priority)


def bodies(channel: blocking.Channel, queue: str) -> list[str]:
    received = []
    while (delivery := channel.get(queue)) is not None:
        received.append(delivery.body.decode())
        delivery.ack()
    return received


@every
def test_the_order_of_each_kind(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str]
) -> None:
    with channel_of(f"{headrace_broker.url}?version={version}") as channel:
        lvq, by_key, fair = name("lvq"), name("sorted"), name("fair")
        channel.declare_queue(lvq, arguments=LAST_VALUE)
        channel.declare_queue(by_key, arguments=SORTED)
        channel.declare_queue(fair, arguments=FAIR)
        for body in ("b1", "a1", "c1", "a2"):
            channel.publish(make_message(body, k=body[0]), lvq)
            channel.publish(make_message(body, k=body[0]), by_key)
        for priority in (1, 1, 9, 9):
            channel.publish(make_message(str(priority), priority), fair)
        assert bodies(channel, lvq) == ["b1", "c1", "a2"]
        assert bodies(channel, by_key) == ["a1", "a2", "b1", "c1"]
        assert bodies(channel, fair) == ["9", "1", "9", "1"]


@every
def test_a_shared_group_is_with_one_consumer_at_a_time(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str]
) -> None:
    queue = name()
    with channel_of(f"{headrace_broker.url}?version={version}") as channel:
        channel.declare_queue(queue, arguments=SHARED)
        for body in ("a1", "a2", "b1"):
            channel.publish(make_message(body, k=body[0]), queue)
        first, second = channel.get(queue), channel.get(queue)
        assert first is not None
        assert second is not None
        assert (first.body, second.body) == (b"a1", b"b1")
        assert channel.get(queue) is None
        first.ack()
        assert bodies(channel, queue) == ["a2"]
        second.nack(requeue=True)
        assert bodies(channel, queue) == ["b1"]


@every
def test_an_exclusive_group_stays_with_its_consumer(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str]
) -> None:
    queue = name()
    with (
        blocking.connect(f"{headrace_broker.url}?version={version}") as connection,
        connection.channel() as channel,
        connection.channel() as other,
    ):
        channel.declare_queue(queue, arguments={"qpid.group_header_key": "k"})
        with channel.consume(queue, prefetch=1) as one, other.consume(queue, prefetch=1) as two:
            for body in ("a1", "b1", "a2", "b2"):
                channel.publish(make_message(body, k=body[0]), queue)
            received = {}
            for consumer in (one, two):
                delivery = consumer.receive(PATIENCE_S)
                delivery.ack()
                after = consumer.receive(PATIENCE_S)
                received[delivery.body] = after.body
                after.ack()
            assert received == {b"a1": b"a2", b"b1": b"b2"}


@every
def test_a_message_waits_for_its_time_and_others_pass(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str]
) -> None:
    queue = name()
    with channel_of(f"{headrace_broker.url}?version={version}") as channel:
        channel.declare_queue(queue, arguments={"holdOnPublishEnabled": True})
        due_ms = int(time.time() * 1000) + 300
        for body, when_ms in (("never", due_ms + 3_600_000), ("later", due_ms)):
            channel.publish(make_message(body, **{"x-qpid-not-valid-before": when_ms}), queue)
        channel.publish(make_message("now"), queue)
        with channel.consume(queue) as consumer:
            received = {}
            for _ in range(2):  # In this order, unless the machine is too busy.
                delivery = consumer.receive(PATIENCE_S)
                received[delivery.body] = int(time.time() * 1000)
        assert received.keys() == {b"now", b"later"}
        assert received[b"later"] >= due_ms


@every
def test_what_contradicts_is_refused_and_both_are_named(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str]
) -> None:
    with (
        channel_of(f"{headrace_broker.url}?version={version}") as channel,
        pytest.raises(ClientError, match=r"qpid.queue_sort_key.*qpid.last_value_queue_key"),
    ):
        channel.declare_queue(name(), arguments={**LAST_VALUE, **SORTED})


TRANSIENT = ["plain", "large" * 50_000, "copied", "late", "dead", "traced"]


def publish_transient(url: str) -> None:
    """Put messages that are not persistent into a quorum queue, in every version and way."""
    for version in VERSIONS:
        with (
            blocking.connect(f"{url}?version={version}") as connection,
            connection.channel() as channel,
            connection.channel() as other,
        ):
            channel.declare_queue("quorum", arguments={"x-queue-type": "quorum"})
            other.publish(Message(b"plain", persistent=False), "quorum")
            channel.declare_exchange("seen", "fanout", arguments={"qpid.msg_sequence": True})
            channel.bind_queue("quorum", "seen")
            letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "quorum"}
            channel.declare_queue("brief", arguments=letters)
            with channel.transaction():
                for body in TRANSIENT:
                    message = Message(body.encode(), persistent=False)
                    exchange, key = "", "quorum"
                    if body == "copied":
                        key, message.headers = "nowhere", {"CC": ["quorum"]}
                    elif body == "late":
                        message.headers = {"x-delay": 1}
                    elif body == "dead":
                        key, message.expiration = "brief", timedelta(0)
                    elif body == "traced":
                        exchange = "seen"
                    channel.publish(message, key, exchange)
            while channel.declare_queue("quorum", passive=True).message_count % 7:
                time.sleep(0.01)
            with channel.transaction():  # All earlier messages are on disk when it is committed.
                channel.publish("", "brief")


def test_kinds_are_the_same_after_a_kill(tmp_path: Path) -> None:
    due_ms = int(time.time() * 1000) + 3_600_000
    with ChildBroker(tmp_path / "data") as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            channel.declare_queue("lvq", arguments=LAST_VALUE)
            channel.declare_queue("sorted", arguments=SORTED)
            channel.declare_queue("groups", arguments=SHARED)
            channel.declare_queue("later", arguments={"holdOnPublishEnabled": True})
            for body in ("b1", "a1", "a2"):
                for queue in ("lvq", "sorted", "groups"):
                    channel.publish(make_message(body, k=body[0]), queue)
            channel.publish(make_message("later", **{"x-qpid-not-valid-before": due_ms}), "later")
            channel.publish(make_message("now"), "later")
        publish_transient(broker.url)
        broker.kill()
        broker.start()
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            assert bodies(channel, "lvq") == ["b1", "a2"]
            assert bodies(channel, "sorted") == ["a1", "a2", "b1"]
            assert bodies(channel, "later") == ["now"]
            deliveries = channel.get("groups"), channel.get("groups")
            assert [delivery and delivery.body for delivery in deliveries] == [b"b1", b"a1"]
            assert channel.get("groups") is None
            assert sorted(bodies(channel, "quorum")) == sorted(
                [*TRANSIENT, "plain"] * len(VERSIONS)
            )


@every
@pytest.mark.parametrize("argument", ["qpid.browse-only", "qpid.ensure_nondestructive_consumers"])
def test_a_queue_for_browsing_keeps_what_its_consumers_see(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str], argument: str
) -> None:
    queue = name()
    with channel_of(f"{headrace_broker.url}?version={version}") as channel:
        channel.declare_queue(queue, arguments={argument: True})
        channel.publish_many([b"1", b"2"], queue)
        for _ in range(2):
            with channel.consume(queue, prefetch=10) as consumer:
                assert [consumer.receive(PATIENCE_S).body for _ in range(2)] == [b"1", b"2"]
        assert channel.declare_queue(queue, passive=True).message_count == 2
