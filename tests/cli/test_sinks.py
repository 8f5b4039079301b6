# SPDX-License-Identifier: Apache-2.0
"""headrace sinks, as a command of a shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from headrace.cli.stream.sinks import sinks
from headrace.client.blocking import connect
from headrace.client.blocking_pipeline import Sink, Stage

if TYPE_CHECKING:
    from headrace.testing import LocalBroker


@pytest.fixture
def run(headrace_broker: LocalBroker) -> Callable[..., str]:
    def run(*arguments: str, fails: bool = False) -> str:
        result = CliRunner().invoke(sinks, arguments, env={"HEADRACE_URL": headrace_broker.url})
        assert (result.exit_code != 0) == fails, result.output
        return result.output

    return run


def test_an_operator_sees_staged_work_and_gives_it_up(
    headrace_broker: LocalBroker, run: Callable[..., str], name: Callable[..., str]
) -> None:
    queue, title = name("out"), name("sink")
    with connect(headrace_broker.url) as connection, Sink(connection, title) as sink:
        with connection.channel() as channel:
            channel.declare_queue(queue, durable=True)
        sink.begin("me")
        with Stage(connection, title, 5, 0, 1, epoch=sink.epoch) as stage:
            stage.publish_many(["a", "b"], queue)
            staged = stage.prepare()
        assert f"{title}\t-\t-\t1\t2\t1\tme\n" in run("list")
        [found] = [
            json.loads(x) for x in run("list", "--format", "json").splitlines() if title in x
        ]
        assert (found["last"], found["branches"]) == (None, 1)
        shown = run("show", title).splitlines()
        branch = staged.branches.replace(":1", "/0")
        assert shown[1].startswith(f"5\t{branch}\tprepared\t")
        assert "BATCH or --forget" in run("abort", title, fails=True)
        assert run("abort", title, "5") == "1 branches rolled back\n"
        sink.commit(6, [])
        assert run("show", title).startswith(f"{title}\t6\t20")
        assert run("abort", title, "--forget") == "0 branches rolled back\n"
        assert "no sink" in run("show", title, fails=True)
