# SPDX-License-Identifier: Apache-2.0
"""Rules that may end a pipeline before a batch is written: over batches, and by shares of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.run.counts import Count, RuleCounts
from headrace.spark.schema.observed import REJECTED, WARNED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipeline.config.settings import Pipeline, Rule


def observed_counts(spark: SparkSession, query: str) -> dict[str, Count]:
    """Return the counts that the running batch of a query has observed so far, by rule.

    Spark reports progress after it has committed a batch; a kill before that would lose the counts.
    """
    running = spark._jsparkSession.streams().get(query)
    metrics = running.streamingQuery().lastExecution().observedMetrics()
    counts = {}
    names = metrics.keysIterator()
    while names.hasNext():
        name = str(names.next())
        for prefix in (REJECTED, WARNED):
            if name.startswith(prefix):
                row = metrics.apply(name)
                checked, failed = (
                    int(row.get(row.fieldIndex(figure))) for figure in ("checked", "rows")
                )
                counts[name.removeprefix(prefix)] = Count(checked, failed)
    return counts


def counts_of(frames: Mapping[str, DataFrame]) -> dict[str, Count]:
    """Return the counts of frames of one row each, by rule."""
    counts = {}
    for rule, frame in frames.items():
        row = frame.first()
        assert row is not None, rule
        counts[rule] = Count(row["checked"], row["rows"])
    return counts


def apply_rules(
    pipeline: Pipeline,
    counts: Mapping[str, DataFrame],
    views: Mapping[str, DataFrame],
    sinks: Sequence[str],
) -> dict[str, Count]:
    """Evaluate the rules of some sinks for a batch, whose views are not streaming."""
    rules = {rule.name: rule for sink in sinks for rule in pipeline.rules_before(sink)}
    of_rows = counts_of({name: counts[name] for name in counts if name in rules})
    return of_rows | check_batch_rules(rules.values(), views)


def check_batch_rules(rules: Iterable[Rule], views: Mapping[str, DataFrame]) -> dict[str, Count]:
    """Check the rules over batches; a rule with `having` checks the batch as one item.

    Batches without rows are not checked.
    """
    from pyspark.sql import functions as f

    counts = {}
    for rule in rules:
        if not rule.is_of_batch:
            continue
        frame = views[rule.view]
        if rule.unique is not None:
            of_each = frame.groupBy(*rule.unique).agg(f.count(f.lit(1)).alias("n"))
            row = of_each.agg(f.sum("n"), f.sum(f.col("n") - 1)).first()
            assert row is not None, rule
            if row[0]:
                counts[rule.name] = Count(row[0], row[1])
        else:
            row = frame.agg(f.count(f.lit(1)), f.expr(f"({rule.having})")).first()
            assert row is not None, rule
            if row[0]:
                counts[rule.name] = Count(1, int(row[1] is not True))
    return counts


def enforce_rules(rules: Iterable[Rule], counts: RuleCounts, batch: int) -> None:
    """Raise PipelineError for the first rule that forbids to write the batch."""
    for rule in rules:
        count = counts.get(rule.name)
        if count is None or not count.failed:
            continue
        fault = f"rule {rule.name!r} of view {rule.view!r}, batch {batch}: "
        if rule.having is not None:
            fault += f"{rule.having} does not hold"
        else:
            mistake = "repeat others" if rule.unique is not None else "do not hold"
            fault += f"{count.failed:,} of {count.checked:,} rows {mistake}"
        if rule.is_of_batch and rule.action == "fail":
            raise PipelineError(f"{fault}; the batch is not written")
        above = rule.fail_above
        if above is not None and count.checked >= rule.fail_rows_min and count.share > above:
            raise PipelineError(
                f"{fault}, a share of {count.share:.3g} where fail_above is {above:g}; the batch "
                "is not written"
            )
