# SPDX-License-Identifier: Apache-2.0
"""Users, permissions and virtual hosts are the same at all brokers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pika
import pytest

from headrace.store.data_directory import DataDirectory
from headrace.store.errors import StoreError
from support.brokers.broker_process import Served, until
from support.cluster import LEASE, command, drained, operator, owners, publish, wait_until_served
from support.management_socket import OperationRefused
from support.postgres import WAITING
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from support.management_socket import ManagementClient
    from support.postgres import Servers

Make = Callable[..., Served]


def users(broker: Served) -> list[str]:
    with operator(broker) as client:
        return sorted(row["name"] for row in client.items("list users"))


def identity(broker: Served) -> bytes:
    return (broker.home / "data" / "identity").read_bytes()


def test_users_made_at_any_broker_are_known_at_all(make: Make) -> None:
    first, second = make("a").start(), make("b").start()
    assert identity(first) == identity(second)
    with operator(second) as client:
        client.ask("put user", name="ada", password="s3cr-t", tags="")
        client.ask("put permission", user="ada", vhost="/", configure=".*", write=".*", read=".*")
    until(lambda: users(first) == ["ada", "guest"], "the other broker knows her")
    with operator(first) as client:
        client.ask("put user", name="bob", password="s3cr-t", tags="")
    until(lambda: users(second) == ["ada", "bob", "guest"], "and he is known there")
    credentials = pika.PlainCredentials("ada", "s3cr-t")
    parameters = pika.ConnectionParameters(first.host, first.port, credentials=credentials)
    pika.BlockingConnection(parameters).close()


def test_a_command_changes_the_users_of_the_cluster(make: Make) -> None:
    first, second = make("a").start(), make("b").start()
    done = command(first, "user", "add", "--password", "x", "carl")
    assert (done.returncode, done.stderr) == (0, "")
    until(lambda: "carl" in users(second), "the other broker knows him")
    refused = command(first, "user", "add", "--password", "x", "dora", HEADRACE_CLUSTER="")
    assert refused.returncode == 1
    assert "set HEADRACE_CLUSTER to the database's URL" in refused.stderr
    assert "dora" not in users(first)


def test_a_user_is_not_added_while_the_database_has_no_standby(
    make: Make, database: Servers
) -> None:
    broker = make("a", "--no-cluster-standbys", *LEASE).start()
    database.primary.kill()
    done = command(broker, "user", "add", "--password", "x", "carl", HEADRACE_CLUSTER_STANDBYS="no")
    assert done.returncode == 1
    assert "PostgreSQL at" in done.stderr
    assert users(broker) == ["guest"]


def test_a_user_is_not_added_when_standbys_are_configured_away(
    make: Make, database: Servers
) -> None:
    """The commit waits for a standby, and is answered because it need not any more."""
    broker = make("a", "--cluster-lease-s", "30").start()
    database.link.hold()
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(add_user, broker)
        until(lambda: database.primary.execute(WAITING), "a commit waits")
        database.primary.reload("synchronous_standby_names = ''")
        with pytest.raises(OperationRefused, match="wait for no standby"):
            adding.result(PATIENCE_S)
    with operator(broker) as client:
        until(lambda: "wait for no standby" in cluster_health(client), "a warning")
        database.primary.reload("synchronous_standby_names = 'ANY 1 (standby1)'")
        database.link.go_on()
        until(lambda: cluster_health(client) == "", "the warning ends")


def add_user(broker: Served) -> None:
    with operator(broker) as client:
        client.ask("put user", name="ada", password="s3cr-t", tags="")


def cluster_health(client: ManagementClient) -> str:
    return str(client.ask("health", checks=["cluster"])["checks"]["cluster"])


def test_virtual_hosts_are_spread_and_their_ledgers_end_with_them(
    make: Make, database: Servers
) -> None:
    first, second = make("a").start(), make("b").start()
    with operator(first) as client:
        for name in ("/one", "/two", "/three"):
            add_vhost(client, name)
    by_name = {"a": first, "b": second}
    until(lambda: len(owners(first)) == 4 and all(owners(first).values()), "all are served")
    spread = owners(first)
    assert sorted(spread.values()) == ["a", "a", "b", "b"]
    for name, owner in spread.items():
        wait_until_served(by_name[owner], name)
        publish(by_name[owner], range(5), name)
        assert drained(by_name[owner], name) == list(range(5))
    with operator(second) as client:
        client.ask("delete vhost", name="/two")
    left = "select count(*) from headrace.log where name like '%/two'"
    until(lambda: database.primary.execute(left) == [(0,)], "the ledger is removed")
    assert sorted(owners(first)) == ["/", "/one", "/three"]


def test_a_virtual_host_that_is_deleted_while_its_owner_is_down_leaves_no_ledger(
    make: Make, database: Servers
) -> None:
    """One of the same name is made meanwhile, and stays."""
    first = make("a", *LEASE).start()
    with operator(first) as client:
        add_vhost(client, "/x")
    wait_until_served(first, "/x")
    publish(first, range(5), "/x")
    first.kill()
    for words in (("delete", "/x"), ("add", "/x")):
        done = command(first, "vhost", *words)
        assert (done.returncode, done.stderr) == (0, "")
    second = make("b", *LEASE).start()
    with operator(second) as client:
        allow(client, "/x")
    wait_until_served(second, "/x")
    publish(second, range(5, 10), "/x")
    left = "select name from headrace.log where name like '%/x'"
    until(lambda: database.primary.execute(left) == [("3 /x",)], "the ledger is removed")
    tables = "select count(*) from headrace.segment where log not in (select id from headrace.log)"
    assert database.primary.execute(tables) == [(0,)]
    assert drained(second, "/x") == list(range(5, 10))
    assert sorted(owners(second)) == ["/", "/x"]


def add_vhost(client: ManagementClient, name: str) -> None:
    client.ask("put vhost", name=name)
    allow(client, name)


def allow(client: ManagementClient, vhost: str) -> None:
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    client.ask("put permission", user="guest", vhost=vhost, **rights)


def test_the_first_broker_brings_what_it_has(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Servers
) -> None:
    monkeypatch.delenv("HEADRACE_CLUSTER")
    alone = Served(tmp_path / "a").start()
    publish(alone, range(30))
    alone.administer("user", "add", "--password", "x", "ada")
    alone.stop()
    monkeypatch.setenv("HEADRACE_CLUSTER", database.url())
    first = make("a").start()
    second = make("b").start()
    publish(first, range(30, 40))
    first.kill()
    wait_until_served(second)
    assert users(second) == ["ada", "guest"]
    assert drained(second) == list(range(40))


def test_a_directory_with_other_data_does_not_join(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Servers
) -> None:
    make("a").start()
    monkeypatch.delenv("HEADRACE_CLUSTER")
    alone = Served(tmp_path / "b").start()
    alone.stop()
    monkeypatch.setenv("HEADRACE_CLUSTER", database.url())
    with pytest.raises(AssertionError, match="has queues of its own, and the cluster has others"):
        make("b").start()


def test_a_copy_is_not_started_alone(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = make("a").start()
    broker.stop()
    monkeypatch.delenv("HEADRACE_CLUSTER")
    with pytest.raises(AssertionError, match="is a copy of what a cluster has"):
        Served(broker.home).start()
    with pytest.raises(StoreError, match="the database holds other"):
        DataDirectory(broker.home / "data", cluster="other")
