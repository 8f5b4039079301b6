# SPDX-License-Identifier: Apache-2.0
"""Leases of brokers that stand still, are cut off, and have clocks of different rates, from seeds.

HEADRACE_SEEDS=20000 tries that many.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pytest

from headrace.server.cluster import node
from headrace.server.cluster.census import Census
from headrace.server.cluster.heartbeat import MARGIN
from headrace.server.cluster.node import ClusterNode, Served
from support.cluster_simulation import LEASE_S, Simulation, run

if TYPE_CHECKING:
    from headrace.store.ledger.members import ClusterRows
    from headrace.store.ledger.replicated_disk import ReplicatedDisk

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "200"))
LOT = 100
TROUBLES = 8
SEEDS_OF_CONTROL = 60
UNEQUAL_S = (2.0, LEASE_S, 2 * LEASE_S)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, SEEDS, LOT))
def test_no_two_brokers_deliver_at_once(first: int) -> None:
    takeovers = late = 0
    for seed in range(first, min(first + LOT, SEEDS)):
        done = run(partial(Simulation, seed), TROUBLES)
        assert done.broken == [], f"seed {seed}"
        takeovers += done.engine.takes - 3
        late += done.late
    assert takeovers > LOT
    assert late


@pytest.mark.parametrize("first", range(0, SEEDS, LOT))
def test_no_two_brokers_deliver_at_once_though_their_leases_differ(first: int) -> None:
    takeovers = 0
    for seed in range(first, min(first + LOT, SEEDS)):
        done = run(partial(Simulation, seed, leases=UNEQUAL_S), TROUBLES)
        assert done.broken == [], f"seed {seed}"
        takeovers += done.engine.takes - 3
    assert takeovers > LOT


def finds_it(margin: float = MARGIN, leases: tuple[float, ...] = (LEASE_S,) * 3) -> bool:
    seeds = range(SEEDS_OF_CONTROL)
    return any(run(partial(Simulation, seed, margin, leases), TROUBLES).broken for seed in seeds)


def test_a_takeover_by_the_lease_of_the_one_who_looks_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker with a longer lease delivers beside the next owner."""
    monkeypatch.setattr(Census, "effective_lease_s", lambda census, _: census.lease_s)
    assert finds_it(leases=UNEQUAL_S)


def test_a_lease_that_ends_too_late_is_found() -> None:
    """Without this, that nothing is found says nothing."""
    assert finds_it(margin=-0.5)


def test_a_thaw_by_an_old_heartbeat_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    on_rows = ClusterNode.on_rows

    def on_any_rows(broker: ClusterNode, rows: ClusterRows, sent_s: float) -> None:
        on_rows(broker, rows, sent_s)
        broker.thaw()

    monkeypatch.setattr(ClusterNode, "on_rows", on_any_rows)
    assert finds_it()


def test_a_takeover_from_a_broker_that_is_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterNode, "_silent", lambda *_: None)
    assert finds_it()


def test_a_look_that_does_not_know_of_a_takeover_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker would report that the engine lost the epoch."""

    def since_ever(vhost: str, disk: ReplicatedDisk, taken: str, _: float) -> Served:
        return Served(vhost, disk, taken, 0.0)

    monkeypatch.setattr(node, "Served", since_ever)
    assert finds_it()


def test_an_engine_that_is_away_moves_nothing() -> None:
    """Also for longer than a lease: nobody could have a heartbeat."""

    async def play() -> None:
        simulation = Simulation(1)
        with simulation.in_charge():
            await simulation.steps(LEASE_S)
            before = dict(simulation.engine.ledgers)
            assert len(before) == 3
            simulation.away_until = simulation.now_s + 3 * LEASE_S
            await simulation.steps(4 * LEASE_S)
        assert simulation.engine.ledgers == before
        assert simulation.broken == []

    asyncio.run(play())
