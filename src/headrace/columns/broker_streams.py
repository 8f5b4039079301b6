# SPDX-License-Identifier: Apache-2.0
"""The streams of a read at their broker: names, extents and offsets.

Headrace returns the extents of all streams in one answer. At other brokers the client uses plain
AMQP and finds the end of a stream by consuming. There streams have no id, and cannot be measured or
listed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.client.errors import NotFound, OffsetGone, PreconditionFailed
from headrace.client.message import decode_properties
from headrace.client.requests import RequestRefused
from headrace.columns.archive.split import split_ranges
from headrace.columns.archived_broker import ArchivedBroker
from headrace.columns.errors import missing_stream_error
from headrace.columns.options.kinds import NAMES_MAX, OptionError
from headrace.columns.positions import OffsetLookup, RangeSize, StreamExtent, resolve_bound
from headrace.columns.read.header_columns import ARRIVAL_HEADER
from headrace.columns.runtime.connections import Purpose, requests, run_with_retry
from headrace.columns.schema.offsets import Range

if TYPE_CHECKING:
    from headrace.client import blocking
    from headrace.columns.archive.index import Archive
    from headrace.columns.archive.split import ArchiveSplit
    from headrace.columns.options.options import ReadOptions
    from headrace.untyped import Json, JsonObject

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
REQUEST_STREAMS_MAX: Final = 1000  # Streams in one request.
NAMES_LIFETIME_S: Final = 1.0  # The time for which names of a pattern or super stream are cached.

T = TypeVar("T")


def find_stream_ranges(options: ReadOptions, *, plain: bool = False) -> list[Range]:
    """Return the ranges of a batch read of streams that starts now, without empty ranges.

    `plain` is as in `BrokerStreams`.

    Raises:
        OptionError: the bounds in the options do not fit the streams.
    """
    broker = BrokerStreams(options, plain=plain)
    return _resolve_ranges(options, broker, broker.extents())


def find_archived_ranges(
    options: ReadOptions, archive: Archive
) -> tuple[list[Range], ArchiveSplit]:
    """Return the ranges of a batch read with an archive, and their split with the broker.

    The ranges include the records that retention has dropped.
    """
    broker = ArchivedBroker(BrokerStreams(options), archive)
    extents = broker.extents()
    ranges = _resolve_ranges(options, broker, extents)
    oldest = {stream: extent.first for stream, extent in extents.items()}
    return ranges, split_ranges(archive, oldest, ranges, fail=options.fail_on_data_loss)


def _resolve_ranges(
    options: ReadOptions, broker: OffsetLookup, extents: Mapping[str, StreamExtent]
) -> list[Range]:
    """Return the ranges between the bounds in the options, without empty ranges."""
    start = resolve_bound(broker, options.starting, extents)
    end = resolve_bound(broker, options.ending, extents)
    ranges = []
    for stream in sorted(extents):
        if end[stream] < start[stream]:
            raise OptionError(
                f"option {options.ending.option!r} gives offset {end[stream]} for stream "
                f"{stream!r}, before {start[stream]} of option {options.starting.option!r}"
            )
        if end[stream] > start[stream]:
            ranges.append(Range(stream, start[stream], end[stream]))
    return ranges


class BrokerStreams:
    """The broker of the streams of one read; it implements `positions.Broker`."""

    def __init__(
        self,
        options: ReadOptions,
        clock: Callable[[], float] = time.monotonic,
        *,
        plain: bool = False,
    ) -> None:
        """Use plain AMQP only if `plain` is True.

        Headrace's requests need the permission to write to amq.default, which a user may lack.
        """
        assert options.streams is not None
        self._plain = plain
        self.options = options
        self.streams = options.streams
        self._clock = clock
        self._identity = ""
        self._names: tuple[str, ...] = options.streams.names
        self._names_read_at_s: float | None = None

    def identity(self) -> str:
        """Return the broker's identity as in its last answer; "" if the broker has none."""
        if not self._identity and not self._plain:
            headrace_id = self._run(
                lambda connection: connection.server_properties.get("headrace_id")
            )
            self._identity = headrace_id if isinstance(headrace_id, str) else ""
        return self._identity

    def extents(self) -> dict[str, StreamExtent]:
        """Return the current extent of each stream to read, by name."""
        names = self._stream_names()
        if not self.identity():
            return {name: StreamExtent(0, self._query_stream(name, _last_offset)) for name in names}
        extents: dict[str, StreamExtent] = {}
        for chunk in _chunks(names):
            try:
                answer = self.request("stream.list", streams=chunk)
            except RequestRefused as refused:
                raise OptionError(f"option {self.streams.option!r}: {refused.text}") from None
            self._identity = answer["broker"]
            if answer["missing"] and self.streams.names:
                raise missing_stream_error(answer["missing"][0])
            for entry in answer["streams"]:
                extents[entry["stream"]] = StreamExtent(entry["first"], entry["next"], entry["id"])
        return extents

    def offset_at(self, stream: str, moment: datetime) -> int:
        """Return the first offset that arrived at `moment` or later; the end if none did."""
        if not self.identity():
            return self._run_on_stream(stream, partial(_offset_at, moment))
        timestamp_ms = -((EPOCH - moment) // MILLISECOND)  # Rounded up to a millisecond.
        answer = self._ask_about_stream(stream, "stream.offset", timestamp_ms=max(0, timestamp_ms))
        return int(answer["offset"])

    def first_offset(self, stream: str) -> int:
        """Return the offset of the oldest record."""
        if not self.identity():
            return self._query_stream(stream, lambda stream_reader: stream_reader.first_offset())
        return int(self._ask_about_stream(stream, "stream.info")["first"])

    def measure(self, stream_range: Range, bytes_max: int | None) -> RangeSize:
        """Measure the first records of a range: at least one, then up to `bytes_max` bytes."""
        if not self.identity():
            raise OptionError("option 'maxBytesPerTrigger' needs Headrace as the broker")
        limit = {} if bytes_max is None else {"octets_max": bytes_max}
        answer = self.request(
            "stream.measure",
            stream=stream_range.stream,
            **{"from": stream_range.first, "to": stream_range.last},
            **limit,
        )
        return RangeSize(answer["octets"], max(answer["next"], stream_range.first + 1))

    def skipped(self, reader: str, streams: Iterable[str]) -> dict[str, int]:
        """Return the number of lost records that tasks of `reader` reported, by stream.

        Streams without lost records are left out.
        """
        skipped: dict[str, int] = {}
        if self.identity():
            for chunk in _chunks(streams):
                skipped |= self.request("gap.count", reader=reader, streams=chunk)["records"]
        return skipped

    def request(self, operation: str, **fields: Json) -> JsonObject:
        """Send a request to the broker and return its answer; raise RequestRefused if refused."""
        return run_with_retry(
            self.options.uri,
            self.options.reconnect_timeout_s,
            lambda connection: requests(connection).ask(operation, **fields),
            Purpose.ASK,
        )

    def _ask_about_stream(self, stream: str, operation: str, **fields: Json) -> JsonObject:
        try:
            return self.request(operation, stream=stream, **fields)
        except RequestRefused as refused:
            if refused.code in ("not-found", "precondition"):
                raise missing_stream_error(stream) from None
            raise OptionError(f"option {self.streams.option!r}: {refused.text}") from None

    def _stream_names(self) -> tuple[str, ...]:
        """Return the names of the streams to read now."""
        streams = self.streams
        if streams.names:
            return streams.names
        now = self._clock()
        if self._names_read_at_s is None or now - self._names_read_at_s >= NAMES_LIFETIME_S:
            if not self.identity():
                raise OptionError(
                    f"option {streams.option!r} needs Headrace as the broker; give 'streams'"
                )
            self._names = tuple(
                self._matching_names() if streams.pattern else self._partition_names()
            )
            self._names_read_at_s = now
        if len(self._names) > NAMES_MAX:
            raise OptionError(
                f"option {streams.option!r} selects {len(self._names)} streams; a query may read "
                f"{NAMES_MAX} at most"
            )
        return self._names

    def _matching_names(self) -> Iterator[str]:
        """Yield the names of the broker's streams that match the pattern."""
        pattern = re.compile(self.streams.pattern)
        last_name = ""
        while True:
            answer = self.request("stream.list", after=last_name)
            for entry in answer["streams"]:
                if pattern.fullmatch(entry["stream"]):
                    yield entry["stream"]
            last_name = answer["after"]
            if not last_name:
                return

    def _partition_names(self) -> Iterator[str]:
        """Yield the names of the super stream's partitions."""
        exchange = self.streams.super_stream
        try:
            answer = self.request("superstream.info", exchange=exchange)
        except RequestRefused as refused:
            raise OptionError(f"option 'superStream': {refused.text}") from None
        for partition in answer["partitions"]:
            yield partition["stream"]

    def _query_stream(self, stream: str, query: Callable[[blocking.Stream], T]) -> T:
        """Run `query` on a stream, as `_run_on_stream` does."""
        return self._run_on_stream(stream, lambda _, stream_reader: query(stream_reader))

    def _run_on_stream(
        self, stream: str, query: Callable[[blocking.Connection, blocking.Stream], T]
    ) -> T:
        """Run `query` on a stream with a connection; raise StreamMissingError if it is missing."""
        try:
            return self._run(lambda connection: query(connection, connection.stream(stream)))
        except (NotFound, PreconditionFailed):
            raise missing_stream_error(stream) from None

    def _run(self, operation: Callable[[blocking.Connection], T]) -> T:
        return run_with_retry(self.options.uri, self.options.reconnect_timeout_s, operation)


def _offset_at(moment: datetime, connection: blocking.Connection, stream: blocking.Stream) -> int:
    """Return the first offset that arrived at `moment` or later, to the millisecond.

    AMQP's timestamps are in seconds. So the function searches the records of that second, which
    have a more exact time if the broker is Headrace.
    """
    second = moment.replace(microsecond=0)
    low = stream.offset_at(second)
    if second == moment or not isinstance(connection.server_properties.get("headrace_id"), str):
        return low
    high = stream.offset_at(second + timedelta(seconds=1))
    moment_ms = -((EPOCH - moment) // MILLISECOND)  # Rounded up to a millisecond.
    while low < high:
        middle = (low + high) // 2
        try:
            (record,) = next(iter(stream.read(middle, middle + 1)))
        except OffsetGone:
            low = middle + 1
            continue
        arrival_ms = (decode_properties(record.header).headers or {})[ARRIVAL_HEADER]
        assert isinstance(arrival_ms, int), arrival_ms
        if arrival_ms < moment_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _last_offset(stream: blocking.Stream) -> int:
    return stream.last_offset()


def _chunks(names: Iterable[str]) -> Iterator[list[str]]:
    """Yield the names in lists that each fit into one request."""
    chunk: list[str] = []
    for name in names:
        chunk.append(name)
        if len(chunk) == REQUEST_STREAMS_MAX:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
