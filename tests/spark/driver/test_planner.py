# SPDX-License-Identifier: Apache-2.0
"""The range of the next micro-batch, with streams that change while a query runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.columns.archive.index import Archive
from headrace.columns.archive.split import ArchiveSplit
from headrace.columns.errors import ArchiveError, DataLossError
from headrace.columns.options.kinds import OptionError
from headrace.columns.options.options import read_options
from headrace.columns.positions import RangeSize, StreamBounds
from headrace.columns.schema.offsets import Offset, OffsetError, Range, first_of
from headrace.spark.driver.planner import Planner

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


class Streams:
    """A broker's streams: a record a second has arrived, each of 100 octets."""

    def __init__(self, **places: StreamBounds) -> None:
        self.known = places
        self.name = "broker-1"

    def identity(self) -> str:
        return self.name

    def places(self) -> dict[str, StreamBounds]:
        return dict(self.known)

    def offset_at(self, stream: str, moment: datetime) -> int:
        return min(int((moment - LONG_AGO).total_seconds()), self.known[stream].next)

    def first_offset(self, stream: str) -> int:
        return self.known[stream].first

    def measure(self, piece: Range, octets_max: int | None) -> RangeSize:
        count = len(piece) if octets_max is None else max(1, octets_max // 100)
        return RangeSize(100 * min(count, len(piece)), piece.first + min(count, len(piece)))

    def skipped(self, reader: str, streams: Iterable[str]) -> dict[str, int]:
        return {}


class Clock:
    """A clock that is moved by hand."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def planner(broker: Streams, clock: Clock | None = None, /, **options: str) -> Planner:
    """A planner of a query without a checkpoint."""
    chosen = options if "streams" in options else {"streamPattern": ".*", **options}
    given = {"uri": "amqp://broker", "startingOffsets": "earliest", **chosen}
    if "startingTimestamp" in options:
        del given["startingOffsets"]
    return Planner(read_options(given, streaming=True), broker, clock or Clock())


def test_a_query_begins_as_told_and_goes_on_to_the_end() -> None:
    streams = Streams(a=StreamBounds(3, 10, 7), b=StreamBounds(0, 0, 8))
    plan = planner(streams)
    start = plan.initial()
    assert start == Offset({"a": 3, "b": 0}, {"a": 3, "b": 0}, 0, "broker-1", {"a": 7, "b": 8}, {})
    end = plan.following(start)
    assert end is not None
    assert end.positions == {"a": 10, "b": 0}
    assert end.origin == {"a": 3, "b": 0}
    assert plan.following(end) is None
    streams.known["b"] = StreamBounds(0, 4, 8)
    second = plan.following(end)
    assert second is not None
    assert (second.positions, second.origin) == ({"a": 10, "b": 4}, {"b": 0})


def test_limits_hold_for_all_streams_together() -> None:
    streams = Streams(a=StreamBounds(0, 1000, 1), b=StreamBounds(0, 10, 2))
    end = planner(streams, maxRecordsPerTrigger="101").following(
        Offset({"a": 0, "b": 0}, broker="broker-1")
    )
    assert end is not None
    assert sum(end.positions.values()) == 101
    end = planner(streams, maxBytesPerTrigger="2000").following(
        Offset({"a": 0, "b": 0}, broker="broker-1")
    )
    assert end is not None
    assert 19 <= sum(end.positions.values()) <= 21
    unlimited = planner(streams, maxRecordsPerTrigger="5").following(
        Offset({"a": 0, "b": 0}, broker="broker-1"), unlimited=True
    )
    assert unlimited is not None
    assert sum(unlimited.positions.values()) == 1010


def test_a_batch_waits_for_enough_records_but_not_for_ever() -> None:
    streams, clock = Streams(a=StreamBounds(0, 5, 1)), Clock()
    plan = planner(streams, clock, minRecordsPerTrigger="10", maxTriggerDelay="30s")
    start = Offset({"a": 0}, broker="broker-1")
    assert plan.following(start) is None
    streams.known["a"] = StreamBounds(0, 10, 1)
    full = plan.following(start)
    assert full is not None
    assert full.positions == {"a": 10}
    streams.known["a"] = StreamBounds(0, 11, 1)
    assert plan.following(full) is None
    clock.now_s += 29
    assert plan.following(full) is None
    clock.now_s += 1
    late = plan.following(full)
    assert late is not None
    assert late.positions == {"a": 11}
    streams.known["a"] = StreamBounds(0, 12, 1)
    assert plan.following(late) is None  # The wait begins anew.
    plan.aim()
    assert plan.following(late) is not None  # What is available now is not waited with.


def test_available_now_is_what_was_there_at_the_start() -> None:
    streams = Streams(a=StreamBounds(0, 5, 1))
    plan = planner(streams, maxRecordsPerTrigger="3")
    plan.aim()
    streams.known.update(a=StreamBounds(0, 9, 1), b=StreamBounds(0, 2, 2))
    first = plan.following(Offset({"a": 0}, broker="broker-1"))
    assert first is not None
    assert (first.positions, first.origin) == ({"a": 3}, {})
    second = plan.following(first)
    assert second is not None
    assert second.positions == {"a": 5}
    assert plan.following(second) is None


def test_a_stream_that_comes_later_is_read_from_its_beginning() -> None:
    streams = Streams(a=StreamBounds(0, 5, 1))
    plan = planner(streams)
    streams.known["b"] = StreamBounds(2, 4, 2)
    end = plan.following(Offset({"a": 5}, broker="broker-1"))
    assert end is not None
    assert (end.positions, end.origin) == ({"a": 5, "b": 4}, {"b": 2})


def test_a_gap_fails_and_is_named() -> None:
    plan = planner(Streams(a=StreamBounds(40, 50, 1)))
    with pytest.raises(DataLossError, match=r"'a' .* offset 10 to 39: .*'failOnDataLoss'"):
        plan.following(Offset({"a": 10}, broker="broker-1"))


def test_a_gap_that_is_allowed_is_counted() -> None:
    streams = Streams(a=StreamBounds(40, 50, 1))
    plan = planner(streams, failOnDataLoss="false")
    before = Offset({"a": 10}, broker="broker-1", lost={"a": 2})
    end = plan.following(before)
    assert end is not None
    assert (end.positions, end.lost) == ({"a": 50}, {"a": 32})
    assert first_of(before, end) == {"a": 40}
    streams.known["a"] = StreamBounds(40, 60, 1)
    second = plan.following(end)
    assert second is not None
    assert (second.origin, second.lost) == ({}, {"a": 32})


def test_a_stream_that_is_gone_is_a_loss_unless_the_query_no_longer_names_it() -> None:
    streams = Streams(a=StreamBounds(0, 5, 1))
    before = Offset({"a": 0, "b": 3}, broker="broker-1")
    with pytest.raises(DataLossError, match="'b' is gone"):
        planner(streams).following(before)
    for allowed in (planner(streams, failOnDataLoss="false"), planner(streams, streams="a")):
        end = allowed.following(before)
        assert end is not None
        assert end.positions == {"a": 5}


def test_another_broker_is_refused() -> None:
    streams = Streams(a=StreamBounds(0, 5, 1))
    with pytest.raises(OffsetError, match=r"'broker-0' and this is 'broker-1'.*new checkpoint"):
        planner(streams).following(Offset({"a": 0}, broker="broker-0"))
    with pytest.raises(OffsetError, match="new checkpoint"):
        planner(streams).following(Offset({"a": 0}, broker=""))
    old = planner(streams).following(Offset({"a": 0}))  # Format 1 did not know.
    assert old is not None
    assert old.broker == "broker-1"


def test_a_stream_made_again_is_refused() -> None:
    plan = planner(Streams(a=StreamBounds(0, 50, 2)))
    with pytest.raises(OffsetError, match=r"'a' .*deleted and made again; start with a new check"):
        plan.following(Offset({"a": 10}, broker="broker-1", ids={"a": 1}))


def test_a_stream_that_ends_before_the_checkpoint_is_refused() -> None:
    plan = planner(Streams(a=StreamBounds(0, 5)))
    before = Offset({"a": 10}, broker="broker-1")
    with pytest.raises(OffsetError, match="deleted and made again"):
        plan.following(before)
    plan.aim()
    with pytest.raises(OffsetError, match="deleted and made again"):
        plan.following(before)


def test_moments_begin_a_query() -> None:
    streams = Streams(a=StreamBounds(0, 100, 1))
    moment = str((LONG_AGO + timedelta(seconds=60)).isoformat())
    assert planner(streams, startingTimestamp=moment).initial().positions == {"a": 60}
    late = str((LONG_AGO + timedelta(days=60)).isoformat())
    with pytest.raises(OptionError, match=r"'startingTimestamp': nothing arrived in stream 'a'"):
        planner(streams, startingTimestamp=late).initial()
    lenient = planner(streams, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert lenient.initial().positions == {"a": 100}


def test_a_number_beyond_the_end_is_refused() -> None:
    plan = planner(Streams(a=StreamBounds(0, 5, 1)), streams="a", startingOffsets='{"a": 6}')
    with pytest.raises(OptionError, match=r"gives offset 6 for stream 'a', which ends at 5"):
        plan.initial()


def archive_of(home: Path, *offsets: int) -> Archive:
    """An archive of the stream `a` with these offsets."""
    count = len(offsets)
    columns = {
        "stream": ["a"] * count,
        "offset": list(offsets),
        **{name: [b""] * count for name in ("body", "exchange", "routing_key", "content_header")},
    }
    home.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), home / f"{min(offsets)}.parquet")
    return Archive(str(home))


def cold(archive: Archive, streams: Streams, **options: str) -> Planner:
    """A planner of a query of the stream `a` from its beginning, with an archive."""
    texts = {"uri": "amqp://h", "stream": "a", "startingOffsets": "earliest"}
    read = read_options({**texts, "archive": archive.where, **options}, streaming=True)
    return Planner(read, streams, Clock(), None, archive)


def test_the_border_is_in_the_end_of_the_batch(tmp_path: Path) -> None:
    streams = Streams(a=StreamBounds(40, 100, 1))
    planner = cold(archive_of(tmp_path, *range(60)), streams, maxRecordsPerTrigger="50")
    start = planner.initial()
    assert start.positions == {"a": 0}
    end = planner.following(start)
    assert end is not None
    assert (end.positions, end.archived) == ({"a": 50}, {"a": 40})
    streams.known["a"] = StreamBounds(
        90, 100, 1
    )  # What retention does then is nothing to that batch.
    again = Offset.from_json(end.to_json())
    assert ArchiveSplit.of(again).cut([Range("a", 0, 50)]) == [
        Range("a", 0, 40),
        Range("a", 40, 50),
    ]
    with pytest.raises(ArchiveError, match="no records of stream 'a' from offset 60 to 89"):
        planner.following(end)


def test_a_batch_of_what_the_broker_has_forgets_the_border(tmp_path: Path) -> None:
    streams = Streams(a=StreamBounds(5, 10, 1))
    planner = cold(archive_of(tmp_path, *range(10)), streams)
    end = planner.following(planner.initial())
    assert end is not None
    assert end.archived == {"a": 5}
    streams.known["a"] = StreamBounds(5, 12, 1)
    after = planner.following(end)
    assert after is not None
    assert not after.archived


def test_holes_are_counted_and_left_out_again_when_the_archive_has_them_later(
    tmp_path: Path,
) -> None:
    streams = Streams(a=StreamBounds(20, 30, 1))
    archive = archive_of(tmp_path, *range(5), *range(8, 15))
    planner = cold(archive, streams, failOnDataLoss="false")
    end = planner.following(planner.initial())
    assert end is not None
    assert end.lost == {"a": 8}
    assert end.gaps == {"a": [[5, 8], [15, 20]]}
    archive_of(tmp_path, 6, 7)
    kept = ArchiveSplit.of(Offset.from_json(end.to_json())).cut([Range("a", 0, 30)])
    assert [(one.first, one.last) for one in kept] == [(0, 5), (8, 15), (20, 30)]


def test_an_archive_of_another_stream_is_refused(tmp_path: Path) -> None:
    planner = cold(archive_of(tmp_path, *range(50)), Streams(a=StreamBounds(3, 30, 1)))
    with pytest.raises(OffsetError, match="has offset 49 of stream 'a', which ends at 30"):
        planner.initial()


def test_an_archive_needs_a_broker_that_tells_who_it_is(tmp_path: Path) -> None:
    streams = Streams(a=StreamBounds(0, 30))
    streams.name = ""
    planner = cold(archive_of(tmp_path, *range(5)), streams)
    with pytest.raises(OptionError, match="'archive' needs Headrace"):
        planner.initial()
