# SPDX-License-Identifier: Apache-2.0
"""Facts on a disk: they outlive their segments, and cost no more than they hold."""

from __future__ import annotations

from random import Random

import pytest

from headrace.store.journal.journal import Journal
from headrace.store.journal.keyvalue import decode, encode
from headrace.testing.disk import FaultyDisk

SEGMENT_SIZE = 16 << 10


def opened(disk: FaultyDisk) -> Journal:
    journal = Journal("/journal", disk=disk, segment_size=SEGMENT_SIZE, free_min=0, threaded=False)
    assert not list(journal.recover())
    return journal


def write(journal: Journal) -> None:
    """Let the writer do all there is to do, and what follows from that."""
    journal.start_write()
    while journal.writer.jobs:
        journal.writer.step()
        journal.woken()


@pytest.mark.parametrize("value", [None, b"", b"value"])
def test_a_record_says_what_was_meant(value: bytes | None) -> None:
    assert decode(encode(b"key", value)) == (b"key", value)


def test_facts_outlive_their_segments() -> None:
    disk = FaultyDisk(1)
    journal = opened(disk)
    journal.fact(b"old", b"kept")
    journal.fact(b"gone", b"not kept")
    write(journal)
    journal.fact(b"gone", None)
    for number in range(2000):
        journal.fact(b"counter", b"%d" % number)
        write(journal)
    assert journal.order[0].number > 3
    assert len(journal.order) <= 3
    disk.power_cut()
    assert opened(disk).facts == {b"old": b"kept", b"counter": b"1999"}


def test_many_facts_do_not_go_round_and_round() -> None:
    """They fill a dozen segments; changing a few of them writes little more than the changes."""
    random = Random(1)
    disk = FaultyDisk(1)
    journal = opened(disk)
    told = {b"key/%d" % number: random.randbytes(1000) for number in range(200)}
    for key, value in told.items():
        journal.fact(key, value)
        write(journal)
    before, changed = journal.appended, 0
    for _ in range(1500):
        key = b"key/%d" % random.randrange(50)
        told[key] = random.randbytes(1000)
        journal.fact(key, told[key])
        changed += 1040
        write(journal)
    assert journal.appended - before < 3 * changed
    assert sum(segment.end for segment in journal.order) < 3 * 200 * 1040 + 5 * SEGMENT_SIZE
    at_rest = journal.appended
    for _ in range(20):
        journal.may_retire = True
        write(journal)
    assert journal.appended - at_rest < 200 * 1040
    rested = journal.appended
    for _ in range(20):
        journal.may_retire = True
        write(journal)
    assert journal.appended == rested
    for _ in range(3):
        disk.power_cut()
        journal = opened(disk)
        assert journal.facts == told
        journal.fact(b"key/0", b"")
        journal.fact(b"key/0", told[b"key/0"])
        write(journal)
