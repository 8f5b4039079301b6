# SPDX-License-Identifier: Apache-2.0
"""Brokers of a cluster, each a process, on real PostgreSQL with a synchronous standby."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.brokers.broker_process import Served
from support.postgres import Servers, servers

Make = Callable[..., Served]


@pytest.fixture
def database() -> Iterator[Servers]:
    """A primary and its standby without a cluster."""
    with servers() as found:
        yield found


@pytest.fixture
def make(database: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes brokers of one cluster by their names; they are not started."""
    monkeypatch.setenv("HEADRACE_CLUSTER", database.url())
    made: list[Served] = []

    def broker(name: str, *options: str) -> Served:
        made.append(Served(tmp_path / name, "--cluster-name", name, *options))
        return made[-1]

    yield broker
    for one in made:
        if one.running:
            one.kill()
