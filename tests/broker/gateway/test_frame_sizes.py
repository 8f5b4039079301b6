# SPDX-License-Identifier: Apache-2.0
"""Messages pass between clients that agreed on different frame sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.protocol.codec_0_x import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicProperties,
    BasicPublish,
    BasicReturn,
    MethodBase,
    QueueDeclare,
    QueueDeclareOk,
    decode_content_header,
)
from headrace.spec.tables import V0_9_1
from headrace.testing.raw_client import RawClient
from headrace.wire.frame import FRAME_BODY, FRAME_HEADER

if TYPE_CHECKING:
    from support.brokers.broker_process import Served

SMALL = 4096
SIZES = [0, 1, SMALL - 8, SMALL - 7, 3 * (SMALL - 8), 50_000, 65_536, 65_537, 300_000]


def content(
    raw: RawClient, kind: type[MethodBase], size: int
) -> tuple[BasicProperties, bytes, int]:
    """Read a method with its content; return properties, body and the largest body frame."""
    received, frame = raw.next_method(), raw.frame()
    assert received is not None
    assert isinstance(received[1], kind)
    assert frame is not None
    assert frame[:2] == (FRAME_HEADER, 1)
    _, announced, properties = decode_content_header(V0_9_1, frame[2])
    assert announced == size
    assert isinstance(properties, BasicProperties)
    body, largest = b"", 0
    while len(body) < size:
        frame = raw.frame()
        assert frame is not None
        assert frame[:2] == (FRAME_BODY, 1)
        largest = max(largest, len(frame[2]) + 8)
        body += frame[2]
    return properties, body, largest


def octets(size: int) -> bytes:
    return bytes(range(251)) * (size // 251) + bytes(size % 251)


@pytest.mark.parametrize("how", ["waiting", "later", "get", "return"])
@pytest.mark.parametrize("size", SIZES)
def test_bodies_are_cut_to_what_the_receiver_takes(
    served: Served, name: str, size: int, how: str
) -> None:
    body = octets(size)
    with RawClient(served.host, served.port) as small, RawClient(served.host, served.port) as large:
        small.open_connection(frame_max=SMALL).channel(1)
        large.open_connection().channel(1)
        small.send(QueueDeclare(queue=name, exclusive=how == "waiting", auto_delete=True))
        small.expect(QueueDeclareOk)
        message = BasicPublish(routing_key=name)
        if how == "return":
            # The one with small frames gets its own message back.
            message = BasicPublish(routing_key=f"{name}-none", mandatory=True)
            small.send_content(message, BasicProperties(priority=1), body)
            got = content(small, BasicReturn, size)
        elif how == "waiting":
            small.send(BasicConsume(queue=name, no_ack=True))
            small.expect(BasicConsumeOk)
            large.send_content(message, BasicProperties(priority=1), body)
            got = content(small, BasicDeliver, size)
        else:
            large.send_content(message, BasicProperties(priority=1), body)
            large.send(QueueDeclare(queue=name, passive=True))
            assert large.expect(QueueDeclareOk).message_count == 1
            if how == "later":
                small.send(BasicConsume(queue=name))
                small.expect(BasicConsumeOk)
                got = content(small, BasicDeliver, size)
            else:
                small.send(BasicGet(queue=name))
                got = content(small, BasicGetOk, size)
    assert got[0] == BasicProperties(priority=1)
    assert got[1] == body
    assert got[2] <= SMALL


def test_small_frames_reach_a_receiver_of_large_ones(served: Served, name: str) -> None:
    body = octets(50_000)
    with RawClient(served.host, served.port) as small, RawClient(served.host, served.port) as large:
        small.open_connection(frame_max=SMALL).channel(1)
        large.open_connection().channel(1)
        large.send(QueueDeclare(queue=name, exclusive=True))
        large.expect(QueueDeclareOk)
        large.send(BasicConsume(queue=name, no_ack=True))
        large.expect(BasicConsumeOk)
        small.send_content(BasicPublish(routing_key=name), BasicProperties(), body)
        assert content(large, BasicDeliver, len(body))[1] == body


def test_a_header_is_never_cut(served: Served, name: str) -> None:
    """A content has one header frame, so one that is too large for the receiver goes whole."""
    properties = BasicProperties(headers={"long": "x" * 10_000})
    with RawClient(served.host, served.port) as small, RawClient(served.host, served.port) as large:
        small.open_connection(frame_max=SMALL).channel(1)
        large.open_connection().channel(1)
        small.send(QueueDeclare(queue=name, exclusive=True))
        small.expect(QueueDeclareOk)
        small.send(BasicConsume(queue=name, no_ack=True))
        small.expect(BasicConsumeOk)
        large.send_content(BasicPublish(routing_key=name), properties, octets(9000))
        got = content(small, BasicDeliver, 9000)
    assert got[0] == properties
    assert got[1] == octets(9000)
    assert got[2] <= SMALL
