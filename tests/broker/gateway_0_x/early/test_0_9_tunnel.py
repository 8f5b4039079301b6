# SPDX-License-Identifier: Apache-2.0
"""The tunnel class of 0-8 and 0-9, the test class of 0-8, and the types that both may be sent."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from headrace.protocol import codec_0_x as codec
from headrace.protocol.codec_0_x import (
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicProperties,
    BasicPublish,
    BasicReturn,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStartOk,
    ConnectionTuneOk,
    MethodBase,
    PropertiesBase,
    QueueDeclare,
    QueueDeclareOk,
    QueuePurge,
    QueuePurgeOk,
    TunnelProperties,
    TunnelRequest,
    TxSelect,
    decode_content_header,
    encode_content_header,
    encode_method,
)
from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version
from headrace.testing.raw_client import Content, RawClient, method_frame
from headrace.wire.frame import FRAME_BODY, FRAME_HEADER, encode_frame
from support.brokers.broker_process import Served

Talker = Callable[..., RawClient]
EARLY = pytest.mark.parametrize("version", [V0_8, V0_9], ids=lambda v: v.label)
ADD, MIN, MAX = 1, 2, 3


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("tunnel")
    broker = Served(home, "--tunnel-proxies", "printer=print.jobs", memory=True).start()
    yield broker
    broker.end()


def tunnel(client: RawClient, body: bytes, channel: int = 1, **properties: Any) -> None:
    client.send_content(
        TunnelRequest(meta_data={"k": "v"}), TunnelProperties(**properties), body, channel
    )


def hear_content(client: RawClient) -> tuple[MethodBase, PropertiesBase, bytes]:
    received = client.next_method()
    assert received is not None
    frame = client.frame()
    assert frame is not None
    _, size, properties = decode_content_header(client.version, frame[2])
    body = b""
    while len(body) < size:
        frame = client.frame()
        assert frame is not None
        body += frame[2]
    return received[1], properties, body


# -- Tunnel ----------------------------------------------------------------------------------------


@EARLY
def test_a_tunnelled_method_is_executed_on_the_channel(
    talk: Talker, version: Version, name: str
) -> None:
    client = talk(version)
    client.channel(2)
    tunnel(client, encode_method(version, QueueDeclare(queue=name)), 2)
    assert client.expect(QueueDeclareOk, 2).queue == name
    client.publish("", b"to the last queue declared here", channel=2)  # No such queue as "".
    tunnel(client, encode_method(version, QueuePurge(queue="")), 2)
    client.expect(QueuePurgeOk, 2)


@EARLY
def test_frames_are_executed_with_their_content(talk: Talker, version: Version, name: str) -> None:
    client = talk(version).with_queue(name)
    block = method_frame(9, BasicPublish(routing_key=name), version)  # Whatever its channel was.
    block += encode_frame(
        FRAME_HEADER, 9, encode_content_header(version, 60, 5, BasicProperties(message_id="m"))
    )
    block += encode_frame(FRAME_BODY, 9, b"hello")
    tunnel(client, block)
    client.send(BasicGet(queue=name, no_ack=True))
    _, got = client.next()
    assert isinstance(got, Content)
    assert (got.body, got.properties.message_id) == (b"hello", "m")


@EARLY
@pytest.mark.parametrize(
    ("block", "code"),
    [
        (b"\x00\x0a\x00\x32\x00\x00\x00\x00\x00\x00\x00", 503),  # connection.close of 0-9.
        (b"\x00\x6e\x00\x0a\x00\x00\x00\x00", 503),  # A tunnel in the tunnel.
        (b"\x00\x32", 503),
        (b"\x00\x63\x00\x01", 540),
        (b"\x01\x00\x01\x00\x00\x00\x09abc\xce", 502),
        (b"GIF89a", 502),
        (b"", 0),
    ],
)
def test_what_is_no_method_is_refused(
    talk: Talker, version: Version, block: bytes, code: int
) -> None:
    client = talk(version)
    tunnel(client, block)
    if code:
        assert client.expect_connection_close().code == code
    else:
        client.declare("", exclusive=True)  # Nothing is what an empty block asks for.


@EARLY
def test_an_error_in_a_tunnel_closes_the_channel(talk: Talker, version: Version) -> None:
    client = talk(version)
    tunnel(client, encode_method(version, QueueDeclare(queue="nowhere", passive=True)))
    assert client.expect_channel_close().code == 404


@EARLY
def test_an_unknown_proxy_is_not_implemented(talk: Talker, version: Version) -> None:
    client = talk(version)
    tunnel(client, b"GIF89a", proxy_name="nobody")
    assert client.expect_connection_close().code == 540


@EARLY
def test_a_configured_proxy_finds_blocks_in_its_queue(talk: Talker, version: Version) -> None:
    client = talk(version).with_queue("print.jobs")
    tunnel(
        client,
        b"page" * 20_000 if version is V0_9 else b"page",
        proxy_name="printer",
        data_name="text",
        headers={"h": 1},
        durable=1,
    )
    client.send(BasicGet(queue="print.jobs", no_ack=True))
    _, got = client.next()
    assert isinstance(got, Content)
    assert got.body[:8] in (b"page", b"pagepage")
    assert got.properties.headers == {"h": 1, "meta-data": {"k": "v"}}
    assert (got.properties.type, got.properties.delivery_mode) == ("text", 2)


def proxy(served: Served, version: Version, name: str) -> RawClient:
    raw = RawClient(served.host, served.port, version)
    raw.greet()
    raw.send(
        ConnectionStartOk(
            client_properties={"tunnel-proxy": name},
            mechanism="PLAIN",
            response=b"\0guest\0guest",
            locale="en_US",
        )
    )
    raw.next_method()
    raw.send(ConnectionTuneOk())
    raw.frame_max = 131072
    raw.send(ConnectionOpen(virtual_host="/"))
    raw.expect(ConnectionOpenOk)
    return raw.channel(1)


@EARLY
def test_a_connected_proxy_hears_requests(
    served: Served, talk: Talker, version: Version, name: str
) -> None:
    client, first, second = talk(version), proxy(served, V0_8, name), proxy(served, V0_9, name)
    tunnel(client, b"GIF89a", proxy_name=name, data_name="d", headers={"x": "y"}, broadcast=1)
    for each in (first, second):
        method, properties, body = hear_content(each)
        assert method == TunnelRequest(meta_data={"k": "v"})
        assert properties == TunnelProperties(
            proxy_name=name, data_name="d", headers={"x": "y"}, broadcast=1
        )
        assert body == b"GIF89a"
    tunnel(client, b"once", proxy_name=name)
    assert hear_content(first)[2] == b"once"
    second.declare("", exclusive=True)  # It heard nothing more.
    first.drop()
    second.drop()


# -- Test ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "result"), [(ADD, (7 + 300 + 70_000 + 2**63)), (MIN, 7), (MAX, 2**63), (0, None)]
)
def test_integers(talk: Talker, operation: int, result: int | None) -> None:
    method = codec.TestInteger(
        integer_1=7, integer_2=300, integer_3=70_000, integer_4=2**63, operation=operation
    )
    wanted = 7 + 300 + 70_000 + 2**63 if result is None else result
    assert talk(V0_8).call(method, codec.TestIntegerOk).result == wanted


def test_sums_are_of_64_bits(talk: Talker) -> None:
    method = codec.TestInteger(integer_1=2, integer_4=2**64 - 1, operation=ADD)
    assert talk(V0_8).call(method, codec.TestIntegerOk).result == 1


@pytest.mark.parametrize(
    ("operation", "result"), [(ADD, b"ab\xffcde"), (MIN, b"ab"), (MAX, b"\xffcde")]
)
def test_strings(talk: Talker, operation: int, result: bytes) -> None:
    method = codec.TestString(string_1="ab", string_2=b"\xffcde", operation=operation)
    assert talk(V0_8).call(method, codec.TestStringOk).result == result


@pytest.mark.parametrize(
    ("integer_op", "string_op", "result"),
    [(ADD, MIN, (2**64 - 5, b"z")), (MIN, MAX, (2**64 - 9, b"yy")), (MAX, ADD, (4, b"yyz"))],
)
def test_tables(talk: Talker, integer_op: int, string_op: int, result: tuple[int, bytes]) -> None:
    table: dict[str, Any] = {
        "a": 4,
        "b": "yy",
        "c": -9,
        "d": "z",
        "e": datetime.fromtimestamp(1, UTC),
    }
    method = codec.TestTable(table=table, integer_op=integer_op, string_op=string_op)
    answer = talk(V0_8).call(method, codec.TestTableOk)
    assert (answer.integer_result, answer.string_result) == result


def test_an_empty_table(talk: Talker) -> None:
    answer = talk(V0_8).call(codec.TestTable(integer_op=ADD, string_op=MAX), codec.TestTableOk)
    assert (answer.integer_result, answer.string_result) == (0, b"")


@pytest.mark.parametrize("size", [0, 5, 130_000])
def test_a_content_comes_back_with_its_sum(talk: Talker, size: int) -> None:
    client = talk(V0_8)
    body = bytes(range(256)) * (size // 256) + b"\xff" * (size % 256)
    client.send_content(codec.TestContent(), codec.TestProperties(), body)
    method, properties, echo = hear_content(client)
    assert method == codec.TestContentOk(content_checksum=sum(body) & 0xFFFFFFFF)
    assert (properties, echo) == (codec.TestProperties(), body)


def test_unknown_operations_and_unasked_answers_are_refused(talk: Talker) -> None:
    for method, code in (
        (codec.TestInteger(operation=4), 502),
        (codec.TestString(operation=255), 502),
        (codec.TestIntegerOk(), 503),
        (codec.TestTableOk(), 503),
    ):
        client = talk(V0_8)
        client.send(method)
        assert client.expect_connection_close().code == code
    client = talk(V0_8)
    client.send_content(codec.TestContentOk(), codec.TestProperties(), b"")
    assert client.expect_connection_close().code == 503


# -- Types -----------------------------------------------------------------------------------------

HEADERS = {
    "text": "text",
    "int": -7,
    "decimal": Decimal("3.14"),
    "time": datetime(2020, 1, 2, tzinfo=UTC),
    "table": {"inner": 1, "true": True},
    "true": True,
    "long": 2**40,
    "double": 1.5,
    "raw": b"\xff\x00",
    "list": ["a", 2, None],
    "none": None,
}
PLAIN = {
    **{key: HEADERS[key] for key in ("text", "int", "decimal", "time")},
    "table": {"inner": 1, "true": 1},
    "true": 1,
    "long": "1099511627776",
    "double": "1.5",
    "raw": b"\xff\x00",
    "list": {"1": "a", "2": 2},
}


def tags(table: bytes) -> set[str]:
    """The tags of an encoded table's values, at any depth."""
    size = struct.unpack_from(">I", table)[0]
    at, found = 4, set()
    while at < 4 + size:
        at += 1 + table[at]
        tag = chr(table[at])
        found.add(tag)
        length = {"I": 4, "D": 5, "T": 8}.get(tag)
        if length is None:
            length = 4 + struct.unpack_from(">I", table, at + 1)[0]
            if tag == "F":
                found |= tags(table[at + 1 :])
        at += 1 + length
    return found


@EARLY
def test_clients_of_early_versions_are_sent_types_that_they_know(
    talk: Talker, version: Version, name: str
) -> None:
    producer, client = talk(V0_9_1), talk(version)
    client.declare(name)
    wanted: dict[str, Any] = {"content_type": "t", "message_id": "m", "headers": HEADERS}
    producer.publish(name, b"one", b"two" * 50_000, **wanted)
    producer.declare(name)
    client.send(BasicGet(queue=name, no_ack=True))
    method = client.next_method()
    assert method is not None
    assert isinstance(method[1], BasicGetOk)
    frame = client.frame()
    assert frame is not None
    payload = frame[2]
    assert tags(payload[16:]) <= set("SIDTF")
    properties = decode_content_header(version, payload)[2]
    assert isinstance(properties, BasicProperties)
    assert properties.headers == PLAIN
    assert (properties.content_type, properties.message_id) == ("t", "m")
    frame = client.frame()
    assert frame is not None
    assert frame[2] == b"one"
    client.consume(name, no_ack=True)
    _, got = client.next()
    assert isinstance(got, Content)
    assert isinstance(got.method, BasicDeliver)
    assert (got.body, got.properties.headers) == (b"two" * 50_000, PLAIN)


@EARLY
def test_what_is_sent_back_is_plain_too(talk: Talker, version: Version) -> None:
    client = talk(version)
    client.publish("nowhere", b"x", mandatory=True, headers={"flag": True})
    _, got = client.next()
    assert isinstance(got, Content)
    assert isinstance(got.method, BasicReturn)
    assert got.properties.headers == {"flag": 1}


def test_others_get_the_types_as_they_were(talk: Talker, name: str) -> None:
    early, late = talk(V0_8), talk(V0_9_1)
    late.declare(name)
    early.publish(name, b"x", headers=HEADERS)
    early.declare(name)
    late.send(BasicGet(queue=name, no_ack=True))
    _, got = late.next()
    assert isinstance(got, Content)
    assert got.properties.headers == HEADERS
    late.send(TxSelect())
