# SPDX-License-Identifier: Apache-2.0
"""Delivery counts, in every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.client import Delivery, Message, connect
from headrace.spec.tables import Version

if TYPE_CHECKING:
    from collections.abc import Callable

VERSIONS = [version.label for version in Version]
LIMIT = {"x-delivery-limit": 5}
every = pytest.mark.parametrize("version", VERSIONS)


async def requeue_first(url: str, queue: str) -> Delivery:
    """Receive the first message of a queue and requeue it; return the delivery."""
    async with connect(url, reconnect=None) as connection, connection.channel() as channel:
        delivery = await channel.get(queue)
        assert delivery is not None
        await delivery.reject(requeue=True)
        return delivery


@every
async def test_the_count_is_told_in_every_version(
    url: str, version: str, name: Callable[..., str]
) -> None:
    queue = name(version)
    async with connect(f"{url}?version={version}", reconnect=None) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(queue, arguments=LIMIT)
            await channel.publish(Message(b"body", headers={"mine": 1}), queue)
    for count, other in enumerate(VERSIONS):
        delivery = await requeue_first(f"{url}?version={other}", queue)
        expected_headers = {"x-delivery-count": count} if count else {}
        assert (delivery.body, delivery.headers) == (b"body", {"mine": 1, **expected_headers})
