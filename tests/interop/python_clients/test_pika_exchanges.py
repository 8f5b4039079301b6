# SPDX-License-Identifier: Apache-2.0
"""Exchange types of RabbitMQ's plugins, as pika's users declare them; and what survives a kill."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pika
import pytest
from pika import BasicProperties

from headrace.testing.broker import ChildBroker
from support.brokers.broker_process import until

if TYPE_CHECKING:
    from pathlib import Path

    from pika.adapters.blocking_connection import BlockingChannel

    from support.brokers.broker_process import Remote, Served

    Broker = Served | Remote


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


@pytest.mark.parametrize("by", [{}, {"hash-header": "who"}, {"hash-property": "message_id"}])
def test_a_consistent_hash_keeps_keys_together(
    broker: Broker, name: str, by: dict[str, str]
) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(name, "x-consistent-hash", auto_delete=True, arguments=by)
        queues = [f"{name}-{number}" for number in range(3)]
        for queue in queues:
            channel.queue_declare(queue, exclusive=True)
            channel.queue_bind(queue, name, "10")
        channel.confirm_delivery()
        for number in range(90):
            key = f"k{number % 30}"
            named = BasicProperties(headers={"who": key}, message_id=key)
            channel.basic_publish(name, "same" if by else key, key.encode(), named)
        found = [bodies(channel, queue) for queue in queues]
        assert sum(map(len, found)) == 90
        assert all(found)
        assert not set(found[0]) & set(found[1]) | set(found[1]) & set(found[2])
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.queue_bind(queues[0], name, "0")
        assert caught.value.reply_code == 406


@pytest.mark.parametrize("kind", ["x-random", "x-local-random", "x-modulus-hash"])
def test_exchanges_that_choose_one_binding(broker: Broker, name: str, kind: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(name, kind, auto_delete=True)
        queues = [f"{name}-{number}" for number in range(3)]
        for queue in queues:
            channel.queue_declare(queue, exclusive=True)
            channel.queue_bind(queue, name, "")
        channel.confirm_delivery()
        for number in range(90):
            channel.basic_publish(name, f"k{number}", b"%d" % number, mandatory=True)
        found = [bodies(channel, queue) for queue in queues]
        assert all(found)
        assert sorted(int(body) for some in found for body in some) == list(range(90))


def test_a_single_active_consumer_and_its_successor(broker: Broker, name: str) -> None:
    with (
        pika.BlockingConnection(pika.URLParameters(broker.url)) as first,
        pika.BlockingConnection(pika.URLParameters(broker.url)) as second,
    ):
        got: list[tuple[str, bytes]] = []
        channels = {}
        for tag, connection in (("first", first), ("second", second)):
            channel = channels[tag] = connection.channel()
            channel.queue_declare(name, arguments={"x-single-active-consumer": True})
            channel.basic_consume(
                name, lambda c, m, p, body: got.append((m.consumer_tag, body)), True, False, tag
            )
        for body in (b"1", b"2"):
            channels["second"].basic_publish("", name, body)
        until(lambda: first.process_data_events(0.01) or len(got) == 2, "both")
        channels["first"].close()
        channels["second"].basic_publish("", name, b"3")
        until(lambda: second.process_data_events(0.01) or len(got) == 3, "the third")
        assert got == [("first", b"1"), ("first", b"2"), ("second", b"3")]
        channels["second"].queue_delete(name)


@pytest.fixture
def child(tmp_path: Path) -> ChildBroker:
    return ChildBroker(tmp_path / "data")


def test_history_numbers_and_ids_survive_a_kill(child: ChildBroker) -> None:
    lasting = BasicProperties(delivery_mode=2)
    with child:
        connection = pika.BlockingConnection(pika.URLParameters(child.url))
        channel = connection.channel()
        channel.confirm_delivery()
        history = {"x-recent-history-length": 2}
        channel.exchange_declare("history", "x-recent-history", durable=True, arguments=history)
        ids = {"x-message-deduplication": True, "qpid.msg_sequence": 1}
        channel.exchange_declare("once", "fanout", durable=True, arguments=ids)
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "once")
        held = {"x-message-deduplication": True}
        channel.queue_declare("held", durable=True, arguments=held)
        kept = {"x-message-deduplication": True, "x-cache-size": 10}
        channel.queue_declare("remembers", durable=True, arguments=kept)
        named = BasicProperties(delivery_mode=2, headers={"x-deduplication-header": "a"})
        for queue in ("held", "remembers"):
            channel.basic_publish("", queue, b"first", named)
        assert bodies(channel, "remembers") == [b"first"]
        for number in range(3):
            channel.basic_publish("history", "", b"%d" % number, lasting)
            channel.basic_publish(
                "once",
                "",
                b"%d" % number,
                BasicProperties(delivery_mode=2, headers={"x-deduplication-header": number}),
            )
        child.kill()
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()
        child.start()
        connection = pika.BlockingConnection(pika.URLParameters(child.url))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("late", durable=True)
        channel.queue_bind("late", "history")
        assert bodies(channel, "late") == [b"1", b"2"]
        for queue in ("held", "remembers"):
            channel.basic_publish("", queue, b"again", named)
        assert bodies(channel, "held") == [b"first"]
        assert bodies(channel, "remembers") == []
        for number in range(4):
            channel.basic_publish(
                "once",
                "",
                b"again %d" % number,
                BasicProperties(delivery_mode=2, headers={"x-deduplication-header": number}),
            )
        numbers, found = [], []
        while (got := channel.basic_get("q", auto_ack=True))[0] is not None:
            numbers.append(got[1].headers["qpid.msg_sequence"])
            found.append(got[2])
        assert found == [b"0", b"1", b"2", b"again 3"]
        assert numbers[:3] == [1, 2, 3]
        assert numbers[3] > 3
        connection.close()
