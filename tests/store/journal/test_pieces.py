# SPDX-License-Identifier: Apache-2.0
"""A recovery finds the same whatever the size of the pieces in which it reads."""

import copy
import random

import pytest

from headrace.model.message import new_message
from headrace.store.journal import recovery
from headrace.store.journal.journal import Journal
from headrace.store.segment.segment import file_name
from headrace.testing.disk import FaultyDisk

DIRECTORY = "/journal"
SEGMENT = 64 << 10
QUEUES = ((1).to_bytes(4, "big"), (2).to_bytes(4, "big"), b"\x00\x00\x00\x01\x00\x00\x00\x02")


def open_journal(disk: FaultyDisk) -> Journal:
    return Journal(
        DIRECTORY, disk=disk, threaded=False, name="test", segment_size=SEGMENT, free_min=0
    )


def sync(journal: Journal) -> None:
    journal.start_write()
    while journal.synced < journal.appended:
        assert journal.writer.step()
        journal.woken()
        journal.start_write()


def filled(seed: int) -> FaultyDisk:
    """Return a disk with four segments of messages of many sizes, a third of them settled."""
    chance = random.Random(seed)
    disk = FaultyDisk(seed)
    journal = open_journal(disk)
    assert list(journal.recover()) == []
    for seq in range(1, 200):
        size = chance.choice((0, 3, 40, 41, 300, 2000, 6000))
        message = new_message(b"\x01e\x01k\x00\x00" + bytes([seq & 255]) * size, 4, size)
        message.seq = seq
        queues = chance.choice(QUEUES)
        message.position = journal.publish_message(message, 1000 + seq, queues)
        if chance.random() < 0.3:
            journal.settle(int.from_bytes(queues[:4], "big"), seq, message.position)
        if chance.random() < 0.5:
            sync(journal)
    sync(journal)
    disk.kill()
    return disk


def found_on(disk: FaultyDisk) -> tuple[list[tuple[int, int, int, bytes | None]], list[str]]:
    """Return what a recovery finds, and which places it puts aside."""
    disk = copy.deepcopy(disk)
    journal = open_journal(disk)
    found = []
    for queue, message, _ in journal.recover():
        journal.load(message)
        found.append((queue, message.seq, message.position, message.data))
    return found, [name for name in disk.names_now if "quarantine/" in name]


@pytest.mark.parametrize("damaged", [0, 1, 3], ids=["whole", "damaged once", "damaged thrice"])
@pytest.mark.parametrize("seed", range(4))
def test_the_size_of_pieces_makes_no_difference(
    seed: int, damaged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = filled(seed)
    chance = random.Random(seed + 100)
    for _ in range(damaged):
        path = f"{DIRECTORY}/{file_name(chance.randrange(1, 4))}"
        disk.flip_bit(path, chance.randrange(64, SEGMENT - 16))
    monkeypatch.setattr(recovery, "CHUNK", 1 << 20)
    expected = found_on(disk)
    assert len(expected[0]) > 100
    for piece in (8, 104, 1000, 7000, SEGMENT):
        monkeypatch.setattr(recovery, "CHUNK", piece)
        assert found_on(disk) == expected


def test_only_the_last_segment_is_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = filled(1)
    reads: list[tuple[int, int]] = []
    read_into = FaultyDisk.read_into

    def noted(self: FaultyDisk, handle: int, buffer: bytearray, size: int, at: int = 0) -> int:
        reads.append((len(buffer), at))
        return read_into(self, handle, buffer, size, at)

    monkeypatch.setattr(FaultyDisk, "read_into", noted)
    monkeypatch.setattr(recovery, "CHUNK", 8000)
    found_on(disk)
    large = [read for read in reads if read[0] > 8000]
    assert large == [(SEGMENT, 0)]
    assert len(reads) > 10
