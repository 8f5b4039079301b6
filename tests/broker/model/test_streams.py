# SPDX-License-Identifier: Apache-2.0
"""Streams over real sockets, with pika, on disk."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions
import pytest

from support.brokers.broker_process import until
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pika.adapters.blocking_connection import BlockingChannel

    from headrace.testing.broker import ChildBroker

STREAM = {"x-queue-type": "stream"}
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@contextlib.contextmanager
def channel_to(broker: ChildBroker) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def publish(broker: ChildBroker, name: str, bodies: list[bytes], **arguments: Any) -> None:
    with channel_to(broker) as channel:
        channel.queue_declare(name, durable=True, arguments={**STREAM, **arguments})
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", name, body, PERSISTENT)


def read(
    broker: ChildBroker, name: str, offset: Any, count: int, prefetch: int = 20
) -> list[tuple[int, bytes]]:
    """Read so many messages and acknowledge them; each with its offset."""
    records: list[tuple[int, bytes]] = []
    with channel_to(broker) as channel:
        channel.basic_qos(prefetch_count=prefetch)
        arguments = {"x-stream-offset": offset}
        for method, properties, body in channel.consume(
            name, arguments=arguments, inactivity_timeout=PATIENCE_S
        ):
            assert method is not None, f"only {len(records)} of {count} messages came"
            records.append((properties.headers["x-stream-offset"], body))
            channel.basic_ack(method.delivery_tag)
            if len(records) == count:
                return records
    return records


def test_many_readers_get_the_same_octets_from_any_offset(headrace_process: ChildBroker) -> None:
    bodies = [b"%d:" % number + bytes(number) for number in range(120)]
    bodies[60] = bytes(range(256)) * 2000
    publish(headrace_process, "s", bodies, **{"x-stream-max-segment-size-bytes": 65536})
    expected = list(enumerate(bodies))
    assert read(headrace_process, "s", "first", 120) == expected
    assert read(headrace_process, "s", 0, 120, prefetch=1) == expected
    assert read(headrace_process, "s", 59, 5) == expected[59:64]
    assert read(headrace_process, "s", "last", 1) == expected[119:]


def test_a_stream_survives_kill_and_stop_with_its_offsets(headrace_process: ChildBroker) -> None:
    publish(headrace_process, "s", [b"one", b"two"])
    headrace_process.kill()
    headrace_process.start()
    publish(headrace_process, "s", [b"three"])
    headrace_process.restart()
    publish(headrace_process, "s", [b"four"])
    expected = [(0, b"one"), (1, b"two"), (2, b"three"), (3, b"four")]
    assert read(headrace_process, "s", "first", 4) == expected


def test_next_gives_only_what_comes(headrace_process: ChildBroker) -> None:
    publish(headrace_process, "s", [b"before"])
    with channel_to(headrace_process) as channel:
        channel.basic_qos(prefetch_count=10)
        bodies: list[bytes] = []
        channel.basic_consume("s", lambda c, m, p, body: bodies.append(body))
        publish(headrace_process, "s", [b"after"])
        deadline = time.monotonic() + PATIENCE_S
        while not bodies and time.monotonic() < deadline:
            channel.connection.process_data_events(0.1)
        assert bodies == [b"after"]


def test_a_time_and_an_interval_begin_where_they_say(headrace_process: ChildBroker) -> None:
    publish(headrace_process, "s", [b"old"])
    second = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    while datetime.now(UTC) < second:  # AMQP timestamps count whole seconds.
        time.sleep(0.01)
    publish(headrace_process, "s", [b"new"])
    moment = second.replace(tzinfo=None)
    assert read(headrace_process, "s", moment, 1) == [(1, b"new")]
    assert read(headrace_process, "s", "1h", 2) == [(0, b"old"), (1, b"new")]
    assert read(headrace_process, "s", "9999999999Y", 1) == [(0, b"old")]


def test_prefetch_is_credit(headrace_process: ChildBroker) -> None:
    publish(headrace_process, "s", [b"%d" % number for number in range(10)])
    with channel_to(headrace_process) as channel:
        channel.basic_qos(prefetch_count=3)
        tags: list[int] = []
        channel.basic_consume(
            "s",
            lambda c, method, p, body: tags.append(method.delivery_tag),
            arguments={"x-stream-offset": "first"},
        )
        channel.queue_declare("s", passive=True)  # Everything sent before is here by now.
        channel.connection.process_data_events(0)
        deadline = time.monotonic() + PATIENCE_S
        while len(tags) < 3 and time.monotonic() < deadline:
            channel.connection.process_data_events(0.1)
        assert tags == [1, 2, 3]
        channel.basic_ack(2, multiple=True)
        while len(tags) < 5 and time.monotonic() < deadline:
            channel.connection.process_data_events(0.1)
        assert tags == [1, 2, 3, 4, 5]


def test_a_consumer_may_ask_to_be_told_that_its_offset_is_gone(
    headrace_process: ChildBroker,
) -> None:
    publish(headrace_process, "s", [bytes(20_000)] * 200, **{"x-max-length-bytes": 800_000})
    first = until(lambda: read(headrace_process, "s", 0, 1)[0][0], "the first ones go")
    assert first < 200
    with channel_to(headrace_process) as channel:
        channel.basic_qos(prefetch_count=1)
        arguments = {"x-stream-offset": 0, "x-stream-offset-error": True}
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.basic_consume("s", lambda *_: None, arguments=arguments)
    assert caught.value.reply_code == 404
    assert "offset 0 is gone from stream 's' in vhost '/'" in caught.value.reply_text


def test_a_deleted_stream_begins_anew(headrace_process: ChildBroker) -> None:
    publish(headrace_process, "s", [b"gone"])
    with channel_to(headrace_process) as channel:
        channel.queue_delete("s")
    publish(headrace_process, "s", [b"here"])
    headrace_process.restart()
    assert read(headrace_process, "s", "first", 1) == [(0, b"here")]
