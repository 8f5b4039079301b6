# SPDX-License-Identifier: Apache-2.0
"""Faults in a random order under two owners of a ledger in PostgreSQL, from seeds.

HEADRACE_LEDGER_SEEDS=20 tries that many. Every fault strikes while an append waits, or in the
middle of it. In the end the primary is lost, with an entry that was not confirmed.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable

import pytest

from headrace.store.ledger.port import Fenced
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_session import Address
from support.brokers.broker_process import until
from support.ledger_judge import Judge, insist
from support.postgres import WAITING, Proxy, Servers, servers

SEEDS = int(os.environ.get("HEADRACE_LEDGER_SEEDS", "1"))
FIRST = 11  # Has a table that was begun for an entry of the one before.
TURNS = 30
ANSWER_S = 2.0
SEGMENT_BYTES = 400_000


class History:
    """Two brokers, a proxy before the primary, and the judge."""

    def __init__(self, running: Servers, proxy: Proxy, seed: int) -> None:
        self.running = running
        self.proxy = proxy
        self.random = random.Random(seed)
        self.judge = Judge()
        self.number = 0
        self.brokers = [self.ledger(f"broker-{number}") for number in (1, 2)]
        insist(self.brokers[0].open)
        self.faults: list[Callable[[], None]] = [
            self.nothing,
            self.cut,
            self.cancel,
            self.terminate,
            self.crash,
            self.overtake,
        ]

    def ledger(self, owner: str) -> PostgresLedger:
        """Return a broker's ledger, by the proxy."""
        cluster = Cluster(Address(self.running.primary.url(self.proxy.port)), answer_s=ANSWER_S)
        ledger = PostgresLedger(cluster, "/", owner)
        ledger.segment_bytes = SEGMENT_BYTES
        return ledger

    def append(self) -> None:
        """Append until it is done, as the owner."""
        self.number += 1
        owner, number = self.brokers[0], self.number
        octets = self.random.randbytes(self.random.randrange(32, 300_000))
        insist(lambda: self.judge.append(owner, owner.epoch, number, octets))

    def nothing(self) -> None:
        self.append()

    def cut(self) -> None:
        """Cut the broker's connection after some reads of the proxy."""
        left = self.random.randrange(1, 8)

        def count(client: bool, data: bytes) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise ConnectionResetError

        self.proxy.on_bytes = count
        self.append()
        self.proxy.on_bytes = lambda client, data: None

    def while_it_waits(self, act: Callable[[int], object]) -> None:
        """Act while an append waits for a standby out of reach."""
        self.running.link.hold()
        appending = threading.Thread(target=self.append)
        appending.start()
        ((process,),) = until(lambda: self.running.primary.execute(WAITING), "the append waits")
        assert isinstance(process, int)
        act(process)
        self.running.link.go_on()
        appending.join()

    def cancel(self) -> None:
        cancel = "select pg_cancel_backend({})"
        self.while_it_waits(lambda process: self.running.primary.execute(cancel.format(process)))

    def terminate(self) -> None:
        end = "select pg_terminate_backend({})"
        self.while_it_waits(lambda process: self.running.primary.execute(end.format(process)))

    def crash(self) -> None:
        """Let the primary crash and start again, with an entry that its standby lacks."""

        def crash(process: int) -> None:
            self.running.primary.kill()
            self.running.primary.start()

        self.while_it_waits(crash)

    def overtake(self) -> None:
        """Let the other broker take the ledger; the owner before is fenced."""
        self.brokers.reverse()
        owner, before = self.brokers
        assert insist(owner.open).last == self.number
        with pytest.raises(Fenced):
            insist(lambda: self.judge.append(before, before.epoch, self.number + 1, b"late"))
        self.append()

    def run(self) -> None:
        for _ in range(TURNS):
            self.random.choice(self.faults)()
        insist(lambda: self.brokers[0].trim(self.number // 2))
        kept = [one for one in self.judge.confirmed if one.number >= self.number // 2]
        assert len(self.judge.confirmed) == self.number == TURNS
        self.judge.confirmed = kept

    def lose_primary(self) -> None:
        """Let the standby be the primary; it lacks the last entry."""
        self.running.link.hold()
        owner = self.brokers[0]
        with pytest.raises(OSError):
            self.judge.append(owner, owner.epoch, self.number + 1, b"lost")
        for broker in self.brokers:
            broker.close()
        self.running.lose_primary()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_what_was_confirmed_is_there_over_faults_in_any_order(seed: int) -> None:
    with servers() as running, contextlib.closing(Proxy(running.primary.port)) as proxy:
        Cluster(Address(running.primary.url())).prepare()
        history = History(running, proxy, seed)
        history.run()
        history.lose_primary()
        promoted = Cluster(Address(running.standby.url()), standbys=False)
        with contextlib.closing(PostgresLedger(promoted, "/", "broker-3")) as next_owner:
            assert history.judge.violations(next_owner) == []
            assert next_owner.durable == history.number
