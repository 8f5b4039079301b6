# SPDX-License-Identifier: Apache-2.0
"""A collector of `prometheus_client` for the reports of a `QueryListener`::

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

_QUERY_LABELS = ("query",)


class QueryMetrics(Collector):
    """The gauges of the newest batch of each running query, computed at each scrape."""

    def __init__(self, listener: QueryListener) -> None:
        self._listener = listener

    def collect(self) -> Iterable[Metric]:
        """Return the gauges; an ended query has none."""
        lag = GaugeMetricFamily(
            "headrace_spark_lag_records",
            "Records of the stream that the query has not read",
            labels=("query", "stream"),
        )
        lost = GaugeMetricFamily(
            "headrace_spark_lost_records",
            "Records that retention dropped before they were read",
            labels=("query", "stream"),
        )
        rule_gauges = {
            name: GaugeMetricFamily(
                f"headrace_spark_{name}_rows",
                f"Rows that a rule of a pipeline {description} in this run of the query",
                labels=("query", "rule"),
            )
            for name, description in (
                ("rejected", "refused"),
                ("warned", "let through with a warning"),
                ("checked", "was asked about"),
            )
        }
        batch = GaugeMetricFamily(
            "headrace_spark_batch", "Number of the newest batch", labels=_QUERY_LABELS
        )
        rows = GaugeMetricFamily(
            "headrace_spark_batch_rows", "Rows of the newest batch", labels=_QUERY_LABELS
        )
        rate = GaugeMetricFamily(
            "headrace_spark_processed_rows_per_second",
            "Rows done in a second",
            labels=_QUERY_LABELS,
        )
        duration = GaugeMetricFamily(
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
            for kind, rows_by_rule in (
                ("rejected", report.rejected),
                ("warned", report.warned),
                ("checked", report.checked),
            ):
                for rule, row_count in rows_by_rule.items():
                    rule_gauges[kind].add_metric((name, rule), row_count)
            for phase, duration_ms in report.durations_ms.items():
                duration.add_metric((name, phase), duration_ms / 1000)
        return [lag, lost, *rule_gauges.values(), batch, rows, rate, duration]
