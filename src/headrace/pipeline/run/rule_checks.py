# SPDX-License-Identifier: Apache-2.0
"""Checks of rules before a batch is written: rules over batches, and limits of failed rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.run.counts import RuleCount, RuleCounts
from headrace.spark.schema.observed import REJECTED, WARNED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipeline.config.settings import Pipeline, Rule


def read_running_counts(spark: SparkSession, query: str) -> dict[str, RuleCount]:
    """Return the counts by rule that Spark has observed in the running batch of a query.

    Spark reports progress only after it has committed a batch, so a kill before the report would
    lose the counts.
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
                counts[name.removeprefix(prefix)] = RuleCount(checked, failed)
    return counts


def collect_counts(counts_by_rule: Mapping[str, DataFrame]) -> dict[str, RuleCount]:
    """Return the counts by rule, from DataFrames of one row each."""
    counts = {}
    for rule, rule_counts in counts_by_rule.items():
        row = rule_counts.first()
        assert row is not None, rule
        counts[rule] = RuleCount(row["checked"], row["rows"])
    return counts


def apply_rules(
    pipeline: Pipeline,
    counts: Mapping[str, DataFrame],
    views: Mapping[str, DataFrame],
    sinks: Sequence[str],
) -> dict[str, RuleCount]:
    """Return the counts of the rules of some sinks in one batch, whose views are not streaming."""
    rules = {rule.name: rule for sink in sinks for rule in pipeline.rules_before(sink)}
    row_counts = collect_counts({name: counts[name] for name in counts if name in rules})
    return row_counts | check_batch_rules(rules.values(), views)


def check_batch_rules(
    rules: Iterable[Rule], views: Mapping[str, DataFrame]
) -> dict[str, RuleCount]:
    """Return the counts of the rules over batches in one batch.

    A rule with `having` counts the batch as 1; a rule with `unique` counts rows. A batch without
    rows is not checked.
    """
    from pyspark.sql import functions as f

    counts = {}
    for rule in rules:
        if not rule.is_batch_rule:
            continue
        rows = views[rule.view]
        if rule.unique is not None:
            group_sizes = rows.groupBy(*rule.unique).agg(f.count(f.lit(1)).alias("n"))
            row = group_sizes.agg(f.sum("n"), f.sum(f.col("n") - 1)).first()
            assert row is not None, rule
            if row[0]:
                counts[rule.name] = RuleCount(row[0], row[1])
        else:
            row = rows.agg(f.count(f.lit(1)), f.expr(f"({rule.having})")).first()
            assert row is not None, rule
            if row[0]:
                counts[rule.name] = RuleCount(1, int(row[1] is not True))
    return counts


def enforce_rules(rules: Iterable[Rule], counts: RuleCounts, batch: int) -> None:
    """Raise PipelineError if the counts of a rule forbid writing the batch."""
    for rule in rules:
        count = counts.get(rule.name)
        if count is None or not count.failed:
            continue
        fault = f"rule {rule.name!r} of view {rule.view!r}, batch {batch}: "
        if rule.having is not None:
            fault += f"{rule.having} does not hold"
        else:
            failure = "repeat others" if rule.unique is not None else "do not hold"
            fault += f"{count.failed:,} of {count.checked:,} rows {failure}"
        if rule.is_batch_rule and rule.action == "fail":
            raise PipelineError(f"{fault}; the batch is not written")
        share_limit = rule.fail_above
        if (
            share_limit is not None
            and count.checked >= rule.fail_rows_min
            and count.share > share_limit
        ):
            raise PipelineError(
                f"{fault}, a share of {count.share:.3g} where fail_above is {share_limit:g}; the "
                "batch is not written"
            )
