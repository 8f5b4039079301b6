# SPDX-License-Identifier: Apache-2.0
"""Delayed messages, published and read in every version of AMQP."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from headrace.client import ClientError, Message, connect
from headrace.spec.tables import Version
from support.brokers.broker_process import Served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERSIONS = [version.label for version in Version]
DELAY_MS = 120
every = pytest.mark.parametrize("version", VERSIONS)


@every
async def test_a_delay_on_any_publish(url: str, version: str, name: Callable[..., str]) -> None:
    queue, exchange = name(version), name("x")
    async with connect(f"{url}?version={version}", reconnect=None) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(queue)
            await channel.declare_exchange(
                exchange, "x-delayed-message", arguments={"x-delayed-type": "topic"}
            )
            await channel.bind_queue(queue, exchange, "a.#")
            start = time.time()
            delayed = {"x-delay": DELAY_MS}
            await channel.publish(Message(b"by name", headers=delayed), queue)
            await channel.publish(Message(b"by topic", headers=delayed), "a.b", exchange=exchange)
            await channel.publish(Message(b"elsewhere", headers=delayed), "b", exchange=exchange)
            await channel.publish(Message(b"now"), queue)
            received = {}
            async with channel.consume(queue) as consumer:
                async for delivery in consumer:
                    late = time.time() - start >= DELAY_MS / 1000 - 0.002  # Clocks of ms.
                    received[delivery.body] = late, dict(delivery.headers or {})
                    await delivery.ack()
                    if len(received) == 3:
                        break
            waited = (True, {"x-delay": -DELAY_MS})
            now = (received[b"now"][0], {})
            assert received == {b"now": now, b"by name": waited, b"by topic": waited}


@every
async def test_a_delay_that_makes_no_sense(
    url: str, version: str, name: Callable[..., str]
) -> None:
    async with connect(f"{url}?version={version}", reconnect=None) as connection:
        async with connection.channel() as channel:
            queue = name(version)
            await channel.declare_queue(queue)
            with pytest.raises(ClientError, match="x-delay"):
                await channel.publish(Message(b"", headers={"x-delay": "soon"}), queue)


async def test_delayed_messages_survive_kill_9(tmp_path: Path) -> None:
    broker = Served(tmp_path).start()
    for version in VERSIONS:
        async with connect(f"{broker.url}?version={version}", reconnect=None) as connection:
            async with connection.channel() as channel:
                await channel.declare_queue("q", durable=True)
                for delay in (400, 3_600_000):
                    message = Message(version.encode(), headers={"x-delay": delay}, persistent=True)
                    await channel.publish(message, "q")
    broker.kill()
    broker.start()
    async with connect(broker.url, reconnect=None) as connection:
        async with connection.channel() as channel:
            received = []
            async with channel.consume("q") as consumer:
                async for delivery in consumer:
                    received.append(delivery.body.decode())
                    await delivery.ack()
                    if len(received) == len(VERSIONS):
                        break
            assert sorted(received) == sorted(VERSIONS)
    assert broker.stop() == 0  # An ack is not confirmed, so a kill may undo it.
    broker.start()
    async with connect(broker.url, reconnect=None) as connection:
        async with connection.channel() as channel:
            assert (await channel.declare_queue("q", passive=True)).message_count == 0
    assert broker.stop() == 0
