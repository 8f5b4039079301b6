# SPDX-License-Identifier: Apache-2.0
"""Rules of AMQP 0-9-1 and 0-9 for clients, proven on ours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headrace.client import ClientError, Reconnect, connect
from headrace.protocol.codec_0_x import (
    BasicPublish,
    ChannelOpen,
    ChannelOpenOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)
from support.brokers.scripted_broker import Peer, scripted

if TYPE_CHECKING:
    from collections.abc import Callable

    Name = Callable[[str], str]

VERSIONS = ["0-9-1", "0-9"]


@pytest.mark.rule("0-9-1/s005", "0-9/redelivered#hinting")
@pytest.mark.parametrize("version", VERSIONS)
async def test_redelivered_is_a_hint_that_is_handed_on(url: str, name: Name, version: str) -> None:
    """Whether `redelivered` is set or not, each message is received once more, in order."""
    queue = name("hint")
    bodies = [b"0", b"1", b"2", b"3"]
    async with connect(f"{url}?version={version}", reconnect=None) as connection:
        channel = await connection.channel(confirm=False)
        await channel.declare_queue(queue, durable=False)
        for body in bodies:
            await channel.publish(body, queue)
        async with channel.consume(queue) as consumer:
            first = [await consumer.receive() for _ in bodies]
            assert [(one.body, one.redelivered) for one in first] == [(b, False) for b in bodies]
            for one in first[:2]:
                await one.nack(requeue=True)
            if version == "0-9":  # A channel's consumers do not receive its requeued messages.
                fetched = [await channel.get(queue) for _ in range(2)]
                redelivered = [one for one in fetched if one is not None]
            else:
                redelivered = [await consumer.receive() for _ in range(2)]
            assert sorted((one.body, one.redelivered) for one in redelivered) == [
                (b"0", True),
                (b"1", True),
            ]
            for one in [*first[2:], *redelivered]:
                assert await one.ack()
        await channel.delete_queue(queue)


@pytest.mark.rule("0-9-1/basic.reject#03")
async def test_consuming_never_selects_by_rejecting(url: str, name: Name) -> None:
    """All released messages are requeued in order; accepted ones stay accepted."""
    queue = name("all")
    async with connect(url, reconnect=None) as connection:
        channel = await connection.channel()
        await channel.declare_queue(queue, durable=False)
        for number in range(5):
            await channel.publish(b"%d" % number, queue)
        async with channel.consume(queue, prefetch=10) as consumer:
            kept = await consumer.receive()
            assert await (await consumer.receive()).ack()
        other = await connection.channel()
        rest = []
        while (delivery := await other.get(queue, no_ack=True)) is not None:
            rest.append(delivery.body)
        assert rest == [b"2", b"3", b"4"]
        assert await kept.ack()
        await channel.delete_queue(queue)


@pytest.mark.rule("0-9-1/s046", "0-9-1/s082")
async def test_only_the_application_deletes_and_once() -> None:
    """After a reconnection the client does not declare or delete a deleted queue again."""
    answers = {
        ChannelOpen: ChannelOpenOk(),
        ExchangeDeclare: ExchangeDeclareOk(),
        ExchangeDelete: ExchangeDeleteOk(),
        QueueDelete: QueueDeleteOk(),
    }
    lives: list[list[tuple[type, str]]] = [[], []]

    def life(number: int) -> Callable[[Peer], object]:
        async def serve(peer: Peer) -> None:
            await peer.handshake()
            while True:
                event = await peer.next_event()
                method = event.method  # type: ignore[attr-defined]
                name = getattr(method, "queue", None) or getattr(method, "exchange", "")
                lives[number].append((type(method), name))  # type: ignore[arg-type]
                if isinstance(method, QueueDeclare):
                    peer.send(event.channel, QueueDeclareOk(queue=method.queue))  # type: ignore[attr-defined]
                elif isinstance(method, BasicPublish):
                    if number == 0:
                        peer.hang_up()
                    return
                elif type(method) in answers:
                    peer.send(event.channel, answers[type(method)])  # type: ignore[attr-defined]

        return serve

    async with scripted(life(0), life(1)) as broker:  # type: ignore[arg-type]
        connection = await connect(broker.url, reconnect=Reconnect(delay_s=0.001))
        channel = await connection.channel(confirm=False)
        for queue in ("kept", "gone"):
            await channel.declare_queue(queue)
            await channel.declare_exchange(queue, "fanout")
        await channel.delete_queue("gone")
        await channel.delete_exchange("gone")
        while not lives[1] or lives[1][-1][0] is not BasicPublish:
            try:
                await channel.publish("x", "kept")
            except ClientError:
                pass
            await asyncio.sleep(0)
        await connection.close()
    deletes = {(QueueDelete, "gone"), (ExchangeDelete, "gone")}
    assert [one for one in lives[0] if one in deletes] == [
        (QueueDelete, "gone"),
        (ExchangeDelete, "gone"),
    ]
    assert {one for one in lives[1] if one[1]} == {
        (QueueDeclare, "kept"),
        (ExchangeDeclare, "kept"),
    }
