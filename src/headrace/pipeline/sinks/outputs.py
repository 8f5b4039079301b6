# SPDX-License-Identifier: Apache-2.0
"""Outputs of micro-batches, which write the rows of each batch once.

After a crash Spark runs the last batch again with the same rows. So `write` may get a batch that is
already written, completely or partly. The name of a writer consists of the id of the query's
checkpoint and the name of the sink, so a new checkpoint is a new writer.
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
from headrace.pipeline.sinks.compute import compute_rows
from headrace.pipeline.sinks.iceberg import IcebergOutput
from headrace.pipeline.sinks.jdbc import DatabaseTable
from headrace.pipeline.sinks.ledger import Ledger, Move
from headrace.pipeline.sinks.staged import write_staged
from headrace.pipeline.sinks.table_marker import table_marker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Output(Protocol):
    """The output of one sink."""

    def write(self, rows: DataFrame, writer: str, batch: int) -> None:
        """Write the rows of a batch, unless the writer has written the batch before.

        All rows are computed in any case, because the state of the query depends on them.
        """


class FileOutput:
    """The output to a directory of Parquet, JSON, CSV or ORC files; see `ledger`."""

    def __init__(self, pipeline: Pipeline, sink: FileSink) -> None:
        self.sink = sink
        self.root = Path(pipeline.resolve_path(sink.path))
        self.ledger = Ledger(self.root)

    def write(self, rows: DataFrame, writer: str, batch: int) -> None:
        ledger = self.ledger
        ledger.finish_moves(writer)
        last = ledger.last_batch(writer)
        if last is not None and last >= batch:
            compute_rows(rows)
            return
        options = spark_options(self.sink.options)
        staged = write_staged(rows, self.sink, ledger.staging_folder(writer), options)
        moves = []
        for index, file in enumerate(staged):
            suffix = "".join(file.path.suffixes).removeprefix(".c000")
            name = f"{batch:08d}-{writer.replace('-', '')[:16]}-{index:05d}{suffix}"
            target = f"{file.folder}/{name}" if file.folder else name
            moves.append(Move(file.path.relative_to(self.root).as_posix(), target))
        ledger.add_batch(writer, batch, moves)
        limits = self.sink.compact
        if limits is not None and (batch + 1) % limits.every == 0:
            compact.compact(self.root, limits.target_bytes, limits.files_min)


class DeltaOutput:
    """The output to a Delta table; see `delta`."""

    def __init__(self, pipeline: Pipeline, sink: DeltaSink, name: str, checkpoint: Path) -> None:
        self.sink = sink
        self.path = pipeline.resolve_path(sink.path)
        self.marker = table_marker(checkpoint, name, f"the table {sink.path}")

    def write(self, rows: DataFrame, writer: str, batch: int) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        table_id, last = delta.read_table_state(self.path, writer)
        self.marker.check(table_id, last)
        if last is not None and last >= batch:
            compute_rows(rows)
            return
        keys = self.sink.merge_by
        if keys:
            arrow_rows = rows.toArrow()
            if arrow_rows.num_rows:
                table_id = delta.merge(
                    self.path, arrow_rows, self.sink.partition_by, keys, writer, batch
                )
                self.marker.write(table_id, batch)
            return
        folder = Ledger(Path(self.path)).staging_folder(writer)
        staged = write_staged(rows, self.sink, folder, spark_options(self.sink.options))
        if not staged:
            shutil.rmtree(folder, ignore_errors=True)
            return
        schema = to_arrow_schema(rows.schema, timezone="UTC")
        table_id = delta.commit(self.path, schema, self.sink.partition_by, writer, batch, staged)
        self.marker.write(table_id, batch)
        limits = self.sink.compact
        if limits is not None and (batch + 1) % limits.every == 0:
            delta.compact(self.path, limits.target_bytes, None)


class JdbcOutput:
    """The output to a table of a database; see `jdbc`."""

    def __init__(self, pipeline: Pipeline, sink: JdbcSink) -> None:
        self.sink = sink

    def write(self, rows: DataFrame, writer: str, batch: int) -> None:
        options = spark_options(self.sink.options)
        if not DatabaseTable(rows.sparkSession, self.sink, options).write(rows, writer, batch):
            compute_rows(rows)


class AmqpOutput:
    """The output to an exchange or a stream, for queries that Spark's own sink cannot write."""

    def __init__(self, pipeline: Pipeline, sink: AmqpSink) -> None:
        self.options = amqp_sink_options(pipeline, sink)
        names = {name.lower(): value for name, value in self.options.items()}
        self.exactly_once = names.get("deliveryguarantee", "").lower() != "at-least-once"
        self.has_id = "sinkid" in names

    def write(self, rows: DataFrame, writer: str, batch: int) -> None:
        options = dict(self.options)
        if self.exactly_once:
            options["batchId"] = str(batch)
            if not self.has_id:
                options["sinkId"] = make_sink_id(writer)
        rows.write.format("amqp").mode("append").options(**options).save()


class ConsoleOutput:
    """The output that prints rows to standard output."""

    def __init__(self, pipeline: Pipeline, sink: ConsoleSink) -> None:
        self.sink = sink

    def write(self, rows: DataFrame, writer: str, batch: int) -> None:
        print(f"batch {batch}")
        rows.persist()  # A second computation would read and count the sources again.
        try:
            compute_rows(rows)
            rows.show(int(str(self.sink.options.get("numRows", 20))), truncate=False)
        finally:
            rows.unpersist()


def make_sink_id(writer: str) -> str:
    """Return the name of a writer, shortened to the 64 bytes that the broker accepts."""
    if len(writer.encode()) <= SINK_ID_BYTES_MAX:
        return writer
    digest = hashlib.sha256(writer.encode()).hexdigest()[:24]
    return f"{writer.encode()[:36].decode(errors='ignore')}-{digest}"


def make_output(pipeline: Pipeline, name: str, checkpoint: Path) -> Output:
    """Return the output of a sink; `checkpoint` is the directory of the query's checkpoint."""
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
