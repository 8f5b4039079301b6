# SPDX-License-Identifier: Apache-2.0
"""The status of a pipeline as OpenMetrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from headrace.pipeline.config.errors import PipelineError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from headrace.pipeline.run.state import Status

LISTEN_ADDRESS: Final = "127.0.0.1"
QUERY_LABELS: Final = ("pipeline", "query")
RULE_LABELS: Final = ("pipeline", "query", "rule")
QUERY_STATES: Final = ("starting", "running", "idle", "finished", "stopped", "failed")


class StatusMetrics(Collector):
    """A collector that reads the status of a pipeline at each scrape."""

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of all queries and rules."""
        status = self._status()
        yield from _query_metrics(status)
        yield from _rule_metrics(status)


def _query_metrics(status: Status) -> Iterator[Metric]:
    """Yield the metrics of each query."""
    prefix = "headrace_pipeline_"
    state = GaugeMetricFamily(
        f"{prefix}query_state",
        "1 for the state that a query is in",
        labels=(*QUERY_LABELS, "state"),
    )
    rows = CounterMetricFamily(
        f"{prefix}rows", "Rows read since the run began", labels=QUERY_LABELS
    )
    rejected = CounterMetricFamily(
        f"{prefix}rejected_rows", "Rows that rules rejected since the run began", labels=RULE_LABELS
    )
    gauges = {
        name: GaugeMetricFamily(f"{prefix}{name}", text, labels=QUERY_LABELS)
        for name, text in (
            ("batch", "Number of the newest batch that had rows"),
            ("batch_seconds", "Duration of this batch"),
            ("rows_per_second", "Rows processed per second"),
            ("lag_records", "Records that are not read yet"),
            ("waiting_rows", "Rows of open windows"),
            ("uncounted_batches", "Batches missing from the counts of rules"),
        )
    }
    for query in status.queries:
        labels = (status.pipeline, query.name)
        for name in QUERY_STATES:
            state.add_metric((*labels, name), int(query.state == name))
        rows.add_metric(labels, query.rows)
        for rule, refused in query.rejected.items():
            rejected.add_metric((*labels, rule), refused)
        figures = {
            "batch": query.batch,
            "batch_seconds": query.batch_s,
            "rows_per_second": query.processed_per_s,
            "lag_records": query.lag,
            "waiting_rows": query.waiting,
            "uncounted_batches": query.uncounted,
        }
        for name, figure in figures.items():
            if figure is not None:
                gauges[name].add_metric(labels, figure)
    yield from (state, rows, rejected, *gauges.values())


def _rule_metrics(status: Status) -> Iterator[Metric]:
    """Yield the counts of each rule, since the checkpoint began and in the newest batch."""
    prefix = "headrace_pipeline_rule_"
    counters = {
        "checked": CounterMetricFamily(
            f"{prefix}checked_rows", "Rows that a rule checked", labels=RULE_LABELS
        ),
        "failed": CounterMetricFamily(
            f"{prefix}failed_rows", "Rows for which a rule did not hold", labels=RULE_LABELS
        ),
    }
    share = GaugeMetricFamily(
        f"{prefix}batch_failed_share",
        "Share of failed rows in the newest batch",
        labels=RULE_LABELS,
    )
    for query in status.queries:
        for rule, figures in query.rules.items():
            labels = (status.pipeline, query.name, rule)
            for name, counter in counters.items():
                counter.add_metric(labels, figures[name])
            share.add_metric(labels, figures["batch_share"])
    yield from (*counters.values(), share)


def render_metrics(status: Status) -> str:
    """Return the metrics of a status as OpenMetrics text."""
    registry = CollectorRegistry()
    registry.register(StatusMetrics(lambda: status))
    return str(generate_latest(registry).decode())  # type: ignore[no-untyped-call]


@contextmanager
def serve_metrics(status: Callable[[], Status], port: int | None) -> Iterator[int | None]:
    """Serve metrics on a port of the loopback address, and yield the port; do nothing for None.

    Raises:
        PipelineError: the port is taken.
    """
    if port is None:
        yield None
        return
    registry = CollectorRegistry()
    registry.register(StatusMetrics(status))
    try:
        server, thread = start_http_server(port, LISTEN_ADDRESS, registry)
    except OSError as error:
        raise PipelineError(f"metrics_port {port}: {error.strerror}") from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
