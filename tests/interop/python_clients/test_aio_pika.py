# SPDX-License-Identifier: Apache-2.0
"""aio-pika, with its robust connection that restores topology by itself."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import wraps

import aio_pika
import aio_pika.exceptions
import pytest
from aio_pika import DeliveryMode, ExchangeType, Message
from aiormq.exceptions import ChannelLockedResource, ChannelPreconditionFailed

from support.timeouts import PATIENCE_S


def awaited(test):
    """Run an asynchronous test in a loop of its own, with a deadline."""

    @wraps(test)
    def run(**given):
        asyncio.run(asyncio.wait_for(test(**given), 60))

    return run


@asynccontextmanager
async def channel_of(broker, **options):
    connection = await aio_pika.connect(broker.url)
    async with connection:
        yield await connection.channel(**options)


@awaited
async def test_publish_is_confirmed_and_got(broker, name):
    async with channel_of(broker) as channel:
        queue = await channel.declare_queue(name, exclusive=True)
        sent = Message(
            b"body",
            headers={"n": 1, "ratio": 0.5, "list": [1, {"a": None}], "t": {"x": True}},
            content_type="text/plain",
            delivery_mode=DeliveryMode.PERSISTENT,
            priority=3,
            correlation_id="c",
            reply_to="r",
            expiration=60,
            message_id="m",
            type="kind",
            app_id="app",
        )
        answer = await channel.default_exchange.publish(sent, name)
        assert type(answer).__name__ == "Ack"
        received = await queue.get(timeout=PATIENCE_S)
        assert received.body == b"body"
        for field in ("headers", "content_type", "delivery_mode", "priority", "correlation_id",
                      "reply_to", "expiration", "message_id", "type", "app_id"):  # fmt: skip
            assert getattr(received, field) == getattr(sent, field), field
        await received.ack()
        with pytest.raises(aio_pika.exceptions.QueueEmpty):
            await queue.get()


@awaited
async def test_thousand_concurrent_publishes_are_all_confirmed_in_order(broker, name):
    async with channel_of(broker) as channel:
        queue = await channel.declare_queue(name, exclusive=True)
        publish = channel.default_exchange.publish
        await asyncio.gather(*(publish(Message(str(n).encode()), name) for n in range(1000)))
        got = []
        await channel.set_qos(prefetch_count=50)
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    got.append(int(message.body))
                if len(got) == 1000:
                    break
        assert got == list(range(1000))


@awaited
async def test_unroutable_message_comes_back(broker, name):
    async with channel_of(broker, on_return_raises=True) as channel:
        with pytest.raises(aio_pika.exceptions.PublishError):
            await channel.default_exchange.publish(Message(b"x"), name)
    async with channel_of(broker) as channel:
        answer = await channel.default_exchange.publish(Message(b"x"), name)
        assert answer.delivery.reply_text == "NO_ROUTE"


@awaited
async def test_nack_from_a_full_queue(broker, name):
    async with channel_of(broker) as channel:
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        await channel.declare_queue(name, exclusive=True, arguments=arguments)
        await channel.default_exchange.publish(Message(b"1"), name)
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await channel.default_exchange.publish(Message(b"2"), name)


@awaited
async def test_nack_and_reject_requeue(broker, name):
    async with channel_of(broker) as channel:
        queue = await channel.declare_queue(name, exclusive=True)
        await channel.default_exchange.publish(Message(b"x"), name)
        first = await queue.get(timeout=PATIENCE_S)
        assert not first.redelivered
        await first.nack(requeue=True)
        second = await queue.get(timeout=PATIENCE_S)
        assert second.redelivered
        await second.reject(requeue=True)
        third = await queue.get(timeout=PATIENCE_S)
        await third.nack(requeue=False)
        assert await queue.get(fail=False) is None


@awaited
async def test_transaction(broker, name):
    async with channel_of(broker, publisher_confirms=False) as channel:
        queue = await channel.declare_queue(name, exclusive=True)
        async with channel.transaction():
            await channel.default_exchange.publish(Message(b"kept"), name)
        transaction = channel.transaction()
        await transaction.select()
        await channel.default_exchange.publish(Message(b"undone"), name)
        await transaction.rollback()
        assert (await queue.get(timeout=PATIENCE_S)).body == b"kept"
        assert await queue.get(fail=False) is None


@awaited
async def test_request_and_answer_over_direct_reply_to(broker, name):
    async with channel_of(broker) as channel:
        await channel.declare_queue(name, exclusive=True)
        answers = await channel.get_queue("amq.rabbitmq.reply-to", ensure=False)
        arrived = asyncio.get_running_loop().create_future()
        await answers.consume(arrived.set_result, no_ack=True)
        await channel.default_exchange.publish(
            Message(b"?", reply_to="amq.rabbitmq.reply-to"), name
        )
        queue = await channel.get_queue(name)
        asked = await queue.get(timeout=PATIENCE_S)
        await channel.default_exchange.publish(Message(b"!"), asked.reply_to)
        assert (await asyncio.wait_for(arrived, PATIENCE_S)).body == b"!"


@awaited
async def test_exchanges_and_bindings(broker, name):
    async with channel_of(broker) as channel:
        queue = await channel.declare_queue(name, exclusive=True)
        topic = await channel.declare_exchange(name, ExchangeType.TOPIC, auto_delete=True)
        fanout = await channel.declare_exchange(name + ".f", ExchangeType.FANOUT, auto_delete=True)
        await topic.bind(fanout)
        await queue.bind(topic, "*.orders.#")
        await fanout.publish(Message(b"1"), "eu.orders.new")
        await topic.publish(Message(b"2"), "us.orders")
        assert [(await queue.get(timeout=PATIENCE_S)).body for _ in range(2)] == [b"1", b"2"]
        await queue.unbind(topic, "*.orders.#")
        await channel.declare_queue(name, passive=True)


@awaited
async def test_cancelled_by_the_broker(broker, name):
    async with channel_of(broker) as channel:
        queue = await channel.declare_queue(name, exclusive=True)
        got = asyncio.Queue()
        tag = await queue.consume(got.put)
        await channel.default_exchange.publish(Message(b"x"), name)
        await (await asyncio.wait_for(got.get(), PATIENCE_S)).ack()
        underlay = await channel.get_underlay_channel()
        assert tag in underlay.consumers
        other = await channel._connection.channel()
        await other.queue_delete(name)
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while tag in underlay.consumers:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)


@awaited
async def test_errors_by_class(broker, name):
    connection = await aio_pika.connect(broker.url)
    async with connection:
        channel = await connection.channel()
        with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity) as raised:
            await channel.declare_queue(name, passive=True)
        assert f"no queue '{name}' in vhost '/'" in str(raised.value)
        channel = await connection.channel()
        await channel.declare_queue(name, exclusive=True)
        with pytest.raises(ChannelPreconditionFailed) as raised:  # type: ignore[assignment]
            await channel.declare_queue(name, exclusive=True, auto_delete=True)
        assert "inequivalent arg 'auto_delete'" in str(raised.value)
        async with channel_of(broker) as other:
            with pytest.raises(ChannelLockedResource):
                await other.declare_queue(name, passive=True)
    bad = broker.url.replace("guest:guest", "guest:wrong")
    with pytest.raises(aio_pika.exceptions.ProbableAuthenticationError):
        await aio_pika.connect(bad)


@awaited
async def test_robust_connection_restores_its_topology(own_broker, name):
    connection = await aio_pika.connect_robust(own_broker.url, reconnect_interval=0.05)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        queue = await channel.declare_queue(name, auto_delete=True)
        exchange = await channel.declare_exchange(name, ExchangeType.DIRECT, auto_delete=True)
        await queue.bind(exchange, "key")
        got = asyncio.Queue()
        await queue.consume(got.put)
        await exchange.publish(Message(b"before"), "key")
        await (await asyncio.wait_for(got.get(), PATIENCE_S)).ack()
        back = asyncio.Event()
        connection.reconnect_callbacks.add(lambda *_: back.set())
        await asyncio.to_thread(own_broker.restart)
        await asyncio.wait_for(back.wait(), PATIENCE_S)
        await asyncio.wait_for(channel.ready(), PATIENCE_S)
        await exchange.publish(Message(b"after"), "key")
        message = await asyncio.wait_for(got.get(), PATIENCE_S)
        assert message.body == b"after"
        await message.ack()
