# SPDX-License-Identifier: Apache-2.0
"""Which broker takes which virtual host: each computes it alone, and all come to the same."""

from __future__ import annotations

from headrace.server.cluster.assignment import Assignment, assign, removable
from headrace.server.cluster.census import Census
from headrace.store.ledger.members import DRAINING, RUNNING, BrokerRow, LedgerRow

LEASE_S = 2.0


def census_of(*living: str, draining: str = "") -> Census:
    """Return a census in which "dead" stands still."""
    census = Census(LEASE_S, beat_s=1.0)
    for beat in range(4):
        rows = [
            BrokerRow(name, beat, name, 5672, DRAINING if name == draining else RUNNING)
            for name in living
        ]
        census.update([*rows, BrokerRow("dead", 0, "dead", 5672, RUNNING)], float(beat))
    return census


def owned(*owners: str, wanted: str = "") -> dict[str, LedgerRow]:
    """Return ledgers with these owners."""
    names = [f"{number} /{number}" for number in range(len(owners))]
    return {
        name: LedgerRow(name, owner, "taken", 1, 5, 1, wanted)
        for name, owner in zip(names, owners, strict=True)
    }


def test_what_a_dead_broker_had_is_spread_over_the_others() -> None:
    """Nobody takes a ledger that another one takes, and none is left."""
    ledgers = owned("dead", "dead", "dead", "dead", "a", "b", "a")
    census = census_of("a", "b", "c")
    taken = {me: assign(me, ledgers, ledgers, census) for me in ("a", "b", "c")}
    assert not any(one.give for one in taken.values())
    assert sorted(name for one in taken.values() for name in one.take) == list(ledgers)[:4]
    assert {me: len(one.take) for me, one in taken.items()} == {"a": 1, "b": 1, "c": 2}


def test_what_lives_stays_where_it_is() -> None:
    ledgers = owned("a", "a", "a", "a")
    for me in ("a", "b"):
        assert assign(me, ledgers, ledgers, census_of("a", "b")) == Assignment([], [])


def test_the_broker_that_an_operator_wants_gets_it() -> None:
    ledgers = owned("a", "dead", wanted="b")
    census = census_of("a", "b")
    assert assign("a", ledgers, ledgers, census) == Assignment([], ["0 /0"])
    assert assign("b", ledgers, ledgers, census) == Assignment(["1 /1"], [])


def test_a_broker_that_an_operator_wants_and_that_is_dead_gets_nothing() -> None:
    ledgers = owned("a", "dead", wanted="dead")
    census = census_of("a", "b")
    assert assign("a", ledgers, ledgers, census) == Assignment([], [])
    assert assign("b", ledgers, ledgers, census) == Assignment(["1 /1"], [])


def test_a_broker_that_is_drained_gives_all_and_takes_nothing() -> None:
    ledgers = owned("a", "a", "dead")
    census = census_of("a", "b", draining="a")
    assert assign("a", ledgers, ledgers, census) == Assignment([], ["0 /0", "1 /1"])
    assert assign("b", ledgers, ledgers, census).take == ["2 /2"]
    alone = census_of("a", draining="a")
    assert assign("a", ledgers, ledgers, alone) == Assignment([], [])


def test_a_new_virtual_host_has_no_ledger_yet() -> None:
    census = census_of("a", "b")
    assert assign("b", ["0 /0", "9 /new"], owned("a"), census).take == ["9 /new"]


def test_a_deleted_ledger_is_removed_by_its_owner_or_by_the_first_that_lives() -> None:
    ledgers = owned("dead", "dead", "b", "", "gone", "c")
    census = census_of("b", "c")
    wanted = ["0 /0"]
    assert removable("b", wanted, ledgers, census) == ["1 /1", "2 /2", "3 /3", "4 /4"]
    assert removable("c", wanted, ledgers, census) == ["5 /5"]
