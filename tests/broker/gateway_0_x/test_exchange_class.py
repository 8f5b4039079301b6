# SPDX-License-Identifier: Apache-2.0
"""Every method and flag of the exchange class, over a socket."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from headrace.protocol.codec_0_x import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueBindOk,
    QueueDelete,
)

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

    from headrace.testing.raw_client import RawClient


def refused(call: Callable[[], object]) -> tuple[int, str]:
    """The code and text with which the broker closes the channel."""
    with pytest.raises(ChannelClosedByBroker) as caught:
        call()
    return caught.value.reply_code, caught.value.reply_text


def got(channel: BlockingChannel, queue: str) -> list[bytes]:
    """All that is in a queue."""
    bodies = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body)


def queue_on(channel: BlockingChannel, exchange: str, key: str = "", **arguments: Any) -> str:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, exchange, key, arguments or None)
    return queue


@pytest.mark.rule("0-9-1/exchange#01", "0-9-1/exchange#02", "0-9-1/exchange#03", "0-9-1/s031")
@pytest.mark.parametrize(
    ("exchange", "kind"),
    [
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
    ],
)
def test_standard_exchanges_route(channel: BlockingChannel, exchange: str, kind: str) -> None:
    channel.exchange_declare(exchange, kind, passive=True)
    channel.exchange_declare(exchange, kind, durable=True)
    queue = queue_on(channel, exchange, "a.*", n=1)
    for key in ("a.b", "a.*", "c"):
        channel.basic_publish(exchange, key, key.encode())
    channel.basic_publish(exchange, "h", b"h", pika.BasicProperties(headers={"n": 1, "other": "x"}))
    expected = {
        "direct": [b"a.*"],
        "fanout": [b"a.b", b"a.*", b"c", b"h"],
        "topic": [b"a.b", b"a.*"],
        "headers": [b"h"],
    }
    assert got(channel, queue) == expected[kind]


@pytest.mark.rule("0-9-1/s069", "0-9-1/queue.bind#02", "0-9-1/queue.bind#05")
def test_a_queue_with_many_bindings_gets_one_copy(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "topic")
    queue = queue_on(channel, name, "#")
    for key in ("a.#", "#.b", "*.*", "a.b", "#.#"):
        channel.queue_bind(queue, name, key)
        channel.queue_bind(queue, name, key)
    channel.basic_publish(name, "a.b", b"once")
    assert got(channel, queue) == [b"once"]


@pytest.mark.parametrize(
    ("match", "hits"),
    [
        ("all", {"both"}),
        ("any", {"both", "one"}),
        ("all-with-x", {"x"}),
        ("any-with-x", {"both", "one", "x"}),
    ],
)
def test_headers_exchange(channel: BlockingChannel, name: str, match: str, hits: set[str]) -> None:
    channel.exchange_declare(name, "headers")
    queue = channel.queue_declare("", exclusive=True).method.queue
    arguments: dict[str, Any] = {"x-match": match, "a": 1, "b": "two"}
    if match.endswith("x"):
        arguments["x-c"] = True
    channel.queue_bind(queue, name, "ignored", arguments)
    for body, headers in (
        ("both", {"a": 1, "b": "two", "more": None}),
        ("one", {"a": 2, "b": "two"}),
        ("none", {"a": 2}),
        ("x", {"a": 1, "b": "two", "x-c": True}),
        ("bare", None),
    ):
        channel.basic_publish(name, "", body.encode(), pika.BasicProperties(headers=headers))
    if match in ("all", "any"):
        hits = hits | {"x"}  # Which holds a and b as well.
    assert {body.decode() for body in got(channel, queue)} == hits


def test_a_wrong_x_match_is_refused(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    assert refused(lambda: channel.queue_bind(queue, "amq.headers", "", {"x-match": "most"})) == (
        406,
        (
            'PRECONDITION_FAILED - Invalid x-match field value <<"most">>; expected all, any, '
            "all-with-x, or any-with-x"
        ),
    )


@pytest.mark.rule("0-9-1/s042")
def test_passive_of_a_missing_exchange(channel: BlockingChannel, name: str) -> None:
    assert refused(lambda: channel.exchange_declare(name, passive=True)) == (
        404,
        f"NOT_FOUND - no exchange '{name}' in vhost '/'",
    )


@pytest.mark.rule("0-9-1/s040", "0-9-1/s043", "0-9-1/s044")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"exchange_type": "topic"}, "'type' for {}: received 'topic' but current is 'fanout'"),
        ({"durable": True}, "'durable' for {}: received 'true' but current is 'false'"),
        ({"auto_delete": True}, "'auto_delete' for {}: received 'true' but current is 'false'"),
        ({"internal": True}, "'internal' for {}: received 'true' but current is 'false'"),
        (
            {"arguments": {"alternate-exchange": "other"}},
            (
                "'alternate-exchange' for {}: received the value 'other' of type 'longstr' but "
                "current is none"
            ),
        ),
    ],
)
def test_an_inequivalent_exchange(
    channel: BlockingChannel, name: str, change: dict[str, Any], text: str
) -> None:
    channel.exchange_declare(name, "fanout")
    channel.exchange_declare(name, "fanout", arguments={"unknown": 1})
    code, reply = refused(
        lambda: channel.exchange_declare(name, **{"exchange_type": "fanout", **change})
    )
    assert code == 406
    expected = text.format(f"exchange '{name}' in vhost '/'")
    assert reply == f"PRECONDITION_FAILED - inequivalent arg {expected}"


@pytest.mark.rule("0-9-1/s041")
def test_an_unknown_type_closes_the_connection(connect: Any, name: str) -> None:
    channel = connect().channel()
    with pytest.raises(ConnectionClosedByBroker) as caught:
        channel.exchange_declare(name, "x-unknown")
    assert caught.value.reply_code == 503
    assert caught.value.reply_text == "COMMAND_INVALID - unknown exchange type 'x-unknown'"


@pytest.mark.rule("0-9-1/s039", "0-9-1/exchange#05")
def test_reserved_names(connection: BlockingConnection) -> None:
    for call, text in (
        (
            lambda c: c.exchange_declare("amq.mine"),
            "exchange name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
        (lambda c: c.exchange_declare(""), "operation not permitted on the default exchange"),
        (lambda c: c.exchange_delete(""), "operation not permitted on the default exchange"),
        (
            lambda c: c.exchange_delete("amq.topic"),
            "deletion of system exchange 'amq.topic' in vhost '/' not allowed",
        ),
        (
            lambda c: c.exchange_bind("amq.fanout", ""),
            "operation not permitted on the default exchange",
        ),
    ):
        channel = connection.channel()
        assert refused(partial(call, channel)) == (403, f"ACCESS_REFUSED - {text}")


@pytest.mark.rule("0-9-1/s104")
def test_an_internal_exchange_is_reached_through_others_only(
    connection: BlockingConnection, name: str
) -> None:
    channel = connection.channel()
    channel.exchange_declare(name, "fanout", internal=True)
    queue = queue_on(channel, name)
    channel.exchange_declare(f"{name}-out", "fanout")
    channel.exchange_bind(name, f"{name}-out")
    channel.basic_publish(f"{name}-out", "", b"in")
    assert got(channel, queue) == [b"in"]
    channel.basic_publish(name, "", b"direct")
    assert refused(lambda: channel.queue_declare(queue, passive=True)) == (
        403,
        f"ACCESS_REFUSED - cannot publish to internal exchange '{name}' in vhost '/'",
    )


@pytest.mark.rule("0-9-1/s047")
def test_delete_if_unused(connection: BlockingConnection, name: str) -> None:
    channel = connection.channel()
    channel.exchange_declare(name, "fanout")
    queue = queue_on(channel, name)
    assert refused(lambda: channel.exchange_delete(name, if_unused=True)) == (
        406,
        f"PRECONDITION_FAILED - exchange '{name}' in vhost '/' in use",
    )
    channel = connection.channel()
    channel.queue_unbind(queue, name, "")
    channel.exchange_delete(name, if_unused=True)
    channel.exchange_delete(name)  # It is gone, as was asked.
    assert refused(lambda: channel.exchange_declare(name, passive=True))[0] == 404


@pytest.mark.rule("0-9-1/s102")
def test_publishing_to_a_missing_exchange(channel: BlockingChannel, name: str) -> None:
    channel.basic_publish(name, "", b"x")
    assert refused(lambda: channel.basic_get("any")) == (
        404,
        f"NOT_FOUND - no exchange '{name}' in vhost '/'",
    )


@pytest.mark.rule("0-9-1/s103")
def test_the_blank_exchange_is_the_default_one(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    channel.basic_publish("", name, b"x")
    assert got(channel, name) == [b"x"]


def test_auto_delete_waits_for_the_last_binding(connection: BlockingConnection, name: str) -> None:
    channel = connection.channel()
    channel.exchange_declare(name, "direct", auto_delete=True)
    channel.exchange_declare(name, passive=True)  # Never used is no reason to go.
    queue = queue_on(channel, name, "a")
    channel.queue_bind(queue, name, "b")
    channel.queue_unbind(queue, name, "a")
    channel.exchange_declare(name, passive=True)
    channel.queue_delete(queue)
    assert refused(lambda: channel.exchange_declare(name, passive=True))[0] == 404


def test_exchange_to_exchange(channel: BlockingChannel, name: str) -> None:
    first, second = f"{name}-1", f"{name}-2"
    channel.exchange_declare(first, "topic")
    channel.exchange_declare(second, "direct")
    queue = queue_on(channel, second, "a.b")
    channel.exchange_bind(second, first, "a.#")
    channel.exchange_bind(second, first, "a.#")
    channel.exchange_bind(first, second, "a.b")  # A circle.
    for key in ("a.b", "a.c", "b"):
        channel.basic_publish(first, key, key.encode())
    assert got(channel, queue) == [b"a.b"]
    channel.exchange_unbind(second, first, "a.#")
    channel.exchange_unbind(second, first, "a.#")
    channel.basic_publish(first, "a.b", b"x")
    assert got(channel, queue) == []


@pytest.mark.parametrize("source", [True, False])
def test_exchange_bind_to_a_missing_exchange(
    channel: BlockingChannel, name: str, source: bool
) -> None:
    ends = ("amq.fanout", name) if source else (name, "amq.fanout")
    assert refused(lambda: channel.exchange_bind(*ends)) == (
        404,
        f"NOT_FOUND - no exchange '{name}' in vhost '/'",
    )


def test_alternate_exchange(channel: BlockingChannel, name: str) -> None:
    spare = f"{name}-spare"
    channel.exchange_declare(spare, "fanout")
    channel.exchange_declare(name, "direct", arguments={"alternate-exchange": spare})
    hit, missed = queue_on(channel, name, "k"), queue_on(channel, spare)
    channel.confirm_delivery()
    channel.basic_publish(name, "k", b"hit", mandatory=True)
    channel.basic_publish(name, "other", b"missed", mandatory=True)
    assert (got(channel, hit), got(channel, missed)) == ([b"hit"], [b"missed"])
    channel.queue_unbind(missed, spare, "")
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(name, "other", b"nobody's", mandatory=True)


def test_no_wait_means_no_answer(talk: Callable[[], RawClient], name: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.send(ExchangeDeclare(exchange=name, type="fanout", no_wait=True))
    client.send(ExchangeDeclare(exchange=f"{name}-2", type="fanout", no_wait=True))
    client.send(ExchangeBind(source=name, destination=f"{name}-2", no_wait=True))
    client.send(QueueBind(exchange=f"{name}-2", queue=name, no_wait=True))
    client.publish("", b"through", exchange=name)
    assert client.get(name) == b"through"
    client.send(ExchangeUnbind(source=name, destination=f"{name}-2", no_wait=True))
    client.publish("", b"cut off", exchange=name)
    assert client.get(name) is None
    client.send(ExchangeDelete(exchange=name, no_wait=True))
    client.call(QueueBind(exchange=f"{name}-2", queue=name), QueueBindOk)
    client.send(QueueDelete(queue=name, no_wait=True))
    client.send(QueueBind(exchange=name, queue=name))
    assert client.expect_channel_close().code == 404


@pytest.mark.rule("0-9-1/exchange.declare#01", "0-9-1/queue.declare#02")
def test_many_exchanges_and_queues(channel: BlockingChannel, name: str) -> None:
    for n in range(300):
        channel.exchange_declare(f"{name}-{n}", "fanout", auto_delete=True)
        queue = channel.queue_declare(f"{name}-{n}", exclusive=True).method.queue
        channel.queue_bind(queue, f"{name}-{n}")
    channel.basic_publish(f"{name}-299", "", b"x")
    assert got(channel, f"{name}-299") == [b"x"]
