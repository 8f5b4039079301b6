# SPDX-License-Identifier: Apache-2.0
"""Bodies of files on a disk that runs full, loses power or fails; room, time and references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.model.ports import Store
from headrace.store.file_bodies.staging import CHUNK, UNWRITTEN_MAX, Staging
from headrace.testing.disk import FaultyDisk

if TYPE_CHECKING:
    from headrace.store.file_bodies.bodies import Body, StagedPart

DIRECTORY = "/staging"


class BodyHolder:
    """An uploader."""

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.failed: list[OSError] = []

    def on_staging_failed(self, part: StagedPart, error: OSError) -> None:
        self.failed.append(error)


class Transport:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.holds = 0

    def hold(self) -> None:
        self.holds += 1

    def unhold(self) -> None:
        self.holds -= 1


def staging_on(disk: FaultyDisk, **options: Any) -> Staging:
    return Staging(DIRECTORY, disk=disk, threaded=False, **options)


def work_off(staging: Staging) -> None:
    """Let the thread do what it was given."""
    while staging.writer.jobs:
        assert staging.writer.step()
    staging.woken()
    if staging.writer.jobs:
        work_off(staging)


def opened(staging: Staging, name: str, size: int, holder: Any = None) -> StagedPart:
    found: list[StagedPart | None] = []
    holder = holder or BodyHolder()
    assert staging.open("user", name, size, holder, lambda part, _: found.append(part))
    work_off(staging)
    assert found[0] is not None
    return found[0]


def sealed(staging: Staging, part: StagedPart) -> Body:
    found: list[Body | None] = []
    staging.seal(part, lambda body, _: found.append(body))
    work_off(staging)
    assert found[0] is not None
    return found[0]


def whole(staging: Staging, name: str, data: bytes) -> StagedPart:
    part = opened(staging, name, len(data))
    staging.add(part, data)
    staging.suspend(part)
    work_off(staging)
    return part


def reference(body: Body) -> bytes:
    return b"whatever" + body.number.to_bytes(8, "big")


def test_a_body_is_written_sealed_and_read() -> None:
    disk = FaultyDisk()
    staging = staging_on(disk)
    data = bytes(range(256)) * 3000
    part = opened(staging, "a", len(data))
    for at in range(0, len(data), 1000):
        staging.add(part, data[at : at + 1000])
    work_off(staging)
    body = sealed(staging, part)
    assert list(disk.names(DIRECTORY)) == [body.name()]
    assert staging.find("user", "a") is None
    reader = staging.reader(body)
    assert reader.read(0, len(data)) == data
    assert reader.read(1000, 5) == data[1000:1005]
    with pytest.raises(OSError, match="a body ends"):
        reader.read(len(data) - 1, 2)
    reader.close()
    reader.close()
    empty = sealed(staging, whole(staging, "empty", b""))
    assert staging.reader(empty).read(0, 0) == b""


def test_identifiers_are_the_owners_own() -> None:
    staging = staging_on(FaultyDisk())
    part = opened(staging, "a", 10)
    staging.suspend(part)
    assert staging.find("other", "a") is None
    assert staging.find("user", "a") is part


@pytest.mark.rule("0-9/file.open-ok.staged-size#02", "0-10/s218")
def test_parts_survive_a_restart_as_far_as_they_are_durable() -> None:
    disk = FaultyDisk(seed=3)
    staging = staging_on(disk)
    part = opened(staging, "a", 1_000_000)
    staging.add(part, b"x" * 400_000)
    staging.suspend(part)
    work_off(staging)
    opened(staging, "a", 1_000_000)
    staging.add(part, b"y" * 300_000)
    work_off(staging)  # Written, but the uploader is gone: not synced.
    disk.power_cut()
    staging = staging_on(disk)
    again = opened(staging, "a", 1_000_000)
    assert again.received == 400_000
    staging.add(again, b"z" * 600_000)
    work_off(staging)
    reader = staging.reader(sealed(staging, again))
    assert reader.read(0, 1_000_000) == b"x" * 400_000 + b"z" * 600_000


def test_bodies_survive_a_restart_while_messages_refer_to_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = FaultyDisk()
    staging = staging_on(disk)
    kept = sealed(staging, whole(staging, "a", b"kept"))
    lost = sealed(staging, whole(staging, "b", b"lost"))
    disk.open(f"{DIRECTORY}/stranger", create=True)
    disk.open(f"{DIRECTORY}/x-y-z.part", create=True)
    staging.close()
    disk.power_cut()
    staging = staging_on(disk)
    assert caplog.text.count("not one of ours") <= 2
    assert staging.add_reference(reference(kept))
    assert not staging.add_reference(b"whatever" + bytes(8))
    staging.remove_unreferenced()
    work_off(staging)
    assert lost.name() not in disk.names(DIRECTORY)
    assert kept.name() in disk.names(DIRECTORY)
    assert staging.reserved_bytes == 4


def test_a_body_goes_when_what_settled_it_is_durable() -> None:
    disk = FaultyDisk()
    store = Store()
    staging = staging_on(disk, store=store)
    body = sealed(staging, whole(staging, "a", b"data"))
    data = reference(body)
    staging.add_reference(data)
    staging.add_reference(data)
    staging.remove_reference(data)
    store.appended = 100
    staging.tick(1)
    staging.tick(2)
    assert staging.add_reference(data)
    staging.remove_reference(data)
    staging.remove_reference(data)
    staging.tick(3)
    store.appended = 200
    staging.tick(4)
    work_off(staging)
    assert body.name() in disk.names(DIRECTORY)
    store.synced = 100
    staging.tick(5)
    work_off(staging)
    assert disk.names(DIRECTORY) == []
    assert staging.reserved_bytes == 0


def test_parts_are_kept_for_a_while() -> None:
    staging = staging_on(FaultyDisk(), keep_ms=1000)
    part = opened(staging, "a", 10)
    staging.tick(5000)
    staging.suspend(part)
    staging.tick(5999)
    assert staging.find("user", "a") is part
    staging.tick(6000)
    assert staging.find("user", "a") is None
    work_off(staging)
    assert staging.disk.names(DIRECTORY) == []


def test_another_size_begins_anew() -> None:
    staging = staging_on(FaultyDisk())
    part = opened(staging, "a", 10)
    staging.add(part, b"12345")
    staging.suspend(part)
    assert opened(staging, "a", 11).received == 0
    assert staging.reserved_bytes == 11


def test_the_oldest_abandoned_part_makes_room() -> None:
    staging = staging_on(FaultyDisk(), size_max=100)
    first, second = opened(staging, "a", 40), opened(staging, "b", 40)
    staging.suspend(first)
    staging.suspend(second)
    opened(staging, "a", 40)
    third = opened(staging, "c", 50)
    assert staging.find("user", "b") is None
    assert staging.find("user", "a") is first
    calls: list[StagedPart | None] = []
    assert not staging.open("user", "d", 20, BodyHolder(), lambda part, _: calls.append(part))
    tries: list[int] = []

    def again() -> bool:
        tries.append(1)
        return staging.open("user", "d", 20, BodyHolder(), lambda part, _: calls.append(part))

    waiter = object()
    assert staging.wait_for_room(waiter, again)
    staging.tick(1)
    assert not calls
    staging.suspend(third)
    staging.tick(2)
    work_off(staging)
    assert len(tries) == 2
    assert calls[0] is not None
    assert not staging.waiters
    staging.wait_for_room(waiter, again)
    staging.remove_waiter(waiter)
    assert not staging.waiters


def test_whole_files_make_room_last() -> None:
    staging = staging_on(FaultyDisk(), size_max=100)
    complete = whole(staging, "whole", b"x" * 50)
    half = opened(staging, "half", 50)
    staging.suspend(half)
    opened(staging, "new", 50)
    assert staging.find("user", "whole") is complete
    assert staging.find("user", "half") is None


def test_a_disk_without_room_refuses_before_anything_is_sent() -> None:
    disk = FaultyDisk()
    disk.capacity = 100_000
    staging = staging_on(disk, free_min=50_000)
    errors: list[OSError | None] = []
    staging.open("user", "a", 60_000, BodyHolder(), lambda _, error: errors.append(error))
    work_off(staging)
    assert errors[0] is not None
    assert staging.reserved_bytes == 0
    assert opened(staging, "a", 40_000).received == 0


def test_a_disk_that_fills_up_ends_the_staging_and_nothing_else() -> None:
    disk = FaultyDisk()
    staging = staging_on(disk)
    holder, other = BodyHolder(), BodyHolder()
    part = opened(staging, "a", 1_000_000, holder)
    fine = opened(staging, "b", 3, other)
    disk.capacity = disk.used() + 1000
    staging.add(part, b"x" * CHUNK)
    staging.add(part, b"x" * CHUNK)
    work_off(staging)
    assert len(holder.failed) == 1
    assert staging.find("user", "a") is None
    disk.capacity = 1 << 60
    staging.add(fine, b"abc")
    staging.suspend(fine)
    work_off(staging)
    assert sealed(staging, fine).size == 3
    assert other.failed == []
    assert staging.unwritten_bytes == 0


def test_a_body_that_cannot_be_synced_is_no_body() -> None:
    disk = FaultyDisk()
    staging = staging_on(disk)
    part = whole(staging, "a", b"data")
    errors: list[OSError | None] = []
    disk.error_rate = 1.0
    staging.seal(part, lambda _, error: errors.append(error))
    staging.writer.step()
    disk.error_rate = 0.0
    work_off(staging)
    assert errors[0] is not None
    assert not staging.bodies
    assert staging.reserved_bytes == 0


def test_a_part_that_could_not_be_synced_is_not_continued() -> None:
    disk = FaultyDisk()
    staging = staging_on(disk)
    part = opened(staging, "f", 100_000)
    staging.add(part, b"a" * 50_000)
    disk.sync_error_rate = 1.0
    staging.suspend(part)
    work_off(staging)
    disk.sync_error_rate = 0.0
    assert staging.find("user", "f") is None
    work_off(staging)
    assert disk.names(DIRECTORY) == []
    again = opened(staging, "f", 100_000)
    assert again.received == 0
    staging.add(again, b"b" * 100_000)
    body = sealed(staging, again)
    disk.power_cut()
    assert staging.reader(body).read(0, 100_000) == b"b" * 100_000


def test_a_sender_faster_than_the_disk_is_read_from_no_more() -> None:
    staging = staging_on(FaultyDisk())
    transport = Transport()
    part = opened(staging, "a", 4 * UNWRITTEN_MAX)
    while not staging.is_behind():
        staging.add(part, b"x" * CHUNK)
    staging.pause(transport)
    assert transport.holds == 1
    work_off(staging)
    assert transport.holds == 0
    assert staging.unwritten_bytes == 0


def test_who_waits_for_the_end_of_a_staging_is_told() -> None:
    staging = staging_on(FaultyDisk())
    part = opened(staging, "a", 4)
    told: list[str] = []
    part.waiters.append(lambda: told.append("left"))
    staging.suspend(part)
    part.waiters.append(lambda: told.append("gone"))
    staging.discard(part)
    staging.discard(part)
    assert told == ["left", "gone"]
