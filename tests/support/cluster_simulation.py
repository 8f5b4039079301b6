# SPDX-License-Identifier: Apache-2.0
"""Brokers of a cluster without processes, whose clocks run at different rates, from a seed.

The nodes are those of the product; what they use is simulated: the engine's rows, the way to it,
the virtual hosts. In each step of time, brokers are run in any order. One may stand still, with an
answer of the engine that it has not read; it may be cut off from the engine; and the engine may be
away for all.

Each turn of a broker delivers in what it serves. Laws:

1. No delivery of an epoch comes after the first one of a later epoch, but those of the step in
   which a broker goes on that stood still.
2. An engine that is away for all moves nothing.
3. No broker reports a loss, since the engine loses nothing.
4. When the faults are over, each virtual host is served by one broker, and not frozen.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from headrace.model.events import Events
from headrace.server.cluster import node as node_module
from headrace.server.cluster.heartbeat import BEAT_S, MARGIN
from headrace.server.cluster.membership import Joined
from headrace.server.cluster.node import ClusterNode
from headrace.store.ledger.members import RUNNING, BrokerRow, ClusterRows, LedgerRow, SilentBroker
from headrace.store.ledger.port import Fenced, OtherHistory
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_members import Members
from headrace.store.ledger.postgres_session import Address

LEASE_S = 6.0
STEP_S = 0.05
TICK_S = 0.25
ANSWER_S = 10.0  # After so long a heartbeat has failed.
THREAD_S = 1.0  # A thread of a node takes so long at most.
RATES = 0.05  # How far the rate of a clock is off.
VHOSTS = {"/": 1, "/two": 2, "/three": 3}
SETTLED_S = 4 * LEASE_S  # Without faults, in the end.


class Engine:
    """The rows of brokers and ledgers."""

    def __init__(self) -> None:
        self.brokers: dict[str, BrokerRow] = {}
        self.ledgers: dict[str, LedgerRow] = {}
        self.takes = 0

    def beat(self, name: str, state: str, lease_s: float) -> ClusterRows:
        seen = self.brokers[name].seen + 1 if name in self.brokers else 0
        self.brokers[name] = BrokerRow(name, seen, name, 5672, state, lease_s)
        return ClusterRows(list(self.brokers.values()), list(self.ledgers.values()), "")

    def take(self, name: str, owner: str, rival: str, silent: SilentBroker | None) -> LedgerRow:
        row = self.ledgers.get(name, LedgerRow(name, "", "", 0, 0, 1, ""))
        if row.owner_token != rival:
            raise Fenced(f"ledger {name!r}: another broker was first")
        if silent is not None and self.brokers[silent.broker].seen != silent.seen:
            raise Fenced(f"ledger {name!r}: its owner is back")
        self.takes += 1
        row = row._replace(
            owner=owner, owner_token=f"epoch {self.takes}", epoch=row.epoch + 1, preferred_owner=""
        )
        self.ledgers[name] = row
        return row


class TakenLedger(PostgresLedger):
    """A ledger that was taken; it has no connection."""

    def interrupt(self) -> None:
        """No thread waits."""


@dataclass(eq=False)
class Host:
    """A virtual host that a broker serves."""

    epoch: int
    is_frozen: bool = False


class Frost:
    """Freezes virtual hosts."""

    def __init__(self) -> None:
        self.vhosts: set[Host] = set()

    def freeze(self, vhost: Host) -> None:
        self.vhosts.add(vhost)
        vhost.is_frozen = True

    def thaw(self, vhost: Host) -> None:
        self.vhosts.discard(vhost)
        vhost.is_frozen = False

    def drop(self, vhost: Host) -> None:
        self.vhosts.discard(vhost)


@dataclass
class Broker:
    """One broker: its node, its clock, and the way to the engine."""

    simulation: Simulation
    name: str
    rate: float
    leased_s: float  # Its setting.
    node: ClusterNode = field(init=False)
    stands_until: float = 0.0
    cut_until: float = 0.0
    goes_on: bool = False  # In this step, after it stood still.
    ticks_at: float = 0.0
    beats_at: float = 0.0
    # The heartbeat that is on its way: when it was sent, when its answer is here, and that.
    sent_s: float | None = None
    answer: tuple[float, ClusterRows | None] = (0.0, None)
    # What waits in threads of the node, and until when.
    threads: list[tuple[float, asyncio.Future[None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        cluster = Cluster(Address("postgresql://broker@nowhere/headrace"))
        members = Members(cluster, self.name, self.name, 5672, self.leased_s)
        node = self.node = ClusterNode(Joined(cluster, members), str, Events())
        node.pool.shutdown()
        node.loop = cast("asyncio.AbstractEventLoop", self)
        node.heartbeat = cast("Any", self)
        node.copies = cast("Any", self)
        node.hosts = cast("Any", self)
        node.freezer = cast("Any", Frost())
        node.vhost_numbers = VHOSTS.copy
        # Of a heartbeat,
        self.state = RUNNING
        self.lease_s = self.leased_s * (1 - self.simulation.margin)
        # of copies,
        self.broken: dict[str, Exception] = {}
        # and of virtual hosts.
        self.vhosts: dict[str, Host] = {}

    # --- What a node uses ---------------------------------------------------------------------

    def time(self) -> float:
        return self.simulation.now_s * self.rate

    def create_task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    def call_soon_threadsafe(self, call: Callable[..., object], *values: object) -> None:
        call(*values)

    async def run_in_executor(self, _: object, work: Callable[..., Any], *values: object) -> Any:
        await self.thread()
        done = work(*values)
        await self.thread()
        return done

    async def thread(self) -> None:
        """Wait as long as a thread may take."""
        if self.simulation.random.random() < 0.5:
            waits: asyncio.Future[None] = self.create_future()
            until_s = self.simulation.now_s + self.simulation.random.uniform(0, THREAD_S)
            self.threads.append((until_s, waits))
            await waits

    def beat_now(self) -> None:
        self.beats_at = 0.0

    def do(self, work: Callable[[Any], None]) -> None:
        """Run what a node wants of the engine."""
        with contextlib.suppress(OSError):
            work(self)

    def release(self, name: str, taken: str) -> None:
        self.check_way()
        row = self.simulation.engine.ledgers[name]
        if row.owner_token == taken:
            self.simulation.engine.ledgers[name] = row._replace(owner="")

    def follow(self, rows: object, existing: object) -> None:
        """Follow no copies: they do not matter here."""

    def lags(self) -> dict[str, int]:
        """Return no lags, since there are no copies."""
        return {}

    def take(self, name: str, rival: str, silent: SilentBroker | None) -> Any:
        self.check_way()
        row = self.simulation.engine.take(name, self.name, rival, silent)
        ledger = TakenLedger(self.node.cluster, name, self.name)
        ledger.epoch, ledger.owner_token = row.epoch, row.owner_token
        return SimpleNamespace(
            ledger=ledger,
            lost=None,
            applied=SimpleNamespace(number=row.last),
            mark=lambda: None,
            other_history_error=self.other_history_error,
        )

    def other_history_error(self, how: str) -> OtherHistory:
        """Note that a broker reports a loss."""
        self.simulation.broken.append(f"{self.name} says that a ledger {how}")
        return OtherHistory(how)

    def add(self, vhost: str, number: int, disk: Any) -> None:
        self.vhosts[vhost] = Host(disk.ledger.epoch)

    def leave(self, vhost: str, reason: str) -> None:
        del self.vhosts[vhost]

    async def hand_over(self, vhost: str, reason: str) -> None:
        del self.vhosts[vhost]

    # --- Steps --------------------------------------------------------------------------------

    def reaches(self) -> bool:
        """Return True if the engine answers this broker."""
        return self.simulation.now_s >= max(self.cut_until, self.simulation.away_until)

    def check_way(self) -> None:
        """Raise OSError if the engine does not answer this broker."""
        if not self.reaches():
            raise OSError("the engine does not answer")

    def step(self) -> None:
        """Run one turn: what is due, in any order."""
        if self.simulation.now_s < self.stands_until:
            self.goes_on = True
            return
        self.simulation.turn = self
        for waits in [one for one in self.threads if one[0] <= self.simulation.now_s]:
            self.threads.remove(waits)
            waits[1].set_result(None)
        for work in self.simulation.random.sample([self.beat, self.tick, self.deliver], 3):
            work()
        self.goes_on = False

    def beat(self) -> None:
        """Send a heartbeat, or take the answer of one; the thread waits for each."""
        now_s = self.simulation.now_s
        if self.sent_s is None:
            if now_s < self.beats_at:
                return
            self.sent_s = self.time()
            self.beats_at = now_s + BEAT_S
            self.answer = now_s + ANSWER_S, None
            if self.reaches():
                delay_s = self.simulation.random.choice((0.0, 0.0, 0.1, 0.4))
                found = self.simulation.engine.beat(self.name, self.state, self.leased_s)
                self.answer = now_s + delay_s, found
            return
        due_s, rows = self.answer
        if now_s < due_s or (rows is not None and not self.reaches()):
            return
        sent_s, self.sent_s = self.sent_s, None
        if rows is None:
            self.node.on_failure(TimeoutError("no answer"))
        else:
            self.node.on_rows(rows, sent_s)

    def tick(self) -> None:
        if self.simulation.now_s >= self.ticks_at:
            self.ticks_at = self.simulation.now_s + TICK_S
            self.node.tick()

    def deliver(self) -> None:
        for vhost, host in self.vhosts.items():
            if not host.is_frozen:
                self.simulation.delivered(self, vhost, host.epoch)


@dataclass
class Simulation:
    """Some brokers and an engine, from a seed."""

    seed: int
    margin: float = MARGIN
    leases: tuple[float, ...] = (LEASE_S,) * 3  # Of the brokers, which each seed deals anew.
    now_s: float = 0.0
    away_until: float = 0.0
    engine: Engine = field(default_factory=Engine)
    newest: dict[str, int] = field(default_factory=dict)  # Epochs that delivered.
    broken: list[str] = field(default_factory=list)
    late: int = 0  # Deliveries of an earlier epoch that are allowed.

    turn: Broker = field(init=False)  # The one that runs.

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.brokers = [
            Broker(self, name, 1 + self.random.uniform(-RATES, RATES), lease_s)
            for name, lease_s in zip(("a", "b", "c"), self.dealt(), strict=True)
        ]

    def dealt(self) -> tuple[float, ...]:
        """Return the leases, from another one on for each seed."""
        first = self.seed % len(self.leases)
        return self.leases[first:] + self.leases[:first]

    def delivered(self, broker: Broker, vhost: str, epoch: int) -> None:
        newest = self.newest[vhost] = max(epoch, self.newest.get(vhost, 0))
        if epoch == newest:
            return
        if broker.goes_on:
            self.late += 1
            return
        self.broken.append(
            f"{self.now_s:.2f} s: {broker.name} delivered in {vhost!r} in epoch {epoch}, "
            f"after deliveries of epoch {newest}"
        )

    @contextlib.contextmanager
    def in_charge(self) -> Iterator[None]:
        """Let nodes have the clock of the broker that runs; an error in a task is a violation."""

        def note(*told: object) -> None:
            self.broken.append(f"{self.now_s:.2f} s: {told}, {sys.exception()!r}")

        with (
            mock.patch.object(node_module, "boot_s", self.clock),
            mock.patch.object(node_module.log, "exception", note),
        ):
            yield

    def clock(self) -> float:
        """Return the time of the broker that runs."""
        return self.turn.time()

    async def steps(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds / STEP_S)):
            self.now_s += STEP_S
            for broker in self.random.sample(self.brokers, len(self.brokers)):
                broker.step()
                await asyncio.sleep(0)  # Tasks of its node go on.
                await asyncio.sleep(0)

    def trouble(self) -> None:
        """Let something go wrong, for a time that may be longer than a lease."""
        until = self.now_s + self.random.uniform(0.2, 2 * LEASE_S)
        broker = self.random.choice(self.brokers)
        kind = self.random.choice(("stand", "stand", "cut", "cut", "away", "move"))
        if kind == "stand":
            broker.stands_until = until
        elif kind == "cut":
            broker.cut_until = until
        elif kind == "move":
            name = self.random.choice(list(self.engine.ledgers))
            self.engine.ledgers[name] = self.engine.ledgers[name]._replace(
                preferred_owner=broker.name
            )
        else:
            self.away_until = until

    async def history(self, troubles: int) -> None:
        """Run to the end; what is broken is in ``broken``."""
        await self.steps(LEASE_S)
        for _ in range(troubles):
            self.trouble()
            await self.steps(self.random.uniform(0.1, 1.5 * LEASE_S))
        await self.steps(max(self.away_until - self.now_s, 0) + SETTLED_S)
        for vhost in VHOSTS:
            serving = [broker for broker in self.brokers if vhost in broker.vhosts]
            if len(serving) != 1 or serving[0].vhosts[vhost].is_frozen:
                names = [broker.name for broker in serving]
                self.broken.append(f"in the end {vhost!r} is served by {names}")


def run(simulation: Callable[[], Simulation], troubles: int) -> Simulation:
    """Run a history of so many troubles."""

    async def play() -> Simulation:
        made = simulation()
        with made.in_charge():
            await made.history(troubles)
        return made

    return asyncio.run(play())
