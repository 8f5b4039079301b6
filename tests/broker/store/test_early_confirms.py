# SPDX-License-Identifier: Apache-2.0
"""A confirm waits for the disk, or until consumers have settled the message in all its queues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from headrace.client import Message, connect
from headrace.testing.broker import LocalBroker
from support.disks.gated_disk import Gate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from headrace.client.channel.channel import Channel
    from headrace.client.channel.consumer import Consumer
    from headrace.untyped import Json
    from headrace.wire.table import Value

ROUNDS = 20  # Of another connection, while a confirm is held.
VERSIONS = pytest.mark.parametrize("version", ["0-9-1", "0-10"])


class Scene:
    """A publisher, a consumer and a third connection, of a broker whose disk waits on demand."""

    def __init__(self, gate: Gate, publisher: Channel, consumer: Channel, probe: Channel) -> None:
        self.gate = gate
        self.publisher = publisher
        self.consumer = consumer
        self.probe = probe

    async def publish(
        self, key: str, exchange: str = "", headers: dict[str, Value] | None = None
    ) -> asyncio.Future[None]:
        message = Message(b"body", persistent=True, headers=headers or {})
        return await self.publisher.publish_soon(message, key, exchange)

    async def queue(self, name: str, **arguments: Json) -> None:
        await self.probe.declare_queue(
            name,
            durable=True,
            arguments={key.replace("_", "-"): value for key, value in arguments.items()},
        )

    @asynccontextmanager
    async def consuming(self, queue: str, *, no_ack: bool = False) -> AsyncIterator[Consumer]:
        """Consume a queue whose first delivery has been noted in the journal."""
        async with self.consumer.consume(queue, no_ack=no_ack) as consumer:
            confirmed = await self.publish(queue)
            first = await anext(consumer)
            if not no_ack:
                await first.ack()
            await confirmed
            yield consumer

    async def is_held(self, confirmed: asyncio.Future[None]) -> bool:
        """Return True if a confirm does not come while the disk waits."""
        for _ in range(ROUNDS):  # The broker has long since done what was asked.
            await self.probe.declare_queue("probe", passive=True)
        return not confirmed.done()


@asynccontextmanager
async def scene_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> AsyncIterator[Scene]:
    with LocalBroker(tmp_path) as broker:
        url = f"{broker.url}?version={version}"
        async with (
            connect(url) as one,
            connect(url) as two,
            connect(broker.url) as three,
            one.channel() as publisher,
            two.channel() as consumer,
            three.channel() as probe,
        ):
            scene = Scene(Gate(monkeypatch), publisher, consumer, probe)
            await scene.queue("probe")
            yield scene


Play = Callable[[Callable[[Scene], Awaitable[None]], str], None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Run the steps of a test in one version."""

    def run(steps: Callable[[Scene], Awaitable[None]], version: str) -> None:
        async def main() -> None:
            async with scene_of(tmp_path, monkeypatch, version) as scene:
                await steps(scene)

        asyncio.run(main())

    return run


@VERSIONS
def test_a_message_that_a_consumer_took_without_acks_is_confirmed_before_the_sync(
    play: Play, version: str
) -> None:
    async def steps(scene: Scene) -> None:
        await scene.queue("q")
        async with scene.consuming("q", no_ack=True) as consumer, scene.gate.shut():
            for _ in range(3):
                confirmed = await scene.publish("q")
                await anext(consumer)
                await confirmed

    play(steps, version)


@VERSIONS
def test_an_acked_message_is_confirmed_before_the_sync_and_another_is_not(
    play: Play, version: str
) -> None:
    async def steps(scene: Scene) -> None:
        await scene.queue("q")
        async with scene.consuming("q") as consumer:
            async with scene.gate.shut():
                confirmed = await scene.publish("q")
                delivery = await anext(consumer)
                assert await scene.is_held(confirmed), "it is unacked"
                await delivery.ack()
                await confirmed
                later = await scene.publish("q")
                assert await scene.is_held(later)
                await (await anext(consumer)).nack(requeue=True)
                assert await scene.is_held(later), "it was returned to its queue"
            await later

    play(steps, version)


@VERSIONS
def test_every_queue_has_to_have_settled_the_message(play: Play, version: str) -> None:
    async def steps(scene: Scene) -> None:
        await scene.probe.declare_exchange("x", "fanout", durable=True)
        for name in ("a", "b"):
            await scene.queue(name)
            await scene.probe.bind_queue(name, "x")
        async with scene.consuming("a", no_ack=True), scene.consuming("b") as slow:
            async with scene.gate.shut():
                confirmed = await scene.publish("", "x")
                delivery = await anext(slow)
                assert await scene.is_held(confirmed), "the second queue has it"
                await delivery.ack()
                await confirmed

    play(steps, version)


@VERSIONS
def test_confirms_of_a_channel_keep_their_order(play: Play, version: str) -> None:
    async def steps(scene: Scene) -> None:
        await scene.queue("kept")
        await scene.queue("q")
        async with scene.consuming("q", no_ack=True) as consumer:
            async with scene.gate.shut():
                first = await scene.publish("kept")
                assert await scene.is_held(first)
                second = await scene.publish("q")
                await anext(consumer)
                assert await scene.is_held(second), "an earlier publish waits"
            await first
            await second

    play(steps, version)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x_max_length": 1},
        {"x_queue_type": "classic", "x_last_value_queue_key": "key"},
        {"x_message_ttl": 0},
    ],
    ids=["length", "last-value", "expired"],
)
def test_a_message_that_no_consumer_settled_waits_for_the_disk(
    play: Play, arguments: dict[str, Json]
) -> None:
    """The message that took its place may not survive a crash."""

    async def steps(scene: Scene) -> None:
        await scene.queue("q", **arguments)
        async with scene.gate.shut():
            first = await scene.publish("q", headers={"key": "1"})
            second = await scene.publish("q", headers={"key": "1"})
            await scene.gate.reached()
            assert await scene.is_held(first)
            assert await scene.is_held(second)
        await first
        await second

    play(steps, "0-9-1")


def test_a_rejected_message_waits_until_its_dead_letter_is_durable(play: Play) -> None:
    async def steps(scene: Scene) -> None:
        await scene.queue("dead")
        await scene.queue("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
        async with scene.consuming("q") as consumer:
            async with scene.gate.shut():
                confirmed = await scene.publish("q")
                await (await anext(consumer)).reject()
                assert await scene.is_held(confirmed)
            await confirmed

    play(steps, "0-9-1")


def test_a_message_that_a_transaction_took_waits_for_the_transaction(play: Play) -> None:
    async def steps(scene: Scene) -> None:
        await scene.queue("q")
        async with scene.consuming("q") as consumer:
            async with scene.gate.shut():
                confirmed = await scene.publish("q")
                delivery = await anext(consumer)

                async def commit() -> None:
                    async with scene.consumer.transaction():
                        await delivery.ack()

                committed = asyncio.ensure_future(commit())
                assert await scene.is_held(confirmed)
                assert not committed.done()
            await confirmed
            await committed

    play(steps, "0-9-1")


def test_a_purged_message_waits_for_the_purge(play: Play) -> None:
    async def steps(scene: Scene) -> None:
        await scene.queue("q")
        async with scene.gate.shut():
            confirmed = await scene.publish("q")
            purged = asyncio.ensure_future(scene.consumer.purge_queue("q"))
            assert await scene.is_held(confirmed)
            assert not purged.done()
        await confirmed
        assert await purged == 1

    play(steps, "0-9-1")


def test_a_message_that_is_in_a_stream_waits_for_the_disk(play: Play) -> None:
    async def steps(scene: Scene) -> None:
        await scene.probe.declare_exchange("x", "fanout", durable=True)
        await scene.queue("q")
        await scene.queue("s", x_queue_type="stream")
        for name in ("q", "s"):
            await scene.probe.bind_queue(name, "x")
        async with scene.consuming("q", no_ack=True) as consumer:
            async with scene.gate.shut():
                confirmed = await scene.publish("", "x")
                await anext(consumer)
                assert await scene.is_held(confirmed)
            await confirmed

    play(steps, "0-9-1")
