# SPDX-License-Identifier: Apache-2.0
"""Sinks of micro-batches: each takes all rows of a batch, once.

`write` may be called again with a batch that was written, or half written, before: after a crash
Spark runs the last batch again, with the same rows. The name of a writer is the id that Spark gave
to the query's checkpoint, with the sink's; a new checkpoint is a new writer.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from headrace.columns.options.options import SINK_ID_BYTES_MAX
from headrace.pipeline.config.check import amqp_sink_options, spark_options
from headrace.pipeline.config.settings import (
    AmqpSink,
    ConsoleSink,
    DeltaSink,
    FileSink,
    IcebergSink,
    JdbcSink,
    Pipeline,
)
from headrace.pipeline.sinks import compact, delta
from headrace.pipeline.sinks.frames import pass_over
from headrace.pipeline.sinks.iceberg import IcebergOutput
from headrace.pipeline.sinks.jdbc import Database
from headrace.pipeline.sinks.ledger import Ledger, Move
from headrace.pipeline.sinks.staged import write_staged
from headrace.pipeline.sinks.table_marker import table_marker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Output(Protocol):
    """A sink that takes batches."""

    def write(self, frame: DataFrame, writer: str, batch: int) -> None:
        """Keep the rows of a batch, unless they are kept already."""


class FileOutput:
    """A directory of Parquet, JSON, CSV or ORC; see `ledger`."""

    def __init__(self, pipeline: Pipeline, sink: FileSink) -> None:
        self.sink = sink
        self.root = Path(pipeline.resolve_path(sink.path))
        self.ledger = Ledger(self.root)

    def write(self, frame: DataFrame, writer: str, batch: int) -> None:
        ledger = self.ledger
        ledger.finish(writer)
        last = ledger.last(writer)
        if last is not None and last >= batch:
            pass_over(frame)
            return
        options = spark_options(self.sink.options)
        staged = write_staged(frame, self.sink, ledger.staging(writer), options)
        moves = []
        for index, file in enumerate(staged):
            suffix = "".join(file.path.suffixes).removeprefix(".c000")
            name = f"{batch:08d}-{writer.replace('-', '')[:16]}-{index:05d}{suffix}"
            target = f"{file.folder}/{name}" if file.folder else name
            moves.append(Move(file.path.relative_to(self.root).as_posix(), target))
        ledger.add(writer, batch, moves)
        limits = self.sink.compact
        if limits is not None and (batch + 1) % limits.every == 0:
            compact.compact(self.root, limits.target_bytes, limits.files_min)


class DeltaOutput:
    """A Delta table; see `delta`."""

    def __init__(self, pipeline: Pipeline, sink: DeltaSink, name: str, checkpoint: Path) -> None:
        self.sink = sink
        self.path = pipeline.resolve_path(sink.path)
        self.marker = table_marker(checkpoint, name, f"the table {sink.path}")

    def write(self, frame: DataFrame, writer: str, batch: int) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        identity, last = delta.state_of(self.path, writer)
        self.marker.check(identity, last)
        if last is not None and last >= batch:
            pass_over(frame)
            return
        keys = self.sink.merge_by
        if keys:
            rows = frame.toArrow()
            if rows.num_rows:
                made = delta.merge(self.path, rows, self.sink.partition_by, keys, writer, batch)
                self.marker.write(made, batch)
            return
        folder = Ledger(Path(self.path)).staging(writer)
        staged = write_staged(frame, self.sink, folder, spark_options(self.sink.options))
        if not staged:
            shutil.rmtree(folder, ignore_errors=True)
            return
        schema = to_arrow_schema(frame.schema, timezone="UTC")
        made = delta.commit(self.path, schema, self.sink.partition_by, writer, batch, staged)
        self.marker.write(made, batch)
        limits = self.sink.compact
        if limits is not None and (batch + 1) % limits.every == 0:
            delta.compact(self.path, limits.target_bytes, None)


class JdbcOutput:
    """A table of a database; see `jdbc`."""

    def __init__(self, pipeline: Pipeline, sink: JdbcSink) -> None:
        self.sink = sink

    def write(self, frame: DataFrame, writer: str, batch: int) -> None:
        options = spark_options(self.sink.options)
        if not Database(frame.sparkSession, self.sink, options).write(frame, writer, batch):
            pass_over(frame)


class AmqpOutput:
    """An exchange or a stream, where several sinks share the batches of one query."""

    def __init__(self, pipeline: Pipeline, sink: AmqpSink) -> None:
        self.options = amqp_sink_options(pipeline, sink)
        given = {name.lower(): value for name, value in self.options.items()}
        self.exactly_once = given.get("deliveryguarantee", "").lower() != "at-least-once"
        self.has_id = "sinkid" in given

    def write(self, frame: DataFrame, writer: str, batch: int) -> None:
        options = dict(self.options)
        if self.exactly_once:
            options["batchId"] = str(batch)
            if not self.has_id:
                options["sinkId"] = sink_id(writer)
        frame.write.format("amqp").mode("append").options(**options).save()


class ConsoleOutput:
    """The terminal."""

    def __init__(self, pipeline: Pipeline, sink: ConsoleSink) -> None:
        self.sink = sink

    def write(self, frame: DataFrame, writer: str, batch: int) -> None:
        print(f"batch {batch}")
        frame.persist()  # Computing it twice would read, and count, its sources twice.
        try:
            pass_over(frame)
            frame.show(int(str(self.sink.options.get("numRows", 20))), truncate=False)
        finally:
            frame.unpersist()


def sink_id(writer: str) -> str:
    """The name that a broker knows a writer by, of which it has room for 64 bytes."""
    if len(writer.encode()) <= SINK_ID_BYTES_MAX:
        return writer
    digest = hashlib.sha256(writer.encode()).hexdigest()[:24]
    return f"{writer.encode()[:36].decode(errors='ignore')}-{digest}"


def output_of(pipeline: Pipeline, name: str, checkpoint: Path) -> Output:
    """Return the output that takes the batches of a sink, whose query has this checkpoint."""
    sink = pipeline.sinks[name]
    if isinstance(sink, FileSink):
        return FileOutput(pipeline, sink)
    if isinstance(sink, DeltaSink):
        return DeltaOutput(pipeline, sink, name, checkpoint)
    if isinstance(sink, IcebergSink):
        return IcebergOutput(pipeline, sink, name, checkpoint)
    if isinstance(sink, JdbcSink):
        return JdbcOutput(pipeline, sink)
    if isinstance(sink, AmqpSink):
        return AmqpOutput(pipeline, sink)
    return ConsoleOutput(pipeline, sink)
