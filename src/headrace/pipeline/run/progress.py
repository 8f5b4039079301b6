# SPDX-License-Identifier: Apache-2.0
"""The figures of a query that people look at, from Spark's progress."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from headrace.pipeline.config.errors import redact
from headrace.pipeline.run.counts import Count
from headrace.spark.schema.observed import checked_rows, rejected_rows, warned_rows

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.pipeline.run.state import QueryStatus
    from headrace.untyped import Json

REASON_CHARACTERS_MAX: Final = 600
WINDOWS: Final = ("stateStoreSave", "sessionWindowStateStoreSave")  # Operators with their rows.
_PYTHON_ERROR: Final = re.compile(
    r"(?!org\.apache|java\.|py4j\.|pyspark\.errors)"
    r"(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Refused|Missing|Failed|Closed): "
)


def take(status: QueryStatus, query: StreamingQuery) -> list[tuple[int, dict[str, Count]]]:
    """Bring the status of a query up to date; return the counts of rules of its new batches."""
    last = query.lastProgress
    counts = []
    if last is not None:
        # All that Spark remembers, a hundred at most, only when there is more than one new.
        is_next = status.batch is not None and int(last["batchId"]) <= status.batch + 1
        for progress in [last] if is_next else query.recentProgress:
            batch = int(progress["batchId"])
            counts.append((batch, counts_of(progress["observedMetrics"])))
            if progress["numInputRows"] and (status.batch is None or batch > status.batch):
                status.rows += int(progress["numInputRows"])
                status.batch = batch
                for rule, rows in rejected_rows(progress["observedMetrics"]).items():
                    status.rejected[rule] = status.rejected.get(rule, 0) + rows
                status.batch_s = float(progress["durationMs"].get("triggerExecution", 0)) / 1000
        status.rows_per_s = _number(last, "inputRowsPerSecond")
        status.processed_per_s = _number(last, "processedRowsPerSecond")
        status.lag = lag(last)
        status.waiting = waiting(last) if status.holds_back else 0
    if status.state not in ("failed", "finished", "stopped"):
        trigger = query.status["isTriggerActive"]
        status.state = "running" if trigger or status.lag else "idle"
    return [(batch, by_rule) for batch, by_rule in counts if by_rule]


def counts_of(observed: object) -> dict[str, Count]:
    """Return the counts of rules in the observed metrics of a batch."""
    failed = {**rejected_rows(observed), **warned_rows(observed)}
    return {
        rule: Count(checked, failed.get(rule, 0))
        for rule, checked in checked_rows(observed).items()
    }


def lag(progress: Json) -> int | None:
    """Return the number of unread records of a query; None if its sources do not report it."""
    behind = 0
    is_known = False
    for source in progress["sources"]:
        latest, reached = _positions(source["latestOffset"]), _positions(source["endOffset"])
        if latest is None or reached is None:
            continue
        is_known = True
        behind += sum(max(0, end - reached.get(name, end)) for name, end in latest.items())
    return behind if is_known else None


def waiting(progress: Json) -> int:
    """Return the rows of windows that wait for the watermark."""
    return sum(
        int(operator["numRowsTotal"])
        for operator in progress["stateOperators"]
        if operator["operatorName"] in WINDOWS
    )


def _positions(offset: Json) -> dict[str, int] | None:
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if not isinstance(offset, dict) or not isinstance(offset.get("pos"), dict):
        return None
    return {str(name): int(at) for name, at in offset["pos"].items()}


def _number(progress: Json, name: str) -> float:
    value = progress[name]
    return float(value) if value is not None and value == value else 0.0


def reason(text: str) -> str:
    """Return the sentence of a Spark error that names the fault."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if "[USER_RAISED_EXCEPTION]" in line]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    if raised:
        chosen = raised[0].split("[USER_RAISED_EXCEPTION]")[1].split(" SQLSTATE")[0]
    elif python:
        chosen = python[-1].split(": ", 1)[1]
    elif causes:
        chosen = causes[-1].removeprefix("Caused by: ")
    else:
        chosen = lines[0] if lines else ""
    return redact(chosen.strip())[:REASON_CHARACTERS_MAX]
