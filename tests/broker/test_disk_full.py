# SPDX-License-Identifier: Apache-2.0
"""A disk without room: publishers hear of it, and nothing is confirmed that is not kept."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pika
import pytest

from headrace.testing.broker import ChildBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALL_THERE_IS = 1 << 49  # No disk here has that much free.


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ChildBroker]:
    with ChildBroker(tmp_path / "data", "--disk-free-min", str(ALL_THERE_IS)) as broker:
        yield broker


def test_a_publisher_is_blocked_with_the_reason(broker: ChildBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    reasons: list[str] = []
    connection.add_on_connection_blocked_callback(
        lambda _, frame: reasons.append(frame.method.reason)
    )
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.basic_publish("", "q", b"kept or not", pika.BasicProperties(delivery_mode=2))
    deadline = time.monotonic() + 20
    while not reasons and time.monotonic() < deadline:
        connection.process_data_events(0.1)
    assert reasons == ["low on disk"]


def test_who_does_not_publish_is_served(broker: ChildBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("q")
    for _ in range(20):
        assert channel.basic_get("q", auto_ack=True) == (None, None, None)
    connection.close()
