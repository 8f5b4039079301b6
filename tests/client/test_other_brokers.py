# SPDX-License-Identifier: Apache-2.0
"""Brokers that know less than ours: they get no extension that they do not announce."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headrace.client import ChannelClosed, Recovered, UsageError, connect
from headrace.client.connection.reconnect import Reconnect
from headrace.client.link.capabilities import announces
from headrace.protocol.codec_0_x import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ConfirmSelect,
    ConfirmSelectOk,
)
from support.brokers.scripted_broker import Peer, scripted

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.wire.table import Value

    Properties = dict[str, Value]

PLAIN: Properties = {"product": "Plain"}
RABBITMQ: Properties = {"product": "RabbitMQ", "capabilities": {}}  # RabbitMQ's properties in 0-8.
QPID: Properties = {"product": "qpid", "qpid.confirmed_publish_supported": "true"}
ARGUMENTS_0_8 = r"takes no arguments of consumers in AMQP 0-8 \(x-priority\): use version=0-9-1"


async def serve_consumer(peer: Peer, properties: Properties) -> BasicConsume:
    """Accept a client, open its channel, and start its consumer."""
    await peer.handshake(properties=properties)
    await peer.open_channel()
    await peer.expect(BasicQos)
    peer.send(peer.channel, BasicQosOk())
    consume = await peer.expect(BasicConsume)
    peer.send(peer.channel, BasicConsumeOk(consumer_tag=consume.consumer_tag))
    return consume


@pytest.mark.parametrize("properties", [PLAIN, RABBITMQ], ids=["plain", "rabbitmq"])
async def test_arguments_of_a_consumer_in_0_8(properties: Properties) -> None:
    started = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.handshake(properties=properties)
        await peer.open_channel()
        for _ in range(2):  # That of the consumer that was refused here is answered all the same.
            await peer.expect(BasicQos)
            peer.send(peer.channel, BasicQosOk())
        consume = await peer.expect(BasicConsume)
        assert consume.arguments == {}
        peer.send(peer.channel, BasicConsumeOk(consumer_tag=consume.consumer_tag))
        started.set()

    async with scripted(script) as broker:
        connection = await connect(f"{broker.url}?version=0-8", reconnect=None)
        channel = await connection.channel(confirm=False)
        with pytest.raises(UsageError, match=ARGUMENTS_0_8):
            await channel.consume("q", tag="t", priority=1).start()
        await channel.consume("q", tag="t").start()
        assert started.is_set()


async def test_qpid_has_arguments_of_consumers_in_0_8() -> None:
    received = asyncio.Event()

    async def script(peer: Peer) -> None:
        assert (await serve_consumer(peer, QPID)).arguments == {"x-priority": 1}
        received.set()

    async with scripted(script) as broker:
        connection = await connect(f"{broker.url}?version=0-8", reconnect=None)
        channel = await connection.channel(confirm=False)
        await channel.consume("q", priority=1).start()
        assert received.is_set()


@pytest.mark.parametrize(
    ("properties", "table"),
    [
        (PLAIN, b""),
        (RABBITMQ, b""),
        (QPID, bytes(4)),  # Qpid decodes a table, which may be empty.
        ({"product": "Apache Qpid Broker-J"}, bytes(4)),
    ],
    ids=["plain", "rabbitmq", "qpid", "broker-j"],
)
async def test_a_table_for_those_who_read_one_in_0_8(properties: Properties, table: bytes) -> None:
    sent: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def script(peer: Peer) -> None:
        assert (await serve_consumer(peer, properties)).arguments == {}
        sent.set_result(peer.octets)

    async with scripted(script) as broker:
        connection = await connect(f"{broker.url}?version=0-8", reconnect=None)
        channel = await connection.channel(confirm=False)
        await channel.consume("q", tag="t").start()
        assert (await sent).endswith(b"\x01t\x00" + table + b"\xce")


async def test_a_consumer_that_another_broker_cannot_have() -> None:
    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    events: asyncio.Queue[object] = asyncio.Queue()

    async def first(peer: Peer) -> None:
        await serve_consumer(peer, QPID)
        await lost
        peer.hang_up()

    async def second(peer: Peer) -> None:
        await peer.handshake(properties=PLAIN)
        await peer.open_channel()
        await peer.expect(BasicQos)
        peer.send(peer.channel, BasicQosOk())

    async with scripted(first, second) as broker:
        connection = await connect(
            f"{broker.url}?version=0-8", reconnect=Reconnect(delay_s=0), on_event=events.put_nowait
        )
        channel = await connection.channel(confirm=False)
        consumer = channel.consume("q", priority=1)
        await consumer.start()
        lost.set_result(None)
        with pytest.raises(UsageError, match=ARGUMENTS_0_8):
            await consumer.receive()
        while not isinstance(await events.get(), Recovered):
            pass


@pytest.mark.parametrize("version", ["0-8", "0-9"])
@pytest.mark.parametrize("properties", [PLAIN, RABBITMQ], ids=["plain", "rabbitmq"])
async def test_what_early_brokers_are_told_of_us(version: str, properties: Properties) -> None:
    """The client sends capabilities only to brokers that announce some."""
    told: list[Properties] = []

    async def script(peer: Peer) -> None:
        start_ok, _, _ = await peer.handshake(properties=properties)
        told.append(start_ok.client_properties)

    async with scripted(script) as broker:
        await connect(f"{broker.url}?version={version}", reconnect=None)
    capabilities = told[0].pop("capabilities", None)
    assert all(isinstance(value, str) for value in told[0].values())
    assert capabilities == (
        {"consumer_cancel_notify": True, "authentication_failure_close": True}
        if properties is RABBITMQ
        else None
    )


@pytest.mark.parametrize("properties", [PLAIN, RABBITMQ], ids=["plain", "rabbitmq"])
async def test_methods_that_are_not_announced(properties: Properties) -> None:
    published = asyncio.Event()

    async def script(peer: Peer) -> None:
        consume = await serve_consumer(peer, properties)
        for tag in (1, 2):
            deliver = BasicDeliver(consumer_tag=consume.consumer_tag, delivery_tag=tag)
            peer.send_content(peer.channel, deliver, b"%d" % tag)
        await peer.open_channel()
        await peer.expect(BasicPublish)
        published.set()

    async with scripted(script) as broker:
        connection = await connect(broker.url, reconnect=None)
        channel = await connection.channel()
        consumer = channel.consume("q")
        deliveries = [await consumer.receive() for _ in range(2)]
        with pytest.raises(UsageError, match=r"does not announce basic\.nack: reject the deliver"):
            await deliveries[1].nack(multiple=True)
        assert not deliveries[1].settled
        with pytest.raises(UsageError, match="does not announce publisher confirms: open the chan"):
            await channel.publish("a", "q")
        with pytest.raises(UsageError, match="does not announce bindings between exchanges"):
            await channel.bind_exchange("a", "b")
        with pytest.raises(UsageError, match="does not announce bindings between exchanges"):
            await channel.unbind_exchange("a", "b")
        other = await connection.channel(confirm=False)
        await other.publish("a", "q")
        await published.wait()


async def test_qpid_confirms_publishes() -> None:
    selected = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.handshake(properties=QPID)
        await peer.open_channel()
        await peer.expect(ConfirmSelect)
        peer.send(peer.channel, ConfirmSelectOk())
        selected.set()

    async with scripted(script) as broker:
        connection = await connect(broker.url, reconnect=None)
        channel = await connection.channel()
        await channel.publish_soon("a", "q")
        await selected.wait()
        with pytest.raises(UsageError, match="does not announce bindings between exchanges"):
            await channel.bind_exchange("a", "b")


def test_what_a_broker_announces() -> None:
    headrace: Properties = {"headrace_id": "1"}
    # Versions whose properties are texts announce it by the id.
    assert announces(headrace, "basic.nack")
    assert not announces({**headrace, "capabilities": {"basic.nack": False}}, "basic.nack")
    assert announces(QPID, "publisher_confirms")
    assert not announces({"qpid.confirmed_publish_supported": "false"}, "publisher_confirms")
    assert not announces({}, "publisher_confirms")


@pytest.mark.parametrize("version", ["0-8", "0-9"])
async def test_a_channel_closed_before_its_confirms_are_answered(
    url: str, version: str, name: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(f"{url}?version={version}", reconnect=None) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(name(), durable=False, auto_delete=True)
            confirmed = await channel.publish_soon("a", name())
        with pytest.raises(ChannelClosed):
            await confirmed
    assert not [record for record in caplog.records if record.name == "asyncio"]
