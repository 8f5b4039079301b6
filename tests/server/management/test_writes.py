# SPDX-License-Identifier: Apache-2.0
"""What operations change: definitions and accounts, as the system user and as a user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.testing import LocalBroker
from support.management_socket import ManagementClient, OperationRefused, refusal

if TYPE_CHECKING:
    from pathlib import Path


def test_queues_are_declared_purged_and_deleted(operator: ManagementClient) -> None:
    fields = {"name": "orders", "arguments": {"x-max-length": 5}}
    assert operator.ask("declare queue", **fields) == {"created": True, "name": "orders"}
    assert operator.ask("declare queue", **fields) == {"created": False, "name": "orders"}
    assert refusal(operator, "declare queue", name="orders") == "precondition"
    assert refusal(operator, "declare queue", name="q", arguments=5) == "bad-request"
    assert refusal(operator, "declare queue", name="q", exclusive=True) == "bad-request"
    assert refusal(operator, "declare queue", name="q", vhost="none") == "not-found"
    assert refusal(operator, "declare queue", name="amq.q") == "refused"
    assert operator.ask("purge queue", name="orders") == {"count": 0}
    assert refusal(operator, "purge queue", name="none") == "not-found"
    assert operator.ask("delete queue", name="orders", if_empty=True) == {"count": 0}
    assert refusal(operator, "delete queue", name="orders") == "not-found"


def test_the_status_counts_groups_of_the_journals(operator: ManagementClient) -> None:
    before = operator.ask("status")["journal_groups"]
    operator.ask("declare queue", name="orders")
    for _ in range(3):  # Each is answered when it is synced.
        operator.ask("publish", routing_key="orders", properties={"delivery_mode": 2}, payload="m")
    assert operator.ask("status")["journal_groups"] >= before + 3


def test_exchanges_are_declared_and_deleted(operator: ManagementClient) -> None:
    assert operator.ask("declare exchange", name="news", type="topic") == {"created": True}
    assert operator.ask("declare exchange", name="news", type="topic") == {"created": False}
    assert refusal(operator, "declare exchange", name="news", type="fanout") == "precondition"
    assert refusal(operator, "declare exchange", name="x", type="none") != ""
    assert refusal(operator, "declare exchange", name="amq.mine") == "refused"
    operator.ask("declare queue", name="q")
    operator.ask("bind", source="news", destination="q", routing_key="a.#")
    assert refusal(operator, "delete exchange", name="news", if_unused=True) == "precondition"
    assert operator.ask("delete exchange", name="news") == {}
    assert refusal(operator, "delete exchange", name="news") == "not-found"
    assert refusal(operator, "delete exchange", name="amq.topic") == "refused"


def test_bindings_are_made_and_undone(operator: ManagementClient) -> None:
    operator.ask("declare queue", name="q")
    binding = {"source": "amq.headers", "destination": "q", "arguments": {"x-match": "all", "n": 1}}
    done = operator.ask("bind", **binding)
    digest = operator.items("list bindings")[0]["arguments_digest"]
    assert done == {
        "created": True,
        "routing_key": "",
        "arguments": binding["arguments"],
        "arguments_digest": digest,
    }
    assert operator.ask("bind", **binding)["created"] is False
    assert refusal(operator, "unbind", source="amq.headers", destination="q") == "not-found"
    assert operator.ask("unbind", **binding) == {}
    assert operator.items("list bindings") == []
    operator.ask("bind", **binding)
    named = {"source": "amq.headers", "destination": "q", "arguments_digest": digest}
    assert refusal(operator, "unbind", **named, arguments={"a": 1}) == "bad-request"
    assert refusal(operator, "unbind", **{**named, "source": "none"}) == "not-found"
    assert refusal(operator, "unbind", **{**named, "arguments_digest": "00"}) == "not-found"
    assert operator.ask("unbind", **named) == {}
    assert operator.items("list bindings") == []
    to_exchange = {"source": "amq.fanout", "destination": "amq.topic", "kind": "exchange"}
    assert operator.ask("bind", **to_exchange)["created"] is True
    assert operator.items("list bindings")[0]["destination"] == "amq.topic"
    for fields, count in (
        ({"source": "amq.fanout"}, 1),
        ({"source": "amq.direct"}, 0),
        ({"destination": "amq.topic"}, 1),
        ({"destination": "q"}, 0),
        ({"source": "amq.fanout", "destination": "amq.topic"}, 1),
    ):
        assert len(operator.items("list bindings", **fields)) == count, fields
    assert refusal(operator, "list bindings", source=5) == "bad-request"
    assert refusal(operator, "bind", source="none", destination="q") == "not-found"
    assert refusal(operator, "bind", source="amq.topic", destination="none") == "not-found"
    assert refusal(operator, "bind", source="amq.topic", destination="q", kind="x") == "bad-request"


@pytest.mark.once
def test_what_was_written_is_there_after_a_restart(data: Path) -> None:
    with LocalBroker(data):
        operator = ManagementClient(data / "management.sock")
        operator.ask("put vhost", name="shop", description="orders", tags=["a"])
        operator.ask("declare queue", vhost="shop", name="kept")
        operator.ask("bind", vhost="shop", source="amq.topic", destination="kept", routing_key="k")
        operator.ask("put user", name="ada", password="secret", tags="management")
        operator.ask("put permission", user="ada", vhost="shop", configure="^k", write="", read=".")
        operator.ask("put limit", vhost="shop", name="max-queues", value=7)
        operator.ask("put name", name="north")
        operator.close()
    with LocalBroker(data):
        operator = ManagementClient(data / "management.sock")
        assert operator.ask("show vhost", vhost="shop") == {
            "name": "shop",
            "description": "orders",
            "tags": ["a"],
            "default_queue_type": "classic",
            "unknown_arguments": "default",
            "protected_from_deletion": False,
            "tracing": False,
        }
        assert operator.items("list bindings", vhost="shop")[0]["destination"] == "kept"
        ada = operator.login("ada", "secret")
        assert ada.ask("whoami")["vhosts"] == ["shop"]
        assert operator.items("list limits") == [{"vhost": "shop", "value": {"max-queues": 7}}]
        named = {"name": "cluster_name", "value": "north"}
        assert operator.items("list global parameters") == [named]
        operator.close()
        ada.close()


def test_users_are_set_with_a_password_a_hash_or_neither(operator: ManagementClient) -> None:
    assert operator.ask("put user", name="ada", password="one", tags=["management"]) == {
        "created": True
    }
    operator.login("ada", "one").close()
    kept = operator.ask("show user", name="ada")
    rows = operator.items("list users", hashes=True)
    assert {row["name"]: row["password_hash"] for row in rows}["ada"] == kept["password_hash"]
    assert "password_hash" not in operator.items("list users")[0]
    assert kept["tags"] == ["management"]
    operator.ask("put user", name="ada", keep_password=True, tags="monitoring,policymaker")
    operator.login("ada", "one").close()
    assert (
        operator.ask("put user", name="ada", password="two", tags="monitoring")["created"] is False
    )
    with pytest.raises(OperationRefused, match="the login was refused"):
        operator.login("ada", "one")
    fields = {name: kept[name] for name in ("password_hash", "hashing_algorithm")}
    operator.ask("put user", name="bob", tags="management", **fields)
    operator.login("bob", "one").close()
    operator.ask("put user", name="bob", tags="management")  # Without a password from now on.
    with pytest.raises(OperationRefused, match="the login was refused"):
        operator.login("bob", "one")
    assert refusal(operator, "put user", name="x", password="p", **fields) == "bad-request"
    assert refusal(operator, "put user", name="x", keep_password=True) == "not-found"
    assert refusal(operator, "put user", name="a\x01b", password="p") != ""
    assert refusal(operator, "put user", name="x", tags=["two words"]) == "bad-request"
    assert operator.ask("delete user", name="bob") == {}
    assert refusal(operator, "delete user", name="bob") == "not-found"


def test_permissions_are_set_and_removed(operator: ManagementClient) -> None:
    operator.ask("put user", name="ada", password="one")
    given = {"user": "ada", "configure": "^a", "write": "", "read": ".*"}
    assert operator.ask("put permission", **given) == {"created": True}
    assert operator.ask("put permission", **given, vhost="/") == {"created": False}
    assert {"vhost": "/", **given} in operator.items("list permissions")
    assert refusal(operator, "put permission", **{**given, "read": "("}) == "bad-request"
    assert refusal(operator, "put permission", **{**given, "user": "none"}) == "not-found"
    assert refusal(operator, "put permission", **given, vhost="none") == "not-found"
    assert operator.ask("delete permission", user="ada") == {}
    assert refusal(operator, "delete permission", user="ada") == "not-found"
    topic = {"user": "ada", "exchange": "amq.topic", "write": "^a", "read": ""}
    assert operator.ask("put topic permission", **topic) == {"created": True}
    assert operator.items("list topic permissions") == [{"vhost": "/", **topic}]
    fields = {"user": "ada", "exchange": "amq.topic"}
    assert operator.ask("delete topic permission", **fields) == {}
    assert refusal(operator, "delete topic permission", **fields) == "not-found"


def test_policies_and_operator_policies_apply_at_once(operator: ManagementClient) -> None:
    operator.ask("declare queue", name="q")
    policy = {"name": "short", "pattern": "^q", "definition": {"max-length": 3}, "priority": 1}
    assert operator.ask("put policy", **policy) == {"created": True}
    assert operator.ask("put policy", **policy) == {"created": False}
    guard = {"name": "guard", "pattern": ".", "definition": {"max-length": 2}}
    assert operator.ask("put operator policy", **guard) == {"created": True}
    shown = operator.ask("show queue", name="q")
    assert (shown["policy"], shown["operator_policy"]) == ("short", "guard")
    assert shown["max_length"] == 2
    assert refusal(operator, "put policy", **{**policy, "definition": 5}) == "bad-request"
    assert refusal(operator, "put policy", **{**policy, "definition": {"x": 1}}) == "precondition"
    assert refusal(operator, "put policy", **{**policy, "pattern": "("}) == "bad-request"
    assert operator.ask("delete policy", name="short") == {}
    assert refusal(operator, "delete policy", name="short") == "not-found"
    assert operator.ask("delete operator policy", name="guard") == {}
    assert operator.ask("show queue", name="q")["policy"] == ""


def test_limits_are_set_one_by_one(operator: ManagementClient) -> None:
    assert operator.ask("put limit", name="max-queues", value=1) == {"created": True}
    assert operator.ask("put limit", name="max-connections", value=9) == {"created": False}
    operator.ask("declare queue", name="one")
    assert refusal(operator, "declare queue", name="two") == "precondition"
    assert refusal(operator, "put limit", name="max-what", value=1) == "bad-request"
    assert refusal(operator, "put limit", name="max-queues", value="1") == "bad-request"
    assert operator.ask("delete limit", name="max-queues") == {"created": False}
    assert refusal(operator, "delete limit", name="max-queues") == "not-found"
    operator.ask("declare queue", name="two")
    operator.ask("put limit", user="guest", name="max-channels", value=3)
    limits = [{"user": "guest", "value": {"max-channels": 3}}]
    assert operator.items("list limits", of="users") == limits
    assert refusal(operator, "put limit", user="none", name="max-channels", value=3) == "not-found"


def test_the_handling_of_unknown_arguments_is_read_back(operator: ManagementClient) -> None:
    for mode in ("ignore", "refuse", "log"):
        operator.ask("put vhost", name="shop", unknown_arguments=mode)
        assert operator.ask("show vhost", vhost="shop")["unknown_arguments"] == mode
    operator.ask("put vhost", name="shop", unknown_arguments="")
    assert operator.ask("show vhost", vhost="shop")["unknown_arguments"] == "default"
    operator.ask("delete vhost", name="shop")


def test_virtual_hosts_come_go_and_may_be_protected(operator: ManagementClient) -> None:
    shop = {"name": "shop", "default_queue_type": "quorum", "tracing": True}
    assert operator.ask("put vhost", **shop) == {"created": True}
    shown = operator.ask("show vhost", vhost="shop")
    assert (shown["default_queue_type"], shown["tracing"]) == ("quorum", True)
    operator.ask("put vhost", name="shop", protected_from_deletion=True, tracing=False)
    shown = operator.ask("show vhost", vhost="shop")
    assert shown["protected_from_deletion"] is True
    assert (shown["default_queue_type"], shown["tracing"]) == ("quorum", False)
    assert refusal(operator, "delete vhost", name="shop") == "precondition"
    operator.ask("put vhost", name="shop", protected_from_deletion=False)
    assert operator.ask("delete vhost", name="shop") == {}
    assert refusal(operator, "delete vhost", name="shop") == "not-found"
    assert refusal(operator, "put vhost", name="x", default_queue_type="z") == "bad-request"
    assert refusal(operator, "put vhost", name="x", protected_from_deletion=5) == "bad-request"


def test_the_type_of_a_virtual_host_is_set_whatever_the_default_is(data: Path) -> None:
    with LocalBroker(data, default_queue_type="quorum"):
        operator = ManagementClient(data / "management.sock")

        def kind(**fields: str) -> object:
            operator.ask("put vhost", name="cl", **fields)
            return operator.ask("show vhost", vhost="cl")["default_queue_type"]

        assert kind(default_queue_type="classic") == "classic"
        operator.ask("declare queue", vhost="cl", name="q")
        assert operator.items("list queues", vhost="cl")[0]["type"] == "classic"
        assert kind(description="x") == "classic"
        assert kind(default_queue_type="") == "quorum"
        operator.close()


def test_parameters_of_a_virtual_host_are_refused_with_a_reason(operator: ManagementClient) -> None:
    fields = {"component": "shovel", "name": "s", "value": {}}
    with pytest.raises(OperationRefused, match="unknown parameter component 'shovel'"):
        operator.ask("put parameter", **fields)
    fields["component"] = "operator_policy"
    assert refusal(operator, "put parameter", **fields) == "bad-request"
    assert refusal(operator, "delete parameter", component="shovel", name="s") == "not-found"


def test_global_parameters_are_kept_for_clients(operator: ManagementClient) -> None:
    assert operator.ask("put global parameter", name="mqtt", value={"a": [1]}) == {"created": True}
    assert operator.items("list global parameters") == [{"name": "mqtt", "value": {"a": [1]}}]
    assert refusal(operator, "put global parameter", name="cluster_name", value=5) == "bad-request"
    assert operator.ask("delete global parameter", name="mqtt") == {}
    assert refusal(operator, "delete global parameter", name="mqtt") == "not-found"
