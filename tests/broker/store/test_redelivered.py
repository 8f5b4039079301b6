# SPDX-License-Identifier: Apache-2.0
"""The flag ``redelivered`` after a crash: what left the broker is on disk as delivered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.protocol.codec_0_x import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    ConfirmSelect,
    ConfirmSelectOk,
)
from headrace.store.disk import Disk
from headrace.testing.broker import LocalBroker
from headrace.testing.raw_client import RawClient
from support.brokers.broker_process import until
from support.timeouts import PATIENCE_S


class Gate:
    """Lets syncs through, or not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.open.set()
        sync = Disk.sync

        def gated(disk: Disk, handle: int) -> None:
            self.open.wait(PATIENCE_S)
            sync(disk, handle)

        monkeypatch.setattr(Disk, "sync", gated)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


@pytest.fixture
def broker(tmp_path: Path, gate: Gate) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path) as one:
        yield one
        gate.open.set()


def heard_nothing(client: RawClient) -> bool:
    client.socket.settimeout(0.1)
    try:
        return client.socket.recv(1) == b"?"
    except TimeoutError:
        return True
    finally:
        client.socket.settimeout(PATIENCE_S)


@pytest.mark.rule("0-9-1/s003")
def test_a_delivery_waits_until_it_is_known_on_disk(broker: LocalBroker, gate: Gate) -> None:
    publisher = RawClient(broker.host, broker.port).open()
    publisher.call(ConfirmSelect(), ConfirmSelectOk)
    publisher.declare("q", durable=True)
    publisher.publish("q", b"1", b"2", b"3", b"4", delivery_mode=2)
    confirmed = 0
    while confirmed < 4:
        confirmed = publisher.next()[1].delivery_tag  # type: ignore[union-attr]
    getter, consumer = (RawClient(broker.host, broker.port).open() for _ in range(2))
    gate.open.clear()
    getter.send(BasicGet(queue="q"))
    until(
        lambda: publisher.count("q") == 3, "it is taken"
    )  # Other connections do not wait for the disk.
    assert heard_nothing(getter)
    consumer.send(BasicConsume(queue="q", consumer_tag="t"))
    until(lambda: publisher.count("q") == 0, "all are taken")
    assert heard_nothing(consumer)
    gate.open.set()
    method, body = getter.content(BasicGetOk)
    assert (method.redelivered, body) == (False, b"1")
    consumer.expect(BasicConsumeOk)
    for expected in (b"2", b"3", b"4"):
        _, body = consumer.content(BasicDeliver)
        assert body == expected
    gate.open.clear()  # From now on, no delivery waits for the disk.
    publisher.publish("q", b"5", delivery_mode=2)
    _, body = consumer.content(BasicDeliver)
    assert body == b"5"
    gate.open.set()
    for client in (publisher, getter, consumer):
        client.drop()
