# SPDX-License-Identifier: Apache-2.0
"""Looking at a queue without taking from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from headrace.client import Message, blocking, connect
from headrace.client import blocking_pipeline as pipeline
from headrace.client.errors import ChannelClosed
from headrace.client.requests import RequestRefused, Requests
from headrace.client.snapshot import browse, take_snapshot

if TYPE_CHECKING:
    from headrace.client.channel.channel import Channel
    from headrace.client.connection.connection import Connection
    from headrace.testing.broker import LocalBroker

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")


async def fill(channel: Channel, queue: str, numbers: range, **properties: object) -> None:
    for n in numbers:
        await channel.publish_soon(Message(b"%d" % n, **properties), queue)  # type: ignore[arg-type]
    await channel.publish(b"last", "nowhere")  # Confirmed after all earlier messages.


async def look(connection: Connection, queue: str, first: int, last: int) -> list[int]:
    async with aclosing(browse(connection, queue, first, last, credit=50)) as reading:
        return [int(record.body) async for batch in reading for record in batch]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_snapshot_is_read_in_parts_and_takes_nothing(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str]
) -> None:
    queue = name("orders")
    url = f"{headrace_broker.url}?version={version}"
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_queue(queue, durable=True)
        await fill(channel, queue, range(200))
        async with Requests(connection) as requests:
            snapshot = await take_snapshot(requests, queue, parts=4)
            assert snapshot.messages == 200
            await fill(channel, queue, range(200, 250))
            ranges = snapshot.ranges()
            assert len(ranges) == 4
            for _ in range(2):
                parts = await asyncio.gather(*(look(connection, queue, *r) for r in ranges))
                assert [n for part in parts for n in part] == list(range(200))
                assert all(30 < len(part) < 70 for part in parts)
            assert (await take_snapshot(requests, queue)).messages == 250
        first = await channel.get(queue, no_ack=True)
        assert first is not None
        assert (first.body, first.redelivered) == (b"0", False)


async def test_what_others_hold_is_not_shown(
    headrace_broker: LocalBroker, name: Callable[..., str]
) -> None:
    queue = name("orders")
    async with connect(headrace_broker.url) as connection, connection.channel() as channel:
        await channel.declare_queue(queue, durable=True, arguments={"x-max-priority": 5})
        await fill(channel, queue, range(10))
        for n in range(10, 13):
            await fill(channel, queue, range(n, n + 1), priority=n - 9)
        deliveries = [await channel.get(queue) for _ in range(4)]
        assert [int(m.body) for m in deliveries if m is not None] == [12, 11, 10, 0]
        assert deliveries[0] is not None
        await deliveries[0].nack()
        async with Requests(connection) as requests:
            snapshot = await take_snapshot(requests, queue, parts=3)
            assert snapshot.messages == 10
            positions = [n for r in snapshot.ranges() for n in await look(connection, queue, *r)]
            assert positions == [*range(1, 10), 12]  # In order of position, not of priority.
            with pytest.raises(RequestRefused, match="no queue"):
                await take_snapshot(requests, "nowhere")


async def test_an_empty_range_ends_at_once(
    headrace_broker: LocalBroker, name: Callable[..., str]
) -> None:
    queue = name("orders")
    async with connect(headrace_broker.url) as connection, connection.channel() as channel:
        await channel.declare_queue(queue, durable=True)
        async with Requests(connection) as requests:
            snapshot = await take_snapshot(requests, queue, parts=10)
        assert (snapshot.messages, snapshot.bounds) == (0, ())
        assert await look(connection, queue, 0, snapshot.last + 1000) == []
        async with connection.channel() as other:
            with pytest.raises(ChannelClosed, match="is not a position"):
                async with other.consume(queue, arguments={"x-browse": True, "x-stream-last": "x"}):
                    pass


def test_snapshots_without_asyncio(headrace_broker: LocalBroker, name: Callable[..., str]) -> None:
    queue = name("orders")
    with blocking.connect(headrace_broker.url) as connection, connection.channel() as channel:
        channel.declare_queue(queue, durable=True)
        for n in range(5):
            channel.publish(b"%d" % n, queue)
        with pipeline.Requests(connection) as requests:
            snapshot = pipeline.take_snapshot(requests, queue)
        reading = pipeline.browse(connection, queue, snapshot.first, snapshot.last)
        assert [int(record.body) for batch in reading for record in batch] == list(range(5))
