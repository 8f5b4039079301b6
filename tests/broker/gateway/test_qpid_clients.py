# SPDX-License-Identifier: Apache-2.0
"""Behaviour that Qpid's clients, JMS among them, expect before 0-10; other clients do not get it.

A client is one of Qpid's by the properties that it sends with connection.start-ok.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicProperties,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ConnectionStart,
    ConnectionStartOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    decode_content_header,
)
from headrace.protocol.v0_x.events import ContentReceived
from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version
from headrace.testing.raw_client import RawClient

if TYPE_CHECKING:
    from support.brokers.broker_process import Served
    from support.brokers.in_memory_broker import Client, Rig

#: In the order and with the names of Qpid's JMS client.
JMS = {
    "instance": "an-id",
    "product": "Apache Qpid JMS Client for AMQP 0-9-1/0-10",
    "version": "6.4.0",
    "platform": "OpenJDK Runtime Environment, 17",
    "qpid.client_process": "a process",
    "qpid.client_pid": 4711,
    "qpid.message_compression_supported": "false",
}
UNNAMED = {**JMS, "product": "unknown"}  # As when it runs from its build's classes.
OTHER = {"product": "a client"}
TEMPORARY = {
    "qpid.lifetime_policy": "DELETE_ON_CONNECTION_CLOSE",
    "qpid.exclusivity_policy": "CONNECTION",
}

every_version = pytest.mark.parametrize("version", [V0_8, V0_9, V0_9_1], ids=lambda v: v.label)
every_qpid = pytest.mark.parametrize("says", [JMS, UNNAMED], ids=["jms", "unnamed"])


def declare(client: Client, queue: str = "q", **flags: Any) -> None:
    client.call(QueueDeclare(queue=queue, **flags), QueueDeclareOk)


def publish(client: Client, body: bytes = b"m", queue: str = "q", **properties: Any) -> None:
    client.publish(queue, body, **properties)


def refused(client: Client) -> int:
    """The channel was closed: return the code."""
    (close,) = client.heard()
    assert isinstance(close, ChannelClose)
    return close.reply_code


# --- Consumers that end by themselves -------------------------------------------------------------


def browse(client: Client) -> list[Any]:
    """Browse a queue to its end; return what ended that."""
    client.send(BasicConsume(queue="q", arguments={"x-filter-auto-close": True}, no_ack=True))
    consumer, *deliveries, end = client.heard()
    assert isinstance(consumer, BasicConsumeOk)
    assert [type(each) for each in deliveries] == [BasicDeliver]
    assert end.consumer_tag == consumer.consumer_tag  # type: ignore[attr-defined]
    return [type(end), getattr(end, "no_wait", None)]


@every_version
@pytest.mark.parametrize("says", [JMS, OTHER], ids=["jms", "other"])
def test_a_consumer_ends_with_cancel_ok_where_cancels_are_not_supported(
    rig: Rig, version: Version, says: dict[str, Any]
) -> None:
    client = rig.client(version, says=says)
    declare(client)
    publish(client)
    assert browse(client) == [BasicCancelOk, None]


@every_version
def test_an_end_is_a_cancel_for_who_hears_of_them(rig: Rig, version: Version) -> None:
    client = rig.client(version, says={"capabilities": {"consumer_cancel_notify": True}})
    declare(client)
    publish(client)
    assert browse(client) == [BasicCancel, False]


# --- Expirations ----------------------------------------------------------------------------------


@every_version
@every_qpid
def test_a_large_expiration_is_a_moment(rig: Rig, version: Version, says: dict[str, Any]) -> None:
    client = rig.client(version, says=says)
    declare(client)
    queue = rig.vhost.queues["q"]
    moment = str(rig.counters.now_ms + 5000)
    publish(client, expiration=moment)
    publish(client, expiration="9000")  # The client can be set to send times to live.
    rig.pass_time(4999)
    assert queue.ready_count == 2
    rig.pass_time(1)
    assert queue.ready_count == 1
    rig.pass_time(4000)
    assert queue.ready_count == 0
    publish(client, expiration=moment)  # It is over already.
    rig.pass_time(0)
    assert queue.ready_count == 0
    publish(client, expiration=str((1 << 63) - 1))
    assert queue.ready_count == 1


@every_version
def test_a_moment_is_delivered_as_it_was_said(rig: Rig, version: Version) -> None:
    client = rig.client(version, says=JMS)
    declare(client)
    moment = str(rig.counters.now_ms + 5000)
    publish(client, expiration=moment)
    client.send(BasicConsume(queue="q", no_ack=True))
    content = client.events[-1]
    assert isinstance(content, ContentReceived)
    _, _, properties = decode_content_header(version, content.header)
    assert isinstance(properties, BasicProperties)
    assert properties.expiration == moment


@every_version
def test_from_other_clients_a_large_expiration_is_refused(rig: Rig, version: Version) -> None:
    client = rig.client(version, says=OTHER)
    declare(client)
    publish(client, expiration=str(rig.counters.now_ms + 5000))
    assert refused(client) == 406


@pytest.mark.parametrize("text", ["soon", "-1", "1" * 20, "17e11", "1700000005000 "])
def test_what_is_no_number_is_refused_from_qpid_as_well(rig: Rig, text: str) -> None:
    client = rig.client(says=JMS)
    declare(client)
    publish(client, expiration=text)
    assert refused(client) == 406


def test_a_delayed_message_expires_at_its_moment(rig: Rig) -> None:
    client = rig.client(says=JMS)
    declare(client)
    moment = str(rig.counters.now_ms + 5000)
    publish(client, expiration=moment, headers={"x-delay": 1000})
    rig.pass_time(1000)
    assert rig.vhost.queues["q"].ready_count == 1
    rig.pass_time(4000)
    assert rig.vhost.queues["q"].ready_count == 0


# --- Prefetch -------------------------------------------------------------------------------------


def deliveries(client: Client) -> int:
    return sum(isinstance(each, BasicDeliver) for each in client.heard())


@every_version
def test_a_prefetch_is_the_whole_channels_and_counts_at_once(rig: Rig, version: Version) -> None:
    client = rig.client(version, says=JMS)
    for name in "qp":
        client.send(QueueDeclare(queue=name))
        client.send(BasicConsume(queue=name, consumer_tag=name))
    client.send(BasicQos(prefetch_count=2))
    for _ in range(3):
        publish(client, queue="q")
        publish(client, queue="p")
    assert deliveries(client) == 2
    client.send(BasicQos(prefetch_count=3))  # One more, as for each receive without a prefetch.
    assert deliveries(client) == 1
    client.send(BasicQos(prefetch_count=0, global_=True))
    assert deliveries(client) == 3


def test_of_other_clients_consumers_that_are_there_keep_their_prefetch(rig: Rig) -> None:
    client = rig.client(says=OTHER)
    declare(client)
    client.send(BasicConsume(queue="q"))
    client.send(BasicQos(prefetch_count=1))
    for _ in range(3):
        publish(client)
    assert deliveries(client) == 3


# --- Queues ---------------------------------------------------------------------------------------


@every_version
def test_a_durable_exclusive_queue_outlives_its_connection(rig: Rig, version: Version) -> None:
    client = rig.client(version, says=JMS)
    declare(client, durable=True, exclusive=True)
    publish(client)
    other = rig.client(version, says=JMS)
    other.send(BasicConsume(queue="q"))
    assert refused(other) == 405
    client.end()
    again = rig.client(version, says=JMS)
    declare(again, durable=True, exclusive=True)  # Its owner is this one now.
    another = rig.client(version, says=JMS)
    another.send(QueueDeclare(queue="q", durable=True, exclusive=True))
    assert refused(another) == 405
    again.send(BasicConsume(queue="q"))
    assert deliveries(again) == 1


@every_version
def test_with_auto_delete_it_goes_all_the_same(rig: Rig, version: Version) -> None:
    client = rig.client(version, says=JMS)
    declare(client, durable=True, exclusive=True, auto_delete=True)
    client.end()
    assert "q" not in rig.vhost.queues


@every_version
@pytest.mark.parametrize(
    ("says", "flags"), [(OTHER, {"durable": True}), (JMS, {})], ids=["other", "transient"]
)
def test_other_exclusive_queues_go_with_their_connection(
    rig: Rig, version: Version, says: dict[str, Any], flags: dict[str, Any]
) -> None:
    client = rig.client(version, says=says)
    declare(client, exclusive=True, **flags)
    client.end()
    assert "q" not in rig.vhost.queues


@every_version
def test_a_temporary_queue_outlives_its_consumers(rig: Rig, version: Version) -> None:
    client = rig.client(version, says=JMS)
    declare(client, exclusive=True, auto_delete=True, arguments=TEMPORARY)
    client.send(BasicConsume(queue="q", consumer_tag="c"))
    client.send(BasicCancel(consumer_tag="c"))
    assert "q" in rig.vhost.queues
    other = rig.client(version, says=JMS)
    other.send(BasicConsume(queue="q"))
    assert refused(other) == 405
    client.end()
    assert "q" not in rig.vhost.queues


def test_a_client_is_told_that_queues_may_live_as_long_as_it(served: Served) -> None:
    with RawClient(served.host, served.port) as raw:
        said = raw.greet().server_properties
    assert said["qpid.queue_lifetime_supported"] == "true"
    with RawClient(served.host, served.port, V0_9) as raw:
        raw.send_bytes(V0_9.header)
        assert "qpid.queue_lifetime_supported" not in raw.expect(ConnectionStart).server_properties


@every_version
def test_a_second_declaration_is_not_compared(rig: Rig, version: Version) -> None:
    client = rig.client(version, says=JMS)
    declare(client, durable=True, arguments={"x-max-length": 5})
    declare(client)
    assert rig.vhost.queues["q"].durable
    client.call(ExchangeDeclare(exchange="e", type="topic"), ExchangeDeclareOk)
    client.call(ExchangeDeclare(exchange="e", type="topic", durable=True), ExchangeDeclareOk)
    assert not rig.vhost.exchanges["e"].durable


def test_that_of_another_client_is(rig: Rig) -> None:
    client = rig.client(says=OTHER)
    declare(client, durable=True)
    client.send(QueueDeclare(queue="q"))
    assert refused(client) == 406


# --- Bindings -------------------------------------------------------------------------------------


@every_version
@pytest.mark.parametrize(
    ("says", "exchange", "left"),
    [(JMS, "amq.topic", 1), (JMS, "amq.direct", 2), (OTHER, "amq.topic", 2)],
    ids=["topic", "direct", "other"],
)
def test_a_binding_to_a_topic_replaces_its_predecessor(
    rig: Rig, version: Version, says: dict[str, Any], exchange: str, left: int
) -> None:
    client = rig.client(version, says=says)
    declare(client)
    for key, selector in (("k", "n = 1"), ("other", "n = 1"), ("k", "n = 2"), ("k", "n = 2")):
        arguments: dict[str, Any] = {"x-filter-jms-selector": selector}
        bind = QueueBind(queue="q", exchange=exchange, routing_key=key, arguments=arguments)
        client.call(bind, QueueBindOk)
    queue = rig.vhost.queues["q"]
    keys = [binding.routing_key for binding in rig.vhost.bindings_to(queue)]
    assert sorted(keys) == ["k"] * left + ["other"]


# --- Logins ---------------------------------------------------------------------------------------


def wrong(says: dict[str, Any]) -> ConnectionStartOk:
    """A login with a wrong password."""
    return ConnectionStartOk(
        client_properties=says, mechanism="PLAIN", response=b"\0guest\0wrong", locale="en_US"
    )


@every_version
@every_qpid
def test_a_wrong_password_is_answered(
    served: Served, version: Version, says: dict[str, Any]
) -> None:
    with RawClient(served.host, served.port, version) as raw:
        raw.greet()
        raw.send(wrong(says), 0)
        code, text, method = raw.expect_connection_close()
    assert (code, method) == (530, (10, 11))
    assert text == "NOT_ALLOWED - Login was refused using authentication mechanism PLAIN"


@every_version
def test_other_clients_find_the_connection_closed(served: Served, version: Version) -> None:
    with RawClient(served.host, served.port, version) as raw:
        raw.greet()
        raw.send(wrong(OTHER), 0)
        assert raw.hung_up()


def test_acknowledging_gives_the_channel_its_credit_back(rig: Rig) -> None:
    client = rig.client(says=JMS)
    declare(client)
    client.send(BasicQos(prefetch_count=1))
    client.send(BasicConsume(queue="q"))
    for _ in range(3):
        publish(client)
    assert deliveries(client) == 1
    client.send(BasicAck(delivery_tag=1))
    assert deliveries(client) == 1


# --- Numbers that come as text --------------------------------------------------------------------


@every_version
@pytest.mark.parametrize("says", [JMS, OTHER], ids=["jms", "other"])
def test_a_number_may_come_as_text(rig: Rig, version: Version, says: dict[str, Any]) -> None:
    """As the address strings of Qpid's clients send them."""
    client = rig.client(version, says=says)
    declare(client, arguments={"x-max-length": "2"})
    declare(client, arguments={"x-max-length": 2})
    client.send(BasicConsume(queue="q", consumer_tag="low", arguments={"x-priority": "-5"}))
    client.send(BasicConsume(queue="q", consumer_tag="high", arguments={"x-priority": "5"}))
    client.events.clear()
    publish(client)
    (delivery,) = client.contents()
    assert isinstance(delivery.method, BasicDeliver)
    assert delivery.method.consumer_tag == "high"
    declare(client, "s", durable=True, arguments={"x-queue-type": "stream"})
    client.call(BasicQos(prefetch_count=5), BasicQosOk)
    at: dict[str, Any] = {"x-stream-offset": "0", "x-consumer-timeout": "60000"}
    client.call(BasicConsume(queue="s", arguments=at), BasicConsumeOk)


@pytest.mark.parametrize("text", ["five", "5.0", "", "9" * 20])
@pytest.mark.parametrize("name", ["x-priority", "x-qpid-replay-period", "x-consumer-timeout"])
def test_what_is_no_number_is_refused(rig: Rig, name: str, text: str) -> None:
    client = rig.client(says=JMS)
    declare(client)
    client.send(BasicConsume(queue="q", arguments={name: text}))
    assert refused(client) == 406
