# SPDX-License-Identifier: Apache-2.0
"""Batch reads of a queue: its ready messages at the time of planning, which are not consumed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.spark.driver.batch import RangePartition, read_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.columns.options.options import ReadOptions
    from headrace.columns.schema.columns import QueryColumns


class SnapshotReader(DataSourceReader):
    """The reader of a batch query that browses a queue in parallel parts."""

    def __init__(self, options: ReadOptions, columns: QueryColumns) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return parts of the queue with about equal numbers of messages."""
        from headrace.columns.browse import find_queue_parts

        # Spark requires a partition even if there are no messages.
        return [
            RangePartition(stream_range) for stream_range in find_queue_parts(self.options)
        ] or [RangePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part as Arrow batches, in the process of its task."""
        return read_partition(self.options, self.columns, partition, browse=True)
