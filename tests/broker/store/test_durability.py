# SPDX-License-Identifier: Apache-2.0
"""Durability over restarts: what survives, and in which state."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import AMQPError, ChannelClosedByBroker

from support.brokers.broker_process import Served, until

PERSISTENT = pika.BasicProperties(delivery_mode=2)
HOW = pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])


opened: list[BlockingConnection] = []


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    """Close what a test opened, unless a restart did."""
    yield
    while opened:
        connection = opened.pop()
        with contextlib.suppress(AMQPError):
            connection.close()


def connect(broker: Served) -> BlockingConnection:
    parameters = pika.URLParameters(broker.url)
    parameters.heartbeat = 0
    opened.append(BlockingConnection(parameters))
    return opened[-1]


def channel_to(broker: Served) -> BlockingChannel:
    channel = connect(broker).channel()
    channel.confirm_delivery()
    return channel


def publish(
    channel: BlockingChannel,
    key: str,
    *bodies: bytes,
    exchange: str = "",
    properties: pika.BasicProperties = PERSISTENT,
) -> None:
    for body in bodies:
        channel.basic_publish(exchange, key, body, properties)


def got(channel: BlockingChannel, queue: str) -> list[tuple[bytes, bool]]:
    """Return the content of a queue: body, redelivered."""
    found = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append((body, method.redelivered))


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    return [body for body, _ in got(channel, queue)]


def missing(broker: Served, queue: str) -> bool:
    try:
        channel_to(broker).queue_declare(queue, passive=True)
    except ChannelClosedByBroker as error:
        return error.reply_code == 404
    return False


@HOW
@pytest.mark.rule("0-9-1/basic#01", "0-9-1/s085", "0-9-1/s055", "0-9-1/queue.bind#04")
def test_durable_things_and_persistent_messages_survive(
    durable: Served, how: signal.Signals
) -> None:
    channel = channel_to(durable)
    channel.exchange_declare("x", "topic", durable=True)
    channel.exchange_declare("y", "headers", durable=True)
    channel.exchange_declare("passing", "fanout")
    channel.queue_declare("q", durable=True)
    channel.queue_declare("other", durable=True, arguments={"x-max-priority": 3})
    channel.queue_declare("passing")
    channel.queue_declare("mine", durable=True, exclusive=True)
    channel.queue_bind("q", "x", "a.#")
    channel.queue_bind("other", "y", "", {"x-match": "all", "n": 1})
    channel.exchange_bind("y", "x", "#")
    channel.queue_bind("q", "passing")
    publish(channel, "a.b", b"1", b"2", exchange="x")
    publish(channel, "q", b"transient", properties=pika.BasicProperties(delivery_mode=1))
    publish(channel, "passing", b"lost")
    durable.restart(how)
    channel = channel_to(durable)
    assert bodies(channel, "q") == [b"1", b"2"]
    publish(channel, "a.c", b"3", exchange="x", properties=pika.BasicProperties(headers={"n": 1}))
    assert (bodies(channel, "q"), bodies(channel, "other")) == ([b"3"], [b"3"])
    channel.queue_declare("other", durable=True, arguments={"x-max-priority": 3})
    assert missing(durable, "passing")
    assert missing(durable, "mine")
    with pytest.raises(ChannelClosedByBroker):
        channel.exchange_declare("passing", passive=True)


@HOW
def test_what_was_settled_stays_so_and_what_was_out_comes_back(
    durable: Served, how: signal.Signals
) -> None:
    channel = channel_to(durable)
    channel.queue_declare("q", durable=True)
    publish(channel, "q", *[b"%d" % n for n in range(6)])
    tags = [channel.basic_get("q")[0].delivery_tag for _ in range(4)]
    channel.basic_ack(tags[0])
    channel.basic_reject(tags[2], requeue=False)
    assert channel.queue_declare("q", passive=True).method.message_count == 2
    publish(channel, "q", b"after")  # Its confirm says that the settlements are kept, too.
    durable.restart(how)
    channel = channel_to(durable)
    found = got(channel, "q")
    assert [body for body, _ in found] == [b"1", b"3", b"4", b"5", b"after"]
    assert [again for _, again in found][:2] == [True, True]


@HOW
def test_a_committed_transaction_survives_as_a_whole(durable: Served, how: signal.Signals) -> None:
    channel = connect(durable).channel()
    for queue in ("a", "b"):
        channel.queue_declare(queue, durable=True)
    channel.tx_select()
    for n in range(10):
        publish(channel, "ab"[n % 2], b"%d" % n)
    channel.tx_commit()
    publish(channel, "a", b"never")
    durable.restart(how)
    channel = channel_to(durable)
    assert bodies(channel, "a") == [b"0", b"2", b"4", b"6", b"8"]
    assert bodies(channel, "b") == [b"1", b"3", b"5", b"7", b"9"]


@HOW
def test_purged_and_deleted_stay_gone(durable: Served, how: signal.Signals) -> None:
    channel = channel_to(durable)
    for queue in ("purged", "deleted", "again"):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "amq.fanout", "")
    publish(channel, "", b"1", b"2", exchange="amq.fanout")
    assert channel.queue_purge("purged").method.message_count == 2
    channel.queue_delete("deleted")
    channel.queue_delete("again")
    channel.queue_declare("again", durable=True)  # The same name, another queue.
    publish(channel, "", b"3", exchange="amq.fanout")
    durable.restart(how)
    channel = channel_to(durable)
    assert bodies(channel, "purged") == [b"3"]
    assert bodies(channel, "again") == []
    assert missing(durable, "deleted")


@HOW
def test_orphans_go_on_to_their_exchange_after_a_restart(
    durable: Served, how: signal.Signals
) -> None:
    channel = connect(durable).channel()
    channel.queue_declare("rest", durable=True)
    channel.queue_bind("rest", "amq.fanout", "")
    channel.queue_declare("q", durable=True, arguments={"alternate-exchange": "amq.fanout"})
    sent = [b"%d" % number for number in range(2000)]
    for body in sent:
        channel.basic_publish("", "q", body, PERSISTENT)
    assert channel.queue_delete("q").method.message_count == len(sent)
    durable.restart(how)
    channel = channel_to(durable)
    assert missing(durable, "q")
    arrived: list[bytes] = []

    def all_came() -> bool:
        arrived.extend(bodies(channel, "rest"))
        return len(arrived) >= len(sent)

    until(all_came, "all came")
    assert arrived == sent


@HOW
def test_time_to_live_goes_on_while_the_broker_is_down(
    durable: Served, how: signal.Signals
) -> None:
    channel = channel_to(durable)
    channel.queue_declare("dead", durable=True)
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("q", durable=True, arguments=letters)
    channel.queue_declare("limited", durable=True, arguments={**letters, "x-message-ttl": 150})
    soon = pika.BasicProperties(delivery_mode=2, expiration="150")
    later = pika.BasicProperties(delivery_mode=2, expiration="600000")
    publish(channel, "q", b"soon", properties=soon)
    publish(channel, "q", b"later", properties=later)
    publish(channel, "limited", b"limited", properties=later)
    durable.restart(how)
    channel = channel_to(durable)

    def dead() -> int:
        count: int = channel.queue_declare("dead", passive=True).method.message_count
        return count

    until(lambda: dead() == 2, "both expire")
    assert sorted(bodies(channel, "dead")) == [b"limited", b"soon"]
    assert bodies(channel, "q") == [b"later"]


@HOW
def test_dead_letters_survive(durable: Served, how: signal.Signals) -> None:
    channel = channel_to(durable)
    channel.queue_declare("dead", durable=True)
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("q", durable=True, arguments=letters)
    publish(channel, "q", b"x", b"y" * 300_000)
    for _ in range(2):
        channel.basic_reject(channel.basic_get("q")[0].delivery_tag, requeue=False)
    publish(channel, "nowhere", b"")  # Its confirm comes behind all that was before.
    publish(channel, "dead", b"last")
    durable.restart(how)
    channel = channel_to(durable)
    assert bodies(channel, "q") == []
    method, properties, body = channel.basic_get("dead", auto_ack=True)
    assert method is not None
    assert body == b"x"
    assert properties.headers["x-death"][0]["queue"] == "q"
    assert bodies(channel, "dead") == [b"y" * 300_000, b"last"]


@HOW
def test_priorities_and_order_survive(durable: Served, how: signal.Signals) -> None:
    channel = channel_to(durable)
    channel.queue_declare("q", durable=True, arguments={"x-max-priority": 2})
    for n in range(9):
        properties = pika.BasicProperties(delivery_mode=2, priority=n % 3)
        publish(channel, "q", b"%d" % n, properties=properties)
    durable.restart(how)
    channel = channel_to(durable)
    assert bodies(channel, "q") == [b"2", b"5", b"8", b"1", b"4", b"7", b"0", b"3", b"6"]


def test_many_restarts_lose_nothing_and_double_nothing(durable: Served) -> None:
    expected: list[bytes] = []
    for turn in range(4):
        channel = channel_to(durable)
        channel.queue_declare("q", durable=True)
        batch = [b"%d-%d" % (turn, n) for n in range(20)]
        publish(channel, "q", *batch)
        expected += batch
        for _ in range(5):
            method, _, body = channel.basic_get("q")
            assert method is not None
            assert body == expected.pop(0)
            channel.basic_ack(method.delivery_tag)
        publish(channel, "q", b"mark")
        expected.append(b"mark")
        durable.restart(signal.SIGKILL)
    assert bodies(channel_to(durable), "q") == expected
