# SPDX-License-Identifier: Apache-2.0
"""What comes and goes leaves nothing in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client import Message
from headrace.client.blocking import connect
from headrace.testing import LocalBroker

if TYPE_CHECKING:
    from pathlib import Path

QUEUES = 20


def test_the_journal_keeps_no_mark_of_a_deleted_queue(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker, connect(broker.url) as connection:
        channel = connection.channel()
        for number in range(QUEUES):
            queue = f"short.{number}"
            channel.declare_queue(queue, durable=True)
            channel.publish(Message(b"", persistent=True), queue)
            delivery = channel.get(queue)
            assert delivery is not None
            delivery.ack()
            channel.delete_queue(queue)
        journal = broker._broker.storage.stores["/"]
        assert not journal.reserved
