# SPDX-License-Identifier: Apache-2.0
"""The streams of a read at their broker, for a planner.

Headrace answers for all streams in one request. For any other broker the client uses plain AMQP: it
finds the end of a stream by consuming; streams have no identity, and cannot be measured or listed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.client.errors import NotFound, OffsetGone, PreconditionFailed
from headrace.client.message import decode_properties
from headrace.client.requests import RequestRefused
from headrace.columns.archive.split import split_ranges
from headrace.columns.archived_broker import ArchivedBroker
from headrace.columns.errors import missing
from headrace.columns.options.kinds import NAMES_MAX, OptionError
from headrace.columns.positions import OffsetLookup, RangeSize, StreamBounds, positions
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
LISTED_MAX: Final = 1000  # Streams of one request.
NAMES_S: Final = 1.0  # Lifetime of the cached names of a pattern or a super stream.

T = TypeVar("T")


def stream_ranges(options: ReadOptions, *, plain: bool = False) -> list[Range]:
    """Return the ranges that a batch read of streams covers now, without empty ones.

    `plain` is as in `Survey`. OptionError when the bounds do not fit the streams.
    """
    broker = Survey(options, plain=plain)
    return _ranges(options, broker, broker.places())


def archived_ranges(options: ReadOptions, archive: Archive) -> tuple[list[Range], ArchiveSplit]:
    """Return the ranges as if retention had dropped nothing, and their split with the archive."""
    broker = ArchivedBroker(Survey(options), archive)
    places = broker.places()
    ranges = _ranges(options, broker, places)
    oldest = {stream: place.first for stream, place in places.items()}
    return ranges, split_ranges(archive, oldest, ranges, fail=options.fail_on_data_loss)


def _ranges(
    options: ReadOptions, broker: OffsetLookup, places: Mapping[str, StreamBounds]
) -> list[Range]:
    start = positions(broker, options.starting, places)
    end = positions(broker, options.ending, places)
    ranges = []
    for stream in sorted(places):
        if end[stream] < start[stream]:
            raise OptionError(
                f"option {options.ending.option!r} gives offset {end[stream]} for stream "
                f"{stream!r}, before {start[stream]} of option {options.starting.option!r}"
            )
        if end[stream] > start[stream]:
            ranges.append(Range(stream, start[stream], end[stream]))
    return ranges


class Survey:
    """The streams of one read, at their broker."""

    def __init__(
        self,
        options: ReadOptions,
        clock: Callable[[], float] = time.monotonic,
        *,
        plain: bool = False,
    ) -> None:
        """`plain` sends no requests, which need the permission to write to amq.default."""
        assert options.streams is not None
        self._plain = plain
        self.options = options
        self.streams = options.streams
        self._clock = clock
        self._identity = ""
        self._names: tuple[str, ...] = options.streams.names
        self._names_at: float | None = None

    def identity(self) -> str:
        """Return the broker's identity in its last answer; "" if the broker has none."""
        if not self._identity and not self._plain:
            headrace_id = self._do(
                lambda connection: connection.server_properties.get("headrace_id")
            )
            self._identity = headrace_id if isinstance(headrace_id, str) else ""
        return self._identity

    def places(self) -> dict[str, StreamBounds]:
        """Return the streams to read now, with their bounds."""
        names = self._current()
        if not self.identity():
            return {name: StreamBounds(0, self._of(name, _last)) for name in names}
        places: dict[str, StreamBounds] = {}
        for chunk in _chunks(names):
            try:
                answer = self.ask("stream.list", streams=chunk)
            except RequestRefused as refused:
                raise OptionError(f"option {self.streams.option!r}: {refused.text}") from None
            self._identity = answer["broker"]
            if answer["missing"] and self.streams.names:
                raise missing(answer["missing"][0])
            for info in answer["streams"]:
                places[info["stream"]] = StreamBounds(info["first"], info["next"], info["id"])
        return places

    def offset_at(self, stream: str, moment: datetime) -> int:
        """Return the first offset that arrived at `moment` or later; the end if none did."""
        if not self.identity():
            return self._do_of(stream, lambda link, asked: _offset_at(link, asked, moment))
        timestamp_ms = -((EPOCH - moment) // MILLISECOND)  # Rounded up.
        return int(self._ask(stream, "stream.offset", timestamp_ms=max(0, timestamp_ms))["offset"])

    def first_offset(self, stream: str) -> int:
        """Return the offset of the oldest record."""
        if not self.identity():
            return self._of(stream, lambda asked: asked.first_offset())
        return int(self._ask(stream, "stream.info")["first"])

    def measure(self, piece: Range, octets_max: int | None) -> RangeSize:
        """Measure the first records of a range, up to a number of bytes, but at least one."""
        if not self.identity():
            raise OptionError("option 'maxBytesPerTrigger' needs Headrace as the broker")
        limit = {} if octets_max is None else {"octets_max": octets_max}
        answer = self.ask(
            "stream.measure",
            stream=piece.stream,
            **{"from": piece.first, "to": piece.last},
            **limit,
        )
        return RangeSize(answer["octets"], max(answer["next"], piece.first + 1))

    def skipped(self, reader: str, streams: Iterable[str]) -> dict[str, int]:
        """Return the number of lost records of each stream that tasks reported, above 0."""
        skipped: dict[str, int] = {}
        if self.identity():
            for chunk in _chunks(streams):
                skipped |= self.ask("gap.count", reader=reader, streams=chunk)["records"]
        return skipped

    def ask(self, what: str, **fields: Json) -> JsonObject:
        """Send a request to the broker; RequestRefused when it refuses."""
        return run_with_retry(
            self.options.uri,
            self.options.reconnect_timeout_s,
            lambda connection: requests(connection).ask(what, **fields),
            Purpose.ASK,
        )

    def _ask(self, stream: str, what: str, **fields: Json) -> JsonObject:
        try:
            return self.ask(what, stream=stream, **fields)
        except RequestRefused as refused:
            if refused.code in ("not-found", "precondition"):
                raise missing(stream) from None
            raise OptionError(f"option {self.streams.option!r}: {refused.text}") from None

    def _current(self) -> tuple[str, ...]:
        """Return the names of the streams to read now."""
        streams = self.streams
        if streams.names:
            return streams.names
        now = self._clock()
        if self._names_at is None or now - self._names_at >= NAMES_S:
            if not self.identity():
                raise OptionError(
                    f"option {streams.option!r} needs Headrace as the broker; give 'streams'"
                )
            self._names = tuple(self._matching() if streams.pattern else self._partitions())
            self._names_at = now
        if len(self._names) > NAMES_MAX:
            raise OptionError(
                f"option {streams.option!r} means {len(self._names)} streams; a query may read "
                f"{NAMES_MAX} at most"
            )
        return self._names

    def _matching(self) -> Iterator[str]:
        pattern = re.compile(self.streams.pattern)
        after = ""
        while True:
            answer = self.ask("stream.list", after=after)
            for info in answer["streams"]:
                if pattern.fullmatch(info["stream"]):
                    yield info["stream"]
            after = answer["after"]
            if not after:
                return

    def _partitions(self) -> Iterator[str]:
        exchange = self.streams.super_stream
        try:
            answer = self.ask("superstream.info", exchange=exchange)
        except RequestRefused as refused:
            raise OptionError(f"option 'superStream': {refused.text}") from None
        for partition in answer["partitions"]:
            yield partition["stream"]

    def _of(self, stream: str, ask: Callable[[blocking.Stream], T]) -> T:
        return self._do_of(stream, lambda _, asked: ask(asked))

    def _do_of(self, stream: str, ask: Callable[[blocking.Connection, blocking.Stream], T]) -> T:
        try:
            return self._do(lambda connection: ask(connection, connection.stream(stream)))
        except (NotFound, PreconditionFailed):
            raise missing(stream) from None

    def _do(self, work: Callable[[blocking.Connection], T]) -> T:
        return run_with_retry(self.options.uri, self.options.reconnect_timeout_s, work)


def _offset_at(connection: blocking.Connection, stream: blocking.Stream, moment: datetime) -> int:
    """Return the first offset that arrived at `moment` or later, to the millisecond.

    AMQP's timestamps are in seconds, so the search reads Headrace's records of that second.
    """
    second = moment.replace(microsecond=0)
    low = stream.offset_at(second)
    if second == moment or not isinstance(connection.server_properties.get("headrace_id"), str):
        return low
    high = stream.offset_at(second + timedelta(seconds=1))
    wanted_ms = -((EPOCH - moment) // MILLISECOND)  # Rounded up.
    while low < high:
        middle = (low + high) // 2
        try:
            (record,) = next(iter(stream.read(middle, middle + 1)))
        except OffsetGone:
            low = middle + 1
            continue
        arrival_ms = (decode_properties(record.header).headers or {})[ARRIVAL_HEADER]
        assert isinstance(arrival_ms, int), arrival_ms
        if arrival_ms < wanted_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _last(stream: blocking.Stream) -> int:
    return stream.last_offset()


def _chunks(names: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    for name in names:
        chunk.append(name)
        if len(chunk) == LISTED_MAX:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
