# SPDX-License-Identifier: Apache-2.0
"""The sink of type iceberg: each batch is one commit of a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.pipeline.config.check import spark_options
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.iceberg import upkeep
from headrace.pipeline.iceberg.catalogs import about
from headrace.pipeline.iceberg.files import describe_offsets, layout_of, written
from headrace.pipeline.iceberg.layout import columns_of
from headrace.pipeline.iceberg.table import (
    Change,
    Changed,
    IcebergTable,
    last_batch,
)
from headrace.pipeline.sinks.frames import pass_over
from headrace.pipeline.sinks.table_marker import table_marker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.config.settings import IcebergSink, Pipeline

WRITES_MAX: Final = 4
OFFSETS_CHARS_MAX: Final = 32 << 10  # Each snapshot of the table's metadata has them.


class IcebergOutput:
    """An Iceberg table; see `headrace.pipeline.iceberg.table`."""

    def __init__(self, pipeline: Pipeline, sink: IcebergSink, name: str, checkpoint: Path) -> None:
        self.sink = sink
        self.table = IcebergTable(pipeline, sink.catalog, sink.table)
        self.marker = table_marker(checkpoint, name, self.table.what)
        self.checkpoint = checkpoint

    def write(self, frame: DataFrame, writer: str, batch: int) -> None:
        for _ in range(WRITES_MAX):
            table = self.table.load()
            last = None if table is None else last_batch(table, writer)
            self.marker.check(None if table is None else str(table.metadata.table_uuid), last)
            if last is not None and last >= batch:
                pass_over(frame)
                return
            try:
                self._write(frame, writer, batch)
                return
            except Changed:
                continue
        raise PipelineError(
            f"{self.table.what}: others changed its columns or partitions {WRITES_MAX} times "
            "while a batch was written to it; the batch is kept and can be run again"
        )

    def _write(self, frame: DataFrame, writer: str, batch: int) -> None:
        what, sink = self.table.what, self.sink
        columns = columns_of(frame.schema, what)
        options = spark_options(sink.options)
        table = self.table.ensure(columns, sink.partition_by, sink.sort_by, options)
        if sink.files is not None:
            frame = frame.coalesce(sink.files)
        layout = layout_of(table, f"{batch:08d}-{writer.replace('-', '')[:16]}")
        with about(what, self.table.properties):
            files = written(frame, layout, sink.sort_by)
        if not files:
            return
        change = Change(files, summary=self._summary(writer, batch))
        self.table.commit(writer, batch, table, change)
        self._after(batch)

    def _after(self, batch: int) -> None:
        """Note the batch, if it made the table; compact it when its time has come."""
        table = self.table.load()
        if table is None:
            return
        self.marker.write(str(table.metadata.table_uuid), batch)
        limits = self.sink.compact
        if limits is not None and (batch + 1) % limits.every == 0:
            upkeep.compact(self.table, limits.target_bytes, limits.files_min)

    def _summary(self, writer: str, batch: int) -> dict[str, str]:
        """The words of a snapshot: which batch of which sink, and the offsets that it ends with."""
        words = {"headrace-sink": writer, "headrace-batch": str(batch)}
        try:
            text = (self.checkpoint / "offsets" / str(batch)).read_text("utf-8")
        except FileNotFoundError:  # Only static tables feed the sink.
            return words
        words["headrace-offsets"] = describe_offsets(text.splitlines()[2:], OFFSETS_CHARS_MAX)
        return words
