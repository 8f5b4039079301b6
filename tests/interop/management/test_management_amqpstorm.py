# SPDX-License-Identifier: Apache-2.0
"""amqpstorm.management: every function.

It takes an answer of 200 with a key `error` for a failure, and lists by pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pika
import pytest
from amqpstorm.management.api import ManagementApi
from amqpstorm.management.exception import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.console import LocalConsole


@pytest.fixture(scope="module")
def api(console: LocalConsole) -> Iterator[ManagementApi]:
    """A client with one connection for all requests."""
    with ManagementApi(f"http://127.0.0.1:{console.port}", "guest", "guest") as found:
        yield found


def test_the_broker(api: ManagementApi) -> None:
    assert api.aliveness_test("/") == {"status": "ok"}
    assert api.healthchecks.get() == {"status": "ok"}
    (node,) = api.nodes()
    assert api.cluster_name() == {"name": node["name"]}
    assert api.node(node["name"])["running"] is True
    assert api.healthchecks.get(node["name"]) == {"status": "ok"}
    assert api.overview()["cluster_name"] == node["name"]
    assert api.top() == [{"node": node["name"], "processes": []}]
    assert api.whoami()["tags"] == ["administrator"]


def test_queues(api: ManagementApi) -> None:
    for at in range(3):
        api.queue.declare(f"list.{at}", durable=True, arguments={"x-max-length": 9})
    api.queue.declare("list.0", passive=True)
    with pytest.raises(ApiError) as refused:
        api.queue.declare("list.0", durable=False)
    assert refused.value.error_code == 400
    assert api.queue.get("list.0")["arguments"] == {"x-max-length": 9}
    assert len(api.queue.list(show_all=True)) == 3
    assert [row["name"] for row in api.queue.list(name="list.1")] == ["list.1"]
    found = api.queue.list(name="^list[.][12]$", use_regex=True, page_size=1)
    assert [row["name"] for row in found] == ["list.1", "list.2"]
    api.queue.bind("list.0", "amq.topic", "eu.#", arguments={"a": 1})
    assert api.queue.bindings("list.0")[-1]["arguments"] == {"a": 1}
    key = api.queue.bindings("list.0")[-1]["properties_key"]
    api.queue.unbind("list.0", "amq.topic", "eu.#", properties_key=key)
    assert len(api.queue.bindings("list.0")) == 1
    for at in range(3):
        api.queue.delete(f"list.{at}")
    with pytest.raises(ApiError) as gone:
        api.queue.get("list.0")
    assert gone.value.error_code == 404


def test_exchanges(api: ManagementApi) -> None:
    api.exchange.declare("x.1", "topic", durable=True)
    api.exchange.declare("x.2", "fanout", auto_delete=False, internal=True)
    api.exchange.declare("x.1", "topic", passive=True)
    assert api.exchange.get("x.2")["internal"] is True
    assert len(api.exchange.list(show_all=True)) == len(api.exchange.list("/"))
    assert [row["name"] for row in api.exchange.list(name="x.", page_size=1)] == ["x.1", "x.2"]
    api.exchange.bind(destination="x.2", source="x.1", routing_key="a b")
    (bound,) = api.exchange.bindings("x.1")
    assert (bound["destination"], bound["properties_key"]) == ("x.2", "a%20b")
    api.exchange.unbind(destination="x.2", source="x.1", properties_key="a%20b")
    assert api.exchange.bindings("x.1") == []
    api.exchange.delete("x.1")
    api.exchange.delete("x.2")


def test_messages(api: ManagementApi) -> None:
    api.queue.declare("letters")
    headers = {"number": 5, "text": "t", "list": [1, "two"]}
    properties = {"headers": headers, "delivery_mode": 2, "content_type": "text/plain"}
    assert api.basic.publish("payload", "letters", properties=properties) == {"routed": True}
    assert api.basic.publish("payload", "no-such") == {"routed": False}
    (kept,) = api.basic.get("letters", requeue=True, to_dict=True)
    assert (kept["payload"], kept["properties"]) == ("payload", properties)
    (message,) = api.basic.get("letters", count=5)
    assert (message.body, message.properties["headers"]) == ("payload", headers)
    assert api.basic.get("letters") == []
    api.basic.publish("cGF5bG9hZA==", "letters", payload_encoding="base64")
    (coded,) = api.basic.get("letters", requeue=True, to_dict=True, truncate=3, encoding="base64")
    assert (coded["payload"], coded["payload_bytes"]) == ("cGF5", 7)
    api.queue.purge("letters")
    assert api.basic.get("letters") == []


def test_accounts(api: ManagementApi) -> None:
    api.virtual_host.create("of/storm")
    assert api.virtual_host.get("of/storm")["name"] == "of/storm"
    assert {row["name"] for row in api.virtual_host.list()} == {"/", "of/storm"}
    for name, tags in (("a", "monitoring, management"), ("b", ["monitoring"]), ("c", "")):
        api.user.create(name, "a-long-password", tags)
    assert api.user.get("a")["tags"] == ["monitoring", "management"]
    assert {row["name"] for row in api.user.list()} == {"guest", "a", "b", "c"}
    api.user.set_permission("a", "of/storm", read_regex="^r")
    given: Any = api.user.get_permission("a", "of/storm")
    assert given["read"] == "^r"
    of_user: Any = api.user.get_permissions("a")
    of_vhost: Any = api.virtual_host.get_permissions("of/storm")
    maker: Any = api.user.get_permission("guest", "of/storm")  # It made the virtual host.
    assert of_user == [given]
    assert of_vhost == [given, maker]
    api.user.delete_permission("a", "of/storm")
    with pytest.raises(ApiError):
        api.user.get_permission("a", "of/storm")
    api.user.delete("a")
    api.user.delete(["b", "c"])
    assert [row["name"] for row in api.user.list()] == ["guest"]
    api.virtual_host.delete("of/storm")


def test_connections(console: LocalConsole, api: ManagementApi) -> None:
    client = pika.BlockingConnection(pika.URLParameters(console.broker.url))
    client.channel()
    (row,) = api.connection.list()
    assert api.connection.get(row["name"])["user"] == "guest"
    assert [one["name"] for one in api.connection.list(name="127")] == [row["name"]]
    (channel,) = api.channel.list()
    assert api.channel.get(quote(channel["name"]))["number"] == 1
    assert [one["name"] for one in api.channel.list(name="127", page_size=1)] == [channel["name"]]
    api.connection.close(row["name"], reason="of tests")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        client.channel()


def test_a_wrong_password(console: LocalConsole) -> None:
    with ManagementApi(f"http://127.0.0.1:{console.port}", "guest", "wrong") as client:
        with pytest.raises(ApiError) as refused:
            client.whoami()
    assert refused.value.error_code == 401
