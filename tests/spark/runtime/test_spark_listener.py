# SPDX-License-Identifier: Apache-2.0
"""Reports of queries: the lag in offsets, lines of JSON, OpenMetrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from pyspark.sql.streaming.listener import QueryProgressEvent, SourceProgress

from headrace.spark import listener as module
from headrace.spark.listener import QueryListener, lag_of
from headrace.spark.metrics import QueryMetrics

PROGRESS = {
    "id": "6f0e4c5e-6c1f-4e60-9f1a-1f5c5f0d7a00",
    "runId": "7f0e4c5e-6c1f-4e60-9f1a-1f5c5f0d7a00",
    "name": "orders",
    "timestamp": "2026-01-31T12:00:00.000Z",
    "batchId": 3,
    "batchDuration": 200,
    "observedMetrics": {"headrace.rejected.odd": {"rows": 2}},
    "durationMs": {"addBatch": 120, "triggerExecution": 200},
    "eventTime": {"watermark": "2026-01-31T11:00:00.000Z"},
    "stateOperators": [],
    "numInputRows": 100,
    "inputRowsPerSecond": "NaN",
    "processedRowsPerSecond": 500.0,
    "sources": [
        {
            "description": "amqp",
            "startOffset": {"v": 2, "pos": {"a": 0, "b": 0}},
            "endOffset": {"v": 2, "lost": {"a": 4}, "pos": {"a": 60, "b": 40}, "skipped": {"a": 3}},
            "latestOffset": {"v": 2, "pos": {"a": 100, "b": 40, "new": 5}},
            "numInputRows": 100,
            "inputRowsPerSecond": "NaN",
            "processedRowsPerSecond": 500.0,
            "metrics": {},
        }
    ],
    "sink": {"description": "noop", "numOutputRows": -1, "metrics": {}},
}


def progress() -> QueryProgressEvent:
    return QueryProgressEvent.fromJson({"progress": PROGRESS})


def test_the_lag_is_what_is_there_and_was_not_read(tmp_path: Path) -> None:
    listener = QueryListener(json_lines=tmp_path / "lines")
    listener.onQueryProgress(progress())
    (report,) = listener.latest.values()
    assert report.lag == {"a": 40, "b": 0, "new": 5}
    assert report.lost == {"a": 7}
    assert report.rejected == {"odd": 2}
    assert report.rows_per_s == 0.0
    assert report.written is None
    line = json.loads((tmp_path / "lines").read_text())
    assert (line["lag_records"], line["batch"]) == (45, 3)


@pytest.mark.parametrize("offset", [None, "", "{", "5", '{"orders": {"0": 7}}', '{"v": 1}'])
def test_offsets_of_other_sources_have_no_lag(offset: str | None) -> None:
    source = SourceProgress(
        description="kafka",
        startOffset=str(offset),
        endOffset=str(offset),
        latestOffset=str(offset),
        numInputRows=0,
        inputRowsPerSecond=0.0,
        processedRowsPerSecond=0.0,
        metrics={},
    )
    assert lag_of(source) == {}


def test_lines_begin_a_new_file_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JSON_LINES_BYTES_MAX", 1000)
    listener = QueryListener(json_lines=tmp_path / "lines")
    for _ in range(20):
        listener.onQueryProgress(progress())
    assert (tmp_path / "lines.1").stat().st_size < 2000
    assert not (tmp_path / "lines").exists() or (tmp_path / "lines").stat().st_size <= 1000


def test_open_metrics_are_of_the_newest_batch() -> None:
    listener = QueryListener()
    registry = CollectorRegistry()
    registry.register(QueryMetrics(listener))
    listener.onQueryProgress(progress())
    text = generate_latest(registry).decode()
    assert 'headrace_spark_lag_records{query="orders",stream="a"} 40.0' in text
    assert 'headrace_spark_lost_records{query="orders",stream="a"} 7.0' in text
    assert 'headrace_spark_rejected_rows{query="orders",rule="odd"} 2.0' in text
    assert 'headrace_spark_duration_seconds{part="addBatch",query="orders"} 0.12' in text
