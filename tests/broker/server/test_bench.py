# SPDX-License-Identifier: Apache-2.0
"""`headrace bench` against `headrace serve`: every workload runs and finds nothing wrong.

Their speed is not tested here.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.bench.clients.client_work import CONSUME, IN_FLIGHT, WORK
from headrace.bench.command import bench as command
from headrace.bench.growth import GROWTH
from headrace.bench.load.link import BenchError, open_link, ready_count
from headrace.bench.load.load import Load, declare, queue_name, remove
from headrace.bench.run import run
from headrace.bench.served import BenchBroker
from headrace.bench.usage import Usage, find_listener
from headrace.bench.workload import WORKLOADS, Bench, Figure
from headrace.client.url import parse_url
from headrace.protocol.codec_0_x import BasicGet, BasicGetOk
from headrace.spec.tables import V0_9_1, V0_10, Version

COUNT = 500
WORK_OF_ONE = {one: WORK["headrace.client.blocking"][one] for one in (IN_FLIGHT, CONSUME)}


@pytest.fixture(scope="module")
def served() -> Iterator[BenchBroker]:
    one = BenchBroker()
    yield one
    one.close()


@pytest.fixture
def bench(served: BenchBroker) -> Bench:
    settings = parse_url(served.url)
    usage = Usage(find_listener(settings.host, settings.port))
    return Bench(settings, usage, seconds=0.2, warm_s=0.05, scale=0.002, restartable=served)


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_workloads_find_nothing_wrong(bench: Bench, name: str) -> None:
    sample = WORKLOADS[name].measure(bench)
    assert sample.problems == []
    assert sample.figures


@pytest.mark.parametrize(
    ("name", "publish", "consume"),
    [("W1", V0_9_1, V0_10), ("W2", V0_10, V0_10), ("W1", V0_10, V0_9_1)],
    ids=str,
)
def test_workloads_run_by_other_versions(
    bench: Bench, name: str, publish: Version, consume: Version
) -> None:
    versions: dict[str, Any] = {"publish_version": publish, "consume_version": consume}

    def delivered(seconds: float) -> float:
        sample = WORKLOADS[name].measure(replace(bench, **versions, seconds=seconds))
        assert sample.problems == []
        return sample.figures[Figure.DELIVERED]

    assert any(delivered(seconds) > 0 for seconds in (0.5, 20.0))  # Of a slow machine later.


@pytest.mark.parametrize("name", [name for name in GROWTH if "5M" not in name])
def test_growth_finds_nothing_wrong(bench: Bench, name: str) -> None:
    sample = GROWTH[name].measure(bench)
    assert sample.problems == []
    assert Figure.CPU_EACH in sample.figures


LOADS = {
    "plain": Load(),
    "acks": Load(prefetch=10, ack_every=3),
    "confirms": Load(persistent=True, window=20, prefetch=50, ack_every=1, size=300),
    "large bodies": Load(size=300_000),
    "fanout": Load(exchange="fanout", queues=3, consumers=2),
    "topic": Load(exchange="topic", queues=5, consumers=2, bindings=400, keys=2500),
    "many of each": Load(publishers=3, queues=4, consumers=3),
    "more consumers than queues": Load(queues=2, consumers=5, prefetch=3, ack_every=1),
    "pairs": Load(publishers=3, queues=3, consumers=3, own_queue=True),
    "paced": Load(rate=2000, window=10),
}


@pytest.mark.parametrize("name", list(LOADS))
def test_counts_agree(bench: Bench, name: str) -> None:
    load = replace(LOADS[name], count=COUNT)
    try:
        outcome = run(load, bench.settings, bench.usage)
    finally:
        remove(load, bench.settings)
    assert outcome.sent == COUNT
    assert outcome.received == outcome.expected
    assert outcome.confirmed == (COUNT if load.window else 0)
    assert outcome.problems() == []
    if load.exchange != "topic":
        assert outcome.expected == COUNT * (load.queues if load.exchange else 1)


def test_publishing_and_draining_apart(bench: Bench) -> None:
    load = Load(count=COUNT, consumers=0)
    try:
        filled = run(load, bench.settings, bench.usage)
        assert (filled.ready, filled.problems()) == (COUNT, [])
        drain = replace(load, consumers=1, publishes=False, keep=True)
        drained = run(drain, bench.settings, bench.usage)
        assert (drained.received, drained.problems()) == (COUNT, [])
    finally:
        remove(load, bench.settings)


def test_a_stolen_message_is_reported(bench: Bench) -> None:
    def problems(idle_s: float) -> list[str]:
        load = Load(count=COUNT, consumers=0)
        try:
            run(load, bench.settings, bench.usage)
            link = open_link(bench.settings)
            link.call(BasicGet(queue=queue_name(0), no_ack=True), BasicGetOk)
            link.close()
            drain = replace(load, consumers=1, publishes=False, keep=True, idle_s=idle_s)
            return run(drain, bench.settings, bench.usage).problems()
        finally:
            remove(load, bench.settings)

    # On a machine that stood still meanwhile more seem to be lost, unless more time is given.
    assert ["1 messages lost"] in map(problems, (2.0, 60.0))


def test_queues_are_removed(bench: Bench) -> None:
    bench.run(Load(queues=2))
    link = open_link(bench.settings)
    with pytest.raises(BenchError, match="404"):
        ready_count(link, queue_name(1))
    link.close()


def test_declaring_again_starts_afresh(bench: Bench) -> None:
    load = Load(count=COUNT, consumers=0)
    try:
        run(load, bench.settings, bench.usage)
        declare(load, bench.settings)
        link = open_link(bench.settings)
        assert ready_count(link, queue_name(0)) == 0
        link.close()
    finally:
        remove(load, bench.settings)


def test_the_command_prints_a_table_and_writes_json(served: BenchBroker, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    options = ["--time", "0.1", "--warm", "0", "--runs", "2", "--workload", "W1,W6p"]
    result = CliRunner().invoke(
        command, [served.url, "--compare", served.url, *options, "--json", str(path)]
    )
    assert result.exit_code == 0, result.output
    assert "delivered, /s" in result.output
    assert "ratio" in result.output
    everything = json.loads(path.read_text())
    assert [one["workload"] for one in everything] == ["W1", "W6p"] * 2
    assert all(len(one["figures"]["delivered"]["runs"]) == 2 for one in everything)
    assert all(one["problems"] == [] for one in everything)
    words = ["--time", "0.1", "--warm", "0", "--runs", "1", "--workload", "W1", "--json"]
    [line] = CliRunner().invoke(command, [served.url, *words]).stdout.splitlines()
    assert json.loads(line)["workload"] == "W1"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["amqp://127.0.0.1:1/", "--workload", "W1"], "127.0.0.1:1"),
        (["--workload", "W99"], "'W99' is not one of W7, W1"),
        (["http://example.org/"], "amqp://"),
    ],
)
def test_what_cannot_be_done_is_said(options: list[str], text: str) -> None:
    result = CliRunner().invoke(command, [*options, "--runs", "1"])
    assert result.exit_code != 0
    assert text in result.output


def test_wrong_password_is_said(served: BenchBroker) -> None:
    url = served.url.replace("amqp://", "amqp://guest:wrong@")
    result = CliRunner().invoke(command, [url, "--workload", "W1", "--runs", "1"])
    assert result.exit_code != 0
    assert "403" in result.output


def test_clients_are_measured_beside_each_other(
    served: BenchBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headrace.bench.clients.clients.WORK", {"headrace.client.blocking": WORK_OF_ONE}
    )
    path = tmp_path / "costs.json"
    options = ["--clients", "--runs", "1", "--scale", "0.001", "--json", str(path)]
    result = CliRunner().invoke(command, [served.url, *options])
    assert result.exit_code == 0, result.output
    assert "| publish, many in flight | headrace.client.blocking |" in result.output
    costs = json.loads(path.read_text())
    assert {cost["operation"] for cost in costs} == set(WORK_OF_ONE)
    assert all(cost["cpu_us"][0] > 0 and cost["rate"][0] > 0 for cost in costs)


def test_a_client_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.bench.clients.clients.WORK", {"no_such_client": {}})
    result = CliRunner().invoke(command, ["--clients", "amqp://127.0.0.1:1/"])
    assert "no_such_client is not installed, and not measured" in result.output
    assert result.exit_code == 0
