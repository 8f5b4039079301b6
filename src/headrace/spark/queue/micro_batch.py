# SPDX-License-Identifier: Apache-2.0
"""Streaming reads of a queue: Spark's interface.

A batch is a range of leased messages, which tasks read like a range of a stream. Only the driver
takes and settles messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from headrace.columns.schema.offsets import Offset, Range, first_of, ranges
from headrace.spark.driver.batch import plan, read_partition
from headrace.spark.driver.micro_batch import MicroBatchReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from headrace.spark.queue.leased import Leased
    from headrace.spark.queue.planner import QueuePlanner
    from headrace.spark.queue.spooled import Spooled


class QueueReader(MicroBatchReader):
    """Reads a queue by leases from the checkpoint on; see docs/guides/spark.md."""

    _lease: Leased | Spooled | None = None

    @property
    def lease(self) -> Leased | Spooled:
        """Return the lease of the queue, or its spool; the first call makes it."""
        if self._lease is None and self.options.spool_directory:
            from headrace.spark.queue.spooled import Spooled

            self._lease = Spooled(self.options)
        elif self._lease is None:
            from headrace.spark.queue.leased import Leased

            self._lease = Leased(self.options)
        return self._lease

    def make_planner(self) -> QueuePlanner:
        """Make the planner."""
        from headrace.spark.queue.planner import QueuePlanner

        return QueuePlanner(self.options, self.lease, time.monotonic)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name.
        """Return the limit of a batch, which applies unless Spark asks for all messages."""
        from headrace.spark.queue.planner import RECORDS_MAX

        return ReadMaxRows(self.options.records_per_trigger_max or RECORDS_MAX)

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """Return the partitions of a micro-batch, equal for equal offsets, also after a restart."""
        last = Offset.from_json(end)
        first = first_of(Offset.from_json(start), last)
        pieces = ranges(first, last.positions)
        leased = [Range(self.lease.stream(), piece.first, piece.last) for piece in pieces]
        planned = plan(self.options, leased)
        for partition in planned:
            partition.owner = last.owner
            partition.has_rejects = self.lease.rejects > 0
        return list(planned)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range as Arrow batches, in the process of its task."""
        return read_partition(self.options, self.wanted, partition, self.options.queue)

    def __getstate__(self) -> dict[str, object]:
        """Return the part of the reader that tasks need."""
        return {**super().__getstate__(), "_lease": None}
