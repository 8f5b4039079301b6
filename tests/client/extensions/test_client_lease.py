# SPDX-License-Identifier: Apache-2.0
"""Leases as clients have them, over every version of AMQP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.client import Message, blocking, connect
from headrace.client import blocking_pipeline as pipeline
from headrace.client.lease import Lease, list_leases
from headrace.client.requests import RequestRefused, Requests
from headrace.testing.broker import LocalBroker
from support.timeouts import PATIENCE_S

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")


async def read(lease: Lease, first: int, last: int) -> list[bytes]:
    return [record.body async for batch in lease.read(first, last) for record in batch]


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_life_of_a_lease(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str]
) -> None:
    queue, dead = name("orders"), name("dead")
    url = f"{headrace_broker.url}?version={version}"
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_queue(dead, durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        await channel.declare_queue(queue, durable=True, arguments=arguments)
        for n in range(10):
            await channel.publish(Message(b"%d" % n, persistent=n % 2 == 0), queue)
        async with Lease(connection, queue, "etl", owner="me") as lease:
            state = await lease.claim()
            assert (state.settled, state.next, state.ready, state.owner) == (0, 0, 10, "me")
            taken = await lease.take(messages=4)
            assert (taken.first, taken.last, taken.ready) == (0, 4, 6)
            for _ in range(2):
                assert await read(lease, 0, 4) == [b"0", b"1", b"2", b"3"]
            assert await lease.take(0, messages=4) == taken
            for rejected in (1, 0):
                done = await lease.settle(3, rejects=[1])
                assert (done.settled, done.next, done.rejected) == (3, 4, rejected)
            assert (await lease.take(octets=1)).last == 5
            with pytest.raises(RequestRefused) as refused:
                await lease.take(2)
            assert refused.value.code == "gone"
            assert await lease.release() == 2
            assert (await lease.info()).leased == 0
            letter = await channel.get(dead)
            assert letter is not None
            assert letter.body == b"1"
            deliveries = [await channel.get(queue) for _ in range(3)]
            assert [(m.body, m.redelivered) for m in deliveries if m is not None] == [
                (b"3", True),
                (b"4", True),
                (b"5", False),
            ]


async def test_a_second_owner_waits(headrace_broker: LocalBroker, name: Callable[..., str]) -> None:
    queue = name("orders")
    async with connect(headrace_broker.url) as connection, connection.channel() as channel:
        await channel.declare_queue(queue, durable=True)
        first = Lease(connection, queue, "etl", owner="first", timeout_s=1)
        second = Lease(connection, queue, "etl", owner="second")
        async with first, second:
            await first.claim()
            with pytest.raises(
                RequestRefused, match="'first', whose connection is open"
            ) as refused:
                await second.claim()
            assert refused.value.code == "conflict"
            await first.leave()
            assert (await second.claim(wait_s=PATIENCE_S)).owner == "second"
            with pytest.raises(RequestRefused, match="'second'"):
                await first.take()
            assert (await first.claim(force=True)).owner == "first"
            async with Requests(connection) as requests:
                assert [state.owner for state in await list_leases(requests, queue)] == ["first"]
            await first.release(forget=True)
            with pytest.raises(RequestRefused, match="has no lease"):
                await first.info()


def test_a_lease_goes_on_over_a_restart(tmp_path: Path) -> None:
    async def talk() -> None:
        async with connect(broker.url) as connection, connection.channel() as channel:
            await channel.declare_queue("orders", durable=True)
            for n in range(6):
                await channel.publish(Message(b"%d" % n, persistent=True), "orders")
            async with Lease(connection, "orders", "etl", owner="me", timeout_s=3600) as lease:
                state = await lease.claim()
                await lease.take(messages=4)
                await lease.settle(1)
                await asyncio.to_thread(broker.restart)
                again = await lease.info()
                assert (again.id, again.broker) == (state.id, state.broker)
                assert (again.settled, again.next, again.owner) == (1, 4, "me")
                assert await read(lease, 1, 4) == [b"1", b"2", b"3"]
                taken = await lease.take()
                assert (taken.first, taken.last) == (4, 6)
                assert await lease.release() == 5
                await asyncio.to_thread(broker.restart)
                async with connection.channel() as other:
                    found = [await other.get("orders") for _ in range(6)]
                bodies = [None if m is None else m.body for m in found]
                assert bodies == [b"1", b"2", b"3", b"4", b"5", None]

    with LocalBroker(tmp_path) as broker:
        asyncio.run(talk())


def test_leases_without_asyncio(headrace_broker: LocalBroker, name: Callable[..., str]) -> None:
    queue = name("orders")
    with blocking.connect(headrace_broker.url) as connection, connection.channel() as channel:
        channel.declare_queue(queue, durable=True)
        for n in range(5):
            channel.publish(b"%d" % n, queue)
        with (
            pipeline.Requests(connection) as requests,
            pipeline.Lease(connection, queue, "etl", requests=requests) as lease,
        ):
            assert lease.claim().owner == lease.owner
            taken = lease.take(messages=3)
            bodies = [record.body for batch in lease.read(0, taken.last) for record in batch]
            assert bodies == [b"0", b"1", b"2"]
            assert lease.settle(2, [(0, 2)]).settled == 2
            assert [state.leased for state in pipeline.list_leases(requests, queue)] == [1]
            assert lease.release() == 1
            lease.leave()
            assert lease.info().owner == ""


@pytest.mark.parametrize("durable", [False, True])
async def test_what_is_leased_is_read_in_blocks(durable: bool, tmp_path: Path) -> None:
    """Leased messages of every version, new and redelivered, read at once and in ranges."""
    with LocalBroker(tmp_path / "data" if durable else None) as broker:
        async with connect(broker.url) as connection, connection.channel() as channel:
            await channel.declare_queue("work")
            await channel.publish_many([b"a%d" % n for n in range(10)], "work")
            url = f"{broker.url}?version=0-10"
            async with connect(url) as other, other.channel() as modern:
                await modern.publish_many([b"b%d" % n for n in range(10)], "work")
            for _ in range(3):
                taken = await channel.get("work")
                assert taken is not None
                await taken.nack(requeue=True)
            async with Lease(connection, "work", "etl") as lease:
                state = await lease.claim()
                taken_range = await lease.take()
                assert (taken_range.first, taken_range.last) == (0, 20)
            stream = connection.stream(state.stream)
            for first, last in ((0, 20), (0, 1), (1, 5), (2, 3), (5, 15), (19, 20)):
                records = [each async for batch in stream.read(first, last) for each in batch]
                blocks = [block async for block in stream.read_blocks(first, last)]
                assert sum(block.count for block in blocks) == last - first == len(records)
                bodies = b"".join(bytes(block.bodies.view()) for block in blocks)
                assert bodies == b"".join(record.body for record in records)
