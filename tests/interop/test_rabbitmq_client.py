# SPDX-License-Identifier: Apache-2.0
"""Node's rabbitmq-client, which reconnects by itself: the scenarios of rabbitmq_client.cjs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.clients.client_programs import BROUGHT, Kept, bring, names_in, scenarios_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parent / "rabbitmq_client.cjs"
MODULE = BROUGHT / "npm" / "node_modules" / "rabbitmq-client"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | None]]:
    """Return the failure of each scenario."""
    bring(MODULE)
    home = tmp_path_factory.mktemp("node")
    with Kept(home) as kept:
        yield scenarios_of(["node", str(PROGRAM), str(MODULE)], kept, home / "stderr")


@pytest.mark.parametrize("scenario", names_in(PROGRAM, r"^  async (\w+)\("))
def test_rabbitmq_client(ran: dict[str, str | None], scenario: str) -> None:
    assert ran.get(scenario, "it does not end") is None, ran.get(scenario)
