# SPDX-License-Identifier: Apache-2.0
"""The sink of type iceberg: each batch is one commit of a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.pipeline.config.check import spark_options
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.iceberg import upkeep
from headrace.pipeline.iceberg.catalogs import error_context
from headrace.pipeline.iceberg.files import make_layout, write_files
from headrace.pipeline.iceberg.layout import arrow_columns
from headrace.pipeline.iceberg.table import (
    IcebergTable,
    TableChange,
    TableChanged,
    last_batch,
)
from headrace.pipeline.sinks.compute import compute_rows
from headrace.pipeline.sinks.table_marker import table_marker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.config.settings import IcebergSink, Pipeline

WRITES_MAX: Final = 4  # Attempts to write one batch.
HEADER_LINES: Final = 2  # Lines before the offsets in a file of Spark's log of offsets.
OFFSETS_CHARS_MAX: Final = 32 << 10  # Characters of the offsets, which every snapshot has.


class IcebergOutput:
    """The output to an Iceberg table; see `headrace.pipeline.iceberg.table`."""

    def __init__(self, pipeline: Pipeline, sink: IcebergSink, name: str, checkpoint: Path) -> None:
        self.sink = sink
        self.table = IcebergTable(pipeline, sink.catalog, sink.table)
        self.marker = table_marker(checkpoint, name, self.table.label)
        self.checkpoint = checkpoint

    def write(self, rows: DataFrame, writer: str, batch: int) -> None:
        for _ in range(WRITES_MAX):
            table = self.table.load()
            last = None if table is None else last_batch(table, writer)
            self.marker.check(None if table is None else str(table.metadata.table_uuid), last)
            if last is not None and last >= batch:
                compute_rows(rows)
                return
            try:
                self._write(rows, writer, batch)
                return
            except TableChanged:
                continue
        raise PipelineError(
            f"{self.table.label}: others changed its columns or partitions {WRITES_MAX} times "
            "while a batch was written to it; the batch is kept and can be run again"
        )

    def _write(self, rows: DataFrame, writer: str, batch: int) -> None:
        """Write the files of a batch and commit them; raise TableChanged if they no longer fit."""
        label, sink = self.table.label, self.sink
        columns = arrow_columns(rows.schema, label)
        options = spark_options(sink.options)
        table = self.table.ensure(columns, sink.partition_by, sink.sort_by, options)
        if sink.files is not None:
            rows = rows.coalesce(sink.files)
        layout = make_layout(table, f"{batch:08d}-{writer.replace('-', '')[:16]}")
        with error_context(label, self.table.properties):
            files = write_files(rows, layout, sink.sort_by)
        if not files:
            return
        change = TableChange(files, summary=self._make_summary(writer, batch))
        self.table.commit(writer, batch, table, change)
        self._record_and_compact(batch)

    def _record_and_compact(self, batch: int) -> None:
        """Record the batch in the marker of the table, and compact the table if that is due."""
        table = self.table.load()
        if table is None:
            return
        self.marker.write(str(table.metadata.table_uuid), batch)
        limits = self.sink.compact
        if limits is not None and (batch + 1) % limits.every == 0:
            upkeep.compact(self.table, limits.target_bytes, limits.files_min)

    def _make_summary(self, writer: str, batch: int) -> dict[str, str]:
        """Return the summary of a snapshot: sink, batch, and end offsets."""
        summary = {"headrace-sink": writer, "headrace-batch": str(batch)}
        try:
            text = (self.checkpoint / "offsets" / str(batch)).read_text("utf-8")
        except FileNotFoundError:  # Only static tables feed the sink.
            return summary
        summary["headrace-offsets"] = _describe_offsets(text.splitlines()[HEADER_LINES:])
        return summary


def _describe_offsets(offsets: list[str]) -> str:
    """Return the offsets of a batch as JSON, or only their number if they are too long."""
    text = json.dumps(offsets)
    return text if len(text) <= OFFSETS_CHARS_MAX else json.dumps(f"{len(offsets)} sources")
