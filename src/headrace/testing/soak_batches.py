# SPDX-License-Identifier: Apache-2.0
"""The client of ``headrace soak`` that writes staged batches, and the check of their law."""

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
EXCHANGE = "batches"  # A fanout exchange, bound to the queue and the stream.
QUEUE = "batches.queue"
STREAM = "batches.log"


def make_bodies(batch: int) -> list[list[bytes]]:
    """Return the bodies of each task of a batch; they are the same at each call."""
    return [
        [b"%d.%d.%d" % (batch, part, n) for n in range((7 * batch + 3 * part) % 40)]
        for part in range(1 + batch % 3)
    ]


class Batches:
    """Writes batches by one sink while its connection and its broker are killed."""

    def __init__(self, rng: random.Random, violation: Callable[[str], None]) -> None:
        self.random = rng
        self.violation = violation
        self.last = -1  # The last batch whose commit is known.
        self.requested = -1  # The last batch whose commit was sent.
        self.stopping = False

    async def declare(self, connection: Connection) -> None:
        """Declare the exchange, the queue and the stream."""
        async with connection.channel() as channel:
            await channel.declare_exchange(EXCHANGE, "fanout", durable=True)
            await channel.declare_queue(QUEUE, durable=True)
            await channel.declare_queue(STREAM, durable=True, arguments={"x-queue-type": "stream"})
            await channel.bind_queue(QUEUE, EXCHANGE)
            await channel.bind_queue(STREAM, EXCHANGE)

    async def write(self, connection: Connection) -> None:
        """Write batches until the connection is lost."""
        sink = Sink(connection, SINK)
        state = await sink.begin("soak", uuid.uuid4().hex)
        self.check(-1 if state.last is None else state.last)
        while not self.stopping:
            batch = self.last + 1
            parts = []
            for number, bodies in enumerate(make_bodies(batch)):
                staged = None
                while staged is None or self.random.random() < 0.2:  # Repeats abandon a stage.
                    staged = await self.stage_part(connection, sink, batch, number, bodies)
                parts.append(staged)
            self.requested = batch
            await sink.commit(batch, parts)
            self.last = batch
            if self.random.random() < 0.1:
                repeated = await sink.commit(batch, parts)
                if not repeated.already:
                    self.violation(f"batch {batch} was committed twice")

    async def stage_part(
        self, connection: Connection, sink: Sink, batch: int, number: int, bodies: list[bytes]
    ) -> Staged:
        """Publish the bodies of a task to a new stage and prepare it."""
        stage = Stage(connection, SINK, batch, number, 1, epoch=sink.epoch, chunk_messages=16)
        async with stage:
            await stage.publish_many(bodies, exchange=EXCHANGE)
            return await stage.prepare()

    def check(self, last: int) -> None:
        """Check the broker's last committed batch against its earlier answers."""
        if not self.last <= last <= max(self.last, self.requested):
            self.violation(f"the last batch is {last}, not {self.last} to {self.requested}")
        self.last = last

    async def judge(self, connection: Connection) -> None:
        """Check that queue and stream have each message of the committed batches exactly once."""
        sink = Sink(connection, SINK)
        last = await sink.last()
        self.check(-1 if last is None else last)
        await sink.close()
        expected = [
            body for batch in range(self.last + 1) for part in make_bodies(batch) for body in part
        ]
        async with connection.channel() as channel:
            bodies = []
            while (delivery := await channel.get(QUEUE, no_ack=True)) is not None:
                bodies.append(delivery.body)
        self.compare(QUEUE, bodies, expected)
        stream = connection.stream(STREAM)
        end = await stream.last_offset()
        stream_bodies = []
        if end:
            async for batch in stream.read(0, end):
                stream_bodies += [record.message().body for record in batch]
        self.compare(STREAM, stream_bodies, expected)

    def compare(self, name: str, bodies: list[bytes], expected: list[bytes]) -> None:
        """Report bodies that a queue or stream lacks, has too often, or has without a publish."""
        extra = Counter(bodies) - Counter(expected)
        missing = Counter(expected) - Counter(bodies)
        for body, count in list(extra.items())[:5]:
            self.violation(f"{name} has {body!r} {count} times too often")
        for body in list(missing)[:5]:
            self.violation(f"{name} lacks {body!r} of a committed batch")
