# SPDX-License-Identifier: Apache-2.0
"""Messages that come back: how often, and where they go when that is too often."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicConsume,
    BasicGet,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicReject,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    decode_content_header,
)
from headrace.protocol.v0_x.events import ContentReceived
from headrace.spec.tables import V0_9_1
from headrace.wire.table import Long, Short
from support.brokers.in_memory_broker import Client, Rig

LIMIT = {"x-delivery-limit": 2}
AT_LEAST_ONCE = {
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "dead",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


@pytest.fixture
def client() -> Client:
    return Rig().client()


def get(client: Client, queue: str, *, no_ack: bool = False) -> tuple[int, bytes, dict[str, Any]]:
    """Return tag, body and headers of the first message; tag 0 when there is none."""
    client.events.clear()
    client.send(BasicGet(queue=queue, no_ack=no_ack))
    for event in client.events:
        if isinstance(event, ContentReceived) and isinstance(event.method, BasicGetOk):
            properties: Any = decode_content_header(V0_9_1, event.header)[2]
            return event.method.delivery_tag, bytes(event.body), properties.headers or {}
    return 0, b"", {}


def declare(client: Client, queue: str, **arguments: Any) -> None:
    client.send(QueueDeclare(queue=queue, arguments=arguments))


def test_a_passive_declaration_is_a_use_too() -> None:
    rig = Rig()
    client = rig.client()
    declare(client, "q", **{"x-expires": 1000})
    for _ in range(3):
        rig.pass_time(900)
        client.send(QueueDeclare(queue="q", passive=True))
    assert "q" in rig.vhost.queues
    rig.pass_time(1001)
    assert "q" not in rig.vhost.queues


@pytest.mark.parametrize("queues", ["aaa", "abc"])
def test_what_consumers_of_a_channel_may_hold_together_goes_around(
    client: Client, queues: str
) -> None:
    client.send(BasicQos(prefetch_count=1, global_=True))
    for number, queue in enumerate(queues):
        declare(client, queue)
        client.send(BasicConsume(queue=queue, consumer_tag=str(number)))
    for queue in queues * 2:
        client.publish(queue)
    client.events.clear()
    for tag in range(1, 7):
        client.send(BasicAck(delivery_tag=tag))
    tags = [e.method.consumer_tag for e in client.events if isinstance(e, ContentReceived)]  # type: ignore[attr-defined]
    assert sorted(tags) == ["0", "1", "1", "2", "2"]  # The first had one before.


def test_counts_are_of_64_bits_as_those_of_rabbitmq_are(client: Client) -> None:
    """Programs in Java cast them to that; what else is in the headers keeps its type."""
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    declare(client, "q", **LIMIT, **letters)
    client.publish("q", headers={"mine": Short(1), "plain": 1})
    for again in (True, False, False):
        tag, _, headers = get(client, "q")
        client.send(BasicReject(delivery_tag=tag, requeue=again))
        if again:
            _, _, headers = get(client, "q")
            assert (headers["x-delivery-count"], type(headers["x-delivery-count"])) == (1, Long)
            client.send(BasicReject(delivery_tag=tag + 1, requeue=True))
    _, _, headers = get(client, "q")
    (death,) = headers["x-death"]
    assert (death["count"], type(death["count"])) == (2, Long)
    assert [type(headers[name]) for name in ("mine", "plain")] == [Short, int]


def test_consumers_are_told_how_often_a_message_came_back(client: Client) -> None:
    declare(client, "dead")
    declare(
        client, "q", **LIMIT, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    )
    client.publish("q", headers={"mine": 1}, priority=3, expiration="60000")
    for count in ({}, {"x-delivery-count": 1}, {"x-delivery-count": 2}):
        tag, body, headers = get(client, "q")
        assert (body, headers) == (b"body", {"mine": 1, **count})
        client.send(BasicReject(delivery_tag=tag, requeue=True))
    assert get(client, "q")[0] == 0
    _, body, headers = get(client, "dead")
    assert body == b"body"
    assert headers["x-death"][0]["reason"] == "delivery_limit"
    assert "x-delivery-count" not in headers  # It was that of another queue.


def test_without_a_limit_nothing_is_told(client: Client) -> None:
    declare(client, "q")
    client.publish("q")
    client.send(BasicReject(delivery_tag=get(client, "q")[0], requeue=True))
    assert get(client, "q")[2] == {}


def test_a_dead_letter_waits_until_a_queue_accepts_it(client: Client) -> None:
    """The strategy at-least-once: without a queue for it, it stays, and arrives later, once."""
    rig = client.rig
    declare(client, "q", **AT_LEAST_ONCE)
    client.publish("q", b"1")
    client.publish("q", b"2")
    for _ in range(2):
        client.send(BasicNack(delivery_tag=get(client, "q")[0], requeue=False))
    queue = rig.vhost.queues["q"]
    assert (queue.ready_count, queue.unacked_count, queue.pending_count) == (0, 0, 2)
    rig.pass_time(60_000)
    assert get(client, "q")[0] == 0
    declare(client, "dead")
    rig.pass_time(60_000)
    assert [get(client, "dead", no_ack=True)[1] for _ in range(3)] == [b"1", b"2", b""]
    assert queue.pending_count == 0
    assert rig.counters.memory_used == 0


def test_a_full_queue_keeps_dead_letters_waiting(client: Client) -> None:
    rig = client.rig
    declare(client, "dead", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    declare(client, "q", **AT_LEAST_ONCE, **{"x-message-ttl": 10})
    for n in range(3):
        client.publish("q", b"%d" % n)
    rig.pass_time(10)
    bodies = []
    for _ in range(3):
        bodies.append(get(client, "dead", no_ack=True)[1])
        rig.pass_time(60_000)
    assert bodies == [b"0", b"1", b"2"]


def reject(client: Client, queue: str) -> None:
    """Take the first message of a queue and reject it."""
    client.send(BasicReject(delivery_tag=get(client, queue)[0], requeue=False))


def test_a_full_queue_does_not_keep_a_dead_letter_from_others(client: Client) -> None:
    """A consumer with credit gets the message at once, and only once."""
    rig = client.rig
    declare(client, "room")
    declare(client, "full", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    for name in ("room", "full"):
        client.send(QueueBind(queue=name, exchange="amq.fanout"))
    declare(client, "q", **{**AT_LEAST_ONCE, "x-dead-letter-exchange": "amq.fanout"})
    client.publish("full", b"first")
    client.publish("q", b"letter")
    reject(client, "q")
    assert get(client, "room", no_ack=True)[1] == b"letter"
    rig.pass_time(60_000)
    assert rig.vhost.queues["q"].pending_count == 1
    assert get(client, "full", no_ack=True)[1] == b"first"
    rig.pass_time(60_000)
    assert get(client, "full", no_ack=True)[1] == b"letter"
    assert get(client, "room")[0] == 0
    assert rig.vhost.queues["q"].pending_count == 0
    assert rig.counters.memory_used == 0


def test_a_dead_letter_is_done_when_who_refused_it_is_gone(client: Client) -> None:
    rig = client.rig
    declare(client, "room")
    declare(client, "full", **{"x-max-length": 0, "x-overflow": "reject-publish"})
    for name in ("room", "full"):
        client.send(QueueBind(queue=name, exchange="amq.fanout"))
    declare(client, "q", **{**AT_LEAST_ONCE, "x-dead-letter-exchange": "amq.fanout"})
    client.publish("q")
    reject(client, "q")
    client.send(QueueDelete(queue="full"))
    client.send(QueueDelete(queue="room"))
    rig.pass_time(60_000)
    assert rig.vhost.queues["q"].pending_count == 0
    assert rig.counters.memory_used == 0


def test_a_dead_letter_that_could_only_go_round_waits(client: Client) -> None:
    """It expired in the one queue that would get it; another one is bound later."""
    rig = client.rig
    circle = {"x-dead-letter-exchange": "amq.fanout", "x-message-ttl": 10}
    declare(client, "q", **{**AT_LEAST_ONCE, **circle})
    client.send(QueueBind(queue="q", exchange="amq.fanout"))
    client.publish("q", b"letter")
    rig.pass_time(60_000)
    assert rig.vhost.queues["q"].pending_count == 1
    declare(client, "dead")
    client.send(QueueBind(queue="dead", exchange="amq.fanout"))
    rig.pass_time(60_000)
    assert get(client, "dead", no_ack=True)[1] == b"letter"
    assert rig.counters.memory_used == 0


def test_at_most_once_drops_what_leads_nowhere(client: Client) -> None:
    declare(client, "q", **{**AT_LEAST_ONCE, "x-dead-letter-strategy": "at-most-once"})
    client.publish("q")
    client.send(BasicNack(delivery_tag=get(client, "q")[0], requeue=False))
    assert client.rig.vhost.queues["q"].pending_count == 0
    assert client.rig.counters.memory_used == 0


def test_dead_letters_that_wait_go_with_their_queue_and_not_with_a_purge(client: Client) -> None:
    declare(client, "q", **AT_LEAST_ONCE)
    client.publish("q")
    client.send(BasicNack(delivery_tag=get(client, "q")[0], requeue=False))
    client.send(QueuePurge(queue="q"))
    assert client.rig.vhost.queues["q"].pending_count == 1
    client.send(QueueDelete(queue="q"))
    assert client.rig.counters.memory_used == 0
    client.rig.pass_time(60_000)


# --- Delayed retry --------------------------------------------------------------------------------


def turns(client: Client, waits: list[int]) -> None:
    """Give the message back each time, and find it again after exactly so many milliseconds."""
    for wait in waits:
        tag, body, _ = get(client, "q")
        assert body == b"body"
        client.send(BasicReject(delivery_tag=tag, requeue=True))
        client.rig.pass_time(wait - 1)
        assert get(client, "q")[0] == 0, wait
        client.rig.pass_time(1)


@pytest.mark.parametrize(
    ("arguments", "waits"),
    [
        ({"x-delayed-retry-type": "all"}, [1000, 2000, 3000]),
        ({"x-delayed-retry-min": 10, "x-delayed-retry-max": 25}, [10, 20, 25, 25]),
        ({"x-delayed-retry-min": 10, "x-delayed-retry-multiplier": 3}, [10, 30, 90, 270]),
        ({"x-delayed-retry-min": 10, "x-delayed-retry-multiplier": 1}, [10, 10, 10]),
        ({"x-delayed-retry-type": "failed", "x-delayed-retry-min": 5}, [5, 10, 15]),
    ],
)
def test_what_comes_back_waits_longer_each_time(
    client: Client, arguments: dict[str, Any], waits: list[int]
) -> None:
    declare(client, "q", **arguments)
    client.publish("q")
    turns(client, waits)
    assert get(client, "q", no_ack=True)[1] == b"body"
    assert client.rig.counters.memory_used == 0


@pytest.mark.parametrize("kind", ["returned", "disabled"])
def test_other_types_let_it_come_at_once(client: Client, kind: str) -> None:
    declare(client, "q", **{"x-delayed-retry-type": kind, "x-delayed-retry-min": 10})
    client.publish("q")
    client.send(BasicReject(delivery_tag=get(client, "q")[0], requeue=True))
    assert get(client, "q")[1] == b"body"


def test_retries_end_at_the_delivery_limit(client: Client) -> None:
    declare(client, "dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    declare(client, "q", **LIMIT, **letters, **{"x-delayed-retry-min": 10})
    client.publish("q")
    turns(client, [10, 20])
    client.send(BasicReject(delivery_tag=get(client, "q")[0], requeue=True))
    assert get(client, "dead")[1] == b"body"


def test_what_waits_for_a_retry_goes_with_its_queue(client: Client) -> None:
    declare(client, "q", **{"x-delayed-retry-min": 10})
    client.publish("q")
    client.send(BasicReject(delivery_tag=get(client, "q")[0], requeue=True))
    client.send(QueueDelete(queue="q"))
    assert client.rig.counters.memory_used == 0
    client.rig.pass_time(10)


def test_an_expired_message_does_not_come_back(client: Client) -> None:
    declare(client, "q", **{"x-delayed-retry-min": 50})
    client.publish("q", expiration="20")
    client.send(BasicReject(delivery_tag=get(client, "q")[0], requeue=True))
    client.rig.pass_time(60)
    assert get(client, "q")[0] == 0
    assert client.rig.counters.memory_used == 0


@pytest.mark.parametrize(
    "arguments", [{"x-delayed-retry-type": "never"}, {"x-delayed-retry-min": 0}]
)
def test_wrong_arguments_are_refused(client: Client, arguments: dict[str, Any]) -> None:
    declare(client, "q", **arguments)
    [closed] = client.heard()
    assert "invalid arg" in getattr(closed, "reply_text", "")
