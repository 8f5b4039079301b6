# SPDX-License-Identifier: Apache-2.0
"""A broker that starts under the name of an open session waits for the lease of its holder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.server.cluster import membership
from headrace.store.ledger.members import RUNNING, NameTakenError
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_members import Members
from headrace.store.ledger.postgres_session import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.postgres import Servers

    Make = Callable[[float], Members]


class Clock:
    """Stands in for the time module: it advances by what is slept."""

    def __init__(self) -> None:
        self.now_s = 1000.0  # Sums of quarters of a second are exact from here on.
        self.on_sleep: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.on_sleep()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(membership, "time", clock)
    return clock


@pytest.fixture
def make(database: Servers) -> Iterator[Make]:
    """Makes brokers named "a" with a lease."""
    brokers: list[Members] = []
    Cluster(Address(database.primary.url())).prepare()

    def members(lease_s: float) -> Members:
        cluster = Cluster(Address(database.primary.url()))
        brokers.append(Members(cluster, "a", "127.0.0.1", 5672, lease_s))
        return brokers[-1]

    yield members
    for broker in brokers:
        broker.close()


@pytest.mark.parametrize(("holder_s", "starting_s"), [(20.0, 6.0), (6.0, 20.0), (1.0, 20.0)])
def test_a_holder_without_heartbeats_is_ousted_after_its_own_lease(
    make: Make, clock: Clock, holder_s: float, starting_s: float
) -> None:
    holder, starting = make(holder_s), make(starting_s)
    holder.join()
    began_s = clock.now_s
    membership.oust_silent(starting)
    watched_s = clock.now_s - began_s
    assert max(holder_s, membership.WATCH_S) <= watched_s < holder_s + membership.WATCH_S
    assert starting.is_free()
    with pytest.raises(OSError, match=r"terminating connection|connection is lost|closed"):
        holder.beat(RUNNING)


def test_a_heartbeat_within_the_lease_keeps_the_name(make: Make, clock: Clock) -> None:
    holder, starting = make(20.0), make(6.0)
    holder.join()
    began_s = clock.now_s
    clock.on_sleep = lambda: clock.now_s > began_s + 19 and holder.beat(RUNNING)
    with pytest.raises(NameTakenError, match="another broker named 'a' runs in this cluster"):
        membership.oust_silent(starting)


def test_a_session_that_ends_frees_the_name_at_once(make: Make, clock: Clock) -> None:
    holder, starting = make(20.0), make(6.0)
    holder.join()
    began_s = clock.now_s
    clock.on_sleep = holder.close
    membership.oust_silent(starting)
    assert clock.now_s < began_s + membership.WATCH_S
