# SPDX-License-Identifier: Apache-2.0
"""Progress of streaming queries while they run: rates, lag and durations of every micro-batch.

    from headrace.spark.listener import QueryListener

    spark.streams.addListener(QueryListener(json_lines="queries.jsonl"))

Python data sources have no metrics of their own in Spark 4.3. The lag is computed from the progress
of each batch: it is the difference between the end of the source (`latestOffset`) and the end of
the batch (`endOffset`).
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from headrace.spark.schema.observed import checked_rows, rejected_rows, warned_rows

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
        StreamingQueryProgress,
    )

log = logging.getLogger(__name__)

JSON_LINES_BYTES_MAX: Final = 64 << 20  # Beyond this size a new file is begun.
ERROR_LENGTH_MAX: Final = 1000  # Characters reported of the error that ended a query.


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One event of one query.

    `event` is `started`, `progress`, `idle` or `terminated`. `rows` is the number of rows of the
    batch, `rows_per_s` their rate of arrival, and `processed_per_s` their rate of processing.
    `written` is the number of rows in the sink, or None if the sink does not count them.
    `durations_ms` has Spark's durations by phase. `lag` has the number of unread records of each
    stream at the end of the batch. `lost` has the number of records that retention dropped unread,
    since the query first started. `rejected`, `warned` and `checked` count rows by rule of a
    pipeline, since this run of the query started: rows that the rule refused, let through with a
    warning, and checked. `watermark` is the query's watermark in ISO 8601. `owners` are the names
    under which the query owns its groups at the broker.
    """

    event: str
    moment: str  # Spark's timestamp in ISO 8601.
    query: str  # The id in the checkpoint.
    run: str
    name: str | None = None
    batch: int | None = None
    rows: int = 0
    rows_per_s: float = 0.0
    processed_per_s: float = 0.0
    written: int | None = None
    durations_ms: Mapping[str, int] = field(default_factory=dict)
    lag: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)
    warned: Mapping[str, int] = field(default_factory=dict)
    checked: Mapping[str, int] = field(default_factory=dict)
    watermark: str | None = None
    owners: tuple[str, ...] = ()
    error: str | None = None

    @property
    def lag_records(self) -> int:
        """The sum of the unread records of all streams."""
        return sum(self.lag.values())

    def to_json(self) -> str:
        """Return one line of JSON, with `lag_records` and without empty fields."""
        values = {key: value for key, value in asdict(self).items() if value not in (None, {}, ())}
        if self.lag:
            values["lag_records"] = self.lag_records
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))

    def __str__(self) -> str:
        label = self.name or self.query
        if self.event == "progress":
            duration_ms = self.durations_ms.get("triggerExecution", 0)
            return (
                f"query {label}: batch {self.batch} of {self.rows} rows in {duration_ms} ms, "
                f"{self.processed_per_s:.0f} rows/s, lag {self.lag_records}"
            )
        return f"query {label}: {self.event}" + (f": {self.error}" if self.error else "")


class QueryListener(StreamingQueryListener):
    """A listener that sends a `Report` of every event to the log, a callback and a file.

    The callback runs in Spark's thread for listeners, so it must return quickly. Its exceptions are
    logged. The file has a line of JSON for each report. When the file exceeds 64 MiB, it is renamed
    to end in `.1` and replaces the earlier file of that name.
    """

    def __init__(
        self,
        callback: Callable[[Report], None] | None = None,
        *,
        json_lines: str | os.PathLike[str] | None = None,
        log_level: int = logging.INFO,
    ) -> None:
        self._callback = callback
        self._path = None if json_lines is None else Path(json_lines)
        self._log_level = log_level
        self._lock = threading.Lock()
        self._latest: dict[str, Report] = {}
        self._names: dict[str, str | None] = {}

    @property
    def latest(self) -> Mapping[str, Report]:
        """The last progress of each running query, by its run id."""
        with self._lock:
            return dict(self._latest)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's names.
        """Report the start of a query."""
        run = str(event.runId)
        self._names[run] = event.name
        self._send_report(
            Report(
                event="started",
                moment=event.timestamp,
                query=str(event.id),
                run=run,
                name=event.name,
            )
        )

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report the progress of a finished batch."""
        report = report_of(event.progress)
        with self._lock:
            report = _add_earlier_counts(self._latest.get(report.run), report)
            self._latest[report.run] = report
        self._send_report(report)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Report that a query has had no new records for some time."""
        run = str(event.runId)
        self._send_report(
            Report(
                event="idle",
                moment=event.timestamp,
                query=str(event.id),
                run=run,
                name=self._names.get(run),
            )
        )

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Report the end of a query, with its error if it failed."""
        run = str(event.runId)
        with self._lock:
            previous = self._latest.pop(run, None)
        error = event.exception
        self._send_report(
            Report(
                event="terminated",
                moment="" if previous is None else previous.moment,
                query=str(event.id),
                run=run,
                name=self._names.pop(run, None),
                error=None if error is None else error.strip()[:ERROR_LENGTH_MAX],
            )
        )

    def _send_report(self, report: Report) -> None:
        log.log(self._log_level, "%s", report)
        if self._path is not None:
            try:
                self._append(self._path, report.to_json())
            except OSError as error:
                log.warning("%s cannot be written: %s", self._path, error)
        if self._callback is not None:
            try:
                self._callback(report)
            except Exception:  # An error of the callback must not end the listener.
                log.exception("the callback of a query listener failed")

    def _append(self, path: Path, line: str) -> None:
        with self._lock, path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            if file.tell() > JSON_LINES_BYTES_MAX:
                path.replace(path.with_name(path.name + ".1"))


def report_of(progress: StreamingQueryProgress) -> Report:
    """Return the report of a batch's progress, with the lag of the sources `amqp`."""
    lag: dict[str, int] = {}
    lost: dict[str, int] = {}
    for source in progress.sources:
        for records_by_stream, total in (
            (lag_of(source), lag),
            (_read_positions(source.endOffset, "lost"), lost),
            (_read_positions(source.endOffset, "skipped"), lost),
        ):
            for stream, records in records_by_stream.items():
                total[stream] = total.get(stream, 0) + records
    written = progress.sink.numOutputRows
    return Report(
        event="progress",
        moment=progress.timestamp,
        query=str(progress.id),
        run=str(progress.runId),
        name=progress.name,
        batch=progress.batchId,
        rows=progress.numInputRows,
        rows_per_s=_parse_rate(progress.inputRowsPerSecond),
        processed_per_s=_parse_rate(progress.processedRowsPerSecond),
        written=written if written >= 0 else None,
        durations_ms=dict(progress.durationMs),
        lag=lag,
        lost=lost,
        rejected=rejected_rows(progress.observedMetrics),
        warned=warned_rows(progress.observedMetrics),
        checked=checked_rows(progress.observedMetrics),
        watermark=progress.eventTime.get("watermark"),
        owners=tuple(filter(None, (_read_owner(source.endOffset) for source in progress.sources))),
    )


def _add_earlier_counts(previous: Report | None, report: Report) -> Report:
    """Return the report with the counts of rules summed over all batches of the run."""
    if previous is None:
        return report
    return replace(
        report,
        rejected=_add_counts(previous.rejected, report.rejected),
        warned=_add_counts(previous.warned, report.warned),
        checked=_add_counts(previous.checked, report.checked),
    )


def _add_counts(earlier: Mapping[str, int], latest: Mapping[str, int]) -> dict[str, int]:
    return {rule: earlier.get(rule, 0) + latest.get(rule, 0) for rule in {**earlier, **latest}}


def lag_of(source: SourceProgress) -> dict[str, int]:
    """Return the number of unread records by stream; empty for other data sources."""
    end, latest = _read_positions(source.endOffset), _read_positions(source.latestOffset)
    starts = _read_positions(source.endOffset, "from")
    return {
        stream: max(0, position - end.get(stream, starts.get(stream, 0)))
        for stream, position in latest.items()
    }


def _read_positions(offset: object, key: str = "pos") -> dict[str, int]:
    """Return the positions under `key` in an offset of this data source; empty for others."""
    positions = _decode_offset(offset).get(key)
    if not isinstance(positions, dict):
        return {}
    return {name: position for name, position in positions.items() if isinstance(position, int)}


def _read_owner(offset: object) -> str:
    """Return the owner of the group in an offset of this data source; "" without an owner."""
    return str(_decode_offset(offset).get("owner", ""))


def _decode_offset(offset: object) -> Mapping[str, object]:
    """Return the decoded offset of this data source; empty for other offsets."""
    try:
        decoded: object = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) and "v" in decoded else {}


def _parse_rate(rate: float | str) -> float:
    """Return a rate in rows per second; 0 for Spark's NaN and infinity, which mean no rate."""
    value = float(rate)
    return value if 0 <= value < float("inf") else 0.0
