# SPDX-License-Identifier: Apache-2.0
"""Logs of streams: every offset keeps its octets, whatever happens to the machine."""

from random import Random

import pytest

from headrace.store.errors import StoreError
from headrace.store.journal.journal import Journal
from headrace.store.segment.record import residue
from headrace.store.segment.segment import file_name
from headrace.store.stream.log import BUFFER_SIZE, DiskStreamLog
from headrace.testing.disk import FaultyDisk

STREAM = "/streams/7"
HEAD = b"\x01e\x01k\x00\x00"


class Host:
    """A journal and the log of a stream on one disk."""

    def __init__(
        self,
        disk: FaultyDisk,
        *,
        segment_size: int = 64 << 10,
        max_length_bytes: int = -1,
        max_age_ms: int = -1,
    ) -> None:
        self.disk = disk
        self.journal = Journal(
            "/journal", disk=disk, segment_size=64 << 10, free_min=0, threaded=False
        )
        self.journal.read()
        self.log = DiskStreamLog(
            STREAM,
            self.journal,
            segment_size=segment_size,
            max_length_bytes=max_length_bytes,
            max_age_ms=max_age_ms,
        )
        assert list(self.journal.recover()) == []

    def append(self, body: bytes, arrived_ms: int = 1000) -> int:
        return self.log.append(HEAD + body, 4, len(body), arrived_ms)

    def sync(self) -> None:
        self.journal.start_write()
        while self.journal.writer.jobs:
            self.journal.writer.step()
            self.journal.woken()

    def read_all(self, first: int = 0, bytes_max: int = 10_000) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        at = first
        while batch := self.log.read(at, bytes_max):
            for offset, data, address_len, body_size, _ in batch:
                assert (address_len, body_size) == (4, len(data) - len(HEAD))
                assert offset == at
                found[offset] = data[len(HEAD) :]
                at = offset + 1
        return found


def test_nothing_is_given_out_before_it_is_durable() -> None:
    host = Host(FaultyDisk())
    assert host.append(b"first") == 0
    assert host.log.committed_offset == 0
    assert host.log.read(0, 1000) == []
    assert host.journal.appended > host.journal.synced
    host.sync()
    assert host.log.committed_offset == 1
    assert host.read_all() == {0: b"first"}
    assert host.journal.appended == host.journal.synced


def test_any_range_gives_the_same_octets_again() -> None:
    random = Random(5)
    host = Host(FaultyDisk())
    bodies = [random.randbytes(random.choice((0, 5, 100, 3000))) for _ in range(400)]
    bodies[200] = random.randbytes(300_000)
    for body in bodies:
        host.append(body)
        if random.random() < 0.2:
            host.sync()
    host.sync()
    assert len(host.log.segments) > 3
    for _ in range(40):
        first = random.randrange(400)
        found = host.read_all(first, random.choice((1, 500, 5000, 300_000)))
        assert found == dict(enumerate(bodies[first:], first))


def test_a_buffer_that_one_large_group_filled_is_let_go() -> None:
    host = Host(FaultyDisk())
    for _ in range(20):
        host.append(bytes(50_000))
    host.sync()
    assert len(host.log.buffer) + len(host.log.spare_buffer or b"") > 4 * BUFFER_SIZE
    for _ in range(10):
        host.append(b"small")
        host.sync()
    assert len(host.log.buffer) == BUFFER_SIZE
    assert host.log.spare_buffer is not None
    assert len(host.log.spare_buffer) == BUFFER_SIZE


def test_an_offset_by_time_is_the_first_that_came_then_or_later() -> None:
    host = Host(FaultyDisk())
    for number in range(300):
        host.append(bytes(1000), arrived_ms=10_000 + 10 * number)
    host.sync()
    for number in (0, 1, 63, 64, 150, 299):
        assert host.log.offset_at(10_000 + 10 * number) == number
        assert host.log.offset_at(10_000 + 10 * number - 3) == number
    assert host.log.offset_at(0) == 0
    assert host.log.offset_at(99_999) == 300


def test_retention_by_size_drops_whole_segments_and_reuses_no_offset() -> None:
    disk = FaultyDisk()
    host = Host(disk, max_length_bytes=640_000)
    for _ in range(3000):
        host.append(bytes(1000))
        host.sync()
    first = host.log.first_offset
    assert first > 2000
    assert host.log.size <= 640_000 + (80 << 10)
    assert min(host.read_all(first)) == first
    assert min(offset for offset, *_ in host.log.read(0, 1000)) == first
    disk.kill()
    host = Host(disk, max_length_bytes=640_000)
    assert host.log.first_offset == first
    assert host.append(b"next") == 3000


def test_the_size_of_segments_can_change() -> None:
    host = Host(FaultyDisk(), segment_size=1 << 20)
    for _ in range(200):
        host.append(b"x" * 1000)
    assert len(host.log.segments) == 1
    host.log.limit_segments(64 << 10)
    for _ in range(200):
        host.append(b"x" * 1000)
    small = len(host.log.segments)
    assert small > 3
    host.log.limit_segments(0)  # What is usual again.
    for _ in range(200):
        host.append(b"x" * 1000)
    assert len(host.log.segments) == small
    host.sync()
    assert len(host.read_all(bytes_max=1 << 20)) == 600


def test_retention_by_age_ends_segments_in_time() -> None:
    host = Host(FaultyDisk(), max_age_ms=1000)
    for number in range(100):
        host.append(b"old", arrived_ms=100 * number)
        host.sync()
    assert 85 <= host.log.first_offset <= 90


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_takes_no_offset_that_was_committed(seed: int) -> None:
    random = Random(seed)
    disk = FaultyDisk(seed)
    bodies: list[bytes] = []
    committed = 0
    for _ in range(8):
        host = Host(disk)
        found = host.read_all()
        assert committed <= len(found) <= len(bodies)
        assert list(found.values()) == bodies[: len(found)]
        assert host.log.next_offset == len(found)
        del bodies[len(found) :]
        for _ in range(random.randrange(60)):
            bodies.append(random.randbytes(random.choice((10, 1000, 9000))))
            assert host.append(bodies[-1]) == len(bodies) - 1
            if random.random() < 0.3:
                disk.error_rate = random.choice((0.0, 0.3))
                host.journal.start_write()
                if host.journal.writer.jobs:
                    host.journal.writer.step()
                    host.journal.woken()
        committed = host.log.committed_offset
        disk.error_rate = 0.0
        random.choice((disk.kill, disk.power_cut))()


def test_a_damaged_record_costs_itself_alone() -> None:
    disk = FaultyDisk()
    host = Host(disk)
    for number in range(20):
        host.append(bytes([number]) * 200)
        host.sync()
    disk.kill()
    path = f"{STREAM}/{file_name(1)}"
    disk.flip_bit(path, bytes(disk.names_now[path].cache).index(bytes([9]) * 200) + 50)
    host = Host(disk)
    offsets = [offset for offset, *_ in host.log.read(0, 100_000)]
    offsets += [offset for offset, *_ in host.log.read(offsets[-1] + 1, 100_000)]
    assert offsets == [n for n in range(20) if n != 9]
    assert host.append(b"next") == 20


def test_a_deleted_stream_leaves_nothing() -> None:
    disk = FaultyDisk()
    host = Host(disk)
    host.append(b"x")
    host.sync()
    host.append(b"y")
    host.log.delete()
    host.sync()
    host.journal.close()
    assert disk.names(STREAM) == []


def test_a_newer_stream_is_refused() -> None:
    disk = FaultyDisk()
    host = Host(disk)
    host.append(b"x")
    host.sync()
    disk.kill()
    cache = disk.names_now[f"{STREAM}/{file_name(1)}"].cache
    cache[11] = 77
    cache[56:64] = residue(0, bytes(cache), 0, 56).to_bytes(8, "big")
    with pytest.raises(StoreError, match="newer"):
        Host(disk)


def test_octets_of_any_range_are_found_by_the_index() -> None:
    """The sizes of a range add up, and a limit is exact to the record."""
    random = Random(7)
    host = Host(FaultyDisk())
    for _ in range(600):
        host.append(random.randbytes(random.choice((0, 5, 100, 3000))))
        if random.random() < 0.2:
            host.sync()
    host.append(random.randbytes(300_000))
    host.sync()
    host.append(b"not durable")
    log = host.log
    end = log.committed_offset
    assert (end, len(log.segments) > 3) == (601, True)
    each = [log.measure(offset, offset + 1) for offset in range(end)]
    assert min(each) >= 56
    assert log.measure(end, end + 1) == 0
    for _ in range(100):
        first = random.randrange(end)
        last = random.randrange(first, end + 1)
        assert log.measure(first, last) == sum(each[first:last])
        limit = random.choice((0, 500, 5000, 300_000, 10_000_000))
        stop = log.find_end(first, last, limit)
        if first < last:
            assert first < stop <= last
            assert stop == first + 1 or log.measure(first, stop) <= limit
            assert stop == last or log.measure(first, stop + 1) > limit


def test_retention_counts_all_that_a_stream_writes() -> None:
    """Messages that come one by one, each with the mark of its group, and in transactions."""
    disk = FaultyDisk()
    host = Host(disk, max_length_bytes=300_000)
    for number in range(20_000):
        if number % 3 == 0:
            host.journal.begin()
            host.append(b"x")
            host.journal.commit()
        else:
            host.append(b"x")
        host.sync()
        if number % 5000 == 4999:
            held = sum(segment.end for segment in host.log.segments[:-1]) + host.log.file_offset
            assert host.log.size == held <= 300_000 + (64 << 10)
    counted = host.log.size
    disk.power_cut()
    assert abs(Host(disk).log.size - counted) < 1000


def several_segments(disk: FaultyDisk) -> tuple[Host, list[int]]:
    """A stream of some segments, and the first offset of each."""
    host = Host(disk)
    for number in range(60):
        host.append(bytes([number]) * 4000)
        host.sync()
    assert len(host.log.segments) >= 4
    return host, [segment.first_offset for segment in host.log.segments]


def offsets_of(host: Host) -> list[int]:
    found: list[int] = []
    at = 0
    while batch := host.log.read(at, 10_000):
        found += [offset for offset, *_ in batch]
        at = found[-1] + 1
    return found


def cut(disk: FaultyDisk, number: int, size: int) -> None:
    file = disk.names_now[f"{STREAM}/{file_name(number)}"]
    del file.cache[size:]
    del file.platter[size:]


def damaged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for r in caplog.records if (line := r.getMessage()).startswith("damaged: ")]


@pytest.mark.parametrize("size", [0, 30_000])
def test_a_segment_that_is_cut_while_it_is_read_costs_what_was_cut(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    host, firsts = several_segments(disk)
    cut(disk, 2, size)
    kept = size // 4080
    expected = [n for n in range(60) if not firsts[1] + kept <= n < firsts[2]]
    for _ in range(3):
        assert offsets_of(host) == expected
    (line,) = damaged(caplog)
    assert file_name(2) in line
    assert host.append(b"next") == 60
    host.sync()
    assert offsets_of(host) == [*expected, 60]


@pytest.mark.parametrize("size", [0, 30_000])
def test_a_segment_that_was_cut_before_the_start_costs_what_was_cut(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    _, firsts = several_segments(disk)
    disk.kill()
    cut(disk, 2, size)
    host = Host(disk)
    kept = size // 4080
    assert offsets_of(host) == [n for n in range(60) if not firsts[1] + kept <= n < firsts[2]]
    assert any(file_name(2) in line for line in damaged(caplog))
    assert host.append(b"next") == 60


def test_a_segment_that_is_missing_is_said_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    _, firsts = several_segments(disk)
    disk.kill()
    disk.remove(f"{STREAM}/{file_name(2)}")
    host = Host(disk)
    (line,) = damaged(caplog)
    assert "the segments 2 to 2" in line
    assert offsets_of(host) == [n for n in range(60) if not firsts[1] <= n < firsts[2]]
    for segment in host.log.segments:
        host.log.files.close(segment)
    disk.remove(f"{STREAM}/{file_name(3)}")
    assert offsets_of(host) == [n for n in range(60) if not firsts[1] <= n < firsts[3]]
    assert len(damaged(caplog)) == 2


@pytest.mark.parametrize("last", [False, True])
def test_a_damaged_header_costs_no_record(last: bool, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    host, _ = several_segments(disk)
    number = len(host.log.segments) if last else 2
    disk.kill()
    disk.flip_bit(f"{STREAM}/{file_name(number)}", 20)
    host = Host(disk)
    assert offsets_of(host) == list(range(60))
    (line,) = damaged(caplog)
    assert file_name(number) in line
    assert host.append(b"next") == 60


def lose_last(disk: FaultyDisk, number: int, how: str) -> None:
    """Lose a segment in one of the ways in which that happens."""
    if how == "removed":
        disk.remove(f"{STREAM}/{file_name(number)}")
    else:
        cut(disk, number, int(how))


@pytest.mark.parametrize(
    ("how", "in_peace"),
    [
        *(("removed", False), ("0", False), ("64", False)),
        *(("removed", True), ("0", True), ("64", True), ("5000", True)),
    ],
)
def test_no_offset_is_given_again_where_the_last_segment_is_lost(
    how: str, in_peace: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    host, firsts = several_segments(disk)
    last = len(firsts)
    if in_peace:
        host.journal.store_redelivered([])
        host.journal.close()
    disk.kill()
    lose_last(disk, last, how)
    host = Host(disk)
    assert any("the stream continues with offset" in line for line in damaged(caplog))
    left = [n for n in range(60) if n < firsts[-1] + (1 if how == "5000" else 0)]
    assert offsets_of(host) == left
    following = host.append(b"next")
    assert following == 60 if in_peace else following > 60
    host.sync()
    assert offsets_of(host) == [*left, following]
    disk.kill()
    caplog.clear()
    host = Host(disk)
    assert not any("the stream continues with offset" in line for line in damaged(caplog))
    assert host.append(b"one more") == following + 1
    host.sync()
    assert offsets_of(host) == [*left, following, following + 1]


@pytest.mark.parametrize("how", ["removed", "0"])
def test_a_stream_without_its_only_segment_does_not_begin_anew(how: str) -> None:
    disk = FaultyDisk()
    host = Host(disk)
    for _ in range(3):
        host.append(b"kept")
    host.sync()
    disk.kill()
    lose_last(disk, 1, how)
    host = Host(disk)
    assert host.log.first_offset == host.log.next_offset > 2
    disk.kill()
    host = Host(disk)  # Nothing came in between: it knows still.
    following = host.append(b"next")
    assert following == host.log.first_offset > 2
    host.sync()
    assert offsets_of(host) == [following]


def test_how_far_a_stream_goes_costs_little_of_the_journal() -> None:
    """A record for each segment and 65,536 messages, and no sync beside those of the groups."""
    disk = FaultyDisk()
    host = Host(disk)
    host.append(b"first")
    host.sync()
    announced, syncs = host.log.announced, disk.syncs
    for _ in range(100):
        host.append(b"more")
        host.sync()
    assert disk.syncs - syncs == 200  # The stream's and the journal's.
    assert host.log.announced == announced


def test_a_deleted_stream_leaves_no_word_of_its_end() -> None:
    disk = FaultyDisk()
    host = Host(disk)
    host.append(b"gone")
    host.sync()
    assert list(host.journal.definitions.items())
    host.log.delete()
    assert not list(host.journal.definitions.items())


def test_a_buffer_grows_while_a_failed_write_holds_it() -> None:
    """The error of a write has the views that were to be written, and is kept for a while."""
    host = Host(FaultyDisk())
    host.append(b"first")
    with memoryview(host.log.buffer), memoryview(host.journal.buffer):
        bodies = [bytes([n]) * 100_000 for n in range(20)]
        for body in bodies:
            host.append(body)
            host.journal.fact(b"key", body)
    host.sync()
    assert list(host.read_all(1, 10_000_000).values()) == bodies
    assert host.journal.facts[b"key"] == bodies[-1]
