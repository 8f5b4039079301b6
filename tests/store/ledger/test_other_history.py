# SPDX-License-Identifier: Apache-2.0
"""A ledger that lost what it had confirmed: nodes whose files have that notice it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.store.disk import WRITE, Change, Disk
from headrace.store.ledger.port import Gap, OtherHistory
from headrace.store.ledger.replicated_disk import ReplicatedDisk
from headrace.testing.ledger import LOCAL, Engine, MemoryLedger


def node(engine: Engine, home: Path) -> ReplicatedDisk:
    return ReplicatedDisk(Disk(), MemoryLedger(engine), str(home))


def write(disk: ReplicatedDisk, at: int, octets: bytes) -> None:
    path = f"{disk.home}/journal/1.segment"
    disk.replicate([Change(WRITE, path, at, [octets])])
    disk.make_directory(f"{disk.home}/journal")
    handle = disk.open(path, create=True)
    disk.write(handle, [octets], at)
    disk.close(handle)


def lose_last(engine: Engine, disk: ReplicatedDisk) -> None:
    """Write an entry that the standby lacks, and promote the standby."""
    engine.controls = frozenset({LOCAL})
    write(disk, 3, b"two")
    disk.mark()
    engine.controls = frozenset()
    engine.fail_over()


@pytest.mark.parametrize("others", [0, 1, 2])
def test_entries_that_another_owner_wrote_in_their_place(tmp_path: Path, others: int) -> None:
    """The number of the last entry says nothing: it may be of as many others."""
    engine = Engine()
    first = node(engine, tmp_path / "one")
    first.take_over()
    write(first, 0, b"one")
    lose_last(engine, first)
    second = node(engine, tmp_path / "two")
    second.take_over()
    for number in range(others):
        write(second, 3 * (number + 1), b"2nd")
    again = node(engine, tmp_path / "one")
    with pytest.raises(OtherHistory, match="has entry 2 of the ledger, which"):
        again.take_over()
    assert (tmp_path / "one/journal/1.segment").read_bytes() == b"onetwo"


def test_a_node_that_has_less_takes_what_is_there(tmp_path: Path) -> None:
    engine = Engine()
    first = node(engine, tmp_path / "one")
    first.take_over()
    write(first, 0, b"one")
    first.mark()
    second = node(engine, tmp_path / "two")
    second.take_over()
    write(second, 3, b"two")
    again = node(engine, tmp_path / "one")
    again.take_over()
    assert again.applied == second.applied
    assert (tmp_path / "one/journal/1.segment").read_bytes() == b"onetwo"


def test_a_ledger_with_a_hole_is_no_other_history(tmp_path: Path) -> None:
    engine = Engine()
    first = node(engine, tmp_path / "one")
    first.take_over()
    for number in range(3):
        write(first, 3 * number, b"abc")
    del engine.entries[2]
    with pytest.raises(Gap, match="entry 2 is missing") as caught:
        node(engine, tmp_path / "two").take_over()
    assert not isinstance(caught.value, OtherHistory)
