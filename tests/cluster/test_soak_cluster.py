# SPDX-License-Identifier: Apache-2.0
"""A short form of tools/soak_cluster.py: a virtual host moves, its owner is killed, under load."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.cluster import channel_to
from support.cluster_clients import PAIR, epoch_at
from support.cluster_soak import Soak

if TYPE_CHECKING:
    from support.postgres import Servers


@pytest.mark.timeout(200)
def test_clients_see_every_promise_kept(database: Servers, tmp_path: Path) -> None:
    soak = Soak(tmp_path, database, seed=5, lease_s=2)
    asyncio.run(soak.run(["move", "kill-owner", "cancel-waits"]))
    assert soak.broken == []
    assert soak.clients.told > 300
    assert soak.entries > 100


@pytest.mark.timeout(200)
def test_the_judge_sees_what_is_gone(database: Servers, tmp_path: Path) -> None:
    """Messages that another client takes away are lost for those who published them."""
    soak = Soak(tmp_path, database, seed=6, lease_s=2)
    look = soak.clients.look

    async def take_and_look() -> None:
        with channel_to(soak.owner()) as channel:
            channel.queue_purge(PAIR[0])
        await look()

    soak.clients.look = take_and_look  # type: ignore[method-assign]
    asyncio.run(soak.run(["move"]))
    assert any("was confirmed and is lost" in text for text in soak.broken)
    assert any(epoch_at(broker, soak.clients.begun[broker]) for broker in soak.brokers)
