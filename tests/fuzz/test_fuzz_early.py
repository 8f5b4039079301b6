# SPDX-License-Identifier: Apache-2.0
"""Streams of 0-8 and 0-9, as they are and bent, against machine and broker."""

from __future__ import annotations

from itertools import islice

import pytest
from fuzz_gateway import run_all, run_gateway
from fuzz_mutate import Mutator

from headrace.protocol import codec_0_x as codec
from headrace.protocol.codec_0_x import encode_content_header, encode_method
from headrace.spec.tables import V0_8, V0_9, Version
from headrace.wire.frame import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, encode_frame

INPUTS = 25


def stream_of(version: Version) -> bytes:
    """A session that uses what only these versions have."""

    def method(number: int, value: codec.MethodBase) -> bytes:
        return encode_frame(FRAME_METHOD, number, encode_method(version, value))

    def content(value: codec.MethodBase, properties: codec.PropertiesBase, body: bytes) -> bytes:
        header = encode_content_header(version, properties.CLASS_ID, len(body), properties)
        return (
            method(1, value)
            + encode_frame(FRAME_HEADER, 1, header)
            + encode_frame(FRAME_BODY, 1, body)
        )

    start = codec.ConnectionStartOk(
        client_properties={"product": "fuzz", "tunnel-proxy": "p"},
        mechanism="PLAIN",
        response=b"\0guest\0guest",
        locale="en_US",
    )
    tunnelled = encode_method(version, codec.QueueDeclare(queue="t", exclusive=True))
    octets = [
        version.header,
        method(0, start),
        method(0, codec.ConnectionTuneOk(channel_max=64, frame_max=4096)),
        method(0, codec.ConnectionOpen(virtual_host="/", insist=True)),
        method(1, codec.ChannelOpen()),
        method(2, codec.ChannelOpen()),
        method(1, codec.AccessRequest(realm="/data", active=True, write=True, read=True)),
        method(1, codec.QueueDeclare(queue="q", ticket=2)),
        method(1, codec.ExchangeDeclare(exchange="x", type="topic", ticket=2)),
        method(1, codec.QueueBind(queue="q", exchange="x", routing_key="#", ticket=2)),
        method(1, codec.ExchangeBound(exchange="x", queue="q")),
        content(
            codec.BasicPublish(exchange="x", routing_key="k", ticket=2),
            codec.BasicProperties(headers={"flag": True, "list": [1, None]}, priority=7),
            b"body",
        ),
        method(1, codec.BasicConsume(queue="q", consumer_tag="c", ticket=2)),
        method(1, codec.BasicReject(delivery_tag=1, requeue=True)),
        method(2, codec.BasicGet(queue="q")),
        method(2, codec.BasicAck(delivery_tag=1)),
        method(1, codec.BasicRecover(requeue=True)),
        content(codec.TunnelRequest(), codec.TunnelProperties(), tunnelled),
        method(1, codec.QueueUnbind(queue="q", exchange="x", routing_key="#", ticket=2)),
    ]
    if version is V0_8:
        octets += [
            method(1, codec.TestInteger(integer_1=1, operation=1)),
            method(1, codec.TestString(string_1="a", string_2=b"bc", operation=3)),
            method(1, codec.TestTable(table={"a": 1, "b": "c"}, integer_op=2, string_op=1)),
            content(codec.TestContent(), codec.TestProperties(), b"content"),
        ]
    else:
        octets += [
            method(1, codec.ChannelPing()),
            method(1, codec.ChannelOk()),
            method(1, codec.ChannelPong()),
            method(1, codec.BasicRecoverSync(requeue=True)),
        ]
    octets += [
        method(1, codec.ChannelClose(reply_code=200)),
        method(0, codec.ConnectionClose(reply_code=200)),
    ]
    return b"".join(octets)


@pytest.mark.parametrize("version", [V0_8, V0_9], ids=lambda v: v.label)
def test_the_streams_are_served(version: Version) -> None:
    said = run_gateway(stream_of(version))
    assert said.startswith("CLOSED")
    assert " - " not in said, said


@pytest.mark.parametrize("seed", [1])
def test_bent_streams_are_accepted_or_refused(seed: int) -> None:
    mutator = Mutator([stream_of(V0_8), stream_of(V0_9)], seed=seed)
    for data in islice(mutator.inputs(), INPUTS):
        run_all(data)
    for data in islice(mutator.sessions(), INPUTS):
        run_all(data)
