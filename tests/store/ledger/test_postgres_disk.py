# SPDX-License-Identifier: Apache-2.0
"""The files of two machines over one ledger in PostgreSQL."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.store.disk import WRITE, Change, Disk
from headrace.store.ledger.port import Fenced
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_session import Address
from headrace.store.ledger.replicated_disk import ReplicatedDisk
from support.ledger_judge import insist
from support.postgres import Servers, servers


@pytest.fixture(scope="module")
def running() -> Iterator[Servers]:
    with servers() as found:
        Cluster(Address(found.primary.url())).prepare()
        yield found


@contextlib.contextmanager
def machine(running: Servers, home: Path) -> Iterator[ReplicatedDisk]:
    """Yield the disk of a broker on a machine of its own."""
    cluster = Cluster(Address(running.primary.url()), answer_s=2.0)
    with contextlib.closing(PostgresLedger(cluster, "/", home.name)) as ledger:
        yield ReplicatedDisk(Disk(), ledger, str(home))


def write(disk: ReplicatedDisk, at: int, octets: bytes) -> None:
    """Write to the journal as its writer does: to the ledger first, again while it is in doubt."""
    path = segment(disk)
    change = Change(WRITE, path, at, [memoryview(octets)[:100], memoryview(octets)[100:]])
    insist(lambda: disk.replicate([change]))
    disk.make_directory(str(Path(path).parent))
    handle = disk.open(path, create=True)
    disk.write(handle, [octets], at)
    disk.close(handle)


def journal(disk: ReplicatedDisk) -> bytes:
    return Path(segment(disk)).read_bytes()


def segment(disk: ReplicatedDisk) -> str:
    return f"{disk.home}/journal/1.segment"


def test_the_next_owner_has_the_files_of_the_one_before(running: Servers, tmp_path: Path) -> None:
    groups = [os.urandom(size) for size in (50, 4_096, 300_000, 1_500_000, 80_000)]
    with (
        machine(running, tmp_path / "one") as one,
        machine(running, tmp_path / "two") as two,
        machine(running, tmp_path / "three") as three,
    ):
        one.take_over()
        for number, octets in enumerate(groups):
            if number == 3:
                running.primary.kill()
                running.primary.start()
            write(one, sum(map(len, groups[:number])), octets)
            insist(two.follow)
        assert two.applied.number == len(groups) - 1  # The last may not be durable yet.
        insist(two.take_over)
        assert journal(one) == journal(two) == b"".join(groups)
        change = Change(WRITE, segment(one), 0, [b"late"])
        with pytest.raises(Fenced):
            insist(lambda: one.replicate([change]))
        write(two, 0, b"of the second")
        three.take_over()
        assert journal(three) == journal(two) != journal(one)
