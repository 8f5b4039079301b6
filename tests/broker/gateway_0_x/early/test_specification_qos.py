# SPDX-License-Identifier: Apache-2.0
"""basic.qos as the letter of the standard has it: the channel, or with global the connection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.protocol.codec_0_x import BasicDeliver, BasicQos, BasicQosOk
from headrace.testing.raw_client import RawClient
from support.brokers.broker_process import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    broker = Served(tmp_path_factory.mktemp("qos"), "--specification-qos", memory=True).start()
    yield broker
    broker.end()


@pytest.fixture
def client(served: Served) -> Iterator[RawClient]:
    talk = RawClient(served.host, served.port).open()
    yield talk
    talk.drop()


@pytest.mark.rule("0-9-1/s096")
def test_without_global_the_channel_is_limited(client: RawClient, name: str) -> None:
    client.declare(name, exclusive=True)
    client.channel(2)
    client.publish(name, *[b"x"] * 5)
    client.call(BasicQos(prefetch_count=2), BasicQosOk)
    client.consume(name, "a")
    for _ in range(2):
        client.content(BasicDeliver)
    client.consume(name, "b")
    assert client.silent()
    client.consume(name, "c", channel=2)
    for _ in range(3):
        client.content(BasicDeliver, 2)


@pytest.mark.rule("0-9-1/s096")
def test_with_global_the_connection_is_limited(client: RawClient, name: str) -> None:
    client.declare(name, exclusive=True)
    client.channel(2)
    client.publish(name, *[b"x"] * 5)
    client.call(BasicQos(prefetch_count=2, global_=True), BasicQosOk)
    client.consume(name, "a")
    for _ in range(2):
        client.content(BasicDeliver)
    client.consume(name, "b", channel=2)
    assert client.silent()
    client.ack(1)
    number, _ = client.next()
    assert number in (1, 2)
    assert client.silent()
