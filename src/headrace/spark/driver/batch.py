# SPDX-License-Identifier: Apache-2.0
"""Batch reads: the records between two offsets, in parallel partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.spark.options.options import (
    OptionError,
    ReadOptions,
    partitions_default,
)
from headrace.spark.schema.offsets import Range, split

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.spark.schema.columns import Wanted
    from headrace.spark.task.rejects import Rejects

PARTITION_RECORDS_MIN: Final = 1000  # Below this a task costs more than it brings.


class RangePartition(InputPartition):
    """The range that one task reads. Spark may print it, so it names no broker."""

    def __init__(self, piece: Range | None) -> None:
        super().__init__(piece)
        self.piece = piece
        self.owner = ""  # The query, as the broker knows it, if it does.
        self.judged = False  # Something of that lease is rejected in advance.


class StreamBatchReader(DataSourceReader):
    """Reads what the streams hold when the query is planned."""

    def __init__(self, options: ReadOptions, wanted: Wanted) -> None:
        self.options = options
        self.wanted = wanted

    def partitions(self) -> list[InputPartition]:
        """The ranges to read, cut into partitions."""
        from headrace.spark.driver.broker_queries import Survey
        from headrace.spark.driver.planner import positions

        options = self.options
        broker = Survey(options)
        places = broker.places()
        start = positions(broker, options.starting, places)
        end = positions(broker, options.ending, places)
        found = []
        for stream in sorted(places):
            if end[stream] < start[stream]:
                raise OptionError(
                    f"option {options.ending.option!r} gives offset {end[stream]} for stream "
                    f"{stream!r}, before {start[stream]} of option {options.starting.option!r}"
                )
            if end[stream] > start[stream]:
                found.append(Range(stream, start[stream], end[stream]))
        # Spark reads one partition even of nothing.
        return list(plan(options, found) or [RangePartition(None)])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One range, as Arrow batches."""
        return read_partition(self.options, self.wanted, partition)


def plan(options: ReadOptions, found: list[Range]) -> list[RangePartition]:
    """The partitions of some ranges; the same for the same ranges."""
    most = options.partition_records_max
    if options.partitions_min is not None:
        pieces = split(found, options.partitions_min, size_max=most)
    else:
        pieces = split(found, partitions_default(), PARTITION_RECORDS_MIN, most)
    return [RangePartition(piece) for piece in pieces]


def read_partition(
    options: ReadOptions,
    columns: Wanted,
    partition: InputPartition,
    source: str = "",
    *,
    browse: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The records of a partition, read in the process of its task.

    `source` is the queue whose leases they are; with `browse` it is a queue that is looked at.
    """
    from headrace.spark.task import records

    assert isinstance(partition, RangePartition), partition
    if partition.piece is None:
        return iter(())
    reading = records.Reading(
        uri=options.uri,
        fail_on_data_loss=options.fail_on_data_loss,
        filters=options.filters,
        match_unfiltered=options.match_unfiltered,
        reconnect_timeout_s=options.reconnect_timeout_s,
        browse=browse,
        reader=partition.owner,
        spooled=bool(options.spool_directory),
    )
    piece = partition.piece
    rejects: Rejects | None = None
    rejecting = options.decoding is not None and options.decoding.rejects
    if rejecting or partition.judged:
        from headrace.spark.task.rejects import Rejects

        rejects = Rejects(options, partition.owner, piece)
        if not rejecting:
            rejects.clear()
            rejects = None
    if options.decoding is None:
        return records.read(reading, piece, columns.names, source)
    from headrace.spark.task.decoded_rows import Decoding

    decoding = Decoding(options.decoding, columns, source or piece.stream, options.uri, rejects)
    return decoding.run(records.read(reading, piece, decoding.raw, source))
