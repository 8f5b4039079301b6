# SPDX-License-Identifier: Apache-2.0
"""The health check on the limit of connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client import blocking
from support.console import LocalConsole

if TYPE_CHECKING:
    from pathlib import Path

CHECK = "/api/health/checks/below-node-connection-limit"


def test_the_limit_of_connections_is_looked_at(tmp_path: Path) -> None:
    with LocalConsole(tmp_path, broker={"connections_max": 2}) as console:
        assert console.ask("GET", CHECK, user=None).status == 200
        with blocking.connect(console.broker.url), blocking.connect(console.broker.url):
            answer = console.ask("GET", CHECK, user=None)
            assert (answer.status, answer.json) == (503, {"status": "failed"})
