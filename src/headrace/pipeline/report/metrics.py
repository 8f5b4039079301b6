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

ADDRESS: Final = "127.0.0.1"
QUERY: Final = ("pipeline", "query")
RULE: Final = ("pipeline", "query", "rule")
STATES: Final = ("starting", "running", "idle", "finished", "stopped", "failed")


class StatusMetrics(Collector):
    """The figures of a status, made when they are asked for."""

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        """Return the figures of all queries and rules."""
        status = self._status()
        yield from _of_queries(status)
        yield from _of_rules(status)


def _of_queries(status: Status) -> Iterator[Metric]:
    prefix = "headrace_pipeline_"
    state = GaugeMetricFamily(
        f"{prefix}query_state", "1 for the state that a query is in", labels=(*QUERY, "state")
    )
    rows = CounterMetricFamily(f"{prefix}rows", "Rows read since the run began", labels=QUERY)
    rejected = CounterMetricFamily(
        f"{prefix}rejected_rows", "Rows that rules refused since the run began", labels=RULE
    )
    gauges = {
        name: GaugeMetricFamily(f"{prefix}{name}", text, labels=QUERY)
        for name, text in (
            ("batch", "Number of the newest batch that had rows"),
            ("batch_seconds", "How long it took"),
            ("rows_per_second", "Rows done in a second"),
            ("lag_records", "Records that are there and not read"),
            ("waiting_rows", "Rows of open windows"),
            ("uncounted_batches", "Batches that the counts of rules lack"),
        )
    }
    for query in status.queries:
        of = (status.pipeline, query.name)
        for name in STATES:
            state.add_metric((*of, name), int(query.state == name))
        rows.add_metric(of, query.rows)
        for rule, refused in query.rejected.items():
            rejected.add_metric((*of, rule), refused)
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
                gauges[name].add_metric(of, figure)
    yield from (state, rows, rejected, *gauges.values())


def _of_rules(status: Status) -> Iterator[Metric]:
    prefix = "headrace_pipeline_rule_"
    counters = {
        "checked": CounterMetricFamily(
            f"{prefix}checked_rows", "Rows that a rule was asked about", labels=RULE
        ),
        "failed": CounterMetricFamily(
            f"{prefix}failed_rows", "Rows for which a rule did not hold", labels=RULE
        ),
    }
    share = GaugeMetricFamily(
        f"{prefix}batch_failed_share", "The share of these rows in the newest batch", labels=RULE
    )
    for query in status.queries:
        for rule, figures in query.rules.items():
            of = (status.pipeline, query.name, rule)
            for name, counter in counters.items():
                counter.add_metric(of, figures[name])
            share.add_metric(of, figures["batch_share"])
    yield from (*counters.values(), share)


def text_of(status: Status) -> str:
    """Return the figures of a status as text."""
    registry = CollectorRegistry()
    registry.register(StatusMetrics(lambda: status))
    return str(generate_latest(registry).decode())  # type: ignore[no-untyped-call]


@contextmanager
def serving(status: Callable[[], Status], port: int | None) -> Iterator[int | None]:
    """Answer scrapes on a port of this machine; on none if it is None. Yields the port.

    Raises:
        PipelineError: the port is taken.
    """
    if port is None:
        yield None
        return
    registry = CollectorRegistry()
    registry.register(StatusMetrics(status))
    try:
        server, thread = start_http_server(port, ADDRESS, registry)
    except OSError as error:
        raise PipelineError(f"metrics_port {port}: {error.strerror}") from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
