# SPDX-License-Identifier: Apache-2.0
"""Segments of streams in an object store: every offset keeps its bytes, wherever they are."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from random import Random
from typing import ParamSpec, TypeVar

import pytest

from headrace.store.journal.journal import Journal
from headrace.store.offload import block_cache
from headrace.store.offload.tier import Tier
from headrace.store.stream.log import DiskStreamLog
from headrace.testing.disk import FaultyDisk

STREAM = "/streams/7"
HEAD = b"\x01e\x01k\x00\x00"
SEGMENT = 64 << 10
P = ParamSpec("P")
T = TypeVar("T")


class Steps(Executor):
    """Runs what it is given when it is told to."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], object]] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        self.jobs.append(lambda: fn(*args, **kwargs))
        return Future()

    def step(self) -> bool:
        if not self.jobs:
            return False
        self.jobs.pop(0)()
        return True


class Objects:
    """An object store in memory; ``failures`` calls fail before one succeeds."""

    def __init__(self) -> None:
        self.octets: dict[str, bytes] = {}
        self.failures = 0
        self.reads: list[tuple[str, int]] = []

    def fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("503 Slow Down")

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        self.fail()
        self.octets[name] = b"".join(pieces)

    def put_new(self, name: str, octets: bytes) -> bool:
        self.fail()
        return self.octets.setdefault(name, octets) is octets

    def size(self, name: str) -> int:
        self.fail()
        return len(self.octets[name]) if name in self.octets else -1

    def read(self, name: str, lo: int, hi: int) -> bytes:
        self.fail()
        self.reads.append((name, lo))
        if name not in self.octets:
            raise FileNotFoundError(name)
        return self.octets[name][lo:hi]

    def names(self, prefix: str) -> list[str]:
        self.fail()
        return [name for name in self.octets if name.startswith(prefix)]

    def delete(self, names: Sequence[str]) -> None:
        self.fail()
        for name in names:
            self.octets.pop(name, None)


class Host:
    """A journal and a stream on one disk, with an object store."""

    def __init__(
        self, disk: FaultyDisk, objects: Objects, *, local: int = 2 * SEGMENT, cache: int = 1 << 20
    ) -> None:
        self.disk = disk
        self.objects = objects
        self.steps = Steps()
        self.tier = Tier(
            objects,
            "me",
            cache_size=cache,
            post=lambda call: call(),
            uploads=self.steps,
            fetches=self.steps,
        )
        self.tier.stopping.wait = self.tier.cache.stopping.wait = lambda _=None: False  # type: ignore[method-assign, assignment]
        self.journal = Journal(
            "/journal", disk=disk, segment_size=SEGMENT, free_min=0, threaded=False
        )
        self.journal.read()
        self.log = DiskStreamLog(STREAM, self.journal, segment_size=SEGMENT, tier=self.tier)
        self.log.limit_local(local, -1)
        self.woken = 0
        self.log.on_arrival = self.wake
        assert list(self.journal.recover()) == []

    def wake(self) -> None:
        self.woken += 1

    def append(self, body: bytes, arrived_ms: int = 1000) -> int:
        return self.log.append(HEAD + body, 4, len(body), arrived_ms)

    def sync(self) -> None:
        self.journal.start_write()
        while self.journal.writer.jobs:
            self.journal.writer.step()
            self.journal.woken()

    def settle(self) -> None:
        """Let all threads do what they have to."""
        self.sync()
        while self.steps.step():
            self.sync()

    def fill(self, count: int, size: int = 1000, begin_ms: int = 1000) -> None:
        at = self.log.next_offset
        for k in range(at, at + count):
            self.append(body_of(k, size), begin_ms + k)
            if k % 16 == 0:
                self.sync()
        self.sync()

    def read_all(self, first: int = 0, bytes_max: int = 10_000) -> dict[int, bytes]:
        """Read as a consumer does: what is not here yet is read again when it is."""
        found: dict[int, bytes] = {}
        at = first
        while at < self.log.committed_offset:
            batch = self.log.read(at, bytes_max)
            if not batch:
                assert self.steps.step(), f"nothing at {at}, and nothing is on its way"
            for offset, data, _, _, _ in batch:
                assert offset == at
                found[offset] = data[len(HEAD) :]
                at = offset + 1
        return found

    def here(self) -> int:
        """Return the number of segments whose file is here."""
        return len([segment for segment in self.log.segments if segment.offloaded is None])


def body_of(offset: int, size: int = 1000) -> bytes:
    return Random(offset).randbytes(size)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_cache, "BLOCK", 8 << 10)


def test_segments_beyond_the_local_limit_move_and_are_read_from_the_store() -> None:
    host = Host(FaultyDisk(), Objects())
    host.fill(400)
    host.settle()
    assert host.here() <= 4
    assert len(host.objects.octets) == len(host.log.segments) - host.here() > 3
    assert host.read_all() == {k: body_of(k) for k in range(400)}
    assert host.woken > 0


def test_a_read_of_what_is_not_here_returns_at_once() -> None:
    host = Host(FaultyDisk(), Objects())
    host.fill(400)
    host.settle()
    assert host.log.read(0, 1000) == []
    assert host.objects.reads == []  # A thread is to do it.
    assert host.steps.jobs
    host.settle()
    assert host.log.read(0, 1000)[0][0] == 0


def test_offsets_are_found_by_time_and_by_bytes_without_reading_the_store() -> None:
    plain = Host(FaultyDisk(), Objects(), local=1 << 40)
    moved = Host(FaultyDisk(), Objects())
    for host in (plain, moved):
        host.fill(400)
        host.settle()
    assert plain.here() == len(plain.log.segments)
    moved.objects.failures = 1 << 30
    for at in (0, 1, 57, 123, 250, 399):
        assert moved.log.offset_at(1000 + at) == at
        assert moved.log.measure(at, 400) == plain.log.measure(at, 400)
        assert moved.log.bytes_from(at) > 0
        for octets in (1, 5_000, 70_000, 200_000):
            exact = plain.log.find_end(at, 400, octets)
            assert max(at + 1, exact - 1) <= moved.log.find_end(at, 400, octets) <= exact
    assert moved.objects.reads == []


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_at_any_moment_loses_nothing(seed: int) -> None:
    random = Random(seed)
    disk = FaultyDisk(seed)
    objects = Objects()
    for _ in range(4):
        host = Host(disk, objects)
        assert host.log.first_offset == 0
        host.fill(random.randrange(40, 160))
        for _ in range(random.randrange(12)):
            if random.random() < 0.5:
                host.steps.step()
            elif host.journal.writer.jobs:
                host.journal.writer.step()
                host.journal.woken()
        durable = host.log.committed_offset
        disk.power_cut() if random.random() < 0.7 else disk.kill()
        host = Host(disk, objects)
        assert host.log.committed_offset >= durable
        assert host.read_all() == {k: body_of(k) for k in range(host.log.committed_offset)}
        host.settle()
        disk.kill()


def test_retention_deletes_objects() -> None:
    host = Host(FaultyDisk(), Objects())
    host.fill(400)
    host.settle()
    names = set(host.objects.octets)
    host.log.limit(3 * SEGMENT, -1)
    host.log.trim(0)
    host.settle()
    assert host.log.first_offset > 0
    left = {segment.number for segment in host.log.segments if segment.offloaded is not None}
    assert len(host.objects.octets) == len(left) < len(names)
    assert not [name for name in host.disk.names(STREAM) if name.endswith(".cache")]
    assert host.read_all(host.log.first_offset) == {
        k: body_of(k) for k in range(host.log.first_offset, 400)
    }


def test_deleting_a_stream_deletes_its_objects() -> None:
    host = Host(FaultyDisk(), Objects())
    host.fill(400)
    host.settle()
    host.objects.octets["me/other/1"] = b"of another stream"
    host.log.delete()
    host.settle()
    assert list(host.objects.octets) == ["me/other/1"]


def test_a_store_that_fails_delays_and_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    host = Host(FaultyDisk(), Objects())
    host.objects.failures = 7
    host.fill(400)
    host.settle()
    host.objects.failures = 7
    assert host.read_all() == {k: body_of(k) for k in range(400)}
    assert caplog.text.count("accepts no segments") == 1
    assert caplog.text.count("wait for the stream store") == 1


def test_an_object_that_is_gone_costs_its_own_records_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = Host(FaultyDisk(), Objects())
    host.fill(400)
    host.settle()
    second = host.log.segments[1]
    third = host.log.segments[2]
    del host.objects.octets[
        host.tier.prefix("7", host.log.files.secret) + f"{second.number:010d}.segment"
    ]
    found = {}
    at = 0
    while at < 400:
        batch = host.log.read(at, 10_000)
        if not batch:
            assert host.steps.step()
        for offset, data, _, _, _ in batch:
            found[offset] = data[len(HEAD) :]
            at = offset + 1
    kept = [*range(second.first_offset), *range(third.first_offset, 400)]
    assert found == {k: body_of(k) for k in kept}
    assert "damaged: the stream store has 0 of" in caplog.text


def test_blocks_that_were_read_longest_ago_leave() -> None:
    host = Host(FaultyDisk(), Objects(), cache=3 * SEGMENT)
    host.fill(600)
    host.settle()
    for _ in range(2):
        assert host.read_all() == {k: body_of(k) for k in range(600)}
        assert host.tier.cache.size <= 4 * SEGMENT


def test_a_damaged_sidecar_costs_its_own_segment_only(caplog: pytest.LogCaptureFixture) -> None:
    disk, objects = FaultyDisk(), Objects()
    host = Host(disk, objects)
    host.fill(400)
    host.settle()
    first = host.log.segments[0].path.removesuffix(".segment") + ".offloaded"
    following = host.log.segments[1].first_offset
    disk.kill()
    handle = disk.open(first)
    disk.write(handle, [b"x" * 20], 10)
    disk.close(handle)
    host = Host(disk, objects)
    assert host.log.first_offset == following
    assert host.read_all(following) == {k: body_of(k) for k in range(following, 400)}
    assert "damaged" in caplog.text


def test_lost_segments_behind_the_store_do_not_give_offsets_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, objects = FaultyDisk(), Objects()
    host = Host(disk, objects)
    host.fill(400)
    host.settle()
    disk.kill()
    for name in disk.names(STREAM):
        if name.endswith(".segment"):
            disk.remove(f"{STREAM}/{name}")
    disk.sync_directory(STREAM)
    host = Host(disk, objects)
    assert host.append(b"later") >= 400
    host.sync()
    assert "damaged" in caplog.text
