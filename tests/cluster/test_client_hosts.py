# SPDX-License-Identifier: Apache-2.0
"""Our client and Spark's reader with all hosts of a cluster, whose owner is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Event, Lost, Recovered, blocking, connect
from headrace.client.publisher import Publisher
from support.brokers.broker_process import Served, until
from support.cluster import LEASE, operator, wait_until_served
from support.spark.spark_micro_batches import Checkpoint, Query

Make = Callable[..., Served]

DURABLE = ("0-9-1", "0-10")  # Versions in which a confirm says so.
BACK_S = 2.0  # From the takeover to the connection; five runs took 0.04 to 0.27 on a busy machine.


def url_of(*brokers: Served, version: str = "0-9-1") -> str:
    hosts = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    return f"amqp://{hosts}/?version={version}"


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
def test_a_publisher_and_a_consumer_go_on_after_the_takeover(make: Make, version: str) -> None:
    """No ack is lost that a confirm came after; the connection is back soon after the takeover."""
    first, second = make("a", *LEASE).start(), make("b", *LEASE).start()
    back: list[float] = []

    async def play() -> None:
        events: asyncio.Queue[Event] = asyncio.Queue()

        def seen(event: Event) -> None:
            if isinstance(event, Recovered):
                back.append(time.monotonic())
            events.put_nowait(event)

        async with connect(url_of(first, second, version=version), on_event=seen) as connection:
            channel = await connection.channel()
            await channel.declare_queue("work")
            async with Publisher(connection, "me") as publisher, channel.consume("work") as got:
                await publisher.publish_many((f"{n}" for n in range(100)), "work")
                for n in range(100):
                    delivery = await got.receive()
                    assert delivery.text() == f"{n}"
                    assert await delivery.ack()
                assert (await channel.declare_queue("work", passive=True)).message_count == 0
                await channel.publish("a later commit than the acks", "work")
                await (await got.receive()).ack()
                await asyncio.to_thread(first.kill)
                publishing = asyncio.create_task(publisher.publish("100", "work"))
                await asyncio.to_thread(wait_until_served, second)
                served_s = time.monotonic()
                assert isinstance(await events.get(), Lost)
                assert isinstance(await events.get(), Recovered)
                assert back[0] - served_s < BACK_S
                await publishing
                texts: list[str] = []
                while texts[-1:] != ["100"]:
                    delivery = await got.receive()
                    texts.append(delivery.text())
                    await delivery.ack()
                if version in DURABLE:
                    assert texts in (["100"], ["a later commit than the acks", "100"])

    asyncio.run(play())


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-10"])
def test_a_client_of_one_host_hears_of_the_others(make: Make, version: str) -> None:
    first, second = make("a", *LEASE).start(), make("b", *LEASE).start()
    with operator(first) as client:
        until(lambda: len(client.items("list brokers")) == 2, "both know each other")

    async def play() -> None:
        events: asyncio.Queue[Event] = asyncio.Queue()
        url = url_of(first, version=version)
        async with connect(url, on_event=events.put_nowait) as connection:
            await asyncio.to_thread(first.kill)
            assert isinstance(await events.get(), Lost)
            assert isinstance(await events.get(), Recovered)
            assert f":{second.port}/" in connection.address

    asyncio.run(play())


@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_a_query_reads_each_record_once_over_a_takeover(
    make: Make, tmp_path: Path, kind: str
) -> None:
    first, second = make("a", *LEASE).start(), make("b", *LEASE).start()
    uri = url_of(first, second)
    with blocking.connect(uri) as connection, connection.channel() as channel:
        channel.declare_queue("work", arguments={"x-queue-type": kind} if kind == "stream" else {})
        channel.publish_many(map(str, range(60)), "work")
    rows: dict[int, list[dict[str, Any]]] = {}
    given = {"uri": uri, kind: "work", "maxRecordsPerTrigger": "20"}
    if kind == "stream":
        given["startingOffsets"] = "earliest"
    running = Query(given, Checkpoint(), rows)
    assert running.step()
    first.kill()
    running.run()
    assert sorted(int(row["body"]) for batch in rows.values() for row in batch) == list(range(60))
