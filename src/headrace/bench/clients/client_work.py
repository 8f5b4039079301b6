# SPDX-License-Identifier: Apache-2.0
"""The work of a client in a separate process: `python -m headrace.bench.clients.client_work`.

Each function does an operation with a client and returns once the broker has answered all requests.
Other projects' clients are used as their documentation recommends.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import time
from collections.abc import Awaitable, Callable
from importlib import import_module

from headrace.client import Channel, Message, blocking, connect

BODY = bytes(200)
PREFETCH = 100
WINDOW = 500  # The maximum of unconfirmed publishes, for clients that do not limit them.
WARM = 300  # Messages before the measured ones.

Work = Callable[[str, str, int], None]


class Stopwatch:
    """Measures the processor time of all threads of this process, and the elapsed time."""

    def __init__(self) -> None:
        self.cpu_s = self.wall_s = 0.0

    def begin(self) -> None:
        """Start the measurement."""
        self.cpu_s, self.wall_s = time.process_time(), time.perf_counter()

    def end(self) -> None:
        """End the measurement; `cpu_s` and `wall_s` are then its seconds."""
        self.cpu_s = time.process_time() - self.cpu_s
        self.wall_s = time.perf_counter() - self.wall_s


METER = Stopwatch()


def blocking_one_by_one(url: str, queue: str, count: int) -> None:
    """Publish and wait for the confirm."""
    with blocking.connect(url) as connection, connection.channel() as channel:
        for _ in range(WARM):
            channel.publish(BODY, queue)
        METER.begin()
        for _ in range(count):
            channel.publish(BODY, queue)
        METER.end()


def blocking_in_flight(url: str, queue: str, count: int) -> None:
    """Publish by `publish_soon`, then wait for all confirms."""
    with blocking.connect(url) as connection, connection.channel() as channel:
        channel.publish_many([BODY] * WARM, queue)
        METER.begin()
        for confirmation in [channel.publish_soon(BODY, queue) for _ in range(count)]:
            confirmation.wait()
        METER.end()


def blocking_many(url: str, queue: str, count: int) -> None:
    """Publish by `publish_many`."""
    with blocking.connect(url) as connection, connection.channel() as channel:
        channel.publish_many([BODY] * WARM, queue)
        METER.begin()
        channel.publish_many((BODY for _ in range(count)), queue)
        METER.end()


def blocking_consume(url: str, queue: str, count: int) -> None:
    """Iterate over a consumer and ack each message."""
    with blocking.connect(url) as connection, connection.channel() as channel:
        channel.publish_many([BODY] * (WARM + count), queue)
        with channel.consume(queue, prefetch=PREFETCH) as consumer:
            for number, delivery in enumerate(consumer, 1):
                delivery.ack()
                if number == WARM:
                    METER.begin()
                elif number == WARM + count:
                    break
            METER.end()


def on_channel(work: Callable[[Channel, str, int], Awaitable[None]]) -> Work:
    """Return a function that runs a coroutine function with a channel of the asyncio client."""

    @functools.wraps(work)
    def program(url: str, queue: str, count: int) -> None:
        async def run() -> None:
            async with connect(url) as connection, connection.channel() as channel:
                await work(channel, queue, count)

        asyncio.run(run())

    return program


@on_channel
async def asyncio_one_by_one(channel: Channel, queue: str, count: int) -> None:
    """Publish and wait for the confirm."""
    for _ in range(WARM):
        await channel.publish(BODY, queue)
    METER.begin()
    for _ in range(count):
        await channel.publish(BODY, queue)
    METER.end()


@on_channel
async def asyncio_in_flight(channel: Channel, queue: str, count: int) -> None:
    """Publish by `publish_soon`, then wait for all confirms."""
    await channel.publish_many([BODY] * WARM, queue)
    METER.begin()
    for confirmed in [await channel.publish_soon(BODY, queue) for _ in range(count)]:
        await confirmed
    METER.end()


@on_channel
async def asyncio_many(channel: Channel, queue: str, count: int) -> None:
    """Publish by `publish_many`."""
    await channel.publish_many([BODY] * WARM, queue)
    METER.begin()
    await channel.publish_many((BODY for _ in range(count)), queue)
    METER.end()


@on_channel
async def asyncio_consume(channel: Channel, queue: str, count: int) -> None:
    """Iterate over a consumer and ack each message."""
    await channel.publish_many([BODY] * (WARM + count), queue)
    number = 0
    async with channel.consume(queue, prefetch=PREFETCH) as consumer:
        async for delivery in consumer:
            await delivery.ack()
            number += 1
            if number == WARM:
                METER.begin()
            elif number == WARM + count:
                break
        METER.end()


def pika_one_by_one(url: str, queue: str, count: int) -> None:
    """BlockingChannel.basic_publish with confirms, which waits for each."""
    pika = import_module("pika")
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    _pika_publish(pika, channel, queue, WARM)
    METER.begin()
    _pika_publish(pika, channel, queue, count)
    METER.end()
    connection.close()


def pika_in_flight(url: str, queue: str, count: int) -> None:
    """BlockingChannel.basic_publish without confirms: with them it has one message under way."""
    pika = import_module("pika")
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    _pika_publish(pika, channel, queue, WARM)
    METER.begin()
    _pika_publish(pika, channel, queue, count)
    channel.queue_declare(queue, passive=True)  # Answered when all have been read.
    METER.end()
    connection.close()


# The package has no types, and may not be there.
def _pika_publish(pika: object, channel: object, queue: str, count: int) -> None:
    properties = pika.BasicProperties(delivery_mode=2)  # type: ignore[attr-defined]
    for _ in range(count):
        channel.basic_publish("", queue, BODY, properties)  # type: ignore[attr-defined]


def pika_consume(url: str, queue: str, count: int) -> None:
    """BlockingChannel.consume, and an ack for each message."""
    pika = import_module("pika")
    with blocking.connect(url) as filling, filling.channel() as filled:
        filled.publish_many([BODY] * (WARM + count), queue)
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    for number, (method, _, _) in enumerate(channel.consume(queue), 1):
        channel.basic_ack(method.delivery_tag)
        if number == WARM:
            METER.begin()
        elif number == WARM + count:
            break
    METER.end()
    channel.cancel()
    connection.close()


def aio_pika_one_by_one(url: str, queue: str, count: int) -> None:
    """Exchange.publish, which waits for the confirm."""
    aio_pika = import_module("aio_pika")

    async def work() -> None:
        async with await aio_pika.connect(url) as connection:
            exchange = (await connection.channel()).default_exchange
            for at in range(WARM + count):
                if at == WARM:
                    METER.begin()
                message = aio_pika.Message(BODY, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
                await exchange.publish(message, queue)
            METER.end()

    asyncio.run(work())


def aio_pika_in_flight(url: str, queue: str, count: int) -> None:
    """Exchange.publish in a task for each message of a window."""
    aio_pika = import_module("aio_pika")

    async def work() -> None:
        async with await aio_pika.connect(url) as connection:
            exchange = (await connection.channel()).default_exchange

            async def publish() -> None:
                message = aio_pika.Message(BODY, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
                await exchange.publish(message, queue)

            await asyncio.gather(*[publish() for _ in range(WARM)])
            METER.begin()
            for at in range(0, count, WINDOW):
                await asyncio.gather(*[publish() for _ in range(min(WINDOW, count - at))])
            METER.end()

    asyncio.run(work())


def aio_pika_consume(url: str, queue: str, count: int) -> None:
    """Iterate over Queue.iterator and ack each message."""
    aio_pika = import_module("aio_pika")
    with blocking.connect(url) as filling, filling.channel() as filled:
        filled.publish_many([BODY] * (WARM + count), queue)

    async def work() -> None:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=PREFETCH)
            source = await channel.get_queue(queue)
            number = 0
            async with source.iterator() as messages:
                async for message in messages:
                    await message.ack()
                    number += 1
                    if number == WARM:
                        METER.begin()
                    elif number == WARM + count:
                        break
                METER.end()

    asyncio.run(work())


ONE_BY_ONE = "publish, one by one"
IN_FLIGHT = "publish, many in flight"
MANY = "publish_many"
CONSUME = "consume and ack"

WORK: dict[str, dict[str, Work]] = {
    "headrace.client": {
        ONE_BY_ONE: asyncio_one_by_one,
        IN_FLIGHT: asyncio_in_flight,
        MANY: asyncio_many,
        CONSUME: asyncio_consume,
    },
    "headrace.client.blocking": {
        ONE_BY_ONE: blocking_one_by_one,
        IN_FLIGHT: blocking_in_flight,
        MANY: blocking_many,
        CONSUME: blocking_consume,
    },
    "aio_pika": {
        ONE_BY_ONE: aio_pika_one_by_one,
        IN_FLIGHT: aio_pika_in_flight,
        CONSUME: aio_pika_consume,
    },
    "pika": {
        ONE_BY_ONE: pika_one_by_one,
        IN_FLIGHT: pika_in_flight,
        CONSUME: pika_consume,
    },
}


def main(client: str, operation: str, url: str, queue: str, count: int) -> None:
    """Do one operation, and print its figures as JSON."""
    with blocking.connect(url) as connection, connection.channel() as channel:
        channel.declare_queue(queue)
        channel.publish(Message(b"", persistent=True), queue)
        channel.purge_queue(queue)
    try:
        WORK[client][operation](url, queue, count)
    finally:
        with blocking.connect(url) as connection, connection.channel() as channel:
            channel.delete_queue(queue)
    figures = {"cpu_us": METER.cpu_s * 1e6 / count, "rate": count / METER.wall_s}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
