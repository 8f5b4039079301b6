# SPDX-License-Identifier: Apache-2.0
"""Update of the status of a query from Spark's progress, and short texts for Spark's errors."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from headrace.pipeline.config.errors import redact
from headrace.pipeline.run.counts import RuleCount
from headrace.spark.schema.observed import checked_rows, rejected_rows, warned_rows

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.pipeline.run.state import QueryStatus
    from headrace.untyped import Json

REASON_CHARACTERS_MAX: Final = 600  # Characters of the reason of an error.
# Spark's operators that keep the rows of windows.
WINDOW_OPERATORS: Final = ("stateStoreSave", "sessionWindowStateStoreSave")
_PYTHON_ERROR: Final = re.compile(
    r"(?!org\.apache|java\.|py4j\.|pyspark\.errors)"
    r"(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Refused|Missing|Failed|Closed): "
)


def update_status(
    status: QueryStatus, query: StreamingQuery
) -> list[tuple[int, dict[str, RuleCount]]]:
    """Update the status of a query from Spark's progress; return the new counts of rules.

    The counts are pairs of the number of a batch and its counts by rule.
    """
    newest = query.lastProgress
    counts = []
    if newest is not None:
        # Spark's list of recent progress, of up to 100 batches, is read only after missed batches.
        is_next = status.batch is not None and int(newest["batchId"]) <= status.batch + 1
        for progress in [newest] if is_next else query.recentProgress:
            batch = int(progress["batchId"])
            counts.append((batch, observed_counts(progress["observedMetrics"])))
            if progress["numInputRows"] and (status.batch is None or batch > status.batch):
                status.rows += int(progress["numInputRows"])
                status.batch = batch
                for rule, rows in rejected_rows(progress["observedMetrics"]).items():
                    status.rejected[rule] = status.rejected.get(rule, 0) + rows
                status.batch_s = float(progress["durationMs"].get("triggerExecution", 0)) / 1000
        status.rows_per_s = _read_number(newest, "inputRowsPerSecond")
        status.processed_per_s = _read_number(newest, "processedRowsPerSecond")
        status.lag = count_lag(newest)
        status.waiting = count_waiting_rows(newest) if status.holds_back else 0
    if status.state not in ("failed", "finished", "stopped"):
        is_active = query.status["isTriggerActive"]
        status.state = "running" if is_active or status.lag else "idle"
    return [(batch, counts_by_rule) for batch, counts_by_rule in counts if counts_by_rule]


def observed_counts(observed: object) -> dict[str, RuleCount]:
    """Return the counts of rules in the observed metrics of a batch."""
    failed = {**rejected_rows(observed), **warned_rows(observed)}
    return {
        rule: RuleCount(checked, failed.get(rule, 0))
        for rule, checked in checked_rows(observed).items()
    }


def count_lag(progress: Json) -> int | None:
    """Return the number of unread records of a query; None if its sources do not report it."""
    unread_count = 0
    is_reported = False
    for source in progress["sources"]:
        newest, current = (
            _read_positions(source["latestOffset"]),
            _read_positions(source["endOffset"]),
        )
        if newest is None or current is None:
            continue
        is_reported = True
        unread_count += sum(max(0, end - current.get(name, end)) for name, end in newest.items())
    return unread_count if is_reported else None


def count_waiting_rows(progress: Json) -> int:
    """Return the number of rows in windows that are still open."""
    return sum(
        int(operator["numRowsTotal"])
        for operator in progress["stateOperators"]
        if operator["operatorName"] in WINDOW_OPERATORS
    )


def _read_positions(offset: Json) -> dict[str, int] | None:
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if not isinstance(offset, dict) or not isinstance(offset.get("pos"), dict):
        return None
    return {str(name): int(position) for name, position in offset["pos"].items()}


def _read_number(progress: Json, name: str) -> float:
    """Return a number of Spark's progress; 0 for null and NaN."""
    value = progress[name]
    return float(value) if value is not None and value == value else 0.0


def error_reason(text: str) -> str:
    """Return the line of a Spark error that names the fault, shortened and without secrets."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised_lines = [line for line in lines if "[USER_RAISED_EXCEPTION]" in line]
    python_lines = [line for line in lines if _PYTHON_ERROR.match(line)]
    cause_lines = [line for line in lines if line.startswith("Caused by: ")]
    if raised_lines:
        reason = raised_lines[0].split("[USER_RAISED_EXCEPTION]")[1].split(" SQLSTATE")[0]
    elif python_lines:
        reason = python_lines[-1].split(": ", 1)[1]
    elif cause_lines:
        reason = cause_lines[-1].removeprefix("Caused by: ")
    else:
        reason = lines[0] if lines else ""
    return redact(reason.strip())[:REASON_CHARACTERS_MAX]
