# SPDX-License-Identifier: Apache-2.0
"""The owner and the state of a running pipeline, in files."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from click.testing import CliRunner
from rich.console import Console

from headrace.cli.pipeline.pipelines import pipeline
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.report.display import line, showing, table, waiting
from headrace.pipeline.run.progress import lag, reason, take
from headrace.pipeline.run.run import Run
from headrace.pipeline.run.state import QueryStatus, State, Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.conftest import Make


def test_one_process_holds_a_pipeline(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    assert not state.is_held()
    with state.held():
        assert state.is_held()
        with pytest.raises(PipelineError, match="the pipeline is running"), state.held():
            pass
    assert not state.is_held()


def test_a_stop_is_for_one_run(tmp_path: Path) -> None:
    state = State(tmp_path)
    first = state.begin("p", "p.toml")
    state.ask_to_stop(first.run)
    assert state.is_asked_to_stop(first.run)
    second = state.begin("p", "p.toml")
    assert not state.is_asked_to_stop(second.run)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_a_run_to_stop_and_leaves_no_handler(
    make: Make, tmp_path: Path, number: signal.Signals
) -> None:
    text = """
        [pipeline]
        name = "p"
        [sources.tags]
        type = "json"
        path = "tags"
        ddl = "tag STRING"
        [sinks.out]
        from = "tags"
        type = "json"
        path = "out"
    """
    spark = cast("SparkSession", None)  # Nothing is started.
    running = Run(spark, make(text), State(tmp_path))
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    with running.signals():
        assert not running.stopping.is_set()
        signal.raise_signal(number)
        assert running.stopping.is_set()
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_run_that_ended_without_a_word_was_killed(tmp_path: Path) -> None:
    status = State(tmp_path).begin("p", "p.toml")
    status.state = "running"
    status.queries.append(QueryStatus("lake", ["lake"], "running", 3, 40, 1.5, 2.5, 7, 0.25))
    State(tmp_path).write(status)
    result = CliRunner().invoke(pipeline, ["status", "--json", str(tmp_path)])
    assert result.exit_code == 3
    told = json.loads(result.output)
    assert told["state"] == "killed"
    assert told["queries"][0]["lag"] == 7
    assert "lake" in CliRunner().invoke(pipeline, ["status", str(tmp_path)]).output
    assert table(status).row_count == 1
    told_line = "lake: running, batch 3, 40 rows, 2/s in, 2/s done, lag 7, 0.2 s"
    assert line(status.queries[0]) == told_line


def test_progress_is_shown_to_people_and_to_logs(tmp_path: Path) -> None:
    status = State(tmp_path).begin("orders", "p.toml")
    status.queries.append(QueryStatus("lake", ["lake"], "running", 3, 40))
    for terminal in (True, False):
        screen = Console(file=io.StringIO(), force_terminal=terminal, width=120)
        with showing(screen) as show:
            show(status)
            show(status)
            status.queries[0].state, status.queries[0].error = "failed", "no space"
            show(status)
        shown = screen.file.getvalue()  # type: ignore[attr-defined]  # It is the one above.
        assert "lake" in shown
        if not terminal:
            assert len(shown.splitlines()) == 2
        else:
            assert "no space" in shown
        status.queries[0].state, status.queries[0].error = "running", ""


class Reporting:
    """The progress of a query of Spark, batch by batch."""

    def __init__(self) -> None:
        self.recentProgress: list[dict[str, Any]] = []
        self.status = {"isTriggerActive": True}

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self.recentProgress[-1] if self.recentProgress else None

    def batch(self, number: int, rows: int) -> None:
        self.recentProgress.append(
            {
                "batchId": number,
                "numInputRows": rows,
                "durationMs": {"triggerExecution": 1500},
                "observedMetrics": {"headrace.rejected.odd": {"rows": 2}, "sum": {"rows": 9}},
                "inputRowsPerSecond": float("nan"),
                "processedRowsPerSecond": 10.0,
                "sources": [],
                "stateOperators": [
                    {"operatorName": "stateStoreSave", "numRowsTotal": 3},
                    {"operatorName": "dedupeWithinWatermark", "numRowsTotal": 7},
                ],
            }
        )


def test_rows_are_counted_once_however_seldom_one_looks() -> None:
    query, status = Reporting(), QueryStatus("lake", ["lake"])

    def look() -> tuple[int, int | None]:
        take(status, query)  # type: ignore[arg-type]  # Of a query it needs no more than this.
        return status.rows, status.batch

    assert look() == (0, None)
    query.batch(0, 5)
    query.batch(1, 7)
    assert look() == (12, 1)
    assert look() == (12, 1)
    query.batch(2, 1)
    assert look() == (13, 2)
    query.batch(3, 0)  # Nothing came.
    query.batch(4, 2)
    query.batch(5, 3)
    assert look() == (18, 5)
    assert (status.batch_s, status.rows_per_s, status.lag) == (1.5, 0.0, None)
    assert status.rejected == {"odd": 10}, "two of each batch that had rows"


def test_rows_of_open_windows_are_told_where_they_are_held_back() -> None:
    query = Reporting()
    query.batch(0, 5)
    told = {}
    for holds_back in (True, False):
        one = QueryStatus("sums", ["sums"], holds_back=holds_back)
        take(one, query)  # type: ignore[arg-type]  # Of a query it needs no more than this.
        told[holds_back] = waiting(Status("p", "p.toml", "run", 1, "now", queries=[one]))
    assert told[True][0].startswith("sums: rows that wait in open windows: 3; ")
    assert told[False] == []


def test_lag_is_what_the_streams_have_beyond_the_query() -> None:
    def source(latest: object, end: object) -> dict[str, Any]:
        return {"latestOffset": latest, "endOffset": end}

    ends = json.dumps({"v": 2, "pos": {"a": 10, "b": 5}})
    reached = json.dumps({"v": 2, "pos": {"a": 4, "b": 5}})
    assert lag({"sources": [source(ends, reached), source(None, "x")]}) == 6
    assert lag({"sources": [source(None, None)]}) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "a\nCaused by: java.io.IOException: x\nCaused by: java.lang.E: no space",
            "java.lang.E: no space",
        ),
        ("Traceback\n  File\nheadrace.spark.x.DataLossError: gone\nmore", "gone"),
        ("x [USER_RAISED_EXCEPTION] rule 'a' SQLSTATE: P0001", "rule 'a'"),
        ("", ""),
    ],
)
def test_the_cause_of_a_failure_is_told_in_a_line(text: str, told: str) -> None:
    assert reason(text) == told
