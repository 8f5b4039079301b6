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
    assert [one.name for one in census.living()] == ["b", "c"]
    assert [one.name for one in census.members()] == ["b", "c", "a"]
    assert census.takers() == ["b", "c"]
