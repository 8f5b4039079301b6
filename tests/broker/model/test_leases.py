# SPDX-License-Identifier: Apache-2.0
"""Leases in a broker: messages of any size and kind, on disk and in memory, over stop and kill."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.client import Message, blocking, connect
from headrace.client.blocking_pipeline import Lease, Requests
from headrace.client.errors import ClientError
from headrace.client.lease import Lease as AsyncLease
from headrace.client.message import decode_properties
from headrace.client.requests import RequestRefused
from headrace.gateway.security.passwords import hash_password
from headrace.model.policy.accounts import Account, Permission
from headrace.store.catalog.users import UserDirectory
from headrace.testing.broker import ChildBroker, LocalBroker
from support.queue_contents import all_ready
from support.timeouts import PATIENCE_S

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "1"))


def bodies(lease: Lease, first: int, last: int) -> list[bytes]:
    return [record.body for batch in lease.read(first, last) for record in batch]


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def rest(channel: blocking.Channel, queue: str) -> list[bytes]:
    return [message.body for message in all_ready(channel, queue)]


@pytest.mark.parametrize("in_memory", [False, True])
def test_bodies_of_any_size_that_are_paged_out_or_not(tmp_path: Path, in_memory: bool) -> None:
    random = Random(1)
    sizes = [0, 1, 100, 70_000, 131_064, 300_007, 1_200_000, 5]
    sent = [random.randbytes(size) for size in sizes]
    data, memory_max = (None, 1 << 30) if in_memory else (tmp_path, 1_600_000)
    with LocalBroker(data, memory_max=memory_max, frame_max=65536) as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            channel.declare_queue("q", durable=True)
            for n, body in enumerate(sent):
                channel.publish(Message(body, persistent=n % 2 == 0), "q")
        with (
            blocking.connect(broker.url) as connection,
            Lease(connection, "q", "g", owner="o") as lease,
        ):
            lease.claim()
            assert lease.take(octets=1 << 20)[1:3] == (0, 6)
            assert bodies(lease, 0, 6) == sent[:6]
            assert lease.take().last == 8
            assert bodies(lease, 5, 8) == sent[5:]
            lease.settle(1)
            if not in_memory:
                broker.restart()
                assert bodies(lease, 1, 8) == sent[1:]
            assert lease.release() == 7
            assert lease.take().last == 15
            assert bodies(lease, 8, 15) == sent[1:]
            lease.release()
            with connection.channel() as channel:
                assert rest(channel, "q") == sent[1:]


def test_a_message_of_0_10_is_read_as_any_and_returns_as_it_was() -> None:
    with LocalBroker() as broker, blocking.connect(broker.url) as connection:
        with blocking.connect(f"{broker.url}?version=0-10") as modern:
            with modern.channel() as channel:
                channel.declare_queue("q", durable=True)
                headers: dict[str, Any] = {"a": 1, "b": "two"}
                channel.publish(Message(b"body", headers=headers, correlation_id="c"), "q")
            with Lease(connection, "q", "g") as lease:
                lease.claim()
                lease.take()
                (batch,) = lease.read(0, 1)
                read = batch[0].message()
                assert (read.body, read.correlation_id) == (b"body", "c")
                assert read.headers is not None
                assert {name: read.headers[name] for name in headers} == headers
                lease.release()
                lease.take()
                (batch,) = lease.read(1, 2)
                properties = decode_properties(batch[0].header)
                assert properties.headers is not None
                assert properties.headers["x-redelivered"] is True
                lease.release()
            with modern.channel() as channel:
                message = channel.get("q")
                assert message is not None
                assert (message.body, message.redelivered) == (b"body", True)
                assert message.headers == headers


def test_only_who_may_read_the_queue_may_lease_and_read(tmp_path: Path) -> None:
    with LocalBroker(tmp_path):
        pass  # Makes the directory.
    users = UserDirectory(tmp_path)
    for user, readable in (("reader", "orders"), ("other", "(?!orders).*")):
        users.add_user(Account(user, hash_password(user), ()))
        users.set_permission(user, "/", Permission("", "amq.default", readable))
    users.close()
    with LocalBroker(tmp_path) as broker:
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            channel.declare_queue("orders", durable=True)
            channel.publish(Message(b"x", persistent=True), "orders")
        with blocking.connect(broker.url_of("reader", "reader")) as connection:
            with Lease(connection, "orders", "g") as lease:
                lease.claim()
                taken = lease.take()
                assert bodies(lease, 0, 1) == [b"x"]
                with connection.channel() as channel:
                    channel.publish(b"forged", taken.stream)  # Goes nowhere.
                assert lease.info().next == 1
        with blocking.connect(broker.url_of("other", "other")) as connection:
            with Requests(connection) as requests:
                with pytest.raises(RequestRefused, match="read access to 'orders'") as refused:
                    requests.ask("lease.info", queue="orders", group="g")
                assert refused.value.code == "refused"
                assert requests.ask("lease.list") == {"leases": []}
            with pytest.raises(ClientError, match="refused"):
                list(connection.stream(taken.stream).read(0, 1))


def test_what_is_leased_leaves_the_disk_when_it_is_settled(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path, segment_size=1 << 20) as broker,
        blocking.connect(broker.url) as connection,
        connection.channel() as channel,
    ):
        channel.declare_queue("q", durable=True)
        channel.publish_many([Message(bytes(10_000), persistent=True)] * 1000, "q")
        with Lease(connection, "q", "g") as lease:
            state = lease.claim()
            lease.take()
            home = tmp_path / "vhosts" / "1" / "streams" / str(state.id)
            assert len(list(home.iterdir())) > 5
            for upto in range(100, 1001, 100):
                lease.settle(upto)
            channel.publish(Message(b"x", persistent=True), "q")
            lease.take()
            wait_until(lambda: len(list(home.iterdir())) <= 2)
            lease.release(forget=True)
            wait_until(lambda: not home.exists())


class Killed:
    """A client of a broker that is killed under its hands, and what it was told.

    What was asked for when the broker died, and not answered, may be done or not: a publish without
    its confirm, one settle or release. All else must be as it was told.
    """

    def __init__(self, broker: ChildBroker, random: Random) -> None:
        self.broker = broker
        self.random = random
        self.published = 0
        self.confirms: dict[int, asyncio.Future[None]] = {}  # Of this life.
        self.kept: set[int] = set()  # Confirmed, or seen in the lease.
        self.over: set[int] = set()  # Settled, or the matter of an earlier life.
        self.rejected: set[int] = set()  # And not seen as dead letters yet.
        self.held: list[int] = []  # In the lease, as last told.
        self.settling: list[int] = []  # The first of those: asked for, and not answered,
        self.rejecting: set[int] = set()  # and those of them that are rejected.
        self.is_releasing = False
        self.deeds = asyncio.Event()

    async def work(self) -> None:
        """Publish, take, read, settle, reject and give back until the broker dies."""
        random = self.random
        url = self.broker.url
        async with connect(url, reconnect=None) as connection, connection.channel() as channel:
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
            await channel.declare_queue("dead", durable=True)
            await channel.declare_queue("q", durable=True, arguments=arguments)
            async with AsyncLease(connection, "q", "g", owner="o") as lease:
                first = (await lease.claim()).settled
                while True:
                    for n in range(self.published, self.published + 50):
                        self.published = n + 1
                        message = Message(b"%d" % n, persistent=True)
                        self.confirms[n] = await channel.publish_soon(message, "q")
                    taken = await lease.take(messages=random.choice((1, 30, 100)))
                    numbers = [
                        int(record.body)
                        async for batch in lease.read(first, taken.last)
                        for record in batch
                    ]
                    assert len(numbers) == taken.last - first
                    assert numbers[: len(self.held)] == self.held, "what is leased has changed"
                    assert not self.over.intersection(numbers), "settled ones came again"
                    self.held = numbers
                    self.kept.update(numbers)
                    self.deeds.set()
                    if random.random() < 0.3:
                        self.is_releasing = True
                        await lease.release()
                        self.is_releasing = False
                        self.held = []
                        first = (await lease.info()).next
                        continue
                    upto = random.randint(first, taken.last)
                    rejects = [n for n in range(first, upto) if random.random() < 0.1]
                    self.settling = numbers[: upto - first]
                    self.rejecting = {numbers[n - first] for n in rejects}
                    await lease.settle(upto, rejects)
                    self.settle(len(self.settling))
                    first = upto

    def settle(self, count: int) -> None:
        """So many of those that were to be settled are, and the others are not."""
        settled = self.settling[:count]
        self.over.update(settled)
        self.rejected.update(self.rejecting.intersection(settled))
        self.held = self.held[count:]
        self.settling = []
        self.rejecting = set()

    async def live(self) -> None:
        """Work until the broker is killed, after a while."""
        self.deeds = asyncio.Event()
        task = asyncio.create_task(self.work())
        for _ in range(self.random.randint(1, 15)):
            waiting = asyncio.create_task(self.deeds.wait())
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            self.deeds.clear()
        await asyncio.to_thread(self.broker.kill)
        with pytest.raises((ClientError, OSError)):
            await task
        for n, confirm in self.confirms.items():
            if confirm.done() and not confirm.cancelled() and confirm.exception() is None:
                self.kept.add(n)
        self.confirms = {}

    def look(self) -> None:
        """Compare what is there with what was told."""
        with (
            blocking.connect(self.broker.url) as connection,
            connection.channel() as channel,
            Lease(connection, "q", "g", owner="o") as lease,
        ):
            state = lease.claim()
            leased = [int(body) for body in bodies(lease, state.settled, state.next)]
            gone = len(set(self.held).difference(leased))  # The first ones, if any.
            left = self.held[gone:]
            assert leased[: len(left)] == left, "not in the order of their numbers"
            assert self.is_releasing or gone <= len(self.settling), "lost from the lease"
            if not self.is_releasing:
                self.settle(gone)
            lease.release()
            ready = [int(body) for body in rest(channel, "q")]
            assert ready == sorted(set(ready)), "not in their places"
            assert set(leased) <= set(ready), "not given back"
            assert not self.over.intersection(ready), "settled ones are back"
            assert self.kept - self.over <= set(ready), "lost"
            letters = [int(body) for body in rest(channel, "dead")]
            assert sorted(letters) == sorted(self.rejected), "not what was rejected"
        # What was published and never confirmed is here now, or must not be seen any more.
        self.over = set(range(self.published))
        self.rejected = set()
        self.held = []
        self.is_releasing = False


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_kill_loses_or_repeats_a_message(tmp_path: Path, seed: int) -> None:
    """kill -9 at any moment of taking, reading, settling, rejecting and giving back."""
    with ChildBroker(tmp_path) as broker:
        client = Killed(broker, Random(seed))
        for _ in range(3):
            asyncio.run(client.live())
            broker.start()
            client.look()


@pytest.mark.parametrize("version", ["0-8", "0-10"])
def test_what_is_rejected_in_advance_survives_a_kill(tmp_path: Path, version: str) -> None:
    with ChildBroker(tmp_path) as broker:
        url = f"{broker.url}?version={version}"
        with blocking.connect(url) as connection, connection.channel() as channel:
            channel.declare_queue("dead", durable=True)
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
            channel.declare_queue("q", durable=True, arguments=arguments)
            channel.publish_many([b"%d" % n for n in range(6)], "q")
            with Lease(connection, "q", "g", owner="o") as lease:
                lease.claim()
                lease.take()
                lease.reject(0, 6, [1, (3, 5)])
                broker.kill()
        broker.start()
        with (
            blocking.connect(f"{broker.url}?version={version}") as connection,
            connection.channel() as channel,
            Lease(connection, "q", "g", owner="o") as lease,
        ):
            lease.claim()
            assert lease.rejected(0, 6) == [(1, 2), (3, 5)]
            assert lease.settle(6).rejected == 3
            assert rest(channel, "dead") == [b"1", b"3", b"4"]
