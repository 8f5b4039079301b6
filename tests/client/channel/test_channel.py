# SPDX-License-Identifier: Apache-2.0
"""Queues, exchanges, publishing, getting, consuming and transactions with a real broker."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import (
    AccessRefused,
    ChannelClosed,
    ConsumerCancelled,
    Message,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
    Returned,
    UsageError,
    connect,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from headrace.client import Channel

    Name = Callable[[str], str]


@asynccontextmanager
async def on_queue(url: str, queue: str) -> AsyncIterator[tuple[Channel, str]]:
    """Yield a channel, and an exclusive queue of its connection."""
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_queue(queue, exclusive=True, durable=False)
        yield channel, queue


async def test_declare_publish_get_delete(url: str, name: Name) -> None:
    queue = name("q")
    async with connect(url) as connection, connection.channel() as channel:
        state = await channel.declare_queue(queue)
        assert (state.name, state.message_count, state.consumer_count) == (queue, 0, 0)
        assert await channel.get(queue) is None
        await channel.publish("one", queue)
        await channel.publish(b"two", queue)
        assert (await channel.declare_queue(queue, passive=True)).message_count == 2
        first = await channel.get(queue)
        assert first is not None
        assert (first.text(), first.message_count, first.redelivered) == ("one", 1, False)
        assert (first.exchange, first.routing_key, first.consumer_tag) == ("", queue, "")
        assert await first.ack()
        with pytest.raises(UsageError, match="settled already"):
            await first.ack()
        assert await channel.purge_queue(queue) == 1
        await channel.publish(b"three", queue)
        with pytest.raises(PreconditionFailed) as caught:
            await channel.delete_queue(queue, if_empty=True)
        assert caught.value.code == 406
        async with connection.channel() as another:
            assert await another.delete_queue(queue) == 1


async def test_every_property_arrives(url: str, name: Name) -> None:
    queue = name("q")
    message = Message(
        b"\x00\xff",
        headers={
            "text": "grün",
            "octets": b"\xff\xfe",
            "int": 2**40,
            "negative": -1,
            "float": 1.5,
            "decimal": Decimal("-12.34"),
            "yes": True,
            "none": None,
            "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            "list": [1, "two", [3.0], {"four": False}],
            "table": {"a": {"b": {"c": 1}}},
        },
        persistent=False,
        content_type="text/plain",
        content_encoding="utf-8",
        priority=7,
        correlation_id="correlation",
        reply_to="reply",
        expiration=timedelta(minutes=1),
        message_id="id",
        timestamp=datetime(2026, 6, 5, 4, 3, 2, tzinfo=UTC),
        type="type",
        user_id="guest",
        app_id="app",
    )
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_queue(queue, exclusive=True, durable=False)
        await channel.publish(message, queue)
        received = await channel.get(queue, no_ack=True)
    assert received is not None
    got = Message.of(received)
    for field in Message.__dataclass_fields__:
        assert getattr(got, field) == getattr(message, field), field


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 131064, 131065, 300_000, 5 << 20])
async def test_bodies_of_any_size(url: str, name: Name, size: int) -> None:
    queue = name("q")
    body = bytes(range(256)) * (size // 256 + 1)
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_queue(queue, exclusive=True, durable=False)
        await channel.publish(Message(body[:size], persistent=False), queue)
        received = await channel.get(queue, no_ack=True)
    assert received is not None
    assert received.body == body[:size]


async def test_exchanges_route(url: str, name: Name) -> None:
    queue, topic, fanout = name("q"), name("topic"), name("fanout")
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_exchange(topic, "topic", durable=False)
        await channel.declare_exchange(fanout, "fanout", durable=False)
        await channel.declare_exchange(topic, passive=True)
        state = await channel.declare_queue(queue, exclusive=True, durable=False)
        await channel.bind_queue(state.name, topic, "a.*")
        await channel.bind_exchange(topic, fanout)
        await channel.publish("1", "a.b", topic, mandatory=True)
        await channel.publish("2", "a.c", fanout, mandatory=True)
        with pytest.raises(Returned):
            await channel.publish("3", "b.c", topic, mandatory=True)
        await channel.unbind_exchange(topic, fanout)
        with pytest.raises(Returned):
            await channel.publish("4", "a.d", fanout, mandatory=True)
        await channel.unbind_queue(queue, topic, "a.*")
        with pytest.raises(Returned):
            await channel.publish("5", "a.b", topic, mandatory=True)
        assert (await channel.declare_queue(queue, passive=True)).message_count == 2
        await channel.delete_exchange(topic, if_unused=True)
        await channel.delete_exchange(fanout)
        with pytest.raises(NotFound):
            await channel.declare_exchange(topic, passive=True)


async def test_headers_exchange_and_binding_arguments(url: str, name: Name) -> None:
    queue, exchange = name("q"), name("headers")
    arguments: dict[str, Any] = {"x-match": "any", "colour": "red", "size": 3}
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_exchange(exchange, "headers", durable=False, auto_delete=True)
        await channel.declare_queue(queue, exclusive=True, durable=False)
        await channel.bind_queue(queue, exchange, arguments=arguments)
        message = Message(b"", headers={"size": 3})
        await channel.publish(message, exchange=exchange, mandatory=True)
        with pytest.raises(Returned):
            await channel.publish(b"", exchange=exchange, mandatory=True)


async def test_a_message_that_no_queue_gets_is_returned(url: str, name: Name) -> None:
    async with connect(url) as connection, connection.channel() as channel:
        with pytest.raises(Returned) as caught:
            await channel.publish("hello", name("nowhere"), mandatory=True)
        assert (caught.value.code, caught.value.text) == (312, "NO_ROUTE")
        assert caught.value.message.text() == "hello"
        assert caught.value.routing_key == name("nowhere")
        await channel.publish("hello", name("nowhere"))  # Unroutable, and not mandatory: no error.


async def test_returns_find_their_messages_among_many(url: str, name: Name) -> None:
    async with on_queue(url, name("q")) as (channel, queue):
        outcomes = await asyncio.gather(
            *(
                channel.publish(f"{n}", queue if n % 3 else name("no"), mandatory=True)
                for n in range(300)
            ),
            return_exceptions=True,
        )
        assert (await channel.declare_queue(queue, passive=True)).message_count == 200
    for n, outcome in enumerate(outcomes):
        if n % 3:
            assert outcome is None
        else:
            assert isinstance(outcome, Returned)
            assert outcome.message.text() == f"{n}"


async def test_publish_many(url: str, name: Name) -> None:
    queue = name("q")
    async with connect(url) as connection, connection.channel(unconfirmed_max=50) as channel:
        await channel.declare_queue(queue, exclusive=True, durable=False)
        assert await channel.publish_many((f"{n}" for n in range(1000)), queue) == 1000

        async def some() -> object:
            for n in range(1000, 1010):
                yield f"{n}"

        assert await channel.publish_many(some(), queue) == 10  # type: ignore[arg-type]
        assert (await channel.declare_queue(queue, passive=True)).message_count == 1010
        with pytest.raises(Returned):
            await channel.publish_many([b"a", b"b"], name("nowhere"), mandatory=True)
        assert await channel.publish_many([], queue) == 0


async def test_publishing_to_a_missing_exchange(url: str, name: Name) -> None:
    async with connect(url) as connection, connection.channel() as channel:
        with pytest.raises(NotFound, match=r"404 NOT_FOUND - no exchange"):
            await channel.publish(b"", "key", name("missing"))
        assert channel.is_closed
        with pytest.raises(NotFound):
            await channel.publish(b"", "key")


async def test_without_confirms(url: str, name: Name) -> None:
    queue = name("q")
    returned: asyncio.Future[Returned] = asyncio.get_running_loop().create_future()
    async with (
        connect(url) as connection,
        connection.channel(confirm=False, on_return=returned.set_result) as channel,
    ):
        await channel.declare_queue(queue, exclusive=True, durable=False)
        for n in range(100):
            await channel.publish(f"{n}", queue)
        await channel.publish("lost", name("nowhere"), mandatory=True)
        assert (await returned).message.text() == "lost"
        assert (await channel.declare_queue(queue, passive=True)).message_count == 100


async def test_errors_carry_code_and_text(url: str, name: Name) -> None:
    queue = name("q")
    async with connect(url) as connection, connect(url) as other:
        async with connection.channel() as channel:
            await channel.declare_queue(queue, exclusive=True)
            with pytest.raises(PreconditionFailed, match="inequivalent arg 'auto_del") as caught:
                await channel.declare_queue(queue, exclusive=True, auto_delete=True)
            assert caught.value.code == 406
            assert caught.value.text.startswith("PRECONDITION_FAILED - ")
            assert caught.value.method == (50, 10)
        async with other.channel() as channel:
            with pytest.raises(ResourceLocked, match=f"405 RESOURCE_LOCKED - .*'{queue}'"):
                await channel.declare_queue(queue, passive=True)
        async with connection.channel() as channel:
            with pytest.raises(AccessRefused, match=r"403 ACCESS_REFUSED"):
                await channel.declare_queue("amq.mine")
        async with connection.channel() as channel:
            with pytest.raises(NotFound, match=r"404 NOT_FOUND - no queue"):
                await channel.declare_queue(name("missing"), passive=True)


async def test_a_consumer_tag_is_used_once(url: str, name: Name) -> None:
    async with on_queue(url, name("q")) as (channel, queue):
        await channel.consume(queue, tag="same").start()
        with pytest.raises(UsageError, match="in use"):
            await channel.consume(queue, tag="same").start()


async def test_consume(url: str, name: Name) -> None:
    async with on_queue(url, name("q")) as (channel, queue):
        await channel.publish_many((f"{n}" for n in range(500)), queue)
        bodies = []
        async with channel.consume(queue, prefetch=30) as consumer:
            async for delivery in consumer:
                bodies.append(int(delivery.text()))
                assert delivery.consumer_tag == consumer.tag
                await delivery.ack()
                if len(bodies) == 500:
                    break
        assert bodies == list(range(500))
        assert (await channel.declare_queue(queue, passive=True)).consumer_count == 0


async def test_prefetch_bounds_what_is_unsettled(url: str, name: Name) -> None:
    async with on_queue(url, name("q")) as (channel, queue):
        await channel.publish_many((f"{n}" for n in range(10)), queue)
        async with channel.consume(queue, prefetch=3) as consumer:
            deliveries = [await consumer.receive() for _ in range(3)]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await consumer.receive()
            await deliveries[2].ack(multiple=True)
            assert (await consumer.receive()).text() == "3"


async def test_what_a_cancelled_consumer_did_not_hand_out_goes_back(url: str, name: Name) -> None:
    async with on_queue(url, name("q")) as (channel, queue):
        await channel.publish_many((f"{n}" for n in range(10)), queue)
        async with channel.consume(queue, prefetch=5) as consumer:
            async for delivery in consumer:
                await delivery.ack()
                break
        texts = []
        while (delivery := await channel.get(queue, no_ack=True)) is not None:  # type: ignore[assignment]
            texts.append(delivery.text())
        assert texts == [f"{n}" for n in range(1, 10)]
        assert [text async for text in consumer] == []


async def test_settling(url: str, name: Name) -> None:
    queue, dead = name("q"), name("dead")
    arguments: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_queue(dead, exclusive=True, durable=False)
        await channel.declare_queue(queue, exclusive=True, durable=False, arguments=arguments)
        await channel.publish("a", queue)
        async with channel.consume(queue, prefetch=10) as consumer:
            delivery = await consumer.receive()
            assert not delivery.redelivered
            await delivery.nack()
            delivery = await consumer.receive()
            assert delivery.redelivered
            await delivery.reject(requeue=True)
            async with (await consumer.receive()).process():
                pass
            await channel.publish("b", queue)
            with pytest.raises(ZeroDivisionError):
                async with (await consumer.receive()).process():
                    _ = 1 // 0
            await channel.publish("c", queue)
            await (await consumer.receive()).nack(requeue=False, multiple=True)
        async with channel.consume(dead, prefetch=10) as consumer:
            texts = sorted([(await consumer.receive()).text(), (await consumer.receive()).text()])
        assert texts == ["b", "c"]
        assert await channel.get(queue) is None


async def test_no_ack(url: str, name: Name) -> None:
    async with on_queue(url, name("q")) as (channel, queue):
        await channel.publish("a", queue)
        async with channel.consume(queue, no_ack=True) as consumer:
            delivery = await consumer.receive()
            with pytest.raises(UsageError, match="no_ack"):
                await delivery.ack()
            async with delivery.process():
                pass


@pytest.mark.rule("0-9/redelivered#hinting")
async def test_recover(url: str, name: Name) -> None:
    async with on_queue(url, name("q")) as (channel, queue):
        await channel.publish("a", queue)
        async with channel.consume(queue) as consumer:
            assert not (await consumer.receive()).redelivered
            await channel.recover()
            delivery = await consumer.receive()
            assert delivery.redelivered
            await delivery.ack()


async def test_qos_of_the_channel(url: str, name: Name) -> None:
    async with on_queue(url, name("q")) as (channel, queue):
        await channel.publish_many([b""] * 10, queue)
        await channel.qos(4)
        consumers = [channel.consume(queue, prefetch=0) for _ in range(2)]
        for consumer in consumers:
            await consumer.start()
        state = await channel.declare_queue(queue, passive=True)
        assert state.message_count == 6
        assert state.consumer_count == 2


async def test_a_consumer_learns_that_its_queue_is_gone(url: str, name: Name) -> None:
    queue = name("q")
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_queue(queue)
        await channel.publish_many(["a", "b"], queue)
        async with channel.consume(queue, prefetch=1) as consumer:
            delivery = await consumer.receive()
            await channel.delete_queue(queue)
            with pytest.raises(ConsumerCancelled, match=queue):
                await consumer.receive()
            await delivery.ack()
        await channel.declare_queue(queue, exclusive=True)


async def test_consuming_from_a_missing_queue(url: str, name: Name) -> None:
    async with connect(url) as connection:
        channel = await connection.channel()
        with pytest.raises(NotFound):
            async for _ in channel.consume(name("missing")):
                pass
        with pytest.raises(NotFound):
            await channel.declare_queue(name("x"))


async def test_exclusive_consumer(url: str, name: Name) -> None:
    queue = name("q")
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_queue(queue, exclusive=True, durable=False)
        async with channel.consume(queue, exclusive=True), connection.channel() as other:
            with pytest.raises(AccessRefused, match="exclusive"):
                await other.consume(queue).start()


async def test_transactions(url: str, name: Name) -> None:
    queue, target = name("q"), name("target")
    async with connect(url) as connection, connection.channel() as observer:
        channel = await connection.channel()
        for one in (queue, target):
            await observer.declare_queue(one, exclusive=True, durable=False)
        await observer.publish("a", queue)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with channel.transaction():
                await channel.publish("b", target)
                _ = 1 // 0
        async with channel.transaction():
            delivery = await channel.get(queue)
            assert delivery is not None
            await delivery.ack()
            await channel.publish("b", target)
            await channel.publish("c", target)
            assert (await observer.declare_queue(target, passive=True)).message_count == 0
        assert (await observer.declare_queue(target, passive=True)).message_count == 2
        with pytest.raises(UsageError, match="within a transaction"):
            await channel.publish("d", target)
        with pytest.raises(Returned):  # noqa: PT012
            async with channel.transaction():
                await channel.publish("e", name("nowhere"), mandatory=True)
                await channel.publish("f", target)
        assert (await observer.declare_queue(target, passive=True)).message_count == 3
        with pytest.raises(UsageError, match="confirms"):
            async with observer.transaction():
                pass
        async with channel.transaction():
            with pytest.raises(UsageError, match="nest"):
                async with channel.transaction():
                    pass


async def test_a_channel_that_dies_in_a_transaction(url: str, name: Name) -> None:
    async with connect(url) as connection:
        channel = await connection.channel()
        with pytest.raises(NotFound):
            async with channel.transaction():
                await channel.declare_queue(name("missing"), passive=True)
        channel = await connection.channel()
        with pytest.raises(ChannelClosed):
            async with channel.transaction():
                await channel.close()


async def test_channels_are_closed_and_opened(url: str) -> None:
    async with connect(url + "?channel_max=3") as connection:
        channels = [await connection.channel() for _ in range(3)]
        assert [channel.number for channel in channels] == [1, 2, 3]
        with pytest.raises(UsageError, match="all 3 channels"):
            await connection.channel()
        await channels[1].close()
        await channels[1].close()
        with pytest.raises(ChannelClosed, match="closed by this program"):
            await channels[1].declare_queue("x")
        assert (await connection.channel()).number == 2


async def test_many_consumers_and_publishers_at_once(url: str, name: Name) -> None:
    queue = name("q")
    async with connect(url) as connection:
        publisher = await connection.channel()
        await publisher.declare_queue(queue, exclusive=True, durable=False)
        bodies: set[str] = set()
        complete = asyncio.Event()

        async def work() -> None:
            async with connection.channel() as channel:
                async for delivery in channel.consume(queue, prefetch=5):
                    async with delivery.process():
                        bodies.add(delivery.text())
                    if len(bodies) == 400:
                        complete.set()

        workers = [asyncio.create_task(work()) for _ in range(4)]
        for p in range(4):
            await publisher.publish_many((f"{p}.{n}" for n in range(100)), queue)
        await complete.wait()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        assert len(bodies) == 400
