# SPDX-License-Identifier: Apache-2.0
"""Super streams through every version, and over a restart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.client import blocking, connect
from headrace.client.blocking_pipeline import Requests as BlockingRequests
from headrace.client.blocking_pipeline import super_stream as blocking_super_stream
from headrace.client.requests import RequestRefused, Requests
from headrace.client.super_streams import add_partition, list_super_streams, super_stream
from headrace.testing.broker import LocalBroker

KIND = "x-super-stream"


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
async def test_a_key_goes_to_one_partition(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str]
) -> None:
    exchange = name("all")
    url = f"{headrace_broker.url}?version={version}"
    async with connect(url) as connection, Requests(connection) as requests:
        async with connection.channel() as channel:
            arguments = {"x-partitions": 3, "x-max-length-bytes": 1_000_000}
            await channel.declare_exchange(exchange, KIND, durable=True, arguments=arguments)
            for number in range(60):
                await channel.publish(str(number).encode(), f"key-{number % 20}", exchange)
            state = await super_stream(requests, exchange)
            assert (state.type, state.by) == (KIND, "hash")
            assert [p.stream for p in state.partitions] == [f"{exchange}-{k}" for k in range(3)]
            assert [(p.number, p.key) for p in state.partitions] == [(0, "0"), (1, "1"), (2, "2")]
            assert sum(p.next for p in state.partitions) == 60
            homes: dict[str, str] = {}
            for partition in state.partitions:
                stream = connection.stream(partition.stream)
                async for batch in stream.read(0, partition.next):
                    for record in batch:
                        assert homes.setdefault(record.routing_key, partition.stream) == (
                            partition.stream
                        )
            assert len(homes) == 20
            more = await add_partition(requests, exchange)
            assert [p.stream for p in more.partitions] == [f"{exchange}-{k}" for k in range(4)]
            unchanged = await add_partition(requests, exchange, f"{exchange}-3")
            assert unchanged == more
            await channel.declare_queue(
                f"{exchange}-x", durable=True, arguments={"x-queue-type": "stream"}
            )
            order = {"x-stream-partition-order": 4}
            await channel.bind_queue(f"{exchange}-x", exchange, arguments=order)
            await channel.publish_many([b"x"] * 20, "some key", exchange)
            assert len((await super_stream(requests, exchange)).partitions) == 5
            assert (await list_super_streams(requests))[exchange] == 5
            await channel.delete_exchange(exchange)
            with pytest.raises(RequestRefused, match="no exchange"):
                await super_stream(requests, exchange)


async def test_the_layout_of_rabbitmq(
    headrace_broker: LocalBroker, name: Callable[..., str]
) -> None:
    exchange = name("theirs")
    async with connect(headrace_broker.url) as connection, Requests(connection) as requests:
        async with connection.channel() as channel:
            await channel.declare_exchange(
                exchange, "direct", durable=True, arguments={"x-super-stream": True}
            )
            for number in (1, 0):
                stream = f"{exchange}-{number}"
                arguments = {"x-queue-type": "stream"}
                await channel.declare_queue(stream, durable=True, arguments=arguments)
                order = {"x-stream-partition-order": number}
                await channel.bind_queue(stream, exchange, str(number), arguments=order)
        state = await super_stream(requests, exchange)
        assert (state.type, state.by) == ("direct", "key")
        assert [p.stream for p in state.partitions] == [f"{exchange}-0", f"{exchange}-1"]
        with pytest.raises(RequestRefused, match="not of type x-super-stream"):
            await add_partition(requests, exchange)
        with pytest.raises(RequestRefused, match="of no super stream"):
            await super_stream(requests, "amq.topic")


def test_it_survives_a_restart(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            channel.declare_exchange("s", KIND, durable=True, arguments={"x-partitions": 4})
            channel.publish_many([b"x"] * 50, "one key", "s")
        broker.restart()
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            channel.publish_many([b"x"] * 50, "one key", "s")
            with BlockingRequests(connection) as requests:
                state = blocking_super_stream(requests, "s")
            assert sorted(p.next for p in state.partitions) == [0, 0, 0, 100]


def test_the_command(headrace_broker: LocalBroker, name: Callable[..., str]) -> None:
    exchange = name("cli")

    def run(*words: str, fails: bool = False) -> list[str]:
        words = (words[0], "--url", headrace_broker.url, *words[1:])
        result = CliRunner().invoke(main, ["super-stream", *words])
        assert (result.exit_code != 0) is fails, result.output
        return result.output.splitlines()

    run("create", "--partitions", "2", "--by", "key", "--max-age", "1h", exchange)
    assert f"{exchange}\t2" in run("list")
    assert run("show", exchange)[2].startswith(f"1\t{exchange}-1\t1\t0\t0\t")
    listed = [json.loads(line) for line in run("list", "--format", "json")]
    assert {"name": exchange, "partitions": 2} in listed
    shown = json.loads(run("show", "--format", "json", exchange)[1])
    assert (shown["number"], shown["stream"], shown["key"]) == (1, f"{exchange}-1", "1")
    assert len(run("add", "--no-header", exchange)) == 3
    assert len(run("add", "--no-header", exchange, f"{exchange}-more")) == 4
    run("create", "--partitions", "3", exchange, fails=True)
    run("delete", "--yes", exchange)
    assert "no exchange" in "".join(run("show", exchange, fails=True))
