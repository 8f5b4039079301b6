# SPDX-License-Identifier: Apache-2.0
"""At-least-once publishing of one partition: all messages are confirmed, or the task fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

from headrace.client.url import parse_url
from headrace.columns.options.uri import split_urls
from headrace.spark.write.rows import RowError
from headrace.spec.tables import V0_9_1

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.client import Channel, blocking
    from headrace.columns.options.options import WriteOptions
    from headrace.spark.write.encode import EncodedBatch
    from headrace.spark.write.rows import Row

UNCONFIRMED_MAX: Final = 2000  # Unconfirmed messages in versions without bulk publishing.
ERRORS_SHOWN_MAX: Final = 10  # Rows in the text of a PublishError.


class PublishError(RuntimeError):
    """Rows were not published; the text has their numbers and the reasons, but no bodies."""


@dataclass(slots=True)
class PartitionResult:
    """The result of one partition: the numbers of rows read and failed, and the errors by row."""

    partition: int | None = None
    row_count: int = 0
    failed_count: int = 0
    errors: dict[int, RowError] = field(default_factory=dict)

    def fail(self, row: int, error: RowError) -> None:
        """Count a row that was not published."""
        self.failed_count += 1
        self.errors[row] = error

    def check(self) -> None:
        """Raise PublishError if rows were not published."""
        if self.failed_count:
            raise PublishError(self.report())

    def report(self) -> str:
        """Return the text of the error, with the first rows that were not published."""
        partition_text = "" if self.partition is None else f" of partition {self.partition}"
        shown = sorted(self.errors.items())[:ERRORS_SHOWN_MAX]
        lines = [f"row {row}{_describe_keys(error)}: {error.reason}" for row, error in shown]
        if self.failed_count > len(shown):
            lines.append(f"and {self.failed_count - len(shown)} more")
        counts = f"{self.failed_count} of the {self.row_count} rows{partition_text}"
        return f"{counts} were not published: {'; '.join(lines)}"


def _describe_keys(error: RowError) -> str:
    """Return the fields that identify a row, as text."""
    key_fields = {
        "exchange": error.exchange,
        "routing_key": error.routing_key,
        "message_id": error.message_id,
    }
    listed = ", ".join(f"{name} {value!r}" for name, value in key_fields.items() if value)
    return f" ({listed})" if listed else ""


def publish(
    options: WriteOptions,
    batches: Iterator[pa.RecordBatch],
    partition: int | None = None,
    id_prefix: str | None = None,
) -> int:
    """Publish all rows, wait for all confirms and return the number of rows.

    With `id_prefix`, a row without message id gets the prefix followed by the number of the row.

    Raises:
        PublishError: a row is invalid, or the broker did not confirm it.
    """
    result = PartitionResult(partition)
    first = next(batches, None)
    if first is None:
        return 0  # An empty partition costs no connection.
    if parse_url(split_urls(options.uri)[0]).version is V0_9_1:
        _publish_in_bulk(options, chain((first,), batches), result, id_prefix)
    else:
        asyncio.run(_publish_singly(options, chain((first,), batches), result))
    result.check()
    return result.row_count


def _publish_in_bulk(
    options: WriteOptions,
    batches: Iterator[pa.RecordBatch],
    result: PartitionResult,
    id_prefix: str | None,
) -> None:
    """Publish whole record batches at once, in version 0-9-1."""
    from headrace.client.blocking.bulk import BulkPublisher
    from headrace.columns.runtime.connections import Purpose, run_with_retry
    from headrace.spark.write.encode import encode

    last_batch: EncodedBatch | None = None

    def open_publisher(connection: blocking.Connection) -> BulkPublisher:
        return BulkPublisher(connection)

    timeout_s = options.reconnect_timeout_s
    with run_with_retry(
        options.uri, timeout_s, open_publisher, Purpose.WRITE, reached_before=True
    ) as publisher:
        sent_count = row_count_before = 0
        for batch in batches:
            row_count_before, sent_count_before = result.row_count, sent_count
            id_source = None if id_prefix is None else (id_prefix, row_count_before)
            last_batch = encode(options, batch, id_source, publisher.frame_max)
            for frames, count in last_batch.frames(publisher.number, publisher.frame_max):
                publisher.send(frames, count)
                sent_count += count
            result.row_count += batch.num_rows
            for row, error in last_batch.errors.items():
                result.fail(row_count_before + row, error)
            if result.failed_count or publisher.failed:
                break
        publisher.finish()
        for number, failure in publisher.failures.items():
            row = number
            if last_batch is not None and number >= sent_count_before:
                row = row_count_before + last_batch.row_number(number - sent_count_before)
            result.errors[row] = RowError(
                failure.reason, failure.exchange, failure.routing_key, failure.message_id
            )
        result.failed_count += publisher.failed


async def _publish_singly(
    options: WriteOptions, batches: Iterator[pa.RecordBatch], result: PartitionResult
) -> None:
    """Publish message by message, in versions without bulk publishing."""
    from headrace.client import connect
    from headrace.spark.write.rows import make_rows

    batch = await asyncio.to_thread(next, batches, None)
    async with await connect(split_urls(options.uri), reconnect=None) as connection:
        channel = await connection.channel(unconfirmed_max=UNCONFIRMED_MAX)
        pending = _PendingConfirms(result)
        while batch is not None and not result.failed_count:
            for row in make_rows(options, batch):
                if isinstance(row, RowError):
                    result.fail(result.row_count, row)
                else:
                    await _publish_row(channel, options, row, pending.expect(result.row_count, row))
                result.row_count += 1
            batch = await asyncio.to_thread(next, batches, None)
        await pending.wait_settled()


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


class _PendingConfirms:
    """The unconfirmed rows of a partition that is published row by row."""

    def __init__(self, result: PartitionResult) -> None:
        self._result = result
        self._unconfirmed_count = 0
        self._changed = asyncio.Event()

    def expect(self, index: int, row: Row) -> Callable[[asyncio.Future[None]], None]:
        """Return the callback for the confirm of the row `index`."""
        self._unconfirmed_count += 1

        def settle(confirmed: asyncio.Future[None]) -> None:
            self._unconfirmed_count -= 1
            error = confirmed.exception()
            if error is not None:
                key_fields = (row.exchange, row.routing_key, row.message.message_id)
                self._result.fail(index, RowError(str(error), *key_fields))
            self._changed.set()

        return settle

    async def wait_settled(self) -> None:
        """Wait until the outcome of every row is known."""
        while self._unconfirmed_count:
            self._changed.clear()
            await self._changed.wait()
