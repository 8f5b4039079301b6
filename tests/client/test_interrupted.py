# SPDX-License-Identifier: Apache-2.0
"""Where a message is after a block or a wait of a client ended before its time.

Each context manager and each wait, by the way it ends: an error of the program, a cancelled task,
Ctrl-C, `asyncio.timeout` around it, the end of the interpreter, a generator that is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Channel, ChannelClosed, blocking, connect
from headrace.client.blocking import loop_thread
from headrace.client.blocking_pipeline import Sink as BlockingSink
from headrace.client.blocking_pipeline import Stage as BlockingStage
from headrace.client.blocking_publisher import Publisher as BlockingPublisher
from headrace.client.publisher import Publisher
from headrace.client.staging import Sink, Stage
from headrace.protocol.codec_0_10 import QueueDeclare
from support.endings import ENDS, After, cancel_once_asked, interrupted, leave, leave_blocking
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from headrace.client import Session
    from headrace.client.channel.delivery import Delivery
    from headrace.client.staging import Staged

Name = Callable[[str], str]

READY, DEAD, GONE, UNACKED = "ready", "dead letter", "gone", "unacked"


# --- Blocks of asyncio ----------------------------------------------------------------------------


async def declare_with_dead_letters(channel: Channel, name: Name) -> tuple[str, str]:
    """Declare a queue with one message, and the queue of its dead letters."""
    queue, dead = name("q"), name("dead")
    arguments: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    await channel.declare_queue(dead, durable=False)
    await channel.declare_queue(queue, durable=False, arguments=arguments)
    await channel.publish("a", queue)
    return queue, dead


async def locate_message(channel: Channel, queue: str, dead: str) -> str:
    """Return where the message is, after the broker has handled all methods of the channel."""
    await channel.qos(0)  # Behind an answer that is still on its way, and what is sent for it.
    if (await channel.declare_queue(queue, passive=True)).message_count:
        return READY
    return DEAD if (await channel.declare_queue(dead, passive=True)).message_count else UNACKED


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("error", DEAD),
        ("cancellation", READY),
        ("timeout", READY),
        ("KeyboardInterrupt", READY),
        ("SystemExit", READY),
        ("GeneratorExit", READY),
    ],
)
async def test_a_message_that_is_processed(
    url: str, name: Name, version: str, end: str, expected: str
) -> None:
    async with connect(f"{url}?version={version}") as connection:
        async with connection.channel() as channel:
            queue, dead = await declare_with_dead_letters(channel, name)
            delivery = await channel.get(queue)
            assert delivery is not None
            await leave(end, delivery.process())
            assert await locate_message(channel, queue, dead) == expected


async def test_a_processed_message_of_a_closed_channel_raises_the_error_of_the_block(
    url: str, name: Name
) -> None:
    async with connect(url) as connection:
        for error in (ZeroDivisionError, KeyboardInterrupt):
            channel = await connection.channel()
            queue, _ = await declare_with_dead_letters(channel, name)
            delivery = await channel.get(queue)
            assert delivery is not None
            with pytest.raises(error):  # noqa: PT012
                async with delivery.process():
                    await channel.close()
                    raise error
            async with connection.channel() as other:
                assert await other.delete_queue(queue) == 1


async def test_a_worker_that_fails_leaves_the_messages_of_the_others(url: str, name: Name) -> None:
    """In a TaskGroup the failure of one task cancels the others."""
    async with connect(url) as connection, connection.channel() as channel:
        queue, dead = await declare_with_dead_letters(channel, name)
        await channel.publish_many(["b", "c"], queue)
        deliveries = [await channel.get(queue) for _ in range(3)]
        at_work = asyncio.Barrier(3)

        async def work(delivery: Delivery | None) -> None:
            assert delivery is not None
            async with delivery.process():
                await at_work.wait()
                if delivery.text() == "b":
                    raise ZeroDivisionError
                await asyncio.get_running_loop().create_future()

        with pytest.raises(ExceptionGroup):  # noqa: PT012
            async with asyncio.TaskGroup() as group:
                for delivery in deliveries:
                    group.create_task(work(delivery))
        assert (await channel.declare_queue(queue, passive=True)).message_count == 2
        assert (await channel.declare_queue(dead, passive=True)).message_count == 1


@pytest.mark.parametrize("end", ENDS)
async def test_blocks_that_hold_messages(url: str, name: Name, end: str) -> None:
    """Buffered messages are requeued at once, received ones with the close of the channel."""
    async with connect(url) as connection, connection.channel() as observer:
        queue, dead = await declare_with_dead_letters(observer, name)
        await observer.publish_many(["b", "c"], queue)
        async with connection.channel() as channel:
            block = After(channel.consume(queue), lambda consumer: consumer.receive())
            await leave(end, block)
            assert (await channel.declare_queue(queue, passive=True)).message_count == 2
        assert (await observer.declare_queue(queue, passive=True)).message_count == 3

        async def get(channel_with_message: Any) -> None:
            own = (
                channel_with_message
                if isinstance(channel_with_message, Channel)
                else await channel_with_message.channel()
            )
            assert await own.get(queue) is not None

        for opening in (connection.channel(), connect(url)):
            await leave(end, After(opening, get))
            assert (await observer.declare_queue(queue, passive=True)).message_count == 3
        assert (await observer.declare_queue(dead, passive=True)).message_count == 0


@pytest.mark.parametrize("end", ENDS)
async def test_transactions(url: str, name: Name, end: str) -> None:
    """Every exception rolls the transaction back; the next one of the channel works."""
    async with connect(url) as connection, connection.channel() as observer:
        queue, _ = await declare_with_dead_letters(observer, name)
        async with connection.channel() as channel:
            publish = lambda _: channel.publish("b", queue)  # noqa: E731
            await leave(end, After(channel.transaction(), publish))
            count = 2 if end == "none" else 1
            assert (await observer.declare_queue(queue, passive=True)).message_count == count
            async with channel.transaction():
                await channel.publish("c", queue)
            assert (await observer.declare_queue(queue, passive=True)).message_count == count + 1


@pytest.mark.parametrize("end", ENDS)
async def test_subscriptions_of_sessions(url: str, name: Name, end: str) -> None:
    """Buffered transfers are released at once, received ones with the end of the session."""
    queue = name("q")
    async with connect(f"{url}?version=0-10") as connection, connection.session() as observer:
        await observer.call(QueueDeclare(queue=queue))
        for body in "abc":
            await observer.transfer(body, queue)
        async with connection.session() as session:
            subscription = await session.subscribe(queue)

            await subscription.flow(2)
            await leave(end, After(subscription, lambda _: subscription.receive()))
            assert await count_ready(observer, queue) == 2
        assert await count_ready(observer, queue) == 3


@pytest.mark.parametrize("timeout_s", [0, 60])
@pytest.mark.parametrize("end", ENDS)
async def test_sessions_that_hold_messages(url: str, name: Name, end: str, timeout_s: int) -> None:
    """A received message is requeued at once, even if the broker would keep the session."""
    queue = name("q")
    async with connect(f"{url}?version=0-10") as connection, connection.session() as observer:
        await observer.call(QueueDeclare(queue=queue))
        await observer.transfer("a", queue)

        async def receive(session: Session) -> None:
            subscription = await session.subscribe(queue)
            await subscription.flow(1)
            await subscription.receive()
            await session.tx_select()
            await session.transfer("b", queue)

        await leave(end, After(connection.session(timeout_s=timeout_s), receive))
        assert await count_ready(observer, queue) == 1


@pytest.mark.parametrize("end", ENDS)
async def test_stages(url: str, name: Name, end: str) -> None:
    """Prepared messages are visible after the commit, however the stage ended."""
    async with connect(url) as connection, connection.channel() as channel:
        queue, _ = await declare_with_dead_letters(channel, name)
        sink = Sink(connection, name("sink"))
        await sink.begin("query")
        staged: list[Staged] = []

        async def prepare(stage: Stage) -> None:
            await stage.publish_many(["b"], queue)
            staged.append(await stage.prepare())

        publish = lambda stage: stage.publish_many(["c"], queue)  # noqa: E731
        for attempt, work in enumerate((prepare, publish)):
            stage = Stage(connection, sink.name, 0, 0, attempt, epoch=sink.epoch)
            await leave(end, After(stage, work))
        assert (await channel.declare_queue(queue, passive=True)).message_count == 1
        assert (await sink.commit(0, staged)).messages == 1
        assert (await channel.declare_queue(queue, passive=True)).message_count == 2


@pytest.mark.parametrize("end", ENDS)
async def test_publishers(url: str, name: Name, end: str) -> None:
    """Confirmed messages are in the queue once, and the next publisher continues after them."""
    async with connect(url) as connection, connection.channel() as channel:
        queue, _ = await declare_with_dead_letters(channel, name)
        publisher = Publisher(connection, name("p"))
        await leave(
            end,
            After(publisher, lambda channel_with_message: channel_with_message.publish("b", queue)),
        )
        async with publisher:
            await cancel_once_asked(asyncio.create_task(publisher.publish("c", queue)))
            await publisher.publish("d", queue)
            assert await publisher.last() == 2
        assert (await channel.declare_queue(queue, passive=True)).message_count == 4


async def count_ready(session: Session, queue: str) -> int:
    """Return the number of ready messages in the queue."""
    state = await session.query_queue(queue)
    assert state is not None
    return state.message_count or 0


# --- Waits of asyncio -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
@pytest.mark.parametrize("is_answered", [False, True], ids=["waiting", "answered"])
async def test_get(
    url: str, name: Name, version: str, is_answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message of a cancelled get is requeued."""
    async with connect(f"{url}?version={version}") as connection:
        async with connection.channel() as channel:
            queue, dead = await declare_with_dead_letters(channel, name)
            task = asyncio.create_task(channel.get(queue))
            if is_answered:  # In the turn of the loop in which it is cancelled.
                handle_reply = channel._calls.handle_reply

                def then_cancel(*answer: Any) -> None:
                    handle_reply(*answer)
                    task.cancel()

                monkeypatch.setattr(channel._calls, "handle_reply", then_cancel)
                with pytest.raises(asyncio.CancelledError):
                    await task
                monkeypatch.undo()
            else:
                await cancel_once_asked(task)
            assert await locate_message(channel, queue, dead) == READY
            delivery = await channel.get(queue)
            assert delivery is not None
            assert await delivery.ack()


async def test_consuming(url: str, name: Name) -> None:
    async with connect(url) as connection, connection.channel() as channel:
        queue, dead = await declare_with_dead_letters(channel, name)
        starting = channel.consume(queue)
        await cancel_once_asked(asyncio.create_task(starting.__aenter__()))
        assert await locate_message(channel, queue, dead) == READY
        async with channel.consume(queue) as consumer:
            assert await (await consumer.receive()).ack()
            await cancel_once_asked(asyncio.create_task(consumer.receive()))
            await channel.publish("b", queue)
            assert (await consumer.receive()).text() == "b"


async def test_cancelling_a_consumer(url: str, name: Name) -> None:
    """Deliveries that arrive after a cancelled wait are requeued, and the connection stays."""
    async with connect(url) as connection, connection.channel() as channel:
        queue, _ = await declare_with_dead_letters(channel, name)
        async with connection.channel() as publisher:
            consumer = channel.consume(queue, prefetch=0)
            await (await consumer.receive()).ack()
            for body in range(200):
                await publisher.publish_soon(f"{body}", queue)
            await cancel_once_asked(asyncio.create_task(consumer.cancel()))
            await publisher.publish("last", queue)
        await channel.qos(0)
        assert (await channel.declare_queue(queue, passive=True)).message_count == 201
        assert connection.is_ready


async def test_publishes(url: str, name: Name) -> None:
    """A cancelled wait undoes neither a sent publish nor a sent commit."""
    async with connect(url) as connection, connection.channel() as channel:
        queue, _ = await declare_with_dead_letters(channel, name)
        await cancel_once_asked(asyncio.create_task(channel.publish("b", queue)))
        await channel.publish("c", queue)
        assert (await channel.declare_queue(queue, passive=True)).message_count == 3
        async with connection.channel() as transactional:
            transaction = await transactional.transaction().__aenter__()
            await transactional.publish("d", queue)
            committing = transaction.__aexit__(None, None, None)
            await cancel_once_asked(asyncio.create_task(committing))
            async with transactional.transaction():
                await transactional.publish("e", queue)
        assert (await channel.declare_queue(queue, passive=True)).message_count == 5


async def test_sessions(url: str, name: Name) -> None:
    queue = name("q")
    async with connect(f"{url}?version=0-10") as connection:
        async with connection.session() as session, connection.session() as observer:
            await session.call(QueueDeclare(queue=queue))
            await cancel_once_asked(asyncio.create_task(session.transfer("a", queue)))
            await session.transfer("b", queue)
            assert await count_ready(observer, queue) == 2
            browser = await session.subscribe(queue, acquire=False)
            await browser.flow(2)
            await browser.flush()
            transfers = [await browser.receive(), await browser.receive()]
            await cancel_once_asked(asyncio.create_task(session.acquire(*transfers)))
            await session.sync()
            await session.sync()
            assert await count_ready(observer, queue) == 2
            destination = name("d")
            subscribing = session.subscribe(queue, destination)
            await cancel_once_asked(asyncio.create_task(subscribing))
            subscription = await session.subscribe(queue, destination)
            await cancel_once_asked(asyncio.create_task(subscription.receive()))
            await subscription.flow(2)
            await subscription.flush()
            assert await count_ready(observer, queue) == 0
            await cancel_once_asked(asyncio.create_task(subscription.cancel()))
            await session.sync()
            await session.sync()
            assert await count_ready(observer, queue) == 2


@pytest.mark.parametrize("timeout_s", [0, 60])
async def test_closing_a_session(url: str, name: Name, timeout_s: int) -> None:
    """A cancelled close still closes: messages are requeued, and other waits end."""
    queue = name("q")
    async with connect(f"{url}?version=0-10") as connection, connection.session() as observer:
        await observer.call(QueueDeclare(queue=queue))
        await observer.transfer("a", queue)
        session = await connection.session(timeout_s=timeout_s)
        subscription = await session.subscribe(queue)
        await subscription.flow(2)
        await subscription.receive()
        receiving = asyncio.create_task(subscription.receive())
        await cancel_once_asked(asyncio.create_task(session.close()))
        with pytest.raises(ChannelClosed):
            await receiving
        assert session.is_closed
        while session.is_attached:
            await asyncio.sleep(0)
        assert await count_ready(observer, queue) == 1


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
async def test_opening_a_channel(url: str, version: str) -> None:
    """The broker keeps no channel of a cancelled opening."""
    async with connect(f"{url}?version={version}") as connection:
        opening = connection.channel()
        await cancel_once_asked(asyncio.create_task(opening.__aenter__()))
        while connection.channel_numbers:
            await asyncio.sleep(0)
        async with connection.channel() as channel:
            assert channel.number == 1


async def test_attaching_a_session(url: str, name: Name) -> None:
    """The broker keeps no session of a cancelled opening."""
    async with connect(f"{url}?version=0-10") as connection:
        opening = connection.session(name("s"), timeout_s=60)
        await cancel_once_asked(asyncio.create_task(opening.__aenter__()))
        async with connection.session(name("s")) as session:
            await session.sync()


# --- The blocking client --------------------------------------------------------------------------


def locate_message_blocking(channel: blocking.Channel, queue: str, dead: str) -> str:
    """Return where the message is, after the broker has handled all methods of the channel."""
    channel.qos(0)
    if channel.declare_queue(queue, passive=True).message_count:
        return READY
    return DEAD if channel.declare_queue(dead, passive=True).message_count else UNACKED


@pytest.fixture
def channel_with_message(url: str, name: Name) -> Iterator[tuple[blocking.Channel, str, str]]:
    """Yield a channel, a queue with one message, and the queue of its dead letters."""
    queue, dead = name("q"), name("dead")
    arguments: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    with blocking.connect(url, timeout_s=PATIENCE_S) as connection:
        with connection.channel() as channel:
            channel.declare_queue(dead, durable=False)
            channel.declare_queue(queue, durable=False, arguments=arguments)
            channel.publish("a", queue)
            yield channel, queue, dead


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("error", DEAD),
        ("timeout", DEAD),  # An error of the block: nothing here times out from outside.
        ("cancellation", READY),
        ("KeyboardInterrupt", READY),
        ("SystemExit", READY),
        ("GeneratorExit", READY),
    ],
)
def test_a_message_that_is_processed_without_asyncio(
    channel_with_message: tuple[blocking.Channel, str, str], end: str, expected: str
) -> None:
    channel, queue, dead = channel_with_message
    delivery = channel.get(queue)
    assert delivery is not None
    leave_blocking(end, delivery.process())
    assert locate_message_blocking(channel, queue, dead) == expected


@pytest.mark.parametrize("end", ENDS)
def test_blocks_without_asyncio(
    url: str, channel_with_message: tuple[blocking.Channel, str, str], end: str
) -> None:
    channel, queue, _ = channel_with_message
    channel.publish_many(["b", "c"], queue)

    @contextmanager
    def receiving() -> Iterator[None]:
        with channel.consume(queue) as consumer:
            consumer.receive()
            yield

    @contextmanager
    def of_a_connection() -> Iterator[None]:
        with blocking.connect(url) as connection, connection.channel() as other:
            assert other.get(queue) is not None
            yield

    @contextmanager
    def publishing() -> Iterator[None]:
        with blocking.connect(url) as connection, connection.channel() as other:
            with other.transaction():
                other.publish("d", queue)
                yield

    leave_blocking(end, receiving())
    assert channel.declare_queue(queue, passive=True).message_count == 2
    channel.recover()
    leave_blocking(end, of_a_connection())
    assert channel.declare_queue(queue, passive=True).message_count == 3
    leave_blocking(end, publishing())
    count = 4 if end == "none" else 3
    assert channel.declare_queue(queue, passive=True).message_count == count


@pytest.mark.parametrize("end", ENDS)
def test_subscriptions_without_asyncio(url: str, name: Name, end: str) -> None:
    queue = name("q")
    with blocking.connect(f"{url}?version=0-10") as connection, connection.session() as session:
        session.call(QueueDeclare(queue=queue))
        for body in "abc":
            session.transfer(body, queue)
        subscription = session.subscribe(queue)
        subscription.flow(2)
        subscription.receive()
        leave_blocking(end, subscription)
        state = session.query_queue(queue)
        assert state is not None
        assert state.message_count == 2


@pytest.mark.parametrize("end", ENDS)
def test_sessions_without_asyncio(
    url: str, channel_with_message: tuple[blocking.Channel, str, str], end: str
) -> None:
    channel, queue, _ = channel_with_message
    with blocking.connect(f"{url}?version=0-10") as connection:

        @contextmanager
        def receiving() -> Iterator[None]:
            with connection.session(timeout_s=60) as session:
                subscription = session.subscribe(queue)
                subscription.flow(1)
                subscription.receive()
                yield

        leave_blocking(end, receiving())
    assert channel.declare_queue(queue, passive=True).message_count == 1


@pytest.mark.parametrize("end", ENDS)
def test_stages_and_publishers_without_asyncio(
    url: str, name: Name, channel_with_message: tuple[blocking.Channel, str, str], end: str
) -> None:
    channel, queue, _ = channel_with_message

    with blocking.connect(url) as connection, BlockingSink(connection, name("sink")) as sink:
        sink.begin("query")

        @contextmanager
        def staging() -> Iterator[None]:
            with BlockingStage(connection, sink.name, 0, 0, 1, epoch=sink.epoch) as stage:
                stage.publish_many(["b"], queue)
                yield

        @contextmanager
        def publishing() -> Iterator[None]:
            with BlockingPublisher(connection, name("p")) as publisher:
                publisher.publish("c", queue)
                yield

        leave_blocking(end, staging())
        assert channel.declare_queue(queue, passive=True).message_count == 1
        leave_blocking(end, publishing())
        assert channel.declare_queue(queue, passive=True).message_count == 2


@pytest.mark.parametrize("when", ["unbegun", "waiting", "answered"])
def test_interrupted_waits(
    url: str,
    name: Name,
    channel_with_message: tuple[blocking.Channel, str, str],
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    channel, queue, dead = channel_with_message
    with interrupted(monkeypatch, when):
        channel.get(queue)
    assert locate_message_blocking(channel, queue, dead) == READY
    starting = channel.consume(queue)
    with interrupted(monkeypatch, when):
        starting.__enter__()
    assert locate_message_blocking(channel, queue, dead) == READY
    with channel.consume(queue) as consumer:
        with interrupted(monkeypatch, when):
            consumer.receive()
        assert consumer.receive().ack()
    channel.publish("b", queue)
    consumer = channel.consume(queue).__enter__()
    with interrupted(monkeypatch, when):
        consumer.receive()
    with interrupted(monkeypatch, when):
        consumer.__exit__()
    channel.qos(0)
    assert locate_message_blocking(channel, queue, dead) == READY
    with blocking.connect(url) as connection, connection.channel() as other:
        transaction = other.transaction().__enter__()
        other.publish("c", queue)
        with interrupted(monkeypatch, when):
            transaction.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        with other.transaction():
            other.publish("d", queue)
    assert channel.declare_queue(queue, passive=True).message_count == 2
    with blocking.connect(f"{url}?version=0-10") as connection, connection.session() as session:
        subscription = session.subscribe(queue)
        subscription.flow(2)
        subscription.flush()
        with interrupted(monkeypatch, when):
            subscription.receive()
        assert subscription.receive(PATIENCE_S).text() == "b"
        with interrupted(monkeypatch, when):
            subscription.cancel()
        session.sync()
        assert channel.declare_queue(queue, passive=True).message_count == 1


def test_a_thread_interrupted_in_a_handover_does_not_stop_the_next(
    channel_with_message: tuple[blocking.Channel, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, queue, _ = channel_with_message
    loop = loop_thread.LOOP.start()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    class Interrupting:
        call_soon_threadsafe = staticmethod(interrupt)

    delivery = channel.get(queue)
    assert delivery is not None
    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch:  # noqa: PT012
        patch.setattr(loop_thread.LOOP, "start", Interrupting)
        delivery.ack()
    assert loop_thread.LOOP.start() is loop
    channel.publish("b", queue)
    assert channel.declare_queue(queue, passive=True).message_count == 1
