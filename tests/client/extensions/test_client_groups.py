# SPDX-License-Identifier: Apache-2.0
"""Groups of readers, asked for over every version, and over restarts of the broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.client import Connection, blocking, connect
from headrace.client.blocking_pipeline import Groups as BlockingGroups
from headrace.client.blocking_pipeline import Requests as BlockingRequests
from headrace.client.blocking_pipeline import list_groups as blocking_list
from headrace.client.groups import Groups, list_groups
from headrace.client.requests import RequestRefused, Requests
from headrace.testing.broker import ChildBroker, LocalBroker

STREAM = {"x-queue-type": "stream"}


async def streams_of(connection: Connection, *names: str, count: int = 10) -> None:
    async with connection.channel() as channel:
        for name in names:
            await channel.declare_queue(name, durable=True, arguments=STREAM)
            await channel.publish_many([b"x" * 100] * count, name)


@contextmanager
def refused(code: str, text: str = ".") -> Iterator[None]:
    with pytest.raises(RequestRefused, match=text) as found:
        yield
    assert found.value.code == code


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
async def test_a_group_begins_commits_and_is_told(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str]
) -> None:
    one, two = name("one"), name("two")
    url = f"{headrace_broker.url}?version={version}"
    async with connect(url) as connection, Requests(connection) as requests:
        await streams_of(connection, one, two)
        groups = Groups(requests, "etl")
        begun = await groups.begin({one: "first", two: "next"})
        assert (begun[one].initial, begun[two].initial) == (0, 10)
        begun = await groups.begin({one: 7, two: 7}, pin=True)
        assert (begun[one].initial, begun[two].initial, begun[one].pin) == (0, 10, True)
        state = (await groups.commit({one: 4}))[one]
        assert (state.committed, state.position, state.lag, state.gone) == (4, 4, 6, 0)
        assert state.lag_octets > 600
        assert (await groups.commit({one: 2}))[one].committed == 4
        assert (await groups.commit({one: 2}, force=True))[one].committed == 2
        with refused("precondition", "beyond the end"):
            await groups.commit({one: 3, two: 11})
        assert (await groups.get([one]))[one].committed == 2
        listed = [state async for state in list_groups(requests)]
        assert {one, two} <= {state.stream for state in listed}
        assert [state async for state in list_groups(requests, two)] == [
            (await groups.get([two]))[two]
        ]
        await groups.delete([one, two])
        with refused("not-found", "no group 'etl'"):
            await groups.get([one])
        later = await groups.begin({one: datetime.now(UTC)})
        assert later[one].initial == 10


async def test_a_request_may_name_one_stream(
    headrace_broker: LocalBroker, name: Callable[..., str]
) -> None:
    stream = name()
    async with connect(headrace_broker.url) as connection, Requests(connection) as requests:
        await streams_of(connection, stream)
        found = await requests.ask("group.begin", stream=stream, group="g", position="first")
        assert (found["stream"], found["initial"]) == (stream, 0)
        identity = found["id"]
        found = await requests.ask("group.commit", stream=stream, group="g", position=3)
        assert found["committed"] == 3
        with refused("gone", "was deleted and declared again"):
            await requests.ask(
                "group.commit", stream=stream, group="g", position=3, id=identity + 1
            )
        for wrong in (
            {},
            {"group": ""},
            {"group": "g"},
            {"group": "g", "stream": stream},
            {"group": "g", "stream": stream, "position": -1},
            {"group": "g", "stream": stream, "position": True},
            {"group": "g", "stream": stream, "position": {"timestamp_ms": "now"}},
            {"group": "g", "positions": [stream]},
            {"group": "g", "positions": {}},
            {"group": "g", "positions": {stream: 1}, "ids": 3},
            {"group": "g" * 256, "stream": stream, "position": 1},
            {"group": "g", "stream": stream, "position": 1, "force": 1},
        ):
            with refused("bad-request"):
                await requests.ask("group.commit", **wrong)
        with refused("bad-request", "must be named once"):
            await requests.ask("group.get", group="g", streams=[stream, stream])
        with refused("bad-request", "must be the 'next' of an answer"):
            await requests.ask("group.list", after=[1])


async def test_a_second_live_owner_is_refused(
    headrace_broker: LocalBroker, name: Callable[..., str]
) -> None:
    stream = name()
    async with (
        connect(headrace_broker.url) as first,
        connect(f"{headrace_broker.url}?version=0-10") as second,
        Requests(first) as requests,
        Requests(second) as others,
    ):
        await streams_of(first, stream)
        one, other = Groups(requests, "g"), Groups(others, "g")
        assert (await one.claim([stream], "query-1"))[stream].claimed
        with refused("conflict", "claimed by 'query-1', which is connected"):
            await other.claim([stream], "query-2")
        await other.claim([stream], "query-1")
        await one.commit({stream: 1}, owner="query-1")
        with refused("conflict"):
            await one.commit({stream: 2})
        await other.release([stream], "query-2")
        await other.claim([stream], "query-2", force=True)
        with refused("conflict"):
            await one.commit({stream: 2}, owner="query-1")
        await other.release([stream], "query-2")
        await one.claim([stream], "query-1")


@pytest.mark.parametrize("version", ["0-8", "0-9-1", "0-10"])
def test_a_claim_ends_some_time_after_its_connection(version: str) -> None:
    with LocalBroker(group_owner_timeout_s=0.05) as broker:
        old = f"{broker.url}?version={version}"
        with blocking.connect(old) as first, blocking.connect(broker.url) as second:
            with second.channel() as channel, BlockingRequests(second) as requests:
                channel.declare_queue("s", durable=True, arguments=STREAM)
                groups = BlockingGroups(requests, "g")
                with BlockingRequests(first) as others:
                    BlockingGroups(others, "g").claim(["s"], "old")
                    first.close()
                while True:
                    try:
                        groups.claim(["s"], "new")
                        break
                    except RequestRefused as error:
                        assert error.code == "conflict"  # noqa: PT017  # As long as it lasts.
                assert groups.get(["s"])["s"].owner == "new"
                assert [state.group for state in blocking_list(requests, "s")] == ["g"]
                groups.release(["s"], "new")
                groups.delete(["s"])
                assert blocking_list(requests) == []


async def test_only_streams_have_groups(headrace_broker: LocalBroker) -> None:
    async with connect(headrace_broker.url) as connection, Requests(connection) as requests:
        with refused("not-found", "no queue 'nowhere'"):
            await Groups(requests, "g").begin({"nowhere": 0})
        async with connection.channel() as channel:
            await channel.declare_queue("plain")
        with refused("precondition", "'plain' is not a stream"):
            await Groups(requests, "g").begin({"plain": 0})


def test_groups_survive_restarts_and_kill_9(tmp_path: Path) -> None:
    with ChildBroker(tmp_path, "--segment-size", "1MiB") as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            for stream in "ab":
                channel.declare_queue(stream, durable=True, arguments=STREAM)
                channel.publish_many([b"x" * 1000] * 20, stream)
        for life, end in enumerate((broker.kill, broker.stop, broker.kill), 1):
            with blocking.connect(broker.url) as connection:
                with BlockingRequests(connection) as requests:
                    groups = BlockingGroups(requests, "g")
                    begun = groups.begin({"a": life, "b": life}, pin=True)
                    assert [begun[stream].initial for stream in "ab"] == [1, 1]
                    assert begun["a"].committed == (None if life == 1 else life - 1)
                    groups.claim(["a"], "owner")
                    assert groups.commit({"a": life}, owner="owner")["a"].committed == life
                    end()
            broker.start()
        with blocking.connect(broker.url) as connection, BlockingRequests(connection) as requests:
            groups = BlockingGroups(requests, "g")
            states = groups.get(["a", "b"])
            assert (states["a"].committed, states["a"].claimed) == (3, True)
            assert (states["b"].committed, states["b"].position, states["b"].pin) == (None, 1, True)
            with refused("conflict", "claimed by 'owner' for"):
                groups.claim(["a"], "another")
            groups.claim(["a"], "owner")


async def test_many_groups_are_listed_in_parts(headrace_broker: LocalBroker) -> None:
    async with connect(headrace_broker.url) as connection, Requests(connection) as requests:
        await streams_of(connection, "many")
        count = 1203
        await asyncio.gather(
            *(Groups(requests, f"g{number}").begin({"many": 0}) for number in range(900))
        )
        for number in range(900, count):
            await requests.ask("group.begin", stream="many", group=f"g{number}", position=0)
        found = [state.group async for state in list_groups(requests, "many")]
        assert sorted(found) == sorted(f"g{number}" for number in range(count))


def test_the_command(headrace_broker: LocalBroker, name: Callable[..., str]) -> None:
    stream = name("cli")

    def run(*words: str, fails: bool = False) -> str:
        result = CliRunner().invoke(main, ["groups", words[0], "--url", url, *words[1:]])
        assert (result.exit_code != 0) is fails, result.output
        return result.output

    url = headrace_broker.url
    with blocking.connect(url) as connection, connection.channel() as channel:
        channel.declare_queue(stream, durable=True, arguments=STREAM)
        channel.publish_many([b"x"] * 10, stream)
        assert run("list", "--no-header", "--stream", stream) == ""
        line = run("set", "--pin", stream, "g", "4").strip().split("\t")
        assert line[:4] == [stream, "g", "4", "6"]
        assert line[5:] == ["-", "pin"]
        assert run("list", "--no-header", "--stream", stream).strip().split("\t") == line
        with BlockingRequests(connection) as requests:
            BlockingGroups(requests, "g").claim([stream], "me")
            assert json.loads(run("list", "--format", "json", "--stream", stream))["owner"] == "me"
            assert "\tme\t" in run("set", stream, "g", "first")
            assert "claimed by 'me'" in run("delete", stream, "g", fails=True)
        shown = dict(line.split("\t") for line in run("show", stream, "g").splitlines())
        assert (shown["initial"], shown["committed"], shown["owner"]) == ("4", "0", "me")
        assert shown["committed_at"].startswith("20")
        assert run("set", "--no-pin", stream, "g", "2030-01-01").split("\t")[2] == "10"
        run("delete", "--force", stream, "g")
        assert "no group 'g'" in run("show", stream, "g", fails=True)
        assert "neither a position, first, last, next" in run(
            "set", stream, "g", "here", fails=True
        )
        assert "give POSITION" in run("set", stream, "g", fails=True)


def test_a_commit_that_was_answered_survives_kill_9(tmp_path: Path) -> None:
    """Commits continue while the broker is killed; each restart has all answered commits."""
    answered = 0

    async def commit_until_killed(broker: ChildBroker, kill_after: int) -> int:
        sent = answered
        async with connect(broker.url, reconnect=None) as connection:
            requests = Requests(connection)
            groups = Groups(requests, "g")
            state = (await groups.begin({"s": "first", "t": "first"}))["s"]
            assert answered <= (state.committed or 0) <= last_sent
            assert (await groups.get(["t"]))["t"].committed == state.committed
            sent = state.committed or 0

            async def one(position: int) -> None:
                nonlocal answered
                both = await groups.commit({"s": position, "t": position})
                answered = max(answered, both["s"].committed or 0)
                if answered >= kill_after:
                    broker.kill()

            positions = range(sent + 1, sent + 400)
            await asyncio.gather(*map(one, positions), return_exceptions=True)
        return positions[-1]

    last_sent = 0
    with ChildBroker(tmp_path, "--segment-size", "1MiB") as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            for stream in "st":
                channel.declare_queue(stream, durable=True, arguments=STREAM)
                channel.publish_many([b"x"] * 2000, stream)
        for kill_after in (30, 200):
            last_sent = asyncio.run(commit_until_killed(broker, answered + kill_after))
            broker.start()
        asyncio.run(commit_until_killed(broker, answered + 5))


def test_a_pin_holds_a_stream_on_disk_also_after_a_restart(tmp_path: Path) -> None:
    limits: dict[str, Any] = {**STREAM, "x-max-length-bytes": 600_000}
    with LocalBroker(tmp_path, group_pin_size_max=1_000_000) as broker:
        with blocking.connect(broker.url) as connection, BlockingRequests(connection) as requests:
            with connection.channel() as channel:
                channel.declare_queue("s", durable=True, arguments=limits)
                channel.publish_many([b"x" * 1000] * 100, "s")
                groups = BlockingGroups(requests, "g")
                groups.begin({"s": 50}, pin=True)
                channel.publish_many([b"x" * 1000] * 900, "s")
                state = groups.get(["s"])["s"]
                assert (state.gone, state.lag) == (0, 950)
                assert 950_000 < state.lag_octets < 1_200_000
        broker.restart()
        with blocking.connect(broker.url) as connection, BlockingRequests(connection) as requests:
            with connection.channel() as channel:
                groups = BlockingGroups(requests, "g")
                channel.publish_many([b"x" * 1000] * 200, "s")
                assert groups.get(["s"])["s"].gone == 0
                groups.commit({"s": 700})
                first = requests.ask("stream.info", stream="s")["first"]
                assert 400 < first <= 700
                channel.publish_many([b"x" * 1000] * 2000, "s")
                state = groups.get(["s"])["s"]
                assert state.gone > 500
                assert state.gone + 700 == requests.ask("stream.info", stream="s")["first"]
