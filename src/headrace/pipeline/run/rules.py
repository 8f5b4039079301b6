# SPDX-License-Identifier: Apache-2.0
"""Rules about the rows of a view: rows that pass, rejected rows, and counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.spark.schema.observed import REJECTED, WARNED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.config.settings import Pipeline, Rule
    from headrace.untyped import Json

# The columns of a message that its dead letter has as well.
MESSAGE_COLUMNS = ("body", "properties", "headers", "routing_key")


@dataclass
class RuleResults:
    """Rejected rows of each rule, and its counts if the views are not streaming."""

    rejected: dict[str, DataFrame] = field(default_factory=dict)
    # By rule: a frame of one row with `checked`, and `rows` that failed.
    counts: dict[str, DataFrame] = field(default_factory=dict)


def apply_rule(frame: DataFrame, rule: Rule, results: RuleResults) -> DataFrame:
    """Return the rows that pass the rule; add its rejected rows to the results.

    A streaming frame counts by observed metrics, which Spark reports only to a streaming query. For
    other frames the counts are added to the results as a frame.
    """
    from pyspark.sql import functions as f

    frame.where(f"({rule.check})")  # Spark's error about the condition alone is shorter.
    holds = f.coalesce(f.expr(f"({rule.check})"), f.lit(False))
    results.rejected[rule.name] = frame.where(~holds)
    if rule.action == "fail":
        return frame.where(f.when(holds, f.lit(True)).otherwise(_failure(frame, rule)))
    counts = (f.count(f.lit(1)).alias("checked"), f.count_if(~holds).alias("rows"))
    if frame.isStreaming:
        frame = frame.observe(
            f"{WARNED if rule.action == 'warn' else REJECTED}{rule.name}", *counts
        )
    else:
        results.counts[rule.name] = frame.agg(*counts)
    return frame if rule.action == "warn" else frame.where(holds)


def _failure(frame: DataFrame, rule: Rule) -> Json:
    """Return an expression that fails with the rule and the source of the row."""
    from pyspark.sql import functions as f

    texts: list[Json] = [f.lit(f"rule '{rule.name}' of view '{rule.view}' does not hold")]
    if {"stream", "offset"} <= set(frame.columns):
        texts += [f.lit(": "), f.col("stream"), f.lit(" at offset "), f.col("offset")]
    return f.raise_error(f.concat(*texts)).cast("boolean")


def dead_letter_columns(
    frame: DataFrame, pipeline: Pipeline, rule: Rule, *, is_message: bool
) -> DataFrame:
    """Return rejected rows as dead letters: rule, view and row as JSON, or the message itself."""
    from pyspark.sql import functions as f

    row = f.to_json(f.struct(*[f.col(f"`{name}`") for name in frame.columns]))
    if not is_message:
        return frame.select(
            f.lit(rule.name).alias("rule"), f.lit(rule.view).alias("view"), row.alias("row")
        )
    headers = f.create_map(
        *(f.lit(text) for text in ("x-pipeline", pipeline.head.name)),
        *(f.lit(text) for text in ("x-rule", rule.name)),
        *(f.lit(text) for text in ("x-view", rule.view)),
    )
    if "body" not in frame.columns:
        properties = f.struct(f.lit("application/json").alias("content_type"))
        return frame.select(
            row.cast("binary").alias("body"),
            headers.alias("headers"),
            properties.alias("properties"),
        )
    message_columns = [
        f.col(name) for name in MESSAGE_COLUMNS if name in frame.columns and name != "headers"
    ]
    if "headers" in frame.columns:
        message_headers = f.map_filter(
            f.coalesce(f.col("headers"), f.expr("map()").cast("map<string,string>")),
            lambda key, _: ~key.isin("x-pipeline", "x-rule", "x-view"),
        )
        headers = f.map_concat(message_headers, headers)
    return frame.select(*message_columns, headers.alias("headers"))
