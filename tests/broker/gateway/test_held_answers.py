# SPDX-License-Identifier: Apache-2.0
"""No answer of a service tells of what is not on the disk yet: each waits for the sync."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Message, connect
from headrace.client.requests import Requests
from headrace.client.staging import Sink, Stage
from headrace.testing.broker import LocalBroker
from support.disks.gated_disk import Gate

ROUNDS = 20  # Of another connection, while an answer is held.


@pytest.mark.parametrize("version", ["0-9-1", "0-10"])
def test_an_answer_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    asyncio.run(check(tmp_path, Gate(monkeypatch), version))


async def check(tmp_path: Path, gate: Gate, version: str) -> None:
    with LocalBroker(tmp_path) as broker:
        async with (
            connect(f"{broker.url}?version={version}") as connection,
            connect(broker.url) as other,
            other.channel() as probe,
            Requests(connection) as requests,
        ):
            await probe.declare_queue("dead", durable=True)
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
            await probe.declare_queue("q", durable=True, arguments=arguments)
            await probe.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
            for n in range(6):
                await probe.publish(Message(b"%d" % n, persistent=True), "q")

            async def held(what: str, work: Callable[[], Awaitable[Any]]) -> Any:
                async with gate.shut():
                    answer = asyncio.ensure_future(work())
                    await gate.reached()
                    for _ in range(ROUNDS):  # The broker has long since done what was asked.
                        await probe.declare_queue("q", passive=True)
                    assert not answer.done(), what
                return await answer

            async def ask(what: str, **fields: Any) -> dict[str, Any]:
                answer: dict[str, Any] = await held(what, lambda: requests.ask(what, **fields))
                return answer

            lease = {"queue": "q", "group": "g"}
            mine = {**lease, "owner": "o"}
            await ask("lease.claim", **mine)
            assert (await ask("lease.take", **mine, first=0, messages=4))["last"] == 4
            await ask("lease.reject", **mine, first=0, last=4, numbers=[1])
            assert (await ask("lease.settle", **mine, upto=2))["rejected"] == 1
            assert (await ask("lease.release", **mine))["released"] == 2
            await ask("lease.leave", **mine)

            group = {"group": "readers", "owner": "o"}
            await ask("group.begin", group="readers", positions={"s": 0})
            await ask("group.claim", **group, streams=["s"])

            await ask("batch.begin", sink="sink", owner="o", run="r")
            sink = Sink(connection, "sink", requests=requests)
            async with Stage(connection, "sink", 0, 0, 0) as stage:
                await stage.publish_many([Message(b"staged", persistent=True)], "dead")
                staged = await held("batch.prepare", stage.prepare)
            done = await held("batch.commit", lambda: sink.commit(0, [staged]))
            assert done.messages == 1
            await ask("sink.discard", sink="sink")
            letters = (await probe.declare_queue("dead", passive=True)).message_count
            assert letters == 2
