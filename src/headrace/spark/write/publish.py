# SPDX-License-Identifier: Apache-2.0
"""Publishes of one partition, at least once: every message is confirmed, or the task fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

from headrace.client.url import parse_url
from headrace.columns.options.uri import urls
from headrace.spark.write.rows import RowError
from headrace.spec.tables import V0_9_1

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.client import Channel, blocking
    from headrace.columns.options.options import WriteOptions
    from headrace.spark.write.encode import Encoded
    from headrace.spark.write.rows import Row

UNCONFIRMED_MAX: Final = 2000  # Unconfirmed messages, in versions without bulk publishes.
ERRORS_SHOWN_MAX: Final = 10


class PublishError(RuntimeError):
    """Rows were not published; the text has their places and the reasons, without their data."""


@dataclass(slots=True)
class PartitionResult:
    """The result of one partition: rows seen, rows failed, and the errors by row."""

    partition: int | None = None
    seen: int = 0
    failed: int = 0
    errors: dict[int, RowError] = field(default_factory=dict)

    def fail(self, row: int, error: RowError) -> None:
        """Count a row that was not published."""
        self.failed += 1
        self.errors[row] = error

    def check(self) -> None:
        """Raise PublishError if rows were not published."""
        if self.failed:
            raise PublishError(self.report())

    def report(self) -> str:
        """Return the rows that were not published, with reasons."""
        where = "" if self.partition is None else f" of partition {self.partition}"
        shown = sorted(self.errors.items())[:ERRORS_SHOWN_MAX]
        lines = [f"row {row}{_keys(error)}: {error.reason}" for row, error in shown]
        if self.failed > len(shown):
            lines.append(f"and {self.failed - len(shown)} more")
        return (
            f"{self.failed} of the {self.seen} rows{where} were not published: {'; '.join(lines)}"
        )


def _keys(error: RowError) -> str:
    """Return the fields by which a sender can find a row."""
    keys = {
        "exchange": error.exchange,
        "routing_key": error.routing_key,
        "message_id": error.message_id,
    }
    listed = ", ".join(f"{name} {value!r}" for name, value in keys.items() if value)
    return f" ({listed})" if listed else ""


def publish(
    options: WriteOptions,
    batches: Iterator[pa.RecordBatch],
    partition: int | None = None,
    ids: str | None = None,
) -> int:
    """Publish all rows and wait for all confirms; return their number.

    With `ids` rows without message id get one: `ids` and their number. PublishError when the broker
    did not take a row.
    """
    result = PartitionResult(partition)
    first = next(batches, None)
    if first is None:
        return 0  # An empty partition costs no connection.
    if parse_url(urls(options.uri)[0]).version is V0_9_1:
        _publish_in_bulk(options, chain((first,), batches), result, ids)
    else:
        asyncio.run(_publish_each(options, chain((first,), batches), result))
    result.check()
    return result.seen


def _publish_in_bulk(
    options: WriteOptions,
    batches: Iterator[pa.RecordBatch],
    result: PartitionResult,
    ids: str | None,
) -> None:
    from headrace.client.blocking.bulk import BulkPublisher
    from headrace.columns.runtime.connections import Purpose, run_with_retry
    from headrace.spark.write.encode import encode

    last: Encoded | None = None

    def begin(connection: blocking.Connection) -> BulkPublisher:
        return BulkPublisher(connection)

    timeout_s = options.reconnect_timeout_s
    with run_with_retry(options.uri, timeout_s, begin, Purpose.WRITE, known=True) as publisher:
        sent = before = 0
        for batch in batches:
            before, sent_before = result.seen, sent
            names = None if ids is None else (ids, before)
            last = encode(options, batch, names, publisher.frame_max)
            for octets, count in last.frames(publisher.number, publisher.frame_max):
                publisher.send(octets, count)
                sent += count
            result.seen += batch.num_rows
            for row, error in last.errors.items():
                result.fail(before + row, error)
            if result.failed or publisher.failed:
                break
        publisher.finish()
        for number, failure in publisher.failures.items():
            row = number
            if last is not None and number >= sent_before:
                row = before + last.row_of(number - sent_before)
            result.errors[row] = RowError(
                failure.reason, failure.exchange, failure.routing_key, failure.message_id
            )
        result.failed += publisher.failed


async def _publish_each(
    options: WriteOptions, batches: Iterator[pa.RecordBatch], result: PartitionResult
) -> None:
    """Publish message by message, for versions that have no bulk publishes."""
    from headrace.client import connect
    from headrace.spark.write.rows import rows as rows_of

    batch = await asyncio.to_thread(next, batches, None)
    async with await connect(urls(options.uri), reconnect=None) as connection:
        channel = await connection.channel(unconfirmed_max=UNCONFIRMED_MAX)
        pending = _PendingConfirms(result)
        while batch is not None and not result.failed:
            for row in rows_of(options, batch):
                if isinstance(row, RowError):
                    result.fail(result.seen, row)
                else:
                    await _publish_row(channel, options, row, pending.expect(result.seen, row))
                result.seen += 1
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
    """The unconfirmed rows of a partition, which are published one by one."""

    def __init__(self, result: PartitionResult) -> None:
        self._result = result
        self._open = 0
        self._changed = asyncio.Event()

    def expect(self, index: int, row: Row) -> Callable[[asyncio.Future[None]], None]:
        """Return a callback that takes the outcome of the row `index`."""
        self._open += 1

        def settle(confirmed: asyncio.Future[None]) -> None:
            self._open -= 1
            error = confirmed.exception()
            if error is not None:
                keys = (row.exchange, row.routing_key, row.message.message_id)
                self._result.fail(index, RowError(str(error), *keys))
            self._changed.set()

        return settle

    async def wait_settled(self) -> None:
        """Wait until the outcome of every row is known."""
        while self._open:
            self._changed.clear()
            await self._changed.wait()
