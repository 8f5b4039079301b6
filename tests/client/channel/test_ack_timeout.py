# SPDX-License-Identifier: Apache-2.0
"""Consumers that take too long to acknowledge, in every version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import ClientError, Message, connect
from headrace.spec.tables import Version
from headrace.testing import LocalBroker

if TYPE_CHECKING:
    from collections.abc import Callable

VERSIONS = [version.label for version in Version]
TIMEOUT_MS = 80
PATIENT = {"x-consumer-timeout": 0}  # Without a timeout, however busy the machine is.
every = pytest.mark.parametrize("version", VERSIONS)


@every
@pytest.mark.parametrize("of", ["queue", "consumer"])
async def test_what_is_held_for_too_long_goes_to_others(
    url: str, version: str, name: Callable[..., str], of: str
) -> None:
    queue = name(version)
    limit = {"x-consumer-timeout": TIMEOUT_MS}
    of_queue, of_consumer = (limit, None) if of == "queue" else (None, limit)
    async with connect(f"{url}?version={version}", reconnect=None) as connection:
        async with connection.channel() as slow, connection.channel() as quick:
            await slow.declare_queue(queue, arguments=of_queue)
            async with slow.consume(queue, prefetch=1, arguments=of_consumer) as sleeper:
                for body in (b"1", b"2"):
                    await slow.publish(Message(body), queue)
                held = await anext(aiter(sleeper))
                assert (held.body, held.redelivered) == (b"1", False)
                async with quick.consume(queue, prefetch=1, arguments=PATIENT) as worker:
                    taken = {}
                    async for delivery in worker:
                        taken[delivery.body] = delivery.redelivered
                        await delivery.ack()
                        if len(taken) == 2:
                            break
                assert taken == {b"1": True, b"2": False}
                await held.ack()  # It comes too late and does no harm,
                await slow.publish(Message(b"3"), queue)
                again = await anext(aiter(sleeper))  # and the consumer goes on.
                assert again.body == b"3"
                await again.ack()


async def test_a_consumer_that_hangs_gets_no_more_than_its_prefetch(
    url: str, name: Callable[..., str]
) -> None:
    queue = name()
    async with connect(url, reconnect=None) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(queue)
            for n in range(4):
                await channel.publish(Message(b"%d" % n), queue)
            limit = {"x-consumer-timeout": TIMEOUT_MS}
            async with channel.consume(queue, prefetch=2, arguments=limit) as consumer:
                deliveries = aiter(consumer)
                held = [await anext(deliveries) for _ in range(2)]
                while (await channel.declare_queue(queue, passive=True)).message_count < 4:
                    await asyncio.sleep(0.01)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(deliveries), 2 * TIMEOUT_MS / 1000)
                await held[1].ack(multiple=True)
                assert (await anext(deliveries)).redelivered


@every
async def test_the_channel_can_be_closed_instead(version: str, name: Callable[..., str]) -> None:
    options: dict[str, Any] = {"ack_timeout_s": TIMEOUT_MS / 1000, "ack_timeout_closes": True}
    with LocalBroker(**options) as broker:
        async with connect(f"{broker.url}?version={version}", reconnect=None) as connection:
            async with connection.channel() as channel:
                await channel.declare_queue("q")
                await channel.publish(Message(b""), "q")
                with pytest.raises(ClientError, match="acknowledgement on channel"):  # noqa: PT012
                    async with channel.consume("q") as consumer:
                        async for _ in consumer:
                            pass


@pytest.mark.parametrize("value", [-1, "soon", 1.5, True])
async def test_a_timeout_is_a_number(url: str, name: Callable[..., str], value: object) -> None:
    async with connect(url, reconnect=None) as connection, connection.channel() as channel:
        await channel.declare_queue(name())
        with pytest.raises(ClientError, match="x-consumer-timeout"):
            await channel.consume(name(), arguments={"x-consumer-timeout": value}).start()  # type: ignore[dict-item]
