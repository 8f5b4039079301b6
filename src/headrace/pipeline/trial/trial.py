# SPDX-License-Identifier: Apache-2.0
"""Trial runs of a pipeline on samples: one batch, from a broker of its own, shown or compared.

Samples are published to that broker, so that the data source reads and decodes them as it will. The
batch is the first: there is no state, and open windows are reported, too.
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

    from headrace.pipeline.run.counts import Count
    from headrace.pipeline.trial.cases import Cases, Expected, Sample
    from headrace.untyped import Json

# Options of a streaming read that a batch does not have; the sample decides where it begins.
STREAMING: Final = frozenset(
    (
        *("startingoffsets", "startingtimestamp", "maxrecordspertrigger", "maxbytespertrigger"),
        *("minrecordspertrigger", "mintriggerdelay", "group", "schemalocation"),
    )
)
SHOWN_MAX: Final = 20  # Rows of a view, and differences of one expectation.


@dataclass(frozen=True)
class Outcome:
    """The rows of each view and sink as JSON objects, and the counts of rules."""

    rows: Mapping[str, list[Json]]
    counts: Mapping[str, Count]


def run_trial(spark: SparkSession, pipeline: Pipeline, cases: Cases, url: str) -> Outcome:
    """Run the pipeline on samples through an empty broker; a source without sample has no rows."""
    pipeline = _with_tables(pipeline, cases)
    sources = {}
    for name, source in pipeline.sources.items():
        sample = cases.samples.get(name)
        if isinstance(source, AmqpSource):
            _publish(url, name, source, _messages(cases, sample, pipeline.uri(source.uri)))
            sources[name] = retry_slow_start(partial(_of_broker, spark, pipeline, name, url))
        else:
            sources[name] = _of_file(spark, source.ddl, cases, sample)
    tables = graph.static_frames(spark, pipeline)
    frames = graph.build(spark, pipeline, sources, tables)
    views = [*pipeline.sources, *(step.name for step in pipeline.steps)]
    rows = {name: _rows(frames.views[name]) for name in views}
    for name in pipeline.sinks:
        rows[name] = _rows(graph.of_sink(pipeline, frames, name))
    counts = apply_rules(pipeline, frames.asked.counts, frames.views, list(pipeline.sinks))
    return Outcome(rows, counts)


def differences(cases: Cases, outcome: Outcome) -> list[Problem]:
    """Return the differences from the expected rows, each with the line of the file."""
    return [
        problem
        for name, expected in cases.expected.items()
        for problem in _differ(cases, name, expected, outcome.rows[name])
    ]


def _differ(cases: Cases, name: str, expected: Expected, rows: list[Json]) -> Iterator[Problem]:
    path = ("expected", name)
    if expected.count is not None:
        if len(rows) != expected.count:
            text = f"{len(rows)} rows, {expected.count} are expected"
            yield Problem(cases.lines.of((*path, "count")), f"expected.{name}", text)
        return
    expected_rows = [
        {key: plain(value) for key, value in row.items()} for row in expected.rows or ()
    ]
    columns = list(dict.fromkeys(key for row in expected_rows for key in row))
    left = Counter(
        _text({key: row.get(key) for key in columns} if columns else row) for row in rows
    )
    for at, row in enumerate(expected_rows):
        text = _text({key: row.get(key) for key in columns})
        if left[text]:
            left[text] -= 1
        else:
            line = cases.lines.of((*path, "rows", at))
            yield Problem(line, f"expected.{name}.rows[{at + 1}]", f"there is no row {text}")
    for text in list(left.elements())[:SHOWN_MAX]:
        line = cases.lines.of((*path, "rows"))
        yield Problem(line, f"expected.{name}.rows", f"the row {text} is not expected")


def _text(row: Mapping[str, Json]) -> str:
    return json.dumps({key: _number(value) for key, value in row.items()}, ensure_ascii=False)


def _number(value: Json) -> Json:
    """Return a number in a form in which 5 and 5.0 are equal."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def plain(value: object) -> Json:
    """Return a value of TOML as Spark writes it in JSON."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"
    return value.isoformat() if isinstance(value, date) else value


def _rows(frame: DataFrame) -> list[Json]:
    """Return the rows as JSON objects; bytes of UTF-8 are texts."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import BinaryType, StringType

    columns = []
    for column in frame.schema:
        kind = StringType() if isinstance(column.dataType, BinaryType) else column.dataType
        columns.append(f.col(f"`{column.name}`").cast(kind).alias(column.name))
    rows = frame.select(f.to_json(f.struct(*columns), {"ignoreNullFields": "false"})).collect()
    return [json.loads(row[0]) for row in rows]


def _with_tables(pipeline: Pipeline, cases: Cases) -> Pipeline:
    tables = dict(pipeline.tables)
    for name, sample in cases.tables.items():
        ddl = sample.ddl or getattr(tables[name], "ddl", None)
        if ddl is None:
            line = cases.lines.of(("tables", name))
            raise PipelineError(f"{cases.file}:{line}: tables.{name}: 'ddl' is missing")
        tables[name] = StaticRows(type="rows", ddl=ddl, rows=sample.rows)
    return replace(pipeline, tables=tables)


def _messages(cases: Cases, sample: Sample | None, uri: str) -> Iterator[tuple[Message, str]]:
    """Yield the messages of a sample, each with its routing key."""
    if sample is None:
        return
    if sample.queue is not None:
        for letter in browse(uri, sample.queue, sample.limit):
            kept = {field.name: getattr(letter, field.name) for field in fields(Message)}
            yield Message(**kept), letter.routing_key
    elif sample.messages is not None:
        for message in sample.messages:
            given = message.model_dump(exclude={"routing_key", "body"}, exclude_none=True)
            yield Message(message.body.encode(), **given), message.routing_key
    else:
        for body in cases.bodies_of(sample):
            yield Message(body), ""


def _publish(
    url: str, name: str, source: AmqpSource, messages: Iterator[tuple[Message, str]]
) -> None:
    arguments: dict[str, Json] = {} if source.type == "queue" else {"x-queue-type": "stream"}
    with blocking.connect(url, reconnect=None) as connection, connection.channel() as channel:
        channel.declare_queue(name, arguments=arguments)
        channel.declare_exchange(f"to {name}", "fanout")
        channel.bind_queue(name, f"to {name}")
        for routing_key, group in groupby(messages, key=lambda pair: pair[1]):
            channel.publish_many((message for message, _ in group), routing_key, f"to {name}")


def _of_broker(spark: SparkSession, pipeline: Pipeline, name: str, url: str) -> DataFrame:
    source = pipeline.sources[name]
    assert isinstance(source, AmqpSource)
    all_options = amqp_source_options(pipeline, source)
    own = ("uri", "stream", "streams", "superstream", "streampattern", "queue")
    options = {
        key: value
        for key, value in all_options.items()
        if key.lower() not in STREAMING
        and key.lower() not in own
        and not key.lower().startswith("uri")
    }
    options["uri"] = url
    options["queue" if source.type == "queue" else "stream"] = name
    reader = spark.read.format("amqp").options(**options)
    if source.columns is not None:
        reader = reader.schema(graph.columns_of(source.columns))
    return reader.load()


def _of_file(
    spark: SparkSession, ddl: str | None, cases: Cases, sample: Sample | None
) -> DataFrame:
    """Return the rows of a sample in place of files."""
    from pyspark.sql import functions as f

    if ddl is None:
        raise PipelineError("a source of Parquet files needs 'ddl' to be tried on samples")
    texts = [message.body.decode() for message, _ in _messages(cases, sample, "")]
    frame = spark.createDataFrame([(text,) for text in texts], "text STRING")
    return frame.select(f.from_json("text", ddl).alias("row")).select("row.*")
