# SPDX-License-Identifier: Apache-2.0
"""Spark runs a task twice at once because it is slow; what it writes is there once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client.blocking_pipeline import Requests
from support.queue_contents import all_ready
from support.spark.spark_processes import Cluster, Process

if TYPE_CHECKING:
    from headrace.client import blocking

pytestmark = [pytest.mark.spark, pytest.mark.slow]
RECORDS = 400
BATCHES = 2
PROGRAM = Path(__file__).with_name("speculation_program.py")
HOSTS = ("127.0.0.1", "127.0.0.2")  # Spark speculates on another host than that of the slow task.


def attempts_at_once(events: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return stage and partition of each task that ran when Spark launched another attempt."""
    actual = []
    running: dict[tuple[int, int], set[int]] = {}
    for event in events:
        if event["Event"] not in ("SparkListenerTaskStart", "SparkListenerTaskEnd"):
            continue
        task = event["Task Info"]
        place = (event["Stage ID"], task["Index"])
        others = running.setdefault(place, set())
        if event["Event"] == "SparkListenerTaskEnd":
            others.discard(task["Task ID"])
            continue
        if task["Speculative"] and others:
            actual.append(place)
        others.add(task["Task ID"])
    return actual


def test_two_attempts_at_a_partition_at_once_write_it_once(
    uri: str,
    connection: blocking.Connection,
    publish: Callable[..., None],
    name: str,
    tmp_path: Path,
) -> None:
    stream, queue = f"{name}.from", f"{name}.to"
    publish(stream, *(str(number) for number in range(RECORDS)))
    channel = connection.channel()
    channel.declare_queue(queue, durable=True)
    home = tmp_path / "query"
    home.mkdir()
    cluster = Cluster(tmp_path, hosts=HOSTS)
    try:
        command = (str(PROGRAM), cluster.url, uri, stream, queue, str(home))
        driver = Process(tmp_path, "driver", sys.executable, *command, str(RECORDS // BATCHES))
        driver.wait()
    finally:
        cluster.stop()

    (log,) = home.glob("app-*")
    places = attempts_at_once([json.loads(line) for line in log.read_text().splitlines()])
    assert len({stage for stage, _ in places}) == BATCHES, places
    for batch in range(BATCHES):  # And both had given all of their rows to the sink.
        assert len(list((home / "whole" / str(batch)).iterdir())) == 2

    actual = sorted(int(message.text()) for message in all_ready(channel, queue))
    assert actual == list(range(RECORDS))
    with Requests(connection) as requests:
        sink = requests.ask("sink.show", sink="speculation")
    assert (sink["last"], sink["branches"], sink["messages"]) == (BATCHES - 1, 0, 0)
