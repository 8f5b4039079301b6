# SPDX-License-Identifier: Apache-2.0
"""Clients of a cluster under faults; each notes for the judge what it does and what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import zlib
from collections import defaultdict
from typing import TYPE_CHECKING

import pika
import pika.exceptions

from headrace.client import connect
from headrace.client.errors import ClientError, NotFound
from headrace.client.message import Message
from support.client_history import HELD_MAX, Deed, Event
from support.cluster import PERSISTENT

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Sequence

    from headrace.client.channel.channel import Channel
    from headrace.client.channel.delivery import Delivery
    from headrace.client.connection.connection import Connection
    from support.brokers.broker_process import Served

    Work = Callable[[Connection, int], Coroutine[object, object, None]]

DIRECT = "direct"  # Consumed while faults happen.
PIKA = "pika"
PAIR = ("pair.1", "pair.2")  # A transaction publishes to both, and to the stream.
STEP = ("step.1", "step.2")  # A transaction takes from the first and publishes to the second.
FENCE = "fence"
QUEUES = (DIRECT, PIKA, *PAIR, *STEP)
LOG = "log"  # A stream.
WINDOW = 100  # Unconfirmed messages.
FENCE_EVERY = 32  # Acks.
SERVED = b"is served here from now on: epoch "
LEFT = (b"is not served here any more", b"is given to another broker")
OVERLAP = 200  # Records of a stream that are read once more.


def epoch_at(broker: Served, begun: int, *, whole: bool = False) -> int:
    """Return the epoch in which a broker serves the virtual host; 0 when it does not.

    Args:
        begun: the size of its log when it was started.
        whole: True for the last epoch in which it did.
    """
    with broker.log_path.open("rb") as file:
        file.seek(begun)
        epoch = 0
        for line in file:
            if SERVED in line:
                epoch = int(line.partition(SERVED)[2].partition(b",")[0])
            elif not whole and any(left in line for left in LEFT):
                epoch = 0
    return epoch


class Clients:
    """All clients of a run, and their notes."""

    def __init__(self, rng: random.Random, brokers: Sequence[Served]) -> None:
        self.random = rng
        self.brokers = brokers
        self.begun: dict[Served, int] = defaultdict(int)
        self.events: list[Event] = []  # In the order of the clock of this process.
        self.numbers: dict[str, int] = defaultdict(int)
        self.sessions = 0
        self.told = 0  # Confirms and commits.
        self.stopping = False
        self.made = 0
        self.declared: list[str] = []
        self.last_offset = -1

    def note(self, deed: Deed, place: str, body: bytes = b"", **more: object) -> None:
        """Note something, about a message if its body is given."""
        publisher, number = "", 0
        if body:
            name, digits, _ = body.split(b":", 2)
            publisher, number = name.decode(), int(digits)
        at_s = time.monotonic()
        event = Event(deed, place, publisher, number, content=zlib.crc32(body), at_s=at_s)
        self.events.append(event._replace(**more))  # type: ignore[arg-type]
        self.told += deed in (Deed.CONFIRM, Deed.COMMIT_OK)

    def body(self, publisher: str) -> bytes:
        """Return the next body of a publisher."""
        self.numbers[publisher] += 1
        size = self.random.choice((0, 10, 1000, 1000, 5000))
        return f"{publisher}:{self.numbers[publisher]}:".encode() + self.random.randbytes(size)

    # --- Connections ------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def connection(self, heartbeat_s: int = 2):  # type: ignore[no-untyped-def]
        """Connect to one broker or another; give the connection and the epoch, 0 if not known."""
        broker = self.random.choice(self.brokers)
        before = self.epoch_by(broker)
        url = f"{broker.url}?heartbeat={heartbeat_s}&connection_timeout=5"
        async with connect(url, reconnect=None) as connection:
            same = before == self.epoch_by(broker)
            yield connection, before if same else 0

    def epoch_by(self, broker: Served) -> int:
        """Return the epoch of who serves a client of a broker: itself, or the newest owner."""
        own = epoch_at(broker, self.begun[broker])
        return own or max(epoch_at(one, 0, whole=True) for one in self.brokers)

    async def keep(self, work: Work, heartbeat_s: int = 2) -> None:
        """Connect, work until the connection is lost, and so on."""
        while not self.stopping:
            with contextlib.suppress(ClientError, OSError):
                async with self.connection(heartbeat_s) as (connection, epoch):
                    await work(connection, epoch)
            await asyncio.sleep(0.02)

    async def insist(self, work: Work) -> None:
        """Connect and do it, again from its beginning until it is done."""
        async with asyncio.timeout(120):
            while True:
                with contextlib.suppress(ClientError, OSError):
                    async with self.connection() as (connection, epoch):
                        return await work(connection, epoch)
                await asyncio.sleep(0.1)

    def session(self) -> str:
        self.sessions += 1
        return f"session {self.sessions}"

    # --- What they do -----------------------------------------------------------------------

    def workers(self) -> list[Coroutine[object, object, None]]:
        """Return the clients; each works until `stopping`."""
        publishers = [self.keep(self.publisher(place)) for place in (DIRECT, LOG)]
        # Without heartbeats it stays with an owner that stands still, and hears it again.
        patient = self.keep(self.consume, heartbeat_s=0)
        others = (self.consume, self.pairs, self.steps, self.declare_more, self.follow)
        return [*publishers, patient, *(self.keep(work) for work in others)]

    async def declare(self, connection: Connection, _epoch: int) -> None:
        async with connection.channel() as channel:
            for queue in (*QUEUES, FENCE):
                await channel.declare_queue(queue, durable=True)
                self.note(Deed.DECLARE_OK, queue)
            await channel.declare_queue(LOG, durable=True, arguments={"x-queue-type": "stream"})
            self.note(Deed.DECLARE_OK, LOG)

    def publisher(self, place: str) -> Work:
        """Publish with many unconfirmed messages."""

        async def work(connection: Connection, epoch: int) -> None:
            window: list[tuple[bytes, asyncio.Future[None]]] = []
            async with connection.channel() as channel:
                try:
                    while not self.stopping:
                        body = self.body(f"p-{place}")
                        self.note(Deed.PUBLISH, place, body)
                        confirmed = await channel.publish_soon(Message(body), place)
                        confirmed.add_done_callback(self.confirmed(place, body, epoch))
                        window.append((body, confirmed))
                        if len(window) >= WINDOW:
                            await asyncio.gather(*(one for _, one in window))
                            window.clear()
                        if self.random.random() < 0.3:
                            await asyncio.sleep(0.01)
                    await asyncio.gather(*(one for _, one in window))
                finally:
                    for _, one in window:
                        one.cancel()

        return work

    def confirmed(
        self, place: str, body: bytes, epoch: int
    ) -> Callable[[asyncio.Future[None]], None]:
        def done(future: asyncio.Future[None]) -> None:
            if not future.cancelled() and future.exception() is None:
                self.note(Deed.CONFIRM, place, body, epoch=epoch)

        return done

    async def consume(self, connection: Connection, epoch: int) -> None:
        """Consume and ack; now and then a fence tells that all acks are durable."""
        session = self.session()
        acked: list[bytes] = []
        async with (
            connection.channel() as channel,
            connection.channel() as fences,
            channel.consume(DIRECT, prefetch=HELD_MAX) as consumer,
        ):
            async for delivery in consumer:
                self.deliver(DIRECT, delivery, session, epoch)
                self.note(Deed.ACK, DIRECT, delivery.body)
                if await delivery.ack():
                    acked.append(delivery.body)
                if len(acked) >= FENCE_EVERY:
                    await fences.publish(Message(b"fence"), FENCE)
                    for body in acked:
                        self.note(Deed.SETTLED, DIRECT, body)
                    acked.clear()
                if self.stopping:
                    return

    def deliver(self, place: str, delivery: Delivery, session: str, epoch: int = 0) -> None:
        body, again = bytes(delivery.body), delivery.redelivered
        self.note(Deed.DELIVER, place, body, redelivered=again, session=session, epoch=epoch)

    async def pairs(self, connection: Connection, epoch: int) -> None:
        """Publish to two queues and a stream in transactions; roll some back."""
        async with connection.channel(confirm=False) as channel:
            while not self.stopping:
                name = f"pair {self.numbers['p-pair'] + 1}"
                body = self.body("p-pair")
                with contextlib.suppress(RolledBack):
                    async with channel.transaction():
                        for place in (*PAIR, LOG):
                            self.note(Deed.PUBLISH, place, body, transaction=name)
                            await channel.publish(Message(body), place)
                        if self.random.random() < 0.1:
                            self.note(Deed.ROLLBACK, "", transaction=name)
                            raise RolledBack
                        self.note(Deed.COMMIT, "", transaction=name)
                    self.note(Deed.COMMIT_OK, "", transaction=name, epoch=epoch)
                await asyncio.sleep(0.005)

    async def steps(self, connection: Connection, epoch: int) -> None:
        """Move messages from one queue to the next in transactions."""
        session = self.session()
        async with connection.channel(confirm=False) as channel, connection.channel() as feed:
            while not self.stopping:
                body = self.body("p-step")
                self.note(Deed.PUBLISH, STEP[0], body)
                await feed.publish(Message(body), STEP[0])
                self.note(Deed.CONFIRM, STEP[0], body, epoch=epoch)
                delivery = await channel.get(STEP[0])
                if delivery is None:
                    continue
                taken, moved = bytes(delivery.body), self.body("p-moved")
                self.deliver(STEP[0], delivery, session, epoch)
                name = f"step {self.numbers['step']}"
                self.numbers["step"] += 1
                async with channel.transaction():
                    self.note(Deed.PUBLISH, STEP[1], moved, transaction=name)
                    await channel.publish(Message(moved), STEP[1])
                    self.note(Deed.ACK, STEP[0], taken, transaction=name)
                    await delivery.ack()
                    self.note(Deed.COMMIT, "", transaction=name)
                self.note(Deed.COMMIT_OK, "", transaction=name, epoch=epoch)

    async def declare_more(self, connection: Connection, epoch: int) -> None:
        async with connection.channel() as channel:
            while not self.stopping:
                self.made += 1
                name = f"made.{self.made}"
                await channel.declare_queue(name, durable=True)
                self.note(Deed.DECLARE_OK, name, epoch=epoch)
                self.declared.append(name)
                await asyncio.sleep(0.1)

    async def follow(self, connection: Connection, _epoch: int) -> None:
        """Read the stream as it grows, and a part of it once more with each connection."""
        await self.read(connection, 1 << 60)

    async def read(self, connection: Connection, end: int) -> None:
        session = self.session()
        first = max(0, self.last_offset - OVERLAP)
        async for records in connection.stream(LOG).read(first, end):
            for record in records:
                body = bytes(record.body)
                self.note(Deed.STREAMED, LOG, body, offset=record.offset, session=session)
                self.last_offset = max(self.last_offset, record.offset)
            if self.stopping and end == 1 << 60:
                return

    def publish_by_pika(self) -> None:
        """Publish with the client of another project, which is given all addresses."""
        parameters = [
            pika.ConnectionParameters(broker.host, broker.port, heartbeat=2)
            for broker in self.brokers
        ]
        while not self.stopping:
            self.random.shuffle(parameters)
            with contextlib.suppress(pika.exceptions.AMQPError, OSError):
                connection = pika.BlockingConnection(parameters)
                channel = connection.channel()
                channel.confirm_delivery()
                while not self.stopping:
                    body = self.body("p-pika")
                    self.note(Deed.PUBLISH, PIKA, body)
                    channel.basic_publish("", PIKA, body, PERSISTENT)
                    self.note(Deed.CONFIRM, PIKA, body)
                    connection.process_data_events(0.005)
                connection.close()

    # --- A round ----------------------------------------------------------------------------

    async def work(self, faults: Callable[[], Coroutine[object, object, None]]) -> None:
        """Let all clients work while faults happen, then stop them."""
        self.stopping = False
        tasks = [asyncio.create_task(worker) for worker in self.workers()]
        by_pika = threading.Thread(target=self.publish_by_pika, daemon=True)
        by_pika.start()
        try:
            happening = asyncio.create_task(faults())
            await asyncio.wait([*tasks, happening], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()  # An error of its own.
            await happening
        finally:
            self.stopping = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(by_pika.join, 60)

    async def look(self) -> None:
        """Drain all queues, read the stream, and ask for all that was declared."""
        for queue in QUEUES:
            await self.insist(self.drain(queue))
        await self.insist(self.read_all)
        await self.insist(self.ask)

    def accept_loss(self) -> None:
        """Note that an operator accepted a loss: what was told before does not count."""
        self.note(Deed.ACCEPT_LOSS, "")
        self.declared.clear()
        self.last_offset = -1

    def drain(self, queue: str) -> Work:
        async def work(connection: Connection, _epoch: int) -> None:
            session = self.session()
            self.note(Deed.LOOK, queue)
            async with connection.channel() as channel:
                while (delivery := await channel.get(queue)) is not None:
                    self.deliver(queue, delivery, session)
                    self.note(Deed.ACK, queue, delivery.body)
                    await delivery.ack()
            self.note(Deed.WHOLE, queue)

        return work

    async def read_all(self, connection: Connection, _epoch: int) -> None:
        end = await connection.stream(LOG).last_offset()
        await self.read(connection, end)
        self.note(Deed.READ, LOG)

    async def ask(self, connection: Connection, _epoch: int) -> None:
        for name in (*QUEUES, LOG, *self.declared):
            async with connection.channel() as channel:
                if not await self.is_there(channel, name):
                    self.note(Deed.MISSING, name)

    async def is_there(self, channel: Channel, name: str) -> bool:
        try:
            await channel.declare_queue(name, passive=True)
        except NotFound:
            return False
        return True


class RolledBack(Exception):
    """A client changed its mind."""
