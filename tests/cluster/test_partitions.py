# SPDX-License-Identifier: Apache-2.0
"""Brokers and databases in network namespaces, between which packets are lost; clocks that jump."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.cluster_soak import Soak
from support.networks import networks, possible

if TYPE_CHECKING:
    from support.postgres import Servers

FAULTS = ["isolate-owner", "lose-answers", "jump-clocks", "promote-asynchronous"]


@pytest.mark.skipif(not possible(), reason="only root makes network namespaces")
@pytest.mark.timeout(300)
def test_clients_see_every_promise_kept(database: Servers, tmp_path: Path) -> None:
    """The owner is alone; it is heard and hears nothing; days pass; the database loses entries."""
    with networks() as network:
        soak = Soak(tmp_path, database, seed=5, lease_s=2, networks=network)
        asyncio.run(soak.run(FAULTS))
    assert soak.broken == []
    assert soak.clients.told > 300
    assert soak.entries > 100
