# SPDX-License-Identifier: Apache-2.0
"""Streams by offset."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import (
    ConnectionLost,
    ConsumerCancelled,
    Lost,
    NotFound,
    OffsetGone,
    Reconnect,
    Recovered,
    connect,
)
from headrace.client.link.capabilities import announces
from headrace.testing import LocalBroker
from headrace.testing.broker import ChildBroker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.client import Connection, Record, Stream

    Name = Callable[[str], str]

STREAM = {"x-queue-type": "stream"}


async def fill(connection: Connection, stream: str, count: int, first: int = 0) -> None:
    async with connection.channel() as channel:
        await channel.declare_queue(stream, arguments=STREAM)
        await channel.publish_many((f"{n}" for n in range(first, first + count)), stream)


async def read_all(stream: Stream, first: int, last: int, **options: int) -> list[Record]:
    return [record async for batch in stream.read(first, last, **options) for record in batch]  # type: ignore[arg-type]


async def test_offsets_and_ranges(url: str, name: Name) -> None:
    async with connect(url) as connection:
        await fill(connection, name("s"), 250)
        stream = connection.stream(name("s"))
        assert (await stream.first_offset(), await stream.last_offset()) == (0, 250)
        records = await read_all(stream, 0, 250)
        assert [record.offset for record in records] == list(range(250))
        assert [record.body for record in records] == [b"%d" % n for n in range(250)]
        assert {record.routing_key for record in records} == {name("s")}
        assert {record.exchange for record in records} == {""}
        part = await read_all(stream, 100, 110, batch_max=3, credit=4)
        assert part == records[100:110]
        assert part == await read_all(stream, 100, 110)  # The same bytes as in the first read.
        assert await read_all(stream, 7, 7) == []
        assert records[3].message().body == b"3"


async def test_batches_are_bounded(url: str, name: Name) -> None:
    async with connect(url) as connection:
        await fill(connection, name("s"), 50)
        reading = connection.stream(name("s")).read(0, 50, batch_max=7, credit=10)
        sizes = [len(batch) async for batch in reading]
        assert sum(sizes) == 50
        assert max(sizes) <= 7


async def test_a_read_waits_for_what_is_not_there_yet(url: str, name: Name) -> None:
    async with connect(url) as connection:
        await fill(connection, name("s"), 5)
        reading = asyncio.create_task(read_all(connection.stream(name("s")), 3, 8))
        await fill(connection, name("s"), 5, first=5)
        assert [record.body for record in await reading] == [b"3", b"4", b"5", b"6", b"7"]


async def test_an_empty_stream(url: str, name: Name) -> None:
    async with connect(url) as connection:
        await fill(connection, name("s"), 0)
        stream = connection.stream(name("s"))
        assert (await stream.first_offset(), await stream.last_offset()) == (0, 0)


async def test_offsets_by_time(url: str, name: Name) -> None:
    async with connect(url) as connection:
        before = datetime.now(UTC) - timedelta(seconds=5)
        await fill(connection, name("s"), 10)
        stream = connection.stream(name("s"))
        assert await stream.offset_at(before) == 0
        assert await stream.offset_at(datetime.now(UTC) + timedelta(hours=1)) == 10
        with pytest.raises(ValueError, match="time zone"):
            await stream.offset_at(datetime(2026, 1, 1))  # noqa: DTZ001


async def test_a_stream_that_does_not_exist(url: str, name: Name) -> None:
    async with connect(url) as connection:
        stream = connection.stream(name("missing"))
        with pytest.raises(NotFound):
            await stream.first_offset()
        with pytest.raises(NotFound):
            await read_all(stream, 0, 1)
        with pytest.raises(ValueError, match="negative"):
            await read_all(stream, -1, 1)


async def test_deleting_a_stream_ends_its_readers(url: str, name: Name) -> None:
    async with connect(url) as connection:
        await fill(connection, name("s"), 3)
        reading = connection.stream(name("s")).read(0, 10)
        assert len(await anext(reading)) > 0
        async with connection.channel() as channel:
            await channel.delete_queue(name("s"))
        with pytest.raises(ConsumerCancelled):
            async for _ in reading:
                pass


async def test_an_offset_that_is_gone(headrace_broker: object, name: Name) -> None:
    async with connect(headrace_broker.url) as connection:  # type: ignore[attr-defined]
        arguments: dict[str, Any] = {
            **STREAM,
            "x-max-length-bytes": 200_000,
            "x-stream-max-segment-size-bytes": 50_000,
        }
        async with connection.channel() as channel:
            await channel.declare_queue(name("s"), arguments=arguments)
            await channel.publish_many([bytes(1000)] * 1000, name("s"))
        stream = connection.stream(name("s"))
        first, last = await stream.first_offset(), await stream.last_offset()
        assert 0 < first < 1000
        assert last == 1000
        with pytest.raises(OffsetGone, match="404 NOT_FOUND - offset 0 is gone"):
            await read_all(stream, 0, 10)
        assert len(await read_all(stream, first, last)) == last - first


async def test_consuming_a_stream(url: str, name: Name) -> None:
    async with connect(url) as connection:
        await fill(connection, name("s"), 20)
        async with connection.channel() as channel:
            consumer = channel.consume(
                name("s"), prefetch=5, arguments={"x-stream-offset": "first"}
            )
            async with consumer:
                for n in range(20):
                    delivery = await consumer.receive()
                    assert (delivery.offset, delivery.text()) == (n, f"{n}")
                    await delivery.ack()


async def test_offsets_are_asked_for_whatever_the_broker_calls_itself(name: Name) -> None:
    with LocalBroker(product="RabbitMQ", product_version="3.12.0") as broker:
        async with connect(broker.url) as connection:
            assert connection.server_properties["product"] == "RabbitMQ"
            stream = connection.stream(name("s"))
            assert announces(connection.server_properties, "stream_offset_query")
            await fill(connection, name("s"), 3)
            assert await stream.last_offset() == 3


@pytest.mark.parametrize("how", ["read", "consume"])
async def test_reading_goes_on_after_a_reconnection(url: str, name: Name, how: str) -> None:
    events: asyncio.Queue[object] = asyncio.Queue()
    reconnect = Reconnect(delay_s=0.001)
    async with connect(url, reconnect=reconnect, on_event=events.put_nowait) as connection:
        await fill(connection, name("s"), 100)
        offsets: list[int | None] = []

        async def lose_the_connection() -> None:
            assert connection._link is not None
            connection._link.fail(ConnectionLost("the network failed"))
            assert isinstance(await events.get(), Lost)
            assert isinstance(await events.get(), Recovered)

        if how == "read":
            async for batch in connection.stream(name("s")).read(0, 100, batch_max=40):
                offsets += [record.offset for record in batch]
                if len(offsets) < 100:
                    await lose_the_connection()
        else:
            channel = await connection.channel()
            start = {"x-stream-offset": "first"}
            async with channel.consume(name("s"), prefetch=10, arguments=start) as consumer:
                async for delivery in consumer:
                    offsets.append(delivery.offset)
                    await delivery.ack()
                    if len(offsets) == 40:
                        await lose_the_connection()
                    if len(offsets) == 100:
                        break
        assert offsets == list(range(100))


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
async def test_a_reader_is_remembered_by_its_tag(
    headrace_broker: LocalBroker, name: Name, version: str
) -> None:
    url, stream, tag = headrace_broker.url, name("s"), name(version)
    tracked: dict[str, Any] = {"x-stream-automatic-offset-tracking": 1}

    async def read(count: int, tag: str = tag, **more: Any) -> list[bytes]:
        bodies = []
        arguments: dict[str, Any] = {**tracked, **more}
        async with connect(f"{url}?version={version}", reconnect=None) as connection:
            async with connection.channel() as channel:
                async with channel.consume(stream, prefetch=4, tag=tag, arguments=arguments) as got:
                    async for delivery in got:
                        bodies.append(delivery.body)
                        await delivery.ack()
                        if len(bodies) == count:
                            break
        return bodies

    async with connect(url) as connection:
        await fill(connection, stream, 10)
        first: dict[str, Any] = {"x-stream-offset": "first"}
        assert await read(3, **first) == [b"0", b"1", b"2"]
        assert await read(2) == [b"3", b"4"]
        assert await read(1, tag="other", **{"x-stream-offset": -2}) == [b"8"]
        # An explicit offset may be lower than the stored one.
        assert await read(1, **first) == [b"0"]
        assert await read(1) == [b"5"]
        async with connection.channel() as channel:
            await channel.delete_queue(stream)
        await fill(connection, stream, 1)
        assert await read(1, **first) == [b"0"]


async def test_remembered_readers_survive_a_kill(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {
        "x-stream-automatic-offset-tracking": True,
        "x-stream-offset": "first",
    }
    with ChildBroker(tmp_path / "data") as broker:
        async with connect(broker.url, reconnect=None) as connection:
            await fill(connection, "s", 5)
            async with connection.channel() as channel:
                async with channel.consume("s", tag="me", arguments=arguments) as got:
                    await (await anext(aiter(got))).ack()
                await channel.declare_queue("q")  # Behind this the ack has been seen,
                await channel.publish("", "q")  # and behind this it is on disk.
        broker.kill()
        broker.start()
        del arguments["x-stream-offset"]
        async with connect(broker.url, reconnect=None) as connection:
            async with connection.channel() as channel:
                async with channel.consume("s", tag="me", arguments=arguments) as got:
                    assert (await anext(aiter(got))).body == b"1"
