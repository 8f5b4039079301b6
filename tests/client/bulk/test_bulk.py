# SPDX-License-Identifier: Apache-2.0
"""Publishes by the thousand: counted confirms, and which one was not taken."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Reconnect, connect
from headrace.client.bulk.encode import Octets, encode_publishes
from headrace.client.bulk.publisher import BulkPublisher
from headrace.client.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.testing import LocalBroker

    Name = Callable[[str], str]


def frames(
    publisher: BulkPublisher, keys: list[str], bodies: list[bytes], exchange: str = ""
) -> bytearray:
    octets, stop = encode_publishes(
        publisher.number,
        publisher.frame_max,
        Octets(exchange.encode()),
        Octets.of(key.encode() for key in keys),
        Octets(b"\x10\x80\x02\x02id"),
        Octets.of(bodies),
        0,
        len(bodies),
        octets_max=1 << 30,
    )
    assert stop == len(bodies)
    return octets


async def test_all_of_many_are_confirmed_with_little_kept(url: str, name: Name) -> None:
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_queue(name("q"))
        async with BulkPublisher(connection, octets_max=100_000) as publisher:
            for start in range(0, 10_000, 500):
                bodies = [b"%d" % n for n in range(start, start + 500)]
                await publisher.send(frames(publisher, [name("q")] * 500, bodies), 500)
            await publisher.finish()
            assert publisher.failed == 0
        state = await channel.declare_queue(name("q"), passive=True)
        assert state.message_count == 10_000


async def test_what_comes_back_and_what_is_refused_is_told_by_its_number(
    url: str, name: Name
) -> None:
    async with connect(url) as connection, connection.channel() as channel:
        full: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
        await channel.declare_queue(name("full"), arguments=full)
        keys = [name("full"), name("nowhere"), name("full"), name("nowhere")]
        async with BulkPublisher(connection) as publisher:
            await publisher.send(frames(publisher, keys, [b"a", b"b", b"c", b"b"]), 4)
            await publisher.finish()
            failures = publisher.failures
        assert sorted(failures) == [1, 2, 3]
        assert publisher.failed == 3
        assert failures[1].reason.startswith("312 NO_ROUTE: exchange ''")
        assert failures[1].routing_key == name("nowhere")
        assert failures[2].reason == "the broker refused the message (basic.nack)"
        assert (failures[2].routing_key, failures[2].message_id) == (name("full"), "id")


async def test_a_missing_exchange_ends_it(url: str) -> None:
    async with connect(url) as connection:
        async with BulkPublisher(connection) as publisher:
            await publisher.send(frames(publisher, ["k"], [b"a"], "no-such"), 1)
            with pytest.raises(NotFound, match="no exchange 'no-such'"):
                await publisher.finish()


async def test_what_was_not_confirmed_is_sent_again_after_a_reconnection(
    headrace_durable_broker: LocalBroker,
) -> None:
    broker = headrace_durable_broker
    quick = Reconnect(delay_s=0.02, delay_max_s=0.1, attempts=2000)
    async with connect(broker.url, reconnect=quick) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue("again", durable=True)
        async with BulkPublisher(connection) as publisher:
            bodies = [b"%d" % n for n in range(5000)]
            for round_ in range(4):
                some = bodies[round_ * 1250 : (round_ + 1) * 1250]
                await publisher.send(frames(publisher, ["again"] * 1250, some), 1250)
                if round_ == 1:
                    await asyncio.to_thread(broker.restart)
            await publisher.finish()
        async with connection.channel() as channel:
            received = set()
            while (delivery := await channel.get("again", no_ack=True)) is not None:
                received.add(delivery.body)
    assert received == set(bodies)
