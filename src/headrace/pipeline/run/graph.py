# SPDX-License-Identifier: Apache-2.0
"""Building of the DataFrames of a pipeline's views: sources, tables and steps, after rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Final

from headrace.pipeline.config.check import amqp_source_options, spark_options
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.config.settings import (
    AmqpSink,
    AmqpSource,
    AnySource,
    AnyStatic,
    Pipeline,
    StaticFiles,
    StaticIceberg,
    StaticRows,
    Step,
)
from headrace.pipeline.run.progress import error_reason
from headrace.pipeline.run.rules import RuleResults, apply_rule, dead_letter_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import StructType

    from headrace.untyped import Json

# With this setting Spark identifies sources by name, and writes version 2 of the log of offsets.
SOURCE_EVOLUTION: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


@dataclass
class ViewFrames:
    """The DataFrames of all views by name, and the results of their rules."""

    views: dict[str, DataFrame] = field(default_factory=dict)
    rule_results: RuleResults = field(default_factory=RuleResults)


def read_sources(
    spark: SparkSession, pipeline: Pipeline, *, named: bool = False
) -> dict[str, DataFrame]:
    """Return the DataFrame of each source; with `named`, checkpoints identify sources by name."""
    frames = {}
    for name, source in pipeline.sources.items():
        reader = spark.readStream
        frames[name] = _read_source(spark, pipeline, source, reader.name(name) if named else reader)
    return frames


@contextmanager
def name_sources(spark: SparkSession, *, named: bool) -> Iterator[None]:
    """Set whether checkpoints of queries that start in the context identify sources by name."""
    old_setting = str(spark.conf.get(SOURCE_EVOLUTION, "false"))
    spark.conf.set(SOURCE_EVOLUTION, str(named).lower())
    try:
        yield
    finally:
        spark.conf.set(SOURCE_EVOLUTION, old_setting)


def read_tables(spark: SparkSession, pipeline: Pipeline) -> dict[str, DataFrame]:
    """Return the DataFrame of each static table."""
    return {name: _read_table(spark, pipeline, table) for name, table in pipeline.tables.items()}


def build_views(
    spark: SparkSession,
    pipeline: Pipeline,
    sources: Mapping[str, DataFrame],
    tables: Mapping[str, DataFrame],
) -> ViewFrames:
    """Build all views, and register them in the session under their names."""
    frames = ViewFrames()
    for name, rows in tables.items():
        frames.views[name] = rows
        rows.createOrReplaceTempView(name)
    for name, rows in sources.items():
        _add_view(frames, pipeline, name, rows)
    for step in pipeline.steps:
        with _explain_errors(f"step {step.name!r}"):
            rows = _build_step(spark, frames, step)
        _add_view(frames, pipeline, step.name, rows)
    return frames


@contextmanager
def _explain_errors(subject: str) -> Iterator[None]:
    """Raise Spark's errors as PipelineError, without the plans in Spark's texts."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise PipelineError(f"{subject}: {error_reason(str(error))}") from None


def select_sink_rows(pipeline: Pipeline, frames: ViewFrames, name: str) -> DataFrame:
    """Return the rows of a sink: the rows of its view, or the rows that rules send to it."""
    sink = pipeline.sinks[name]
    if sink.source is not None:
        return frames.views[_find_defined_name(frames, sink.source)]
    dead_letters = [
        dead_letter_columns(
            frames.rule_results.rejected[rule.name],
            pipeline,
            rule,
            is_message=isinstance(sink, AmqpSink),
        )
        for rule in pipeline.rules
        if rule.to == name
    ]
    return reduce(
        lambda left, right: left.unionByName(right, allowMissingColumns=True), dead_letters
    )


def _find_defined_name(frames: ViewFrames, name: str) -> str:
    """Return the name of a view as in its definition, because the case of names is ignored."""
    return {view.lower(): view for view in frames.views}[name.lower()]


def _add_view(frames: ViewFrames, pipeline: Pipeline, name: str, rows: DataFrame) -> None:
    """Apply the contract and the rules of a view, and register the view.

    Raises:
        PipelineError: the view breaks its contract, or Spark refuses a rule.
    """
    if name in pipeline.required_columns:
        types = {column.name: column.dataType.simpleString() for column in rows.schema}
        misfits = pipeline.required_columns[name].find_misfits(types)
        if misfits:
            raise PipelineError(f"view {name!r} breaks its contract: {'; '.join(misfits)}")
    for rule in pipeline.rules_about(name):
        with _explain_errors(f"rule {rule.name!r}"):
            rows = apply_rule(rows, rule, frames.rule_results)
    frames.views[name] = rows
    rows.createOrReplaceTempView(name)


def _build_step(spark: SparkSession, frames: ViewFrames, step: Step) -> DataFrame:
    """Return the DataFrame of a step, before its rules."""
    if step.sql is not None:
        rows = spark.sql(step.sql)
    else:
        assert step.source is not None
        rows = frames.views[_find_defined_name(frames, step.source)]
    if step.watermark is not None:
        rows = rows.withWatermark(step.watermark.column, step.watermark.delay)
    if step.deduplicate is not None:
        if rows.isStreaming:
            rows = rows.dropDuplicatesWithinWatermark(step.deduplicate.by)
        else:
            rows = rows.dropDuplicates(step.deduplicate.by)
    return rows


def _read_source(
    spark: SparkSession, pipeline: Pipeline, source: AnySource, reader: DataStreamReader
) -> DataFrame:
    """Return the streaming DataFrame of a source."""
    if isinstance(source, AmqpSource):
        options = amqp_source_options(pipeline, source)
        reader = reader.format("amqp").options(**options)
        if source.columns is not None:
            reader = reader.schema(message_schema(source.columns))
        return reader.load()
    path = pipeline.resolve_path(source.path)
    options = spark_options(source.options)
    schema: Json = source.ddl
    if schema is None:
        schema = spark.read.format(source.type).options(**options).load(path).schema
    return reader.format(source.type).options(**options).schema(schema).load(path)


def message_schema(names: list[str]) -> StructType:
    """Return the schema of the named columns of a message, in the given order."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    from headrace.columns.read_schema import read_schema
    from headrace.columns.schema.columns import CONTENT_HEADER
    from headrace.spark.schema.types import struct_to_spark

    fields = {field.name: field for field in struct_to_spark(read_schema({})).fields}
    fields[CONTENT_HEADER] = StructField(CONTENT_HEADER, BinaryType())
    return StructType([fields[name] for name in names])


def _read_table(spark: SparkSession, pipeline: Pipeline, table: AnyStatic) -> DataFrame:
    """Return the DataFrame of a static table."""
    if isinstance(table, StaticRows):
        return spark.createDataFrame(table.rows, table.ddl)
    if isinstance(table, StaticIceberg):
        return _read_iceberg_table(spark, pipeline, table)
    if isinstance(table, StaticFiles):
        path = pipeline.resolve_path(table.path)
        options = spark_options(table.options)
        if table.type == "delta":
            return _read_delta_table(spark, path)
        reader = spark.read.format(table.type).options(**options)
        return (reader.schema(table.ddl) if table.ddl is not None else reader).load(path)
    options = {"url": table.url, "dbtable": table.table, **spark_options(table.options)}
    if table.driver is not None:
        options["driver"] = table.driver
    return spark.read.format("jdbc").options(**options).load()


def _read_delta_table(spark: SparkSession, path: str) -> DataFrame:
    """Return the current rows of a Delta table, read from its Parquet files."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    from headrace.pipeline.sinks.delta import current_files, open_table

    table = open_table(path)
    if table is None:
        raise PipelineError(f"{path} is not a Delta table")
    schema, files = current_files(table)
    struct = from_arrow_schema(schema)
    if not files:
        return spark.createDataFrame([], struct)
    rows = spark.read.option("basePath", path).parquet(*files)
    return rows.select(
        *(f.col(f"`{column.name}`").cast(column.dataType).alias(column.name) for column in struct)
    )


def _read_iceberg_table(spark: SparkSession, pipeline: Pipeline, table: StaticIceberg) -> DataFrame:
    """Return the rows of an Iceberg table's current snapshot, with deletes applied."""
    from headrace.pipeline.iceberg.catalogs import error_context
    from headrace.pipeline.iceberg.read import read_rows
    from headrace.pipeline.iceberg.table import IcebergTable

    iceberg_table = IcebergTable(pipeline, table.catalog, table.table)
    current = iceberg_table.load_existing()
    with error_context(iceberg_table.label, iceberg_table.properties):
        return read_rows(spark, current, list(current.scan().plan_files()))
