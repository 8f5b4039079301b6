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
from headrace.columns.positions import RangeSize, StreamExtent
from headrace.columns.schema.offsets import Offset, OffsetError, Range, batch_start
from headrace.spark.driver.planner import StreamPlanner

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


class Streams:
    """The streams of a broker, where one record of 100 bytes has arrived per second."""

    def __init__(self, **extents: StreamExtent) -> None:
        self.known = extents
        self.name = "broker-1"

    def identity(self) -> str:
        return self.name

    def extents(self) -> dict[str, StreamExtent]:
        return dict(self.known)

    def offset_at(self, stream: str, moment: datetime) -> int:
        return min(int((moment - LONG_AGO).total_seconds()), self.known[stream].next)

    def first_offset(self, stream: str) -> int:
        return self.known[stream].first

    def measure(self, stream_range: Range, bytes_max: int | None) -> RangeSize:
        count = len(stream_range) if bytes_max is None else max(1, bytes_max // 100)
        return RangeSize(
            100 * min(count, len(stream_range)), stream_range.first + min(count, len(stream_range))
        )

    def skipped(self, reader: str, streams: Iterable[str]) -> dict[str, int]:
        return {}


class Clock:
    """A clock that the test advances."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def planner(broker: Streams, clock: Clock | None = None, /, **options: str) -> StreamPlanner:
    """Return the planner of a query without a checkpoint."""
    source_texts = options if "streams" in options else {"streamPattern": ".*", **options}
    texts = {"uri": "amqp://broker", "startingOffsets": "earliest", **source_texts}
    if "startingTimestamp" in options:
        del texts["startingOffsets"]
    return StreamPlanner(read_options(texts, streaming=True), broker, clock or Clock())


def test_a_query_begins_as_told_and_goes_on_to_the_end() -> None:
    streams = Streams(a=StreamExtent(3, 10, 7), b=StreamExtent(0, 0, 8))
    plan = planner(streams)
    start = plan.initial_offset()
    assert start == Offset({"a": 3, "b": 0}, {"a": 3, "b": 0}, 0, "broker-1", {"a": 7, "b": 8}, {})
    end = plan.plan_batch(start)
    assert end is not None
    assert end.positions == {"a": 10, "b": 0}
    assert end.origin == {"a": 3, "b": 0}
    assert plan.plan_batch(end) is None
    streams.known["b"] = StreamExtent(0, 4, 8)
    second = plan.plan_batch(end)
    assert second is not None
    assert (second.positions, second.origin) == ({"a": 10, "b": 4}, {"b": 0})


def test_limits_hold_for_all_streams_together() -> None:
    streams = Streams(a=StreamExtent(0, 1000, 1), b=StreamExtent(0, 10, 2))
    end = planner(streams, maxRecordsPerTrigger="101").plan_batch(
        Offset({"a": 0, "b": 0}, broker="broker-1")
    )
    assert end is not None
    assert sum(end.positions.values()) == 101
    end = planner(streams, maxBytesPerTrigger="2000").plan_batch(
        Offset({"a": 0, "b": 0}, broker="broker-1")
    )
    assert end is not None
    assert 19 <= sum(end.positions.values()) <= 21
    unlimited = planner(streams, maxRecordsPerTrigger="5").plan_batch(
        Offset({"a": 0, "b": 0}, broker="broker-1"), unlimited=True
    )
    assert unlimited is not None
    assert sum(unlimited.positions.values()) == 1010


def test_a_batch_waits_for_enough_records_but_not_for_ever() -> None:
    streams, clock = Streams(a=StreamExtent(0, 5, 1)), Clock()
    plan = planner(streams, clock, minRecordsPerTrigger="10", maxTriggerDelay="30s")
    start = Offset({"a": 0}, broker="broker-1")
    assert plan.plan_batch(start) is None
    streams.known["a"] = StreamExtent(0, 10, 1)
    full = plan.plan_batch(start)
    assert full is not None
    assert full.positions == {"a": 10}
    streams.known["a"] = StreamExtent(0, 11, 1)
    assert plan.plan_batch(full) is None
    clock.now_s += 29
    assert plan.plan_batch(full) is None
    clock.now_s += 1
    late = plan.plan_batch(full)
    assert late is not None
    assert late.positions == {"a": 11}
    streams.known["a"] = StreamExtent(0, 12, 1)
    assert plan.plan_batch(late) is None  # The wait begins anew.
    plan.fix_target()
    assert plan.plan_batch(late) is not None  # What is available now is not waited with.


def test_available_now_is_what_was_there_at_the_start() -> None:
    streams = Streams(a=StreamExtent(0, 5, 1))
    plan = planner(streams, maxRecordsPerTrigger="3")
    plan.fix_target()
    streams.known.update(a=StreamExtent(0, 9, 1), b=StreamExtent(0, 2, 2))
    first = plan.plan_batch(Offset({"a": 0}, broker="broker-1"))
    assert first is not None
    assert (first.positions, first.origin) == ({"a": 3}, {})
    second = plan.plan_batch(first)
    assert second is not None
    assert second.positions == {"a": 5}
    assert plan.plan_batch(second) is None


def test_a_stream_that_comes_later_is_read_from_its_beginning() -> None:
    streams = Streams(a=StreamExtent(0, 5, 1))
    plan = planner(streams)
    streams.known["b"] = StreamExtent(2, 4, 2)
    end = plan.plan_batch(Offset({"a": 5}, broker="broker-1"))
    assert end is not None
    assert (end.positions, end.origin) == ({"a": 5, "b": 4}, {"b": 2})


def test_a_gap_fails_and_is_named() -> None:
    plan = planner(Streams(a=StreamExtent(40, 50, 1)))
    with pytest.raises(DataLossError, match=r"'a' .* offset 10 to 39: .*'failOnDataLoss'"):
        plan.plan_batch(Offset({"a": 10}, broker="broker-1"))


def test_a_gap_that_is_allowed_is_counted() -> None:
    streams = Streams(a=StreamExtent(40, 50, 1))
    plan = planner(streams, failOnDataLoss="false")
    before = Offset({"a": 10}, broker="broker-1", lost={"a": 2})
    end = plan.plan_batch(before)
    assert end is not None
    assert (end.positions, end.lost) == ({"a": 50}, {"a": 32})
    assert batch_start(before, end) == {"a": 40}
    streams.known["a"] = StreamExtent(40, 60, 1)
    second = plan.plan_batch(end)
    assert second is not None
    assert (second.origin, second.lost) == ({}, {"a": 32})


def test_a_stream_that_is_gone_is_a_loss_unless_the_query_no_longer_names_it() -> None:
    streams = Streams(a=StreamExtent(0, 5, 1))
    before = Offset({"a": 0, "b": 3}, broker="broker-1")
    with pytest.raises(DataLossError, match="'b' is gone"):
        planner(streams).plan_batch(before)
    for allowed in (planner(streams, failOnDataLoss="false"), planner(streams, streams="a")):
        end = allowed.plan_batch(before)
        assert end is not None
        assert end.positions == {"a": 5}


def test_another_broker_is_refused() -> None:
    streams = Streams(a=StreamExtent(0, 5, 1))
    with pytest.raises(OffsetError, match=r"'broker-0' and this is 'broker-1'.*new checkpoint"):
        planner(streams).plan_batch(Offset({"a": 0}, broker="broker-0"))
    with pytest.raises(OffsetError, match="new checkpoint"):
        planner(streams).plan_batch(Offset({"a": 0}, broker=""))
    old = planner(streams).plan_batch(Offset({"a": 0}))  # Format 1 did not know.
    assert old is not None
    assert old.broker == "broker-1"


def test_a_stream_made_again_is_refused() -> None:
    plan = planner(Streams(a=StreamExtent(0, 50, 2)))
    with pytest.raises(OffsetError, match=r"'a' .*created again; start with a new check"):
        plan.plan_batch(Offset({"a": 10}, broker="broker-1", ids={"a": 1}))


def test_a_stream_that_ends_before_the_checkpoint_is_refused() -> None:
    plan = planner(Streams(a=StreamExtent(0, 5)))
    before = Offset({"a": 10}, broker="broker-1")
    with pytest.raises(OffsetError, match="deleted and created again"):
        plan.plan_batch(before)
    plan.fix_target()
    with pytest.raises(OffsetError, match="deleted and created again"):
        plan.plan_batch(before)


def test_moments_begin_a_query() -> None:
    streams = Streams(a=StreamExtent(0, 100, 1))
    moment = str((LONG_AGO + timedelta(seconds=60)).isoformat())
    assert planner(streams, startingTimestamp=moment).initial_offset().positions == {"a": 60}
    late = str((LONG_AGO + timedelta(days=60)).isoformat())
    with pytest.raises(OptionError, match=r"'startingTimestamp': nothing arrived in stream 'a'"):
        planner(streams, startingTimestamp=late).initial_offset()
    lenient = planner(streams, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert lenient.initial_offset().positions == {"a": 100}


def test_a_number_beyond_the_end_is_refused() -> None:
    plan = planner(Streams(a=StreamExtent(0, 5, 1)), streams="a", startingOffsets='{"a": 6}')
    with pytest.raises(OptionError, match=r"gives offset 6 for stream 'a', which ends at 5"):
        plan.initial_offset()


def archive_of(home: Path, *offsets: int) -> Archive:
    """Write an archive of the stream `a` with these offsets; return its index."""
    count = len(offsets)
    columns = {
        "stream": ["a"] * count,
        "offset": list(offsets),
        **{name: [b""] * count for name in ("body", "exchange", "routing_key", "content_header")},
    }
    home.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), home / f"{min(offsets)}.parquet")
    return Archive(str(home))


def cold(archive: Archive, streams: Streams, **options: str) -> StreamPlanner:
    """Return the planner of a query on the stream `a` from its beginning, with an archive."""
    texts = {"uri": "amqp://h", "stream": "a", "startingOffsets": "earliest"}
    read = read_options({**texts, "archive": archive.location, **options}, streaming=True)
    return StreamPlanner(read, streams, Clock(), None, archive)


def test_the_border_is_in_the_end_of_the_batch(tmp_path: Path) -> None:
    streams = Streams(a=StreamExtent(40, 100, 1))
    planner = cold(archive_of(tmp_path, *range(60)), streams, maxRecordsPerTrigger="50")
    start = planner.initial_offset()
    assert start.positions == {"a": 0}
    end = planner.plan_batch(start)
    assert end is not None
    assert (end.positions, end.archived) == ({"a": 50}, {"a": 40})
    streams.known["a"] = StreamExtent(
        90, 100, 1
    )  # What retention does then is nothing to that batch.
    again = Offset.from_json(end.to_json())
    assert ArchiveSplit.from_offset(again).cut([Range("a", 0, 50)]) == [
        Range("a", 0, 40),
        Range("a", 40, 50),
    ]
    with pytest.raises(ArchiveError, match="no records of stream 'a' from offset 60 to 89"):
        planner.plan_batch(end)


def test_a_batch_of_what_the_broker_has_forgets_the_border(tmp_path: Path) -> None:
    streams = Streams(a=StreamExtent(5, 10, 1))
    planner = cold(archive_of(tmp_path, *range(10)), streams)
    end = planner.plan_batch(planner.initial_offset())
    assert end is not None
    assert end.archived == {"a": 5}
    streams.known["a"] = StreamExtent(5, 12, 1)
    after = planner.plan_batch(end)
    assert after is not None
    assert not after.archived


def test_holes_are_counted_and_left_out_again_when_the_archive_has_them_later(
    tmp_path: Path,
) -> None:
    streams = Streams(a=StreamExtent(20, 30, 1))
    archive = archive_of(tmp_path, *range(5), *range(8, 15))
    planner = cold(archive, streams, failOnDataLoss="false")
    end = planner.plan_batch(planner.initial_offset())
    assert end is not None
    assert end.lost == {"a": 8}
    assert end.gaps == {"a": [[5, 8], [15, 20]]}
    archive_of(tmp_path, 6, 7)
    retained = ArchiveSplit.from_offset(Offset.from_json(end.to_json())).cut([Range("a", 0, 30)])
    assert [(one.first, one.last) for one in retained] == [(0, 5), (8, 15), (20, 30)]


def test_an_archive_of_another_stream_is_refused(tmp_path: Path) -> None:
    planner = cold(archive_of(tmp_path, *range(50)), Streams(a=StreamExtent(3, 30, 1)))
    with pytest.raises(OffsetError, match="has offset 49 of stream 'a', which ends at 30"):
        planner.initial_offset()


def test_an_archive_needs_a_broker_that_tells_who_it_is(tmp_path: Path) -> None:
    streams = Streams(a=StreamExtent(0, 30))
    streams.name = ""
    planner = cold(archive_of(tmp_path, *range(5)), streams)
    with pytest.raises(OptionError, match="'archive' needs Headrace"):
        planner.initial_offset()
