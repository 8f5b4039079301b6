# SPDX-License-Identifier: Apache-2.0
"""Ranges of streams as Arrow batches, read in the process of a task."""

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
from headrace.columns.errors import DataLossError, missing
from headrace.columns.read import archived, spool
from headrace.columns.read.arrow import batches
from headrace.columns.runtime.connections import Purpose, requests, run_with_retry
from headrace.columns.schema.offsets import Range, without

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.client import blocking
    from headrace.client.stream.blocks import Block
    from headrace.client.url import Secret
    from headrace.columns.archive.index import Run

log = logging.getLogger(__name__)


BREAKS_MAX: Final = 5  # Connections in a row that may break without a record.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The options of a read of ranges, from streams or queues."""

    uri: Secret
    fail_on_data_loss: bool = True
    filters: tuple[str, ...] = ()
    match_unfiltered: bool = False
    reconnect_timeout_s: float = 60.0
    browse: bool = False  # Browse an ordinary queue, whose positions are the offsets.
    reader: str = ""  # The name under which the broker counts lost records, or "".
    lane: int = 0  # The connections to use; see headrace.columns.runtime.connections.own_lane.
    batch_records_max: int = BLOCK_RECORDS_MAX
    archive: str = ""  # The directory of records that retention dropped, or "".
    spooled: bool = False  # The ranges are of spools; see headrace.columns.read.spool.


def read(
    reading: Reading,
    piece: Range,
    names: tuple[str, ...],
    source: str = "",
    runs: Sequence[Run] = (),
) -> Iterator[pa.RecordBatch]:
    """Read a range of a stream as Arrow batches; `source` is the queue whose leases it holds.

    With `runs` the range is read from the archive, otherwise from the broker. Records that
    retention drops meanwhile are read from the archive, if there is one.
    """
    if runs:
        yield from archived.read(reading.archive, piece, names, runs)
        return
    at = piece.first
    while at < piece.last:
        try:
            rest = Range(piece.stream, at, piece.last)
            yield from batches(source or piece.stream, names, records(reading, rest))
            return
        except _Dropped as dropped:
            gone = Range(piece.stream, dropped.first, dropped.last)
        yield from _from_archive(reading, gone, names)
        at = gone.last


def records(reading: Reading, piece: Range) -> Iterator[Block]:
    """Read a range of a stream in wire form, in order, each record once.

    After a lost connection the read continues on a new one, after the last record yielded.
    """
    if reading.spooled:
        yield from spool.blocks(piece.stream, piece.first, piece.last)
        return
    at = piece.first
    breaks = 0
    while at < piece.last:
        try:
            for block in _read_blocks(reading, piece, at):
                yield block
                at, breaks = block.last() + 1, 0
            return
        except _Broken as broken:
            breaks += 1
            if breaks > BREAKS_MAX:
                raise broken.error from None
            log.info("stream %r is read on at offset %d: %s", piece.stream, at, broken.error)
        except OffsetGone:
            oldest = _oldest(reading, piece)
            if reading.archive and oldest > at:
                raise _Dropped(at, oldest) from None
            at = _skip(reading, piece, at, oldest)
        except NotFound:
            raise missing(piece.stream) from None


class _Dropped(Exception):
    """Retention dropped the records [first, last), and there is an archive."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(first, last)
        self.first = first
        self.last = last


def _from_archive(
    reading: Reading, gone: Range, names: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Read records from the archive that were dropped after their batch was planned."""
    cover = archived.look_up(reading.archive, gone.stream, gone.first, gone.last)
    cover.check(reading.archive, gone.stream, fail=reading.fail_on_data_loss)
    for first, last in cover.holes:
        if reading.reader:
            _report_gap(reading, gone.stream, first, last)
    for rest in without(gone, cover.holes):
        yield from archived.read(reading.archive, rest, names, cover.runs)


class _Broken(Exception):
    """The connection broke during the read."""

    def __init__(self, error: ConnectionLost | ConnectionClosed) -> None:
        super().__init__(error)
        self.error = error


def _read_blocks(reading: Reading, piece: Range, at: int) -> Iterator[Block]:
    """Read the records from `at` on over one connection, which is retried up to the first."""

    def begin(connection: blocking.Connection) -> tuple[Block | None, Iterator[Block]]:
        stream = connection.stream(piece.stream)
        chosen = reading.filters or None
        following = iter(
            stream.read_blocks(
                at,
                piece.last,
                records_max=reading.batch_records_max,
                filter=chosen,
                match_unfiltered=reading.match_unfiltered,
                browse=reading.browse,
            )
        )
        return next(following, None), following

    block, following = run_with_retry(
        reading.uri, reading.reconnect_timeout_s, begin, known=True, lane=reading.lane
    )
    while block is not None:
        yield block
        try:
            block = next(following, None)
        except (ConnectionLost, ConnectionClosed) as error:
            raise _Broken(error) from None


def _oldest(reading: Reading, piece: Range) -> int:
    """Return the oldest offset of the stream, or the end of the range if that is lower."""

    def oldest(connection: blocking.Connection) -> int:
        return connection.stream(piece.stream).first_offset()

    timeout_s = reading.reconnect_timeout_s
    return min(run_with_retry(reading.uri, timeout_s, oldest, Purpose.ASK, known=True), piece.last)


def _skip(reading: Reading, piece: Range, at: int, first: int) -> int:
    """Skip the lost records [at, first); DataLossError unless the options allow it."""
    lost = (
        f"stream {piece.stream!r} no longer has the records from offset {at} to {first - 1}"
        f": they were dropped by its retention before the query read them"
    )
    if reading.fail_on_data_loss or first <= at:
        raise DataLossError(
            f"{lost}; set option 'failOnDataLoss' to 'false' to go on without them"
        ) from None
    log.warning("%s; going on without %d records", lost, first - at)
    if reading.reader and first > at:
        _report_gap(reading, piece.stream, at, first)
    return first


def _report_gap(reading: Reading, stream: str, first: int, last: int) -> None:
    """Report lost records to the broker, which counts them."""

    def ask(connection: blocking.Connection) -> None:
        if isinstance(connection.server_properties.get("headrace_id"), str):
            asked = requests(connection)
            asked.ask("gap.note", stream=stream, reader=reading.reader, first=first, last=last)

    try:
        run_with_retry(reading.uri, reading.reconnect_timeout_s, ask, Purpose.ASK, known=True)
    except RequestRefused as refused:
        log.warning("stream %r: what is lost is not counted: %s", stream, refused)
