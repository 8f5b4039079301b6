# SPDX-License-Identifier: Apache-2.0
"""A trial run of a pipeline: one batch of samples, and comparison with expected rows.

The samples are published to a broker that runs for the trial, so the data source reads and decodes
them as in production. The batch has no state of earlier batches, and its rows include the rows of
open windows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import date, datetime
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from headrace.client import Message, blocking
from headrace.pipeline.config.check import amqp_source_options
from headrace.pipeline.config.errors import PipelineError, Problem
from headrace.pipeline.config.settings import AmqpSource, Pipeline, StaticRows
from headrace.pipeline.ready.dead_letters import browse
from headrace.pipeline.run import graph
from headrace.pipeline.run.rule_checks import apply_rules
from headrace.pipeline.run.session import retry_slow_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipeline.run.counts import RuleCount
    from headrace.pipeline.trial.cases import Cases, ExpectedRows, Sample
    from headrace.untyped import Json

# Options of streaming reads, which a read of one batch does not accept.
STREAMING_OPTIONS: Final = frozenset(
    (
        "startingoffsets",
        "startingtimestamp",
        "maxrecordspertrigger",
        "maxbytespertrigger",
        "minrecordspertrigger",
        "mintriggerdelay",
        "group",
        "schemalocation",
    )
)
DIFFERENCES_MAX: Final = 20  # Unexpected rows reported for each view.


@dataclass(frozen=True)
class TrialResult:
    """The rows of views and sinks as JSON objects by name, and the counts of rules."""

    rows: Mapping[str, list[Json]]
    counts: Mapping[str, RuleCount]


def run_trial(spark: SparkSession, pipeline: Pipeline, cases: Cases, url: str) -> TrialResult:
    """Run the pipeline on samples through the empty broker at `url`.

    A source without a sample has no rows.
    """
    pipeline = _replace_tables(pipeline, cases)
    sources = {}
    for name, source in pipeline.sources.items():
        sample = cases.samples.get(name)
        if isinstance(source, AmqpSource):
            _publish(url, name, source, _sample_messages(cases, sample, pipeline.uri(source.uri)))
            sources[name] = retry_slow_start(partial(_read_from_broker, spark, pipeline, name, url))
        else:
            sources[name] = _read_sample_file(spark, source.ddl, cases, sample)
    tables = graph.read_tables(spark, pipeline)
    frames = graph.build_views(spark, pipeline, sources, tables)
    views = [*pipeline.sources, *(step.name for step in pipeline.steps)]
    rows = {name: _collect_rows(frames.views[name]) for name in views}
    for name in pipeline.sinks:
        rows[name] = _collect_rows(graph.select_sink_rows(pipeline, frames, name))
    counts = apply_rules(pipeline, frames.rule_results.counts, frames.views, list(pipeline.sinks))
    return TrialResult(rows, counts)


def find_differences(cases: Cases, result: TrialResult) -> list[Problem]:
    """Return the differences from the expected rows, each with its line in the file."""
    return [
        problem
        for name, expected in cases.expected.items()
        for problem in _compare(cases, name, expected, result.rows[name])
    ]


def _compare(
    cases: Cases, name: str, expected: ExpectedRows, rows: list[Json]
) -> Iterator[Problem]:
    """Yield the differences of a view's rows from the expected rows, in any order of rows."""
    path = ("expected", name)
    if expected.count is not None:
        if len(rows) != expected.count:
            text = f"{len(rows)} rows, {expected.count} are expected"
            yield Problem(cases.lines.find((*path, "count")), f"expected.{name}", text)
        return
    expected_rows = [
        {key: to_spark_json(value) for key, value in row.items()} for row in expected.rows or ()
    ]
    columns = list(dict.fromkeys(key for row in expected_rows for key in row))
    unmatched = Counter(
        _format_row({key: row.get(key) for key in columns} if columns else row) for row in rows
    )
    for index, row in enumerate(expected_rows):
        text = _format_row({key: row.get(key) for key in columns})
        if unmatched[text]:
            unmatched[text] -= 1
        else:
            line = cases.lines.find((*path, "rows", index))
            yield Problem(line, f"expected.{name}.rows[{index + 1}]", f"the view has no row {text}")
    for text in list(unmatched.elements())[:DIFFERENCES_MAX]:
        line = cases.lines.find((*path, "rows"))
        yield Problem(line, f"expected.{name}.rows", f"the row {text} is not expected")


def _format_row(row: Mapping[str, Json]) -> str:
    return json.dumps(
        {key: _normalize_number(value) for key, value in row.items()}, ensure_ascii=False
    )


def _normalize_number(value: Json) -> Json:
    """Return a whole number as a float, so that 5 and 5.0 have the same text."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def to_spark_json(value: object) -> Json:
    """Return a TOML value as Spark writes it in JSON."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"
    return value.isoformat() if isinstance(value, date) else value


def _collect_rows(rows: DataFrame) -> list[Json]:
    """Return the rows as JSON objects, with bytes as UTF-8 text."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import BinaryType, StringType

    columns = []
    for column in rows.schema:
        spark_type = StringType() if isinstance(column.dataType, BinaryType) else column.dataType
        columns.append(f.col(f"`{column.name}`").cast(spark_type).alias(column.name))
    texts = rows.select(f.to_json(f.struct(*columns), {"ignoreNullFields": "false"})).collect()
    return [json.loads(row[0]) for row in texts]


def _replace_tables(pipeline: Pipeline, cases: Cases) -> Pipeline:
    """Return the pipeline with the rows of the file in place of its static tables."""
    tables = dict(pipeline.tables)
    for name, sample in cases.tables.items():
        ddl = sample.ddl or getattr(tables[name], "ddl", None)
        if ddl is None:
            line = cases.lines.find(("tables", name))
            raise PipelineError(f"{cases.file}:{line}: tables.{name}: 'ddl' is missing")
        tables[name] = StaticRows(type="rows", ddl=ddl, rows=sample.rows)
    return replace(pipeline, tables=tables)


def _sample_messages(
    cases: Cases, sample: Sample | None, uri: str
) -> Iterator[tuple[Message, str]]:
    """Yield the messages of a sample, each with its routing key."""
    if sample is None:
        return
    if sample.queue is not None:
        for dead_letter in browse(uri, sample.queue, sample.limit):
            message_fields = {
                field.name: getattr(dead_letter, field.name) for field in fields(Message)
            }
            yield Message(**message_fields), dead_letter.routing_key
    elif sample.messages is not None:
        for message in sample.messages:
            properties = message.model_dump(exclude={"routing_key", "body"}, exclude_none=True)
            yield Message(message.body.encode(), **properties), message.routing_key
    else:
        for body in cases.read_bodies(sample):
            yield Message(body), ""


def _publish(
    url: str, name: str, source: AmqpSource, messages: Iterator[tuple[Message, str]]
) -> None:
    """Declare the stream or queue of a source, and publish messages to it by routing key."""
    arguments: dict[str, Json] = {} if source.type == "queue" else {"x-queue-type": "stream"}
    with blocking.connect(url, reconnect=None) as connection, connection.channel() as channel:
        channel.declare_queue(name, arguments=arguments)
        channel.declare_exchange(f"to {name}", "fanout")
        channel.bind_queue(name, f"to {name}")
        for routing_key, group in groupby(messages, key=lambda pair: pair[1]):
            channel.publish_many((message for message, _ in group), routing_key, f"to {name}")


def _read_from_broker(spark: SparkSession, pipeline: Pipeline, name: str, url: str) -> DataFrame:
    """Return the rows of a source by a batch read, with the options of the source that apply."""
    source = pipeline.sources[name]
    assert isinstance(source, AmqpSource)
    all_options = amqp_source_options(pipeline, source)
    address_options = ("uri", "stream", "streams", "superstream", "streampattern", "queue")
    options = {
        key: value
        for key, value in all_options.items()
        if key.lower() not in STREAMING_OPTIONS
        and key.lower() not in address_options
        and not key.lower().startswith("uri")
    }
    options["uri"] = url
    options["queue" if source.type == "queue" else "stream"] = name
    reader = spark.read.format("amqp").options(**options)
    if source.columns is not None:
        reader = reader.schema(graph.message_schema(source.columns))
    return reader.load()


def _read_sample_file(
    spark: SparkSession, ddl: str | None, cases: Cases, sample: Sample | None
) -> DataFrame:
    """Return the rows of a sample for a source of files."""
    from pyspark.sql import functions as f

    if ddl is None:
        raise PipelineError("a source of Parquet files needs 'ddl' to be tried on samples")
    texts = [message.body.decode() for message, _ in _sample_messages(cases, sample, "")]
    rows = spark.createDataFrame([(text,) for text in texts], "text STRING")
    return rows.select(f.from_json("text", ddl).alias("row")).select("row.*")
