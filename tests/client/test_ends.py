# SPDX-License-Identifier: Apache-2.0
"""Every wait of the client ends when the peer ends the connection, session or channel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import (
    ClientError,
    ConnectionClosed,
    ConnectionLost,
    NotFound,
    ProtocolViolation,
    Reconnect,
    UsageError,
    connect,
)
from headrace.protocol.codec_0_10 import ExecutionException, ExecutionSync, QueueDeclare
from headrace.protocol.codec_0_x import ChannelClose
from headrace.spec.reply_0_10 import DetachCode, FlowMode
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from headrace.client import Channel, Connection, Session
    from headrace.client.session.subscription import Subscription
    from headrace.testing import ChildBroker

Name = Callable[[str], str]
Tasks = dict[str, asyncio.Future[Any]]


def deafen(connection: Connection) -> Any:
    """Make a connection ignore all input from its broker; return its link."""
    link = connection._link
    assert link is not None
    link.data_received = lambda data: None  # type: ignore[method-assign]
    return link


async def hang_up(connection: Connection, link: Any) -> None:
    """Close a connection whose broker cannot answer."""
    link.abort()
    await connection.close()


def lose_socket(link: Any) -> None:
    """Close the socket as the peer or the network does, unlike `link.abort`."""
    link._transport.abort()


async def start_waits(waits: dict[str, Awaitable[Any]]) -> Tasks:
    """Begin the waits, and check that none of them ends by itself."""
    tasks: Tasks = {name: asyncio.ensure_future(wait) for name, wait in waits.items()}
    for _ in range(5):
        await asyncio.sleep(0)
    assert [name for name, task in tasks.items() if task.done()] == []
    return tasks


async def check_all_failed(tasks: Tasks) -> None:
    """Check that each wait ends with a ClientError."""
    await asyncio.wait(tasks.values(), timeout=PATIENCE_S)
    assert [name for name, task in tasks.items() if not task.done()] == []
    errors = {name: task.exception() for name, task in tasks.items()}
    assert {name: e for name, e in errors.items() if not isinstance(e, ClientError)} == {}


# --- Sessions -------------------------------------------------------------------------------------


async def session_waits(session: Session, subscription: Subscription, queue: str) -> Tasks:
    """Begin every wait that a session has."""
    return await start_waits(
        {
            "call": session.call(ExecutionSync()),
            "sync": session.sync(),
            "query": session.query_queue(queue),
            "transfer": session.transfer("a", queue),
            "unaccepted transfer": session.transfer("a", queue, accept=False),
            "subscribe": session.subscribe(queue),
            "receive": subscription.receive(),
            "iterate": anext(subscription),
            "next_command": session.next_command(),
            "request_timeout": session.request_timeout(60),
            "request_timeout again": session.request_timeout(30),
        }
    )


def lose(session: Session, link: Any) -> None:
    lose_socket(link)


def close_connection(session: Session, link: Any) -> None:
    link.fail(ConnectionClosed(320, "the broker stops"))


def detach(session: Session, link: Any) -> None:
    link.machine.detach_session(session._machine, int(DetachCode.UNKNOWN_IDS))


def fail_command(session: Session, link: Any) -> None:
    session._machine.ended = True
    session.exception(ExecutionException(error_code=404, description="no such queue"))


@pytest.mark.parametrize("timeout_s", [0, 60])
@pytest.mark.parametrize("end", [lose, close_connection, detach, fail_command])
async def test_waits_of_a_session(url: str, name: Name, end: Any, timeout_s: int) -> None:
    """A kept session continues on another connection; its pending controls fail."""
    connection = await connect(f"{url}?version=0-10", reconnect=None)
    queue = name("q")
    session = await connection.session(timeout_s=timeout_s)
    await session.call(QueueDeclare(queue=queue))
    subscription = await session.subscribe(queue)
    link = deafen(connection)
    tasks = await session_waits(session, subscription, queue)
    end(session, link)
    if timeout_s and end in (lose, close_connection):
        await check_all_failed({each: tasks.pop(each) for each in list(tasks) if "timeout" in each})
        assert not session.is_closed
        await session.close()
    await check_all_failed(tasks)
    with pytest.raises(ClientError):
        await session.sync()
    await hang_up(connection, link)


@pytest.mark.parametrize("end", [lose, close_connection, detach, fail_command])
async def test_detaching(url: str, end: Any) -> None:
    connection = await connect(f"{url}?version=0-10", reconnect=None)
    session = await connection.session(timeout_s=60)
    link = deafen(connection)
    tasks = await start_waits({"detach": session.detach(), "again": session.detach()})
    end(session, link)
    if end is detach:
        await asyncio.gather(*tasks.values())
    else:
        await check_all_failed(tasks)
    await hang_up(connection, link)


@pytest.mark.parametrize("end", [lose, close_connection, detach])
async def test_attaching(url: str, end: Any) -> None:
    versioned = f"{url}?version=0-10"
    async with connect(versioned, reconnect=None) as other:
        connection = await connect(versioned, reconnect=None)
        session = await other.session(timeout_s=60)
        await session.detach()
        link = deafen(connection)
        tasks = await start_waits({"attach": session.attach(connection)})
        end(session, link)
        await check_all_failed(tasks)
        await hang_up(connection, link)


async def test_an_attach_that_is_cancelled_leaves_the_session_to_be_attached(
    url: str, name: Name
) -> None:
    async with connect(f"{url}?version=0-10", reconnect=None) as connection:
        session = await connection.session(timeout_s=60)
        await session.detach()
        attaching = asyncio.create_task(session.attach(connection))
        while not session.is_attached:
            await asyncio.sleep(0)
        attaching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attaching
        while session.is_attached:
            await asyncio.sleep(0)
        await session.attach(connection)
        await session.sync()
        await session.close()


async def test_an_attach_ends_when_another_task_detaches(url: str) -> None:
    async with connect(f"{url}?version=0-10", reconnect=None) as connection:
        session = await connection.session(timeout_s=60)
        await session.detach()
        attaching = asyncio.create_task(session.attach(connection))
        while not session.is_attached:
            await asyncio.sleep(0)
        await session.detach()
        await check_all_failed({"attach": attaching})
        await session.attach(connection)
        await session.sync()
        await session.close()


async def test_two_tasks_attach_a_session(url: str) -> None:
    async with connect(f"{url}?version=0-10", reconnect=None) as connection:
        session = await connection.session(timeout_s=60)
        await session.detach()
        connection._ready_event.clear()  # Both wait for the connection.
        one, two = (asyncio.create_task(session.attach(connection)) for _ in range(2))
        await asyncio.sleep(0)
        connection._ready_event.set()
        with pytest.raises(UsageError):
            await two
        await one
        await session.sync()
        await session.close()


async def test_a_timeout_that_was_asked_for_later_outlives_a_restart(
    headrace_process: ChildBroker,
) -> None:
    async with connect(f"{headrace_process.url}?version=0-10", reconnect=None) as connection:
        session = await connection.session()
        await session.request_timeout(600)
    headrace_process.restart()
    async with connect(f"{headrace_process.url}?version=0-10", reconnect=None) as second:
        await session.attach(second)
        await session.call(QueueDeclare(queue="q"))
        await session.detach()
        await session.attach(second)
        await session.sync()
        await session.close()


async def test_a_session_that_is_taken_by_force_ends_its_waits(url: str, name: Name) -> None:
    versioned = f"{url}?version=0-10"
    async with connect(versioned) as one, connect(versioned) as two:
        session = await one.session(name("s"), timeout_s=60)
        await session.call(QueueDeclare(queue=name("q")))
        subscription = await session.subscribe(name("q"))
        tasks = await start_waits(
            {"receive": subscription.receive(), "next_command": session.next_command()}
        )
        await two.session(name("s"), timeout_s=60, force=True)
        await check_all_failed(tasks)


@pytest.mark.parametrize("orderly", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize("left", ["commands", "outcomes", "nothing"])
async def test_the_broker_is_restarted(
    headrace_process: ChildBroker, orderly: bool, left: str
) -> None:
    """The broker has forgotten the session: its owner hears of each command, and it works anew.

    `left` is what the broker has not said of the last commands: that they are complete, only what
    became of them, or nothing.
    """
    versioned = f"{headrace_process.url}?version=0-10"
    connection = await connect(versioned, reconnect=None)
    session = await connection.session("s", timeout_s=600)
    await session.call(QueueDeclare(queue="q", durable=True))
    for _ in range(20):
        await session.transfer("before", "q")
    subscription = await session.subscribe("q")
    await subscription.set_flow_mode(FlowMode.CREDIT)
    await subscription.flow(5)
    transfers = [await subscription.receive(PATIENCE_S) for _ in range(5)]
    await session.accept(*transfers[:-1])
    await session.tx_select()
    await session.tx_commit()
    tasks: Tasks = {"receive": asyncio.ensure_future(subscription.receive())}
    tasks["next_command"] = asyncio.ensure_future(session.next_command())
    if left != "nothing":
        deafen(connection)
        following = session._machine.sent.next_id
        tasks["transfer"] = asyncio.ensure_future(session.transfer("under way", "q"))
        tasks["query"] = asyncio.ensure_future(session.query_queue("q"))
        await asyncio.sleep(0)
        if left == "outcomes":
            session._machine.sent.peer_completed(following, session._machine.sent.next_id - 1)
    await asyncio.sleep(0)
    if orderly:
        headrace_process.restart()
    else:
        headrace_process.kill()
        headrace_process.start()
    while session.is_attached:
        await asyncio.sleep(0)
    async with connect(f"{headrace_process.url}?version=0-10", reconnect=None) as second:
        async with asyncio.timeout(PATIENCE_S):
            await session.attach(second)
            assert session.timeout_s == 600
            await check_all_failed(tasks)
            # The id and the destination may be another's now.
            for call in (session.accept(transfers[-1]), subscription.flow(1), subscription.stop()):
                with pytest.raises(ConnectionLost):
                    await call
            for _ in range(3):
                await session.transfer("after", "q")
            assert await session.query_queue("q") is not None
            async with await session.subscribe("q", subscription.destination) as again:
                await again.flow(3)
                for _ in range(3):
                    await session.accept(await again.receive(PATIENCE_S))
            await session.detach()
            await session.attach(second)
            await session.transfer("again", "q")
            await session.close()


# --- Channels -------------------------------------------------------------------------------------


async def channel_waits(channel: Channel, queue: str) -> Tasks:
    """Begin every wait that a channel has."""
    consumer = channel.consume(queue)
    await consumer.start()
    deafen(channel.connection)  # type: ignore[arg-type]
    return await start_waits(
        {
            "get": channel.get(queue),
            "declare_queue": channel.declare_queue(queue),
            "declare_exchange": channel.declare_exchange("amq.fanout", "fanout"),
            "bind_queue": channel.bind_queue(queue, "amq.fanout"),
            "purge_queue": channel.purge_queue(queue),
            "publish": channel.publish("a", queue),
            "publish_many": channel.publish_many(["a", "b"], queue),
            "qos": channel.qos(5),
            "recover": channel.recover(),
            "start": channel.consume(queue).start(),
            "receive": consumer.receive(),
            "next_method": channel.next_method(),
        }
    )


def channel_lost(channel: Channel, connection: Connection, link: Any) -> None:
    lose_socket(link)


def connection_closed(channel: Channel, connection: Connection, link: Any) -> None:
    link.fail(ConnectionClosed(320, "the broker stops"))


def protocol_broken(channel: Channel, connection: Connection, link: Any) -> None:
    link.fail(ProtocolViolation("something was wrong"))


def channel_closed(channel: Channel, connection: Connection, link: Any) -> None:
    close = ChannelClose(reply_code=404, reply_text="no queue", class_id=50, method_id=10)
    connection.link_method(channel.number, close)


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
@pytest.mark.parametrize("end", [channel_lost, connection_closed, protocol_broken, channel_closed])
@pytest.mark.parametrize("reconnect", [None, Reconnect(delay_s=0.01)], ids=["once", "reconnecting"])
async def test_waits_of_a_channel(
    url: str, name: Name, version: str, end: Any, reconnect: Reconnect | None
) -> None:
    """A consumer continues after a reconnection; all other waits fail."""
    connection = await connect(f"{url}?version={version}", reconnect=reconnect)
    channel = await connection.channel()
    queue = name("q")
    await channel.declare_queue(queue, durable=False)
    tasks = await channel_waits(channel, queue)
    link = connection._link
    end(channel, connection, link)
    if reconnect is not None and end in (channel_lost, connection_closed):
        receiving = tasks.pop("receive")
        await check_all_failed(tasks)
        await channel.publish("b", queue)
        assert (await receiving).text() in "ab"
    else:
        await check_all_failed(tasks)
        if end is channel_closed:
            with pytest.raises(NotFound):
                await channel.qos(1)
            assert link is not None
            link.abort()
    await connection.close()


@pytest.mark.parametrize("end", [channel_lost, connection_closed, channel_closed])
async def test_a_commit(url: str, name: Name, end: Any) -> None:
    connection = await connect(url, reconnect=None)
    channel = await connection.channel()
    transaction = await channel.transaction().__aenter__()
    link = deafen(connection)
    tasks = await start_waits({"commit": transaction.__aexit__(None, None, None)})
    end(channel, connection, link)
    await check_all_failed(tasks)
    link.abort()
    await connection.close()
