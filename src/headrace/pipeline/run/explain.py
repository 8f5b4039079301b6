# SPDX-License-Identifier: Apache-2.0
"""Descriptions of a pipeline without running it: its tables in short lines, and Spark's plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.pipeline.config.errors import PipelineError, redact
from headrace.pipeline.config.settings import AmqpSource, Pipeline
from headrace.pipeline.run import graph
from headrace.pipeline.run.progress import error_reason
from headrace.pipeline.run.queries import plan_queries
from headrace.pipeline.run.session import retry_slow_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def describe_pipeline(pipeline: Pipeline) -> Iterator[str]:
    """Yield lines about sources, tables, steps, rules and sinks, without addresses of brokers."""
    yield f"pipeline {pipeline.head.name}, state in {pipeline.state}"
    for name, source in pipeline.sources.items():
        address = (
            source.name or source.pattern or source.names
            if isinstance(source, AmqpSource)
            else source.path
        )
        yield f"  source {name}: {source.type} {address}"
        yield from _describe_rules(pipeline, name)
    for name, table in pipeline.tables.items():
        yield f"  table {name}: {table.type}"
    for step in pipeline.steps:
        notes = [f"watermark {step.watermark.delay}"] if step.watermark else []
        notes += [f"one of each {', '.join(step.deduplicate.by)}"] if step.deduplicate else []
        reads = ", ".join(pipeline.reads[step.name])
        yield f"  step {step.name} of {reads}{''.join(f'; {text}' for text in notes)}"
        yield from _describe_rules(pipeline, step.name)
    for query in plan_queries(pipeline):
        for name in query.sinks:
            sink = pipeline.sinks[name]
            views = ", ".join(pipeline.feeding_views()[name])
            shared = f", in the query {query.name}" if query.queue else ""
            yield f"  sink {name}: {sink.type} of {views}, {pipeline.trigger(sink)}{shared}"


def _describe_rules(pipeline: Pipeline, view: str) -> Iterator[str]:
    for rule in pipeline.rules:
        if rule.view != view:
            continue
        consequence = f"dead letters to {rule.to}" if rule.to else rule.action
        limit = "" if rule.fail_above is None else f"; fail above a share of {rule.fail_above:g}"
        yield f"    rule {rule.name}: {rule.condition}, else {consequence}{limit}"


def explain_sinks(
    spark: SparkSession, pipeline: Pipeline, *, extended: bool
) -> Iterator[tuple[str, str]]:
    """Yield the name of each sink and Spark's plan of its rows.

    Raises:
        PipelineError: Spark refuses the pipeline.
    """
    try:
        tables = graph.read_tables(spark, pipeline)
        sources = retry_slow_start(lambda: graph.read_sources(spark, pipeline))
        frames = retry_slow_start(lambda: graph.build_views(spark, pipeline, sources, tables))
        for name in pipeline.sinks:
            plan = _explain_rows(graph.select_sink_rows(pipeline, frames, name), extended=extended)
            yield name, redact(plan)
    except PipelineError:
        raise
    except Exception as error:  # noqa: BLE001  # Spark's errors have no common class.
        raise PipelineError(error_reason(str(error))) from None


def _explain_rows(rows: DataFrame, *, extended: bool) -> str:
    """Return the physical plan of a DataFrame, or the logical plan of a streaming one.

    Spark makes a new physical plan of a streaming DataFrame for each batch.
    """
    execution = rows._jdf.queryExecution()
    if rows.isStreaming:
        plan = f"== Analyzed Logical Plan ==\n{execution.analyzed().treeString()}"
        return plan + f"\n== Columns ==\n{rows.schema.treeString()}" if extended else plan
    return str(execution.toString() if extended else execution.simpleString())
