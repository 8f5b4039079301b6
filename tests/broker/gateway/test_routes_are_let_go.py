# SPDX-License-Identifier: Apache-2.0
"""What publishers and the sampler remember keeps no queue that was deleted."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from headrace.client.blocking import connect
from headrace.model.queue.queue import Queue
from headrace.testing import LocalBroker
from support.management_socket import ManagementClient, Mirror

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUEUES = 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(management_socket=tmp_path / "management.sock") as running:
        yield running


def deleted(name: str) -> int:
    """Return how many deleted queues are kept whose names begin so."""
    gc.collect()
    return sum(
        isinstance(one, Queue) and one.deleted and one.name.startswith(name)
        for one in gc.get_objects()
    )


@pytest.mark.parametrize("version", ["0-9-1", "0-10"])
def test_a_publisher_keeps_no_deleted_queue(broker: LocalBroker, version: str) -> None:
    with connect(f"{broker.url}?version={version}") as connection:
        channel = connection.channel()
        for number in range(QUEUES):
            queue = f"published.{version}.{number}"
            channel.declare_queue(queue, durable=False)
            channel.publish(b"", queue)
            channel.delete_queue(queue)
        channel.declare_queue("last", durable=False)
        channel.publish(b"", "last")
        assert deleted(f"published.{version}.") == 0


def test_the_sampler_keeps_no_deleted_queue(broker: LocalBroker, tmp_path: Path) -> None:
    operator = ManagementClient(tmp_path / "management.sock")
    mirror = Mirror(operator, "queue").look()
    for number in range(QUEUES):
        operator.ask("declare queue", name=f"sampled.{number}", durable=False)
        mirror.look()
        operator.ask("publish", exchange="", routing_key=f"sampled.{number}", payload="x")
        mirror.look()
        operator.ask("delete queue", name=f"sampled.{number}")
    mirror.look()
    operator.close()
    assert deleted("sampled.") == 0
