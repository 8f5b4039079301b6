# SPDX-License-Identifier: Apache-2.0
"""Files of AMQP 0-9 whose broker is lost: their bodies are at the broker that takes over."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from headrace.client import Files, connect
from support.brokers.broker_process import Served
from support.cluster import LEASE, wait_until_served

Make = Callable[..., Served]


def test_a_file_is_delivered_by_the_broker_that_takes_over(make: Make) -> None:
    """The client goes there by itself; no body is left once it is acked."""
    first, second = make("a", *LEASE).start(), make("b", *LEASE).start()
    body = os.urandom(3_000_000)

    async def play() -> None:
        url = f"amqp://{first.host}:{first.port},{second.host}:{second.port}/?version=0-9"
        async with connect(url) as connection:
            channel = await connection.channel(confirm=False)
            await channel.declare_queue("files")
            await Files(channel).publish(body, "files")
            while (await channel.declare_queue("files", passive=True)).message_count == 0:
                pass  # Its body is on its way to the ledger.
            async with await connection.channel(confirm=False) as other, other.transaction():
                await other.publish("behind it", "files")
            await asyncio.to_thread(first.kill)
            await asyncio.to_thread(wait_until_served, second)
            channel = await connection.channel(confirm=False)
            files = Files(channel)
            await files.consume("files")
            delivery = await files.receive()
            assert delivery.body == body
            await files.ack(delivery)
            assert (await channel.declare_queue("files", passive=True)).message_count == 1

    asyncio.run(play())
