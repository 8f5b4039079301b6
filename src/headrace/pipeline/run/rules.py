# SPDX-License-Identifier: Apache-2.0
"""Application of a rule to the rows of a view: rows that pass, rejected rows, and counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.spark.schema.observed import REJECTED, WARNED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.config.settings import Pipeline, Rule
    from headrace.untyped import Json

# The columns of a message that its dead letter keeps.
MESSAGE_COLUMNS = ("body", "properties", "headers", "routing_key")


@dataclass
class RuleResults:
    """The rejected rows of each rule, and its counts if the views are not streaming."""

    rejected: dict[str, DataFrame] = field(default_factory=dict)
    # By rule: a DataFrame of one row with the numbers of rows `checked` and failed (`rows`).
    counts: dict[str, DataFrame] = field(default_factory=dict)


def apply_rule(rows: DataFrame, rule: Rule, results: RuleResults) -> DataFrame:
    """Return the rows that pass the rule; add its rejected rows to the results.

    A streaming DataFrame counts by observed metrics, which Spark reports only to a streaming query.
    The counts of another DataFrame are added to the results.
    """
    from pyspark.sql import functions as f

    rows.where(f"({rule.check})")  # Raises Spark's error for the condition alone, which is shorter.
    holds = f.coalesce(f.expr(f"({rule.check})"), f.lit(False))
    results.rejected[rule.name] = rows.where(~holds)
    if rule.action == "fail":
        return rows.where(f.when(holds, f.lit(True)).otherwise(_failure_expression(rows, rule)))
    counts = (f.count(f.lit(1)).alias("checked"), f.count_if(~holds).alias("rows"))
    if rows.isStreaming:
        rows = rows.observe(f"{WARNED if rule.action == 'warn' else REJECTED}{rule.name}", *counts)
    else:
        results.counts[rule.name] = rows.agg(*counts)
    return rows if rule.action == "warn" else rows.where(holds)


def _failure_expression(rows: DataFrame, rule: Rule) -> Json:
    """Return an expression that fails with the name of the rule and the offset of the row."""
    from pyspark.sql import functions as f

    texts: list[Json] = [f.lit(f"rule '{rule.name}' of view '{rule.view}' does not hold")]
    if {"stream", "offset"} <= set(rows.columns):
        texts += [f.lit(": "), f.col("stream"), f.lit(" at offset "), f.col("offset")]
    return f.raise_error(f.concat(*texts)).cast("boolean")


def dead_letter_columns(
    rows: DataFrame, pipeline: Pipeline, rule: Rule, *, is_message: bool
) -> DataFrame:
    """Return rejected rows as dead letters: rule, view and row as JSON, or the message itself."""
    from pyspark.sql import functions as f

    row = f.to_json(f.struct(*[f.col(f"`{name}`") for name in rows.columns]))
    if not is_message:
        return rows.select(
            f.lit(rule.name).alias("rule"), f.lit(rule.view).alias("view"), row.alias("row")
        )
    texts = ("x-pipeline", pipeline.head.name, "x-rule", rule.name, "x-view", rule.view)
    headers = f.create_map(*map(f.lit, texts))
    if "body" not in rows.columns:
        properties = f.struct(f.lit("application/json").alias("content_type"))
        return rows.select(
            row.cast("binary").alias("body"),
            headers.alias("headers"),
            properties.alias("properties"),
        )
    message_columns = [
        f.col(name) for name in MESSAGE_COLUMNS if name in rows.columns and name != "headers"
    ]
    if "headers" in rows.columns:
        message_headers = f.map_filter(
            f.coalesce(f.col("headers"), f.expr("map()").cast("map<string,string>")),
            lambda key, _: ~key.isin("x-pipeline", "x-rule", "x-view"),
        )
        headers = f.map_concat(message_headers, headers)
    return rows.select(*message_columns, headers.alias("headers"))
