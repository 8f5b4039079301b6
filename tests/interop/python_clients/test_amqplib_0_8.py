# SPDX-License-Identifier: Apache-2.0
"""amqplib 1.0 for Python, a client of AMQP 0-8 (Debian's python3-amqplib)."""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pika
import pytest

from support.brokers.broker_process import Served
from support.clients.client_programs import BROUGHT, bring
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = BROUGHT / "py-amqplib" / "usr" / "lib" / "python3" / "dist-packages"


@pytest.fixture(scope="module")
def amqp() -> Any:
    bring(PACKAGES)
    sys.path.append(str(PACKAGES))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # It is older than what it is run with.
            return importlib.import_module("amqplib.client_0_8")
    finally:
        sys.path.remove(str(PACKAGES))


@pytest.fixture
def connection(amqp: Any, broker: Any) -> Iterator[Any]:
    made = amqp.Connection(host=f"{broker.host}:{broker.port}", userid="guest", password="guest")
    yield made
    made.close()


@pytest.fixture
def channel(connection: Any) -> Any:
    return connection.channel()


def test_a_ticket_a_queue_and_a_message_with_every_property(
    amqp: Any, channel: Any, name: str
) -> None:
    ticket = channel.access_request("/data", active=True, write=True, read=True)
    channel.queue_declare(name, auto_delete=False, ticket=ticket)
    properties = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "application_headers": {"s": "text", "i": -7, "d": Decimal("3.5"), "t": {"inner": 1}},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "100000",
        "message_id": "m",
        "timestamp": datetime(2020, 1, 2, 3, 4, 5),  # noqa: DTZ001 - it knows no zones
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
        "cluster_id": "cluster",
    }
    channel.basic_publish(amqp.Message("Grüße", **properties), routing_key=name, ticket=ticket)
    got = channel.basic_get(name, no_ack=True, ticket=ticket)
    assert got.body == "Grüße"
    assert got.properties == properties
    assert channel.basic_get(name, no_ack=True, ticket=ticket) is None
    channel.queue_delete(name, ticket=ticket)


def test_without_a_ticket(amqp: Any, channel: Any, name: str) -> None:
    channel.queue_declare(name, auto_delete=False)
    channel.basic_publish(amqp.Message("x"), routing_key=name)
    assert channel.basic_get(name).body == "x"


def test_exchanges_bindings_and_consumers(amqp: Any, connection: Any, name: str) -> None:
    channel = connection.channel()
    channel.exchange_declare(name, "topic", auto_delete=False)
    queue, ready, consumers = channel.queue_declare(exclusive=True, auto_delete=False)
    assert (ready, consumers) == (0, 0)
    channel.queue_bind(queue, name, "a.*")
    channel.basic_qos(0, 1, False)
    got: list[Any] = []
    tag = channel.basic_consume(queue, callback=got.append)
    for key, body in (("a.b", "one"), ("b", "lost"), ("a.c", "two" * 100_000)):
        channel.basic_publish(amqp.Message(body), exchange=name, routing_key=key)
    channel.wait()
    assert [message.body for message in got] == ["one"]  # One at a time.
    assert not got[0].delivery_info["redelivered"]
    channel.basic_ack(got[0].delivery_tag)
    channel.wait()
    assert got[1].body == "two" * 100_000
    channel.basic_recover(requeue=True)
    channel.wait()
    assert got[2].delivery_info["redelivered"]
    channel.basic_reject(got[2].delivery_tag, requeue=False)
    channel.queue_unbind(queue, name, "a.*")
    channel.basic_publish(amqp.Message("lost"), exchange=name, routing_key="a.b")
    channel.basic_cancel(tag)
    assert channel.queue_purge(queue) == 0
    channel.exchange_delete(name)


def test_transactions_and_returns(amqp: Any, connection: Any, name: str) -> None:
    channel = connection.channel()
    channel.queue_declare(name, auto_delete=False)
    channel.tx_select()
    channel.basic_publish(amqp.Message("x"), routing_key=name)
    channel.tx_rollback()
    channel.basic_publish(amqp.Message("y"), routing_key=name)
    channel.tx_commit()
    assert channel.basic_get(name).body == "y"
    other = connection.channel()
    for queue, how, why in (
        (f"{name}.none", {"mandatory": True}, (312, "NO_ROUTE")),
        (name, {"immediate": True}, (313, "NO_CONSUMERS")),
    ):
        other.basic_publish(amqp.Message("back"), routing_key=queue, **how)
        while other.returned_messages.empty():
            other.wait()
        code, text, _, key, message = other.returned_messages.get()
        assert (code, text, key, message.body) == (*why, queue, "back")


def test_errors_close_the_channel_and_not_the_connection(
    amqp: Any, connection: Any, name: str
) -> None:
    channel = connection.channel()
    with pytest.raises(amqp.AMQPChannelException) as raised:
        channel.queue_declare(name, passive=True)
    assert raised.value.amqp_reply_code == 404
    assert raised.value.amqp_reply_text == f"NOT_FOUND - no queue '{name}' in vhost '/'"
    again = connection.channel()
    again.queue_declare(name, auto_delete=True)
    with pytest.raises(amqp.AMQPChannelException) as raised:
        again.access_request("/nothing", read=True)
    assert raised.value.amqp_reply_code == 403


def test_headers_of_others_are_readable(amqp: Any, channel: Any, broker: Any, name: str) -> None:
    channel.queue_declare(name, auto_delete=False)
    parameters = pika.URLParameters(broker.url)
    with pika.BlockingConnection(parameters) as producer:
        headers = {"flag": True, "long": 2**40, "list": [1, "b"], "text": "t", "none": None}
        properties = pika.BasicProperties(headers=headers, content_type="x")
        producer.channel().basic_publish("", name, b"body", properties)
        deadline = time.monotonic() + PATIENCE_S
        while (got := channel.basic_get(name)) is None and time.monotonic() < deadline:
            pass
    assert got.body == b"body"  # Without a content encoding it does not decode.
    assert got.properties["content_type"] == "x"
    assert got.properties["application_headers"] == {
        "flag": 1,
        "long": "1099511627776",
        "list": {"1": 1, "2": "b"},
        "text": "t",
    }


def test_what_others_added_is_said_in_its_few_types(amqp: Any, channel: Any, name: str) -> None:
    dead, other, later = f"{name}.dead", f"{name}.other", f"{name}.later"
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.queue_declare(name, arguments={**letters, "x-single-active-consumer": 1})
    channel.queue_declare(later, arguments={"holdOnPublishEnabled": 1})
    for queue in (dead, other):
        channel.queue_declare(queue)

    def publish(queue: str, **headers: Any) -> None:
        channel.basic_publish(amqp.Message("x", application_headers=headers), routing_key=queue)

    headers: dict[str, Any] = {"CC": {"1": other}}
    for count in (1, 2):
        publish(name, **headers)
        taken = channel.basic_get(name)
        channel.basic_reject(taken.delivery_tag, requeue=False)
        headers = channel.basic_get(dead, no_ack=True).properties["application_headers"]
        assert headers["x-death"]["1"]["count"] == count
        headers["CC"] = {"1": other}
    assert channel.queue_purge(other) == 2
    publish(later, **{"x-qpid-not-valid-before": str(int(time.time() * 1000) + 3_600_000)})
    publish(later, **{"x-qpid-not-valid-before": "1"})
    assert channel.basic_get(later, no_ack=True) is not None
    assert channel.basic_get(later, no_ack=True) is None
    for queue in (name, later, dead, other):
        channel.queue_delete(queue)


def test_a_client_follows_a_redirection(
    amqp: Any, broker: Any, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    here = f"{broker.host}:{broker.port}"
    home = tmp_path_factory.mktemp("redirecting")
    options = ("--redirect", f"/={here}", "--known-hosts", "/=one.example,two.example")
    other = Served(home, *options, memory=True).start()
    made = amqp.Connection(host=f"{other.host}:{other.port}", insist=False)
    channel = made.channel()
    channel.queue_declare(name, auto_delete=False)
    made.close()
    direct = amqp.Connection(host=here)
    direct.channel().queue_declare(name, passive=True)  # It went to the first broker.
    direct.close()
    insisting = amqp.Connection(host=f"{other.host}:{other.port}", insist=True)
    assert insisting.known_hosts == "one.example,two.example"
    insisting.close()
    assert other.stop() == 0
