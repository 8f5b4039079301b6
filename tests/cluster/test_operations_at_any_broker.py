# SPDX-License-Identifier: Apache-2.0
"""An operation on a virtual host is served at any broker of a cluster, with the user's rights."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest

from support.brokers.broker_process import Served, until
from support.cluster import LEASE, command, drained, operator, publish, wait_until_served
from support.management_socket import OperationRefused

if TYPE_CHECKING:
    from pathlib import Path

    from support.management_socket import ManagementClient

Make = Callable[..., Served]


@pytest.fixture
def pair(make: Make) -> tuple[Served, Served]:
    """The broker that serves the default virtual host, and another one."""
    return make("a", *LEASE).start(), make("b", *LEASE).start()


def names(client: ManagementClient, do: str, **fields: object) -> list[str]:
    return [row["name"] for row in client.items(do, **fields)]


def has_command(log: Path, name: str) -> bool:
    """Return True if a whole line of an audit log has the command."""
    lines = log.read_text().splitlines(keepends=True)
    return name in [json.loads(line).get("command") for line in lines if line.endswith("\n")]


def test_objects_are_declared_listed_and_deleted(pair: tuple[Served, Served]) -> None:
    owner, other = pair
    with operator(owner) as at_owner, operator(other) as client:
        assert client.ask("declare queue", vhost="/", name="orders")["created"]
        assert not client.ask("declare queue", name="orders")["created"]  # The default one.
        client.ask("declare exchange", vhost="/", name="events", type="topic")
        client.ask("bind", vhost="/", source="events", destination="orders", routing_key="a.#")
        assert client.ask("show queue", vhost="/", name="orders")["name"] == "orders"
        for do in ("list queues", "list exchanges", "list bindings"):
            assert client.items(do, vhost="/") == at_owner.items(do, vhost="/") != []
        client.ask("put policy", vhost="/", name="p", pattern="x", definition={"max-length": 5})
        assert names(client, "list policies", vhost="/") == ["p"]
        client.ask("delete queue", vhost="/", name="orders")
        assert names(at_owner, "list queues", vhost="/") == []
    assert "another broker" not in other.log()


def test_messages_are_published_and_got(pair: tuple[Served, Served]) -> None:
    owner, other = pair
    publish(owner, range(3))
    with operator(other) as client:
        client.send(
            "publish", vhost="/", exchange="", routing_key="orders", payload="3", lines=True
        )
        client.end.sendall(b'{"payload": "4"}\n{"end": true}\n')
        assert client.line() == {"done": {"routed": True}}
    with operator(other) as client:
        assert [row["body"] for row in client.items("peek", queue="orders")] == [*"012", "34"]
        rows = client.items("get", queue="orders", count=2, ackmode="ack_requeue_false")
        assert [row["body"] for row in rows] == ["0", "1"]
        deleted = client.ask("delete messages", **{"from": "orders", "count": 1})
        assert deleted["state"] == "done"
        assert [row["body"] for row in client.items("peek", queue="orders")] == ["34"]
        client.ask("purge queue", name="orders")
    assert drained(owner) == []


def test_a_refusal_is_that_of_the_owner(pair: tuple[Served, Served]) -> None:
    owner, other = pair
    with operator(owner) as at_owner, operator(other) as client:
        refusals = []
        for asked in (at_owner, client):
            with pytest.raises(OperationRefused) as caught:
                asked.ask("show queue", vhost="/", name="missing")
            refusals.append(str(caught.value))
        assert refusals[0] == refusals[1]
        with pytest.raises(OperationRefused, match="there is no virtual host '/x'"):
            client.ask("list queues", vhost="/x")


def test_a_user_has_the_same_rights_at_any_broker(pair: tuple[Served, Served]) -> None:
    owner, other = pair
    password = "a long secret"
    with operator(owner) as client:
        for user, tags in (("ada", "management"), ("eve", "management")):
            client.ask("put user", name=user, password=password, tags=tags)
        rights = {"configure": "^ada-", "write": ".*", "read": ".*"}
        client.ask("put permission", user="ada", vhost="/", **rights)
    with operator(other) as client:
        until(lambda: {"ada", "eve"} <= {*names(client, "list users")}, "the users are known")
        until(lambda: client.items("list permissions", user="ada"), "the permission is known")
        ada, eve = (client.login(user, password) for user in ("ada", "eve"))
        ada.ask("declare queue", vhost="/", name="ada-1")
        with pytest.raises(OperationRefused, match="access to queue 'other'"):
            ada.ask("declare queue", vhost="/", name="other")
        with pytest.raises(OperationRefused, match="there is no virtual host '/'"):
            eve.items("list queues", vhost="/")
        assert names(ada, "list queues", vhost="/") == ["ada-1"]


def test_an_operation_waits_for_a_takeover(pair: tuple[Served, Served]) -> None:
    owner, other = pair
    publish(owner, range(3))
    owner.kill()
    with operator(other) as client:
        client.ask("declare queue", vhost="/", name="later")
        assert names(client, "list queues", vhost="/") == ["orders", "later"]
    wait_until_served(other)
    assert drained(other) == [0, 1, 2]


def test_both_brokers_audit_a_change(make: Make, tmp_path: Path) -> None:
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    make("a", *LEASE, "--audit-log", str(logs[0])).start()
    other = make("b", *LEASE, "--audit-log", str(logs[1])).start()
    with operator(other) as client:
        client.ask("declare queue", vhost="/", name="orders")
    for log in logs:  # A thread writes the lines.
        until(partial(has_command, log, "declare queue"), "the change is audited")


def test_a_list_has_the_virtual_hosts_of_all_brokers(pair: tuple[Served, Served]) -> None:
    """A broker that is asked by another one lists its own; connections are those of one broker."""
    owner, other = pair
    publish(owner, range(3))
    with operator(other) as client:
        assert client.items("list queues") == []
        rows, done = client.listed("list queues", everywhere=True)
        assert [(row["name"], row["vhost"], row["ready"]) for row in rows] == [("orders", "/", 3)]
        assert done == {"items": 1}
        assert client.items("list queues", vhost="/", everywhere=True) == rows
        assert names(client, "list vhosts", everywhere=True) == ["/"]
        with pytest.raises(OperationRefused, match="'/' is served by broker 'a' of the cluster"):
            client.items("list connections", vhost="/")
    listed = command(other, "list", "queues", "--columns", "name,ready", "--format", "tsv")
    assert (listed.stdout, listed.stderr) == ("name\tready\norders\t3\n", "")


def test_a_list_names_virtual_hosts_that_it_lacks(make: Make) -> None:
    owner, other = (make(name, "--cluster-lease-s", "60").start() for name in ("a", "b"))
    publish(owner, range(3))
    owner.process.suspend()
    try:
        with operator(other) as client:
            _, done = client.listed("list queues", everywhere=True)
        assert list(done["missing"]) == ["/"]
        assert "broker 'a' at" in done["missing"]["/"]
        listed = command(other, "list", "queues")
        assert "Warning: not listed: virtual host '/': broker 'a' at" in listed.stderr
    finally:
        owner.process.resume()
