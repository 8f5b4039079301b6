# SPDX-License-Identifier: Apache-2.0
"""Writes: each row becomes a message, and a task succeeds when the broker confirmed all of its own.

That is at-least-once: when Spark runs a task or a batch again, its messages are published again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headrace.spark.options import OptionError, WriteOptions, write_options
from headrace.spark.publish import publish
from headrace.spark.task import Task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass
class Published(WriterCommitMessage):
    """How many messages of one task the broker confirmed."""

    count: int


class BatchWriter(DataSourceArrowWriter):
    """Publishes the rows of a DataFrame."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError(
                "format 'amqp' publishes messages and overwrites nothing: use mode('append')"
            )
        self.options = write_options(options)
        _check_columns(self.options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish the rows of one partition; returns once all of them are confirmed."""
        return Published(publish(self.options, iterator, Task.current().partition))


class StreamWriter(DataSourceStreamArrowWriter):
    """Publishes the rows of every micro-batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self.options = write_options(options, streaming=True)
        _check_columns(self.options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish the rows of one partition; returns once all of them are confirmed."""
        task = Task.current()
        return Published(publish(self.options, iterator, task.partition, task.ids()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do: the messages are in the broker."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing can be taken back: the batch runs again, and publishes again."""


def _check_columns(options: WriteOptions, schema: StructType) -> None:
    from headrace.spark.rows import check_columns

    check_columns(options, [(field.name, field.dataType.simpleString()) for field in schema.fields])
