# SPDX-License-Identifier: Apache-2.0
"""The brokers of a cluster as one of them sees them."""

from __future__ import annotations

from headrace.server.cluster.census import Census
from headrace.store.ledger.members import LEFT, RUNNING, BrokerRow


def row(name: str, seen: int, state: str = RUNNING) -> BrokerRow:
    return BrokerRow(name, seen, "127.0.0.1", 5672, state)


def test_a_broker_that_stands_still_is_a_member_behind_those_that_live() -> None:
    """A busy machine delays a counter; a client that hears of nobody else is lost for good."""
    census = Census(lease_s=2.0, beat_s=1.0)
    for beat in range(4):
        census.update([row("a", 1), row("b", beat), row("c", beat), row("d", 1, LEFT)], beat)
    assert [one.name for one in census.alive()] == ["b", "c"]
    assert [one.name for one in census.members()] == ["b", "c", "a"]
    assert census.available_brokers() == ["b", "c"]


def test_brokers_of_one_address_are_told_apart_by_nobody() -> None:
    """Those that are down may have had it before."""
    census = Census(lease_s=2.0, beat_s=1.0)
    rows = [row("a", 1), row("b", 1), row("c", 1)._replace(port=5673), row("d", 1, LEFT)]
    census.update(rows, 0.0)
    assert "brokers 'a' and 'b' have the same address, 127.0.0.1:5672" in census.shared_address()
    for beat in range(4):
        census.update([row("a", 1), row("b", beat)], beat)
    assert census.shared_address() == ""


def test_a_broker_lives_by_the_lease_that_it_wrote() -> None:
    """It serves that long without a heartbeat, whatever the lease of those who look."""
    census = Census(lease_s=2.0, beat_s=1.0)
    rows = [row(name, 1)._replace(lease_s=lease_s) for name, lease_s in (("a", 4.0), ("b", 1.0))]
    lived = []
    for beat in range(6):
        census.update([*rows, row("old", 1)], beat)  # Of a version that writes no lease.
        lived.append([name for name in ("a", "b", "old") if census.is_alive(name)])
    assert lived == [["a", "b", "old"], ["a", "old"], ["a"], ["a"], [], []]


def test_different_leases_are_named() -> None:
    census = Census(lease_s=6.0, beat_s=1.0)
    rows = [row("a", 1), row("b", 1)._replace(lease_s=6.0), row("c", 1)._replace(lease_s=20.0)]
    census.update(rows, 0.0)
    assert "6 s ('a', 'b'), 20 s ('c')" in census.unequal_leases()
    census.update([*rows[:2], row("c", 1, LEFT)._replace(lease_s=20.0)], 1.0)
    assert census.unequal_leases() == ""
