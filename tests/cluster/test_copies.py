# SPDX-License-Identifier: Apache-2.0
"""Copies of virtual hosts end with them, whichever broker deletes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.server.cluster.copies import Copies
from headrace.store.ledger.members import LedgerRow
from headrace.store.ledger.port import Gap
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_session import Address
from support.brokers.broker_process import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEDGER = "1 /x"
# A copy without entries lacks one, which is too few to read: no database is asked.
ROW = LedgerRow(LEDGER, "a", "epoch", 1, last=1, front=1, preferred_owner="")


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    cluster = Cluster(Address("postgresql://broker@127.0.0.1:1/headrace"))
    copies = Copies(cluster, "b", lambda ledger: str(tmp_path / ledger.split(" ", 1)[0]))
    copies.start()
    yield copies
    copies.stop()


def test_the_lag_of_a_copy_ends_with_its_virtual_host(copies: Copies) -> None:
    copies.follow([ROW], [LEDGER])
    until(lambda: copies.lags() == {LEDGER: 1}, "the copy is followed")
    copies.follow([], [])
    assert copies.lags() == {}


def test_what_broke_a_copy_ends_with_its_virtual_host(copies: Copies) -> None:
    """While this broker serves the virtual host it follows no copy, but the loss is not over."""
    copies.broken = {LEDGER: Gap("entries are missing"), "2 /y": Gap("entries are missing")}
    copies.follow([], [LEDGER])
    until(lambda: list(copies.broken) == [LEDGER], "the copy of /y is forgotten")
