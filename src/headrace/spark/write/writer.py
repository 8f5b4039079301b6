# SPDX-License-Identifier: Apache-2.0
"""Writers of batch and streaming queries: each row becomes a message.

By default messages are written exactly once: tasks stage them and the driver commits the batch. The
option `deliveryGuarantee` may select at-least-once writes. Then tasks publish the messages, and
publish them again if Spark repeats a task or a batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headrace.columns.options.options import OptionError, WriteOptions, write_options
from headrace.spark.runtime.task import Task
from headrace.spark.write.publish import publish

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headrace.spark.write.avro_bodies import Encoder
    from headrace.spark.write.exactly_once import StagedPartition


BATCH_WRITES_OWNER: Final = "batch writes"  # The owner of the sinks of batch writes.


@dataclass
class TaskResult(WriterCommitMessage):
    """The number of messages that one task published or staged, and the staged partition."""

    count: int
    staged: StagedPartition | None = None


class BatchWriter(DataSourceArrowWriter):
    """The writer of a batch query, which Spark pickles for the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                "format 'amqp' publishes messages and overwrites nothing: use mode('append')"
            )
        self.options = write_options(options)
        self.encoder = _check_columns(self.options, schema)
        self.run = uuid.uuid4().hex
        self.batch = self.options.batch_id or 0
        # Without the option, a new sink for this write makes all its messages visible at once.
        self.sink = self.options.sink_id or f"write-{self.run}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Publish or stage the rows of one partition."""
        task = Task.current()
        if self.encoder is not None:
            iterator = self.encoder.encode_batches(iterator)
        if not self.options.exactly_once:
            return TaskResult(publish(self.options, iterator, task.partition))
        from headrace.spark.write.exactly_once import stage

        staged = stage(
            self.options,
            iterator,
            sink=self.sink,
            owner=BATCH_WRITES_OWNER,
            run=self.run,
            batch=self.batch,
            task=task,
        )
        return TaskResult(staged.count, staged)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the staged messages of all tasks visible."""
        if self.options.exactly_once and (staged_partitions := _staged_partitions(messages)):
            from headrace.spark.write.exactly_once import commit, forget

            commit(self.options, staged_partitions, self.batch)
            if self.options.sink_id is None:
                forget(self.options, self.sink)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard the staged messages of a failed write; published messages stay."""
        if self.options.exactly_once:
            from headrace.spark.write.exactly_once import abort, forget

            if self.options.sink_id is None:
                forget(self.options, self.sink)
            else:
                abort(self.options, self.sink, self.batch)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query, which Spark pickles for the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self.options = write_options(options, streaming=True)
        self.encoder = _check_columns(self.options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Publish or stage the rows of one partition."""
        task = Task.current()
        if self.encoder is not None:
            iterator = self.encoder.encode_batches(iterator)
        if not self.options.exactly_once:
            return TaskResult(publish(self.options, iterator, task.partition, task.id_prefix()))
        from headrace.spark.write.exactly_once import stage

        staged = stage(
            self.options,
            iterator,
            sink=self.options.sink_id or task.query,
            owner=task.query,
            run=task.run or task.query,  # All tasks of a run have the same value.
            batch=task.batch,
            task=task,
        )
        return TaskResult(staged.count, staged)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the staged messages of all tasks visible; a repeated call does nothing."""
        if staged_partitions := _staged_partitions(messages):
            from headrace.spark.write.exactly_once import commit

            commit(self.options, staged_partitions, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Discard the staged messages of a failed batch.

        After a failure all `messages` may be None, and then only the option `sinkId` names the
        sink. Without it the commit of the repeated batch discards the messages.
        """
        sinks = {staged.sink for staged in _staged_partitions(messages)} | {
            self.options.sink_id or ""
        }
        if self.options.exactly_once:
            from headrace.spark.write.exactly_once import abort

            for sink in sinks - {""}:
                abort(self.options, sink, batchId)


def _staged_partitions(messages: list[WriterCommitMessage | None]) -> list[StagedPartition]:
    """Return the staged partitions; tasks without rows have none."""
    return [
        message.staged
        for message in messages
        if isinstance(message, TaskResult) and message.staged is not None and message.staged.sink
    ]


def _check_columns(options: WriteOptions, schema: StructType) -> Encoder | None:
    """Check the columns of the rows; return the encoder of `value`, or None if not encoded."""
    from headrace.spark.write.rows import check_columns

    columns = {field.name: field.dataType.simpleString() for field in schema.fields}
    if options.encoding is None:
        check_columns(options, list(columns.items()))
        return None
    from headrace.spark.write.avro_bodies import Encoder

    check_columns(options, list({**columns, "value": "binary"}.items()))
    return Encoder(options.encoding, schema)
