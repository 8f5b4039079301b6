# SPDX-License-Identifier: Apache-2.0
"""A standalone cluster of two workers runs the pipeline that `local[*]` runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.spark.spark_processes import POLL_S, WAIT_S, Cluster, Process

pytestmark = [pytest.mark.spark, pytest.mark.slow]
RECORDS = 8000
FIRST = RECORDS // 2  # In the first batch.
PROGRAM = Path(__file__).with_name("cluster_program.py")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.stop()


def wait_for(path: Path, driver: Process) -> None:
    deadline = time.monotonic() + WAIT_S
    while not path.exists():
        assert driver.running, driver.log.read_text()[-6000:]
        assert time.monotonic() < deadline, driver.log.read_text()[-6000:]
        time.sleep(POLL_S)


def test_killing_a_worker_in_the_middle_of_a_batch_loses_and_doubles_nothing(
    cluster: Cluster, uri: str, publish: Callable[..., None], name: str, tmp_path: Path
) -> None:
    publish(name, *(f"record-{number}" for number in range(RECORDS)))
    home = tmp_path / "pipeline"
    home.mkdir()
    command = (sys.executable, str(PROGRAM), cluster.url, uri, name, str(home), str(FIRST))
    driver = Process(tmp_path, "driver", *command)
    try:
        # The first batch is through, on both workers; the second one loses one of them.
        wait_for(home / "claimed" / "who", driver)
        lost = (home / "claimed" / "who").read_text()
        cluster.workers[lost].kill()
        driver.wait()
    finally:
        driver.kill()
    rows = sorted(
        (int(offset), body, worker, executor)
        for offset, body, worker, executor in map(
            str.split, (home / "rows").read_text().splitlines()
        )
    )
    assert [row[:2] for row in rows] == [(at, f"record-{at}") for at in range(RECORDS)]
    first, second = rows[:FIRST], rows[FIRST:]
    assert {worker for _, _, worker, _ in first} == {"one", "two"}
    assert len({executor for _, _, _, executor in first}) == 2
    assert {worker for _, _, worker, _ in second} <= {"one", "two"}
    assert ({"one", "two"} - {lost}).pop() in {worker for _, _, worker, _ in second}
