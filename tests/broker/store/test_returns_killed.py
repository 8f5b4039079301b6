# SPDX-License-Identifier: Apache-2.0
"""Requeued messages and delayed retries, over stops and kill -9 of the real process."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

from headrace.client import Message, blocking
from support.brokers.broker_process import Served, until

if TYPE_CHECKING:
    from headrace.client.blocking import Delivery

VERSIONS = ("0-9-1", "0-10", "0-9", "0-8")
LIMIT = 2
WAIT_MS = 2500
POISON: dict[str, Any] = {
    "x-delivery-limit": LIMIT,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "dead",
}


def channel_to(broker: Served, version: str = "0-9-1") -> blocking.Channel:
    return blocking.connect(f"{broker.url}?version={version}", reconnect=None).channel()


def settle(channel: blocking.Channel) -> None:
    """Once this is confirmed, so is all that the journal was told before."""
    channel.publish(Message(b"", persistent=True), "other")


def take(channel: blocking.Channel, queue: str) -> Delivery:
    delivery = channel.get(queue)
    assert delivery is not None
    return delivery


def test_a_poison_message_dies_whatever_becomes_of_the_broker(durable: Served) -> None:
    """A delivery without a settlement before the broker is killed counts as a return."""
    channel = channel_to(durable)
    for queue in ("dead", "other"):
        channel.declare_queue(queue, durable=True)
    channel.declare_queue("q", durable=True, arguments=POISON)
    channel.publish(Message(b"poison", persistent=True), "q")
    for count in range(LIMIT + 1):
        channel = channel_to(durable, VERSIONS[count])
        delivery = take(channel, "q")
        assert delivery.redelivered == (count > 0)
        assert (delivery.headers or {}).get("x-delivery-count", 0) == count
        settle(channel)
        durable.restart(signal.SIGTERM if count == 1 else signal.SIGKILL)
    channel = channel_to(durable, VERSIONS[LIMIT + 1])
    until(lambda: channel.declare_queue("dead", passive=True).message_count == 1, "it is dead")
    assert channel.get("q") is None
    death = (take(channel, "dead").headers or {})["x-first-death-reason"]
    assert death == "delivery_limit"


def test_what_waits_for_its_next_try_waits_over_a_kill(durable: Served) -> None:
    channel = channel_to(durable)
    channel.declare_queue("other", durable=True)
    for queue, wait_ms in (("soon", WAIT_MS), ("late", 3_600_000)):
        arguments = {"x-delayed-retry-min": wait_ms, "x-delivery-limit": 9}
        channel.declare_queue(queue, durable=True, arguments=arguments)
        channel.publish(Message(queue.encode(), persistent=True), queue)
    returned = time.time()
    for queue in ("soon", "late"):
        take(channel, queue).reject(requeue=True)
    settle(channel)
    for how in (signal.SIGKILL, signal.SIGTERM):
        durable.restart(how)
    channel = channel_to(durable)
    delivery = until(lambda: channel.get("soon"), "it is ready")
    assert delivery is not None
    assert time.time() - returned > WAIT_MS / 1000 - 0.1
    assert (delivery.headers or {})["x-delivery-count"] == 1
    assert channel.get("late") is None


def test_an_undelivered_dead_letter_stays_one_over_a_kill(durable: Served) -> None:
    """It is not ready again in the meantime, and it is told what it died of."""
    channel = channel_to(durable)
    channel.declare_queue("other", durable=True)
    insistent = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    channel.declare_queue("q", durable=True, arguments=insistent)
    channel.publish(Message(b"letter", persistent=True), "q")
    take(channel, "q").reject(requeue=False)
    settle(channel)
    durable.restart(signal.SIGKILL)
    channel = channel_to(durable)
    assert channel.get("q") is None
    channel.declare_queue("dead", durable=True)
    letter = until(lambda: channel.get("dead"), "it arrived")
    assert letter is not None
    assert letter.body == b"letter"
    assert [death["reason"] for death in (letter.headers or {})["x-death"]] == ["rejected"]
