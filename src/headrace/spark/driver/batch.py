# SPDX-License-Identifier: Apache-2.0
"""Batch reads: the records between two offsets, in parallel partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.columns.options.options import partitions_default
from headrace.columns.schema.offsets import split

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.columns.archive.index import Archive, Run
    from headrace.columns.archive.split import ArchiveSplit
    from headrace.columns.options.options import ReadOptions
    from headrace.columns.schema.columns import Wanted
    from headrace.columns.schema.offsets import Range
    from headrace.spark.task.rejects import Rejects

PARTITION_RECORDS_MIN: Final = 1000  # Below this a task costs more than it brings.


class RangePartition(InputPartition):
    """The range that one task reads. Spark may print it, so it has no address of a broker."""

    def __init__(self, piece: Range | None) -> None:
        super().__init__(piece)
        self.piece = piece
        self.owner = ""  # The name of the query at the broker, or "".
        self.runs: tuple[Run, ...] = ()  # The parts of an archive that have the range.
        self.has_rejects = False  # Whether messages of the lease are rejected in advance.


class StreamBatchReader(DataSourceReader):
    """Reads what the streams hold when the query is planned."""

    def __init__(self, options: ReadOptions, wanted: Wanted) -> None:
        self.options = options
        self.wanted = wanted

    def partitions(self) -> list[InputPartition]:
        """Return the partitions of the ranges to read."""
        from headrace.columns.survey import archived_ranges, stream_ranges

        options, archive, archive_split = self.options, None, None
        if options.archive:
            from headrace.columns.archive.index import Archive

            archive = Archive(options.archive)
            ranges, archive_split = archived_ranges(options, archive)
        else:
            ranges = stream_ranges(options)
        # Spark needs a partition even when there are no records.
        return list(plan(options, ranges, archive, archive_split) or [RangePartition(None)])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range as Arrow batches."""
        return read_partition(self.options, self.wanted, partition)


def plan(
    options: ReadOptions,
    ranges: list[Range],
    archive: Archive | None = None,
    archive_split: ArchiveSplit | None = None,
) -> list[RangePartition]:
    """Return the partitions of ranges; the same ranges and split give the same partitions."""
    if archive_split is not None:
        ranges = archive_split.cut(ranges)
    most = options.partition_records_max
    if options.partitions_min is not None:
        pieces = split(ranges, options.partitions_min, size_max=most)
    else:
        pieces = split(ranges, partitions_default(), PARTITION_RECORDS_MIN, most)
    partitions = [RangePartition(piece) for piece in pieces]
    for partition, piece in zip(partitions, pieces, strict=True):
        if archive is not None and archive_split is not None and archive_split.has(piece):
            from headrace.columns.archive.split import runs_of

            partition.runs = tuple(runs_of(archive, piece))
    return partitions


def read_partition(
    options: ReadOptions,
    columns: Wanted,
    partition: InputPartition,
    source: str = "",
    *,
    browse: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Read the records of a partition, in the process of its task.

    `source` is the queue whose leases the partition has, or that `browse` reads.
    """
    from headrace.columns.read.read_range import read_range

    assert isinstance(partition, RangePartition), partition
    piece = partition.piece
    if piece is None:
        return iter(())
    rejects: Rejects | None = None
    rejecting = options.decoding is not None and options.decoding.rejects
    if rejecting or partition.has_rejects:
        from headrace.spark.task.rejects import Rejects

        rejects = Rejects(options, partition.owner, piece)
        if not rejecting:
            rejects.clear()
            rejects = None
    return read_range(
        options,
        columns,
        piece,
        source,
        browse=browse,
        reader=partition.owner,
        rejects=rejects,
        runs=partition.runs,
    )
