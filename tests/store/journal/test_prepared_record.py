# SPDX-License-Identifier: Apache-2.0
"""Prepared branches on a disk: what is damaged is told, what was decided counts from then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.model.counters import Counters
from headrace.model.errors import IllegalState
from headrace.model.message import Message, new_message
from headrace.model.queue.destination import Consumer
from headrace.model.transaction.dtx import XaStatus
from headrace.model.transaction.transaction import ACCEPT, Transaction
from headrace.model.transaction.xid import Xid
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.store.journal.journal import Journal
from headrace.store.journal.prepared_record import Prepared, encode_decided, read_decided
from headrace.store.segment.segment import file_name
from headrace.testing.disk import FaultyDisk

if TYPE_CHECKING:
    from headrace.model.ports import PreparedBranch
    from headrace.model.queue.queue import Queue

X = Xid(1, b"global", b"branch")
HEAD = b"\x00\x01q\x00\x00"


class Session:
    """Works for a branch."""

    transaction: Transaction | None = None


class Host:
    """A virtual host with one queue, on a disk that lasts."""

    def __init__(self, disk: FaultyDisk, now_ms: int = 1_000_000) -> None:
        self.disk = disk
        self.counters = Counters(now_ms=now_ms)
        self.journal = Journal(
            "/journal", disk=disk, segment_size=1 << 16, free_min=0, threaded=False
        )
        self.vhost = VirtualHost("/", store=self.journal, counters=self.counters)
        self.queue: Queue = self.vhost.declare_queue("q", durable=True)
        self.arrived: list[int] = []
        for _, message, arrived_ms in self.journal.recover():
            self.queue.restore(message, arrived_ms)
            self.arrived.append(arrived_ms)
        self.kept: list[PreparedBranch] = self.journal.prepared_branches
        self.vhost.branches.restore(self.kept)
        self.counters.next_seq = self.journal.last_seq + 1

    def message(self, body: bytes) -> Message:
        return new_message(HEAD + body, 3, len(body))

    def prepare(self, *bodies: bytes, takes: int = 0) -> None:
        session = Session()
        self.vhost.branches.start(session, X)
        assert session.transaction is not None
        for _ in range(takes):
            taken = self.queue.get(Consumer(self.queue, "", False))
            assert taken is not None
            session.transaction.settle(self.queue, taken, ACCEPT)
        for body in bodies:
            session.transaction.publish(self.message(body), [self.queue], True)
        self.vhost.branches.end(session, X)
        assert self.vhost.branches.prepare(X) is XaStatus.OK

    def sync(self) -> None:
        self.journal.start_write()
        while self.journal.writer.jobs:
            self.journal.writer.step()
            self.journal.woken()

    def again(self, now_ms: int = 1_000_000) -> Host:
        self.sync()
        self.disk.kill()
        return Host(self.disk, now_ms)

    def bodies(self) -> list[bytes]:
        found = []
        while (message := self.queue.get(Consumer(self.queue, "", True))) is not None:
            assert message.data is not None
            found.append(message.data[len(HEAD) :])
            self.queue.remove(message)
        return found

    def rot(self, octets: bytes) -> None:
        """Flip a bit of a record that holds these octets."""
        path = f"/journal/{file_name(1)}"
        self.disk.flip_bit(path, self.disk.names_now[path].cache.index(octets))


@pytest.mark.parametrize("operator", [False, True])
def test_a_branch_that_lost_a_part_says_so(operator: bool) -> None:
    host = Host(FaultyDisk())
    host.prepare(b"first", b"second")
    host.sync()
    host.vhost.deliver(host.message(b"behind"), [host.queue], True)
    host.sync()
    host.rot(b"first")
    host = host.again()
    assert host.kept[0].damaged
    branches = host.vhost.branches
    if operator:
        assert branches.decide(X, commit=True) is XaStatus.HEURHAZ
    assert branches.commit(X) is XaStatus.HEURHAZ
    assert host.bodies() == [b"second", b"behind"]
    host = host.again()
    assert host.vhost.branches.rollback(X) is XaStatus.HEURHAZ
    with pytest.raises(IllegalState):
        host.vhost.branches.prepare(X)
    host.vhost.branches.forget(X)
    assert host.again().kept == []


def test_what_rots_after_the_start_is_noticed_when_its_turn_comes() -> None:
    host = Host(FaultyDisk())
    host.prepare(b"first")
    host = host.again()
    host.rot(b"first")
    assert host.vhost.branches.commit(X) is XaStatus.OK  # Noticed when it is to be delivered.
    assert host.bodies() == []
    assert host.counters.memory_used == 0


def test_life_counts_from_the_commit_after_a_restart_too() -> None:
    host = Host(FaultyDisk())
    host.prepare(b"first")
    host = host.again(now_ms=5_000_000)
    assert host.vhost.branches.commit(X) is XaStatus.OK
    host = host.again(now_ms=9_000_000)
    assert host.arrived == [5_000_000]
    assert host.bodies() == [b"first"]


def test_a_queue_that_was_deleted_meanwhile_takes_its_part_along() -> None:
    host = Host(FaultyDisk())
    host.vhost.deliver(host.message(b"taken"), [host.queue], True)
    host.prepare(b"first", takes=1)
    host.vhost.delete_queue("q")
    host = host.again()
    assert not host.kept[0].damaged
    assert (host.kept[0].publishes, host.kept[0].settles) == ([], [])
    assert host.vhost.branches.commit(X) is XaStatus.OK
    assert host.again().kept == []


def test_a_purge_spares_what_is_prepared_after_a_restart_too() -> None:
    host = Host(FaultyDisk())
    host.prepare(b"first")
    host.vhost.deliver(host.message(b"gone"), [host.queue], True)
    assert host.queue.purge() == 1
    host = host.again()
    assert host.bodies() == []
    assert host.vhost.branches.commit(X) is XaStatus.OK
    assert host.again().bodies() == [b"first"]


def test_records_tell_what_they_were_given() -> None:
    one = Prepared(X.encode(), 5, True, [(1, 7), (1 << 40, 1)], [(7, 1 << 41, 2)])
    assert Prepared.decode(one.encode()) == one
    assert read_decided(encode_decided(b"xid", 4, 1234)) == (b"xid", 4, 1234)
