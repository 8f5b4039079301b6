# SPDX-License-Identifier: Apache-2.0
"""An application can detect that a message of a lost transaction came twice."""

from __future__ import annotations

import pytest

from headrace.client import Message
from headrace.client.blocking import connect
from headrace.testing.broker import LocalBroker


@pytest.mark.rule("0-9/tx#01", "0-10/s101")
@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
def test_a_duplicate_is_known_by_its_id_and_says_redelivered(version: str) -> None:
    with LocalBroker() as broker:
        url = f"{broker.url}?version={version}"
        seen: dict[str | None, int] = {}
        with connect(url, reconnect=None) as connection, connection.channel() as channel:
            channel.declare_queue("q")
            for number in range(3):
                channel.publish(Message(b"%d" % number, message_id=f"id-{number}"), "q")
        connection = connect(url, reconnect=None)
        channel = connection.channel(confirm=False)
        delivery = channel.get("q")
        assert delivery is not None
        assert not delivery.redelivered
        seen[delivery.message_id] = 1
        connection.close()  # The transaction is not committed.
        with (
            connect(url, reconnect=None) as connection,
            connection.channel(confirm=False) as channel,
        ):
            duplicates = 0
            with channel.transaction():
                for _ in range(3):
                    delivery = channel.get("q")
                    assert delivery is not None
                    assert delivery.redelivered == (delivery.message_id in seen)
                    duplicates += delivery.message_id in seen
                    delivery.ack()
            assert duplicates == 1
            assert channel.get("q") is None
