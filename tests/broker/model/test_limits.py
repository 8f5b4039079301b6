# SPDX-License-Identifier: Apache-2.0
"""Time to live, expiry, length, overflow, dead letters and priorities, over a socket."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from headrace.protocol.codec_0_x import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    QueueDeclare,
    QueueDeclareOk,
)
from headrace.testing.raw_client import method_frame
from support.brokers.broker_process import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

    from headrace.testing.raw_client import RawClient


def declare(channel: BlockingChannel, name: str, **arguments: Any) -> str:
    spelt = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    channel.queue_declare(name, exclusive=True, arguments=spelt)
    return name


def publish(channel: BlockingChannel, queue: str, *bodies: bytes, **properties: Any) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(**properties))


def got(channel: BlockingChannel, queue: str) -> list[bytes]:
    bodies = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body)


def count(channel: BlockingChannel, queue: str) -> int:
    messages: int = channel.queue_declare(queue, passive=True).method.message_count
    return messages


def reject_one(channel: BlockingChannel, queue: str) -> None:
    method, _, _ = channel.basic_get(queue)
    assert method is not None
    channel.basic_reject(method.delivery_tag, requeue=False)


def headers_of(channel: BlockingChannel, queue: str) -> dict[str, Any]:
    method, properties, _ = channel.basic_get(queue, auto_ack=True)
    assert method is not None
    return properties.headers or {}


# --- Time to live -------------------------------------------------------------------------------


def test_an_expired_message_is_not_delivered(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    publish(channel, name, b"gone", expiration="0")
    publish(channel, name, b"stays")
    until(lambda: count(channel, name) == 1, "the first expires")
    assert got(channel, name) == [b"stays"]


def test_expiry_does_not_wait_for_the_head(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    publish(channel, name, b"long", expiration="600000")
    publish(channel, name, b"never")
    publish(channel, name, b"short", expiration="20")
    until(lambda: count(channel, name) == 2, "the one in the rear expires")
    assert got(channel, name) == [b"long", b"never"]


def test_a_queues_time_to_live(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, message_ttl=30)
    publish(channel, name, b"a")
    publish(channel, name, b"b", expiration="600000")  # The shorter of both counts.
    until(lambda: count(channel, name) == 0, "both expire")


def test_an_immediate_message_passes_with_no_time_to_live(
    connection: BlockingConnection, name: str
) -> None:
    channel = connection.channel()
    declare(channel, name, message_ttl=0)
    bodies: list[bytes] = []
    channel.basic_consume(name, lambda *a: bodies.append(a[3]), auto_ack=True)
    publish(channel, name, b"caught")
    until(lambda: connection.process_data_events(0) or bodies, "it is delivered")
    assert bodies == [b"caught"]


def test_an_expired_message_dies_on_time(channel: BlockingChannel, name: str) -> None:
    dead = declare(channel, f"{name}-dead")
    declare(channel, name, dead_letter_exchange="", dead_letter_routing_key=dead)
    started = time.monotonic()
    publish(channel, name, b"x", expiration="200")
    until(lambda: count(channel, dead) == 1, "it is dead-lettered")
    assert time.monotonic() - started >= 0.199  # Not before; how soon after is the machine's.


@pytest.mark.parametrize(
    ("expiration", "wrong"),
    [
        ("", "no_integer"),
        ("x", "no_integer"),
        (" 1", "no_integer"),
        ("٣", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("1.5", '{leftover_string,".5"}'),
        ("315360000001", "{value_too_large,315360000001}"),
    ],
)
def test_a_bad_expiration_is_refused(
    channel: BlockingChannel, name: str, expiration: str, wrong: str
) -> None:
    declare(channel, name)
    publish(channel, name, b"x", expiration=expiration)
    with pytest.raises(ChannelClosedByBroker) as caught:
        count(channel, name)
    assert caught.value.reply_code == 406
    assert caught.value.reply_text == (
        f"PRECONDITION_FAILED - invalid expiration '{expiration}': {wrong}"
    )


def test_an_unused_queue_expires(
    connection: BlockingConnection, talk: Callable[[], RawClient], name: str
) -> None:
    client = talk()
    declaring = QueueDeclare(queue=name, arguments={"x-expires": 40})
    consuming = BasicConsume(queue=name, consumer_tag="tag")
    client.send_bytes(method_frame(1, declaring) + method_frame(1, consuming))  # Without a pause.
    client.expect(QueueDeclareOk)
    client.expect(BasicConsumeOk)
    connection.channel().queue_declare(f"{name}-2", arguments={"x-expires": 40})

    publisher = connection.channel()
    publisher.confirm_delivery()

    def is_gone(queue: str) -> bool:
        """Tried by a publish, for to ask by a passive declaration is to use it."""
        try:
            publisher.basic_publish("", queue, b"", mandatory=True)
        except UnroutableError:
            return True
        return False

    until(lambda: is_gone(f"{name}-2"), "the one without a consumer expires")
    publisher.queue_declare(name, passive=True)
    client.call(BasicCancel(consumer_tag="tag"), BasicCancelOk)
    until(lambda: is_gone(name), "it expires without its consumer")


# --- Length -------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"max_length": 2}, {"max_length_bytes": 7}])
def test_drop_head(channel: BlockingChannel, name: str, limit: dict[str, int]) -> None:
    dead = declare(channel, f"{name}-dead")
    declare(channel, name, dead_letter_exchange="", dead_letter_routing_key=dead, **limit)
    publish(channel, name, b"one", b"two", b"six")
    assert headers_of(channel, dead)["x-death"][0]["reason"] == "maxlen"
    assert got(channel, name) == [b"two", b"six"]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_refuses(channel: BlockingChannel, name: str, overflow: str) -> None:
    dead = declare(channel, f"{name}-dead")
    declare(
        channel,
        name,
        max_length=1,
        overflow=overflow,
        dead_letter_exchange="",
        dead_letter_routing_key=dead,
    )
    channel.confirm_delivery()
    publish(channel, name, b"first")
    with pytest.raises(NackError):
        publish(channel, name, b"second")
    assert got(channel, name) == [b"first"]
    assert got(channel, dead) == ([b"second"] if overflow.endswith("dlx") else [])
    publish(channel, name, b"third")
    assert got(channel, name) == [b"third"]


def test_one_full_queue_of_many_nacks_but_the_others_take(
    channel: BlockingChannel, name: str
) -> None:
    declare(channel, name, max_length=0, overflow="reject-publish")
    declare(channel, f"{name}-2")
    for queue in (name, f"{name}-2"):
        channel.queue_bind(queue, "amq.direct", name)
    channel.confirm_delivery()
    with pytest.raises(NackError):
        channel.basic_publish("amq.direct", name, b"x")
    assert got(channel, f"{name}-2") == [b"x"]


def test_what_consumers_hold_does_not_count(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, max_length=1)
    publish(channel, name, b"a")
    held, _, _ = channel.basic_get(name)
    assert held is not None
    publish(channel, name, b"b")
    channel.basic_ack(held.delivery_tag)
    assert got(channel, name) == [b"b"]


# --- Dead letters -------------------------------------------------------------------------------


@pytest.mark.rule("0-9-1/basic.deliver#01")
def test_death_headers(channel: BlockingChannel, name: str) -> None:
    dead = declare(channel, f"{name}-dead")
    declare(channel, name, dead_letter_exchange="", dead_letter_routing_key=dead)
    channel.queue_bind(name, "amq.direct", name)
    properties = pika.BasicProperties(
        expiration="60000", correlation_id="c", headers={"mine": [1, {"deep": True}]}
    )
    channel.basic_publish("amq.direct", name, b"body", properties)
    reject_one(channel, name)
    method, properties, body = channel.basic_get(dead, auto_ack=True)
    assert (method.exchange, method.routing_key, method.redelivered) == ("", dead, False)
    assert (body, properties.expiration, properties.correlation_id) == (b"body", None, "c")
    headers = properties.headers
    (death,) = headers.pop("x-death")
    died = death.pop("time")
    assert abs(died.timestamp() - time.time()) < 60 or died.year >= 2026
    assert isinstance(death["count"], pika.compat.long)  # Clients go by that type.
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": name,
        "exchange": "amq.direct",
        "routing-keys": [name],
        "original-expiration": "60000",
    }
    assert headers == {
        "mine": [1, {"deep": True}],
        "x-first-death-reason": "rejected",
        "x-first-death-queue": name,
        "x-first-death-exchange": "amq.direct",
        "x-last-death-reason": "rejected",
        "x-last-death-queue": name,
        "x-last-death-exchange": "amq.direct",
    }


def test_dead_letters_keep_their_key_unless_told(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "topic", auto_delete=True)
    declare(channel, f"{name}-q", dead_letter_exchange=name)
    dead = declare(channel, f"{name}-dead")
    channel.queue_bind(dead, name, f"{name}-q")
    publish(channel, f"{name}-q", b"x")
    reject_one(channel, f"{name}-q")
    method, _, body = channel.basic_get(dead, auto_ack=True)
    assert (method.exchange, method.routing_key, body) == (name, f"{name}-q", b"x")


@pytest.mark.parametrize("how", ["reject", "nack"])
def test_many_letters_keep_their_order(channel: BlockingChannel, name: str, how: str) -> None:
    dead = declare(channel, f"{name}-dead")
    declare(channel, name, dead_letter_exchange="", dead_letter_routing_key=dead)
    bodies = [b"%d" % n for n in range(50)]
    publish(channel, name, *bodies)
    tags = [channel.basic_get(name)[0].delivery_tag for _ in bodies]
    if how == "nack":
        channel.basic_nack(tags[-1], multiple=True, requeue=False)
    else:
        for tag in tags:
            channel.basic_reject(tag, requeue=False)
    assert got(channel, dead) == bodies


def test_requeue_is_no_death(channel: BlockingChannel, name: str) -> None:
    dead = declare(channel, f"{name}-dead")
    declare(channel, name, dead_letter_exchange="", dead_letter_routing_key=dead)
    publish(channel, name, b"x")
    channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=True)
    assert count(channel, dead) == 0
    assert got(channel, name) == [b"x"]


def test_a_retry_ring_turns(channel: BlockingChannel, name: str) -> None:
    wait = f"{name}-wait"
    declare(channel, name, dead_letter_exchange="", dead_letter_routing_key=wait)
    declare(channel, wait, message_ttl=5, dead_letter_exchange="", dead_letter_routing_key=name)
    publish(channel, name, b"x")
    for turn in range(1, 4):
        reject_one(channel, name)
        until(lambda: count(channel, name) == 1, f"turn {turn}")
    deaths = headers_of(channel, name)["x-death"]
    assert [(d["queue"], d["reason"], d["count"]) for d in deaths] == [
        (wait, "expired", 3),
        (name, "rejected", 3),
    ]


def test_a_circle_of_expiries_ends(channel: BlockingChannel, name: str) -> None:
    other = f"{name}-2"
    declare(channel, name, message_ttl=5, dead_letter_exchange="", dead_letter_routing_key=other)
    declare(channel, other, message_ttl=5, dead_letter_exchange="", dead_letter_routing_key=name)
    publish(channel, name, b"x")
    until(lambda: not count(channel, name) and not count(channel, other), "it is dropped")
    publish(channel, name, b"y")
    until(lambda: not count(channel, name) and not count(channel, other), "it is dropped")


def test_dead_letters_of_a_large_body(channel: BlockingChannel, name: str) -> None:
    dead = declare(channel, f"{name}-dead")
    declare(channel, name, dead_letter_exchange="", dead_letter_routing_key=dead)
    body = bytes(range(256)) * 4096 * 3
    publish(channel, name, body, content_type="x/y")
    reject_one(channel, name)
    assert got(channel, dead) == [body]


def test_a_key_without_an_exchange_is_refused(channel: BlockingChannel, name: str) -> None:
    with pytest.raises(ChannelClosedByBroker) as caught:
        declare(channel, name, dead_letter_routing_key="k")
    assert caught.value.reply_text == (
        f"PRECONDITION_FAILED - invalid arg 'x-dead-letter-routing-key' for queue '{name}' in "
        "vhost '/': routing_key_but_no_dlx_defined"
    )


# --- Priorities ---------------------------------------------------------------------------------


@pytest.mark.rule("0-9-1/basic#06")
def test_two_levels_without_being_asked(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    for priority in (0, 9, 4, 5, None, 255):
        publish(channel, name, str(priority).encode(), priority=priority)
    assert got(channel, name) == [b"9", b"5", b"255", b"0", b"4", b"None"]


@pytest.mark.rule("0-9-1/basic#07")
def test_as_many_levels_as_asked(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, max_priority=10)
    for n, priority in enumerate([3, 0, 10, 7, 3, None, 200, 10]):
        publish(channel, name, b"%d-%s" % (n, str(priority).encode()), priority=priority)
    assert got(channel, name) == [
        b"2-10",
        b"6-200",
        b"7-10",
        b"3-7",
        b"0-3",
        b"4-3",
        b"1-0",
        b"5-None",
    ]


@pytest.mark.rule("0-9-1/basic#08")
def test_equals_keep_their_order(channel: BlockingChannel, name: str) -> None:
    declare(channel, name, max_priority=5)
    for n in range(20):
        publish(channel, name, b"%d" % n, priority=2, delivery_mode=1 + n % 2)
    held = [channel.basic_get(name)[0].delivery_tag for _ in range(10)]
    for tag in held[::2] + held[1::2][::-1]:
        channel.basic_nack(tag)
    assert got(channel, name) == [b"%d" % n for n in range(20)]


# --- Deliveries ---------------------------------------------------------------------------------


@pytest.mark.rule("0-9-1/basic.deliver#01")
def test_a_message_comes_back_no_more_than_it_may(channel: BlockingChannel, name: str) -> None:
    dead = declare(channel, f"{name}-dead")
    declare(channel, name, delivery_limit=2, dead_letter_exchange="", dead_letter_routing_key=dead)
    publish(channel, name, b"x")
    for _ in range(3):
        method, _, body = channel.basic_get(name)
        assert method is not None
        assert body == b"x"
        channel.basic_nack(method.delivery_tag)
    assert count(channel, name) == 0
    assert headers_of(channel, dead)["x-death"][0]["reason"] == "delivery_limit"


def test_what_is_given_back_beyond_the_limit_is_dropped_from_the_head(
    channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-max-length": 2})
    channel.basic_publish("", name, b"1")
    channel.basic_publish("", name, b"2")
    held = [channel.basic_get(name)[0].delivery_tag for _ in range(2)]
    channel.basic_publish("", name, b"3")
    channel.basic_nack(held[-1], multiple=True, requeue=True)
    assert channel.queue_declare(name, passive=True).method.message_count == 2
    assert [channel.basic_get(name, auto_ack=True)[2] for _ in range(2)] == [b"2", b"3"]
