# SPDX-License-Identifier: Apache-2.0
"""A broker of a cluster without a database: its reaction to heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from unittest import mock

import pytest

from headrace.model.events import Event, Events
from headrace.server.cluster.assignment import removable
from headrace.server.cluster.heartbeat import Work, boot_s
from headrace.server.cluster.membership import Joined
from headrace.server.cluster.node import ClusterNode, Served
from headrace.store.errors import StoreError
from headrace.store.ledger.members import (
    RUNNING,
    BrokerRow,
    ClusterRows,
    LedgerRow,
    NameTakenError,
)
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_members import Members
from headrace.store.ledger.postgres_session import Address

LEASE_S = 6.0
NOTHING = ClusterRows([], [], "")


def with_node(play: Callable[[ClusterNode, Events], None]) -> None:
    """Play with a node that has no threads."""

    async def run() -> None:
        cluster = Cluster(Address("postgresql://broker@nowhere/headrace"))
        members = Members(cluster, "a", "127.0.0.1", 5672, LEASE_S)
        events = Events()
        play(ClusterNode(Joined(cluster, members), str, events), events)

    asyncio.run(run())


def test_a_heartbeat_from_before_the_broker_stood_still_thaws_nothing() -> None:
    """Another broker may have taken what it served since."""
    heard: list[str] = []

    def listen(event: Event) -> None:
        heard.append(event.kind)

    def play(node: ClusterNode, events: Events) -> None:
        events.add_listener(listen)
        node.frozen = True
        node.on_rows(NOTHING, boot_s() - LEASE_S)
        assert node.frozen
        node.on_rows(NOTHING, boot_s())
        assert not node.frozen

    with_node(play)
    assert heard == ["cluster.thawed"]


def test_an_answer_of_the_database_that_nobody_waits_for_is_no_error() -> None:
    """`headrace cluster status` waits for two seconds; a database may take longer."""
    errors: list[object] = []
    asked: list[Work] = []

    async def play() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, told: errors.append(told))
        cluster = Cluster(Address("postgresql://broker@nowhere/headrace"))
        members = Members(cluster, "a", "127.0.0.1", 5672, LEASE_S)
        node = ClusterNode(Joined(cluster, members), str, Events())
        with mock.patch.object(node.heartbeat, "do", asked.append):
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0):
                        await node.on_heartbeat(answer)
        asked[0](members)
        with pytest.raises(OSError, match="gone"):
            asked[1](members)
        await asyncio.sleep(0)

    answers = iter((None, OSError("gone")))

    def answer(_: Members) -> None:
        found = next(answers)
        if found is not None:
            raise found

    asyncio.run(play())
    assert len(asked) == 2
    assert errors == []


def test_a_broker_that_lost_its_name_says_so_once() -> None:
    said: list[str] = []

    def play(node: ClusterNode, _events: Events) -> None:
        node.on_fatal = said.append
        for _ in range(3):
            node.on_failure(NameTakenError("another broker is 'a' in the cluster now"))
            node.on_rows(NOTHING, boot_s())

    with_node(play)
    assert said == ["another broker is 'a' in the cluster now"]


def running(*names: str) -> list[BrokerRow]:
    return [BrokerRow(name, 0, "127.0.0.1", 5672, RUNNING) for name in names]


def with_vhost(
    play: Callable[[ClusterNode, dict[str, int], mock.Mock], ClusterRows],
) -> ClusterNode:
    """Let a node do what rows have it do with a virtual host, and return it."""

    async def run() -> ClusterNode:
        cluster = Cluster(Address("postgresql://broker@nowhere/headrace"))
        members = Members(cluster, "a", "127.0.0.1", 5672, LEASE_S)
        node = ClusterNode(Joined(cluster, members), str, Events())
        vhosts = {"/x": 2}
        node.vhost_numbers = lambda: vhosts
        node.hosts = hosts = mock.Mock(vhosts={})
        rows = play(node, vhosts, hosts)
        node.on_rows(rows, boot_s())
        await asyncio.gather(*node.tasks)
        node.pool.shutdown()
        return node

    return asyncio.run(run())


def test_a_virtual_host_that_is_deleted_while_it_is_taken_is_not_started() -> None:
    """Nothing would stop it, and its ledger would stay."""
    started: list[mock.Mock] = []

    def play(node: ClusterNode, vhosts: dict[str, int], hosts: mock.Mock) -> ClusterRows:
        def take(name: str, *_: object) -> mock.Mock:
            vhosts.clear()
            return mock.Mock(ledger=PostgresLedger(node.cluster, name, "a"))

        node.copies = mock.Mock(take=take)
        started.append(hosts.add)
        return ClusterRows(running("a"), [], "")

    node = with_vhost(play)
    started[0].assert_not_called()
    assert (node.served, node.busy) == ({}, set())
    row = LedgerRow("2 /x", "a", "taken", 1, 0, 1, "")
    assert removable("a", node.vhost_numbers(), {"2 /x": row}, node.census) == ["2 /x"]


def test_a_virtual_host_that_is_deleted_while_it_is_given_is_dropped() -> None:
    """The broker still has it, so that the next heartbeat removes its ledger."""

    def play(node: ClusterNode, vhosts: dict[str, int], hosts: mock.Mock) -> ClusterRows:
        async def hand_over(*_: object) -> None:
            vhosts.clear()

        hosts.hand_over = hand_over
        disk = mock.Mock(lost=None, ledger=PostgresLedger(node.cluster, "2 /x", "a"))
        node.served["2 /x"] = Served("/x", disk, "taken", 0.0)
        row = LedgerRow("2 /x", "a", "taken", 1, 0, 1, "b")
        return ClusterRows(running("a", "b"), [row], "")

    assert list(with_vhost(play).served) == ["2 /x"]


@pytest.mark.parametrize(
    ("others", "why"),
    [((), "no broker has this name"), (("b",), "is served by no broker yet")],
)
def test_a_move_is_judged_by_the_next_heartbeat(others: tuple[str, ...], why: str) -> None:
    """The broker may have joined since the last one. One that has not is refused at once."""
    beats: list[float] = []

    async def run() -> None:
        cluster = Cluster(Address("postgresql://broker@nowhere/headrace"))
        members = Members(cluster, "a", "127.0.0.1", 5672, LEASE_S)
        node = ClusterNode(Joined(cluster, members), str, Events())
        vhosts = {"/x": 2}
        node.vhost_numbers = lambda: vhosts
        node.busy.add("2 /x")  # It takes nothing.
        node.on_rows(ClusterRows(running("a"), [], ""), boot_s())

        def beat() -> None:
            beats.append(boot_s())
            node.loop.call_soon(node.on_rows, ClusterRows(running("a", *others), [], ""), beats[-1])

        with (
            mock.patch.object(node.heartbeat, "beat_now", beat),
            pytest.raises(StoreError, match=why),
        ):
            await node.move("/x", "b", 30.0)

    asyncio.run(run())
    assert len(beats) == 1
