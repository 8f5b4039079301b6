# SPDX-License-Identifier: Apache-2.0
"""Takeovers against the model of the journal, from seeds. HEADRACE_SEEDS=20000 tries that many."""

import os

import pytest

from headrace.store.errors import StoreError
from headrace.store.ledger.port import LedgerLost
from headrace.testing.ledger import CONTROLS
from support.client_history import violations
from support.disks.cluster_model import ReplicatedHistory

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "1500"))
LOT = 100  # Seeds of a test.
TURNS = 50
SEEDS_OF_CONTROL = 200
LOTS_OF_CONTROL = 3


@pytest.mark.parametrize("first", range(0, SEEDS, LOT))
def test_what_one_owner_had_durable_the_next_one_has(first: int) -> None:
    seeds = range(first, min(first + LOT, SEEDS))
    several_lives = overtaken = failovers = 0
    for seed in seeds:  # One after the other: a history has some megabytes of disks.
        history = ReplicatedHistory(seed)
        history.run(TURNS)
        assert violations(history.events) == []
        several_lives += history.lives > 1
        overtaken += history.overtaken
        failovers += history.failovers
    assert several_lives > len(seeds) // 2
    assert overtaken
    assert failovers


def shows_a_loss(seed: int, control: str) -> bool:
    """Return True if the model finds something wrong in a history."""
    try:
        ReplicatedHistory(seed, controls=frozenset((control,))).run(TURNS)
    except (AssertionError, LedgerLost, StoreError):
        return True
    return False


@pytest.mark.parametrize("control", CONTROLS)
def test_the_model_finds_each_mistake_of_an_adapter(control: str) -> None:
    """Without this, that nothing is found says nothing."""
    assert any(shows_a_loss(seed, control) for seed in range(SEEDS_OF_CONTROL))


@pytest.mark.parametrize("lot", range(LOTS_OF_CONTROL))
@pytest.mark.parametrize("control", CONTROLS)
def test_the_judge_finds_each_mistake_of_an_adapter(control: str, lot: int) -> None:
    """It knows only what clients see; the primary is lost at the worst moments."""
    for seed in range(lot * LOT, (lot + 1) * LOT):
        history = ReplicatedHistory(seed, controls=frozenset((control,)), worst=True)
        history.run_to_the_end(TURNS)
        if violations(history.events):
            return
    pytest.fail("no violation")


@pytest.mark.parametrize("lot", range(LOTS_OF_CONTROL))
def test_the_judge_finds_nothing_where_the_adapter_makes_no_mistake(lot: int) -> None:
    for seed in range(lot * LOT, (lot + 1) * LOT):
        history = ReplicatedHistory(seed, worst=True)
        history.run(TURNS)
        assert violations(history.events) == []
