# SPDX-License-Identifier: Apache-2.0
"""What becomes of messages whose queue is purged or deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from talk import Talk

from headrace.protocol.codec_0_x import (
    QueueBind,
    QueueBindOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)
from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version
from serving import Served, until

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 40
BODY = bytes(100_000)  # So all of them fill several segments of the least size.
EVERY = [
    pytest.param(V0_9_1, id="0-9-1", marks=pytest.mark.rule("0-9-1/queue.purge#02")),
    pytest.param(V0_9, id="0-9", marks=pytest.mark.rule("0-9/queue.purge#03")),
]


@pytest.mark.parametrize("version", EVERY)
def test_purged_messages_are_not_kept_among_the_live_ones(tmp_path: Path, version: Version) -> None:
    broker = Served(tmp_path / "broker", "--segment-size", "1MiB").start()
    journal = tmp_path / "broker" / "data" / "vhosts"

    def filled() -> int:
        """In how many segments such bodies are."""
        return sum(BODY[:50_000] in path.read_bytes() for path in journal.rglob("*.segment"))

    client = Talk(broker.host, broker.port, version)
    client.declare("q", durable=True)
    client.publish("q", *[BODY] * COUNT, delivery_mode=2)
    assert client.count("q") == COUNT
    until(lambda: filled() >= 3, "the messages are on disk")
    assert client.call(QueuePurge(queue="q"), QueuePurgeOk).message_count == COUNT
    client.publish("q", b"live", delivery_mode=2)
    assert client.count("q") == 1
    client.close()
    broker.restart()
    client = Talk(broker.host, broker.port, version)
    until(lambda: filled() <= 1, "the files are let go of, but for the one that is written to")
    assert client.get("q") == b"live"
    assert client.get("q") is None
    client.close()
    assert broker.stop() == 0


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(V0_9_1, id="0-9-1", marks=pytest.mark.rule("0-9-1/queue.delete#01")),
        pytest.param(V0_9, id="0-9", marks=pytest.mark.rule("0-9/queue.delete#01")),
        pytest.param(V0_8, id="0-8"),
    ],
)
def test_a_deleted_queue_passes_its_messages_on(
    served: Served, name: str, version: Version
) -> None:
    client = Talk(served.host, served.port, version)
    client.declare(f"{name}.dead")
    client.declare(name, arguments={"alternate-exchange": "amq.fanout"})
    client.call(QueueBind(queue=f"{name}.dead", exchange="amq.fanout"), QueueBindOk)
    client.publish(name, b"1", b"2")
    client.call(QueueDelete(queue=name), QueueDeleteOk)
    assert [client.get(f"{name}.dead") for _ in range(3)] == [b"1", b"2", None]
    client.close()
