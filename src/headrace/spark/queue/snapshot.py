# SPDX-License-Identifier: Apache-2.0
"""Batch reads of a queue: what is ready in it when the query is planned, which stays there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.spark.driver.batch import PARTITION_RECORDS_MIN, RangePartition, read_partition
from headrace.spark.options.options import partitions_default
from headrace.spark.schema.offsets import Range

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.client import blocking
    from headrace.client.snapshot import Snapshot
    from headrace.spark.options.options import ReadOptions
    from headrace.spark.schema.columns import Wanted

PARTS_MAX: Final = 1000  # Of a queue.


class SnapshotReader(DataSourceReader):
    """Looks at the messages of a queue, in parallel.

    Messages consumed before a task reaches them are not seen, nor are later arrivals.
    """

    def __init__(self, options: ReadOptions, wanted: Wanted) -> None:
        self.options = options
        self.wanted = wanted

    def partitions(self) -> list[InputPartition]:
        """Parts of the queue with about as many messages each."""
        found = self._snapshot(1)
        count = parts(self.options, found.messages)
        if count > 1:
            found = self._snapshot(count)
        pieces = [Range(found.queue, first, last) for first, last in found.ranges() if first < last]
        # Spark reads one partition even of nothing.
        return [RangePartition(piece) for piece in pieces] or [RangePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One part, as Arrow batches."""
        return read_partition(self.options, self.wanted, partition, browse=True)

    def _snapshot(self, count: int) -> Snapshot:
        from headrace.client.blocking_pipeline import take_snapshot
        from headrace.client.requests import RequestRefused
        from headrace.spark.options.kinds import OptionError
        from headrace.spark.runtime.connections import Purpose, patiently, requests

        options = self.options

        def ask(connection: blocking.Connection) -> Snapshot:
            if not isinstance(connection.server_properties.get("headrace_id"), str):
                raise OptionError("option 'queue' of a batch read needs Headrace as the broker")
            return take_snapshot(requests(connection), options.queue, count)

        try:
            return patiently(options.uri, options.reconnect_timeout_s, ask, Purpose.ASK)
        except RequestRefused as refused:
            raise OptionError(f"option 'queue': {refused.text}") from None


def parts(options: ReadOptions, messages: int) -> int:
    """Into how many parts to cut so many messages."""
    count = options.partitions_min
    if count is None:
        count = min(partitions_default(), messages // PARTITION_RECORDS_MIN)
    if options.partition_records_max is not None:
        count = max(count, -(-messages // options.partition_records_max))
    return max(1, min(count, PARTS_MAX))
