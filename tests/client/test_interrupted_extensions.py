# SPDX-License-Identifier: Apache-2.0
"""Where a message is after a block or a wait ended before its time: what goes beyond a channel.

Leases, publishes and messages in bulk, files, and the message class of 0-9, as
`test_interrupted.py` has it for channels and sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Files, Messages, Reconnect, SessionFiles, blocking, connect
from headrace.client.blocking.bulk import BulkPublisher as BlockingBulk
from headrace.client.blocking_pipeline import Lease as BlockingLease
from headrace.client.bulk.consumer import BulkConsumer
from headrace.client.bulk.encode import Octets, encode_publishes
from headrace.client.bulk.publisher import BulkPublisher
from headrace.client.lease import Lease
from headrace.protocol.codec_0_10 import QueueDeclare
from support.endings import ENDS, After, cancel_after, leave, leave_blocking
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from headrace.client import Channel, Connection, Session
    from headrace.client.content_classes.message_class_0_9 import Reference

Name = Callable[[str], str]

# How many turns of the loop a call has before it is cancelled. Its request is sent in the first,
# or in a later one of a call that asks more than once.
TURNS = range(8)

early = pytest.mark.parametrize("version", ["0-8", "0-9"])
each_end = pytest.mark.parametrize("end", ENDS)


async def declare_with_messages(channel: Channel, queue: str, bodies: str) -> None:
    """Declare the queue, and publish a message for each letter."""
    await channel.declare_queue(queue, durable=True)
    if bodies:
        await channel.publish_many(list(bodies), queue)


async def count_ready(channel: Channel, queue: str) -> int:
    """Return the number of ready messages, after the broker has handled all methods sent."""
    return (await channel.declare_queue(queue, passive=True)).message_count


async def check_channels_closed(connection: Connection, *, but: int = 1) -> None:
    """Check that the connection has no other channels open."""
    async with connection.channel():  # After all pending methods.
        pass
    assert len(connection.channel_numbers) == but  # type: ignore[arg-type]


# --- Leases ---------------------------------------------------------------------------------------


async def bodies_of(lease: Lease, first: int, last: int) -> str:
    return "".join(
        [record.body.decode() async for batch in lease.read(first, last) for record in batch]
    )


@each_end
async def test_leases(url: str, name: Name, end: str) -> None:
    """Taken messages stay leased, and belong to the group's next owner."""
    async with connect(url) as connection, connection.channel() as channel:
        await declare_with_messages(channel, name("q"), "abc")

        async def take(lease: Lease) -> None:
            await lease.claim()
            assert (await lease.take(messages=2)).last == 2

        await leave(end, After(Lease(connection, name("q"), "etl", owner="one"), take))
        await check_channels_closed(connection)
        async with Lease(connection, name("q"), "etl", owner="two") as lease:
            state = await lease.claim(force=True)
            assert (state.settled, state.next, state.ready) == (0, 2, 1)
            reading = aclosing(lease.read(0, 2, batch_max=1))
            await leave(end, After(reading, anext))
            assert await bodies_of(lease, 0, 2) == "ab"
            assert await lease.release() == 2
        assert await count_ready(channel, name("q")) == 3


@pytest.mark.parametrize("turns", TURNS)
async def test_calls_of_a_lease(url: str, name: Name, turns: int) -> None:
    """A cancelled and repeated call has the outcome of one call."""
    async with connect(url) as connection, connection.channel() as channel:
        await declare_with_messages(channel, name("dead"), "")
        arguments: dict[str, Any] = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": name("dead"),
        }
        await channel.declare_queue(name("q"), durable=True, arguments=arguments)
        await channel.publish_many(list("abcd"), name("q"))
        async with Lease(connection, name("q"), "etl") as lease:

            async def twice(call: Callable[[], Coroutine[object, None, Any]]) -> Any:
                await cancel_after(turns, call())
                return await call()

            assert (await twice(lease.claim)).next == 0
            lease_range = await twice(lambda: lease.take(messages=3))
            assert (lease_range.first, lease_range.last) == (0, 3)
            assert await bodies_of(lease, 0, 3) == "abc"
            await twice(lambda: lease.reject(0, 3, [1]))
            assert await twice(lambda: lease.rejected(0, 3)) == [(1, 2)]
            settled = await twice(lambda: lease.settle(2, rejects=[1]))
            assert (settled.settled, settled.next) == (2, 3)
            await twice(lease.release)
            assert (await twice(lease.info)).leased == 0
            await twice(lease.leave)
        assert await count_ready(channel, name("q")) == 2
        assert await count_ready(channel, name("dead")) == 1
        await check_channels_closed(connection)


@each_end
def test_leases_and_bulk_without_asyncio(url: str, name: Name, end: str) -> None:
    with blocking.connect(url) as connection, connection.channel() as channel:
        channel.declare_queue(name("q"), durable=True)

        @contextmanager
        def leasing() -> Iterator[None]:
            with BlockingLease(connection, name("q"), "etl", owner="one") as lease:
                lease.claim()
                assert lease.take(messages=2).last == 2
                yield

        @contextmanager
        def publishing() -> Iterator[None]:
            with BlockingBulk(connection) as publisher:
                publisher.send(frames(publisher, name("q"), "abc"), 3)
                publisher.finish()
                yield

        leave_blocking(end, publishing())
        leave_blocking(end, leasing())
        with BlockingLease(connection, name("q"), "etl", owner="two") as lease:
            state = lease.claim(force=True)
            assert (state.settled, state.next, state.ready) == (0, 2, 1)


# --- In bulk --------------------------------------------------------------------------------------


def frames(publisher: BulkPublisher | BlockingBulk, queue: str, bodies: str) -> bytearray:
    octets, _ = encode_publishes(
        publisher.number,
        publisher.frame_max,
        Octets(b""),
        Octets(queue.encode()),
        Octets(b"\x10\x00\x02"),
        Octets.of(body.encode() for body in bodies),
        0,
        len(bodies),
        octets_max=1 << 20,
    )
    return octets


async def receive_all(channel: Channel, queue: str) -> str:
    """Receive all messages; return their bodies."""
    received = ""
    while (delivery := await channel.get(queue, no_ack=True)) is not None:
        received += delivery.text()
    return received


@each_end
async def test_publishes_in_bulk(url: str, name: Name, end: str) -> None:
    """Confirmed messages are in the queue, and the channel is closed."""
    async with connect(url) as connection, connection.channel() as channel:
        await declare_with_messages(channel, name("q"), "")

        async def publish(publisher: BulkPublisher) -> None:
            await publisher.send(frames(publisher, name("q"), "ab"), 2)
            await publisher.finish()

        await leave(end, After(BulkPublisher(connection), publish))
        await check_channels_closed(connection)
        assert await receive_all(channel, name("q")) == "ab"


@pytest.mark.parametrize("turns", TURNS)
async def test_opening_a_publisher_in_bulk(url: str, turns: int) -> None:
    """The broker keeps no channel of a cancelled opening."""
    async with connect(url) as connection:
        publisher = BulkPublisher(connection)
        await cancel_after(turns, publisher.__aenter__())
        await check_channels_closed(connection, but=0)


async def test_sending_in_bulk(url: str, name: Name) -> None:
    """Frames whose `send` was cancelled before they were sent are not counted."""
    async with connect(url) as connection, connection.channel() as channel:
        await declare_with_messages(channel, name("q"), "")
        async with BulkPublisher(connection) as publisher:
            await publisher.send(frames(publisher, name("q"), "a"), 1)
            await publisher.finish()
            flow = publisher._channel._flow  # type: ignore[union-attr]
            flow.clear()  # The state after channel.flow of the broker.
            sending = publisher.send(frames(publisher, name("q"), "b"), 1)
            await cancel_after(3, sending)
            flow.set()
            await publisher.send(frames(publisher, name("nowhere"), "c"), 1)
            await cancel_after(1, publisher.finish())
            await publisher.finish()
            assert list(publisher.failures) == [1]
            await publisher.send(frames(publisher, name("q"), "d"), 1)
            await publisher.finish()
        assert await receive_all(channel, name("q")) == "ad"


async def test_sending_in_bulk_again(url: str, name: Name, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled wait does not stop the resending of frames after a reconnection."""
    quick = Reconnect(delay_s=0.01)
    async with connect(url, reconnect=quick) as connection, connection.channel() as channel:
        await declare_with_messages(channel, name("q"), "")
        async with BulkPublisher(connection) as publisher:
            own: Any = publisher._channel
            old: Any = own._link
            monkeypatch.setattr(old, "send_frames", lambda _: None)  # The link drops the frames.
            for body in "abc":
                await publisher.send(frames(publisher, name("q"), body), 1)
            old._transport.abort()
            while own._link is old or own._link is None or not connection.is_ready:
                await asyncio.sleep(0)
            link: Any = own._link
            sent = link.send_frames

            def send_and_stop(octets: bytes) -> None:
                sent(octets)
                own._flow.clear()

            monkeypatch.setattr(link, "send_frames", send_and_stop)
            await cancel_after(3, publisher.finish())
            monkeypatch.setattr(link, "send_frames", sent)
            own._flow.set()
            await publisher.finish()
        assert await receive_all(channel, name("q")) == "abc"


@each_end
async def test_messages_in_bulk(url: str, name: Name, end: str) -> None:
    """Unacked messages are requeued, received or not."""
    async with connect(url) as connection, connection.channel() as channel:
        await declare_with_messages(channel, name("q"), "abc")

        @asynccontextmanager
        async def consuming() -> AsyncIterator[BulkConsumer]:
            consumer = BulkConsumer(connection, name("q"), 2)
            await consumer.start()
            try:
                yield consumer
            finally:
                await consumer.close()

        async def take(consumer: BulkConsumer) -> None:
            (message,) = await consumer.take(1, PATIENCE_S)
            consumer.ack_up_to(message.tag)
            assert len(await consumer.take(1, PATIENCE_S)) == 1

        await leave(end, After(consuming(), take))
        await check_channels_closed(connection)
        assert await receive_all(channel, name("q")) == "bc"


@pytest.mark.parametrize("turns", TURNS)
async def test_waits_for_messages_in_bulk(url: str, name: Name, turns: int) -> None:
    async with connect(url) as connection, connection.channel() as channel:
        await declare_with_messages(channel, name("q"), "ab")
        cancelled = BulkConsumer(connection, name("q"), 2)
        await cancel_after(turns, cancelled.start())
        await cancelled.close()
        await check_channels_closed(connection)
        assert await count_ready(channel, name("q")) == 2
        consumer = BulkConsumer(connection, name("q"), 2)
        await consumer.start()
        (first,) = await consumer.take(1, PATIENCE_S)
        (second,) = await consumer.take(1, PATIENCE_S)
        await cancel_after(turns, consumer.take(1, PATIENCE_S))
        await cancel_after(turns, consumer.ready())
        consumer.ack_up_to(second.tag)
        await channel.publish("c", name("q"))
        (third,) = await consumer.take(1, PATIENCE_S)
        assert (first.body, second.body, third.body) == (b"a", b"b", b"c")
        await cancel_after(max(1, turns), consumer.close())
        await check_channels_closed(connection)
        assert await count_ready(channel, name("q")) == 1


# --- Files ----------------------------------------------------------------------------------------


@early
@each_end
async def test_files(url: str, name: Name, version: str, end: str) -> None:
    """An unacked file is requeued when its channel closes."""
    async with connect(f"{url}?version={version}") as connection:
        async with connection.channel() as channel:
            await declare_with_messages(channel, name("q"), "")
            await Files(channel).publish(b"a", name("q"))

            async def receive(opened: Channel) -> None:
                files = Files(opened)
                await files.consume(name("q"))
                assert (await files.receive()).body == b"a"

            await leave(end, After(connection.channel(), receive))
            assert await count_ready(channel, name("q")) == 1


@early
@pytest.mark.parametrize("turns", TURNS)
async def test_calls_of_files(url: str, name: Name, version: str, turns: int) -> None:
    """A cancelled publish continues at its offset; an arrived file is received next."""
    async with connect(f"{url}?version={version}") as connection:
        async with connection.channel() as channel:
            await declare_with_messages(channel, name("q"), "")
            files = Files(channel)
            await cancel_after(turns, files.qos(5))
            await cancel_after(turns, files.consume(name("q"), "t"))
            await channel.qos(0)  # Behind it.
            await files.cancel("t")
            publishing = files.publish(b"long file", name("q"), identifier="i")
            await cancel_after(turns, publishing)
            await files.publish(b"b", name("q"))
            await files.consume(name("q"))
            received = []
            while not received or received[-1].body != b"b":
                file = await cancel_after(turns, files.receive())
                received.append(file or await files.receive())
                await files.ack(received[-1])
            assert [one.body for one in received] in ([b"b"], [b"long file", b"b"])
            await check_channels_closed(connection)


@each_end
async def test_files_of_sessions(url: str, name: Name, end: str) -> None:
    """An unacked file is requeued when its session ends."""
    async with connect(f"{url}?version=0-10") as connection, connection.session() as observer:
        await observer.call(QueueDeclare(queue=name("q"), durable=True))
        await SessionFiles(observer).publish(b"a", name("q"))

        async def receive(session: Session) -> None:
            files = SessionFiles(session)
            await files.consume(name("q"))
            assert (await files.receive()).body == b"a"

        await leave(end, After(connection.session(), receive))
        state = await observer.query_queue(name("q"))
        assert state is not None
        assert state.message_count == 1


@pytest.mark.parametrize("turns", TURNS)
async def test_calls_of_files_of_sessions(url: str, name: Name, turns: int) -> None:
    """The answer to a cancelled call does not answer the next call."""
    async with connect(f"{url}?version=0-10") as connection, connection.session() as session:
        await session.call(QueueDeclare(queue=name("q"), durable=True))
        files = SessionFiles(session)
        await cancel_after(turns, files.qos(5))
        await files.qos(7)
        await cancel_after(turns, files.consume(name("q"), "one"))
        assert await files.consume(name("q"), "two", no_ack=True) == "two"
        await session.sync()
        await files.cancel("one")
        # The broker has the first three bytes of this file, which are not part of another one.
        await cancel_after(turns, files.publish(b"long file", name("q"), identifier="i"))
        assert await files.publish(b"b", name("q")) == 0
        received = []
        while not received or received[-1].body != b"b":
            file = await cancel_after(turns, files.receive())
            received.append(file or await files.receive())
        assert [one.body for one in received] in ([b"b"], [b"long file", b"b"])


# --- The message class of 0-9 ---------------------------------------------------------------------


@each_end
async def test_messages_of_0_9(url: str, name: Name, end: str) -> None:
    """An unanswered transfer is requeued when its channel closes."""
    async with connect(f"{url}?version=0-9") as connection, connection.channel() as channel:
        await declare_with_messages(channel, name("q"), "a")

        async def receive(opened: Channel) -> None:
            messages = Messages(opened)
            await messages.consume(name("q"), "here")
            assert (await messages.receive()).body == b"a"

        await leave(end, After(connection.channel(), receive))
        assert await count_ready(channel, name("q")) == 1


@each_end
async def test_references(url: str, name: Name, end: str) -> None:
    """A body without a transfer is dropped; a sent transfer has all appended bytes."""
    async with connect(f"{url}?version=0-9") as connection, connection.channel() as channel:
        await declare_with_messages(channel, name("q"), "")
        messages = Messages(channel)

        async def append(reference: Reference) -> None:
            await reference.append(b"a")

        async def transfer(reference: Reference) -> None:
            await reference.append(b"b")
            await messages.transfer("", name("q"), reference=reference)

        await leave(end, After(await messages.open(), append))
        assert await count_ready(channel, name("q")) == 0
        await leave(end, After(await messages.open(), transfer))
        assert await receive_all(channel, name("q")) == "b"


@pytest.mark.parametrize("turns", TURNS)
async def test_calls_of_messages_of_0_9(url: str, name: Name, turns: int) -> None:
    async with connect(f"{url}?version=0-9") as connection, connection.channel() as channel:
        await declare_with_messages(channel, name("q"), "")
        messages = Messages(channel)
        await cancel_after(turns, messages.qos(5))
        await cancel_after(turns, messages.transfer("a", name("q")))
        await messages.transfer("b", name("q"))
        await cancel_after(turns, messages.open())
        reference = await messages.open()
        await reference.append(b"c")
        await cancel_after(turns, reference.checkpoint(name("i")))
        await messages.transfer("", name("q"), reference=reference)
        await cancel_after(turns, reference.close())
        await reference.close()
        await reference.close()
        await cancel_after(turns, messages.get(name("q"), "there"))
        await cancel_after(turns, messages.consume(name("q"), "here"))
        await channel.qos(0)  # Behind it.
        await messages.cancel("here")
        await messages.consume(name("q"), "here")
        received = ""
        while not received.endswith("c"):
            message = await cancel_after(turns, messages.receive()) or await messages.receive()
            received += message.body.decode()
            await messages.ok()
        assert received in ("bc", "abc")
