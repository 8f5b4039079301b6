# SPDX-License-Identifier: Apache-2.0
"""Celery's queue over 0-9-1, browsed by a session of 0-10, still runs."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from kombu import Connection as KombuConnection  # type: ignore[attr-defined]

from headrace import client
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from support.brokers.broker_process import Remote, Served


@pytest.fixture
def app(broker: Served | Remote, name: str) -> Celery:
    app = Celery(name, broker=broker.url, set_as_current=False)
    app.conf.update(task_default_queue=name)
    return app


async def browse(url: str, queue: str, count: int) -> list[client.Transfer]:
    """Look at so many messages and take none."""
    async with (
        client.connect(f"{url}?version=0-10") as connection,
        connection.session("browser") as session,
        await session.subscribe(queue, acquire=False, accept=False) as subscription,
    ):
        await subscription.flow(count)
        return [await subscription.receive(PATIENCE_S) for _ in range(count)]


def test_a_0_10_session_browses_what_celery_queued(
    app: Celery, broker: Served | Remote, name: str
) -> None:
    headers: dict[str, Any] = {"trace": {"id": 7, "parents": [1, 2]}}
    sent = [
        app.send_task("add", args=(number, 2), headers=headers, expires=600, priority=3)
        for number in range(3)
    ]
    browsed = asyncio.run(browse(broker.url, name, 3))
    for result, message in zip(sent, browsed, strict=True):
        assert message.routing_key == name
        assert message.content_type == "application/json"
        assert message.content_encoding == "utf-8"
        assert message.correlation_id == result.id
        assert message.priority == 3
        assert message.persistent
        assert message.headers["task"] == "add"
        assert message.headers["id"] == result.id
        assert message.headers["trace"] == {"id": 7, "parents": [1, 2]}
        assert json.loads(message.body)[0][1] == 2
        assert not message.acquired
    taken = []
    with KombuConnection(broker.url) as connection:
        queue = connection.SimpleQueue(name)
        for _ in sent:
            message = queue.get(timeout=PATIENCE_S)
            assert not message.delivery_info["redelivered"]
            taken.append(message.headers["id"])
            message.ack()
        queue.close()
        connection.default_channel.queue_delete(name)
    assert taken == [result.id for result in sent]
