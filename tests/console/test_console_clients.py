# SPDX-License-Identifier: Apache-2.0
"""Tools that other people wrote for RabbitMQ's API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headrace.client import blocking

if TYPE_CHECKING:
    from support.console import LocalConsole


@pytest.fixture(scope="module", autouse=True)
def queues(console: LocalConsole) -> None:
    """A queue with a message."""
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        channel.declare_queue("a/b")
        channel.publish(b"m", routing_key="a/b")


def test_pyrabbit_reads(console: LocalConsole) -> None:
    """It sends no credentials before it is challenged."""
    pyrabbit_api = pytest.importorskip("pyrabbit.api")
    client = pyrabbit_api.Client(f"127.0.0.1:{console.port}", "guest", "guest")
    assert client.get_whoami()["name"] == "guest"
    client.is_admin = True  # It compares the tags with a text, which they were before 3.9.
    assert client.is_alive()
    assert client.get_vhost_names() == ["/"]
    assert [row["name"] for row in client.get_queues("/")] == ["a/b"]
    assert len(client.get_nodes()) == 1
    assert client.get_overview()["queue_totals"]["messages"] == 1
    assert any(row["name"] == "amq.topic" for row in client.get_exchanges("/"))
    assert [row["destination"] for row in client.get_bindings()] == ["a/b"]


def test_flower_reads_the_depth_of_queues(console: LocalConsole) -> None:
    """For the default virtual host its path ends with a slash."""
    broker = pytest.importorskip("flower.utils.broker")
    api = f"http://guest:guest@127.0.0.1:{console.port}/api/"

    async def depths() -> list[dict[str, object]]:
        client = broker.Broker("amqp://guest:guest@127.0.0.1:5672/", http_api=api)
        found: list[dict[str, object]] = await client.queues(["a/b"])
        return found

    (row,) = asyncio.run(depths())
    assert (row["name"], row["messages"], row["messages_ready"]) == ("a/b", 1, 1)
