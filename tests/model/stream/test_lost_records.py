# SPDX-License-Identifier: Apache-2.0
"""Lost records of streams: counted once, whichever reader reports them, and bounded."""

from __future__ import annotations

import pytest

from headrace.model.counters import Counters
from headrace.model.errors import PreconditionFailed
from headrace.model.keyvalue import Facts
from headrace.model.ports import Store
from headrace.model.stream import lost_records
from headrace.model.stream.log import StreamLog
from headrace.model.stream.lost_records import LostRecords
from headrace.model.stream.stream import Stream


def stream_that_begins_with(first: int, number: int) -> Stream:
    log = StreamLog()
    log.first_offset = first
    stream = Stream("s", log, counters=Counters(), store=Store())
    stream.id = number
    return stream


@pytest.fixture
def facts() -> Facts:
    return Facts(Store())


def test_what_several_tell_is_counted_once(facts: Facts) -> None:
    lost, stream = LostRecords(facts), stream_that_begins_with(100, 7)
    assert lost.record(stream, "query", 0, 10, 1) == 10
    assert lost.record(stream, "query", 5, 20, 2) == 20
    assert lost.record(stream, "query", 50, 60, 3) == 30
    assert lost.record(stream, "query", 0, 60, 4) == 60
    assert lost.record(stream, "other", 90, 100, 5) == 10
    assert (lost.count(stream, "query"), lost.count(stream, "nobody")) == (60, 0)
    with pytest.raises(PreconditionFailed, match="begins with 100"):
        lost.record(stream, "query", 90, 101, 6)
    lost.delete_all(stream)
    assert len(facts) == 0


def test_ranges_and_readers_are_bounded(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_records, "RANGES_MAX", 2)
    monkeypatch.setattr(lost_records, "READERS_MAX", 2)
    lost, stream = LostRecords(facts), stream_that_begins_with(100, 7)
    for first in (0, 20, 40):
        lost.record(stream, "a", first, first + 10, 1)
    assert lost.record(stream, "a", 0, 50, 2) == 50  # What was only counted counts no more.
    lost.record(stream, "b", 0, 5, 3)
    lost.record(stream, "c", 0, 6, 4)
    assert [lost.count(stream, reader) for reader in "abc"] == [0, 5, 6]
