# SPDX-License-Identifier: Apache-2.0
"""The broker as a query sees it: where streams begin and end, and ranges of them as Arrow batches.

One connection per process and URL is kept, because Spark uses its Python workers again. All that
is asked here goes through the blocking client; nothing that is raised repeats the URL.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.client import Reconnect, blocking
from headrace.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectFailed,
    NotFound,
    OffsetGone,
)
from headrace.spark.arrow import Record, batches
from headrace.spark.options import Bound, Edge, OptionError, Position, Streams
from headrace.spark.uri import urls

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.client.url import Secret
    from headrace.spark.offsets import Range

log = logging.getLogger(__name__)

RECONNECT = Reconnect(delay_s=0.2, delay_max_s=5.0, attempts=8)  # About 20 seconds.

_connections: dict[tuple[int, str], blocking.Connection] = {}
_known: set[tuple[int, str]] = set()  # Where this process has been connected before.


class DataLossError(RuntimeError):
    """Records that the query should read next are no longer in the stream."""


class StreamMissingError(RuntimeError):
    """There is no such stream."""


def connection(uri: Secret) -> blocking.Connection:
    """The connection of this process to the broker, made at the first call and after a loss.

    A broker that was there before gets the time of `RECONNECT` to come back; one that was never
    reached fails the query at once.
    """
    key = (os.getpid(), str(uri))
    kept = _connections.get(key)
    if kept is not None and not kept.is_closed:
        return kept
    delays = RECONNECT.delays() if key in _known else iter(())
    while True:
        try:
            kept = blocking.connect(urls(uri), reconnect=RECONNECT, name="headrace-spark")
        except AuthenticationFailed:
            raise
        except ConnectFailed:
            delay_s = next(delays, None)
            if delay_s is None:
                raise
            time.sleep(delay_s)
        else:
            _connections[key] = kept
            _known.add(key)
            return kept


def forget(uri: Secret) -> None:
    """Close the connection of this process; the next call makes a new one."""
    kept = _connections.pop((os.getpid(), str(uri)), None)
    if kept is not None:
        kept.close()


def streams(wanted: Streams | None) -> tuple[str, ...]:
    """The names of the streams that `wanted` means now."""
    if wanted is None or not wanted.names:
        option = "queue" if wanted is None else wanted.option
        raise OptionError(f"option {option!r}: the broker cannot serve this")
    return wanted.names


def positions(uri: Secret, bound: Bound, streams: tuple[str, ...]) -> dict[str, int]:
    """The offsets that `bound` means now. A number outside of a stream is refused."""
    return {
        stream: _position(uri, stream, at, bound.option) for stream, at in bound.of(streams).items()
    }


def ends(uri: Secret, streams: Iterable[str]) -> dict[str, int]:
    """The end of what is committed in each stream: the offset of the record that comes next."""
    return {stream: _ask(uri, stream, Edge.LATEST) for stream in streams}


def read(
    uri: Secret, piece: Range, names: tuple[str, ...], *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """A range of a stream as Arrow batches."""
    records = _records(uri, piece, fail_on_data_loss=fail_on_data_loss)
    return batches(piece.stream, names, records)


def _records(uri: Secret, piece: Range, *, fail_on_data_loss: bool) -> Iterator[Sequence[Record]]:
    at = piece.first
    while at < piece.last:
        try:
            for batch in connection(uri).stream(piece.stream).read(at, piece.last):
                yield batch
                at = batch[-1][0] + 1
            return
        except OffsetGone:
            first = min(_ask(uri, piece.stream, Edge.EARLIEST), piece.last)
            lost = (
                f"stream {piece.stream!r} no longer has the records from offset {at} to {first - 1}"
                f": they were dropped by its retention before the query read them"
            )
            if fail_on_data_loss or first <= at:
                raise DataLossError(
                    f"{lost}; set option 'failOnDataLoss' to 'false' to go on without them"
                ) from None
            log.warning("%s; going on without %d records", lost, first - at)
            at = first
        except NotFound:
            raise _missing(piece.stream) from None


def _position(uri: Secret, stream: str, at: Position, option: str) -> int:
    if not isinstance(at, int):
        return _ask(uri, stream, at)
    end = _ask(uri, stream, Edge.LATEST)
    if at > end:
        raise OptionError(
            f"option {option!r} gives offset {at} for stream {stream!r}, which ends at {end}"
        )
    return at


def _ask(uri: Secret, stream: str, at: Edge | datetime) -> int:
    """The offset of a place in a stream. Asked again once when the connection was lost."""
    for attempt in (1, 2):
        try:
            asked = connection(uri).stream(stream)
            if at is Edge.EARLIEST:
                return asked.first_offset()
            if at is Edge.LATEST:
                return asked.last_offset()
            assert isinstance(at, datetime)
            return asked.offset_at(at)
        except NotFound:
            raise _missing(stream) from None
        except ClientError:
            forget(uri)
            if attempt == 2:
                raise
    raise AssertionError


def _missing(stream: str) -> StreamMissingError:
    return StreamMissingError(
        f"option 'stream': the broker has no stream {stream!r} in this virtual host; a stream is a "
        "queue declared with x-queue-type=stream"
    )
