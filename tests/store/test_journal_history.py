# SPDX-License-Identifier: Apache-2.0
"""The journal against its model, from seeds. HEADRACE_SEEDS=1000 tries that many more."""

import os

import pytest
from history import History

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "12"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_durable_is_lost_and_nothing_settled_returns(seed: int) -> None:
    history = History(seed)
    history.run(turns=250)
    assert history.lives > 1
