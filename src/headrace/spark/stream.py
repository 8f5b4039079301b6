# SPDX-License-Identifier: Apache-2.0
"""Streaming reads: which offsets the next micro-batch covers, and its partitions.

The broker keeps the records and Spark's checkpoint keeps the offsets, so a batch can be read again
after any failure and gives the same records. Nothing has to be acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headrace.spark.offsets import Offset, limited, ranges
from headrace.spark.options import Bound, Edge, read_options
from headrace.spark.reader import plan, read_partition
from headrace.spark.schema import wanted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams from where the checkpoint stands; see docs/spark.md for what is guaranteed."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = read_options(options, streaming=True)
        self.wanted = wanted(schema, self.options.decoding)
        self._initial: Offset | None = None
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # The names of Spark's interface.
        """Where a query without checkpoint begins; asked twice, answered the same."""
        if self._initial is None:
            from headrace.spark import records

            options = self.options
            streams = records.streams(options.streams)
            start = records.positions(options.uri, options.starting, streams)
            self._initial = Offset(start, origin=start)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What `maxRecordsPerTrigger` allows."""
        most = self.options.records_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What arrives from now on is left to the next run."""
        self._target = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; `start` itself when there is nothing new."""
        before = Offset.from_json(start)
        origin = before.begun() | self._added(before)
        first = {**before.positions, **origin}
        end = dict(self._target) if self._target is not None else self._ends()
        if isinstance(limit, ReadMaxRows):
            end = limited(first, end, limit.max_rows)
        else:
            ranges(first, end)  # Refuses a stream that was made again.
        return start if end == before.positions else Offset(end, origin).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The ends of the streams, for the progress of the query: what is there to be read."""
        return Offset(self._ends()).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The partitions of a micro-batch: the same for the same offsets, also after a restart."""
        last = Offset.from_json(end)
        first = {**Offset.from_json(start).positions, **last.origin}
        return plan(self.options, ranges(first, last.positions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One range, as Arrow batches, in the process of its task."""
        return read_partition(self.options, self.wanted, partition)

    def _added(self, before: Offset) -> dict[str, int]:
        """Where the streams begin that the query was given since its checkpoint: at the oldest."""
        from headrace.spark import records

        options = self.options
        streams = records.streams(options.streams)
        added = tuple(stream for stream in streams if stream not in before.positions)
        return records.positions(
            options.uri, Bound(option="stream", everywhere=Edge.EARLIEST), added
        )

    def _ends(self) -> dict[str, int]:
        from headrace.spark import records

        options = self.options
        return records.ends(options.uri, records.streams(options.streams))
