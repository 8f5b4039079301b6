# SPDX-License-Identifier: Apache-2.0
"""Requests to a broker that are messages, over every version of AMQP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.client import blocking, connect
from headrace.client.blocking_pipeline import Requests as BlockingRequests
from headrace.client.errors import ConnectionClosed, UsageError
from headrace.client.requests import RequestRefused, Requests
from headrace.testing.broker import LocalBroker

VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_request_is_answered(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str]
) -> None:
    url = f"{headrace_broker.url}?version={version}"
    async with connect(url) as connection, Requests(connection) as requests:
        info = await requests.ask("broker.info")
        assert info == {"broker": connection.server_properties["headrace_id"], "vhost": "/"}
        async with connection.channel() as channel:
            stream = name("stream")
            arguments = {"x-queue-type": "stream"}
            await channel.declare_queue(stream, durable=True, arguments=arguments)
            await channel.publish(b"x" * 100, stream)
        found = await requests.ask("stream.info", stream=stream)
        assert (found["stream"], found["first"], found["next"]) == (stream, 0, 1)
        assert found["octets"] > 100
        with pytest.raises(RequestRefused, match="no queue 'nowhere'") as refused:
            await requests.ask("stream.info", stream="nowhere")
        assert refused.value.code == "not-found"
        several = [requests.ask("stream.info", stream=stream) for _ in range(200)]
        assert all(answer == found for answer in await asyncio.gather(*several))


def test_requests_go_on_after_a_reconnection(tmp_path: Path) -> None:
    async def talk() -> None:
        async with connect(broker.url) as connection, Requests(connection) as requests:
            info = await requests.ask("broker.info")
            await asyncio.to_thread(broker.restart)
            assert await requests.ask("broker.info") == info

    with LocalBroker(tmp_path) as broker:
        asyncio.run(talk())


def test_a_lost_connection_ends_them() -> None:
    async def talk() -> None:
        async with connect(broker.url, reconnect=None) as connection:
            requests = Requests(connection)
            await requests.ask("broker.info")
            await asyncio.to_thread(broker.stop)
            with pytest.raises(ConnectionClosed):
                await requests.ask("broker.info")

    with LocalBroker() as broker:
        asyncio.run(talk())


async def test_an_answer_that_does_not_come(headrace_broker: LocalBroker) -> None:
    async with connect(headrace_broker.url) as connection:
        async with Requests(connection, "nobody", timeout_s=0.05) as requests:
            with pytest.raises(TimeoutError, match=r"did not answer 'list' within 0.05 s"):
                await requests.ask("list")
        async with connection.channel() as channel:
            await channel.declare_queue("silent", exclusive=True)
            other = Requests(connection, "silent")
            asking = asyncio.create_task(other.ask("list"))
            while await channel.get("silent", no_ack=True) is None:
                await asyncio.sleep(0)
            await other.close()
            with pytest.raises(UsageError, match="closed"):
                await asking


async def test_another_broker_does_not_serve_them(
    headrace_broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(headrace_broker.url) as connection:
        properties = dict(connection.server_properties)
        del properties["headrace_id"]
        monkeypatch.setattr(type(connection), "server_properties", property(lambda _: properties))
        with pytest.raises(UsageError, match="is not a Headrace broker that serves requests"):
            await Requests(connection).ask("broker.info")


def test_the_blocking_twin(headrace_broker: LocalBroker) -> None:
    with blocking.connect(headrace_broker.url) as connection, BlockingRequests(connection) as asks:
        identity = connection.server_properties["headrace_id"]
        assert asks.ask("broker.info")["broker"] == identity
        assert asks.send({"do": "broker.info"})["vhost"] == "/"
        with pytest.raises(RequestRefused, match=r"^dance: there is no request 'dance'$"):
            asks.ask("dance")


async def test_streams_are_listed(headrace_broker: LocalBroker, name: Callable[..., str]) -> None:
    async with connect(headrace_broker.url) as connection, Requests(connection) as requests:
        streams = [name(f"stream-{index}") for index in range(5)]
        async with connection.channel() as channel:
            for stream in streams:
                await channel.declare_queue(stream, arguments={"x-queue-type": "stream"})
            await channel.declare_queue(name("queue"))
        asked = [streams[3], name("queue"), streams[1], "nowhere"]
        answer = await requests.ask("stream.list", streams=asked)
        assert [one["stream"] for one in answer["streams"]] == [streams[3], streams[1]]
        assert answer["missing"] == [name("queue"), "nowhere"]
        assert answer["streams"][0] == {
            key: value
            for key, value in (await requests.ask("stream.info", stream=streams[3])).items()
            if key != "broker"
        }
        listed: list[str] = []
        after = ""
        while True:
            answer = await requests.ask("stream.list", after=after, most=2)
            assert len(answer["streams"]) <= 2
            listed += [one["stream"] for one in answer["streams"]]
            after = answer["after"]
            if not after:
                break
        assert listed == sorted(listed)
        assert set(streams) <= set(listed)
        assert name("queue") not in listed
        for bad in ("x", [1], ["x"] * 1001):
            with pytest.raises(RequestRefused, match="'streams'"):
                await requests.ask("stream.list", streams=bad)


async def test_ranges_are_measured(headrace_broker: LocalBroker, name: Callable[..., str]) -> None:
    async with connect(headrace_broker.url) as connection, Requests(connection) as requests:
        stream = name("stream")
        async with connection.channel() as channel:
            await channel.declare_queue(stream, arguments={"x-queue-type": "stream"})
            await channel.publish_many([b"x" * 1000] * 20, stream)

        async def measure(first: int, **fields: int) -> tuple[int, int, int]:
            answer = await requests.ask(
                "stream.measure", stream=stream, **{"from": first}, **fields
            )
            return answer["count"], answer["octets"], answer["next"]

        count, octets, following = await measure(0)
        assert (count, following) == (20, 20)
        assert 20_000 < octets < 24_000
        assert (await measure(5, to=10))[::2] == (5, 10)
        assert (await measure(5, records_max=3))[::2] == (3, 8)
        assert (await measure(5, octets_max=3300))[::2] == (3, 8)
        assert (await measure(5, octets_max=1))[::2] == (1, 6)
        assert await measure(20) == (0, 0, 20)
        assert await measure(30) == (0, 0, 30)
        answer = await requests.ask("stream.offset", stream=stream, timestamp_ms=0)
        assert answer == {"offset": 0, "first": 0, "next": 20}
        answer = await requests.ask("stream.offset", stream=stream, timestamp_ms=1 << 50)
        assert answer["offset"] == 20
