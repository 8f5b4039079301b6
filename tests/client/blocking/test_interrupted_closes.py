# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in a call that opens or closes leaves no open channel or session at the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import ChannelClosed, blocking
from headrace.client.blocking.bulk import BulkPublisher
from headrace.client.blocking_pipeline import Lease, Requests, Sink, Stage
from headrace.client.blocking_publisher import Publisher
from headrace.client.connection import connection as client_connection
from headrace.protocol.codec_0_10 import QueueDeclare
from headrace.spec.tables import V0_10
from support.brokers.broker_process import until
from support.endings import interrupted
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

Name = Callable[[str], str]

each_moment = pytest.mark.parametrize("when", ["unbegun", "waiting", "answered"])


def channels_of(connection: blocking.Connection) -> set[int]:
    """Return the numbers of channels and sessions of this connection at the broker."""
    link: Any = connection.source._link
    if link is None:
        return set()
    machine = link.machine
    return set(machine.attached if connection.version is V0_10 else machine.channels)


@pytest.fixture
def connection(url: str) -> Iterator[blocking.Connection]:
    with blocking.connect(url, timeout_s=PATIENCE_S) as opened:
        yield opened


@pytest.fixture
def connection_0_10(url: str) -> Iterator[blocking.Connection]:
    with blocking.connect(f"{url}?version=0-10", timeout_s=PATIENCE_S) as opened:
        yield opened


def open_requests(connection: blocking.Connection) -> Requests:
    requests = Requests(connection)
    requests.ask("lease.list")
    return requests


def claim_lease(connection: blocking.Connection, queue: str) -> Lease:
    lease = Lease(connection, queue, "etl")
    lease.claim()
    return lease


def begin_sink(connection: blocking.Connection, name: str) -> Sink:
    sink = Sink(connection, name)
    sink.begin("query")
    return sink


# What `with` or `close` closes, opened on a channel of the connection.
CLOSED: dict[str, Callable[[blocking.Connection, str], Any]] = {
    "channel": lambda connection, _: connection.channel(),
    "requests": lambda connection, _: open_requests(connection),
    "lease": claim_lease,
    "sink": begin_sink,
    "publisher": lambda connection, name: Publisher(connection, name).__enter__(),
    "bulk publisher": lambda connection, _: BulkPublisher(connection).__enter__(),
}


@each_moment
@pytest.mark.parametrize("what", CLOSED)
def test_closing(
    connection: blocking.Connection,
    name: Name,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    when: str,
) -> None:
    with connection.channel() as channel:
        channel.declare_queue(name("q"), durable=True)
    assert not channels_of(connection)
    opened = CLOSED[what](connection, name("q"))
    assert channels_of(connection)
    with interrupted(monkeypatch, when):
        opened.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    until(lambda: not channels_of(connection), "closed")


def test_closing_a_channel_whose_publishes_cannot_be_sent(url: str, name: Name) -> None:
    """A close that times out still closes the channel."""
    with blocking.connect(url, timeout_s=0.2) as connection:
        channel = connection.channel()
        channel.declare_queue(name("q"))
        channel.publish("a", name("q"))
        channel.source._flow.clear()  # The state after channel.flow of the broker.
        confirmation = channel.publish_soon("b", name("q"))
        with pytest.raises(TimeoutError):
            channel.close()
        until(lambda: not channels_of(connection), "closed")
        with pytest.raises(ChannelClosed):
            confirmation.wait()


@each_moment
def test_closing_a_connection(url: str, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    connection = blocking.connect(url)
    with interrupted(monkeypatch, when):
        connection.close()
    until(lambda: connection.is_closed, "closed")


@each_moment
@pytest.mark.parametrize("timeout_s", [0, 60])
def test_closing_a_session(
    connection_0_10: blocking.Connection,
    name: Name,
    monkeypatch: pytest.MonkeyPatch,
    timeout_s: int,
    when: str,
) -> None:
    """An interrupted close still closes the session, and requeues its messages."""
    with connection_0_10.session() as observer:
        observer.call(QueueDeclare(queue=name("q")))
        observer.transfer("a", name("q"))
        session = connection_0_10.session(name("s"), timeout_s=timeout_s)
        subscription = session.subscribe(name("q"))
        subscription.flow(1)
        subscription.receive()
        with interrupted(monkeypatch, when):
            session.close()
        until(lambda: session.is_closed and not session.is_attached, "closed")
        state = observer.query_queue(name("q"))
        assert state is not None
        assert state.message_count == 1
        with connection_0_10.session(name("s")) as again:
            again.sync()


@each_moment
def test_closing_a_stage(
    connection: blocking.Connection, name: Name, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """An interrupted close of a stage closes its connection."""
    with connection.channel() as channel, Sink(connection, name("sink")) as sink:
        channel.declare_queue(name("q"))
        sink.begin("query")
        stage = Stage(connection, name("sink"), 0, 0, 0, epoch=sink.epoch)
        stage.publish_many(["a"], name("q"))
        own: Any = stage._source._connection
        with interrupted(monkeypatch, when):
            stage.close()
        until(lambda: own.is_closed, "closed")


@each_moment
def test_ending_a_read(
    connection: blocking.Connection, name: Name, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """An interrupted close closes the channel for requests."""
    with connection.channel() as channel:
        channel.declare_queue(name("s"), durable=True, arguments={"x-queue-type": "stream"})
        channel.publish_many(["a", "b"], name("s"))
    reading: Any = connection.stream(name("s")).read(0, 2, batch_max=1)
    next(reading)
    assert channels_of(connection)
    with interrupted(monkeypatch, when):
        reading.close()
    until(lambda: not channels_of(connection), "closed")


@each_moment
@pytest.mark.parametrize("what", ["channel", "publisher", "bulk publisher"])
def test_opening(
    connection: blocking.Connection,
    name: Name,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    when: str,
) -> None:
    with interrupted(monkeypatch, when):
        CLOSED[what](connection, name("q"))
    until(lambda: not channels_of(connection), "closed")


@each_moment
def test_opening_a_connection(url: str, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    opened: list[Any] = []
    real = client_connection.connect

    async def connect(*args: Any, **how: Any) -> Any:
        opened.append(await real(*args, **how))
        return opened[-1]

    monkeypatch.setattr(client_connection, "connect", connect)
    with interrupted(monkeypatch, when):
        blocking.connect(url)
    with blocking.connect(url):
        pass  # Runs after the work of the interrupted call.
    until(lambda: all(connection.is_closed for connection in opened), "closed")


@each_moment
def test_opening_a_session(
    connection_0_10: blocking.Connection,
    name: Name,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    with interrupted(monkeypatch, when):
        connection_0_10.session(name("s"), timeout_s=60)
    until(lambda: not channels_of(connection_0_10), "detached")
    with connection_0_10.session(name("s")) as session:
        session.sync()


@each_moment
def test_beginning_a_transaction(
    connection: blocking.Connection, name: Name, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The channel can begin another transaction after an interrupted one."""
    with connection.channel() as channel:
        channel.declare_queue(name("q"))
        with interrupted(monkeypatch, when):
            channel.transaction().__enter__()
        with channel.transaction():
            channel.publish("a", name("q"))
        assert channel.declare_queue(name("q"), passive=True).message_count == 1


@each_moment
def test_subscribing(
    connection_0_10: blocking.Connection,
    name: Name,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    """An interrupted subscribe frees the destination, and leaves no consumer."""
    with connection_0_10.session() as session:
        session.call(QueueDeclare(queue=name("q")))
        with interrupted(monkeypatch, when):
            session.subscribe(name("q"), "d", exclusive=True)
        with session.subscribe(name("q"), "d", exclusive=True):
            session.sync()


@each_moment
def test_acquiring(
    connection_0_10: blocking.Connection,
    name: Name,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    """Messages that are acquired for an interrupted call are released."""
    with connection_0_10.session() as session:
        session.call(QueueDeclare(queue=name("q")))
        session.transfer("a", name("q"))
        with session.subscribe(name("q"), acquire=False) as browser:
            browser.flow(1)
            transfer = browser.receive()
            with interrupted(monkeypatch, when):
                session.acquire(transfer)
            session.sync()
            session.sync()
            state = session.query_queue(name("q"))
            assert state is not None
            assert state.message_count == 1
            assert not transfer.acquired


@each_moment
def test_taking_from_a_lease(
    connection: blocking.Connection, name: Name, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The next take returns the messages of the interrupted one."""
    with connection.channel() as channel, Lease(connection, name("q"), "etl") as lease:
        channel.declare_queue(name("q"), durable=True)
        channel.publish_many(["a", "b", "c"], name("q"))
        lease.claim()
        with interrupted(monkeypatch, when):
            lease.take(messages=2)
        lease_range = lease.take(messages=2)
        assert (lease_range.first, lease_range.last, lease_range.ready) == (0, 2, 1)
