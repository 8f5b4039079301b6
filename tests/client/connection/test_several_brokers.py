# SPDX-License-Identifier: Apache-2.0
"""Several brokers, one of which takes over from another: where a connection goes, and when."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from headrace.client import (
    AuthenticationFailed,
    Blocked,
    ConnectFailed,
    ConnectionLost,
    Lost,
    Reconnect,
    Recovered,
    blocking,
    connect,
)
from headrace.client.blocking_publisher import Publisher as BlockingPublisher
from headrace.client.publisher import Publisher
from headrace.protocol.codec_0_x import ConnectionBlocked
from headrace.spec.tables import Version
from headrace.testing import LocalBroker
from support.brokers.broker_pair import BrokerPair
from support.brokers.scripted_broker import Peer, scripted
from support.conversations.version_conversations import in_version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.client import Event

STREAM = {"x-queue-type": "stream"}
EARLY = ("0-8", "0-9", "0-10")  # The versions in which brokers name others.
every = pytest.mark.parametrize("version", [version.label for version in Version])


class EventLog(asyncio.Queue["Event"]):
    """Records the events of a connection."""

    async def next(self, kind: type) -> Event:
        event = await self.get()
        assert isinstance(event, kind), event
        return event


async def accept(peer: Peer) -> None:
    await peer.handshake()


async def refuse(peer: Peer) -> None:
    peer.hang_up()


async def hang(peer: Peer) -> None:
    await peer.hung_up()


@pytest.fixture
def unanswered() -> Iterator[str]:
    """Return host and port of a socket that accepts connections and never reads."""
    with socket.create_server(("127.0.0.1", 0), backlog=8) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@every
async def test_a_publisher_and_a_consumer_follow_the_broker_that_takes_over(
    tmp_path: Path, version: str
) -> None:
    """Every message arrives once and in order, over three changes of the broker."""
    with BrokerPair(tmp_path / "data") as pair:
        seen = EventLog()
        async with connect(in_version(pair.url, version), on_event=seen.put_nowait) as connection:
            first = connection.address
            channel = await connection.channel()
            await channel.declare_queue("work")
            publisher = Publisher(connection, "numbers")
            async with publisher, channel.consume("work") as consumer:
                for number in range(4):
                    if number:
                        await asyncio.to_thread(pair.move)
                        await seen.next(Lost)
                        await seen.next(Recovered)
                        assert f":{pair.serving.port}/" in connection.address
                    assert await publisher.publish(f"{number}", "work") == number
                    delivery = await consumer.receive()
                    assert (delivery.text(), delivery.redelivered) == (f"{number}", False)
                    assert await delivery.ack()
                    left = await channel.declare_queue("work", passive=True)
                    assert left.message_count == 0  # The broker has the ack.
            assert connection.address != first


@every
async def test_a_reader_of_a_stream_goes_on_at_the_broker_that_takes_over(
    tmp_path: Path, version: str
) -> None:
    with BrokerPair(tmp_path / "data") as pair:
        async with connect(in_version(pair.url, version)) as connection:
            channel = await connection.channel()
            await channel.declare_queue("numbers", arguments=STREAM)
            await channel.publish_many((f"{n}" for n in range(3000)), "numbers")
            found: list[int] = []
            async for batch in connection.stream("numbers").read(0, 3000):
                if not found:
                    await asyncio.to_thread(pair.move)
                found += [int(record.body) for record in batch]
            assert found == list(range(3000))


def test_publishes_of_the_blocking_client_survive_the_kill_of_a_broker(tmp_path: Path) -> None:
    """A publish waits while no broker accepts, and the stream has every number once."""
    with (
        BrokerPair(tmp_path / "data", processes=True) as pair,
        blocking.connect(pair.url) as connection,
    ):
        with connection.channel() as channel:
            channel.declare_queue("once", arguments=STREAM)
            with BlockingPublisher(connection, "numbers") as publisher:
                for _ in range(3):
                    publisher.publish_many((b"%d" % n for n in range(500)), "once")
                    pair.move()
                publisher.publish(b"end", "once")
        stream = connection.stream("once")
        bodies = [
            record.body
            for batch in stream.read(stream.first_offset(), stream.last_offset())
            for record in batch
        ]
    assert bodies == [*(b"%d" % n for n in range(500))] * 3 + [b"end"]


async def test_a_broker_that_does_not_answer_delays_nothing(unanswered: str) -> None:
    """A silent broker delays neither the first connection nor a reconnection."""
    queue = "?connection_timeout=400"
    seen = EventLog()
    async with scripted(accept) as broker:
        url = f"amqp://{unanswered},127.0.0.1:{broker.port}/{queue}"
        async with connect(url, on_event=seen.put_nowait) as connection:
            assert connection.address.startswith(f"amqp://127.0.0.1:{broker.port}")
            assert connection._link is not None
            connection._link.fail(ConnectionLost("the network failed"))
            await seen.next(Lost)
            await seen.next(Recovered)
            assert broker.connections == 2


async def test_the_slower_of_two_brokers_is_given_up() -> None:
    gone = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.hung_up()
        gone.set()

    async with scripted(slow) as first, scripted(accept) as second:
        url = f"amqp://127.0.0.1:{first.port},127.0.0.1:{second.port}"
        async with connect(url) as connection:
            assert connection.address.startswith(f"amqp://127.0.0.1:{second.port}")
            await gone.wait()
            assert connection.is_ready


async def test_two_brokers_that_answer_at_once_leave_one_connection() -> None:
    """After a loss both brokers are tried; the slower connection is closed."""
    seen = EventLog()
    both = asyncio.Barrier(2)
    gone = asyncio.Event()

    async def together(peer: Peer) -> None:
        await both.wait()
        try:
            await peer.handshake()
            await peer.hung_up()
        finally:
            gone.set()

    async with scripted(accept, together) as first, scripted(together) as second:
        url = f"amqp://127.0.0.1:{first.port},127.0.0.1:{second.port}"
        async with connect(url, on_event=seen.put_nowait) as connection:
            assert connection._link is not None
            connection._link.fail(ConnectionLost("the network failed"))
            await seen.next(Lost)
            await seen.next(Recovered)
            await gone.wait()
            assert connection.is_ready


async def test_a_broker_that_is_blocked_when_it_takes_over_says_so() -> None:
    async def blocked(peer: Peer) -> None:
        await peer.handshake()
        peer.send(0, ConnectionBlocked(reason="low on disk"))

    seen = EventLog()
    async with scripted(accept, refuse) as first, scripted(blocked) as second:
        url = f"amqp://127.0.0.1:{first.port},127.0.0.1:{second.port}"
        async with connect(url, on_event=seen.put_nowait) as connection:
            assert connection.blocked is None
            assert connection._link is not None
            connection._link.fail(ConnectionLost("the network failed"))
            await seen.next(Lost)
            events = [await seen.get(), await seen.get()]
            assert {type(event) for event in events} == {Blocked, Recovered}
            assert connection.blocked == "low on disk"


async def test_the_error_names_every_broker() -> None:
    async with scripted(refuse) as first, scripted(refuse) as second:
        url = f"amqp://127.0.0.1:{first.port},127.0.0.1:{second.port}"
        with pytest.raises(ConnectFailed) as caught:
            await connect(url)
    assert f":{first.port}/" in str(caught.value)
    assert f":{second.port}/" in str(caught.value)


async def test_attempts_are_counted_at_each_broker() -> None:
    seen = EventLog()
    async with scripted(accept, refuse) as first, scripted(refuse) as second:
        url = f"amqp://127.0.0.1:{first.port},127.0.0.1:{second.port}"
        few = Reconnect(delay_s=0.001, attempts=3)
        async with connect(url, reconnect=few, on_event=seen.put_nowait) as connection:
            assert connection._link is not None
            connection._link.fail(ConnectionLost("the network failed"))
            await seen.next(Lost)
            lost = await seen.next(Lost)
            assert isinstance(lost, Lost)
            assert lost.final
            assert (first.connections, second.connections) == (4, 3)


async def test_a_refused_login_ends_the_search(headrace_broker: LocalBroker) -> None:
    async with scripted(hang) as first:
        url = f"amqp://guest:wrong@127.0.0.1:{first.port},127.0.0.1:{headrace_broker.port}"
        with pytest.raises(AuthenticationFailed):
            await connect(url + "?connection_timeout=400")


@pytest.mark.parametrize("version", EARLY)
async def test_a_redirection_is_followed_to_the_broker_that_takes_over(
    tmp_path: Path, version: str
) -> None:
    """The configured broker redirects the client to the serving broker."""
    seen = EventLog()
    with BrokerPair(tmp_path / "data") as pair:
        both = f"{pair.serving.host}:{pair.serving.port},{pair.other.host}:{pair.other.port}"
        with LocalBroker(redirect=f"/={both}") as third:
            url = in_version(third.url, version)
            async with connect(url, on_event=seen.put_nowait) as connection:
                assert f":{pair.serving.port}/" in connection.address
                channel = await connection.channel()
                await channel.declare_queue("kept")
                await asyncio.to_thread(pair.move)
                await seen.next(Lost)
                await seen.next(Recovered)
                assert f":{pair.serving.port}/" in connection.address
                assert (await channel.declare_queue("kept", passive=True)).name == "kept"


@pytest.mark.parametrize("version", EARLY)
async def test_known_hosts_are_tried_when_the_broker_is_gone(version: str) -> None:
    seen = EventLog()
    with LocalBroker() as second:
        with LocalBroker(known_hosts=f"/=127.0.0.1:{second.port}") as first:
            connection = await connect(in_version(first.url, version), on_event=seen.put_nowait)
            assert f":{first.port}/" in connection.address
            stubborn = await connect(in_version(first.url, version) + "&insist=1", reconnect=None)
            assert stubborn._brokers.advertised == []
            await stubborn.close()
        await seen.next(Lost)
        await seen.next(Recovered)
        assert f":{second.port}/" in connection.address
        await connection.close()


def test_no_delay_between_several_brokers_is_long_in_the_first_minute() -> None:
    plain = Reconnect(jitter=0, attempts=12)
    one, several = list(plain.delays()), list(plain.delays(several=True))
    assert max(one) == 30
    assert sum(several) == pytest.approx(sum(one))  # The total time is the same.
    first: list[float] = []
    while sum(first) < 60:
        first.append(several[len(first)])
    assert max(first) <= 0.5
    assert several[-1] == 30
