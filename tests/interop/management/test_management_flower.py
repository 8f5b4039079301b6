# SPDX-License-Identifier: Apache-2.0
"""Flower, which asks for the depth of its queues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from flower.utils.broker import Broker

from headrace.client import blocking

if TYPE_CHECKING:
    from support.console import LocalConsole


@pytest.mark.parametrize("vhost", ["", "of-flower"])
def test_reads_the_depth_of_queues(console: LocalConsole, vhost: str) -> None:
    """For the default virtual host its path ends with a slash."""
    name = vhost or "/"
    if vhost:
        assert console.ask("PUT", f"/api/vhosts/{vhost}").status == 201
    with blocking.connect(console.broker.url_of(vhost=name)) as connection:
        channel = connection.channel()
        channel.declare_queue("a/b")
        channel.publish(b"m", routing_key="a/b")

    async def depths() -> list[dict[str, object]]:
        api = f"http://guest:guest@127.0.0.1:{console.port}/api/"
        client = Broker(f"amqp://guest:guest@127.0.0.1:5672/{vhost}", http_api=api)
        found: list[dict[str, object]] = await client.queues(["a/b"])
        return found

    (row,) = asyncio.run(depths())
    assert (row["name"], row["messages"], row["messages_ready"]) == ("a/b", 1, 1)
    assert (row["messages_unacknowledged"], row["consumers"], row["idle_since"]) == (0, 0, None)
