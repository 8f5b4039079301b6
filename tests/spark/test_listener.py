# SPDX-License-Identifier: Apache-2.0
"""Reports of a query listener; the function that receives them may fail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from headrace.spark.listener import QueryListener, Report
from headrace.spark.schema.observed import REJECTED
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class Reports:
    """A callback that stores reports, and waits for events."""

    def __init__(self) -> None:
        self.seen: list[Report] = []
        self._changed = Condition()

    def __call__(self, report: Report) -> None:
        with self._changed:
            self.seen.append(report)
            self._changed.notify_all()
        raise RuntimeError("what a callback raises ends nothing")

    def wait(self, event: str) -> None:
        with self._changed:
            assert self._changed.wait_for(
                lambda: any(report.event == event for report in self.seen), PATIENCE_S
            )


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def listener(spark: SparkSession, reports: Reports, tmp_path: Path) -> Iterator[QueryListener]:
    listener = QueryListener(reports, json_lines=tmp_path / "reports.jsonl")
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)


def test_every_batch_is_told_with_its_lag(
    spark: SparkSession,
    follow: Callable[..., DataFrame],
    publish: Callable[..., None],
    listener: QueryListener,
    reports: Reports,
    name: str,
    tmp_path: Path,
) -> None:
    publish(name, *(f"body {index}" for index in range(25)))
    table = re.sub(r"\W", "_", name)
    follow(name, maxRecordsPerTrigger=10).writeStream.format("memory").queryName(table).trigger(
        availableNow=True
    ).start().awaitTermination()
    reports.wait("terminated")
    progress_reports = [
        report for report in reports.seen if report.event == "progress" and report.rows
    ]
    assert [report.rows for report in progress_reports] == [10, 10, 5]
    assert [report.lag for report in progress_reports] == [{name: 15}, {name: 5}, {name: 0}]
    assert [report.batch for report in progress_reports] == [0, 1, 2]
    assert {report.name for report in reports.seen} == {table}
    assert all("triggerExecution" in report.durations_ms for report in progress_reports)
    assert all(report.processed_per_s > 0 for report in progress_reports)
    assert reports.seen[0].event == "started"
    assert reports.seen[-1].error is None
    assert listener.latest == {}
    lines = [json.loads(line) for line in (tmp_path / "reports.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == [report.event for report in reports.seen]
    assert [line["lag_records"] for line in lines if line.get("rows")] == [15, 5, 0]
    assert "lag 15" in str(progress_reports[0])


def test_rows_that_rules_reject_are_counted_over_the_run(
    spark: SparkSession,
    follow: Callable[..., DataFrame],
    publish: Callable[..., None],
    listener: QueryListener,
    reports: Reports,
    name: str,
) -> None:
    publish(name, *(f"body {index}" for index in range(25)))
    bad = f.count_if(f.col("offset") % 5 == 0).alias("rows")
    frame = follow(name, maxRecordsPerTrigger=10).observe(f"{REJECTED}fifth", bad)
    frame = frame.observe("another", f.count(f.lit(1)).alias("rows"))
    frame.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
    reports.wait("terminated")
    progress_reports = [
        report.rejected for report in reports.seen if report.event == "progress" and report.rows
    ]
    assert progress_reports == [{"fifth": 2}, {"fifth": 4}, {"fifth": 5}]


def test_the_error_of_a_query_is_told(
    spark: SparkSession,
    follow: Callable[..., DataFrame],
    publish: Callable[..., None],
    listener: QueryListener,
    reports: Reports,
    name: str,
) -> None:
    publish(name, "no json")
    frame = follow(name, value="json", valueSchema="a INT", mode="FAILFAST")
    query = frame.writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(Exception, match="FAILFAST"):
        query.awaitTermination()
    reports.wait("terminated")
    assert "offset 0 of" in str(reports.seen[-1].error)
