# SPDX-License-Identifier: Apache-2.0
"""Servers, brokers and networks that fail under a ledger in PostgreSQL."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from headrace.store.ledger.port import Fenced, Gap
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_session import Address
from support.brokers.broker_process import until
from support.ledger_judge import Judge, insist
from support.postgres import Proxy, Server, Servers, servers

ANSWER_S = 1.0
TAKEN_WITHIN_S = 8.0


@pytest.fixture
def running() -> Iterator[Servers]:
    with servers() as found:
        Cluster(Address(found.primary.url())).prepare()
        yield found


@pytest.fixture
def proxy(running: Servers) -> Iterator[Proxy]:
    with contextlib.closing(Proxy(running.primary.port)) as found:
        yield found


def ledger_at(
    url: str, owner: str = "broker-1", *, standbys: bool = True, answer_s: float = ANSWER_S
) -> PostgresLedger:
    cluster = Cluster(Address(url), standbys=standbys, answer_s=answer_s)
    return PostgresLedger(cluster, "/", owner)


def both(one: Server, other: Server) -> str:
    """Return the URL with both servers."""
    return one.url().replace(f":{one.port}/", f":{one.port},127.0.0.1:{other.port}/")


def append_until_done(judge: Judge, ledger: PostgresLedger, number: int, octets: bytes) -> int:
    """Append again and again while it is in doubt; return how often it was."""
    tries = 0

    def append() -> None:
        nonlocal tries
        tries += 1
        judge.append(ledger, ledger.epoch, number, octets)

    insist(append)
    return tries - 1


def test_a_standby_out_of_reach_is_a_stall(running: Servers) -> None:
    judge, ledger = Judge(), ledger_at(running.primary.url())
    ledger.open()
    judge.append(ledger, 1, 1, b"one")
    running.link.hold()
    for _ in range(3):
        with pytest.raises(OSError):
            judge.append(ledger, 1, 2, b"two")
    running.link.go_on()
    append_until_done(judge, ledger, 2, b"two")
    judge.append(ledger, 1, 3, b"three")
    ledger.close()
    with contextlib.closing(ledger_at(running.primary.url(), "broker-2")) as owner:
        assert judge.violations(owner) == []
        assert list(owner.read(0)) == [(1, b"one"), (2, b"two"), (3, b"three")]


def test_a_connection_that_is_cut_anywhere_in_an_append(running: Servers, proxy: Proxy) -> None:
    """The proxy cuts after each number of reads in turn; entries are there once, and in order."""
    judge, ledger = Judge(), ledger_at(running.primary.url(proxy.port))
    ledger.open()
    left = 0

    def count(client: bool, data: bytes) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise ConnectionResetError

    proxy.on_bytes = count
    doubts = 0
    for number in range(1, 25):
        left = 1 + number % 6
        doubts += append_until_done(judge, ledger, number, os.urandom(200_000))
    assert doubts > 10
    left = 0
    ledger.close()
    with contextlib.closing(ledger_at(running.primary.url(), "broker-2")) as owner:
        assert judge.violations(owner) == []


def test_a_silent_network_leaves_an_append_in_doubt(running: Servers, proxy: Proxy) -> None:
    judge, ledger = Judge(), ledger_at(running.primary.url(proxy.port))
    ledger.open()
    judge.append(ledger, 1, 1, b"one")
    proxy.on_bytes = lambda client, data: None if client else proxy.hold()
    with pytest.raises(OSError, match="no answer within 1 s"):
        judge.append(ledger, 1, 2, b"two")
    proxy.on_bytes = lambda client, data: None
    proxy.go_on()
    append_until_done(judge, ledger, 2, b"two")
    with contextlib.closing(ledger_at(running.primary.url(), "broker-2")) as owner:
        assert judge.violations(owner) == []
    ledger.close()


def test_an_owner_that_stands_still_in_an_append_is_overtaken(
    running: Servers, proxy: Proxy
) -> None:
    """Half an append is sent: the server's process holds the ledger's row locked."""
    judge, zombie = Judge(), ledger_at(running.primary.url(proxy.port))
    zombie.open()
    judge.append(zombie, 1, 1, b"one")
    seen = 0

    def hold(client: bool, data: bytes) -> None:
        nonlocal seen
        seen += len(data) if client else 0
        if seen > 4_000_000:
            proxy.hold()

    proxy.on_bytes = hold
    with pytest.raises(OSError):
        judge.append(zombie, 1, 2, bytes(8_000_000))
    locked = "select 1 from pg_stat_activity where backend_xid is not null"
    assert running.primary.execute(f"{locked} and wait_event_type = 'Client'")
    patient = ledger_at(running.primary.url(), "broker-2", answer_s=TAKEN_WITHIN_S)
    with contextlib.closing(patient) as owner:
        begun = time.monotonic()
        assert owner.open().epoch == 2
        assert time.monotonic() - begun < TAKEN_WITHIN_S
        judge.append(owner, 2, 2, b"of the owner")
        proxy.on_bytes = lambda client, data: None
        proxy.go_on()
        with pytest.raises(Fenced):
            append_until_done(judge, zombie, 2, bytes(8_000_000))
        assert judge.violations(owner) == []
    zombie.close()


def test_an_entry_that_waits_for_its_standby_is_the_next_owners(running: Servers) -> None:
    judge, first = Judge(), ledger_at(running.primary.url())
    first.open()
    judge.append(first, 1, 1, b"one")
    running.link.hold()
    with pytest.raises(OSError):
        judge.append(first, 1, 2, b"two")
    with contextlib.closing(ledger_at(running.primary.url(), "broker-2")) as owner:
        with pytest.raises(OSError):
            owner.open()
        running.link.go_on()
        assert insist(owner.open).last == 2
        with pytest.raises(Fenced):
            append_until_done(judge, first, 2, b"two")
        assert judge.violations(owner) == []
        assert list(owner.read(0)) == [(1, b"one"), (2, b"two")]
    first.close()


def test_a_failover_loses_nothing_that_was_confirmed(running: Servers) -> None:
    """The owner goes on with the new primary; its entry in doubt is there once."""
    url = both(running.primary, running.standby)
    judge, ledger = Judge(), ledger_at(url, standbys=False)
    ledger.open()
    for number in range(1, 20):
        judge.append(ledger, 1, number, os.urandom(30_000))
    running.link.hold()
    with pytest.raises(OSError):
        judge.append(ledger, 1, 20, b"twenty")
    running.lose_primary()
    append_until_done(judge, ledger, 20, b"twenty")
    judge.append(ledger, 1, 21, b"twenty-one")
    ledger.close()
    with contextlib.closing(ledger_at(url, "broker-2", standbys=False)) as owner:
        assert judge.violations(owner) == []


def test_a_primary_whose_standby_was_promoted_confirms_nothing(running: Servers) -> None:
    """Both take writes; the old one's commits wait for a standby that follows it no more."""
    judge, zombie = Judge(), ledger_at(running.primary.url())
    zombie.open()
    judge.append(zombie, 1, 1, b"one")
    running.standby.promote()
    with contextlib.closing(ledger_at(running.standby.url(), "broker-2", standbys=False)) as owner:
        assert owner.open() == (2, 1, 1)
        judge.append(owner, 2, 2, b"of the owner")
        for _ in range(3):
            with pytest.raises(OSError):
                judge.append(zombie, 1, 2, b"of the zombie")
        assert judge.violations(owner) == []
    zombie.close()


def test_a_promoted_standby_that_lacks_confirmed_entries_is_noticed(running: Servers) -> None:
    """It was not the one that the primary waited for."""
    late = Server(running.home, "late")
    late_link = Proxy(running.primary.port)
    running.add(late, late_link.port)
    running.primary.reload("synchronous_standby_names = 'ANY 1 (standby1)'")
    running.wait_for_standby()
    url = both(running.primary, late)
    ledger, follower = ledger_at(url, standbys=False), ledger_at(url, "broker-2", standbys=False)
    ledger.open()
    for number in (1, 2, 3):
        ledger.append(number, [b"entry"])
    until(lambda: has_entry(late, ledger.id, 3), "the late standby has the first entries")
    late_link.hold()
    for number in (4, 5, 6):
        ledger.append(number, [b"entry"])
    assert follower.read_position().last == 5
    running.primary.kill()
    late_link.cut()
    late.promote()
    with pytest.raises(Gap, match="ends at entry 3 of epoch 1, but entry 7 of epoch 1 is due"):
        insist(lambda: ledger.append(7, [b"entry"]))
    for one in (ledger, follower):
        with pytest.raises(Gap, match="a standby that lacked it was promoted"):
            insist(one.read_position)
    with pytest.raises(Gap, match="ends at entry 3, but entry 6 was durable"):
        insist(ledger.open)
    late_link.close()
    ledger.close()
    follower.close()


def has_entry(server: Server, log: int, number: int) -> bool:
    table = f"headrace.entries_{log}_1"
    if server.execute(f"select to_regclass('{table}')") == [(None,)]:
        return False
    return bool(server.execute(f"select 1 from {table} where number = {number}"))


def test_two_owners_of_one_epoch_after_a_loss_are_told_apart(running: Servers) -> None:
    """The server lost the takeover: its epoch is counted twice."""
    first, second = (ledger_at(running.primary.url(), name) for name in ("broker-1", "broker-2"))
    first.open()
    running.primary.execute("update headrace.log set epoch = 0, taken = ''")
    assert second.open().epoch == 1
    with pytest.raises(Fenced):
        first.append(1, [b"of the first"])
    second.append(1, [b"of the second"])
    first.close()
    second.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_full_disk_is_a_stall(running: Servers) -> None:
    """The server ends in a PANIC when its log of writes does not fit."""
    primary = running.primary
    judge, ledger = Judge(), ledger_at(primary.url())
    ledger.open()
    primary.stop()
    kept = primary.directory.rename(running.home / "kept")
    primary.directory.mkdir()
    options = f"size=160m,mode=700,uid={kept.stat().st_uid},gid={kept.stat().st_gid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", primary.directory], check=True)
    try:
        subprocess.run(["cp", "-a", f"{kept}/.", primary.directory], check=True)
        primary.start()
        running.wait_for_standby()
        append_until_done(judge, ledger, 1, b"one")
        octets = os.urandom(1_000_000)
        with contextlib.suppress(OSError):
            for number in itertools.count(2):
                judge.append(ledger, 1, number, octets)
        assert len(judge.confirmed) > 5
        # An operator makes room; the entry in doubt is there once.
        options = "remount,size=1g"
        subprocess.run(["mount", "-o", options, primary.directory], check=True)
        if not primary.answers():
            primary.stop("immediate")
            primary.start()
        running.wait_for_standby()
        append_until_done(judge, ledger, len(judge.confirmed) + 1, octets)
        ledger.close()
        with contextlib.closing(ledger_at(primary.url(), "broker-2")) as owner:
            assert judge.violations(owner) == []
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):  # It may have ended by itself.
            primary.kill()
        subprocess.run(["umount", "-l", primary.directory], check=True)
