# SPDX-License-Identifier: Apache-2.0
"""A real broker, killed at random moments while it works, keeps what it promised."""

import asyncio
from pathlib import Path

import pytest

from headrace.testing.soak import Soak

KILLS = 10


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_killed_broker_keeps_its_promises(tmp_path: Path) -> None:
    soak = Soak(tmp_path, seed=11, say=print)
    asyncio.run(soak.run(KILLS, lambda: None))
    print(soak.report())
    assert soak.history.broken == []
    assert soak.history.confirmed
    assert soak.history.settled
    assert soak.history.commits
    assert soak.batches.last >= 0
