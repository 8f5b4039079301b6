# SPDX-License-Identifier: Apache-2.0
"""pyrabbit, which kombu has as its manager: every function.

It sends no credentials before it is challenged, and an empty list for no arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pika
import pytest
from pyrabbit import api, http

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.console import LocalConsole


@pytest.fixture(scope="module")
def client(console: LocalConsole) -> Iterator[api.Client]:
    """A client that is an administrator."""
    client = api.Client(f"127.0.0.1:{console.port}", "guest", "guest")
    client.is_admin = True  # It compares the tags with a text, which they were before 3.9.
    yield client
    client.http.client.close()  # It has no way to do so itself.


def test_the_broker(client: api.Client) -> None:
    assert client.get_whoami()["name"] == "guest"
    assert client.is_alive()
    assert len(client.get_nodes()) == 1
    assert client.get_overview()["object_totals"]["queues"] == 0
    assert [row["name"] for row in client.get_users()] == ["guest"]


def test_a_virtual_host(client: api.Client) -> None:
    client.create_vhost("pyrabbit")
    assert client.get_vhost("pyrabbit")["name"] == "pyrabbit"
    assert set(client.get_vhost_names()) == {"/", "pyrabbit"}
    assert len(client.get_all_vhosts()) == 2
    client.create_user("ada", "a-long-password", "monitoring,policymaker")
    client.set_vhost_permissions("pyrabbit", "ada", "^a", ".*", "")
    given, maker = client.get_vhost_permissions("pyrabbit")
    assert maker["user"] == "guest"  # It made the virtual host.
    assert client.get_user_permissions("ada") == [given]
    assert client.get_permission("pyrabbit", "ada") == given
    assert (given["configure"], given["write"], given["read"]) == ("^a", "", ".*")
    assert given in client.get_permissions()
    client.delete_permission("pyrabbit", "ada")
    assert client.get_vhost_permissions("pyrabbit") == [maker]
    client.delete_user("ada")
    client.delete_vhost("pyrabbit")
    with pytest.raises(http.HTTPError, match="404"):
        client.get_vhost("pyrabbit")


def test_an_exchange_with_a_queue(client: api.Client) -> None:
    assert client.create_exchange("/", "x/y", "topic")
    assert client.get_exchange("/", "x/y")["type"] == "topic"
    assert "x/y" in [row["name"] for row in client.get_exchanges("/")]
    assert len(client.get_exchanges()) == len(client.get_exchanges("/"))
    client.create_queue("/", "a/b", durable=True, arguments=[])
    client.create_queue("/", "c", arguments={"x-max-length": 5})
    assert {row["name"] for row in client.get_queues()} == {"a/b", "c"}
    assert client.get_queue("/", "c")["arguments"] == {"x-max-length": 5}
    client.create_binding("/", "x/y", "a/b", "eu.#")
    (_, bound) = client.get_queue_bindings("/", "a/b")
    assert (bound["source"], bound["routing_key"]) == ("x/y", "eu.#")
    assert bound in client.get_bindings()
    assert client.publish("/", "x/y", "eu.north", "payload") is True
    assert client.publish("/", "x/y", "us", "payload") is False
    assert client.get_queue_depth("/", "a/b") == 1
    client.get_queue_depths("/")  # It only prints them.
    (got,) = client.get_messages("/", "a/b", requeue=True, truncate=3)
    assert (got["payload"], got["payload_bytes"], got["routing_key"]) == ("pay", 7, "eu.north")
    client.purge_queue("/", "a/b")
    client.purge_queues([("a/b", "/"), ("c", "/")])
    assert not client.get_messages("/", "a/b")
    client.delete_binding("/", "x/y", "a/b", bound["properties_key"])
    assert [row["source"] for row in client.get_queue_bindings("/", "a/b")] == [""]
    client.delete_queue("/", "a/b")
    client.delete_queue("/", "c")
    assert client.delete_exchange("/", "x/y")
    with pytest.raises(http.HTTPError, match="404"):
        client.get_exchange("/", "x/y")


def test_a_connection(console: LocalConsole, client: api.Client) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(console.broker.url))
    connection.channel()
    (row,) = client.get_connections()
    assert client.get_connection(row["name"])["user"] == "guest"
    (channel,) = client.get_channels()
    assert client.get_channel(channel["name"])["number"] == 1
    client.delete_connection(row["name"])
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        connection.channel()
