# SPDX-License-Identifier: Apache-2.0
"""Writes: each row becomes a message, and a task succeeds when the broker confirmed all of its own.

That is at-least-once: when Spark runs a task or a batch again, its messages are published again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headrace.spark.options import OptionError, WriteOptions, write_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headrace.client import Channel
    from headrace.spark.rows import Row

UNCONFIRMED_MAX: Final = 2000  # Messages on their way to the broker, per task.
ERRORS_SHOWN_MAX: Final = 10


class PublishError(RuntimeError):
    """Rows that were not published; the text says which and why, but not what was in them."""


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
        return publish(self.options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Publishes the rows of every micro-batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self.options = write_options(options, streaming=True)
        _check_columns(self.options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish the rows of one partition; returns once all of them are confirmed."""
        return publish(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do: the messages are in the broker."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing can be taken back: the batch runs again, and publishes again."""


def _check_columns(options: WriteOptions, schema: StructType) -> None:
    from headrace.spark.rows import check_columns

    check_columns(options, [(field.name, field.dataType.simpleString()) for field in schema.fields])


def publish(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Published:
    """Publish all rows and wait for all confirms; PublishError when any row was not taken."""
    return Published(asyncio.run(_publish(options, batches)))


async def _publish(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> int:
    from headrace.client import connect
    from headrace.spark.rows import RowError, rows
    from headrace.spark.uri import urls

    batch = await asyncio.to_thread(next, batches, None)
    if batch is None:
        return 0  # An empty partition costs no connection.
    done = 0
    async with await connect(urls(options.uri), reconnect=None) as connection:
        channel = await connection.channel(unconfirmed_max=UNCONFIRMED_MAX)
        outcome = _Outcome()
        while batch is not None and not outcome.errors:
            for row in rows(options, batch):
                if isinstance(row, RowError):
                    outcome.fail(done, row.reason)
                else:
                    await _publish_row(channel, options, row, outcome.expect(done))
                done += 1
            batch = await asyncio.to_thread(next, batches, None)
        await outcome.settled()
    if outcome.errors:
        raise PublishError(outcome.report(done))
    return done


async def _publish_row(
    channel: Channel,
    options: WriteOptions,
    row: Row,
    settled: Callable[[asyncio.Future[None]], None],
) -> None:
    confirmed = await channel.publish_soon(
        row.message, row.routing_key, row.exchange, mandatory=options.mandatory
    )
    confirmed.add_done_callback(settled)


class _Outcome:
    """What has become of the rows of one task."""

    def __init__(self) -> None:
        self.errors: dict[int, str] = {}
        self._open = 0
        self._changed = asyncio.Event()

    def expect(self, index: int) -> Callable[[asyncio.Future[None]], None]:
        """A callback that takes the outcome of the row `index`."""
        self._open += 1

        def settle(confirmed: asyncio.Future[None]) -> None:
            self._open -= 1
            error = confirmed.exception()
            if error is not None:
                self.fail(index, str(error))
            self._changed.set()

        return settle

    def fail(self, index: int, reason: str) -> None:
        """The row `index` was not published."""
        self.errors[index] = reason

    async def settled(self) -> None:
        """Wait until the outcome of every row is known."""
        while self._open:
            self._changed.clear()
            await self._changed.wait()

    def report(self, done: int) -> str:
        """Which rows were not published, and why."""
        from pyspark import TaskContext

        context = TaskContext.get()
        where = "" if context is None else f" of partition {context.partitionId()}"
        shown = sorted(self.errors.items())[:ERRORS_SHOWN_MAX]
        lines = [f"row {index}: {reason}" for index, reason in shown]
        if len(self.errors) > len(shown):
            lines.append(f"and {len(self.errors) - len(shown)} more")
        return (
            f"{len(self.errors)} of the {done} rows{where} were not published: {'; '.join(lines)}"
        )
