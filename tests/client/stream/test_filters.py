# SPDX-License-Identifier: Apache-2.0
"""Filter values and bounded reads of streams, in every version."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import (
    ChannelClosed,
    ConsumerCancelled,
    Message,
    OffsetGone,
    PreconditionFailed,
    connect,
)
from headrace.client.blocking import connect as connect_blocking
from headrace.client.stream.reader import Record, filter_value
from headrace.spec.tables import Version
from support.conversations.version_conversations import in_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client import Connection, Stream

    Name = Callable[[str], str]

STREAM = {"x-queue-type": "stream"}
every = pytest.mark.parametrize("version", [version.label for version in Version])
VALUES = ("red", "green", None)


def valued(body: str, value: str | None) -> Message:
    headers = {"n": len(body)} if value is None else {"n": 1, "x-stream-filter-value": value}
    return Message(body.encode(), headers=headers)  # type: ignore[arg-type]


async def fill(connection: Connection, stream: str, count: int) -> None:
    async with connection.channel() as channel:
        await channel.declare_queue(stream, arguments=STREAM)
        messages = (valued(f"{n}", VALUES[n % 3]) for n in range(count))
        await channel.publish_many(messages, stream)


async def offsets(stream: Stream, first: int, last: int, **options: Any) -> list[int]:
    reading = stream.read(first, last, **options)  # type: ignore[arg-type]  # Any of them.
    return [record.offset async for batch in reading for record in batch]


@every
async def test_a_filter_gives_exactly_the_records_that_match(
    url: str, version: str, name: Name
) -> None:
    async with connect(in_version(url, version)) as connection:
        await fill(connection, name("s"), 300)
        stream = connection.stream(name("s"))
        assert await offsets(stream, 0, 300, filter="red") == list(range(0, 300, 3))
        assert await offsets(stream, 10, 200, filter=["green"], credit=3) == list(range(10, 200, 3))
        both = await offsets(stream, 0, 300, filter=("red", "green"))
        assert both == [n for n in range(300) if n % 3 < 2]
        unfiltered = await offsets(stream, 0, 300, filter="red", match_unfiltered=True)
        assert unfiltered == [n for n in range(300) if n % 3 != 1]
        assert await offsets(stream, 0, 300, filter="blue") == []
        assert await offsets(stream, 1, 2, filter="red") == []
        assert await offsets(stream, 0, 300) == list(range(300))


@every
async def test_a_range_ends_by_itself(url: str, version: str, name: Name) -> None:
    """A consumer of a range ends at its last offset, and its channel stays open."""
    async with connect(in_version(url, version)) as connection:
        await fill(connection, name("s"), 30)
        async with connection.channel() as channel:
            arguments: dict[str, Any] = {
                "x-stream-offset": 5,
                "x-stream-last": 9,
                "x-stream-filter": "green",
            }
            bodies = []
            consumer = channel.consume(name("s"), prefetch=1, arguments=arguments)
            async for delivery in consumer:
                bodies.append(delivery.body)
                await delivery.ack()
            assert bodies == [b"7"]
            empty = {"x-stream-offset": 9, "x-stream-last": 9}
            assert [d async for d in channel.consume(name("s"), arguments=empty)] == []
            await channel.publish("more", name("s"))


@every
async def test_a_range_waits_for_its_end(url: str, version: str, name: Name) -> None:
    async with connect(in_version(url, version)) as connection:
        await fill(connection, name("s"), 3)
        stream = connection.stream(name("s"))
        reading = asyncio.create_task(offsets(stream, 0, 9, filter="red"))
        async with connection.channel() as channel:
            for n in range(3, 9):
                assert not reading.done()
                await channel.publish(valued(f"{n}", "red" if n == 8 else "green"), name("s"))
        assert await reading == [0, 8]


@every
async def test_a_deleted_stream_is_not_the_end_of_a_range(
    url: str, version: str, name: Name
) -> None:
    async with connect(in_version(url, version)) as connection:
        await fill(connection, name("s"), 3)
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in connection.stream(name("s")).read(0, 9, filter="red"):
                begun.set()

        reading = asyncio.create_task(read())
        await begun.wait()
        async with connection.channel() as channel:
            await channel.delete_queue(name("s"))
        with pytest.raises((ConsumerCancelled, ChannelClosed)):
            await reading


@every
async def test_a_filtered_range_says_when_retention_overtook_it(
    url: str, version: str, name: Name
) -> None:
    """A slow reader gets an error when retention deletes records before it has read them."""
    limits: dict[str, Any] = {**STREAM, "x-max-length-bytes": 500_000}
    async with connect(in_version(url, version)) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(name("s"), arguments=limits)
            body = "x" * 10_000
            await channel.publish_many((valued(body, "red") for _ in range(40)), name("s"))
            reading = connection.stream(name("s")).read(0, 150, filter="red", credit=2, batch_max=1)
            first = await anext(reading)
            await channel.publish_many((valued(body, "red") for _ in range(160)), name("s"))
        seen = [first[0].offset]

        async def read_on() -> None:
            async for batch in reading:
                seen.append(batch[0].offset)

        with pytest.raises(OffsetGone):
            await read_on()
        assert seen == list(range(len(seen)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-stream-last": -1},
        {"x-stream-last": True},
        {"x-stream-filter": 5},
        {"x-stream-filter": []},
        {"x-stream-filter": ["a", 5]},
        {"x-stream-filter": "a" * 256},
        {"x-stream-filter": ["a"] * 257},
        {"x-stream-filter": "a", "x-stream-match-unfiltered": "yes"},
    ],
)
async def test_arguments_that_make_no_sense(
    url: str, name: Name, arguments: dict[str, Any]
) -> None:
    async with connect(url) as connection:
        await fill(connection, name("s"), 1)
        async with connection.channel() as channel:
            consumer = channel.consume(name("s"), arguments=arguments)  # type: ignore[arg-type]
            with pytest.raises(PreconditionFailed, match="invalid arg 'x-stream-"):
                await consumer.start()
    with pytest.raises(ValueError, match="at least one value"):
        [batch async for batch in connection.stream(name("s")).read(0, 1, filter=[])]


def test_blocking(headrace_broker: object, name: Name) -> None:
    with connect_blocking(headrace_broker.url) as connection:  # type: ignore[attr-defined]
        with connection.channel() as channel:
            channel.declare_queue(name("s"), arguments=STREAM)
            channel.publish_many([valued(f"{n}", VALUES[n % 3]) for n in range(30)], name("s"))
        stream = connection.stream(name("s"))
        found = [each.offset for batch in stream.read(0, 30, filter="green") for each in batch]
        assert found == list(range(1, 30, 3))


async def test_values_are_texts_or_octets_at_the_top_of_the_headers(url: str, name: Name) -> None:
    async with connect(url) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(name("s"), arguments=STREAM)
            for headers in (
                {"x-stream-filter-value": "red"},
                {"x-stream-filter-value": b"red"},
                {"x-stream-filter-value": 5},
                {"inner": {"x-stream-filter-value": "red"}},
                {"text": "\x15x-stream-filter-value"},
                {},
            ):
                await channel.publish(Message(b"x", headers=headers), name("s"))  # type: ignore[arg-type]
            await channel.publish(Message(b"\x15x-stream-filter-valueS\0\0\0\x03red"), name("s"))
        stream = connection.stream(name("s"))
        assert await offsets(stream, 0, 7, filter="red") == [0, 1]
        unfiltered = await offsets(stream, 0, 7, filter="blue", match_unfiltered=True)
        assert unfiltered == [2, 3, 4, 5, 6]
        records: list[Record] = []
        async for batch in stream.read(0, 7):
            records += batch
        assert [filter_value(each) for each in records] == ["red", "red", *[None] * 5]
