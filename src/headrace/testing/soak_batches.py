# SPDX-License-Identifier: Apache-2.0
"""The part of ``headrace soak`` that writes staged batches: its load, and its law."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.client.staging import Sink, Stage, Staged

if TYPE_CHECKING:
    from headrace.client.connection.connection import Connection

SINK = "soak"
EXCHANGE = "batches"  # Fans out to both of these.
QUEUE = "batches.queue"
LOG = "batches.log"


def content(batch: int) -> list[list[bytes]]:
    """Return the messages of each task of a batch, the same at each call."""
    return [
        [b"%d.%d.%d" % (batch, part, n) for n in range((7 * batch + 3 * part) % 40)]
        for part in range(1 + batch % 3)
    ]


class Batches:
    """One sink over many deaths of its driver and its broker."""

    def __init__(self, rng: random.Random, violation: Callable[[str], None]) -> None:
        self.random = rng
        self.violation = violation
        self.last = -1  # The last batch whose commit is known.
        self.asked = -1  # The last batch whose commit was asked for.
        self.stopping = False

    async def declare(self, connection: Connection) -> None:
        """Make the exchange, the queue and the stream."""
        async with connection.channel() as channel:
            await channel.declare_exchange(EXCHANGE, "fanout", durable=True)
            await channel.declare_queue(QUEUE, durable=True)
            await channel.declare_queue(LOG, durable=True, arguments={"x-queue-type": "stream"})
            await channel.bind_queue(QUEUE, EXCHANGE)
            await channel.bind_queue(LOG, EXCHANGE)

    async def write(self, connection: Connection) -> None:
        """Write batches until a process dies."""
        sink = Sink(connection, SINK)
        state = await sink.begin("soak", uuid.uuid4().hex)
        self.check(-1 if state.last is None else state.last)
        while not self.stopping:
            batch = self.last + 1
            parts = []
            for number, bodies in enumerate(content(batch)):
                staged = None
                while staged is None or self.random.random() < 0.2:  # Attempts that are lost.
                    staged = await self.task(connection, sink, batch, number, bodies)
                parts.append(staged)
            self.asked = batch
            await sink.commit(batch, parts)
            self.last = batch
            if self.random.random() < 0.1:
                again = await sink.commit(batch, parts)
                if not again.already:
                    self.violation(f"batch {batch} was committed twice")

    async def task(
        self, connection: Connection, sink: Sink, batch: int, number: int, bodies: list[bytes]
    ) -> Staged:
        """One attempt at a part of a batch."""
        stage = Stage(connection, SINK, batch, number, 1, epoch=sink.epoch, chunk_messages=16)
        async with stage:
            await stage.publish_many(bodies, exchange=EXCHANGE)
            return await stage.prepare()

    def check(self, last: int) -> None:
        """Compare the committed batches of the broker with its earlier answers."""
        if not self.last <= last <= max(self.last, self.asked):
            self.violation(f"batch {last} is the last; {self.last} to {self.asked} were possible")
        self.last = last

    async def judge(self, connection: Connection) -> None:
        """All committed batches must be there, whole and once, in the queue and in the stream."""
        sink = Sink(connection, SINK)
        last = await sink.last()
        self.check(-1 if last is None else last)
        await sink.close()
        expected = [
            body for batch in range(self.last + 1) for part in content(batch) for body in part
        ]
        async with connection.channel() as channel:
            bodies = []
            while (delivery := await channel.get(QUEUE, no_ack=True)) is not None:
                bodies.append(delivery.body)
        self.compare(QUEUE, bodies, expected)
        stream = connection.stream(LOG)
        end = await stream.last_offset()
        read = []
        if end:
            async for batch in stream.read(0, end):
                read += [record.message().body for record in batch]
        self.compare(LOG, read, expected)

    def compare(self, name: str, found: list[bytes], wanted: list[bytes]) -> None:
        """Note what is missing from a queue, or there without reason or too often."""
        extra, missing = Counter(found) - Counter(wanted), Counter(wanted) - Counter(found)
        for body, count in list(extra.items())[:5]:
            self.violation(f"{name} has {body!r} {count} times too often")
        for body in list(missing)[:5]:
            self.violation(f"{name} lacks {body!r} of a committed batch")
