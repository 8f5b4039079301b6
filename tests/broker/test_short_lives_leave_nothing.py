# SPDX-License-Identifier: Apache-2.0
"""What comes and goes leaves nothing in the broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.client import Message
from headrace.client.blocking import connect
from headrace.testing import LocalBroker

if TYPE_CHECKING:
    from pathlib import Path

QUEUES = 20
BUFFER_SIZE = 16 << 10  # Bytes of an output's buffer when new.
KEPT_TICKS = 20  # Half seconds that idle ones are kept.
BODY = bytes(4000)  # Is copied to the output, together with others.


def test_the_journal_keeps_no_mark_of_a_deleted_queue(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker, connect(broker.url) as connection:
        channel = connection.channel()
        for number in range(QUEUES):
            queue = f"short.{number}"
            channel.declare_queue(queue, durable=True)
            channel.publish(Message(b"", persistent=True), queue)
            delivery = channel.get(queue)
            assert delivery is not None
            delivery.ack()
            channel.delete_queue(queue)
        journal = broker._broker.storage.stores["/"]
        assert not journal.reserved


def test_buffers_of_large_outputs_are_let_go() -> None:
    with LocalBroker() as broker, connect(broker.url) as connection:
        channel = connection.channel()
        channel.declare_queue("large", durable=False)
        for _ in range(100):
            channel.publish(Message(BODY), "large")
        with channel.consume("large", prefetch=100) as consumer:
            for _ in range(100):
                consumer.receive().ack()
        pool = broker._broker.managed.reactor.pool

        async def tick() -> int:
            for _ in range(KEPT_TICKS):
                broker._broker.tick()
            return int(pool.pooled_bytes)

        assert broker._loop is not None
        kept = asyncio.run_coroutine_threadsafe(tick(), broker._loop).result()
        assert kept <= BUFFER_SIZE
