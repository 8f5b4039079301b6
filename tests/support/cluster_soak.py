# SPDX-License-Identifier: Apache-2.0
"""Brokers and databases of a cluster under faults, one after the other, and the judge's word.

Each broker comes to the database through proxies of its own, so that it can be cut off or slowed
down. A database that is lost is followed by its standby, and a new standby takes its place.

Where this process may make network namespaces, each broker has one, and so has the face of each
database: between any two of them packets can be lost, in one direction or in both. And a broker has
a small disk then, and a clock of the day that jumps.

In the end brokers stop, and the ledger is read: its entries have no gap and follow one another, and
replayed they are the files of its last owner, byte by byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from support.brokers.broker_process import Served, until
from support.client_history import Reading
from support.cluster import operator, owners
from support.cluster_clients import Clients
from support.ledger_dump import differences
from support.networks import Networks, Place, jump, with_jumping_clock
from support.postgres import ROLE, WAITING, Proxy, Server, Servers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

MOVES_S = 120.0  # How long clients may get nothing done before that is a failure.
LEASE_S = 6.0
STALL_S = 3.0
SLOW_S, DELAY_S = 4.0, 0.2
FULL_S = 4.0
DAY_S = 86_400
CANCELS = 50
NAMES = "abcdefgh"
BROKER_DISK = "2g"
LOST = "the database of the cluster lacks what was confirmed"


class Soak:
    """One run of many rounds."""

    def __init__(
        self,
        home: Path,
        database: Servers,
        *,
        seed: int,
        brokers: int = 2,
        lease_s: float = LEASE_S,
        networks: Networks | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """``networks``: where brokers and databases get places; without, a part of the faults."""
        self.random = random.Random(seed)
        self.database = database
        self.primary, self.standby = database.primary, database.standby
        self.link = database.link  # Between them; nobody uses it where it was not asked for.
        self.made = 1  # Servers that are no primary of the beginning.
        self.home = home
        self.say = say
        self.cut_s = 1.5 * lease_s
        self.networks = networks
        self.places: dict[Served, Place] = {}
        self.faces = [] if networks is None else [networks.add(), networks.add()]
        self.mounted: list[Path] = []
        self.proxies: dict[Served, list[Proxy]] = {}
        for name in NAMES[:brokers]:
            broker = Served(
                home / name, "--cluster-name", name, "--cluster-lease-s", f"{lease_s:g}"
            )
            self.proxies[broker] = self.make_proxies()
            if networks is not None:
                self.settle(broker, networks.add())
        self.brokers = list(self.proxies)
        self.clients = Clients(self.random, self.brokers)
        self.reading = Reading()
        self.slowest_s: dict[str, float] = defaultdict(float)  # From a fault to what is told next.
        self.rounds: dict[str, int] = defaultdict(int)
        self.broken: list[str] = []
        self.notes = 0
        self.entries = 0  # Of the ledger in the end.
        self.faults: dict[str, Callable[[], Coroutine[object, object, float | None]]] = {
            "kill-owner": self.kill_owner,
            "kill-all": self.kill_all,
            "end-owner": self.end_owner,
            "stop-owner-3": lambda: self.pause(self.owner(), 3),
            "stop-owner-7": lambda: self.pause(self.owner(), 7),
            "stop-owner-20": lambda: self.pause(self.owner(), 20),
            "stop-other": lambda: self.pause(self.other(), 5),
            "lose-primary": self.lose_primary,
            "zombie-primary": lambda: self.lose_primary(beside_s=STALL_S),
            "promote-asynchronous": self.promote_asynchronous,
            "hold-owner": self.hold_owner,
            "stop-standby": self.stop_standby,
            "cancel-waits": self.cancel_waits,
            "end-sessions": self.end_sessions,
            "slow-database": self.slow_database,
            "move": self.move,
        }
        if database.linked:
            self.faults["hold-standby"] = self.hold_standby
        if self.primary.mounted is not None:
            self.faults["full-log"] = self.full_log
        if networks is not None:
            clients = [networks.here]
            self.faults |= {
                "isolate-owner": lambda: self.lose([*clients, *self.faces, *self.others()], "both"),
                "cut-clients": lambda: self.lose(clients, "both"),
                "cut-brokers": lambda: self.lose(self.others(), "both"),
                "cut-database": lambda: self.lose(self.faces, "both"),
                "lose-requests": lambda: self.lose(self.faces, "from owner"),
                "lose-answers": lambda: self.lose(self.faces, "to owner"),
                "full-disk": self.full_disk,
                "jump-clocks": self.jump_clocks,
            }

    # --- Machines ---------------------------------------------------------------------------

    def make_proxies(self) -> list[Proxy]:
        """Return the ways of a broker to the two servers."""
        sockets: list[socket.socket | None] = [face.listen() for face in self.faces]
        ports = [server.port for server in (self.primary, self.standby)]
        return [Proxy(port, end) for port, end in zip(ports, sockets or [None, None], strict=True)]

    def settle(self, broker: Served, place: Place) -> None:
        """Give a broker its place in the network, a small disk, and a clock that jumps."""
        self.places[broker] = place
        broker.host = place.address
        broker.options += ("--no-guest-loopback-only",)
        data = broker.home / "data"
        data.mkdir(parents=True)
        options = ["-t", "tmpfs", "-o", f"size={BROKER_DISK}", "none", str(data)]
        subprocess.run(["mount", *options], check=True)
        self.mounted.append(data)
        clock = with_jumping_clock(str(broker.home / "clock"))
        broker.program = [*place.command(), *clock]

    def start(self, broker: Served) -> None:
        """Start a broker; its way to the database leads through its proxies."""
        first, second = (f"{proxy.host}:{proxy.port}" for proxy in self.proxies[broker])
        port = self.primary.port
        url = self.primary.url().replace(f"127.0.0.1:{port}/", f"{first},{second}/")
        if broker.log_path.exists():
            self.clients.begun[broker] = broker.log_path.stat().st_size
        with mock.patch.dict(os.environ, HEADRACE_CLUSTER=url):  # It has a password.
            broker.start()

    def owner(self) -> Served:
        """Return the broker that serves the virtual host."""
        deadline = time.monotonic() + MOVES_S
        while time.monotonic() < deadline:
            for broker in self.brokers:
                with contextlib.suppress(OSError):
                    name = owners(broker).get("/", "")
                    if name:
                        return self.brokers[NAMES.index(name)]
            time.sleep(0.1)
        raise AssertionError("no broker serves the virtual host")

    def others(self) -> list[Place]:
        """Return the places of the brokers that do not serve the virtual host."""
        owner = self.owner()
        return [place for broker, place in self.places.items() if broker is not owner]

    def other(self) -> Served:
        owner = self.owner()
        return self.random.choice([broker for broker in self.brokers if broker is not owner])

    # --- Faults -----------------------------------------------------------------------------

    async def kill_owner(self) -> float:
        """Kill the owner, and start it again later; return how long clients were told nothing."""
        owner = self.owner()
        owner.kill()
        silent_s = await self.moves()
        await asyncio.to_thread(self.start, owner)
        return silent_s

    async def kill_all(self) -> None:
        for broker in self.brokers:
            broker.kill()
        for broker in self.brokers:
            await asyncio.to_thread(self.start, broker)

    async def end_owner(self) -> None:
        """Stop the owner as operators do, and start it again."""
        owner = self.owner()
        await asyncio.to_thread(owner.stop)
        await asyncio.to_thread(self.start, owner)

    async def pause(self, broker: Served, pause_s: float) -> None:
        """Let a broker stand still, with all its connections open."""
        process = int(broker.ready["pid"])
        os.kill(process, signal.SIGSTOP)
        try:
            await asyncio.sleep(pause_s)
        finally:
            os.kill(process, signal.SIGCONT)

    async def lose_primary(self, beside_s: float = 0.0) -> None:
        """Let the primary crash, promote its standby, and give that a new standby.

        Args:
            beside_s: how long it lives beside the new one, with nobody who follows it.
        """
        await asyncio.to_thread(self.fail_over, self.standby, [self.primary], beside_s)

    def new_server(self, source: Server, port: int) -> Server:
        """Start a server that follows another one by a port."""
        self.made += 1
        made = Server(self.database.home, f"standby{self.made}")
        made.follow(source, port)
        if self.primary.mounted is not None:
            made.bound_log()
        made.start()
        self.database.all.append(made)
        return made

    def fail_over(self, promoted: Server, lost: list[Server], beside_s: float = 0.0) -> None:
        """Let a server be the primary in the place of those that are lost."""
        name = f"standby{self.made + 1}"
        promoted.configure(f"synchronous_standby_names = 'ANY 1 ({name})'")
        if not beside_s:
            self.end(lost)
        self.link.cut()
        promoted.promote()
        promoted.run("pg_ctl", "-D", str(promoted.directory), "reload")
        time.sleep(beside_s)
        self.end(lost)
        self.primary = promoted
        self.link.target = promoted.port
        self.standby = self.new_server(promoted, self.link.port)
        for proxies in self.proxies.values():
            for proxy, server in zip(proxies, (self.primary, self.standby), strict=True):
                proxy.target = server.port
                proxy.cut()
        self.database.wait_for_standby(promoted)

    def end(self, servers: list[Server]) -> None:
        for server in servers:
            if server in self.database.all:
                self.database.all.remove(server)
                server.end()

    async def promote_asynchronous(self) -> float:
        """Promote a standby that lacks confirmed messages: that has to be noticed, and told."""
        link = Proxy(self.primary.port)
        late = await asyncio.to_thread(self.new_server, self.primary, link.port)
        follows = f"select 1 from pg_stat_replication where application_name = '{late.name}'"
        await asyncio.to_thread(until, lambda: self.primary.execute(follows), "it follows")
        link.hold()
        owner = self.owner()
        await self.moves()
        self.say(f"    {late.name} lacks what was confirmed")
        await asyncio.to_thread(self.end, [self.primary, self.standby])
        link.close()
        await asyncio.sleep(STALL_S)  # Confirms that were on their way have come.
        told = self.clients.told
        await asyncio.to_thread(self.fail_over, late, [])
        await asyncio.to_thread(until, lambda: LOST in alarms(owner), "the loss is noticed")
        if self.clients.told != told:
            self.reading.found.append("clients were told something by a database that lost entries")
        self.clients.accept_loss()
        began = time.monotonic()
        await asyncio.to_thread(owner.administer, "cluster", "accept", "/")
        for aside in (owner.home / "data" / "vhosts").glob("*/aside-*"):
            await asyncio.to_thread(shutil.rmtree, aside)  # The disk is small.
        await self.clients.insist(self.clients.declare)
        return time.monotonic() - began

    async def hold_owner(self) -> None:
        """Let nothing pass between the owner and the database, then all that was held back."""
        proxies = self.proxies[self.owner()]
        for proxy in proxies:
            proxy.hold()
        await asyncio.sleep(self.cut_s)
        for proxy in proxies:
            if self.random.random() < 0.5:
                proxy.cut()
            proxy.go_on()

    async def hold_standby(self) -> None:
        """Let nothing pass between the servers: no commit is answered, and the owner freezes."""
        self.link.hold()
        await asyncio.sleep(self.cut_s)
        self.link.go_on()

    async def full_log(self) -> None:
        """Let the disk of the database's log be full; an operator makes room and starts it."""
        assert self.primary.mounted is not None
        with full(self.primary.mounted):
            await asyncio.sleep(FULL_S)
        if not await asyncio.to_thread(self.primary.answers):
            with contextlib.suppress(subprocess.CalledProcessError):  # It may have ended.
                self.primary.kill()
            await asyncio.to_thread(self.primary.start)
        await asyncio.to_thread(self.database.wait_for_standby, self.primary)

    async def lose(self, others: list[Place], how: str) -> None:
        """Lose all that goes between the owner and others, or in one direction."""
        assert self.networks is not None
        owner = self.places[self.owner()]
        for other in others:
            if how != "to owner":
                owner.lose(other)
            if how != "from owner":
                other.lose(owner)
        await asyncio.sleep(self.cut_s)
        for other in others:
            self.networks.mend(owner, other)

    async def full_disk(self) -> None:
        """Let the disk of the owner be full."""
        with full(self.owner().home / "data"):
            await asyncio.sleep(FULL_S)

    async def jump_clocks(self) -> None:
        """Let the clock of the day of each broker jump, and jump back."""
        for days in (self.random.randint(1, 400), -self.random.randint(1, 400), 0):
            for broker in self.brokers:
                jump(str(broker.home / "clock"), days * DAY_S)
            await asyncio.sleep(STALL_S / 2)
            await self.moves()

    async def cancel_waits(self) -> None:
        """Cancel commits that wait for their standby."""
        await asyncio.to_thread(self.cancel)

    def cancel(self) -> None:
        cancelled = 0
        deadline = time.monotonic() + MOVES_S
        with contextlib.closing(self.primary.admin()) as session:
            while cancelled < CANCELS and time.monotonic() < deadline:
                query = f"select pg_cancel_backend(pid) from ({WAITING}) as waiting"
                cancelled += len(session.execute(query.encode()).fetchall())

    async def end_sessions(self) -> None:
        """End all sessions of brokers in the database."""
        ended = "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s"
        await asyncio.to_thread(self.primary.execute, ended, ROLE)

    async def stop_standby(self) -> None:
        """Let the standby of the database stand still: commits wait."""
        self.standby.pause()
        try:
            await asyncio.sleep(STALL_S)
        finally:
            self.standby.go_on()

    async def slow_database(self) -> None:
        proxies = self.proxies[self.owner()]
        for proxy in proxies:
            proxy.on_bytes = lambda _client, _data: time.sleep(DELAY_S)
        await asyncio.sleep(SLOW_S)
        for proxy in proxies:
            proxy.on_bytes = lambda _client, _data: None

    async def move(self) -> None:
        """Move the virtual host to another broker, under load."""
        other = self.other()

        def ask() -> None:
            with operator(other) as client:
                client.ask("move vhost", vhost="/", broker=NAMES[self.brokers.index(other)])

        await asyncio.to_thread(ask)

    # --- Rounds -----------------------------------------------------------------------------

    async def moves(self) -> float:
        """Wait until clients are told something; return how long that took, in seconds."""
        began, told = time.monotonic(), self.clients.told
        async with asyncio.timeout(MOVES_S):
            while self.clients.told < told + 100:
                await asyncio.sleep(0.01)
        return time.monotonic() - began

    async def round(self, fault: str) -> list[str]:
        """Do one fault under load; return what was broken."""

        async def happen() -> None:
            await self.moves()
            await asyncio.sleep(self.random.uniform(0, 1))
            began = time.monotonic()
            silent_s = await self.faults[fault]()
            await self.moves()
            if silent_s is None:
                silent_s = time.monotonic() - began
            self.slowest_s[fault] = max(self.slowest_s[fault], silent_s)

        await self.clients.work(happen)
        await asyncio.to_thread(self.wait_for_clients)
        await self.clients.look()
        events, self.clients.events = self.clients.events, []
        for event in events:
            self.reading.take(event)
        found = self.reading.end()
        self.reading.found = []
        self.notes += len(events)
        self.rounds[fault] += 1
        self.broken += [f"{fault}: {text}" for text in found]
        return found

    def wait_for_clients(self) -> None:
        """Wait until no broker has a client: what they held goes back to its queues."""
        deadline = time.monotonic() + MOVES_S
        stay: list[object] = []
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                stay = [row for broker in self.brokers for row in connections(broker)]
                if not stay:
                    return
            time.sleep(0.05)
        raise AssertionError(f"connections stay that clients have closed: {stay}")

    async def run(self, faults: list[str]) -> None:
        """Do these faults, one a round."""
        for broker in self.brokers:
            await asyncio.to_thread(self.start, broker)
        try:
            await self.clients.insist(self.clients.declare)
            for number, fault in enumerate(faults, 1):
                began = time.monotonic()
                found = await self.round(fault)
                took_s = time.monotonic() - began
                self.say(f"{number}: {fault}, {took_s:.1f} s, {len(found)} violations")
                for text in found[:10]:
                    self.say(f"    {text}")
            await asyncio.to_thread(self.compare)
        finally:
            self.close()

    def compare(self) -> None:
        """Stop all brokers; compare the files of the last owner with the ledger."""
        owner = self.owner()
        for broker in sorted(self.brokers, key=lambda broker: broker is owner):
            broker.stop()
        self.entries, found = differences(self.primary.url(), owner.home / "data")
        self.broken += found
        for text in found:
            self.say(f"    {text}")

    def close(self) -> None:
        for broker in self.brokers:
            if broker.running:
                broker.kill()
        for proxy in [proxy for proxies in self.proxies.values() for proxy in proxies]:
            proxy.close()
        for place in self.mounted:
            subprocess.run(["umount", "-l", place], check=True)

    def report(self) -> str:
        """Say what was done and what was broken, in lines."""
        lines = [
            f"{fault}: {count} rounds, at most {self.slowest_s[fault]:.1f} s to go on"
            for fault, count in self.rounds.items()
        ]
        total = f"{sum(self.rounds.values())} rounds, {self.clients.told} confirms and commits"
        seen = f"{self.notes} notes, {self.entries} entries in the ledger in the end"
        return "\n".join([*lines, f"{total}, {seen}, {len(self.broken)} violations"])


def connections(broker: Served) -> list[object]:
    with operator(broker) as client:
        return list(client.items("list connections"))


def alarms(broker: Served) -> list[str]:
    with operator(broker) as client:
        return [row["reason"] for row in client.items("list alarms")]


@contextlib.contextmanager
def full(directory: Path) -> Iterator[None]:
    """Fill the disk of a directory, for a time."""
    ballast = directory / "ballast"
    try:
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 20)):
                pass
        yield
    finally:
        ballast.unlink()


def chosen(seed: int, rounds: int, faults: list[str]) -> list[str]:
    """Return the faults of the rounds: each as often as the others, in a random order."""
    rng = random.Random(seed)
    found: list[str] = []
    while len(found) < rounds:
        found += rng.sample(faults, len(faults))
    return found[:rounds]
