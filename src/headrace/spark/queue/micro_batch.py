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

from headrace.columns.schema.offsets import Offset, Range, batch_start, ranges_between
from headrace.spark.driver.batch import plan_partitions, read_partition
from headrace.spark.driver.micro_batch import MicroBatchReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from headrace.spark.queue.broker_lease import BrokerLease
    from headrace.spark.queue.planner import QueuePlanner
    from headrace.spark.queue.spool_lease import SpoolLease


class QueueReader(MicroBatchReader):
    """The reader of a streaming query on a queue; docs/guides/spark.md has the guarantees."""

    _lease: BrokerLease | SpoolLease | None = None

    @property
    def lease(self) -> BrokerLease | SpoolLease:
        """The lease of the queue, at the broker or in a spool, which the first use makes."""
        if self._lease is None and self.options.spool_directory:
            from headrace.spark.queue.spool_lease import SpoolLease

            self._lease = SpoolLease(self.options)
        elif self._lease is None:
            from headrace.spark.queue.broker_lease import BrokerLease

            self._lease = BrokerLease(self.options)
        return self._lease

    def make_planner(self) -> QueuePlanner:
        """Make the planner, which uses `lease`."""
        from headrace.spark.queue.planner import QueuePlanner

        return QueuePlanner(self.options, self.lease, time.monotonic)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name.
        """Return the limit of a batch, which is `RECORDS_MAX` messages unless an option sets it."""
        from headrace.spark.queue.planner import RECORDS_MAX

        return ReadMaxRows(self.options.records_per_trigger_max or RECORDS_MAX)

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """Return the partitions of a micro-batch; equal offsets give equal ones after a restart."""
        end_offset = Offset.from_json(end)
        start_positions = batch_start(Offset.from_json(start), end_offset)
        stream_ranges = ranges_between(start_positions, end_offset.positions)
        lease_ranges = [
            Range(self.lease.stream(), stream_range.first, stream_range.last)
            for stream_range in stream_ranges
        ]
        partitions = plan_partitions(self.options, lease_ranges)
        for partition in partitions:
            partition.owner = end_offset.owner
            partition.has_rejects = self.lease.rejects > 0
        return list(partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range as Arrow batches, in the process of its task."""
        return read_partition(self.options, self.columns, partition, self.options.queue)

    def __getstate__(self) -> dict[str, object]:
        """Return the state to pickle for tasks, which need no lease."""
        return {**super().__getstate__(), "_lease": None}
