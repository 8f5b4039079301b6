# SPDX-License-Identifier: Apache-2.0
"""``headrace soak``: kill a working broker again and again, and check what it promised.

Publishers, consumers and transactions work on a broker in a separate process, which gets SIGKILL at
a random moment and is started again on the same data, many times. The answers that clients got are
the history, and these are its laws:

1. A confirmed message is delivered at least once, unless it was settled. So is all that a
   transaction published whose commit was answered.
2. A message whose ack is known to be durable does not come back. An ack is known to be durable when
   a message published after it on the same connection was confirmed, or its transaction committed.
3. To one consumer, the messages of one publisher come in the order in which they were published.
4. A message that was delivered before says ``redelivered`` when it comes again.
5. A transaction that was never answered has happened with all its parts, or with none.
6. Nothing comes that was never published, and what comes has the octets that were published.
7. A distributed transaction that was prepared is there, whole, until its outcome; then laws 1 and 2
   hold for what it published and took when it was committed, and nothing of it when rolled back.
8. A staged batch is there whole and once, in a queue and in a stream, when its commit was answered;
   otherwise so or not at all. The last batch that the broker reports never decreases.
"""

import asyncio
import contextlib
import random
import time
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.client import connect
from headrace.client.channel.channel import Channel
from headrace.client.channel.delivery import Delivery
from headrace.client.connection.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.message import Message
from headrace.client.session.session import Session as BranchSession
from headrace.client.session.subscription import Transfer
from headrace.protocol.codec_0_10 import Xid
from headrace.testing.broker import ChildBroker
from headrace.testing.soak_batches import Batches

FAN = ("fan.1", "fan.2", "fan.cold")  # Bound to one fan-out exchange; the last is not consumed.
DIRECT = "direct"
PAIR = ("pair.1", "pair.2")  # A transaction publishes to both.
STEP = ("step.1", "step.2")  # A transaction takes from the first and publishes to the second.
BRANCH = ("branch.1", "branch.2")  # The same in distributed transactions.
FENCE = "fence"
CONSUMED = ("fan.1", "fan.2", DIRECT)
QUEUES = (*FAN, DIRECT, *PAIR, *STEP, *BRANCH, FENCE)
FORMAT = 1  # Of the branches that are decided one by one.
WINDOW = 200  # Unconfirmed messages of a publisher.
FENCE_EVERY = 64  # Acks between two fences.
MOVES_S = 300.0  # How long clients may get nothing done before that is a failure.

Key = tuple[str, str, int]  # Queue, publisher, number.


@dataclass
class Branch:
    """A distributed transaction whose end the coordinator has not seen."""

    taken: Key
    moved: Key
    stage: str  # Its progress: prepare (asked for), prepared (answered), commit, rollback.


@dataclass
class History:
    """The actions of clients and the answers they got."""

    published: set[Key] = field(default_factory=set)
    confirmed: set[Key] = field(default_factory=set)
    delivered: set[Key] = field(default_factory=set)
    acked: set[Key] = field(default_factory=set)  # Sent, perhaps lost.
    settled: set[Key] = field(default_factory=set)  # Known to be durable.
    unanswered: list[list[Key]] = field(default_factory=list)  # Publishes of open transactions.
    steps: list[tuple[Key, Key]] = field(default_factory=list)  # Unanswered: taken, published.
    branches: dict[bytes, Branch] = field(default_factory=dict)  # By global id.
    undone: set[Key] = field(default_factory=set)  # Published and rolled back.
    broken: list[str] = field(default_factory=list)  # The broken laws, as sentences.
    commits: int = 0
    redelivered: int = 0
    deliveries: int = 0

    def violation(self, text: str) -> None:
        """Record a broken law."""
        if len(self.broken) < 100:
            self.broken.append(text)


def body_of(publisher: str, number: int, rng: random.Random) -> bytes:
    """Return a body with its publisher, its number and a checksum."""
    size = rng.choice((0, 10, 100, 1000, 1000, 5000, 200_000 if rng.random() < 0.01 else 0))
    head = f"{publisher}:{number}:".encode() + rng.randbytes(size)
    return head + zlib.crc32(head).to_bytes(4, "big")


def read_body(body: bytes) -> tuple[str, int] | None:
    """Return publisher and number; None when the body was changed."""
    if len(body) < 8 or zlib.crc32(body[:-4]) != int.from_bytes(body[-4:], "big"):
        return None
    publisher, number, _ = body.split(b":", 2)
    return publisher.decode(), int(number)


def ignore_lost_confirms(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Silence confirms that a killed broker did not send."""
    if not isinstance(context.get("exception"), ClientError):
        loop.default_exception_handler(context)


class Session:
    """The deliveries of one consumer, to check their order and their flags."""

    def __init__(self, history: History, queue: str) -> None:
        self.history = history
        self.queue = queue
        self.last: dict[str, int] = defaultdict(int)

    def take(self, delivery: Delivery | Transfer) -> Key | None:
        """Check a delivery; return which message it is."""
        history = self.history
        history.deliveries += 1
        parts = read_body(delivery.body)
        if parts is None:
            history.violation(f"{self.queue}: a body was changed on the way")
            return None
        publisher, number = parts
        key = (self.queue, publisher, number)
        if key not in history.published:
            history.violation(f"{key} was never published")
        if key in history.settled:
            history.violation(f"{key} came back although its ack was durable")
        if number <= self.last[publisher]:
            history.violation(f"{key} came after number {self.last[publisher]}")
        self.last[publisher] = number
        if key in history.delivered and not delivery.redelivered:
            history.violation(f"{key} came again without the flag redelivered")
        history.redelivered += delivery.redelivered
        history.delivered.add(key)
        return key


class Soak:
    """One run."""

    def __init__(self, directory: Path, seed: int, say: Callable[[str], None]) -> None:
        self.random = random.Random(seed)  # Not for secrets.
        self.history = History()
        self.batches = Batches(self.random, self.history.violation)
        self.broker = ChildBroker(directory / "data", "--segment-size", str(1 << 20))
        self.say = say
        self.numbers: dict[str, int] = defaultdict(int)
        self.stopping = False
        self.restart_s_max = 0.0
        self.seen = 0  # Deeds before the last kill.
        self.left: set[Key | None] = set()  # What the queues still held at the end.

    # --- Clients ----------------------------------------------------------------------------

    async def keep(
        self,
        work: Callable[[Connection], "asyncio.Future[None] | object"],
        query: str = "",
    ) -> None:
        """Connect, work until the connection is lost, and so on."""
        while not self.stopping:
            with contextlib.suppress(ClientError, OSError):
                async with connect(self.broker.url + query, reconnect=None) as connection:
                    await work(connection)  # type: ignore[misc]  # A coroutine function.
            await asyncio.sleep(0.01)

    def next_key(self, publisher: str) -> int:
        """Number a publisher's messages."""
        self.numbers[publisher] += 1
        return self.numbers[publisher]

    async def publish(
        self, channel: Channel, publisher: str, queues: tuple[str, ...], exchange: str = ""
    ) -> tuple[list[Key], "asyncio.Future[None]"]:
        """Publish one message and note it."""
        number = self.next_key(publisher)
        keys = [(queue, publisher, number) for queue in queues]
        body = body_of(publisher, number, self.random)
        self.history.published.update(keys)
        key = "" if exchange else queues[0]
        return keys, await channel.publish_soon(Message(body), key, exchange)

    def publisher(
        self, name: str, queues: tuple[str, ...], exchange: str = ""
    ) -> Callable[[Connection], object]:
        """Publish with many unconfirmed messages."""

        async def work(connection: Connection) -> None:
            history = self.history
            async with connection.channel() as channel:
                window: list[tuple[list[Key], asyncio.Future[None]]] = []

                async def settle(most: int) -> None:
                    while len(window) > most:
                        keys, confirmed = window.pop(0)
                        await confirmed
                        history.confirmed.update(keys)

                try:
                    while not self.stopping:
                        window.append(await self.publish(channel, name, queues, exchange))
                        if len(window) > WINDOW:
                            await settle(WINDOW // 2)
                    await settle(0)
                finally:
                    for keys, confirmed in window:
                        if not confirmed.done():
                            confirmed.cancel()
                        elif not confirmed.cancelled() and confirmed.exception() is None:
                            history.confirmed.update(keys)

        return work

    def consumer(self, queue: str) -> Callable[[Connection], object]:
        """Consume and ack; now and then a fence shows which acks are durable."""

        async def work(connection: Connection) -> None:
            history = self.history
            session = Session(history, queue)
            async with (
                connection.channel() as channel,
                connection.channel() as fences,
                channel.consume(queue, prefetch=100) as consumer,
            ):
                waiting: list[Key] = []
                async for delivery in consumer:
                    key = session.take(delivery)
                    if key is None:
                        continue
                    if self.random.random() < 0.05:
                        await asyncio.sleep(0)
                    history.acked.add(key)
                    if await delivery.ack():
                        waiting.append(key)
                    if len(waiting) >= FENCE_EVERY:
                        await fences.publish(Message(b"fence"), FENCE)
                        history.settled.update(waiting)
                        waiting = []
                    if self.stopping:
                        return

        return work

    async def pairs(self, connection: Connection) -> None:
        """Publish to two queues in transactions."""
        history = self.history
        async with connection.channel(confirm=False) as channel:
            while not self.stopping:
                keys: list[Key] = []
                history.unanswered.append(keys)
                async with channel.transaction():
                    for _ in range(self.random.randint(1, 4)):
                        number = self.next_key("pair")
                        for queue in PAIR:
                            body = body_of("pair", number, self.random)
                            keys.append((queue, "pair", number))
                            history.published.add((queue, "pair", number))
                            await channel.publish(Message(body), queue)
                history.unanswered.remove(keys)
                history.confirmed.update(keys)
                history.commits += 1

    async def steps(self, connection: Connection) -> None:
        """Move messages from one queue to the next in transactions."""
        history = self.history
        session = Session(history, STEP[0])
        async with connection.channel(confirm=False) as channel, connection.channel() as feed:
            while not self.stopping:
                keys, confirmed = await self.publish(feed, "step", STEP[:1])
                await confirmed
                history.confirmed.update(keys)
                delivery = await channel.get(STEP[0])
                taken = None if delivery is None else session.take(delivery)
                if delivery is None or taken is None:
                    continue
                moved = (STEP[1], taken[1], taken[2])
                history.published.add(moved)
                history.acked.add(taken)
                history.steps.append((taken, moved))
                async with channel.transaction():
                    await channel.publish(Message(delivery.body), STEP[1])
                    await delivery.ack()
                history.steps.remove((taken, moved))
                history.settled.add(taken)
                history.confirmed.add(moved)
                history.commits += 1

    async def branches(self, connection: Connection) -> None:
        """Move messages in distributed transactions; decide first what was left prepared."""
        async with connection.session() as session:
            await self.resolve(session)
            await session.dtx_select()
            while not self.stopping:
                number = self.next_key("branch")
                key = (BRANCH[0], "branch", number)
                self.history.published.add(key)
                body = body_of("branch", number, self.random)
                await session.transfer(Message(body), BRANCH[0])
                self.history.confirmed.add(key)
                await self.branch(
                    session, Xid(format=FORMAT, global_id=b"%d" % number, branch_id=b"")
                )

    async def branch(self, session: BranchSession, xid: Xid) -> None:
        """Move the oldest message on behalf of a branch, then prepare and decide that."""
        history = self.history
        async with await session.subscribe(BRANCH[0]) as subscription:
            await subscription.flow(messages=1)
            await subscription.flush()
            transfer = subscription.receive_nowait()
            taken = None if transfer is None else Session(history, BRANCH[0]).take(transfer)
            if transfer is None or taken is None:
                return
            moved = (BRANCH[1], taken[1], taken[2])
            history.published.add(moved)
            history.acked.add(taken)
            await session.dtx_start(xid)
            await session.transfer(Message(transfer.body), BRANCH[1])
            await session.accept(transfer)
            await session.dtx_end(xid)
        branch = history.branches[xid.global_id or b""] = Branch(taken, moved, "prepare")
        await session.dtx_prepare(xid)
        branch.stage = "prepared"
        await self.decide(session, xid)

    async def decide(self, session: BranchSession, xid: Xid) -> None:
        """Commit a prepared branch, or roll it back."""
        branch = self.history.branches[xid.global_id or b""]
        commit = self.random.random() < 0.7
        branch.stage = "commit" if commit else "rollback"
        await (session.dtx_commit(xid) if commit else session.dtx_rollback(xid))
        self.over(xid.global_id or b"", commit)

    def over(self, name: bytes, commit: bool) -> None:
        """The outcome of a branch is known to be durable."""
        history = self.history
        branch = history.branches.pop(name)
        if commit:
            history.settled.add(branch.taken)
            history.confirmed.add(branch.moved)
            history.undone.discard(branch.moved)
            history.commits += 1
        else:
            history.undone.add(branch.moved)

    async def resolve(self, session: BranchSession) -> None:
        """After a restart, compare the prepared branches with earlier answers, and decide them."""
        history = self.history
        xids = await session.dtx_recover()
        # Those of staged batches are the matter of :mod:`headrace.testing.soak_batches`.
        prepared = {xid.global_id or b"": xid for xid in xids if xid.format == FORMAT}
        for name in prepared.keys() - history.branches.keys():
            history.violation(f"branch {name!r} is over, and there again")
        for name, branch in list(history.branches.items()):
            if name in prepared:
                await self.decide(session, prepared[name])
            else:
                if branch.stage == "prepared":
                    history.violation(f"prepared branch {name!r} is lost")
                self.over(name, branch.stage == "commit")

    # --- The run ----------------------------------------------------------------------------

    async def declare(self) -> None:
        """Make exchange and queues."""
        async with connect(self.broker.url) as connection, connection.channel() as channel:
            await channel.declare_exchange("fan", "fanout", durable=True)
            for queue in QUEUES:
                await channel.declare_queue(queue, durable=True)
            for queue in FAN:
                await channel.bind_queue(queue, "fan")
            await self.batches.declare(connection)

    async def run(self, kills: int, progress: Callable[[], None]) -> None:
        """Work, kill, start, and so on; then drain all queues and judge."""
        asyncio.get_running_loop().set_exception_handler(ignore_lost_confirms)
        await asyncio.to_thread(self.broker.start)
        await self.declare()
        workers = [
            self.keep(self.publisher("fan", FAN, "fan")),
            self.keep(self.publisher("direct", (DIRECT,))),
            self.keep(self.pairs),
            self.keep(self.steps),
            self.keep(self.branches, "?version=0-10"),
            self.keep(self.batches.write),
            *(self.keep(self.consumer(queue)) for queue in CONSUMED),
        ]
        tasks = [asyncio.create_task(work) for work in workers]
        try:
            for _ in range(kills):
                self.seen = self.deeds()
                await self.until(tasks, lambda: self.deeds() > self.seen)
                await asyncio.sleep(self.random.uniform(0.05, 0.8))
                await asyncio.to_thread(self.broker.kill)
                started = time.monotonic()
                await asyncio.to_thread(self.broker.start)
                self.restart_s_max = max(self.restart_s_max, time.monotonic() - started)
                progress()
            await self.until(tasks, self.did_all)
        finally:
            self.stopping = self.batches.stopping = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self.broker.kill)
        await asyncio.to_thread(self.broker.start)
        async with (
            connect(self.broker.url + "?version=0-10", reconnect=None) as connection,
            connection.session() as session,
        ):
            await self.resolve(session)
        self.say("draining")
        for queue in QUEUES:
            await self.drain(queue)
        async with connect(self.broker.url, reconnect=None) as connection:
            await self.batches.judge(connection)
        self.judge()
        await asyncio.to_thread(self.broker.stop)

    def deeds(self) -> int:
        """Return the amount of work done: it grows while the broker serves its clients."""
        return len(self.history.confirmed) + self.history.deliveries

    def did_all(self) -> bool:
        """Return True if there is work of each kind to judge, however slow the machine is."""
        return bool(self.history.settled and self.history.commits) and self.batches.last >= 0

    async def until(self, tasks: list[asyncio.Task[None]], happened: Callable[[], bool]) -> None:
        """Run the clients until an event; an error of a client ends the run."""
        async with asyncio.timeout(MOVES_S):
            while not happened():
                for task in tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)

    async def drain(self, queue: str) -> None:
        """Take all that a queue still holds."""
        async with connect(self.broker.url, reconnect=None) as connection:
            session = Session(self.history, queue)
            async with connection.channel() as channel:
                while (delivery := await channel.get(queue)) is not None:
                    if queue != FENCE:
                        self.left.add(session.take(delivery))
                    await delivery.ack()

    def judge(self) -> None:
        """Apply the laws that need the whole history."""
        history = self.history
        delivered = history.delivered
        for key in history.confirmed - delivered - history.settled:
            history.violation(f"{key} was confirmed and is lost")
        for key in history.undone & delivered:
            history.violation(f"{key} was rolled back and is there")
        for keys in history.unanswered:
            seen = {key in delivered for key in keys}
            if len(seen) > 1:
                history.violation(f"of the transaction {keys} only a part happened")
        for taken, moved in history.steps:
            if moved in delivered and taken in self.left:
                history.violation(f"{moved} is there and {taken} was not taken")
            if moved not in delivered and taken not in self.left:
                history.violation(f"{taken} was taken and {moved} is missing")

    def report(self) -> str:
        """Say what was done, in one line."""
        history = self.history
        return (
            f"{len(history.published)} messages published, {len(history.confirmed)} confirmed, "
            f"{history.commits} transactions and {self.batches.last + 1} batches committed, "
            f"{history.deliveries} deliveries "
            f"({history.redelivered} redelivered), {len(history.settled)} acks known durable, "
            f"slowest restart {self.restart_s_max:.2f} s, {len(history.broken)} violations"
        )
