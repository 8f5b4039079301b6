# SPDX-License-Identifier: Apache-2.0
"""The brokers of a cluster in PostgreSQL: their names, their heartbeats, and what they give up."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from headrace.store.ledger.members import RUNNING, NameTakenError
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_members import Members
from headrace.store.ledger.postgres_session import Address
from support.postgres import Servers, servers

Make = Callable[[], Members]
LEDGER = "1 /"


@pytest.fixture
def running() -> Iterator[Servers]:
    with servers(linked=False) as started:
        Cluster(Address(started.primary.url())).prepare()
        yield started


@pytest.fixture
def make(running: Servers) -> Iterator[Make]:
    """Makes brokers of one name."""
    made: list[Members] = []

    def members() -> Members:
        cluster = Cluster(Address(running.primary.url()))
        made.append(Members(cluster, "a", "127.0.0.1", 5672, 6.0))
        return made[-1]

    yield members
    for broker in made:
        broker.close()


def test_a_broker_that_was_replaced_under_its_name_is_told(make: Make) -> None:
    first, second = make(), make()
    first.join()
    assert first.beat(RUNNING).brokers[0].name == "a"
    assert not second.is_free()
    second.seize_name()
    second.join()
    with pytest.raises(OSError, match=r"terminating connection|connection is lost|closed"):
        first.beat(RUNNING)
    first.close()
    with pytest.raises(NameTakenError, match="another broker is 'a' in the cluster now"):
        first.beat(RUNNING)
    assert second.beat(RUNNING).brokers[0].seen == 3


def test_a_broker_that_the_database_has_forgotten_is_entered_again(
    make: Make, running: Servers
) -> None:
    """An older database has no row of it, or one of an earlier process."""
    members = make()
    members.join()
    for older in ("delete from headrace.broker", "update headrace.broker set incarnation = 'old'"):
        running.primary.execute(older)
        for _ in range(2):
            (row,) = members.beat(RUNNING).brokers
            assert (row.name, row.state) == ("a", RUNNING)


def test_a_lease_is_that_of_the_process_that_wrote_it(make: Make, running: Servers) -> None:
    """A process of an older version writes the row of a broker without its lease."""
    first = make()
    first.join()
    assert first.beat(RUNNING).brokers[0].lease_s == 6.0
    second = make()
    second.lease_s = 20.0
    second.join()
    assert second.beat(RUNNING).brokers[0].lease_s == 20.0
    running.primary.execute("update headrace.broker set incarnation = 'old'")
    other = make()
    other.name, other.lease_s = "b", 2.0
    other.join()
    assert [row.lease_s for row in other.beat(RUNNING).brokers] == [0.0, 2.0]


def test_what_an_older_broker_left_out_is_made(make: Make, running: Servers) -> None:
    """Its database has the schema of this version without the additions."""
    running.primary.execute("drop table headrace.lease")
    members = make()
    members.join()
    assert members.beat(RUNNING).brokers[0].lease_s == 6.0
    running.primary.execute("drop table headrace.lease")
    members.close()  # An older database was restored, and its sessions ended.
    running.primary.execute("delete from headrace.broker")
    assert members.beat(RUNNING).brokers[0].lease_s == 6.0


def test_only_the_own_epoch_is_given_up(make: Make, running: Servers) -> None:
    """A broker that stops late does not end what another one of its name has taken since."""
    members = make()
    members.join()
    cluster = Cluster(Address(running.primary.url()))
    with (
        contextlib.closing(PostgresLedger(cluster, LEDGER, "a")) as before,
        contextlib.closing(PostgresLedger(cluster, LEDGER, "a")) as now,
    ):
        before.open()
        now.open()
        members.release(LEDGER, before.owner_token)
        (row,) = members.beat(RUNNING).ledgers
        assert row.owner == "a"
        members.release(LEDGER, now.owner_token)
        (row,) = members.beat(RUNNING).ledgers
        assert row.owner == ""
