# SPDX-License-Identifier: Apache-2.0
"""Sessions of 0-10 in their own terms, against our broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import pytest

from headrace.client import (
    ChannelClosed,
    ConnectionLost,
    Message,
    NotFound,
    Returned,
    Session,
    SessionFiles,
    UsageError,
    blocking,
    connect,
)
from headrace.protocol.codec_0_10 import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    FileProperties,
    QueueDeclare,
    QueueDelete,
    StreamConsume,
    StreamConsumeOk,
    StreamDeliver,
    StreamProperties,
    StreamPublish,
    UnknownStruct,
    Xid,
)
from headrace.spec.reply_0_10 import FlowMode, XaStatus
from headrace.wire.types_0_10 import BIT, UInt8, UInt64
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Names: TypeAlias = Callable[[str], str]


@asynccontextmanager
async def session_on(url: str, **options: Any) -> AsyncIterator[Session]:
    """Yield a session on a connection of its own."""
    async with connect(f"{url}?version=0-10", reconnect=None) as connection:
        async with connection.session(**options) as session:
            yield session


async def test_queries(url: str, name: Names) -> None:
    queue = name("q")
    async with session_on(url) as session:
        assert await session.query_queue(queue) is None
        assert await session.query_exchange(queue) is None
        await session.call(QueueDeclare(queue=queue, durable=True))
        state = await session.query_queue(queue)
        assert state is not None
        assert (state.queue, state.durable, state.message_count) == (queue, True, 0)
        topic = await session.query_exchange("amq.topic")
        assert topic is not None
        assert topic.type == "topic"
        bound = await session.query_bound("amq.topic", queue, "key")
        assert bound.key_not_matched
        await session.call(ExchangeBind(queue=queue, exchange="amq.topic", binding_key="key"))
        bound = await session.query_bound("amq.topic", queue, "key")
        assert not bound.queue_not_matched
        assert not bound.key_not_matched
        assert (await session.query_bound("nowhere", queue)).exchange_not_found
        await session.call(QueueDelete(queue=queue))


@pytest.mark.rule("0-10/s079", "0-10/s082", "0-10/s226", "0-10/s231")
async def test_browse_acquire_release_reject(url: str, name: Names) -> None:
    queue = name("q")
    async with session_on(url) as session:
        await session.call(QueueDeclare(queue=queue))
        for body in ("a", "b", "c"):
            await session.transfer(body, queue)
        async with await session.subscribe(queue, acquire=False) as browser:
            await browser.flow(10)
            await browser.flush()
            transfers = [await browser.receive(PATIENCE_S) for _ in range(3)]
            assert [each.text() for each in transfers] == ["a", "b", "c"]
            assert not any(each.acquired for each in transfers)
            for settle in (session.accept, session.reject):
                with pytest.raises(UsageError, match="acquired first"):
                    await settle(transfers[0])
            async with session_on(url) as other:
                for settle in (other.accept, other.reject, other.release, other.acquire):  # type: ignore[assignment]
                    with pytest.raises(UsageError, match="another session"):
                        await settle(transfers[0])
            had = await session.acquire(*transfers[:2])
            assert had == transfers[:2]
            async with session_on(url) as other:  # Acquired messages are not available to it.
                async with await other.subscribe(queue, acquire=False) as second:
                    await second.flow(10)
                    await second.flush()
                    assert (await second.receive(PATIENCE_S)).text() == "c"
            await session.accept(transfers[0])
            await session.release(transfers[1], set_redelivered=True)
        async with await session.subscribe(queue) as subscription:
            await subscription.flow(2)
            first = await subscription.receive(PATIENCE_S)
            assert (first.text(), first.redelivered) == ("b", True)
            await session.reject(first, text="no")
            await session.accept(await subscription.receive(PATIENCE_S))
        state = await session.query_queue(queue)
        assert state is not None
        assert state.message_count == 0
        await session.call(QueueDelete(queue=queue))


async def test_credit_and_window(url: str, name: Names) -> None:
    queue = name("q")
    async with session_on(url) as session:
        await session.call(QueueDeclare(queue=queue))
        for n in range(6):
            await session.transfer(f"{n}", queue)
        async with await session.subscribe(queue, accept=False) as subscription:
            await subscription.set_flow_mode(FlowMode.CREDIT)
            await subscription.flow(2)
            assert [(await subscription.receive(PATIENCE_S)).text() for _ in range(2)] == ["0", "1"]
            await subscription.flush()  # In credit mode an accept returns no credit.
            assert subscription.receive_nowait() is None
            await subscription.flow(1)
            assert (await subscription.receive(PATIENCE_S)).text() == "2"
            await subscription.stop()
        async with await session.subscribe(queue, window=True) as subscription:
            await subscription.flow(1)
            one = await subscription.receive(PATIENCE_S)
            await session.sync()
            assert subscription.receive_nowait() is None
            await session.accept(one)  # In window mode an accept returns credit.
            assert (await subscription.receive(PATIENCE_S)).text() == "4"
        await session.call(QueueDelete(queue=queue))


@pytest.mark.rule("0-10/s092")
async def test_a_destination_is_used_once(url: str, name: Names) -> None:
    queue = name("q")
    async with session_on(url) as session:
        await session.call(QueueDeclare(queue=queue))
        async with await session.subscribe(queue, "d"):
            with pytest.raises(UsageError, match="in use"):
                await session.subscribe(queue, "d")
        await session.call(QueueDelete(queue=queue))


async def test_unroutable_messages_are_rejected(url: str, name: Names) -> None:
    async with session_on(url) as session:
        with pytest.raises(Returned) as returned:
            await session.transfer("x", name("nobody"), discard_unroutable=False)
        assert returned.value.message.body == b"x"
        await session.transfer("x", name("nobody"))


async def test_headers_of_every_type_come_back(url: str, name: Names) -> None:
    queue = name("q")
    headers: dict[str, Any] = {
        "u8": UInt8(5),
        "u64": UInt64(5),
        "bit": BIT,
        "uuid": UUID(int=9),
        "b": b"\xff",
    }
    extra = UnknownStruct((99, 9), b"opaque")
    async with session_on(url) as session:
        await session.call(QueueDeclare(queue=queue))
        await session.transfer(Message(b"", headers=headers), queue, extra=[extra])
        async with await session.subscribe(queue) as subscription:
            await subscription.flow(1)
            transfer = await subscription.receive(PATIENCE_S)
            assert transfer.headers == headers
            assert [type(value) for value in transfer.headers.values()] == [
                type(value) for value in headers.values()
            ]
            assert extra in transfer.structs
            await session.accept(transfer)
        await session.call(QueueDelete(queue=queue))


async def test_an_error_ends_the_session_alone(url: str, name: Names) -> None:
    async with connect(f"{url}?version=0-10", reconnect=None) as connection:
        async with connection.session() as other, connection.session() as session:
            with pytest.raises(NotFound) as failed:
                await session.call(ExchangeDelete(exchange=name("missing")))
            assert failed.value.method == ExchangeDelete.CODE
            assert failed.value.field_index == 0
            assert session.is_closed
            with pytest.raises(NotFound):
                await session.sync()
            await other.sync()


@pytest.mark.rule("0-10/s103", "0-10/s105", "0-10/s107", "0-10/s108")
async def test_transactions(url: str, name: Names) -> None:
    queue = name("q")
    async with session_on(url) as session:
        await session.call(QueueDeclare(queue=queue))
        for act in (session.tx_commit, session.tx_rollback):
            with pytest.raises(UsageError, match="not selected"):
                await act()
        await session.tx_select()
        with pytest.raises(UsageError, match="already"):
            await session.tx_select()
        with pytest.raises(UsageError, match="explicitly"):
            await session.subscribe(queue, accept=False)
        await session.transfer("dropped", queue, accept=False)
        await session.tx_rollback()
        await session.transfer("kept", queue, accept=False)
        await session.tx_commit()
        state = await session.query_queue(queue)
        assert state is not None
        assert state.message_count == 1
        await session.call(QueueDelete(queue=queue))


@pytest.mark.rule("0-10/s104")
async def test_a_session_has_one_kind_of_transactions(url: str) -> None:
    async with session_on(url) as session:
        with pytest.raises(UsageError, match="not selected for dtx"):
            await session.dtx_start(None)  # type: ignore[arg-type]  # Not looked at.
        await session.tx_select()
        with pytest.raises(UsageError, match="transactions of its own"):
            await session.dtx_select()


async def test_a_session_outlives_its_connection(url: str, name: Names) -> None:
    queue = name("q")
    versioned = f"{url}?version=0-10"
    first = await connect(versioned, reconnect=None)
    session = await first.session(name("s"), timeout_s=60)
    assert session.timeout_s == 60
    await session.call(QueueDeclare(queue=queue))
    subscription = await session.subscribe(queue, window=True)
    await subscription.flow(10)
    assert first._link is not None
    first._link.abort()
    while session.is_attached:
        await asyncio.sleep(0)
    waiting = asyncio.ensure_future(session.transfer("sent meanwhile", queue))
    await asyncio.sleep(0)
    async with connect(versioned, reconnect=None) as second:
        await session.attach(second)
        await waiting
        transfer = await subscription.receive(PATIENCE_S)
        assert transfer.text() == "sent meanwhile"
        await session.accept(transfer)
        with pytest.raises(UsageError, match="attached already"):
            await session.attach(second)
        await session.detach()
        await session.attach(second)
        await subscription.cancel()
        await session.call(QueueDelete(queue=queue))
        await session.close()
        with pytest.raises(ChannelClosed, match="closed by this program"):
            await session.sync()


async def test_without_a_timeout_it_ends_with_its_connection(url: str) -> None:
    connection = await connect(f"{url}?version=0-10", reconnect=None)
    session = await connection.session()
    assert connection._link is not None
    connection._link.abort()
    while not session.is_closed:
        await asyncio.sleep(0)
    with pytest.raises(ConnectionLost):
        await session.sync()


async def test_a_session_taken_by_force(url: str, name: Names) -> None:
    versioned = f"{url}?version=0-10"
    async with connect(versioned, reconnect=None) as one, connect(versioned) as two:
        session = await one.session(name("s"))
        with pytest.raises(ChannelClosed, match="SESSION_BUSY"):
            await two.session(name("s"))
        taken = await two.session(name("s"), force=True)
        await taken.sync()
        while not session.is_closed:
            await asyncio.sleep(0)


async def test_an_alternate_exchange_gets_what_is_rejected(url: str, name: Names) -> None:
    queue, spare, exchange = name("q"), name("spare"), name("x")
    async with session_on(url) as session:
        await session.call(ExchangeDeclare(exchange=exchange, type="fanout"))
        await session.call(QueueDeclare(queue=spare))
        await session.call(ExchangeBind(queue=spare, exchange=exchange, binding_key=""))
        await session.call(QueueDeclare(queue=queue, alternate_exchange=exchange))
        await session.transfer("bad", queue)
        async with await session.subscribe(queue) as subscription:
            await subscription.flow(1)
            await session.reject(await subscription.receive(PATIENCE_S))
        state = await session.query_queue(spare)
        assert state is not None
        assert state.message_count == 1
        for each in (queue, spare):
            await session.call(QueueDelete(queue=each))


async def test_sessions_need_0_10(url: str) -> None:
    async with connect(url, reconnect=None) as connection:
        with pytest.raises(UsageError, match="version=0-10"):
            await connection.session()


@pytest.mark.rule("0-10/s073", "0-10/s074")
async def test_every_message_has_an_id_of_its_own(url: str, name: Names) -> None:
    queue = name("q")
    async with session_on(url) as session:
        await session.call(QueueDeclare(queue=queue))
        for _ in range(20):
            await session.transfer("x", queue)
        await session.transfer(Message(b"y", message_id=str(UUID(int=7))), queue)
        async with await session.subscribe(queue, accept=False) as subscription:
            await subscription.flow(100)
            ids = [(await subscription.receive(PATIENCE_S)).message_id for _ in range(21)]
        assert len(set(ids)) == 21
        assert ids[-1] == str(UUID(int=7))
        assert all(UUID(each).version == 4 for each in ids[:-1] if each)
        await session.call(QueueDelete(queue=queue))


@pytest.mark.rule("0-10/s213", "0-10/s216")
async def test_files(url: str, name: Names) -> None:
    queue = name("files")
    body = bytes(range(256)) * 1000
    properties = FileProperties(content_type="image/png", filename="picture.png")
    async with session_on(url) as session:
        await session.call(QueueDeclare(queue=queue))
        files = SessionFiles(session)
        await files.qos(2)
        assert await files.publish(body, queue, properties=properties) == 0
        tag = await files.consume(queue)
        assert tag
        delivery = await files.receive()
        assert (delivery.body, delivery.routing_key) == (body, queue)
        assert delivery.properties == properties
        await files.publish(b"", queue)  # While other files arrive.
        await files.reject(delivery, requeue=False)
        empty = await files.receive()
        assert empty.body == b""
        await files.ack(empty)
        await files.cancel(tag)
        await session.call(QueueDelete(queue=queue))


async def test_streams_of_the_multimedia_class(url: str, name: Names) -> None:
    queue = name("stream")
    sent = StreamProperties(content_type="audio/x", priority=7)
    async with session_on(url) as session:
        await session.call(QueueDeclare(queue=queue))
        await session.call(StreamConsume(queue=queue, consumer_tag="s"))
        assert isinstance((await session.next_command())[0], StreamConsumeOk)
        await session.call(StreamPublish(routing_key=queue), headers=[sent], body=b"frame")
        command, headers, body = await session.next_command()
        assert isinstance(command, StreamDeliver)
        assert (command.queue, headers, body) == (queue, [sent], b"frame")
        await session.call(QueueDelete(queue=queue))


def test_blocking_sessions(url: str, name: Names) -> None:
    queue = name("q")
    with blocking.connect(f"{url}?version=0-10", reconnect=None) as connection:
        with connection.session(name("s"), timeout_s=30) as session:
            assert session.timeout_s == 30
            assert session.is_attached
            session.call(QueueDeclare(queue=queue))
            session.transfer("one", queue)
            session.transfer("two", queue)
            with session.subscribe(queue, window=True) as subscription:
                subscription.flow(1)
                first = subscription.receive(PATIENCE_S)
                session.release(first)
                redelivery = subscription.receive(PATIENCE_S)
                assert {first.text(), redelivery.text()} <= {"one", "two"}
                session.accept(redelivery)
                subscription.stop()
                while subscription.receive_nowait() is not None:
                    pass
                with pytest.raises(TimeoutError):
                    subscription.receive(0.05)
            session.detach()
            assert not session.is_attached
            session.attach(connection)
            assert session.query_exchange("amq.direct") is not None
            assert session.query_bound("amq.direct", queue, "x").key_not_matched
            session.tx_select()
            session.tx_commit()
            session.tx_rollback()
            session.sync()
            session.call(QueueDelete(queue=queue))
        assert session.is_closed


async def test_distributed_transactions(url: str, name: Names) -> None:
    queue = name("q")
    xid = Xid(format=1, global_id=name("g").encode(), branch_id=b"b")
    async with session_on(url) as session, session_on(url) as other:
        await other.call(QueueDeclare(queue=queue))
        await session.dtx_select()
        assert await session.dtx_start(xid) is XaStatus.XA_OK
        await session.dtx_set_timeout(xid, 300)
        assert await session.dtx_get_timeout(xid) == 300
        await session.transfer("committed", queue, accept=False)
        assert await session.dtx_end(xid) is XaStatus.XA_OK
        assert await session.dtx_prepare(xid) is XaStatus.XA_OK
        assert xid in await other.dtx_recover()
        state = await other.query_queue(queue)
        assert state is not None
        assert state.message_count == 0
        await other.dtx_select()
        assert await other.dtx_commit(xid) is XaStatus.XA_OK
        assert xid not in await other.dtx_recover()
        assert await session.dtx_start(xid) is XaStatus.XA_OK
        await session.transfer("undone", queue, accept=False)
        assert await session.dtx_end(xid, suspend=True) is XaStatus.XA_OK
        assert await session.dtx_start(xid, resume=True) is XaStatus.XA_OK
        await session.dtx_end(xid)
        assert await session.dtx_rollback(xid) is XaStatus.XA_OK
        state = await other.query_queue(queue)
        assert state is not None
        assert state.message_count == 1
        with pytest.raises(ChannelClosed):
            await session.dtx_forget(xid)
        await other.call(QueueDelete(queue=queue))
