# SPDX-License-Identifier: Apache-2.0
"""One consumer of several queues (``x-multiqueue``), in every version."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import ClientError, Message, connect
from headrace.spec.tables import Version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from headrace.client import Channel, Delivery
    from headrace.client.channel.consumer import Consumer

VERSIONS = [version.label for version in Version]
every = pytest.mark.parametrize("version", VERSIONS)


@asynccontextmanager
async def channel_of(url: str, version: str) -> AsyncIterator[Channel]:
    async with connect(f"{url}?version={version}", reconnect=None) as connection:
        async with connection.channel() as channel:
            yield channel


async def fill(channel: Channel, queues: list[str], count: int = 2) -> None:
    for queue in queues:
        await channel.declare_queue(queue)
        for number in range(count):
            await channel.publish(Message(f"{queue} {number}".encode()), queue)


def consume(channel: Channel, queues: list[str], version: str, **options: Any) -> Consumer:
    early = version in ("0-8", "0-9")  # Their tables have no arrays.
    listed: Any = ",".join(queues) if early else queues
    return channel.consume("", arguments={"x-multiqueue": listed}, **options)


async def ready(channel: Channel, queues: list[str]) -> list[int]:
    return [(await channel.declare_queue(q, passive=True)).message_count for q in queues]


async def take(consumer: Consumer, count: int) -> list[Delivery]:
    return [await anext(consumer) for _ in range(count)]


@every
async def test_one_prefetch_and_every_ack_finds_its_queue(
    url: str, version: str, name: Callable[..., str]
) -> None:
    queues = [name(f"{version}-{letter}") for letter in "abc"]
    async with channel_of(url, version) as channel, channel_of(url, "0-9-1") as other:
        await fill(other, queues)
        async with consume(channel, queues, version, prefetch=3) as consumer:
            deliveries = await take(consumer, 3)
            assert sum(await ready(other, queues)) == 3, "each queue has a prefetch of its own"
            for _ in range(3):
                await deliveries.pop(0).ack()
                deliveries += await take(consumer, 1)
            seen = {delivery.body.decode() for delivery in deliveries}
            assert len(seen) == 3
            assert sum(await ready(other, queues)) == 0
        for delivery in deliveries:
            await delivery.nack(requeue=True)
        for queue in queues:  # The cancel ended all consumers and requeued their messages.
            left = [body for body in seen if body.startswith(queue)]
            received = []
            while (got := await other.get(queue)) is not None:
                received.append(got.body.decode())
            assert sorted(received) == sorted(left)


@every
async def test_without_acknowledgements_all_of_it_comes(
    url: str, version: str, name: Callable[..., str]
) -> None:
    queues = [name(f"{version}-{letter}") for letter in "ab"]
    async with channel_of(url, version) as channel:
        await fill(channel, queues)
        async with consume(channel, queues, version, no_ack=True, prefetch=0) as consumer:
            await take(consumer, 4)
            for queue in queues:
                await channel.publish(Message(b"late"), queue)
            assert [d.body for d in await take(consumer, 2)] == [b"late", b"late"]


@every
async def test_what_is_held_for_too_long_returns_to_its_queues(
    url: str, version: str, name: Callable[..., str]
) -> None:
    queues = [name(f"{version}-{letter}") for letter in "ab"]
    async with channel_of(url, version) as channel, channel_of(url, "0-9-1") as other:
        await other.declare_queue(queues[0], arguments={"x-consumer-timeout": 80})
        await fill(other, queues[1:], count=1)
        await other.publish(Message(b"first"), queues[0])
        async with consume(channel, queues, version, prefetch=2) as consumer:
            deliveries = await take(consumer, 2)
            while await ready(other, queues) != [1, 1]:
                await asyncio.sleep(0.01)
            for delivery in deliveries:
                await delivery.ack()  # Too late, but it returns the credit.
            redelivered = await take(consumer, 2) if version not in ("0-8", "0-9") else []
            assert all(delivery.redelivered for delivery in redelivered)


@every
async def test_a_selector_holds_for_every_queue(
    url: str, version: str, name: Callable[..., str]
) -> None:
    queues = [name(f"{version}-{letter}") for letter in "ab"]
    async with channel_of(url, version) as channel, channel_of(url, "0-9-1") as other:
        for queue in queues:
            await other.declare_queue(queue)
            for number in range(4):
                await other.publish(Message(b"%d" % number, headers={"k": number}), queue)
        listed = ",".join(queues)
        arguments = {"x-multiqueue": listed, "x-filter-jms-selector": "k > 1"}
        async with channel.consume("", prefetch=1, arguments=arguments) as consumer:
            received = []
            for _ in range(4):
                (delivery,) = await take(consumer, 1)
                received.append(delivery.body)
                await delivery.ack()
        assert sorted(received) == [b"2", b"2", b"3", b"3"]
        assert await ready(other, queues) == [2, 2]


@every
async def test_a_deleted_queue_leaves_and_the_last_one_ends_the_consumer(
    url: str, version: str, name: Callable[..., str]
) -> None:
    queues = [name(f"{version}-{letter}") for letter in "ab"]
    async with channel_of(url, version) as channel, channel_of(url, "0-9-1") as other:
        for queue in queues:
            await other.declare_queue(queue, auto_delete=queue == queues[1])
        consumer = consume(channel, queues, version)
        await consumer.start()
        await other.delete_queue(queues[0])
        await other.publish(Message(b"still"), queues[1])
        (delivery,) = await take(consumer, 1)
        await delivery.ack()
        if version == "0-9-1":
            await other.delete_queue(queues[1])
            with pytest.raises((ClientError, StopAsyncIteration)):
                await anext(consumer)
        else:
            await consumer.cancel()
            with pytest.raises(ClientError):  # The queue was deleted with its last consumer.
                await other.declare_queue(queues[1], passive=True)


@every
@pytest.mark.parametrize(
    ("listed", "text"),
    [
        ("", "expected the names of queues"),
        (7, "expected the names of queues"),
        (",".join(f"q{n}" for n in range(65)), "65 queues"),
        ("no.such.queue", "no.such.queue"),
    ],
)
async def test_what_is_no_list_of_queues_is_refused(
    url: str, version: str, listed: Any, text: str
) -> None:
    async with connect(f"{url}?version={version}", reconnect=None) as connection:
        channel = await connection.channel()
        with pytest.raises(ClientError, match=text):
            await channel.consume("", arguments={"x-multiqueue": listed}).start()


async def test_streams_and_lookers_are_refused(url: str, name: Callable[..., str]) -> None:
    stream, queue = name("stream"), name("q")
    async with connect(url, reconnect=None) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(queue)
            arguments = {"x-queue-type": "stream"}
            await channel.declare_queue(stream, durable=True, arguments=arguments)
        for listed, more in (([queue, stream], {}), ([queue], {"x-browse": True})):
            channel = await connection.channel()
            with pytest.raises(ClientError, match=r"not taken from|cannot browse"):
                await channel.consume("", arguments={"x-multiqueue": listed, **more}).start()  # type: ignore[dict-item]
