# SPDX-License-Identifier: Apache-2.0
"""Rules about the rows of a view: rows that pass, refused rows, and their counts."""

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
    """Results of the rules of some views: refused rows, and the counts of each rule by batch."""

    refused: dict[str, DataFrame] = field(default_factory=dict)
    counts: dict[str, DataFrame] = field(default_factory=dict)  # One row: checked, rows.


def ask(frame: DataFrame, rule: Rule, asked: RuleResults) -> DataFrame:
    """Return the rows that pass. A stream observes the counts; for a batch `asked` gets them.

    Spark reports the observed metrics of a batch only to the query that computes it.
    """
    from pyspark.sql import functions as f

    frame.where(f"({rule.check})")  # Spark's refusal of the condition by itself is shorter.
    holds = f.coalesce(f.expr(f"({rule.check})"), f.lit(False))
    asked.refused[rule.name] = frame.where(~holds)
    if rule.action == "fail":
        return frame.where(f.when(holds, f.lit(True)).otherwise(_failure(frame, rule)))
    counts = (f.count(f.lit(1)).alias("checked"), f.count_if(~holds).alias("rows"))
    if frame.isStreaming:
        frame = frame.observe(
            f"{WARNED if rule.action == 'warn' else REJECTED}{rule.name}", *counts
        )
    else:
        asked.counts[rule.name] = frame.agg(*counts)
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
    """Return the columns kept of a refused row: the rule and the row as JSON, or the message."""
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
    kept = [f.col(name) for name in MESSAGE_COLUMNS if name in frame.columns and name != "headers"]
    if "headers" in frame.columns:
        own = f.map_filter(
            f.coalesce(f.col("headers"), f.expr("map()").cast("map<string,string>")),
            lambda key, _: ~key.isin("x-pipeline", "x-rule", "x-view"),
        )
        headers = f.map_concat(own, headers)
    return frame.select(*kept, headers.alias("headers"))
