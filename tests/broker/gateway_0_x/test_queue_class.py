# SPDX-License-Identifier: Apache-2.0
"""Every method and flag of the queue class, over a socket."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from headrace.protocol.codec_0_x import (
    BasicCancel,
    BasicCancelOk,
    BasicDeliver,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)
from support.brokers.broker_process import until

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

    from headrace.testing.raw_client import RawClient

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{}' in vhost '/'. It could "
    "be originally declared on another connection or the exclusive property value does not match "
    "that of the original declaration."
)


def refused(call: Callable[[], object]) -> tuple[int, str]:
    """The code and text with which the broker closes the channel."""
    with pytest.raises(ChannelClosedByBroker) as caught:
        call()
    return caught.value.reply_code, caught.value.reply_text


def why_not(connection: BlockingConnection, queue: str) -> int:
    """The code with which a passive declaration is refused; 0 when the queue is there."""
    channel = connection.channel()
    try:
        channel.queue_declare(queue, passive=True)
    except ChannelClosedByBroker as error:
        return int(error.reply_code)
    channel.close()
    return 0


@pytest.mark.rule("0-9-1/s050")
def test_a_name_is_made_up(channel: BlockingChannel) -> None:
    names = {channel.queue_declare("", exclusive=True).method.queue for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("amq.gen-") and len(name) == 30 for name in names)
    for name in names:
        channel.queue_declare(name, passive=True)


@pytest.mark.rule("0-9-1/s052")
def test_passive(channel: BlockingChannel, connection: BlockingConnection, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    channel.basic_publish("", name, b"a")
    channel.basic_publish("", name, b"b")
    answer = channel.queue_declare(name, passive=True, durable=True).method
    assert (answer.queue, answer.message_count, answer.consumer_count) == (name, 2, 0)
    assert refused(lambda: channel.queue_declare(f"{name}-none", passive=True)) == (
        404,
        f"NOT_FOUND - no queue '{name}-none' in vhost '/'",
    )
    assert connection.is_open


@pytest.mark.rule("0-9-1/s051")
def test_reserved_prefix(channel: BlockingChannel) -> None:
    assert refused(lambda: channel.queue_declare("amq.mine")) == (
        403,
        "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
    )


@pytest.mark.rule("0-9-1/s053", "0-9-1/s054")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"durable": False}, "'durable' for {}: received 'false' but current is 'true'"),
        ({"auto_delete": False}, "'auto_delete' for {}: received 'false' but current is 'true'"),
        (
            {"arguments": {}},
            (
                "'x-max-length' for {}: received none but current is the value '5' of type "
                "'signedint'"
            ),
        ),
    ],
)
def test_an_inequivalent_queue(
    connection: BlockingConnection, name: str, change: dict[str, Any], text: str
) -> None:
    channel = connection.channel()
    same: dict[str, Any] = {
        "durable": True,
        "auto_delete": True,
        "arguments": {"x-max-length": 5, "x-queue-type": "classic"},
    }
    channel.queue_declare(name, **same)
    channel.queue_declare(name, **{**same, "arguments": {"x-max-length": 5, "x-unknown": "any"}})
    code, reply = refused(lambda: channel.queue_declare(name, **{**same, **change}))
    expected = text.format(f"queue '{name}' in vhost '/'")
    assert (code, reply) == (406, f"PRECONDITION_FAILED - inequivalent arg {expected}")
    connection.channel().queue_delete(name)


def test_a_wrong_argument(channel: BlockingChannel, name: str) -> None:
    assert refused(lambda: channel.queue_declare(name, arguments={"x-message-ttl": "soon"})) == (
        406,
        (
            f"PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue '{name}' in vhost '/': "
            '"expected integer, got longstr"'
        ),
    )


@pytest.mark.rule("0-9-1/s057", "0-9-1/s058")
def test_an_exclusive_queue_is_locked_and_goes_with_its_connection(connect: Any, name: str) -> None:
    owner, other = connect(), connect()
    owner.channel().queue_declare(name, exclusive=True)
    owner.channel().queue_declare(name, exclusive=True)
    for call in (
        lambda c: c.queue_declare(name, passive=True),
        lambda c: c.queue_declare(name, exclusive=True),
        lambda c: c.queue_declare(name),
        lambda c: c.queue_bind(name, "amq.fanout"),
        lambda c: c.queue_purge(name),
        lambda c: c.queue_delete(name),
        lambda c: c.basic_get(name),
        lambda c: c.basic_consume(name, lambda *_: None),
    ):
        channel = other.channel()
        assert refused(partial(call, channel)) == (405, LOCKED.format(name)[:255])
    assert refused(lambda: owner.channel().queue_declare(name)) == (405, LOCKED.format(name)[:255])
    with pytest.raises(ConnectionClosedByBroker) as caught:  # (0-9-1/queue.unbind#01)
        connect().channel().queue_unbind(name, "amq.fanout")
    assert (caught.value.reply_code, caught.value.reply_text) == (405, LOCKED.format(name)[:255])
    owner.close()

    until(lambda: why_not(other, name) == 404, "the exclusive queue goes")


def test_auto_delete_waits_for_the_last_consumer(connection: BlockingConnection, name: str) -> None:
    channel = connection.channel()
    channel.queue_declare(name, auto_delete=True)
    channel.queue_declare(name, passive=True)  # Never used is no reason to go.
    tags = [channel.basic_consume(name, lambda *_: None) for _ in range(2)]
    channel.basic_cancel(tags[0])
    channel.queue_declare(name, passive=True)
    channel.basic_cancel(tags[1])
    assert refused(lambda: channel.queue_declare(name, passive=True))[0] == 404


@pytest.mark.parametrize("how", ["channel", "connection"])
def test_auto_delete_hears_of_consumers_that_just_leave(connect: Any, name: str, how: str) -> None:
    here, there = connect(), connect()
    channel = there.channel()
    channel.queue_declare(name, auto_delete=True)
    channel.basic_consume(name, lambda *_: None)
    (channel if how == "channel" else there).close()

    until(lambda: why_not(here, name) == 404, "the queue goes")


@pytest.mark.rule("0-9-1/s065", "0-9-1/s071", "0-9-1/s078", "0-9-1/s081")
def test_no_name_is_the_last_declared_queue(talk: Callable[[], RawClient], name: str) -> None:
    client = talk().with_queue(f"{name}-other", exclusive=True)
    client.declare(name, exclusive=True)
    client.call(QueueBind(exchange="amq.direct"), QueueBindOk)  # Its name is the key as well.
    client.publish(name, b"a", b"b", exchange="amq.direct")
    assert client.get("") == b"a"
    assert client.call(QueuePurge(), QueuePurgeOk).message_count == 1
    client.consume("", "tag")
    client.publish(name, b"c", exchange="amq.direct")
    assert client.content(BasicDeliver)[1] == b"c"
    client.call(BasicCancel(consumer_tag="tag"), BasicCancelOk)
    client.call(QueueUnbind(exchange="amq.direct"), QueueUnbindOk)
    client.publish(name, b"d", exchange="amq.direct")
    assert client.get("") is None
    client.publish(name, b"e")
    assert client.call(QueueDelete(), QueueDeleteOk).message_count == 1


@pytest.mark.parametrize(
    "method",
    [
        QueueBind(exchange="amq.direct"),
        QueueUnbind(exchange="amq.direct"),
        QueuePurge(),
        QueueDelete(),
    ],
)
def test_no_name_without_a_last_queue(talk: Callable[[], RawClient], method: Any) -> None:
    client = talk()
    client.send(method)
    closed = client.expect_channel_close()
    assert (closed.code, closed.text) == (404, "NOT_FOUND - no previously declared queue")
    assert closed.method == (50, method.INDEX[next(reversed(method.INDEX))][1])


@pytest.mark.rule("0-9-1/s066", "0-9-1/s067", "0-9-1/s079")
def test_what_is_missing_is_named(connection: BlockingConnection, name: str) -> None:
    connection.channel().queue_declare(name, exclusive=True)
    no_queue = (404, f"NOT_FOUND - no queue '{name}-no' in vhost '/'")
    no_exchange = (404, f"NOT_FOUND - no exchange '{name}-no' in vhost '/'")
    for call, expected in (
        (lambda c: c.queue_bind(f"{name}-no", "amq.fanout"), no_queue),
        (lambda c: c.queue_bind(name, f"{name}-no"), no_exchange),
        (lambda c: c.queue_purge(f"{name}-no"), no_queue),
        (lambda c: c.basic_get(f"{name}-no"), no_queue),
        (lambda c: c.basic_consume(f"{name}-no", lambda *_: None), no_queue),
    ):
        channel = connection.channel()
        assert refused(partial(call, channel)) == expected


def test_to_unbind_what_is_gone_is_no_error(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    channel.queue_unbind(name, "amq.fanout", "never")
    channel.queue_unbind(name, f"{name}-no")
    channel.queue_unbind(f"{name}-no", "amq.fanout")
    channel.exchange_unbind("amq.fanout", f"{name}-no")
    channel.exchange_unbind(f"{name}-no", "amq.fanout")
    channel.queue_purge(name)  # The channel is open still.


@pytest.mark.rule("0-9-1/s068", "0-9-1/s074")
def test_the_default_exchange_has_the_bindings_that_it_has(
    connection: BlockingConnection, name: str
) -> None:
    channel = connection.channel()
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, "", name)  # As it is already.
    refusal = (403, "ACCESS_REFUSED - operation not permitted on the default exchange")
    assert refused(lambda: channel.queue_bind(name, "", "another")) == refusal
    with pytest.raises(ConnectionClosedByBroker) as caught:  # (0-9-1/queue.unbind#01)
        connection.channel().queue_unbind(name, "", name)
    assert (caught.value.reply_code, caught.value.reply_text) == refusal


@pytest.mark.rule("0-9-1/queue.bind#01")
def test_bindings_differ_by_key_and_arguments(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, "amq.direct", name, {"n": 1})
    channel.queue_bind(name, "amq.direct", name, {"n": 1})
    channel.queue_bind(name, "amq.direct", name, {"n": 2})
    channel.basic_publish("amq.direct", name, b"a")
    channel.queue_unbind(name, "amq.direct", name, {"n": 1})
    channel.basic_publish("amq.direct", name, b"b")
    channel.queue_unbind(name, "amq.direct", name, {"n": 2})
    channel.basic_publish("amq.direct", name, b"c")
    assert channel.queue_declare(name, passive=True).method.message_count == 2
    channel.queue_unbind(name, "amq.direct", name, {"n": 2})  # It is gone, as was asked.


@pytest.mark.rule("0-9-1/queue.purge#01")
def test_purge_leaves_what_consumers_hold(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    for body in (b"held", b"a", b"b"):
        channel.basic_publish("", name, body)
    held, _, _ = channel.basic_get(name)
    assert held is not None
    assert channel.queue_purge(name).method.message_count == 2
    assert channel.queue_purge(name).method.message_count == 0
    channel.basic_nack(held.delivery_tag)
    method, _, body = channel.basic_get(name)
    assert (body, method.redelivered) == (b"held", True)


@pytest.mark.rule("0-9-1/s083", "0-9-1/s084")
def test_delete_if_unused_and_if_empty(connection: BlockingConnection, name: str) -> None:
    channel = connection.channel()
    channel.queue_declare(name)
    channel.basic_publish("", name, b"x")
    assert refused(lambda: channel.queue_delete(name, if_empty=True)) == (
        406,
        f"PRECONDITION_FAILED - queue '{name}' in vhost '/' not empty",
    )
    channel = connection.channel()
    channel.queue_purge(name)
    tag = channel.basic_consume(name, lambda *_: None)
    assert refused(lambda: connection.channel().queue_delete(name, if_unused=True)) == (
        406,
        f"PRECONDITION_FAILED - queue '{name}' in vhost '/' in use",
    )
    channel.basic_cancel(tag)
    channel.basic_publish("", name, b"x")
    assert channel.queue_delete(name, if_unused=True).method.message_count == 1
    assert channel.queue_delete(name).method.message_count == 0  # It is gone, as was asked.


def test_no_wait_means_no_answer(talk: Callable[[], RawClient], name: str) -> None:
    client = talk()
    client.send(QueueDeclare(queue=name, exclusive=True, no_wait=True))
    client.send(QueueBind(queue=name, exchange="amq.direct", routing_key=name, no_wait=True))
    client.publish(name, b"a", b"b", exchange="amq.direct")
    assert client.get(name) == b"a"
    client.send(QueuePurge(queue=name, no_wait=True))
    assert client.get(name) is None
    client.send(QueueDelete(queue=name, no_wait=True))
    client.send(QueueDeclare(queue=name, passive=True))
    assert client.expect_channel_close().code == 404


@pytest.mark.rule("0-9-1/s019")
def test_the_answer_counts_messages_and_consumers(
    channel: BlockingChannel, connection: BlockingConnection, name: str
) -> None:
    answer = channel.queue_declare(name, exclusive=True).method
    assert (answer.queue, answer.message_count, answer.consumer_count) == (name, 0, 0)
    other = connection.channel()
    other.basic_qos(prefetch_count=1)
    other.basic_consume(name, lambda *_: None)
    for _ in range(3):
        channel.basic_publish("", name, b"x")
    answer = channel.queue_declare(name, exclusive=True).method
    assert (answer.message_count, answer.consumer_count) == (2, 1)
