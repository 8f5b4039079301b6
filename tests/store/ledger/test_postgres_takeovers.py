# SPDX-License-Identifier: Apache-2.0
"""The histories of takeovers, on a real PostgreSQL with a synchronous standby."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_session import Address
from support.disks.cluster_model import ReplicatedHistory
from support.postgres import Servers, servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.store.ledger.replicated_disk import ReplicatedDisk

SEEDS = 4
TURNS = 40


@pytest.fixture(scope="module")
def running() -> Iterator[Servers]:
    with servers(linked=False) as found:
        Cluster(Address(found.primary.url())).prepare()
        yield found


@dataclass
class PostgresHistory(ReplicatedHistory):
    """A history whose engine is PostgreSQL; the faults of machines and owners are as they were."""

    url: str = ""
    ledgers: list[PostgresLedger] = field(default_factory=list)

    def ledger(self) -> PostgresLedger:
        cluster = Cluster(Address(self.url))
        made = PostgresLedger(cluster, f"history {self.seed}", f"broker-{len(self.ledgers)}")
        self.ledgers.append(made)
        return made

    def compare_files(self, taken: ReplicatedDisk) -> None:
        """A machine that does not own the ledger knows all but its last entry."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_one_owner_had_durable_the_next_one_has(running: Servers, seed: int) -> None:
    history = PostgresHistory(seed, url=running.primary.url())
    try:
        history.run(TURNS)
    finally:
        for ledger in history.ledgers:
            ledger.close()
    assert len(history.ledgers) == history.lives > 1
