# SPDX-License-Identifier: Apache-2.0
"""Messages from 0-10 in the queues of 0-x clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.gateway.conversion.contents import header_segment
from headrace.gateway.conversion.headers import shortstr
from headrace.gateway.conversion.neutral import Properties
from headrace.gateway.conversion.neutral_transfer import read_transfer, write_transfer
from headrace.gateway.conversion.neutral_values import MAP, STR16, VOID
from headrace.model.message import KIND_TRANSFER, LARGE, new_message
from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicProperties,
    BasicRecover,
    BasicRecoverOk,
    QueueDeclare,
    QueueDeclareOk,
    decode_content_header,
)
from headrace.spec.tables import V0_9_1

if TYPE_CHECKING:
    from headrace.protocol.v0_x.events import ContentReceived
    from support.brokers.in_memory_broker import Client, Rig


@pytest.fixture
def client(rig: Rig) -> Client:
    return rig.client()


def transfer(
    rig: Rig, queue: str, body: bytes, p: Properties | None = None, large: int = 0
) -> None:
    """Put a message in a queue as a 0-10 session would; ``large`` octets are a part each."""
    address = shortstr("ex") + shortstr("key")
    segment = write_transfer(p or Properties(), b"ex", b"key", len(body))
    start = address + b"\0\0" + len(segment).to_bytes(4, "big") + segment
    message = new_message(start if large else start + body, len(address), len(body))
    message.flags = KIND_TRANSFER
    if large:
        message.flags |= LARGE
        message.parts = tuple([body[at : at + large] for at in range(0, len(body), large)])
    rig.vhost.deliver(message, [rig.vhost.queues[queue]], False)


def too_deep() -> Properties:
    value = (VOID, b"")
    for _ in range(40):
        value = (MAP, ((b"k", value),))  # type: ignore[assignment]
    p = Properties()
    p.headers = [(b"deep", value)]
    return p


def properties(content: ContentReceived) -> BasicProperties:
    _, size, found = decode_content_header(V0_9_1, content.header)
    assert size == len(content.body)
    assert isinstance(found, BasicProperties)
    return found


def declare(client: Client, name: str, **options: Any) -> None:
    client.call(QueueDeclare(queue=name, **options), QueueDeclareOk)


def consume(client: Client, queue: str, *, no_ack: bool = True) -> None:
    client.call(BasicConsume(queue=queue, consumer_tag="tag", no_ack=no_ack), BasicConsumeOk)


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_consumer_gets_it_as_a_basic_message(rig: Rig, client: Client, no_ack: bool) -> None:
    declare(client, "q")
    p = Properties()
    p.content_type, p.delivery_mode, p.priority, p.ttl_ms = b"text/plain", 2, 3, 60000
    p.headers = [(b"color", (STR16, b"red"))]
    transfer(rig, "q", b"waiting", p)
    consume(client, "q", no_ack=no_ack)
    transfer(rig, "q", b"at once", p)
    contents = client.contents()
    assert [content.body for content in contents] == [b"waiting", b"at once"]
    for tag, content in enumerate(contents, 1):
        assert content.method == BasicDeliver(
            consumer_tag="tag", delivery_tag=tag, exchange="ex", routing_key="key"
        )
        assert properties(content) == BasicProperties(
            content_type="text/plain",
            delivery_mode=2,
            priority=3,
            expiration="60000",
            headers={"color": "red"},
        )
    if not no_ack:
        assert rig.vhost.queues["q"].unacked_count == 2
        client.send(BasicAck(delivery_tag=2, multiple=True))
    assert rig.vhost.queues["q"].unacked_count == 0


def test_it_is_got(rig: Rig, client: Client) -> None:
    declare(client, "q")
    transfer(rig, "q", b"body")
    client.send(BasicGet(queue="q", no_ack=True))
    (content,) = client.contents()
    assert content.body == b"body"
    assert content.method == BasicGetOk(delivery_tag=1, exchange="ex", routing_key="key")
    client.call(BasicGet(queue="q"), BasicGetEmpty)


@pytest.mark.parametrize("large", [0, 1000])
@pytest.mark.parametrize("size", [0, 4088, 4089, 20000])
def test_its_body_comes_in_frames_of_the_size_that_the_client_takes(
    rig: Rig, size: int, large: int
) -> None:
    client = rig.client(frame_max=4096)
    declare(client, "q")
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    transfer(rig, "q", body, large=large)
    consume(client, "q")
    (content,) = client.contents()
    assert content.body == body


def test_it_comes_again_marked_redelivered(rig: Rig, client: Client) -> None:
    declare(client, "q")
    consume(client, "q", no_ack=False)
    transfer(rig, "q", b"body")
    (content,) = client.contents()
    assert content.body == b"body"
    client.send(BasicRecover(requeue=False))
    again, answer = client.heard()
    assert isinstance(again, BasicDeliver)
    assert again.redelivered
    assert isinstance(answer, BasicRecoverOk)
    client.send(BasicAck(delivery_tag=2))
    assert rig.vhost.queues["q"].unacked_count == 0


# --- What cannot be said -------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["consume", "acknowledge", "get", "get with acknowledgement"])
def test_what_cannot_be_said_is_a_dead_letter_and_blocks_nothing(
    rig: Rig, client: Client, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    declare(client, "dead")
    declare(
        client,
        "q",
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    )
    transfer(rig, "q", b"first")
    transfer(rig, "q", b"too deep", too_deep())
    transfer(rig, "q", b"last")
    bodies = []
    if way in ("consume", "acknowledge"):
        consume(client, "q", no_ack=way == "consume")
        bodies = [content.body for content in client.contents()]
    else:
        for _ in range(2):
            client.send(BasicGet(queue="q", no_ack=way == "get"))
            bodies += [content.body for content in client.contents()]
    assert bodies == [b"first", b"last"]
    queue = rig.vhost.queues["q"]
    assert queue.ready_count == 0
    assert queue.unacked_count == (0 if way in ("consume", "get") else 2)
    assert rig.vhost.queues["dead"].ready_count == 1
    assert "headers nest deeper than 32" in caplog.text
    rig.vhost.queues["dead"].purge()


def test_the_dead_letter_says_why(rig: Rig, client: Client) -> None:
    small = rig.client(frame_max=4096)
    declare(client, "dead")
    declare(
        client,
        "q",
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    )
    p = Properties()
    p.headers = [(b"long", (STR16, b"x" * 5000))]
    p.ttl_ms = 1000
    transfer(rig, "q", b"body", p)
    consume(small, "q")
    client.send(BasicGet(queue="dead", no_ack=True))
    (content,) = client.contents()
    assert content.body == b"body"
    said = properties(content)
    assert said.expiration is None
    assert said.headers is not None
    assert said.headers["long"] == "x" * 5000
    assert "4088" in str(said.headers["x-conversion-error"])
    (death,) = said.headers["x-death"]
    assert death["reason"] == "unconvertible"
    assert death["queue"] == "q"
    assert death["original-expiration"] == "1000"
    assert small.contents() == []


def test_without_a_place_for_dead_letters_it_is_dropped(rig: Rig, client: Client) -> None:
    declare(client, "q")
    transfer(rig, "q", b"too deep", too_deep())
    consume(client, "q", no_ack=False)
    transfer(rig, "q", b"next")
    assert [content.body for content in client.contents()] == [b"next"]
    assert rig.vhost.queues["q"].unacked_count == 1
    assert rig.counters.memory_used > 0
    client.send(BasicAck(delivery_tag=1))
    assert rig.counters.memory_used == 0


def test_it_dies_of_age_and_keeps_the_types_of_its_headers(rig: Rig, client: Client) -> None:
    declare(client, "dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    declare(client, "q", arguments={**arguments, "x-message-ttl": 100})
    p = Properties()
    p.headers = [(b"raw", (0x30, b"12345678")), (b"big", (0x32, b"\xff" * 8))]
    transfer(rig, "q", b"body", p)
    rig.pass_time(101)
    (letter,) = [rig.vhost.queues["dead"].dequeue()]
    assert letter is not None
    headers = dict(read_transfer(header_segment(letter)).headers or ())
    assert headers[b"raw"] == (0x30, b"12345678")
    assert headers[b"big"] == (0x32, b"\xff" * 8)
    assert headers[b"x-last-death-reason"] == (STR16, b"expired")
