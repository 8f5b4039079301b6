# SPDX-License-Identifier: Apache-2.0
"""``headrace soak``: kill a broker under load again and again, and check its guarantees.

Publishers, consumers and transactions use a broker in a separate process. The process gets SIGKILL
at random moments and is started again on the same data. The history records the actions of the
clients and the answers to them. It must satisfy these laws:

1. A confirmed message is delivered at least once, unless it was settled. The same holds for the
   messages of a transaction whose commit was answered.
2. A message whose ack is known to be durable is not delivered again. An ack is known to be durable
   if a message published after it on the same connection was confirmed, or if its transaction was
   committed.
3. A consumer gets the messages of a publisher in the order in which they were published.
4. A message that was delivered before has the flag ``redelivered``.
5. A transaction whose commit was not answered has all its effects, or none.
6. Each delivered message was published, and its body is unchanged.
7. A prepared distributed transaction survives until it is decided. Laws 1 and 2 hold for its
   messages and acks if it was committed. It has no effect if it was rolled back.
8. The messages of a staged batch whose commit was answered exist once, in a queue and in a stream.
   A batch whose commit was not answered exists once or not at all. The number of the last batch
   that the broker reports does not decrease.
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
from headrace.client.session.session import Session
from headrace.client.session.subscription import Transfer
from headrace.protocol.codec_0_10 import Xid
from headrace.testing.broker import ChildBroker
from headrace.testing.soak_batches import Batches

FANOUT_QUEUES = ("fan.1", "fan.2", "fan.cold")  # Of a fanout exchange; the last has no consumer.
DIRECT_QUEUE = "direct"
PAIR_QUEUES = ("pair.1", "pair.2")  # A transaction publishes to both.
MOVE_QUEUES = ("step.1", "step.2")  # A transaction moves a message from the first to the second.
BRANCH_QUEUES = ("branch.1", "branch.2")  # A distributed transaction does so.
FENCE_QUEUE = "fence"
CONSUMED_QUEUES = ("fan.1", "fan.2", DIRECT_QUEUE)
QUEUES = (
    *(*FANOUT_QUEUES, DIRECT_QUEUE, *PAIR_QUEUES),
    *(*MOVE_QUEUES, *BRANCH_QUEUES, FENCE_QUEUE),
)
XID_FORMAT = 1  # The format of the distributed transactions of this module.
UNCONFIRMED_MAX = 200  # Unconfirmed messages of a publisher.
ACKS_PER_FENCE = 64
PROGRESS_TIMEOUT_S = 300.0  # The soak fails if no client makes progress for so long.

Key = tuple[str, str, int]  # Queue, publisher, number.


@dataclass
class Branch:
    """A distributed transaction whose outcome the broker has not confirmed."""

    source: Key  # The message that it settles.
    target: Key  # The message that it publishes.
    stage: str  # The last request: prepare, prepared (when answered), commit, or rollback.


@dataclass
class History:
    """The actions of the clients, and the broker's answers."""

    published: set[Key] = field(default_factory=set)
    confirmed: set[Key] = field(default_factory=set)
    delivered: set[Key] = field(default_factory=set)
    acked: set[Key] = field(default_factory=set)  # The ack was sent; the broker may not have it.
    settled: set[Key] = field(default_factory=set)  # The ack is known to be durable.
    # The messages of each transaction whose commit is not answered.
    open_transactions: list[list[Key]] = field(default_factory=list)
    # The settled and the published message of each move whose commit is not answered.
    open_moves: list[tuple[Key, Key]] = field(default_factory=list)
    branches: dict[bytes, Branch] = field(default_factory=dict)  # By global transaction id.
    rolled_back: set[Key] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)  # A sentence for each violation of a law.
    commits: int = 0
    redelivered: int = 0
    deliveries: int = 0

    def violation(self, text: str) -> None:
        """Record the violation of a law; only the first 100 are kept."""
        if len(self.broken) < 100:
            self.broken.append(text)


def make_body(publisher: str, number: int, rng: random.Random) -> bytes:
    """Return a body of random size with its publisher, its number and a checksum."""
    size = rng.choice((0, 10, 100, 1000, 1000, 5000, 200_000 if rng.random() < 0.01 else 0))
    head = f"{publisher}:{number}:".encode() + rng.randbytes(size)
    return head + zlib.crc32(head).to_bytes(4, "big")


def read_body(body: bytes) -> tuple[str, int] | None:
    """Return publisher and number of a body; None if its checksum is wrong."""
    if len(body) < 8 or zlib.crc32(body[:-4]) != int.from_bytes(body[-4:], "big"):
        return None
    publisher, number, _ = body.split(b":", 2)
    return publisher.decode(), int(number)


def ignore_lost_confirms(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Ignore unretrieved errors of confirms that a killed broker did not send."""
    if not isinstance(context.get("exception"), ClientError):
        loop.default_exception_handler(context)


class DeliveryCheck:
    """Checks the order and the flags of a consumer's deliveries from a queue."""

    def __init__(self, history: History, queue: str) -> None:
        self.history = history
        self.queue = queue
        self.last: dict[str, int] = defaultdict(int)

    def take(self, delivery: Delivery | Transfer) -> Key | None:
        """Check and record a delivery; return its message's key, or None if it is damaged."""
        history = self.history
        history.deliveries += 1
        parts = read_body(delivery.body)
        if parts is None:
            history.violation(f"{self.queue}: a delivered body has a wrong checksum")
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
    """A run of the soak: its broker, its clients and their history. `say` reports progress."""

    def __init__(self, directory: Path, seed: int, say: Callable[[str], None]) -> None:
        self.random = random.Random(seed)
        self.history = History()
        self.batches = Batches(self.random, self.history.violation)
        self.broker = ChildBroker(directory / "data", "--segment-size", str(1 << 20))
        self.say = say
        self.numbers: dict[str, int] = defaultdict(int)
        self.stopping = False
        self.restart_s_max = 0.0
        self.progress_at_kill = 0  # The value of `progress` after the last kill.
        self.remaining: set[Key | None] = set()  # Messages in the queues at the end of the run.

    # --- Clients ----------------------------------------------------------------------------

    async def keep_connected(
        self,
        work: Callable[[Connection], "asyncio.Future[None] | object"],
        query: str = "",
    ) -> None:
        """Connect and run a client's work, again after each loss of the connection."""
        while not self.stopping:
            with contextlib.suppress(ClientError, OSError):
                async with connect(self.broker.url + query, reconnect=None) as connection:
                    await work(connection)  # type: ignore[misc]  # A coroutine function.
            await asyncio.sleep(0.01)

    def next_number(self, publisher: str) -> int:
        """Return the number of a publisher's next message, from 1."""
        self.numbers[publisher] += 1
        return self.numbers[publisher]

    async def publish(
        self, channel: Channel, publisher: str, queues: tuple[str, ...], exchange: str = ""
    ) -> tuple[list[Key], "asyncio.Future[None]"]:
        """Publish a message and record it; return its key in each queue and its confirm."""
        number = self.next_number(publisher)
        keys = [(queue, publisher, number) for queue in queues]
        body = make_body(publisher, number, self.random)
        self.history.published.update(keys)
        key = "" if exchange else queues[0]
        return keys, await channel.publish_soon(Message(body), key, exchange)

    def publisher(
        self, name: str, queues: tuple[str, ...], exchange: str = ""
    ) -> Callable[[Connection], object]:
        """Return the work of a publisher with up to `UNCONFIRMED_MAX` unconfirmed messages."""

        async def work(connection: Connection) -> None:
            history = self.history
            async with connection.channel() as channel:
                unconfirmed: list[tuple[list[Key], asyncio.Future[None]]] = []

                async def wait_for_confirms(maximum: int) -> None:
                    while len(unconfirmed) > maximum:
                        keys, confirmed = unconfirmed.pop(0)
                        await confirmed
                        history.confirmed.update(keys)

                try:
                    while not self.stopping:
                        unconfirmed.append(await self.publish(channel, name, queues, exchange))
                        if len(unconfirmed) > UNCONFIRMED_MAX:
                            await wait_for_confirms(UNCONFIRMED_MAX // 2)
                    await wait_for_confirms(0)
                finally:
                    for keys, confirmed in unconfirmed:
                        if not confirmed.done():
                            confirmed.cancel()
                        elif not confirmed.cancelled() and confirmed.exception() is None:
                            history.confirmed.update(keys)

        return work

    def consumer(self, queue: str) -> Callable[[Connection], object]:
        """Return the work of a consumer that acks each message.

        The confirm of a message to the fence queue shows that the acks before it are durable.
        """

        async def work(connection: Connection) -> None:
            history = self.history
            check = DeliveryCheck(history, queue)
            async with (
                connection.channel() as channel,
                connection.channel() as fences,
                channel.consume(queue, prefetch=100) as consumer,
            ):
                acked: list[Key] = []  # Acks that are not known to be durable.
                async for delivery in consumer:
                    key = check.take(delivery)
                    if key is None:
                        continue
                    if self.random.random() < 0.05:
                        await asyncio.sleep(0)
                    history.acked.add(key)
                    if await delivery.ack():
                        acked.append(key)
                    if len(acked) >= ACKS_PER_FENCE:
                        await fences.publish(Message(b"fence"), FENCE_QUEUE)
                        history.settled.update(acked)
                        acked = []
                    if self.stopping:
                        return

        return work

    async def publish_pairs(self, connection: Connection) -> None:
        """Publish to two queues in transactions."""
        history = self.history
        async with connection.channel(confirm=False) as channel:
            while not self.stopping:
                keys: list[Key] = []
                history.open_transactions.append(keys)
                async with channel.transaction():
                    for _ in range(self.random.randint(1, 4)):
                        number = self.next_number("pair")
                        for queue in PAIR_QUEUES:
                            body = make_body("pair", number, self.random)
                            keys.append((queue, "pair", number))
                            history.published.add((queue, "pair", number))
                            await channel.publish(Message(body), queue)
                history.open_transactions.remove(keys)
                history.confirmed.update(keys)
                history.commits += 1

    async def move_messages(self, connection: Connection) -> None:
        """Move messages from one queue to the next in transactions."""
        history = self.history
        check = DeliveryCheck(history, MOVE_QUEUES[0])
        async with connection.channel(confirm=False) as channel, connection.channel() as feed:
            while not self.stopping:
                keys, confirmed = await self.publish(feed, "step", MOVE_QUEUES[:1])
                await confirmed
                history.confirmed.update(keys)
                delivery = await channel.get(MOVE_QUEUES[0])
                taken = None if delivery is None else check.take(delivery)
                if delivery is None or taken is None:
                    continue
                moved = (MOVE_QUEUES[1], taken[1], taken[2])
                history.published.add(moved)
                history.acked.add(taken)
                history.open_moves.append((taken, moved))
                async with channel.transaction():
                    await channel.publish(Message(delivery.body), MOVE_QUEUES[1])
                    await delivery.ack()
                history.open_moves.remove((taken, moved))
                history.settled.add(taken)
                history.confirmed.add(moved)
                history.commits += 1

    async def move_in_branches(self, connection: Connection) -> None:
        """Decide the prepared distributed transactions, then move messages in new ones."""
        async with connection.session() as session:
            await self.resolve(session)
            await session.dtx_select()
            while not self.stopping:
                number = self.next_number("branch")
                key = (BRANCH_QUEUES[0], "branch", number)
                self.history.published.add(key)
                body = make_body("branch", number, self.random)
                await session.transfer(Message(body), BRANCH_QUEUES[0])
                self.history.confirmed.add(key)
                await self.move_in_branch(
                    session, Xid(format=XID_FORMAT, global_id=b"%d" % number, branch_id=b"")
                )

    async def move_in_branch(self, session: Session, xid: Xid) -> None:
        """Move the oldest message in a distributed transaction; prepare and decide it."""
        history = self.history
        async with await session.subscribe(BRANCH_QUEUES[0]) as subscription:
            await subscription.flow(messages=1)
            await subscription.flush()
            transfer = subscription.receive_nowait()
            taken = (
                None
                if transfer is None
                else DeliveryCheck(history, BRANCH_QUEUES[0]).take(transfer)
            )
            if transfer is None or taken is None:
                return
            moved = (BRANCH_QUEUES[1], taken[1], taken[2])
            history.published.add(moved)
            history.acked.add(taken)
            await session.dtx_start(xid)
            await session.transfer(Message(transfer.body), BRANCH_QUEUES[1])
            await session.accept(transfer)
            await session.dtx_end(xid)
        branch = history.branches[xid.global_id or b""] = Branch(taken, moved, "prepare")
        await session.dtx_prepare(xid)
        branch.stage = "prepared"
        await self.decide(session, xid)

    async def decide(self, session: Session, xid: Xid) -> None:
        """Commit a prepared branch, or roll it back."""
        branch = self.history.branches[xid.global_id or b""]
        commit = self.random.random() < 0.7
        branch.stage = "commit" if commit else "rollback"
        await (session.dtx_commit(xid) if commit else session.dtx_rollback(xid))
        self.record_outcome(xid.global_id or b"", commit)

    def record_outcome(self, name: bytes, commit: bool) -> None:
        """Record the outcome of a distributed transaction, which is known to be durable."""
        history = self.history
        branch = history.branches.pop(name)
        if commit:
            history.settled.add(branch.source)
            history.confirmed.add(branch.target)
            history.rolled_back.discard(branch.target)
            history.commits += 1
        else:
            history.rolled_back.add(branch.target)

    async def resolve(self, session: Session) -> None:
        """Decide the prepared transactions of the broker; check that none is missing or extra."""
        history = self.history
        xids = await session.dtx_recover()
        # :mod:`headrace.testing.soak_batches` checks the transactions of staged batches.
        prepared = {xid.global_id or b"": xid for xid in xids if xid.format == XID_FORMAT}
        for name in prepared.keys() - history.branches.keys():
            history.violation(f"branch {name!r} is prepared again after its outcome")
        for name, branch in list(history.branches.items()):
            if name in prepared:
                await self.decide(session, prepared[name])
            else:
                if branch.stage == "prepared":
                    history.violation(f"prepared branch {name!r} is lost")
                self.record_outcome(name, branch.stage == "commit")

    # --- The run ----------------------------------------------------------------------------

    async def declare(self) -> None:
        """Declare the exchange, the queues and the bindings."""
        async with connect(self.broker.url) as connection, connection.channel() as channel:
            await channel.declare_exchange("fan", "fanout", durable=True)
            for queue in QUEUES:
                await channel.declare_queue(queue, durable=True)
            for queue in FANOUT_QUEUES:
                await channel.bind_queue(queue, "fan")
            await self.batches.declare(connection)

    async def run(self, kills: int, on_restart: Callable[[], None]) -> None:
        """Kill and restart the broker under load; then drain the queues and check the history.

        `on_restart` is called after each kill and restart.
        """
        asyncio.get_running_loop().set_exception_handler(ignore_lost_confirms)
        await asyncio.to_thread(self.broker.start)
        await self.declare()
        workers = [
            self.keep_connected(self.publisher("fan", FANOUT_QUEUES, "fan")),
            self.keep_connected(self.publisher("direct", (DIRECT_QUEUE,))),
            self.keep_connected(self.publish_pairs),
            self.keep_connected(self.move_messages),
            self.keep_connected(self.move_in_branches, "?version=0-10"),
            self.keep_connected(self.batches.write),
            *(self.keep_connected(self.consumer(queue)) for queue in CONSUMED_QUEUES),
        ]
        tasks = [asyncio.create_task(work) for work in workers]
        try:
            for _ in range(kills):
                self.progress_at_kill = self.progress()
                await self.wait_until(tasks, lambda: self.progress() > self.progress_at_kill)
                await asyncio.sleep(self.random.uniform(0.05, 0.8))
                await asyncio.to_thread(self.broker.kill)
                started = time.monotonic()
                await asyncio.to_thread(self.broker.start)
                self.restart_s_max = max(self.restart_s_max, time.monotonic() - started)
                on_restart()
            await self.wait_until(tasks, self.has_all_kinds)
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

    def progress(self) -> int:
        """Return the number of confirms and deliveries."""
        return len(self.history.confirmed) + self.history.deliveries

    def has_all_kinds(self) -> bool:
        """Return True if the history has durable acks, transactions and a batch to check."""
        return bool(self.history.settled and self.history.commits) and self.batches.last >= 0

    async def wait_until(
        self, tasks: list[asyncio.Task[None]], condition: Callable[[], bool]
    ) -> None:
        """Wait until a condition holds; raise the error of a client that fails meanwhile.

        Raises:
            TimeoutError: `PROGRESS_TIMEOUT_S` passed.
        """
        async with asyncio.timeout(PROGRESS_TIMEOUT_S):
            while not condition():
                for task in tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)

    async def drain(self, queue: str) -> None:
        """Take and record all messages of a queue."""
        async with connect(self.broker.url, reconnect=None) as connection:
            check = DeliveryCheck(self.history, queue)
            async with connection.channel() as channel:
                while (delivery := await channel.get(queue)) is not None:
                    if queue != FENCE_QUEUE:
                        self.remaining.add(check.take(delivery))
                    await delivery.ack()

    def judge(self) -> None:
        """Check the laws that concern the complete history."""
        history = self.history
        delivered = history.delivered
        for key in history.confirmed - delivered - history.settled:
            history.violation(f"{key} was confirmed and is lost")
        for key in history.rolled_back & delivered:
            history.violation(f"{key} was rolled back and is delivered")
        for keys in history.open_transactions:
            if len({key in delivered for key in keys}) > 1:
                history.violation(f"only a part of the transaction {keys} was committed")
        for taken, moved in history.open_moves:
            if moved in delivered and taken in self.remaining:
                history.violation(f"{moved} was published and {taken} was not taken")
            if moved not in delivered and taken not in self.remaining:
                history.violation(f"{taken} was taken and {moved} is missing")

    def report(self) -> str:
        """Return the counts of the run in one line."""
        history = self.history
        return (
            f"{len(history.published)} messages published, {len(history.confirmed)} confirmed, "
            f"{history.commits} transactions and {self.batches.last + 1} batches committed, "
            f"{history.deliveries} deliveries "
            f"({history.redelivered} redelivered), {len(history.settled)} acks known durable, "
            f"slowest restart {self.restart_s_max:.2f} s, {len(history.broken)} violations"
        )
