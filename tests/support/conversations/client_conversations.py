# SPDX-License-Identifier: Apache-2.0
"""Recorded conversations of our client and our broker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.client import Message, NotFound, connect
from headrace.protocol.codec_0_10 import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)
from support.pcap import Recorder
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headrace.client import Connection

FULL = Message(
    b"\x00body\xff",
    headers={
        "text": "grün",
        "int": 2**40,
        "negative": -1,
        "float": 1.5,
        "decimal": Decimal("-12.34"),
        "yes": True,
        "none": None,
        "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "table": {"a": {"b": {"c": 1}}},
    },
    content_type="text/plain",
    content_encoding="utf-8",
    priority=7,
    correlation_id="correlation",
    reply_to="reply",
    expiration=timedelta(minutes=1),
    message_id="id-1",
    timestamp=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    type="kind",
    app_id="test",
)


async def talk_0_9_1(connection: Connection) -> None:
    """The classes of 0-9-1, one after the other."""
    async with connection.channel() as channel:
        await channel.declare_queue("wire-q", arguments={"x-max-length": 100, "x-expires": 60000})
        await channel.declare_exchange("wire-x", "topic")
        await channel.bind_queue("wire-q", "wire-x", "a.*.#")
        await channel.qos(10)
        await channel.publish(FULL, "a.b.c", exchange="wire-x")
        await channel.publish(Message(bytes(200_000), persistent=False), "wire-q")
        for _ in range(2):
            delivery = await channel.get("wire-q")
            assert delivery is not None
            await delivery.ack()
        for number in range(4):
            await channel.publish(f"message {number}", "wire-q")
        seen = 0
        async with channel.consume("wire-q") as consumer:
            async for delivery in consumer:
                seen += 1
                if seen == 1:
                    await delivery.reject(requeue=False)
                elif seen == 2:
                    await delivery.nack(requeue=False)
                else:
                    await delivery.ack()
                if seen == 4:
                    break
        await channel.purge_queue("wire-q")
        await channel.unbind_queue("wire-q", "wire-x", "a.*.#")
        await channel.delete_exchange("wire-x")
        await channel.delete_queue("wire-q")
        try:
            await channel.declare_queue("wire-missing", passive=True)
        except NotFound:
            pass


async def talk_0_10(connection: Connection) -> None:
    """Sessions and the classes of 0-10, one after the other."""
    async with connection.session("wire-session", timeout_s=5) as session:
        await session.call(QueueDeclare(queue="wire-q10", arguments={"x-max-length": 100}))
        await session.call(ExchangeDeclare(exchange="wire-x10", type="topic"))
        await session.call(
            ExchangeBind(queue="wire-q10", exchange="wire-x10", binding_key="a.#", arguments={})
        )
        await session.query_queue("wire-q10")
        await session.query_queue("wire-missing")
        await session.query_exchange("wire-x10")
        await session.query_bound("wire-x10", queue="wire-q10")
        await session.transfer(FULL, "a.b", "wire-x10")
        await session.transfer(Message(bytes(150_000), persistent=False), "wire-q10")
        subscription = await session.subscribe("wire-q10", "wire-d")
        await subscription.flow(messages=2)
        first = await subscription.receive(PATIENCE_S)
        second = await subscription.receive(PATIENCE_S)
        assert (first.body, len(second.body)) == (FULL.body, 150_000)
        await session.release(first, set_redelivered=True)
        await subscription.flow(messages=1)
        again = await subscription.receive(PATIENCE_S)
        await session.accept(second)
        await session.reject(again, text="no")
        await subscription.cancel()
        browser = await session.subscribe("wire-q10", "wire-b", acquire=False, window=True)
        await session.tx_select()
        await session.transfer("in a transaction", "wire-q10")
        await session.tx_commit()
        await browser.flow(messages=1)
        (found,) = [await browser.receive(PATIENCE_S)]
        await session.acquire(found)
        await browser.stop()
        await session.tx_rollback()
        await browser.cancel()
        await session.call(QueuePurge(queue="wire-q10"))
        await session.call(QueueDelete(queue="wire-q10"))
        await session.call(ExchangeDelete(exchange="wire-x10"))
    async with connection.session("wire-failing") as session:
        try:
            await session.call(QueueDelete(queue="wire-missing"))
        except NotFound:
            pass


TALKS: dict[str, Callable[[Connection], Awaitable[None]]] = {
    "0-9-1": talk_0_9_1,
    "0-10": talk_0_10,
}


def converse(url: str, version: str) -> list[tuple[str, bytes]]:
    """Let our client talk to the broker at `url` in `version`; who said what, in order."""
    place = urlsplit(url)
    recorder = Recorder(place.hostname or "127.0.0.1", place.port or 5672)

    async def talk() -> None:
        through = f"amqp://guest:guest@127.0.0.1:{recorder.port}/?version={version}"
        async with asyncio.timeout(60), connect(through, reconnect=None) as connection:
            await TALKS[version](connection)

    try:
        asyncio.run(talk())
    finally:
        chunks = recorder.finish()
    return chunks
