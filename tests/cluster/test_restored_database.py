# SPDX-License-Identifier: Apache-2.0
"""An older copy of the database is put back: brokers have more than it, and say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.brokers.broker_process import Served, until
from support.cluster import LEASE, drained, operator, owners, publish

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


def add_vhost(broker: Served, name: str) -> None:
    with operator(broker) as client:
        client.ask("put vhost", name=name)
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        client.ask("put permission", user="guest", vhost=name, **rights)


def test_a_virtual_host_that_it_does_not_know_is_set_aside(make: Make, database: Servers) -> None:
    """It was not deleted. One that was is gone."""
    broker = make("a", *LEASE).start()
    add_vhost(broker, "/old")
    older = dump(database.primary)
    with operator(broker) as client:
        client.ask("delete vhost", name="/old")
    add_vhost(broker, "/new")
    publish(broker, range(10), "/new")
    vhosts = broker.home / "data/vhosts"
    until(lambda: sorted(home.name for home in vhosts.iterdir()) == ["1", "3"], "the old is gone")
    restore(database.primary, older)
    aside = broker.home / "data/unrecorded/3"
    until(aside.exists, "the new one is aside")
    assert b"orders" in b"".join(path.read_bytes() for path in aside.glob("journal/*.segment"))
    until(lambda: owners(broker) == {"/": "a", "/old": "a"}, "the others are served")
    assert "has the data of vhost '/new', which definitions.db does not record" in broker.log()


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
