# SPDX-License-Identifier: Apache-2.0
"""headrace leases, as a command of a shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from headrace.cli.stream.leases import leases
from headrace.client.blocking import connect
from headrace.client.blocking_pipeline import Lease

if TYPE_CHECKING:
    from headrace.testing import LocalBroker


@pytest.fixture
def run(headrace_broker: LocalBroker) -> Callable[..., str]:
    def run(*arguments: str, fails: bool = False) -> str:
        result = CliRunner().invoke(leases, arguments, env={"HEADRACE_URL": headrace_broker.url})
        assert (result.exit_code != 0) == fails, result.output
        return result.output

    return run


def test_an_operator_sees_leases_and_gives_them_back(
    headrace_broker: LocalBroker, run: Callable[..., str], name: Callable[..., str]
) -> None:
    queue = name("orders")
    with connect(headrace_broker.url) as connection, connection.channel() as channel:
        channel.declare_queue(queue, durable=True)
        for n in range(5):
            channel.publish(b"%d" % n, queue)
        with Lease(connection, queue, "etl", owner="me", timeout_s=60) as lease:
            lease.claim()
            lease.take(messages=3)
            lease.settle(1)
            listed = run("list", "--queue", queue)
            header = "queue\tgroup\tsettled\tnext\tleased\tready\towner"
            assert listed == f"{header}\n{queue}\tetl\t1\t3\t2\t2\tme\n"
            state = json.loads(run("list", "--queue", queue, "--format", "json"))
            assert (state["group"], state["timeout_s"]) == ("etl", 60)
            assert f"queue\t{queue}\n" in run("show", queue, "etl")
            assert "'me', whose connection is open" in run("release", queue, "etl", fails=True)
            assert run("release", "--force", queue, "etl") == "2 messages returned\n"
            assert channel.declare_queue(queue, passive=True).message_count == 4
            lease.leave()
            assert run("release", queue, "etl") == "0 messages returned\n"
            assert "owner\t-\n" in run("show", queue, "etl")
            run("release", "--forget", queue, "etl")
            assert run("list", "--no-header", "--queue", queue) == ""
            assert "has no lease" in run("show", queue, "etl", fails=True)
