# SPDX-License-Identifier: Apache-2.0
"""The port of ledgers, on real PostgreSQL with a synchronous standby."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import pytest

from headrace.store.ledger.port import Fenced, Gap, Position
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_session import Address
from support.postgres import Servers, servers

Make = Callable[..., PostgresLedger]


@pytest.fixture(scope="module")
def running() -> Iterator[Servers]:
    with servers() as found:
        Cluster(Address(found.primary.url())).prepare()
        yield found


@pytest.fixture
def make(running: Servers, request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes ledgers of the test's own name; closes them."""
    made = []

    def ledger(owner: str = "broker-1") -> PostgresLedger:
        made.append(
            PostgresLedger(Cluster(Address(running.primary.url())), request.node.name, owner)
        )
        return made[-1]

    yield ledger
    for one in made:
        one.close()


def test_a_new_ledger_is_empty(make: Make) -> None:
    assert make().read_position() == Position(0, 0, 1)
    ledger = make()
    assert ledger.open() == Position(1, 0, 1)
    assert list(ledger.read(0)) == []


@pytest.mark.parametrize("size", [32, 8_099, 8_100, 8_101, 16_200, 1_036_799, 1_036_801, 3_000_000])
def test_an_entry_is_read_as_it_was_appended(make: Make, size: int) -> None:
    octets = os.urandom(size)
    ledger = make()
    ledger.open()
    ledger.append(1, [octets[:7], memoryview(octets)[7:20], bytearray(octets[20:])])
    ledger.append(2, [b"second"])
    assert list(ledger.read(0)) == [(1, octets), (2, b"second")]
    assert list(ledger.read(1)) == [(2, b"second")]
    assert list(ledger.read(2)) == []


def test_entries_of_many_rows_are_read_in_lots(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.store.ledger.postgres.READ_ROWS", 3)
    entries = [(number, os.urandom(number % 7 * 8_100 + 10)) for number in range(1, 30)]
    ledger = make()
    ledger.open()
    for number, octets in entries:
        ledger.append(number, [octets])
    assert list(ledger.read(0)) == entries


def test_the_same_append_again_adds_nothing(make: Make) -> None:
    ledger = make()
    ledger.open()
    ledger.append(1, [b"one"])
    ledger.append(1, [b"one"])
    ledger.append(2, [b"two"])
    ledger.append(2, [b"two"])
    assert list(ledger.read(0)) == [(1, b"one"), (2, b"two")]


@pytest.mark.parametrize("number", [1, 4])
def test_an_append_out_of_turn_is_a_gap(make: Make, number: int) -> None:
    ledger = make()
    ledger.open()
    ledger.append(1, [b"one"])
    ledger.append(2, [b"two"])
    with pytest.raises(Gap, match=f"ends at entry 2 of epoch 1, but entry {number} of epoch 1"):
        ledger.append(number, [b"x"])
    assert list(ledger.read(0)) == [(1, b"one"), (2, b"two")]


def test_an_owner_before_is_fenced(make: Make) -> None:
    first, second = make("broker-1"), make("broker-2")
    first.open()
    first.append(1, [b"one"])
    assert second.open() == Position(2, 1, 1)
    for _ in range(2):
        with pytest.raises(Fenced, match="broker-2 owns the ledger, in epoch 2"):
            first.append(2, [b"of the first"])
        with pytest.raises(Fenced):
            first.append(1, [b"one"])
    with pytest.raises(Fenced):
        first.trim(1)
    second.append(2, [b"of the second"])
    assert list(second.read(0)) == [(1, b"one"), (2, b"of the second")]
    assert first.open() == Position(3, 2, 1)
    with pytest.raises(Fenced):
        second.append(3, [b"x"])


def test_a_ledger_that_was_not_taken_takes_nothing(make: Make) -> None:
    with pytest.raises(Fenced, match="was not taken"):
        make().append(1, [b"one"])


def test_a_follower_reads_what_is_durable_for_certain(make: Make) -> None:
    """The last entry may be one that the server has and its standby lacks."""
    owner, follower = make("broker-1"), make("broker-2")
    owner.open()
    owner.append(1, [b"one"])
    assert follower.read_position() == Position(1, 0, 1)
    owner.append(2, [b"two"])
    assert follower.read_position() == Position(1, 1, 1)
    assert list(follower.read(0)) == [(1, b"one")]
    assert follower.open() == Position(2, 2, 1)
    assert list(follower.read(1)) == [(2, b"two")]
    assert follower.read_position() == Position(2, 2, 1)


def tables(running: Servers, ledger: PostgresLedger) -> list[str]:
    rows = running.primary.execute(
        "select relname from pg_class where relkind = 'r' and relname like %s order by oid",
        f"entries\\_{ledger.id}\\_%",
    )
    return [str(row[0]) for row in rows]


def test_tables_whose_entries_are_trimmed_go(make: Make, running: Servers) -> None:
    ledger = make()
    ledger.segment_bytes = 50_000
    ledger.open()
    entries = [(number, os.urandom(20_000)) for number in range(1, 13)]
    for number, octets in entries:
        ledger.append(number, [octets])
    assert tables(running, ledger) == [f"entries_{ledger.id}_{k}" for k in (1, 2, 3, 4)]
    assert list(ledger.read(0)) == entries
    ledger.trim(4)  # Entry 4 begins the second table, and may be in the first.
    assert len(tables(running, ledger)) == 4
    ledger.trim(8)
    assert tables(running, ledger) == [f"entries_{ledger.id}_{k}" for k in (3, 4)]
    assert list(ledger.read(7)) == entries[7:]
    with pytest.raises(Gap, match="no entry 1"):
        list(ledger.read(0))
    assert make("broker-2").read_position() == Position(1, 11, 8)
    ledger.trim(99)
    assert make("broker-2").open() == Position(2, 12, 13)


def test_entries_go_on_in_the_table_of_the_owner_before(make: Make, running: Servers) -> None:
    for number in range(1, 6):
        ledger = make(f"broker-{number}")
        ledger.segment_bytes = 50_000
        ledger.open()
        ledger.append(number, [bytes(20_000)])
    assert len(tables(running, ledger)) == 2
    assert [number for number, _ in ledger.read(0)] == [1, 2, 3, 4, 5]


def test_an_entry_in_doubt_may_be_in_the_table_before(make: Make) -> None:
    ledger = make()
    ledger.segment_bytes = 50_000
    ledger.open()
    ledger.append(1, [bytes(60_000)])
    with ledger.session() as session:
        ledger.append(2, [b"two"])
        ledger.durable = 1
        ledger.add_segment(session, 2)
    ledger.append(2, [b"two"])
    ledger.append(3, [b"three"])
    ledger.append(4, [b"four"])
    assert [number for number, _ in ledger.read(0)] == [1, 2, 3, 4]
    ledger.trim(2)
    assert [number for number, _ in ledger.read(1)] == [2, 3, 4]


def test_a_missing_entry_is_a_gap(make: Make, running: Servers) -> None:
    ledger = make()
    ledger.open()
    for number in range(1, 5):
        ledger.append(number, [bytes(20_000)])
    table = f"headrace.entries_{ledger.id}_1"
    running.primary.execute(f"delete from {table} where number = 2 and part = 1")
    with pytest.raises(Gap, match="row 1 of entry 2"):
        list(ledger.read(0))
    running.primary.execute(f"delete from {table} where number = 2")
    with pytest.raises(Gap, match="no entry 2"):
        list(ledger.read(0))
    assert len(list(ledger.read(2))) == 2


def test_two_virtual_hosts_have_ledgers_of_their_own(make: Make, running: Servers) -> None:
    one = make()
    cluster = Cluster(Address(running.primary.url()))
    with contextlib.closing(PostgresLedger(cluster, "/a 'name\"%s\\", "broker-1")) as other:
        one.open()
        other.open()
        one.append(1, [b"of one"])
        other.append(1, [b"of the other"])
        assert list(one.read(0)) == [(1, b"of one")]
        assert list(other.read(0)) == [(1, b"of the other")]
