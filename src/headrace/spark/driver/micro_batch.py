# SPDX-License-Identifier: Apache-2.0
"""Streaming reads of streams: Spark's interface.

The broker stores the records and Spark's checkpoint the offsets, so a batch that runs again after a
failure has the same records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, cast

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from headrace.columns.schema.offsets import Offset, batch_start, ranges_between
from headrace.spark.driver.batch import plan_partitions, read_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.columns.options.options import ReadOptions
    from headrace.columns.schema.columns import QueryColumns
    from headrace.spark.driver.planner import StreamPlanner


class BatchPlanner(Protocol):
    """The planner of a query's micro-batches, on streams or on a queue."""

    def initial_offset(self) -> Offset:
        """Return the first offset of a query without checkpoint."""

    def fix_target(self) -> None:
        """Fix the current end as the target of the query (trigger availableNow)."""

    def latest_offset(self) -> Offset | None:
        """Return the current end of the source; None if it is not known yet."""

    def plan_batch(self, previous: Offset, *, unlimited: bool = False) -> Offset | None:
        """Return the end of the batch after `previous`; None if no batch is due."""

    def commit(self, end: Offset) -> None:
        """Commit the batch that ends at `end`, whose rows are in the sink."""


class MicroBatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming reader, which passes Spark's calls in the driver to a planner."""

    def __init__(self, options: ReadOptions, columns: QueryColumns) -> None:
        self.options = options
        self.columns = columns
        self._initial: Offset | None = None
        self._planner: BatchPlanner | None = None  # Only the driver has one.

    def make_planner(self) -> BatchPlanner:
        """Make the planner of this kind of source."""
        raise NotImplementedError

    @property
    def planner(self) -> BatchPlanner:
        """The planner, which the first use makes in the driver's process."""
        if self._planner is None:
            self._planner = self.make_planner()
        return self._planner

    def initialOffset(self) -> dict[str, object]:  # noqa: N802  # The names of Spark's interface.
        """Return the first offset of a query without checkpoint, the same at each call."""
        if self._initial is None:
            self._initial = self.planner.initial_offset()
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch from the options, as Spark's type for it."""
        options = self.options
        if options.records_per_trigger_max is not None:
            return ReadMaxRows(options.records_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        if options.records_per_trigger_min > 1:
            return ReadMinRows(options.records_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Exclude records that arrive later (trigger availableNow)."""
        self.planner.fix_target()

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """Return the end of the next micro-batch; `start` itself if no batch is due.

        Spark passes the limit from `getDefaultReadLimit`, and the planner applies all limits of the
        options. With trigger(once=True) Spark passes ReadAllAvailable, and no limit applies.
        """
        unlimited = isinstance(limit, ReadAllAvailable)
        end = self.planner.plan_batch(Offset.from_json(start), unlimited=unlimited)
        return start if end is None else end.to_json()

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        """Return the latest offset of the source, for the progress of the query."""
        latest_offset = self.planner.latest_offset()
        return None if latest_offset is None else latest_offset.to_json()

    def commit(self, end: dict[str, object]) -> None:
        """Commit the batch that ends at `end`: its rows are in the sink."""
        self.planner.commit(Offset.from_json(end))

    def __getstate__(self) -> dict[str, object]:
        """Return the state to pickle for tasks, which need no planner."""
        return {**self.__dict__, "_planner": None}


class StreamReader(MicroBatchReader):
    """The reader of a streaming query on streams; docs/guides/spark.md has the guarantees."""

    def make_planner(self) -> StreamPlanner:
        """Make the planner, with the group and the archive of the options."""
        from headrace.columns.broker_streams import BrokerStreams
        from headrace.spark.driver.planner import StreamPlanner

        streams = BrokerStreams(self.options)
        offset_store = None
        if self.options.group:
            from headrace.spark.driver.stream_group import StreamGroup

            offset_store = StreamGroup(self.options, streams)
        archive = None
        if self.options.archive:
            from headrace.columns.archive.index import Archive

            archive = Archive(self.options.archive)
        return StreamPlanner(self.options, streams, time.monotonic, offset_store, archive)

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """Return the partitions of a micro-batch; equal offsets give equal ones after a restart."""
        end_offset = Offset.from_json(end)
        start_positions = batch_start(Offset.from_json(start), end_offset)
        stream_ranges = ranges_between(start_positions, end_offset.positions)
        if end_offset.archived:
            from headrace.columns.archive.split import ArchiveSplit

            archive = cast("StreamPlanner", self.planner).archive
            partitions = plan_partitions(
                self.options, stream_ranges, archive, ArchiveSplit.from_offset(end_offset)
            )
        else:
            partitions = plan_partitions(self.options, stream_ranges)
        for partition in partitions:
            partition.owner = end_offset.owner
        return list(partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range as Arrow batches, in the process of its task."""
        return read_partition(self.options, self.columns, partition)
