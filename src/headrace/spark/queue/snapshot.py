# SPDX-License-Identifier: Apache-2.0
"""Batch reads of a queue: what is ready in it when the query is planned, which stays there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.spark.driver.batch import RangePartition, read_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.columns.options.options import ReadOptions
    from headrace.columns.schema.columns import Wanted


class SnapshotReader(DataSourceReader):
    """Looks at the messages of a queue, in parallel."""

    def __init__(self, options: ReadOptions, wanted: Wanted) -> None:
        self.options = options
        self.wanted = wanted

    def partitions(self) -> list[InputPartition]:
        """Parts of the queue with about as many messages each."""
        from headrace.columns.browse import queue_parts

        # Spark reads one partition even of nothing.
        return [RangePartition(piece) for piece in queue_parts(self.options)] or [
            RangePartition(None)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One part, as Arrow batches."""
        return read_partition(self.options, self.wanted, partition, browse=True)
