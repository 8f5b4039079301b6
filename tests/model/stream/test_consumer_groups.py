# SPDX-License-Identifier: Apache-2.0
"""Groups of readers: what they remember, who owns them, and what they hold back."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headrace.model.counters import Counters
from headrace.model.errors import IllegalState, NotFound, PreconditionFailed, ResourceError
from headrace.model.message import new_message
from headrace.model.ports import Store
from headrace.model.stream.consumer_groups import ConsumerGroups
from headrace.model.stream.log import StreamLog
from headrace.model.stream.stream import Stream
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.store.journal.journal import Journal
from headrace.store.stream.log import DiskStreamLog
from headrace.testing.disk import FaultyDisk

HEAD = b"\x00\x01s\x00\x00"


class Host:
    """A virtual host whose streams are in memory; its facts are in a store that stays."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.vhost = VirtualHost(
            "/",
            store=self.store,
            counters=Counters(now_ms=1_000_000),
            make_stream=lambda name, **options: Stream(
                name,
                StreamLog(options["arguments"].get("x-max-length-bytes", -1)),
                **options,
            ),
        )
        self.groups: ConsumerGroups = self.vhost.groups

    def stream(self, name: str = "s", /, **arguments: Any) -> Stream:
        made = self.vhost.declare_queue(
            name, durable=True, arguments={"x-queue-type": "stream", **arguments}
        )
        assert isinstance(made, Stream)
        return made


def fill(stream: Stream, count: int, size: int = 1000) -> None:
    for _ in range(count):
        stream.enqueue(new_message(HEAD + bytes(size), 3, size))


def test_a_group_begins_once_and_moves_forward() -> None:
    host = Host()
    stream = host.stream()
    fill(stream, 10)
    group = host.groups.begin(stream, "g", 4)
    assert (group.initial, group.committed, group.position) == (4, None, 4)
    assert host.groups.begin(stream, "g", 9).initial == 4
    for position, force, after in ((6, False, 6), (5, False, 6), (6, False, 6), (2, True, 2)):
        group = host.groups.commit(stream, "g", position, force=force, now_ms=1)
        assert (group.initial, group.committed, group.position) == (4, after, after)
    assert group.lag()[0] == 8
    assert 7000 < group.lag()[1] < 9000
    with pytest.raises(PreconditionFailed, match="position 11 is beyond the end of stream 's', 10"):
        host.groups.commit(stream, "g", 11, now_ms=1)
    assert host.groups.commit(stream, "new", 3, now_ms=1).initial is None


def test_a_group_counts_the_records_that_its_readers_committed() -> None:
    host = Host()
    stream = host.stream(**{"x-max-length-bytes": 30_000})
    fill(stream, 10)
    host.groups.begin(stream, "g", 4)

    def committed(position: int, *, force: bool = False) -> int:
        return host.groups.commit(stream, "g", position, force=force, now_ms=1).committed_records

    assert committed(6) == 2
    assert committed(5) == 2, "a lower position changes nothing"
    assert committed(9, force=True) == 2, "an operator has read nothing"
    assert committed(10) == 3
    fill(stream, 90)
    first = stream.log.first_offset
    assert first > 10
    assert committed(first + 4) == 7, "retention removed what was before"
    # Where the readers of this one began is unknown.
    assert host.groups.commit(stream, "new", 95, now_ms=1).committed_records == 0
    assert host.groups.commit(stream, "new", 97, now_ms=1).committed_records == 2


def test_groups_are_remembered_and_go_with_their_stream() -> None:
    host = Host()
    streams = host.stream("a"), host.stream("b")
    fill(streams[0], 5)
    for stream in streams:
        host.groups.begin(stream, "g/ü", 0, pin=True)
    host.groups.commit(streams[0], "g/ü", 3, now_ms=7)
    host.groups.claim(streams[0], "g/ü", "me", "connection", now_ms=7)
    again = ConsumerGroups(host.vhost.facts)
    again.restore(iter(host.vhost.queues.values()), 1000)
    assert sorted(group.stream.name for group in again) == ["a", "b"]
    group = again.find(streams[0], "g/ü")
    assert (group.initial, group.committed, group.moved_ms, group.pin) == (0, 3, 7, True)
    assert streams[0].log.pinned_offset == 3
    assert again.is_claimed(group, 1000 + again.owner_ms - 1)
    assert not again.is_claimed(group, 1000 + again.owner_ms)
    host.vhost.delete_queue("b")
    assert [group.stream.name for group in host.groups] == ["a"]
    assert len(host.vhost.facts) == 1
    del host.vhost.queues["a"]  # As if it had been deleted just before a crash.
    again = ConsumerGroups(host.vhost.facts)
    again.restore(iter(host.vhost.queues.values()), 1000)
    assert len(host.vhost.facts) == len(list(again)) == 0


def test_a_fact_that_makes_no_sense_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    stream = host.stream()
    for value in (b"{", b"{}", b"[]"):
        host.vhost.facts.put(b"group/%d/g" % stream.id, value)
        host.groups.restore(iter(host.vhost.queues.values()), 1000)
    assert len(list(host.groups)) == 0
    assert caplog.text.count("cannot be read and is left out") == 3


def test_one_owner_at_a_time() -> None:
    host = Host()
    stream = host.stream()
    groups = host.groups
    groups.claim(stream, "g", "a", "first", now_ms=0)
    with pytest.raises(IllegalState, match="claimed by 'a', which is connected"):
        groups.claim(stream, "g", "b", "second", now_ms=0)
    for call in (
        lambda: groups.commit(stream, "g", 0, owner="b", now_ms=0),
        lambda: groups.commit(stream, "g", 0, now_ms=0),
        lambda: groups.delete(stream, "g", now_ms=0),
    ):
        with pytest.raises(IllegalState):
            call()
    groups.claim(stream, "g", "a", "third", now_ms=0)  # The same owner, from elsewhere.
    groups.on_holder_end("first", 0)
    groups.commit(stream, "g", 0, owner="a", now_ms=0)
    with pytest.raises(IllegalState):
        groups.claim(stream, "g", "b", "second", now_ms=0)
    groups.on_holder_end("third", 1000)
    with pytest.raises(IllegalState, match="claimed by 'a' for 30 more seconds"):
        groups.claim(stream, "g", "b", "second", now_ms=1500)
    groups.claim(stream, "g", "b", "second", now_ms=31_000)
    with pytest.raises(IllegalState, match="claimed by 'b'"):
        groups.commit(stream, "g", 0, owner="a", now_ms=31_000)
    groups.claim(stream, "g", "c", "second", force=True, now_ms=31_000)
    groups.release(stream, "g", "b")
    with pytest.raises(IllegalState):
        groups.claim(stream, "g", "a", "first", now_ms=31_000)
    groups.release(stream, "g", "c")
    groups.claim(stream, "g", "a", "first", now_ms=31_000)
    host.vhost.on_connection_closed("first")
    groups.delete(stream, "g", force=True, now_ms=31_000)
    with pytest.raises(NotFound, match="no group 'g' of stream 's'"):
        groups.find(stream, "g")


def test_groups_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.model.stream.consumer_groups.GROUPS_MAX", 2)
    host = Host()
    streams = [host.stream(name) for name in "abc"]
    for stream in streams[:2]:
        host.groups.begin(stream, "g", 0)
        host.groups.begin(stream, "g", 0)
    with pytest.raises(ResourceError, match="at most 2 groups"):
        host.groups.begin(streams[2], "g", 0)
    host.vhost.delete_queue("a")
    host.groups.begin(streams[2], "g", 0)
    host.groups.delete(streams[1], "g", now_ms=1)
    host.groups.claim(streams[1], "g", "me", "connection", now_ms=1)
    with pytest.raises(ResourceError):
        host.groups.commit(streams[1], "h", 0, now_ms=1)


def test_pages_go_over_all_groups() -> None:
    host = Host()
    streams = [host.stream(name) for name in "ab"]
    for stream in streams:
        for name in ("x", "y", "z"):
            host.groups.begin(stream, name, 0)
    seen = []
    after = (0, "")
    while page := host.groups.page(after, 2):
        seen += [(group.stream.name, group.name) for group in page]
        after = page[-1].stream.id, page[-1].name
    assert seen == [(stream, name) for stream in "ab" for name in "xyz"]
    assert len(host.groups.page((0, ""), 9, streams[1].id)) == 3


def test_a_pin_holds_retention_back_up_to_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    host.groups.pin_bytes_max = 20_000
    stream = host.stream(**{"x-max-length-bytes": 10_000})
    fill(stream, 5)
    host.groups.begin(stream, "free", 0)
    host.groups.begin(stream, "pinned", 2, pin=True)
    fill(stream, 15)
    assert stream.log.first_offset == 2
    host.groups.commit(stream, "pinned", 8, now_ms=1)
    assert stream.log.first_offset == 8
    with caplog.at_level(logging.WARNING):
        fill(stream, 40)
    assert caplog.text.count("may hold back 20000 bytes for groups") == 1
    assert 28_000 < stream.log.size <= 31_000
    group = host.groups.find(stream, "pinned")
    assert group.removed_count() == stream.log.first_offset - 8 > 0
    assert group.lag()[0] == 60 - stream.log.first_offset
    host.groups.delete(stream, "pinned", now_ms=1)
    assert stream.log.size <= 11_300
    assert host.vhost.counters.memory_used == stream.log.memory


def test_another_limit_of_pins_applies_to_groups_that_do_not_move() -> None:
    host = Host()
    host.groups.limit_pins(40_000)
    stream = host.stream(**{"x-max-length-bytes": 10_000})
    fill(stream, 5)
    host.groups.begin(stream, "abandoned", 0, pin=True)
    fill(stream, 40)
    assert stream.log.first_offset == 0
    host.groups.limit_pins(20_000)
    assert stream.log.size <= 30_000
    first = stream.log.first_offset
    host.groups.limit_pins(100_000)
    fill(stream, 60)
    assert stream.log.first_offset == first
    free = host.stream("free", **{"x-max-length-bytes": 10_000})
    host.groups.begin(free, "free", 0)
    host.groups.limit_pins(20_000)
    assert free.log.pinned_offset == -1


def test_a_group_that_stays_behind_its_pin_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = Host()
    host.groups.pin_bytes_max = 20_000
    stream = host.stream(**{"x-max-length-bytes": 10_000})
    fill(stream, 5)
    group = host.groups.begin(stream, "slow", 0, pin=True)

    def lines() -> int:
        return caplog.text.count("may hold back 20000 bytes for groups")

    with caplog.at_level(logging.WARNING):
        for _ in range(20):  # It reads half as fast as the stream grows.
            fill(stream, 10)
            position = max(group.position, stream.log.first_offset) + 5
            host.groups.commit(stream, "slow", position, now_ms=1)
        assert group.lag()[1] > 15_000
        assert lines() == 1
        # It catches up, and falls behind again.
        host.groups.commit(stream, "slow", stream.log.next_offset, now_ms=1)
        fill(stream, 40)
    assert lines() == 2


def test_a_pin_holds_the_segments_of_a_log_on_disk() -> None:
    disk = FaultyDisk(1)
    journal = Journal("/journal", disk=disk, segment_size=1 << 20, free_min=0, threaded=False)
    list(journal.recover())
    stream = DiskStreamLog("/stream", journal, segment_size=64 << 10, max_length_bytes=200_000)

    def write(count: int) -> None:
        for _ in range(count):
            stream.append(HEAD + bytes(1000), 3, 1000, 1000)
            journal.start_write()
            while journal.writer.jobs:
                journal.writer.step()
                journal.woken()

    write(100)
    stream.pinned_offset, stream.pin_bytes_max = 90, 300_000
    write(300)
    first = stream.first_offset
    assert 0 < first <= 90
    assert 400 * 1000 > stream.size > 310 * 1000
    assert stream.bytes_from(first) == stream.size
    assert stream.bytes_from(400) == 0
    middle = stream.bytes_from(200)
    assert abs(middle - 200 * 1072) < 10_000
    write(200)
    assert stream.first_offset > 90
    assert stream.size <= 500_000 + 2 * 65536
    stream.pinned_offset = -1
    write(1)
    assert stream.size <= 200_000 + 65536
