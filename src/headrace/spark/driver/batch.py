# SPDX-License-Identifier: Apache-2.0
"""Batch reads: the records between two offsets, in parallel partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.columns.options.options import partitions_default
from headrace.columns.schema.offsets import cut_ranges

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.columns.archive.index import Archive, OffsetRun
    from headrace.columns.archive.split import ArchiveSplit
    from headrace.columns.options.options import ReadOptions
    from headrace.columns.schema.columns import QueryColumns
    from headrace.columns.schema.offsets import Range
    from headrace.spark.task.rejects import Rejects

PARTITION_RECORDS_MIN: Final = 1000  # A task for fewer records costs more time than it saves.


class RangePartition(InputPartition):
    """The partition of one task with the range that it reads, which is None if it is empty.

    Spark may print a partition, so it must not have a broker's URL.
    """

    def __init__(self, stream_range: Range | None) -> None:
        super().__init__(stream_range)
        self.stream_range = stream_range
        self.owner = ""  # The name of the query at the broker, or "".
        self.runs: tuple[OffsetRun, ...] = ()  # The parts of an archive that have the range.
        self.has_rejects = False  # True if the broker has rejects in advance for the lease.


class StreamBatchReader(DataSourceReader):
    """The reader of a batch query on the records that streams have at the time of planning."""

    def __init__(self, options: ReadOptions, columns: QueryColumns) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return the partitions of the ranges to read."""
        from headrace.columns.broker_streams import find_archived_ranges, find_stream_ranges

        options, archive, archive_split = self.options, None, None
        if options.archive:
            from headrace.columns.archive.index import Archive

            archive = Archive(options.archive)
            ranges, archive_split = find_archived_ranges(options, archive)
        else:
            ranges = find_stream_ranges(options)
        # Spark needs a partition even when there are no records.
        return list(
            plan_partitions(options, ranges, archive, archive_split) or [RangePartition(None)]
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range as Arrow batches."""
        return read_partition(self.options, self.columns, partition)


def plan_partitions(
    options: ReadOptions,
    ranges: list[Range],
    archive: Archive | None = None,
    archive_split: ArchiveSplit | None = None,
) -> list[RangePartition]:
    """Return the partitions of ranges; equal ranges and splits give equal partitions."""
    if archive_split is not None:
        ranges = archive_split.cut(ranges)
    records_max = options.partition_records_max
    if options.partitions_min is not None:
        stream_ranges = cut_ranges(ranges, options.partitions_min, size_max=records_max)
    else:
        stream_ranges = cut_ranges(ranges, partitions_default(), PARTITION_RECORDS_MIN, records_max)
    partitions = [RangePartition(stream_range) for stream_range in stream_ranges]
    for partition, stream_range in zip(partitions, stream_ranges, strict=True):
        if (
            archive is not None
            and archive_split is not None
            and archive_split.is_archived(stream_range)
        ):
            from headrace.columns.archive.split import find_runs

            partition.runs = tuple(find_runs(archive, stream_range))
    return partitions


def read_partition(
    options: ReadOptions,
    columns: QueryColumns,
    partition: InputPartition,
    source: str = "",
    *,
    browse: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read the records of a partition, in the process of its task.

    `source` is the queue of leased messages, or "" for a stream. With `browse` the range is a part
    of a queue, which is read without consuming.
    """
    from headrace.columns.read.read_range import read_range

    assert isinstance(partition, RangePartition), partition
    stream_range = partition.stream_range
    if stream_range is None:
        return iter(())
    rejects: Rejects | None = None
    rejecting = options.decoding is not None and options.decoding.rejects
    if rejecting or partition.has_rejects:
        from headrace.spark.task.rejects import Rejects

        rejects = Rejects(options, partition.owner, stream_range)
        if not rejecting:  # The messages were rejected before the option `mode` changed.
            rejects.clear()
            rejects = None
    return read_range(
        options,
        columns,
        stream_range,
        source,
        browse=browse,
        reader=partition.owner,
        rejects=rejects,
        runs=partition.runs,
    )
