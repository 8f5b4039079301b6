# SPDX-License-Identifier: Apache-2.0
"""Disks without room, and disks that rot."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import pika
import pytest
from pika.exceptions import AMQPError

from headrace.testing.broker import ChildBroker
from support.brokers.broker_process import until
from support.disks.small_disk import fill, small_disk
from support.timeouts import PATIENCE_S

__all__ = ["small_disk"]  # A fixture.

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALL_THERE_IS = 1 << 49  # No disk here has that much free.


opened: list[pika.BlockingConnection] = []


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    """Close what a test opened, and left open."""
    yield
    while opened:
        with contextlib.suppress(AMQPError):  # Its broker is gone.
            opened.pop().close()


def connect(broker: ChildBroker) -> pika.BlockingConnection:
    opened.append(pika.BlockingConnection(pika.URLParameters(broker.url)))
    return opened[-1]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ChildBroker]:
    with ChildBroker(tmp_path / "data", "--disk-free-min", str(ALL_THERE_IS)) as broker:
        yield broker


def test_a_publisher_is_blocked_with_the_reason(broker: ChildBroker) -> None:
    connection = connect(broker)
    reasons: list[str] = []
    connection.add_on_connection_blocked_callback(
        lambda _, frame: reasons.append(frame.method.reason)
    )
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.basic_publish("", "q", b"kept or not", pika.BasicProperties(delivery_mode=2))
    deadline = time.monotonic() + PATIENCE_S
    while not reasons and time.monotonic() < deadline:
        connection.process_data_events(0.1)
    assert reasons == ["low on disk"]


@pytest.mark.parametrize("durable", [True, False])
def test_what_cannot_be_kept_does_not_vanish_unsaid(broker: ChildBroker, durable: bool) -> None:
    other = connect(broker).channel()
    other.queue_declare("q", durable=durable)
    connection = connect(broker)
    channel = connection.channel()
    reasons: list[str] = []
    connection.add_on_connection_blocked_callback(
        lambda _, frame: reasons.append(frame.method.reason)
    )
    closed: list[tuple[int, str]] = []
    channel._impl.add_on_close_callback(
        lambda _, error: closed.append((error.reply_code, error.reply_text))
    )
    channel.basic_publish("", "q", b"asked to keep", pika.BasicProperties(delivery_mode=2))
    deadline = time.monotonic() + PATIENCE_S
    while not reasons and time.monotonic() < deadline:
        connection.process_data_events(0.1)
    assert reasons == ["low on disk"]
    text = "RESOURCE_ERROR - the disk is full; a persistent message was not taken"
    if durable:
        until(lambda: connection.process_data_events(0.01) or closed, "the channel is closed")
    else:
        until(lambda: other.queue_declare("q", passive=True).method.message_count, "it is there")
    assert closed == ([(506, text)] if durable else [])
    assert other.queue_declare("q", passive=True).method.message_count == (not durable)


def test_who_does_not_publish_is_served(broker: ChildBroker) -> None:
    connection = connect(broker)
    channel = connection.channel()
    channel.queue_declare("q")
    for _ in range(20):
        assert channel.basic_get("q", auto_ack=True) == (None, None, None)
    connection.close()


def test_a_damaged_message_costs_itself_alone(tmp_path: Path) -> None:
    with ChildBroker(tmp_path / "data") as broker:
        connection = connect(broker)
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        for number in range(5):
            body = b"body %d " % number * 100
            channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))
        broker.kill()
        (segment,) = tmp_path.glob("data/vhosts/*/journal/*.segment")
        octets = bytearray(segment.read_bytes())
        octets[octets.index(b"body 2 body 2") + 40] ^= 0x10
        segment.write_bytes(octets)
        broker.start()
        connection = connect(broker)
        channel = connection.channel()
        bodies = [channel.basic_get("q", auto_ack=True)[2] for _ in range(5)]
        connection.close()
    assert bodies == [b"body %d " % number * 100 for number in (0, 1, 3, 4)] + [None]
    (aside,) = tmp_path.glob("data/vhosts/*/journal/quarantine/*")
    assert b"body 2 body 2" in aside.read_bytes()


def test_a_disk_without_a_free_octet_is_emptied_by_consuming(small_disk: Path) -> None:
    options = ("--disk-free-min", "0", "--segment-size", "1MiB")
    with ChildBroker(small_disk / "data", *options) as broker:
        channel = connect(broker).channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        for _ in range(300):
            channel.basic_publish("", "q", b"x" * 10_000, persistent)
        fill(small_disk)
        publisher = connect(broker)
        blocked: list[str] = []
        publisher.add_on_connection_blocked_callback(
            lambda _, frame: blocked.append(frame.method.reason)
        )
        publisher.add_on_connection_unblocked_callback(lambda _, frame: blocked.clear())
        publishing = publisher.channel()
        sent = 0
        while not blocked and os.geteuid() == 0:  # Until there is no room but the reserve.
            publishing.basic_publish("", "q", b"y" * 10_000, persistent)
            sent += 1
            publisher.process_data_events(0.02)
            assert sent < 400
        for number in range(300):
            method, _, body = channel.basic_get("q")
            assert method is not None
            assert body == b"x" * 10_000, number
            channel.basic_ack(method.delivery_tag)
        channel.queue_purge("q")
        until(lambda: publisher.process_data_events(0.05) or not blocked, "publishers may go on")
        channel.basic_publish("", "q", b"z", persistent)  # It is confirmed.
        broker.kill()
        broker.start()
        last = connect(broker).channel()
        bodies = [last.basic_get("q", auto_ack=True)[2] for _ in range(2)]
        assert bodies == [b"z", None]


def test_readers_of_a_stream_that_was_cut_get_what_is_left(tmp_path: Path) -> None:
    with ChildBroker(tmp_path / "data") as broker:
        connection = connect(broker)
        channel = connection.channel()
        arguments = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 64 << 10}
        channel.queue_declare("s", durable=True, arguments=arguments)
        channel.confirm_delivery()
        for number in range(40):
            channel.basic_publish("", "s", b"%02d" % number * 2000)
        segments = sorted(tmp_path.glob("data/vhosts/*/streams/*/*.segment"))
        with segments[1].open("r+b") as file:
            file.truncate(10_000)
        for _ in range(2):  # And not one reader alone.
            channel.basic_qos(prefetch_count=100)
            found: list[int] = []
            for method, _, body in channel.consume("s", arguments={"x-stream-offset": "first"}):
                found.append(int(body[:2]))
                channel.basic_ack(method.delivery_tag)
                if found[-1] == 39:
                    break
            channel.cancel()
            assert found == sorted(set(found))
            assert set(range(15)) < set(found)
            assert 1 < 40 - len(found) < 20
        connection.close()
