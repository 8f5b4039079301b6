# SPDX-License-Identifier: Apache-2.0
"""Streams as pika's users have them in RabbitMQ and LavinMQ, and arguments that are only taken."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pika import BasicProperties

from support.brokers.broker_process import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pika.adapters.blocking_connection import BlockingChannel

    from support.brokers.broker_process import Remote, Served

    Broker = Served | Remote


@pytest.fixture
def channel(broker: Broker) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=5)
        yield channel


def publish(channel: BlockingChannel, exchange: str, key: str, *bodies: str) -> None:
    for body in bodies:
        headers = {"x-stream-filter-value": "odd"} if body in "13579" else {}
        channel.basic_publish(exchange, key, body.encode(), BasicProperties(headers=headers))


def read(channel: BlockingChannel, stream: str, count: int, tag: str = "", **about: Any) -> str:
    """The first so many records that a consumer with these arguments gets."""
    arguments = {f"x-stream-{name.replace('_', '-')}": value for name, value in about.items()}
    found: list[str] = []

    def on_message(_: object, method: Any, __: object, body: bytes) -> None:
        if len(found) < count:
            found.append(body.decode())
            channel.basic_ack(method.delivery_tag)

    tag = channel.basic_consume(stream, on_message, arguments=arguments, consumer_tag=tag or None)
    until(lambda: channel.connection.process_data_events(0.01) or len(found) == count, "records")
    channel.basic_cancel(tag)
    return " ".join(found)


def test_where_a_reader_begins_and_what_it_gets(channel: BlockingChannel, name: str) -> None:
    arguments = {
        "x-queue-type": "stream",
        "x-max-age": "1h",
        "x-max-length-bytes": 1_000_000,
        "x-stream-max-segment-size-bytes": 500_000,
        "x-stream-filter-size-bytes": 32,
        "x-initial-cluster-size": 1,
        "x-queue-leader-locator": "client-local",
    }
    channel.queue_declare(name, durable=True, arguments=arguments)
    publish(channel, "", name, *"012345")
    for offset in ("first", 0, datetime(2001, 1, 1), "1h", -6):  # noqa: DTZ001  # As pika has it.
        assert read(channel, name, 3, offset=offset) == "0 1 2", offset
    assert read(channel, name, 2, offset=4) == "4 5"
    assert read(channel, name, 1, offset=-2) == "4"
    assert read(channel, name, 3, offset="first", filter="odd") == "1 3 5"
    both = read(channel, name, 6, offset="first", filter="odd", match_unfiltered=True)
    assert both == "0 1 2 3 4 5"
    assert read(channel, name, 3, offset=0, filter=["even"], match_unfiltered=True) == "0 2 4"
    channel.queue_delete(name)


def test_a_reader_is_remembered_by_its_tag(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    publish(channel, "", name, *"012345")
    tracked = {"automatic_offset_tracking": True}
    assert read(channel, name, 2, tag=name, offset="first", **tracked) == "0 1"
    assert read(channel, name, 3, tag=name, **tracked) == "2 3 4"
    channel.queue_delete(name)


def test_a_super_stream(channel: BlockingChannel, name: str) -> None:
    partitions = {"x-partitions": 2}
    channel.exchange_declare(name, "x-super-stream", durable=True, arguments=partitions)
    publish(channel, name, "one key", "0", "2", "4")
    streams = [f"{name}-{number}" for number in range(2)]
    counts = [channel.queue_declare(s, passive=True).method.message_count for s in streams]
    assert sorted(counts) == [0, 3]
    assert read(channel, streams[counts.index(3)], 3, offset="first") == "0 2 4"
    channel.exchange_delete(name)
    for stream in streams:
        channel.queue_delete(stream)


def test_arguments_about_several_machines_are_taken(channel: BlockingChannel, name: str) -> None:
    arguments = {
        "x-queue-type": "classic",
        "x-queue-mode": "lazy",
        "x-queue-version": 2,
        "x-queue-master-locator": "min-masters",
        "x-consumer-disconnected-timeout": 1000,
        "x-max-in-memory-length": 1,
    }
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    publish(channel, "", name, "0", "2")
    assert [channel.basic_get(name, auto_ack=True)[2] for _ in range(3)] == [b"0", b"2", None]
