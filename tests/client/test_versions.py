# SPDX-License-Identifier: Apache-2.0
"""The same calls in every version of AMQP, against a broker that serves them all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pytest

from headrace.client import (
    Channel,
    ChannelClosed,
    Connection,
    Consumer,
    Message,
    NotFound,
    PreconditionFailed,
    Returned,
    UsageError,
    blocking,
    connect,
    parse_url,
)
from headrace.client.channel.deduplicate import Deduplicator
from headrace.client.errors import InvalidUrl
from headrace.spec.tables import V0_9_1, Version
from headrace.testing import LocalBroker
from support.conversations.version_conversations import in_version
from support.timeouts import PATIENCE_S

Names: TypeAlias = Callable[[str], str]
VERSIONS = [version.label for version in Version]
REFUSED_FOR_GOOD = ("0-8", "0-9")  # A channel's consumers do not receive its rejected messages.
every = pytest.mark.parametrize("version", VERSIONS)


def test_the_version_in_a_url() -> None:
    assert parse_url("amqp://host/").version is V0_9_1
    for version in Version:
        assert parse_url(f"amqp://host/?version={version.label}").version is version
    with pytest.raises(InvalidUrl, match="version='1-0' is not one of 0-8, 0-9, 0-9-1, 0-10"):
        parse_url("amqp://host/?version=1-0")
    with pytest.raises(InvalidUrl, match="insist"):
        parse_url("amqp://host/?insist=maybe")
    assert parse_url("amqp://host/?insist=true").insist


@every
async def test_publish_get_consume(url: str, version: str, name: Names) -> None:
    queue = name(version)
    message = Message(
        b"one",
        headers={"a": 1, "b": "x", "c": [1, "y"], "d": {"e": True}, "f": None},
        content_type="text/plain",
        content_encoding="utf-8",
        priority=4,
        correlation_id="correlation",
        reply_to="somewhere",
        expiration=timedelta(seconds=60),
        message_id="not a uuid",
        timestamp=datetime(2024, 2, 29, tzinfo=UTC),
        type="kind",
        app_id="app",
    )
    if version in ("0-8", "0-9"):  # Their tables hold only numbers, texts and tables.
        message.headers = {"a": 1, "b": "x", "d": {"e": 5}}
    async with connect(in_version(url, version), reconnect=None) as connection:
        assert connection.version.label == version
        async with connection.channel() as channel:
            state = await channel.declare_queue(queue)
            assert (state.name, state.message_count, state.consumer_count) == (queue, 0, 0)
            await channel.publish(message, queue)
            delivery = await channel.get(queue)
            assert delivery is not None
            for field in Message.__dataclass_fields__:
                assert getattr(delivery, field) == getattr(message, field), field
            assert (delivery.exchange, delivery.routing_key) == ("", queue)
            assert not delivery.redelivered
            assert await delivery.ack()
            assert await channel.get(queue) is None
            assert await channel.publish_many((f"{n}" for n in range(250)), queue) == 250
            assert (await channel.declare_queue(queue, passive=True)).message_count == 250
            async with channel.consume(queue, prefetch=10) as consumer:
                for n in range(250):
                    delivery = await consumer.receive()
                    assert delivery.text() == str(n)
                    await delivery.ack()
            assert await channel.purge_queue(queue) == 0
            await channel.publish("last", queue)
            assert await channel.delete_queue(queue) == 1


@every
async def test_prefetch_and_settling(url: str, version: str, name: Names) -> None:
    queue = name(version)
    async with connect(in_version(url, version), reconnect=None) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(queue)
            await channel.publish_many(["a", "b", "c", "d"], queue)
            async with channel.consume(queue, prefetch=2) as consumer:
                first, second = await consumer.receive(), await consumer.receive()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await consumer.receive()
                await first.reject()
                third = await consumer.receive()
                assert third.text() == "c"
                await second.nack()
                if version in REFUSED_FOR_GOOD:  # A basic.get may return the message.
                    fetched = await channel.get(queue)
                    assert fetched is not None
                    redelivered = fetched
                else:
                    redelivered = await consumer.receive()
                assert (redelivered.text(), redelivered.redelivered) == ("b", True)
                await third.ack()
                await redelivered.ack()
                last = await consumer.receive()
                await last.ack()
                with pytest.raises(UsageError, match="settled already"):
                    await last.ack()
            assert await channel.get(queue) is None
            await channel.publish("e", queue)
            fetched = await channel.get(queue)
            await channel.recover()
            once_more = await channel.get(queue, no_ack=True)
            assert fetched is not None
            assert once_more is not None
            assert once_more.redelivered
            await channel.delete_queue(queue)


@every
async def test_exchanges_and_returns(url: str, version: str, name: Names) -> None:
    exchange, queue = name("x"), name("q")
    async with connect(in_version(url, version), reconnect=None) as connection:
        async with connection.channel() as channel:
            await channel.declare_exchange(exchange, "topic")
            await channel.declare_queue(queue)
            await channel.bind_queue(queue, exchange, "*.hot")
            await channel.publish("soup", "soup.hot", exchange, mandatory=True)
            delivery = await channel.get(queue, no_ack=True)
            assert delivery is not None
            assert (delivery.exchange, delivery.routing_key) == (exchange, "soup.hot")
            with pytest.raises(Returned, match="routing key") as returned:
                await channel.publish("ice", "ice.cold", exchange, mandatory=True)
            assert returned.value.code == 312
            # Unroutable, and not mandatory: no error.
            await channel.publish("ice", "ice.cold", exchange)
            await channel.unbind_queue(queue, exchange, "*.hot")
            if version != "0-9-1":
                with pytest.raises(UsageError):
                    await channel.bind_exchange(exchange, "amq.topic")
            await channel.delete_queue(queue)
            await channel.delete_exchange(exchange)


@every
async def test_errors_close_the_channel(url: str, version: str, name: Names) -> None:
    queue = name("q")
    async with connect(in_version(url, version), reconnect=None) as connection:
        async with connection.channel() as channel:
            with pytest.raises(NotFound) as missing:
                await channel.declare_queue(name("missing"), passive=True)
            assert missing.value.code == 404
            assert channel.is_closed
        async with connection.channel() as channel:
            await channel.declare_queue(queue)
            await channel.publish("x", queue)
            with pytest.raises((PreconditionFailed, ChannelClosed)):
                await channel.delete_queue(queue, if_empty=True)
        async with connection.channel() as channel:
            await channel.delete_queue(queue)


async def roll_back_by_error(channel: Channel, queue: str) -> None:
    """Roll a transaction back by an exception in its block."""
    async with channel.transaction():
        await channel.publish("dropped", queue)
        delivery = await channel.get(queue)
        assert delivery is not None
        await delivery.ack()
        raise KeyError("out")


@every
@pytest.mark.rule("0-9-1/tx.commit#01", "0-9-1/tx.rollback#01")
async def test_transactions(url: str, version: str, name: Names) -> None:
    queue = name("q")
    async with connect(in_version(url, version), reconnect=None) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(queue)
            async with channel.transaction():  # It sends tx.select before tx.commit.
                await channel.publish("kept", queue)
            with pytest.raises(KeyError, match="out"):
                await roll_back_by_error(channel, queue)
            await channel.recover()
        async with connection.channel() as channel:
            delivery = await channel.get(queue, no_ack=True)
            assert delivery is not None
            assert delivery.text() == "kept"
            assert await channel.get(queue) is None
            await channel.delete_queue(queue)


@every
async def test_large_messages(url: str, version: str, name: Names) -> None:
    queue = name("q")
    body = bytes(range(256)) * 2000
    async with connect(in_version(url, version), reconnect=None) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(queue)
            await channel.publish(body, queue)
            async with channel.consume(queue, no_ack=True) as consumer:
                assert (await consumer.receive()).body == body
            await channel.delete_queue(queue)


@pytest.mark.parametrize("sender", VERSIONS)
async def test_every_version_reads_every_other(url: str, sender: str, name: Names) -> None:
    queue = name(sender)
    async with connect(in_version(url, sender), reconnect=None) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(queue)
            for _ in VERSIONS:
                message = Message(b"body", headers={"n": 5}, type="t", message_id="id")
                await channel.publish(message, queue)
    for receiver in VERSIONS:
        async with connect(in_version(url, receiver), reconnect=None) as connection:
            async with connection.channel() as channel:
                delivery = await channel.get(queue)
                assert delivery is not None
                assert (delivery.body, delivery.headers) == (b"body", {"n": 5})
                assert (delivery.type, delivery.message_id) == ("t", "id")
                await delivery.ack()


@every
def test_blocking(url: str, version: str, name: Names) -> None:
    queue = name("q")
    with blocking.connect(in_version(url, version), reconnect=None) as connection:
        with connection.channel() as channel:
            channel.declare_queue(queue)
            assert channel.publish_many(["a", "b"], queue) == 2
            with channel.consume(queue, prefetch=1) as consumer:
                for wanted in ("a", "b"):
                    delivery = consumer.receive(PATIENCE_S)
                    assert delivery.text() == wanted
                    delivery.ack()
            channel.delete_queue(queue)


@every
async def test_a_queue_that_the_broker_names(url: str, version: str) -> None:
    async with connect(in_version(url, version), reconnect=None) as connection:
        async with connection.channel() as channel:
            state = await channel.declare_queue(exclusive=True)
            assert state.name
            await channel.publish("x", state.name, mandatory=True)
            for wanted in (b"x", None):
                delivery = await channel.get(state.name, no_ack=True)
                assert (delivery.body if delivery else None) == wanted
            async with connection.channel() as other:
                if version == "0-10":  # In 0-10 an exclusive queue belongs to the session.
                    with pytest.raises(ChannelClosed):
                        await other.get(state.name)


async def lose(connection: Connection) -> None:
    """Break a connection, and wait until the client has noticed."""
    assert connection._link is not None
    assert connection._link._transport is not None
    connection._link._transport.abort()
    while connection.is_ready:
        await asyncio.sleep(0)


@pytest.mark.parametrize("version", ["0-9", "0-10"])
async def test_coming_back(headrace_broker: object, version: str, name: Names) -> None:
    queue = name("q")
    url = in_version(headrace_broker.url, version)  # type: ignore[attr-defined]  # A LocalBroker.
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_queue(queue)
        private = await channel.declare_queue(exclusive=True)
        consumer = channel.consume(queue)
        await consumer.start()
        await lose(connection)
        await channel.publish("after", queue)
        assert (await consumer.receive()).text() == "after"
        await consumer.cancel()
        if version == "0-10":  # It belonged to the lost session.
            with pytest.raises(NotFound):
                await channel.get(private.name)
        else:
            assert await channel.get(private.name) is None


@every
@pytest.mark.rule("0-9-1/s005", "0-9/redelivered#hinting", "0-9/tx#01", "0-10/s101", "0-10/s102")
@pytest.mark.parametrize("transactional", [False, True], ids=["acks", "transactions"])
async def test_what_was_dealt_with_is_not_handed_out_again(
    url: str, version: str, transactional: bool, name: Names
) -> None:
    queue = name("q")
    with contextlib.ExitStack() as stack:
        if version == "0-9":  # In 0-9 lost channels wait for channel.resume.
            url = stack.enter_context(LocalBroker(channel_resume_s=0.1)).url
        await receive_with_duplicates(in_version(url, version), queue, transactional)


async def receive_with_duplicates(url: str, queue: str, transactional: bool) -> None:
    """Receive messages with duplicates, and lose the connection between them."""

    def numbered(number: int) -> Message:
        return Message(b"%d" % number, message_id=f"00000000-0000-4000-8000-{number:012d}")

    async with connect(url) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(queue)
            for number in (1, 2, 1, 3, 2, 4):  # With and without the flag `redelivered`.
                await channel.publish(numbered(number), queue)
            await channel.publish("without an id", queue)
        async with connection.channel() as channel, channel.consume(queue, distinct=10) as consumer:
            seen = []
            if transactional:
                with pytest.raises(KeyError):
                    await ack_and_roll_back(channel, consumer)
                await lose(connection)  # The message was not settled, so it is redelivered.
                while len(seen) < 5:
                    async with channel.transaction():
                        delivery = await consumer.receive()
                        seen.append(delivery.text())
                        await delivery.ack()
            else:
                while len(seen) < 5:
                    delivery = await consumer.receive()
                    seen.append(delivery.text())
                    await delivery.ack(multiple=len(seen) % 2 == 0)
        assert sorted(seen) == ["1", "2", "3", "4", "without an id"]
        async with connection.channel() as channel:
            assert await channel.purge_queue(queue) == 0
            await channel.delete_queue(queue)


async def ack_and_roll_back(channel: Channel, consumer: Consumer) -> None:
    """Ack a message in a transaction, and roll that back."""
    async with channel.transaction():
        delivery = await consumer.receive()
        await delivery.ack()
        raise KeyError


def test_few_ids_are_remembered() -> None:
    distinct = Deduplicator(2)
    for tag, message_id in enumerate("abc", 1):
        assert distinct.hand_out(tag, message_id, settled=False)
        distinct.settle(tag, multiple=False, ack=True, is_final=True)
    assert distinct.hand_out(4, "a", settled=True)  # The oldest id was dropped.
    assert not distinct.hand_out(5, "a", settled=False)
    assert distinct.hand_out(6, "x", settled=False)
    distinct.settle(6, multiple=False, ack=False, is_final=True)
    assert distinct.hand_out(7, "x", settled=False)
    distinct.lose()
    assert distinct.hand_out(8, "x", settled=False)
    assert distinct.hand_out(9, None, settled=False)
