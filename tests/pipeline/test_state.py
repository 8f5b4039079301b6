# SPDX-License-Identifier: Apache-2.0
"""The lock and the state files of a running pipeline."""

from __future__ import annotations

import fcntl
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
from headrace.pipeline.report.display import (
    describe_waiting_rows,
    query_table,
    status_display,
    status_line,
)
from headrace.pipeline.run.progress import count_lag, error_reason, update_status
from headrace.pipeline.run.run import Run
from headrace.pipeline.run.state import QueryStatus, StateDirectory, Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.conftest import ParsePipeline


def test_one_process_holds_a_pipeline(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    assert not state.is_locked()
    with state.lock():
        assert state.is_locked()
        with pytest.raises(PipelineError, match="the pipeline is running"), state.lock():
            pass
    assert not state.is_locked()


def test_a_pipeline_starts_while_another_process_looks_whether_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDirectory(tmp_path)
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert not state.is_locked()
        pauses: list[float] = []

        def end_look(pause_s: float) -> None:
            pauses.append(pause_s)
            fcntl.flock(file, fcntl.LOCK_UN)

        monkeypatch.setattr("headrace.pipeline.run.state.time.sleep", end_look)
        with state.lock():
            assert state.is_locked()
        assert len(pauses) == 1


def test_a_pipeline_that_runs_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("headrace.pipeline.run.state.time.sleep", pauses.append)
    state = StateDirectory(tmp_path)
    with (
        state.lock(),
        pytest.raises(PipelineError, match="the pipeline is running"),
        state.lock(),
    ):
        pass
    assert pauses == []


def test_a_stop_is_for_one_run(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    first = state.begin_run("p", "p.toml")
    state.request_stop(first.run)
    assert state.is_stop_requested(first.run)
    second = state.begin_run("p", "p.toml")
    assert not state.is_stop_requested(second.run)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_a_run_to_stop_and_leaves_no_handler(
    parse_pipeline: ParsePipeline, tmp_path: Path, number: signal.Signals
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
    running = Run(spark, parse_pipeline(text), StateDirectory(tmp_path))
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with running.handle_signals():
        assert not running.stopping.is_set()
        signal.raise_signal(number)
        assert running.stopping.is_set()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_run_that_ended_without_a_word_was_killed(tmp_path: Path) -> None:
    """A run without a final status is reported as killed."""
    status = StateDirectory(tmp_path).begin_run("p", "p.toml")
    status.state = "running"
    status.queries.append(QueryStatus("lake", ["lake"], "running", 3, 40, 1.5, 2.5, 7, 0.25))
    StateDirectory(tmp_path).write_status(status)
    result = CliRunner().invoke(pipeline, ["status", "--json", str(tmp_path)])
    assert result.exit_code == 3
    printed = json.loads(result.output)
    assert printed["state"] == "killed"
    assert printed["queries"][0]["lag"] == 7
    assert "lake" in CliRunner().invoke(pipeline, ["status", str(tmp_path)]).output
    assert query_table(status).row_count == 1
    told_line = "lake: running, batch 3, 40 rows, 2/s in, 2/s done, lag 7, 0.2 s"
    assert status_line(status.queries[0]) == told_line


def test_progress_is_shown_to_people_and_to_logs(tmp_path: Path) -> None:
    status = StateDirectory(tmp_path).begin_run("orders", "p.toml")
    status.queries.append(QueryStatus("lake", ["lake"], "running", 3, 40))
    for terminal in (True, False):
        screen = Console(file=io.StringIO(), force_terminal=terminal, width=120)
        with status_display(screen) as show:
            show(status)
            show(status)
            status.queries[0].state, status.queries[0].error = "failed", "no space"
            show(status)
        output = screen.file.getvalue()  # type: ignore[attr-defined]  # It is the one above.
        assert "lake" in output
        if not terminal:
            assert len(output.splitlines()) == 2
        else:
            assert "no space" in output
        status.queries[0].state, status.queries[0].error = "running", ""


class FakeQuery:
    """A query with a scripted progress of batches."""

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
    """Rows are counted once, however many batches pass between polls."""
    query, status = FakeQuery(), QueryStatus("lake", ["lake"])

    def poll() -> tuple[int, int | None]:
        update_status(status, query)  # type: ignore[arg-type]  # Of a query it needs no more than this.
        return status.rows, status.batch

    assert poll() == (0, None)
    query.batch(0, 5)
    query.batch(1, 7)
    assert poll() == (12, 1)
    assert poll() == (12, 1)
    query.batch(2, 1)
    assert poll() == (13, 2)
    query.batch(3, 0)  # Nothing came.
    query.batch(4, 2)
    query.batch(5, 3)
    assert poll() == (18, 5)
    assert (status.batch_s, status.rows_per_s, status.lag) == (1.5, 0.0, None)
    assert status.rejected == {"odd": 10}, "two of each batch that had rows"


def test_rows_of_open_windows_are_told_where_they_are_held_back() -> None:
    query = FakeQuery()
    query.batch(0, 5)
    notes = {}
    for holds_back in (True, False):
        status = QueryStatus("sums", ["sums"], holds_back=holds_back)
        update_status(status, query)  # type: ignore[arg-type]  # Of a query it needs no more than this.
        notes[holds_back] = describe_waiting_rows(
            Status("p", "p.toml", "run", 1, "now", queries=[status])
        )
    assert notes[True][0].startswith("sums: rows that wait in open windows: 3; ")
    assert notes[False] == []


def test_lag_is_what_the_streams_have_beyond_the_query() -> None:
    """The lag is the number of records after the end offsets of the query."""

    def source(latest: object, end: object) -> dict[str, Any]:
        return {"latestOffset": latest, "endOffset": end}

    ends = json.dumps({"v": 2, "pos": {"a": 10, "b": 5}})
    reached = json.dumps({"v": 2, "pos": {"a": 4, "b": 5}})
    assert count_lag({"sources": [source(ends, reached), source(None, "x")]}) == 6
    assert count_lag({"sources": [source(None, None)]}) is None


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_the_cause_of_a_failure_is_told_in_a_line(text: str, expected: str) -> None:
    assert error_reason(text) == expected
