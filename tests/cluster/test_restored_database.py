# SPDX-License-Identifier: Apache-2.0
"""An older copy of the database is put back: brokers have more than it, and say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.brokers.broker_process import Served, until
from support.cluster import LEASE, drained, operator, publish

if TYPE_CHECKING:
    from support.postgres import Server, Servers

Make = Callable[..., Served]
LOST = "the database of the cluster lacks what was confirmed"


def dump(server: Server) -> Path:
    """Return a file with the schema of clusters as it is now."""
    path = server.home / "dump.sql"
    at = ("-h", str(server.home), "-p", str(server.port), "-U", "postgres")
    server.run("pg_dump", *at, "-n", "headrace", "-f", str(path), "postgres")
    return path


def restore(server: Server, path: Path) -> None:
    """Put the schema of clusters back as it was, in one transaction."""
    at = ("-h", str(server.home), "-p", str(server.port), "-U", "postgres")
    whole = ("-q", "-1", "-v", "ON_ERROR_STOP=1", "-c", "drop schema headrace cascade")
    server.run("psql", *at, *whole, "-f", str(path), "postgres")


def alarms(broker: Served) -> list[str]:
    with operator(broker) as client:
        return [row["reason"] for row in client.items("list alarms")]


@pytest.mark.parametrize("while_it_runs", [True, False])
def test_nothing_goes_on_until_an_operator_accepts_the_loss(
    make: Make, database: Servers, while_it_runs: bool
) -> None:
    broker = make("a", *LEASE).start()
    publish(broker, range(10))
    older = dump(database.primary)
    broker.restart()  # The database knows its earlier process.
    publish(broker, range(10, 20))
    if not while_it_runs:
        broker.stop()
    restore(database.primary, older)
    if not while_it_runs:
        broker.start()
    until(lambda: alarms(broker) == [LOST], "it is noticed")
    with operator(broker) as client:
        (row,) = client.items("list owners")
        assert "the engine lost what it had confirmed" in row["trouble"]
    assert "cannot be served here" in broker.log()
    broker.administer("cluster", "accept", "/")
    until(lambda: alarms(broker) == [], "the alarm ends")
    assert drained(broker) == list(range(10))
    (aside,) = (broker.home / "data").glob("**/aside-1")
    assert (aside / "journal").exists()
    publish(broker, range(20, 25))
    assert drained(broker) == list(range(20, 25))
