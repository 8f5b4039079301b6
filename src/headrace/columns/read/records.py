# SPDX-License-Identifier: Apache-2.0
"""Reading of ranges of streams and queues as Arrow batches, in the process of a task."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.client.errors import (
    ConnectionClosed,
    ConnectionLost,
    NotFound,
    OffsetGone,
)
from headrace.client.requests import RequestRefused
from headrace.client.stream.blocks import BLOCK_RECORDS_MAX
from headrace.columns.errors import DataLossError, missing_stream_error
from headrace.columns.read import archived, spool
from headrace.columns.read.arrow import convert_blocks
from headrace.columns.runtime.connections import Purpose, requests, run_with_retry
from headrace.columns.schema.offsets import Range, subtract_gaps

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.client import blocking
    from headrace.client.stream.blocks import Block
    from headrace.client.url import Secret
    from headrace.columns.archive.index import OffsetRun

log = logging.getLogger(__name__)

BREAKS_MAX: Final = 5  # Connections in a row that may break without a record read.


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRead:
    """The options with which a task reads ranges of streams or queues."""

    uri: Secret
    fail_on_data_loss: bool = True
    filters: tuple[str, ...] = ()
    match_unfiltered: bool = False
    reconnect_timeout_s: float = 60.0
    browse: bool = False  # Browse a queue, where offsets are positions of messages.
    reader: str = ""  # The name under which the broker counts lost records, or "".
    pool: int = 0  # The connection pool; see headrace.columns.runtime.connections.reserve_pool.
    batch_records_max: int = BLOCK_RECORDS_MAX
    archive: str = ""  # The directory of records that retention dropped, or "".
    spooled: bool = False  # The ranges name spool directories; see headrace.columns.read.spool.


def read_batches(
    options: RangeRead,
    stream_range: Range,
    names: tuple[str, ...],
    source: str = "",
    runs: Sequence[OffsetRun] = (),
) -> Iterator[pa.RecordBatch]:
    """Read the columns `names` of a range as Arrow batches.

    `source` is the queue of leased messages, or "". With `runs` the range is read from the archive,
    otherwise from the broker. Records that retention drops during the read are read from the
    archive, if the options have one.

    Raises:
        DataLossError: records are lost, and the options do not allow that.
        StreamMissingError: the stream does not exist.
    """
    if runs:
        yield from archived.read_archived_range(options.archive, stream_range, names, runs)
        return
    offset = stream_range.first
    while offset < stream_range.last:
        try:
            remaining = Range(stream_range.stream, offset, stream_range.last)
            yield from convert_blocks(
                source or stream_range.stream, names, read_blocks(options, remaining)
            )
            return
        except _RecordsDropped as error:
            dropped_range = Range(stream_range.stream, error.first, error.last)
        yield from _read_archived(options, dropped_range, names)
        offset = dropped_range.last


def read_blocks(options: RangeRead, stream_range: Range) -> Iterator[Block]:
    """Read a range of a stream in wire form, in order, each record once.

    After a lost connection the read continues on a new connection, after the last yielded record.
    """
    if options.spooled:
        yield from spool.read_blocks(stream_range.stream, stream_range.first, stream_range.last)
        return
    offset = stream_range.first
    break_count = 0
    while offset < stream_range.last:
        try:
            for block in _read_connection(options, stream_range, offset):
                yield block
                offset, break_count = block.last() + 1, 0
            return
        except _ConnectionBroke as interruption:
            break_count += 1
            if break_count > BREAKS_MAX:
                raise interruption.error from None
            log.info(
                "stream %r is read on at offset %d: %s",
                stream_range.stream,
                offset,
                interruption.error,
            )
        except OffsetGone:
            oldest_offset = _find_oldest(options, stream_range)
            if options.archive and oldest_offset > offset:
                raise _RecordsDropped(offset, oldest_offset) from None
            offset = _skip_lost(options, stream_range, offset, oldest_offset)
        except NotFound:
            raise missing_stream_error(stream_range.stream) from None


class _RecordsDropped(Exception):
    """Retention dropped the records [first, last), which an archive may have."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(first, last)
        self.first = first
        self.last = last


def _read_archived(
    options: RangeRead, dropped_range: Range, names: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Read from the archive records that retention dropped after their batch was planned."""
    coverage = archived.look_up_coverage(
        options.archive, dropped_range.stream, dropped_range.first, dropped_range.last
    )
    coverage.check(options.archive, dropped_range.stream, fail=options.fail_on_data_loss)
    for first, last in coverage.holes:
        if options.reader:
            _report_gap(options, dropped_range.stream, first, last)
    for remaining in subtract_gaps(dropped_range, coverage.holes):
        yield from archived.read_archived_range(options.archive, remaining, names, coverage.runs)


class _ConnectionBroke(Exception):
    """The connection broke during the read."""

    def __init__(self, error: ConnectionLost | ConnectionClosed) -> None:
        super().__init__(error)
        self.error = error


def _read_connection(options: RangeRead, stream_range: Range, offset: int) -> Iterator[Block]:
    """Read the records from `offset` on over one connection, with retries up to the first block."""

    def open_blocks(connection: blocking.Connection) -> tuple[Block | None, Iterator[Block]]:
        stream = connection.stream(stream_range.stream)
        filters = options.filters or None
        next_blocks = iter(
            stream.read_blocks(
                offset,
                stream_range.last,
                records_max=options.batch_records_max,
                filter=filters,
                match_unfiltered=options.match_unfiltered,
                browse=options.browse,
            )
        )
        return next(next_blocks, None), next_blocks

    block, next_blocks = run_with_retry(
        options.uri,
        options.reconnect_timeout_s,
        open_blocks,
        reached_before=True,
        pool=options.pool,
    )
    while block is not None:
        yield block
        try:
            block = next(next_blocks, None)
        except (ConnectionLost, ConnectionClosed) as error:
            raise _ConnectionBroke(error) from None


def _find_oldest(options: RangeRead, stream_range: Range) -> int:
    """Return the oldest offset of the stream, or the end of the range if that is lower."""

    def request_first_offset(connection: blocking.Connection) -> int:
        return connection.stream(stream_range.stream).first_offset()

    timeout_s = options.reconnect_timeout_s
    return min(
        run_with_retry(
            options.uri, timeout_s, request_first_offset, Purpose.ASK, reached_before=True
        ),
        stream_range.last,
    )


def _skip_lost(options: RangeRead, stream_range: Range, first: int, end: int) -> int:
    """Log and report the lost records [first, end); return `end`, where the read continues.

    Raises:
        DataLossError: the options do not allow lost records.
    """
    loss = (
        f"stream {stream_range.stream!r} no longer has the records from offset {first} to {end - 1}"
        f": they were dropped by its retention before the query read them"
    )
    if options.fail_on_data_loss or end <= first:
        raise DataLossError(
            f"{loss}; set option 'failOnDataLoss' to 'false' to go on without them"
        ) from None
    log.warning("%s; going on without %d records", loss, end - first)
    if options.reader and end > first:
        _report_gap(options, stream_range.stream, first, end)
    return end


def _report_gap(options: RangeRead, stream: str, first: int, last: int) -> None:
    """Report lost records to the broker, which counts them."""

    def send_gap(connection: blocking.Connection) -> None:
        if isinstance(connection.server_properties.get("headrace_id"), str):
            requests_client = requests(connection)
            requests_client.ask(
                "gap.note", stream=stream, reader=options.reader, first=first, last=last
            )

    try:
        run_with_retry(
            options.uri, options.reconnect_timeout_s, send_gap, Purpose.ASK, reached_before=True
        )
    except RequestRefused as refused:
        log.warning("stream %r: lost records are not counted: %s", stream, refused)
