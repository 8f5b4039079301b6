# SPDX-License-Identifier: Apache-2.0
"""Disks without room, and disks that rot."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import pika
import pytest
from pika.exceptions import AMQPError

from headrace.testing.broker import ChildBroker
from patience import PATIENCE_S
from serving import until

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
