# SPDX-License-Identifier: Apache-2.0
"""A range of a stream in blocks is what it is record by record, octet by octet."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Connection, ConsumerCancelled, Message, OffsetGone, connect
from headrace.client.stream.reader import BlockReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client import Stream
    from headrace.testing import LocalBroker

    Name = Callable[[str], str]

STREAM = {"x-queue-type": "stream"}
Seen = list[tuple[int, bytes, bytes, str, str]]


def messages() -> list[Message]:
    """Return messages with headers and bodies of all kinds, one of them from another stream."""
    moment = datetime(2026, 1, 31, tzinfo=UTC)
    found = [
        Message(b"", persistent=False),
        Message(b"plain"),
        Message(b"text", content_type="text/plain", content_encoding="utf-8"),
        Message(b"headers", headers={"a": "b", "n": 5, "nested": {"x": [1, None]}}),
        Message(b"both", content_type="x/y", headers={"k": "v"}, message_id="m", timestamp=moment),
        Message(b"from another stream", headers={"x-stream-offset": 77, "z": 1}),
        Message(b"old arrival", headers={"x-stream-arrival-ms": 77, "z": 1}),
        Message(b"a value", headers={"t": "x-stream-offset", "u": "\x0fx-stream-offsetl12345678"}),
        Message(b"large" * 50_000, headers={"a": "b"}),
        Message(b"middling" * 5_000),
    ]
    return found + [Message(b"%d" % n, app_id="app") for n in range(500)]


async def fill(connection: Connection, stream: str) -> Stream:
    async with connection.channel() as channel:
        await channel.declare_queue(stream, durable=True, arguments=STREAM)
        await channel.publish_many(messages(), stream)
    return connection.stream(stream)


async def one_by_one(stream: Stream, first: int, last: int) -> Seen:
    return [tuple(record) async for batch in stream.read(first, last) for record in batch]


async def by_blocks(stream: Stream, first: int, last: int, records_max: int = 100) -> Seen:
    found: Seen = []
    async for block in stream.read_blocks(first, last, records_max=records_max):
        assert 0 < block.count <= records_max
        for row in range(block.count):
            found.append(
                (
                    memoryview(block.offsets).cast("q")[row],
                    block.heads.row(row),
                    block.bodies.row(row),
                    block.exchanges.row(row).decode(),
                    block.routing_keys.row(row).decode(),
                )
            )
    return found


@pytest.mark.parametrize("query", ["", "?frame_max=4096", "?version=0-10", "?version=0-8"])
async def test_blocks_are_the_records(
    headrace_durable_broker: LocalBroker, name: Name, query: str
) -> None:
    async with connect(headrace_durable_broker.url) as connection:
        await fill(connection, name("s"))
    async with connect(headrace_durable_broker.url + query) as connection:
        stream = connection.stream(name("s"))
        whole = await one_by_one(stream, 0, 510)
        assert [record[0] for record in whole] == list(range(510))
        assert await by_blocks(stream, 0, 510) == whole
        assert await by_blocks(stream, 7, 9, 1) == whole[7:9]
        assert await by_blocks(stream, 300, 301) == whole[300:301]


async def test_blocks_out_of_memory_and_with_a_filter(url: str, name: Name) -> None:
    async with connect(url) as connection:
        stream = await fill(connection, name("s"))
        assert await by_blocks(stream, 3, 510) == await one_by_one(stream, 3, 510)
        async with connection.channel() as channel:
            for n in range(40):
                headers = {"x-stream-filter-value": "even" if n % 2 == 0 else "odd"}
                await channel.publish(Message(b"%d" % n, headers=headers), name("s"))
        bodies = [
            block.bodies.row(row)
            async for block in stream.read_blocks(0, 550, filter="odd")
            for row in range(block.count)
        ]
        assert bodies == [b"%d" % n for n in range(1, 40, 2)]


async def test_what_ends_blocks(url: str, name: Name) -> None:
    async with connect(url) as connection:
        arguments: dict[str, Any] = {**STREAM, "x-max-length-bytes": 20_000}
        async with connection.channel() as channel:
            await channel.declare_queue(name("short"), arguments=arguments)
            await channel.publish_many([bytes(1000)] * 200, name("short"))
        stream = connection.stream(name("short"))
        with pytest.raises(OffsetGone):
            await by_blocks(stream, 0, 200)
        async with connection.channel() as channel:
            reading = stream.read_blocks(199, 300, records_max=1)
            assert (await anext(reading)).count == 1
            await channel.delete_queue(name("short"))
            with pytest.raises(ConsumerCancelled):
                await anext(reading)


async def test_records_that_come_with_an_answer_do_not_slow_the_rest(
    url: str, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind the answer in one read are taken one by one, and no later ones.

    Each read ends within a record, whose end was the first event of the next.
    """
    one_by_one = 0
    real = BlockReader.deliver

    def deliver(self: BlockReader, *arguments: Any) -> None:
        nonlocal one_by_one
        one_by_one += 1
        real(self, *arguments)

    monkeypatch.setattr(BlockReader, "deliver", deliver)
    count = 20_000
    async with connect(url) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(name("s"), arguments=STREAM)
            await channel.publish_many((bytes(200) for _ in range(count)), name("s"))
        counts = [block.count async for block in connection.stream(name("s")).read_blocks(0, count)]
    assert sum(counts) == count
    assert one_by_one < count // 4
