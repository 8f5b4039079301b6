# SPDX-License-Identifier: Apache-2.0
"""The multimedia stream class of 0-8 and 0-9; queues of type stream are something else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from headrace.protocol.codec_0_x import (
    ExchangeDeclare,
    ExchangeDeclareOk,
    StreamCancel,
    StreamCancelOk,
    StreamConsume,
    StreamDeliver,
    StreamQos,
    StreamQosOk,
    StreamReturn,
)
from headrace.spec.tables import V0_9
from headrace.testing.raw_client import Content
from support.brokers.broker_process import until
from support.clients.file_class_client import FileClient

if TYPE_CHECKING:
    from support.brokers.broker_process import Served

Client = Callable[..., FileClient]


def packet(one: FileClient) -> bytes:
    """Take the next packet."""
    return one.content(StreamDeliver)[1]


@pytest.mark.rule("0-9/stream.publish.exchange#01", "0-9/stream#03")
def test_a_packet_is_gone_once_it_was_delivered(client: Client, name: str) -> None:
    one, other = client(), client()
    one.declare(name)
    body = bytes(range(256)) * 1000
    one.publish_packet(name, body, content_type="video/x", priority=7)
    one.consume_packets(name)
    _, content = one.next()
    assert isinstance(content, Content)
    method = content.method
    assert isinstance(method, StreamDeliver)
    assert (method.consumer_tag, method.delivery_tag) == ("tag", 1)
    assert (method.exchange, method.queue) == ("", name)
    assert (content.body, content.properties.content_type) == (body, "video/x")
    assert other.count(name) == 0
    one.drop()
    assert other.count(name) == 0


@pytest.mark.rule("0-9/stream#01", "0-9/stream#02", "0-9/stream.qos.consume-rate#01")
def test_packets_of_low_priority_give_way(client: Client, name: str) -> None:
    one = client().with_queue(name, arguments={"x-max-length": 3})
    for n, priority in enumerate((4, 5, 0, 9, 4, 5)):
        one.publish_packet(name, bytes((n,)), priority=priority)
    assert one.count(name) == 3
    one.consume_packets(name)
    assert [packet(one)[0] for _ in range(3)] == [3, 1, 5]


@pytest.mark.rule("0-9/stream.qos.consume-rate#01")
@pytest.mark.parametrize("everywhere", [False, True])
def test_the_rate_that_was_asked_for_is_kept(client: Client, name: str, everywhere: bool) -> None:
    one = client().with_queue(name)
    one.call(StreamQos(consume_rate=10_000, global_=everywhere), StreamQosOk)
    one.consume_packets(name)
    began = time.monotonic()
    for n in range(6):
        one.publish_packet(name, bytes((n,)) * 1000)
    assert [packet(one)[0] for _ in range(6)] == list(range(6))
    assert time.monotonic() - began > 0.45
    for n in range(40):  # They take longer at that rate than any timeout.
        one.publish_packet(name, bytes((n,)) * 100_000)
    one.send(StreamQos(global_=everywhere))
    got = 0
    while got < 40:
        if isinstance(one.next()[1], Content):
            got += 1


@pytest.mark.rule("0-9/stream.publish.mandatory#01", "0-9/stream.publish.immediate#01")
def test_what_cannot_be_delivered_comes_back(client: Client, name: str) -> None:
    one = client().with_queue(name)
    for flags, key, code in (
        ({"mandatory": True}, "nowhere", 312),
        ({"immediate": True}, name, 313),
    ):
        one.publish_packet(key, b"packet", flags=flags)
        returned, body = one.content(StreamReturn)
        assert (returned.reply_code, returned.routing_key, body) == (code, key, b"packet")
    one.consume_packets(name)
    one.publish_packet(name, b"now", flags={"immediate": True})
    assert packet(one) == b"now"


@pytest.mark.rule("0-9/stream.consume#01", "0-9/stream.consume#02")
def test_many_consumers_share_a_queue(client: Client, name: str) -> None:
    one = client().with_queue(name)
    for n in range(20):
        one.channel(n + 2)
        one.consume_packets(name, f"t{n}", channel=n + 2)
    for n in range(20):
        one.publish_packet(name, bytes((n,)))
    found = {one.next()[0] for _ in range(20)}
    assert found == set(range(2, 22))


@pytest.mark.rule("0-9/stream.consume.queue#01")
def test_there_must_be_a_queue(client: Client) -> None:
    one = client()
    one.send(StreamConsume())
    assert one.expect_connection_close().code == 530


@pytest.mark.rule("0-9/stream.consume.consumer-tag#01")
def test_tags_of_consumers_are_unique(client: Client, name: str) -> None:
    one = client().with_queue(name)
    one.consume(name, "t")
    one.send(StreamConsume(queue=name, consumer_tag="t"))
    assert one.expect_connection_close().code == 530


@pytest.mark.rule("0-9/stream.consume.exclusive#01")
def test_exclusive_access_is_granted_to_one(client: Client, name: str) -> None:
    one, other = client(), client()
    one.declare(name)
    one.consume_packets(name)
    other.send(StreamConsume(queue=name, exclusive=True))
    assert other.expect_channel_close().code == 405
    one.call(StreamCancel(consumer_tag="tag"), StreamCancelOk)
    one.consume_packets(name, exclusive=True)
    third = client()
    third.send(StreamConsume(queue=name))
    assert third.expect_channel_close().code == 405


@pytest.mark.rule("0-9/stream.publish.exchange#02")
def test_an_internal_exchange_takes_no_packets(client: Client, name: str) -> None:
    one = client()
    declare = ExchangeDeclare(exchange=name, type="direct", internal=True, auto_delete=True)
    one.call(declare, ExchangeDeclareOk)
    one.publish_packet("", b"x", exchange=name)
    assert one.expect_channel_close().code == 403


@pytest.mark.rule("0-9/stream.publish.exchange#03")
def test_a_queue_of_type_stream_refuses_packets(client: Client, name: str) -> None:
    one = client().with_queue(name, durable=True, arguments={"x-queue-type": "stream"})
    one.publish_packet(name, b"x")
    assert one.expect_channel_close().code == 540


def test_a_consumer_does_not_get_its_own(client: Client, name: str) -> None:
    one, other = client(), client()
    one.declare(name)
    one.consume_packets(name, no_local=True)
    one.publish_packet(name, b"mine")
    other.publish_packet(name, b"other")
    assert packet(one) == b"other"
    assert one.count(name) == 1


def test_a_slow_reader_loses_packets_of_low_priority_first(client: Client, name: str) -> None:
    one, other = client(), client()
    one.declare(name, arguments={"x-max-length-bytes": 1_000_000})
    one.consume_packets(name)
    for n in range(200):
        other.publish_packet(name, bytes((n,)) * 100_000, priority=9 if n % 4 == 0 else 0)
    until(lambda: other.count(name) <= 10, "what is too much went")
    got = []
    while not got or got[-1] != 196:
        got.append(packet(one)[0])
    assert len(got) < 190
    assert set(range(160, 200, 4)) <= set(got)


def test_a_consumer_chooses_and_looks(served: Served, name: str) -> None:
    one = FileClient(
        served.host, served.port, V0_9
    ).open()  # In 0-8 stream.consume has no table for that.
    one.declare(name)
    for n in range(6):
        one.publish_packet(name, bytes((n,)), headers={"n": n})
    odd = {"x-filter-jms-selector": "n % 2 = 1"}
    one.consume_packets(name, "look", arguments={**odd, "x-filter-no-consume": True})
    assert [packet(one)[0] for _ in range(3)] == [1, 3, 5]
    one.consume_packets(name, "take", arguments=odd)
    assert [packet(one)[0] for _ in range(3)] == [1, 3, 5]
    assert one.count(name) == 3
    one.send(StreamConsume(queue=name, arguments={"x-filter-jms-selector": "n !"}))
    assert one.expect_channel_close().code == 406
    one.drop()
