# SPDX-License-Identifier: Apache-2.0
"""Power cuts at places that are seldom met: between two segments, behind a file made anew."""

import contextlib

import pytest

from headrace.model.message import new_message
from headrace.store.journal.journal import Journal
from support.disks.crash_disk import FOREVER, Dead, MortalDisk

SEGMENT_SIZE = 16 << 10
FACTS = {b"key/%d" % n: bytes([n]) * 1000 for n in range(6)}  # Less than half of a segment.


def journal_on(disk: MortalDisk) -> Journal:
    return Journal("/j", disk=disk, segment_size=SEGMENT_SIZE, free_min=0, threaded=False)


def write(journal: Journal) -> None:
    """Make durable all that was appended."""
    journal.start_write()
    while journal.synced < journal.appended or journal.writer.jobs:
        journal.start_write()
        while journal.writer.jobs:
            assert journal.writer.step()
        journal.woken()


def publish(journal: Journal, size: int) -> int:
    """Append a message for a queue; return its position."""
    message = new_message(b"\x01e\x01k\x00\x00" + bytes(size), 4, size)
    message.seq = journal.last_seq + 1
    return journal.publish_message(message, 1, b"\0\0\0\1")


def fill(journal: Journal, room: int) -> None:
    """Append messages, and settle them, until the last segment has that much room left."""
    while journal.segment.size - journal.offset > room + 1100:
        journal.settle(1, journal.last_seq + 1, publish(journal, 1000))


@pytest.mark.parametrize("fuse", range(12))
@pytest.mark.parametrize("seed", range(8))
def test_a_cut_between_two_segments_loses_no_fact(fuse: int, seed: int) -> None:
    """The header of the second one must not say that the leaving segment is not needed."""
    disk = MortalDisk(seed)
    journal = journal_on(disk)
    list(journal.recover())
    held = publish(journal, 100)
    for key, value in FACTS.items():
        journal.fact(key, value)
    fill(journal, 0)
    journal.roll(0)
    fill(journal, 3000)  # So the facts do not fit into this one.
    write(journal)
    journal.settle(1, 1, held)
    disk.fuse = fuse
    with contextlib.suppress(Dead):
        write(journal)
    disk.fuse = FOREVER
    disk.power_cut()
    again = journal_on(disk)
    list(again.recover())
    assert again.facts == FACTS


@pytest.mark.parametrize("seed", range(8))
def test_a_file_that_took_the_place_of_a_failed_one_keeps_its_name(seed: int) -> None:
    """The process died between the new file's name and the sync of the directory."""
    disk = MortalDisk(seed)
    journal = journal_on(disk)
    list(journal.recover())
    write(journal)
    for key, value in FACTS.items():
        journal.fact(key, value)
    disk.sync_error_rate = 1.0
    journal.start_write()
    assert not journal.writer.step()  # The file has failed.
    disk.sync_error_rate = 0.0
    disk.sync_directory = dies  # type: ignore[method-assign]
    with pytest.raises(Dead):
        journal.writer.step()
    del disk.sync_directory
    disk.kill()
    again = journal_on(disk)
    list(again.recover())
    assert again.facts == FACTS
    disk.power_cut()
    last = journal_on(disk)
    list(last.recover())
    assert last.facts == FACTS


def dies(path: str) -> None:
    raise Dead
