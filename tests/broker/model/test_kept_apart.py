# SPDX-License-Identifier: Apache-2.0
"""Messages set aside, when their queue is purged or deleted."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from headrace.protocol.codec_0_10 import QueueDeclare as Declare010
from headrace.protocol.codec_0_10 import QueuePurge as Purge010
from headrace.protocol.codec_0_x import (
    FilePublish,
    QueueBind,
    QueueBindOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)
from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version
from headrace.testing.raw_client import RawClient
from support.brokers.broker_process import Served, files_below, until
from support.clients.command_client_0_10 import Talk as Talk010
from support.clients.file_class_client import FileClient

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 40
BODY = b"\x5a" * 100_000  # So all of them fill several segments of the least size.
EVERY = [
    pytest.param(V0_9_1, id="0-9-1", marks=pytest.mark.rule("0-9-1/queue.purge#02")),
    pytest.param(V0_9, id="0-9", marks=pytest.mark.rule("0-9/queue.purge#03")),
]


def filled(broker: Served) -> set[str]:
    """The segments with such bodies in their files, by name: the numbers are never used again."""
    below = files_below(broker.home / "data" / "vhosts", "*.segment")
    return {path.name for path, octets in below if BODY[:50_000] in octets}


@pytest.mark.parametrize("version", EVERY)
def test_purged_messages_are_not_kept_among_the_live_ones(tmp_path: Path, version: Version) -> None:
    broker = Served(tmp_path / "broker", "--segment-size", "1MiB").start()
    client = RawClient(broker.host, broker.port, version).open()
    client.declare("q", durable=True)
    client.publish("q", *[BODY] * COUNT, delivery_mode=2)
    assert client.count("q") == COUNT
    until(lambda: len(filled(broker)) >= 3, "the messages are on disk")
    assert client.call(QueuePurge(queue="q"), QueuePurgeOk).message_count == COUNT
    client.publish("q", b"live", delivery_mode=2)
    assert client.count("q") == 1
    client.drop()
    holding = filled(broker)  # No later one: it may be a file used again, with what that held.
    broker.restart()
    client = RawClient(broker.host, broker.port, version).open()
    until(
        lambda: len(holding & filled(broker)) <= 1,
        "the files are let go of, but for the one that is written to",
    )
    assert client.get("q") == b"live"
    assert client.get("q") is None
    client.drop()
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
    client = RawClient(served.host, served.port, version).open()
    client.declare(f"{name}.dead")
    client.declare(name, arguments={"alternate-exchange": "amq.fanout"})
    client.call(QueueBind(queue=f"{name}.dead", exchange="amq.fanout"), QueueBindOk)
    client.publish(name, b"1", b"2")
    client.call(QueueDelete(queue=name), QueueDeleteOk)
    assert [client.get(f"{name}.dead") for _ in range(3)] == [b"1", b"2", None]
    client.drop()


@pytest.mark.rule("0-10/s198")
def test_messages_purged_in_0_10_are_not_kept_among_the_live_ones(tmp_path: Path) -> None:
    broker = Served(tmp_path / "broker", "--segment-size", "1MiB").start()
    session = Talk010(broker.port).attach()
    session.call(Declare010(queue="q", durable=True))
    for number in range(COUNT):
        session.publish(BODY, "q", delivery_mode=2, wait=number == COUNT - 1)
    session.call(Purge010(queue="q"))
    session.publish(b"live", "q", delivery_mode=2)
    session.client.close()
    holding = filled(broker)
    broker.restart()
    until(
        lambda: len(holding & filled(broker)) <= 1,
        "the files are let go of, but for the one that is written to",
    )
    session = Talk010(broker.port).attach()
    session.subscribe("q")
    assert session.bodies(1) == [b"live"]
    session.client.close()
    assert broker.stop() == 0


@pytest.mark.rule("0-10/s057", "0-10/s060")
def test_messages_of_0_10_go_to_disk(tmp_path: Path) -> None:
    """Persistent ones to stay there; others while there are more than memory is meant to hold."""
    broker = Served(tmp_path / "broker", "--memory-max", "1MiB").start()
    session = Talk010(broker.port).attach()
    session.call(Declare010(queue="q", durable=True))
    before = broker.memory_bytes()
    bodies = [b"%04d" % number + bytes(200_000) for number in range(300)]  # 60 MB.
    for number, body in enumerate(bodies):
        mode = 2 if number < 5 else 1
        session.publish(body, "q", delivery_mode=mode, wait=number % 10 == 9)
    until(lambda: broker.memory_bytes() - before < 40 << 20, "most of it is on disk")
    session.subscribe("q", acquire_mode=1, accept_mode=1)  # A look that takes nothing.
    assert session.bodies(len(bodies)) == bodies
    session.client.vanish()
    broker.restart(signal.SIGKILL)
    session = Talk010(broker.port).attach()
    session.subscribe("q")
    assert session.bodies(5) == bodies[:5]
    session.client.close()
    assert broker.stop() == 0


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(V0_9, id="0-9", marks=pytest.mark.rule("0-9/queue#any-content")),
        pytest.param(V0_8, id="0-8"),
    ],
)
def test_any_content_goes_to_any_queue_by_any_exchange(
    served: Served, name: str, version: Version
) -> None:
    one = FileClient(served.host, served.port, version).open()
    for kind in ("direct", "fanout", "topic", "headers"):
        queue = f"{name}.{kind}"
        one.declare(queue)
        one.call(QueueBind(queue=queue, exchange=f"amq.{kind}", routing_key=queue), QueueBindOk)
        one.publish(queue, b"message 1", exchange=f"amq.{kind}")
        one.publish_packet(queue, b"packet", exchange=f"amq.{kind}")
        one.stage("id", b"file")
        one.send(FilePublish(exchange=f"amq.{kind}", routing_key=queue, identifier="id"))
        one.publish(queue, b"message 2", exchange=f"amq.{kind}")
        assert one.count(queue) == 4
        one.consume_files(queue, f"f{kind}")
        assert one.receive_file()[1].body == b"file"
        assert [one.get(queue) for _ in range(3)] == [b"message 1", b"message 2", None]
        one.consume_packets(queue, f"p{kind}")
        _, content = one.next_of(1)
        assert content.body == b"packet"
        one.call(QueueDelete(queue=queue), QueueDeleteOk)
    one.drop()
