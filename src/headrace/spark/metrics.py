# SPDX-License-Identifier: Apache-2.0
"""The figures of a `QueryListener` for OpenMetrics.

listener = QueryListener()
spark.streams.addListener(listener)
prometheus_client.REGISTRY.register(QueryMetrics(listener))
prometheus_client.start_http_server(9400)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from headrace.spark.listener import QueryListener

_QUERY = ("query",)


class QueryMetrics(Collector):
    """Gauges of the newest batch of each query that runs; made when they are asked for."""

    def __init__(self, listener: QueryListener) -> None:
        self._listener = listener

    def collect(self) -> Iterable[Metric]:
        """The gauges; none of a query that has ended."""
        lag = GaugeMetricFamily(
            "headrace_spark_lag_records",
            "Records that are there and not read",
            labels=("query", "stream"),
        )
        lost = GaugeMetricFamily(
            "headrace_spark_lost_records",
            "Records that retention dropped before they were read",
            labels=("query", "stream"),
        )
        of_rules = {
            name: GaugeMetricFamily(
                f"headrace_spark_{name}_rows",
                f"Rows that a rule of a pipeline {what} in this run of the query",
                labels=("query", "rule"),
            )
            for name, what in (
                ("rejected", "refused"),
                ("warned", "let through with a warning"),
                ("checked", "was asked about"),
            )
        }
        batch = GaugeMetricFamily(
            "headrace_spark_batch", "Number of the newest batch", labels=_QUERY
        )
        rows = GaugeMetricFamily(
            "headrace_spark_batch_rows", "Rows of the newest batch", labels=_QUERY
        )
        rate = GaugeMetricFamily(
            "headrace_spark_processed_rows_per_second", "Rows done in a second", labels=_QUERY
        )
        busy = GaugeMetricFamily(
            "headrace_spark_duration_seconds",
            "How long the newest batch took, by part of the work",
            labels=("query", "part"),
        )
        for report in self._listener.latest.values():
            name = report.name or report.query
            batch.add_metric((name,), report.batch or 0)
            rows.add_metric((name,), report.rows)
            rate.add_metric((name,), report.processed_per_s)
            for stream, records in report.lag.items():
                lag.add_metric((name, stream), records)
            for stream, records in report.lost.items():
                lost.add_metric((name, stream), records)
            counts = {"rejected": report.rejected, "warned": report.warned}
            for kind, rules in {**counts, "checked": report.checked}.items():
                for rule, counted in rules.items():
                    of_rules[kind].add_metric((name, rule), counted)
            for part, ms in report.durations_ms.items():
                busy.add_metric((name, part), ms / 1000)
        return [lag, lost, *of_rules.values(), batch, rows, rate, busy]
