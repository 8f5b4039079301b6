# SPDX-License-Identifier: Apache-2.0
"""A pipeline's views as DataFrames: sources, static tables, steps, and what rules let through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from headrace.pipeline.config.check import amqp_source_options, spark_options
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.config.settings import (
    AmqpSink,
    AmqpSource,
    AnySource,
    AnyStatic,
    Pipeline,
    Rule,
    StaticFiles,
    StaticRows,
    Step,
)
from headrace.pipeline.run.progress import reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headrace.untyped import Json

# What of a message is kept when one of its rows is a dead letter.
MESSAGE_COLUMNS = ("body", "properties", "headers", "routing_key")


@dataclass
class Frames:
    """The views by name, and of each rule the rows that it refused."""

    views: dict[str, DataFrame] = field(default_factory=dict)
    refused: dict[str, DataFrame] = field(default_factory=dict)


def source_frames(spark: SparkSession, pipeline: Pipeline) -> dict[str, DataFrame]:
    """The streaming DataFrame of each source."""
    return {name: _source(spark, pipeline, one) for name, one in pipeline.sources.items()}


def static_frames(spark: SparkSession, pipeline: Pipeline) -> dict[str, DataFrame]:
    """The DataFrame of each static table."""
    return {name: _static(spark, pipeline, one) for name, one in pipeline.tables.items()}


def build(
    spark: SparkSession,
    pipeline: Pipeline,
    sources: Mapping[str, DataFrame],
    tables: Mapping[str, DataFrame],
) -> Frames:
    """All views, registered in the session under their names."""
    frames = Frames()
    for name, frame in tables.items():
        frames.views[name] = frame
        frame.createOrReplaceTempView(name)
    for name, frame in sources.items():
        _add(frames, pipeline, name, frame)
    for step in pipeline.steps:
        with _about(f"step {step.name!r}"):
            frame = _step(spark, frames, step)
        _add(frames, pipeline, step.name, frame)
    return frames


@contextmanager
def _about(what: str) -> Iterator[None]:
    """Spark's refusals, with what they are about: its own texts show whole plans."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise PipelineError(f"{what}: {reason(str(error))}") from None


def of_sink(pipeline: Pipeline, frames: Frames, name: str) -> DataFrame:
    """The rows of a sink: those of its view, or those that rules send there."""
    sink = pipeline.sinks[name]
    if sink.source is not None:
        return frames.views[_written(frames, sink.source)]
    letters = [
        _letter(frames.refused[rule.name], pipeline, rule, is_message=isinstance(sink, AmqpSink))
        for rule in pipeline.rules
        if rule.to == name
    ]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), letters)


def _written(frames: Frames, name: str) -> str:
    return {one.lower(): one for one in frames.views}[name.lower()]


def _add(frames: Frames, pipeline: Pipeline, name: str, frame: DataFrame) -> None:
    from pyspark.sql import functions as f

    for rule in pipeline.rules_of(name):
        with _about(f"rule {rule.name!r}"):
            frame.where(f"({rule.check})")
        holds = f.coalesce(f.expr(f"({rule.check})"), f.lit(False))
        frames.refused[rule.name] = frame.where(~holds)
        if rule.action == "fail":
            frame = frame.where(f.when(holds, f.lit(True)).otherwise(_failure(frame, rule)))
        else:
            frame = frame.where(holds)
    frames.views[name] = frame
    frame.createOrReplaceTempView(name)


def _failure(frame: DataFrame, rule: Rule) -> Json:
    """An expression that fails, naming the rule and where the row came from."""
    from pyspark.sql import functions as f

    told: list[Json] = [f.lit(f"rule '{rule.name}' of view '{rule.view}' does not hold")]
    if {"stream", "offset"} <= set(frame.columns):
        told += [f.lit(": "), f.col("stream"), f.lit(" at offset "), f.col("offset")]
    return f.raise_error(f.concat(*told)).cast("boolean")


def _step(spark: SparkSession, frames: Frames, step: Step) -> DataFrame:
    if step.sql is not None:
        frame = spark.sql(step.sql)
    else:
        assert step.source is not None
        frame = frames.views[_written(frames, step.source)]
    if step.watermark is not None:
        frame = frame.withWatermark(step.watermark.column, step.watermark.delay)
    if step.deduplicate is not None:
        if frame.isStreaming:
            frame = frame.dropDuplicatesWithinWatermark(step.deduplicate.by)
        else:
            frame = frame.dropDuplicates(step.deduplicate.by)
    return frame


def _letter(frame: DataFrame, pipeline: Pipeline, rule: Rule, *, is_message: bool) -> DataFrame:
    """Return the columns kept of a refused row: the rule and the row as JSON, or the message."""
    from pyspark.sql import functions as f

    row = f.to_json(f.struct(*[f.col(f"`{name}`") for name in frame.columns]))
    if not is_message:
        return frame.select(
            f.lit(rule.name).alias("rule"), f.lit(rule.view).alias("view"), row.alias("row")
        )
    said = f.create_map(
        *(f.lit(one) for one in ("x-pipeline", pipeline.head.name)),
        *(f.lit(one) for one in ("x-rule", rule.name)),
        *(f.lit(one) for one in ("x-view", rule.view)),
    )
    if "body" not in frame.columns:
        properties = f.struct(f.lit("application/json").alias("content_type"))
        return frame.select(
            row.cast("binary").alias("body"), said.alias("headers"), properties.alias("properties")
        )
    kept = [f.col(name) for name in MESSAGE_COLUMNS if name in frame.columns and name != "headers"]
    if "headers" in frame.columns:
        own = f.map_filter(
            f.coalesce(f.col("headers"), f.expr("map()").cast("map<string,string>")),
            lambda key, _: ~key.isin("x-pipeline", "x-rule", "x-view"),
        )
        said = f.map_concat(own, said)
    return frame.select(*kept, said.alias("headers"))


def _source(spark: SparkSession, pipeline: Pipeline, source: AnySource) -> DataFrame:
    if isinstance(source, AmqpSource):
        options = amqp_source_options(pipeline, source)
        reader = spark.readStream.format("amqp").options(**options)
        if source.columns is not None:
            reader = reader.schema(_columns(source.columns))
        return reader.load()
    path = pipeline.located(source.path)
    options = spark_options(source.options)
    schema: Json = source.ddl
    if schema is None:
        schema = spark.read.format(source.type).options(**options).load(path).schema
    reader = spark.readStream.format(source.type).options(**options)
    return reader.schema(schema).load(path)


def _columns(names: list[str]) -> StructType:
    """The columns of a message that a source is to have, in the order of their names."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    from headrace.spark.read_schema import read_schema
    from headrace.spark.schema.columns import CONTENT_HEADER

    fields = {field.name: field for field in read_schema({}).fields}
    fields[CONTENT_HEADER] = StructField(CONTENT_HEADER, BinaryType())
    return StructType([fields[name] for name in names])


def _static(spark: SparkSession, pipeline: Pipeline, table: AnyStatic) -> DataFrame:
    if isinstance(table, StaticRows):
        return spark.createDataFrame(table.rows, table.ddl)
    if isinstance(table, StaticFiles):
        path = pipeline.located(table.path)
        options = spark_options(table.options)
        if table.type == "delta":
            return delta_frame(spark, path)
        reader = spark.read.format(table.type).options(**options)
        return (reader.schema(table.ddl) if table.ddl is not None else reader).load(path)
    options = {"url": table.url, "dbtable": table.table, **spark_options(table.options)}
    if table.driver is not None:
        options["driver"] = table.driver
    return spark.read.format("jdbc").options(**options).load()


def delta_frame(spark: SparkSession, path: str) -> DataFrame:
    """Return the current rows of a Delta table, read from its Parquet files."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    from headrace.pipeline.sinks.delta import files_of, table_at

    table = table_at(path)
    if table is None:
        raise PipelineError(f"{path} is no Delta table")
    schema, files = files_of(table)
    wanted = from_arrow_schema(schema)
    if not files:
        return spark.createDataFrame([], wanted)
    frame = spark.read.option("basePath", path).parquet(*files)
    return frame.select(
        *(f.col(f"`{one.name}`").cast(one.dataType).alias(one.name) for one in wanted)
    )
