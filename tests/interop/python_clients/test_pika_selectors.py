# SPDX-License-Identifier: Apache-2.0
"""Selectors and browsing, asked for by pika with nothing but consumer and binding arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions
import pytest
from pika import BasicProperties

from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pika.adapters.blocking_connection import BlockingChannel

    from support.brokers.broker_process import Served

SELECTOR = "x-filter-jms-selector"


@pytest.fixture
def channel(own_broker: Served) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(own_broker.url)) as connection:
        yield connection.channel()


@pytest.fixture
def queue(channel: BlockingChannel, name: str) -> str:
    channel.queue_declare(name, exclusive=True)
    for n in range(6):
        properties = BasicProperties(headers={"n": n}, type="even" if n % 2 == 0 else "odd")
        channel.basic_publish("", name, b"%d" % n, properties)
    return name


def consumed(channel: BlockingChannel, queue: str, arguments: dict[str, Any]) -> list[bytes]:
    """Return the messages until the broker ends the consumer."""
    found = []
    for method, _, body in channel.consume(
        queue, arguments=arguments, inactivity_timeout=PATIENCE_S
    ):
        assert method is not None, "nothing comes, and the consumer does not end"
        assert not method.redelivered
        found.append(body)
        channel.basic_ack(method.delivery_tag)
    return found


def test_a_selector(channel: BlockingChannel, queue: str) -> None:
    arguments = {SELECTOR: "JMSType = 'even' AND n > 0", "x-filter-auto-close": True}
    assert consumed(channel, queue, arguments) == [b"2", b"4"]
    left = [channel.basic_get(queue, auto_ack=True)[2] for _ in range(5)]
    assert left == [b"0", b"1", b"3", b"5", None]


def test_a_browser(channel: BlockingChannel, queue: str) -> None:
    arguments = {"x-filter-no-consume": True, "x-filter-auto-close": True}
    for _ in range(2):
        assert consumed(channel, queue, arguments) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (body, method.redelivered) == (b"0", False)


def test_a_selector_of_a_binding(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, "amq.topic", f"{name}.#", {SELECTOR: "n BETWEEN 2 AND 3"})
    for n in range(6):
        channel.basic_publish(
            "amq.topic", f"{name}.x", b"%d" % n, BasicProperties(headers={"n": n})
        )
    assert [channel.basic_get(name, auto_ack=True)[2] for _ in range(3)] == [b"2", b"3", None]


def test_a_bad_selector_closes_the_channel(channel: BlockingChannel, queue: str) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.basic_consume(queue, print, arguments={SELECTOR: "n > 1 AND AND"})
    assert caught.value.reply_code == 406
    assert caught.value.reply_text == (
        f"PRECONDITION_FAILED - invalid arg '{SELECTOR}' for queue '{queue}' in vhost '/': "
        "invalid selector: unexpected 'AND' at position 11"
    )
