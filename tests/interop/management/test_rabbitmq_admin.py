# SPDX-License-Identifier: Apache-2.0
"""rabbitmq-admin, a client of 2015: it encodes names by quote_plus, and sends True for true."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pika
import pytest
import requests

from support.clients.client_programs import BROUGHT, bring

if TYPE_CHECKING:
    from support.console import LocalConsole

FOLDER = BROUGHT / "rabbitmq-admin"


@pytest.fixture(scope="module")
def api(console: LocalConsole) -> Any:
    """A client."""
    bring(FOLDER)
    sys.path.append(str(FOLDER))
    try:
        from rabbitmq_admin import AdminAPI
    finally:
        sys.path.remove(str(FOLDER))
    return AdminAPI(f"http://127.0.0.1:{console.port}", ("guest", "guest"))


def gone(work: Any, *given: Any) -> None:
    """Assert that a call is answered with 404."""
    with pytest.raises(requests.HTTPError) as refused:
        work(*given)
    assert refused.value.response.status_code == 404


def test_the_broker(api: Any) -> None:
    (node,) = api.list_nodes()
    assert api.get_cluster_name() == {"name": node["name"]}
    assert api.get_node(node["name"], memory=True)["memory"]
    assert api.overview()["node"] == node["name"]
    assert api.whoami()["name"] == "guest"
    assert api.list_extensions() == []
    assert api.is_vhost_alive("/") == {"status": "ok"}


def test_definitions(api: Any) -> None:
    found = api.get_definitions()
    api.post_definitions({**found, "queues": [{"name": "d", "vhost": "/", "durable": True}]})
    assert [row["name"] for row in api.get_definitions()["queues"]] == ["d"]


def test_virtual_hosts_and_users(api: Any) -> None:
    api.create_vhost("of/admin")
    api.create_vhost("of/admin", tracing=True)
    assert api.get_vhost("of/admin")["tracing"] is True
    assert len(api.list_vhosts()) == 2
    api.create_user("ada", "a-long-password", tags=["monitoring", "management"])
    api.create_user("bob", "", password_hash="")
    assert api.get_user("ada")["tags"] == ["monitoring", "management"]
    assert len(api.list_users()) == 3
    api.create_user_permission("ada", "of/admin", read="^r")
    given = api.get_user_permission("of/admin", "ada")
    assert given["read"] == "^r"
    assert api.list_user_permissions("ada") == [given]
    assert given in api.list_permissions()
    api.delete_user_permission("ada", "of/admin")
    gone(api.get_user_permission, "of/admin", "ada")
    for name in ("ada", "bob"):
        api.delete_user(name)
    gone(api.get_user, "ada")
    api.delete_vhost("of/admin")
    gone(api.get_vhost, "of/admin")


def test_exchanges_and_policies(api: Any) -> None:
    body = {"type": "direct", "auto_delete": False, "durable": True, "internal": False}
    api.create_exchange_for_vhost("x/y", "/", {**body, "arguments": []})
    assert api.get_exchange_for_vhost("x/y", "/")["type"] == "direct"
    assert "x/y" in [row["name"] for row in api.list_exchanges_for_vhost("/")]
    assert len(api.list_exchanges()) >= len(api.list_exchanges_for_vhost("/"))
    assert api.list_bindings() == api.list_bindings_for_vhost("/")
    api.delete_exchange_for_vhost("x/y", "/", if_unused=True)
    gone(api.get_exchange_for_vhost, "x/y", "/")
    api.create_policy_for_vhost("/", "p/q", {"max-length": 5}, pattern="^d", priority=3)
    assert api.get_policy_for_vhost("/", "p/q")["priority"] == 3
    assert api.list_policies() == api.list_policies_for_vhost("/")
    api.delete_policy_for_vhost("/", "p/q")
    assert api.list_policies() == []


def test_connections(console: LocalConsole, api: Any) -> None:
    client = pika.BlockingConnection(pika.URLParameters(console.broker.url))
    channel = client.channel()
    channel.queue_declare("c")
    channel.basic_consume("c", lambda *_: None)
    (row,) = console.get("/api/connections")
    assert [one["name"] for one in api.list_connections()] == [row["name"]]
    assert len(api.list_channels()) == len(api.list_consumers()) == 1
    assert len(api.list_consumers_for_vhost("/")) == 1
    client.close()
