# SPDX-License-Identifier: Apache-2.0
"""The reply codes and texts that programs match literally, as pika shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pika
import pytest
from pika import BasicProperties
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pika.adapters.blocking_connection import BlockingChannel

    Act = Callable[[BlockingChannel, str], object]


@pytest.fixture
def channel(broker) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    yield connection.channel()
    if connection.is_open:
        connection.close()


@pytest.fixture
def queue(channel: BlockingChannel, name: str) -> str:
    """A queue and a topic exchange of one name."""
    channel.queue_declare(name, exclusive=True)
    channel.exchange_declare(name, "topic", auto_delete=True)
    return name


def publish(channel: BlockingChannel, queue: str, **properties: Any) -> None:
    channel.basic_publish("", queue, b"x", BasicProperties(**properties))
    channel.queue_declare(queue, passive=True)  # What is wrong is told before this is answered.


def twice(act: Act) -> Act:
    def acts(channel: BlockingChannel, queue: str) -> None:
        act(channel, queue)
        act(channel, queue)

    return acts


def sequence(*acts: Act) -> Act:
    def run(channel: BlockingChannel, queue: str) -> None:
        for act in acts:
            act(channel, queue)

    return run


NOT_FOUND = [
    (lambda c, q: c.queue_declare(q + ".no", passive=True), "no queue '{q}.no' in vhost '/'"),
    (lambda c, q: c.basic_consume(q + ".no", print), "no queue '{q}.no' in vhost '/'"),
    (lambda c, q: c.basic_get(q + ".no"), "no queue '{q}.no' in vhost '/'"),
    (lambda c, q: c.queue_purge(q + ".no"), "no queue '{q}.no' in vhost '/'"),
    (lambda c, q: c.queue_bind(q + ".no", q, "k"), "no queue '{q}.no' in vhost '/'"),
    (lambda c, q: c.queue_bind(q, q + ".no", "k"), "no exchange '{q}.no' in vhost '/'"),
    (
        lambda c, q: c.exchange_declare(q + ".no", "topic", passive=True),
        "no exchange '{q}.no' in vhost '/'",
    ),
    (
        sequence(
            lambda c, q: c.basic_publish(q + ".no", "k", b""),
            lambda c, q: c.queue_declare(q, passive=True),
        ),
        "no exchange '{q}.no' in vhost '/'",
    ),
]

PRECONDITION_FAILED = [
    (
        lambda c, q: c.queue_declare(q, exclusive=True, auto_delete=True),
        (
            "inequivalent arg 'auto_delete' for queue '{q}' in vhost '/': "
            "received 'true' but current is 'false'"
        ),
    ),
    (
        lambda c, q: c.queue_declare(q, exclusive=True, arguments={"x-message-ttl": 2}),
        (
            "inequivalent arg 'x-message-ttl' for queue '{q}' in vhost '/': "
            "received the value '2' of type 'signedint' but current is none"
        ),
    ),
    (
        lambda c, q: c.exchange_declare(q, "fanout", auto_delete=True),
        (
            "inequivalent arg 'type' for exchange '{q}' in vhost '/': "
            "received 'fanout' but current is 'topic'"
        ),
    ),
    (
        lambda c, q: c.exchange_declare(q, "topic", auto_delete=True, durable=True),
        (
            "inequivalent arg 'durable' for exchange '{q}' in vhost '/': "
            "received 'true' but current is 'false'"
        ),
    ),
    (
        lambda c, q: c.queue_declare(q + ".n", arguments={"x-max-length": -1}),
        "invalid arg 'x-max-length' for queue '{q}.n' in vhost '/': ",
    ),
    (
        lambda c, q: c.exchange_declare(q + ".n", arguments={"alternate-exchange": 1}),
        "invalid type 'signedint' for arg 'alternate-exchange' in exchange '{q}.n' in vhost '/'",
    ),
    (
        lambda c, q: c.basic_consume(q, print, arguments={"x-priority": True}),
        "invalid arg 'x-priority' for queue '{q}' in vhost '/': \"expected integer, got bool\"",
    ),
    (
        sequence(
            lambda c, q: c.basic_ack(99),
            lambda c, q: c.queue_declare(q, passive=True),
        ),
        "unknown delivery tag 99",
    ),
    (
        sequence(
            lambda c, q: c.basic_consume(q, print),
            lambda c, q: c.queue_delete(q, if_unused=True),
        ),
        "queue '{q}' in vhost '/' in use",
    ),
    (
        sequence(publish, lambda c, q: c.queue_delete(q, if_empty=True)),
        "queue '{q}' in vhost '/' not empty",
    ),
    (
        sequence(
            lambda c, q: c.queue_bind(q, q, "k"),
            lambda c, q: c.exchange_delete(q, if_unused=True),
        ),
        "exchange '{q}' in vhost '/' in use",
    ),
    (lambda c, q: publish(c, q, expiration="soon"), "invalid expiration 'soon': no_integer"),
    (lambda c, q: c.tx_commit(), "channel is not transactional"),
    (
        sequence(lambda c, q: c.tx_select(), lambda c, q: c.confirm_delivery()),
        "cannot switch from tx to confirm mode",
    ),
    (
        sequence(lambda c, q: c.confirm_delivery(), lambda c, q: c.tx_select()),
        "cannot switch from confirm to tx mode",
    ),
    (
        lambda c, q: publish(c, q, reply_to="amq.rabbitmq.reply-to"),
        "fast reply consumer does not exist",
    ),
    (lambda c, q: c.basic_consume("amq.rabbitmq.reply-to", print), "reply consumer cannot ack"),
    (
        twice(lambda c, q: c.basic_consume("amq.rabbitmq.reply-to", print, auto_ack=True)),
        "reply consumer already set",
    ),
    (
        lambda c, q: publish(c, q, user_id="somebody"),
        "user_id property set to 'somebody' but authenticated user was 'guest'",
    ),
]

ACCESS_REFUSED = [
    (
        lambda c, q: c.queue_declare("amq.mine"),
        "queue name 'amq.mine' contains reserved prefix 'amq.*'",
    ),
    (
        lambda c, q: c.exchange_declare("amq.mine"),
        "exchange name 'amq.mine' contains reserved prefix 'amq.*'",
    ),
    (lambda c, q: c.queue_bind(q, "", "k"), "operation not permitted on the default exchange"),
    (lambda c, q: c.exchange_delete(""), "operation not permitted on the default exchange"),
    (
        sequence(
            lambda c, q: c.basic_consume(q, print),
            lambda c, q: c.basic_consume(q, print, exclusive=True),
        ),
        "queue '{q}' in vhost '/' in exclusive use",
    ),
]


@pytest.mark.parametrize(
    ("code", "word", "act", "text"),
    [
        *((404, "NOT_FOUND", act, text) for act, text in NOT_FOUND),
        *((406, "PRECONDITION_FAILED", act, text) for act, text in PRECONDITION_FAILED),
        *((403, "ACCESS_REFUSED", act, text) for act, text in ACCESS_REFUSED),
    ],
)
def test_channel_errors(channel, queue, code, word, act, text):
    with pytest.raises(ChannelClosedByBroker) as raised:
        act(channel, queue)
    assert raised.value.reply_code == code
    assert raised.value.reply_text.startswith(f"{word} - {text.format(q=queue)}")
    assert channel.connection.channel().is_open


@pytest.mark.parametrize("other", ["", ".no"])
def test_consumer_tag_used_twice_ends_the_connection(channel, queue, other):
    for name in (queue, queue + other):  # pika itself would object.
        channel._impl._send_method(pika.spec.Basic.Consume(queue=name, consumer_tag="t"))
    with pytest.raises(ConnectionClosedByBroker) as raised:
        channel.queue_declare(queue, passive=True)
    assert raised.value.reply_code == 530
    assert raised.value.reply_text == "NOT_ALLOWED - attempt to reuse consumer tag 't'"


def test_unknown_exchange_type_ends_the_connection(channel, name):
    with pytest.raises(ConnectionClosedByBroker) as raised:
        channel.exchange_declare(name, "odd")
    assert raised.value.reply_code == 503
    assert raised.value.reply_text == "COMMAND_INVALID - unknown exchange type 'odd'"
