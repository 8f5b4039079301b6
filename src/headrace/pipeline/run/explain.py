# SPDX-License-Identifier: Apache-2.0
"""A pipeline before it runs: its tables in a few lines, and Spark's plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.pipeline.config.errors import PipelineError, redact
from headrace.pipeline.config.settings import AmqpSource, Pipeline
from headrace.pipeline.run import graph
from headrace.pipeline.run.progress import reason
from headrace.pipeline.run.queries import queries_of
from headrace.pipeline.run.session import retry_slow_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def describe_pipeline(pipeline: Pipeline) -> Iterator[str]:
    """Return the sources, steps and sinks, without addresses of brokers."""
    yield f"pipeline {pipeline.head.name}, state in {pipeline.state}"
    for name, source in pipeline.sources.items():
        where = (
            source.name or source.pattern or source.names
            if isinstance(source, AmqpSource)
            else source.path
        )
        yield f"  source {name}: {source.type} {where}"
        yield from _rules(pipeline, name)
    for name, table in pipeline.tables.items():
        yield f"  table {name}: {table.type}"
    for step in pipeline.steps:
        extra = [f"watermark {step.watermark.delay}"] if step.watermark else []
        extra += [f"one of each {', '.join(step.deduplicate.by)}"] if step.deduplicate else []
        reads = ", ".join(pipeline.reads[step.name])
        yield f"  step {step.name} of {reads}{''.join(f'; {text}' for text in extra)}"
        yield from _rules(pipeline, step.name)
    for query in queries_of(pipeline):
        for name in query.sinks:
            sink = pipeline.sinks[name]
            feeds = ", ".join(pipeline.feeds()[name])
            shared = f", in the query {query.name}" if query.queue else ""
            yield f"  sink {name}: {sink.type} of {feeds}, {pipeline.trigger(sink)}{shared}"


def _rules(pipeline: Pipeline, view: str) -> Iterator[str]:
    for rule in pipeline.rules:
        if rule.view != view:
            continue
        consequence = f"dead letters to {rule.to}" if rule.to else rule.action
        above = "" if rule.fail_above is None else f"; fail above a share of {rule.fail_above:g}"
        yield f"    rule {rule.name}: {rule.asked}, else {consequence}{above}"


def plans(spark: SparkSession, pipeline: Pipeline, *, extended: bool) -> Iterator[tuple[str, str]]:
    """Yield Spark's plan of each sink; PipelineError has Spark's error."""
    try:
        tables = graph.static_frames(spark, pipeline)
        sources = retry_slow_start(lambda: graph.source_frames(spark, pipeline))
        frames = retry_slow_start(lambda: graph.build(spark, pipeline, sources, tables))
        for name in pipeline.sinks:
            plan = _plan(graph.of_sink(pipeline, frames, name), extended=extended)
            yield name, redact(plan)
    except PipelineError:
        raise
    except Exception as error:  # noqa: BLE001  # Spark has many; its sentence is shown.
        raise PipelineError(reason(str(error))) from None


def _plan(frame: DataFrame, *, extended: bool) -> str:
    """Return Spark's plan of a frame; of a streaming one the logical plan, with types.

    How it is run is decided batch by batch.
    """
    execution = frame._jdf.queryExecution()
    if frame.isStreaming:
        plan = f"== Analyzed Logical Plan ==\n{execution.analyzed().treeString()}"
        return plan + f"\n== Columns ==\n{frame.schema.treeString()}" if extended else plan
    return str(execution.toString() if extended else execution.simpleString())
