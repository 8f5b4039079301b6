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

from headrace.columns.schema.offsets import Offset, first_of, ranges
from headrace.spark.driver.batch import plan, read_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.columns.options.options import ReadOptions
    from headrace.columns.schema.columns import Wanted
    from headrace.spark.driver.planner import Planner


class Planning(Protocol):
    """Planner of micro-batches."""

    def initial(self) -> Offset:
        """Return the first offset of a query without checkpoint."""

    def aim(self) -> None:
        """Fix the current end offsets as the target (trigger availableNow)."""

    def latest(self) -> Offset | None:
        """Return the current end offset, if it is known yet."""

    def following(self, before: Offset, *, unlimited: bool = False) -> Offset | None:
        """Return the end of the batch after `before`; None if no batch is due."""

    def commit(self, end: Offset) -> None:
        """Commit a batch, by its end: its rows are in the sink."""


class MicroBatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The common part of reads of streams and queues, which pass Spark's calls to a planner."""

    def __init__(self, options: ReadOptions, wanted: Wanted) -> None:
        self.options = options
        self.wanted = wanted
        self._initial: Offset | None = None
        self._planner: Planning | None = None  # Only the driver has one.

    def make_planner(self) -> Planning:
        """Make the planner."""
        raise NotImplementedError

    @property
    def planner(self) -> Planning:
        """Return the planner; the first call makes it, in the driver's process."""
        if self._planner is None:
            self._planner = self.make_planner()
        return self._planner

    def initialOffset(self) -> dict[str, object]:  # noqa: N802  # The names of Spark's interface.
        """Return the first offset of a query without checkpoint, the same at each call."""
        if self._initial is None:
            self._initial = self.planner.initial()
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch as Spark's type for it."""
        options = self.options
        if options.records_per_trigger_max is not None:
            return ReadMaxRows(options.records_per_trigger_max)
        if options.octets_per_trigger_max is not None:
            return ReadMaxBytes(options.octets_per_trigger_max)
        if options.records_per_trigger_min > 1:
            return ReadMinRows(options.records_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Leave later arrivals to the next run (trigger availableNow)."""
        self.planner.aim()

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """Return the end of the next micro-batch; `start` itself if there is no new record.

        Spark passes the limit of `getDefaultReadLimit`, which the options refine; or, with
        trigger(once=True), no limit.
        """
        unlimited = isinstance(limit, ReadAllAvailable)
        end = self.planner.following(Offset.from_json(start), unlimited=unlimited)
        return start if end is None else end.to_json()

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802
        """Return the latest offset of the source, for the progress of the query."""
        latest = self.planner.latest()
        return None if latest is None else latest.to_json()

    def commit(self, end: dict[str, object]) -> None:
        """Commit a batch, by its end: its rows are in the sink, and the next batch is logged."""
        self.planner.commit(Offset.from_json(end))

    def __getstate__(self) -> dict[str, object]:
        """Return the part of the reader that tasks need."""
        return {**self.__dict__, "_planner": None}


class StreamReader(MicroBatchReader):
    """Reads streams from the checkpoint on; docs/guides/spark.md has the guarantees."""

    def make_planner(self) -> Planner:
        """Make the planner."""
        from headrace.columns.survey import Survey
        from headrace.spark.driver.planner import Planner

        survey = Survey(self.options)
        offset_store = None
        if self.options.group:
            from headrace.spark.driver.stream_group import StreamGroup

            offset_store = StreamGroup(self.options, survey)
        archive = None
        if self.options.archive:
            from headrace.columns.archive.index import Archive

            archive = Archive(self.options.archive)
        return Planner(self.options, survey, time.monotonic, offset_store, archive)

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """Return the partitions of a micro-batch, equal for equal offsets, also after a restart."""
        last = Offset.from_json(end)
        first = first_of(Offset.from_json(start), last)
        pieces = ranges(first, last.positions)
        if last.archived:
            from headrace.columns.archive.split import ArchiveSplit

            archive = cast("Planner", self.planner).archive
            planned = plan(self.options, pieces, archive, ArchiveSplit.of(last))
        else:
            planned = plan(self.options, pieces)
        for partition in planned:
            partition.owner = last.owner
        return list(planned)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range as Arrow batches, in the process of its task."""
        return read_partition(self.options, self.wanted, partition)
