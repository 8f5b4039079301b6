# SPDX-License-Identifier: Apache-2.0
"""Handshake, heartbeats, blocking, TLS, and coming back after the connection was lost."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from headrace.client import (
    AuthenticationFailed,
    Blocked,
    ConfirmLost,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    ConsumerCancelled,
    Lost,
    Message,
    Nacked,
    NotFound,
    PreconditionFailed,
    Reconnect,
    Recovered,
    Unblocked,
    UsageError,
    connect,
)
from headrace.client.link.open import open_link
from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUnblocked,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    TxSelect,
    TxSelectOk,
)
from headrace.testing import LocalBroker
from support.brokers.scripted_broker import Peer, scripted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.client import Event
    from headrace.testing import ChildBroker

    Name = Callable[[str], str]

SOON = Reconnect(delay_s=0.001, delay_max_s=0.05)


class Events:
    """Records the events of a connection, and waits for them."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self._queue: asyncio.Queue[Event] = asyncio.Queue()

    def __call__(self, event: Event) -> None:
        self.seen.append(event)
        self._queue.put_nowait(event)

    async def next(self, kind: type) -> Event:
        event = await self._queue.get()
        assert isinstance(event, kind), event
        return event


async def refuse(peer: Peer) -> None:
    peer.hang_up()


async def test_the_handshake_says_who_we_are(name: Name) -> None:
    seen: deque[Any] = deque()

    async def script(peer: Peer) -> None:
        seen.extend(await peer.handshake(frame_max=8192, channel_max=10, heartbeat=33))

    async with scripted(script) as broker:
        url = broker.url.replace("guest:guest", "u%40x:p%3A") + "/v%2F1?heartbeat=44"
        async with connect(url, name="my program") as connection:
            assert connection.frame_max == 8192
            assert connection.channel_max == 10
            assert connection.heartbeat_s == 33
            assert connection.server_properties["product"] == "Scripted"
            assert connection.is_ready
    start_ok, tune_ok, opened = seen
    assert start_ok.mechanism == "PLAIN"
    assert start_ok.response == b"\0u@x\0p:"
    assert start_ok.client_properties["connection_name"] == "my program"
    assert start_ok.client_properties["capabilities"]["consumer_cancel_notify"] is True
    assert (tune_ok.frame_max, tune_ok.channel_max, tune_ok.heartbeat) == (8192, 10, 33)
    assert opened.virtual_host == "v/1"


@pytest.mark.parametrize(
    ("query", "offered", "agreed"),
    [
        ("", (0, 0, 0), (131072, 2047, 60)),
        ("", (1 << 20, 65535, 600), (131072, 2047, 60)),
        ("?frame_max=4096&channel_max=7&heartbeat=5", (131072, 2047, 60), (4096, 7, 5)),
        ("?heartbeat=0", (131072, 2047, 60), (131072, 2047, 0)),
    ],
)
async def test_limits_are_the_lower_of_both(
    query: str, offered: tuple[int, int, int], agreed: tuple[int, int, int]
) -> None:
    async def script(peer: Peer) -> None:
        frame_max, channel_max, heartbeat = offered
        _, tune_ok, _ = await peer.handshake(
            frame_max=frame_max, channel_max=channel_max, heartbeat=heartbeat
        )
        assert (tune_ok.frame_max, tune_ok.channel_max, tune_ok.heartbeat) == agreed

    async with scripted(script) as broker, connect(broker.url + query) as connection:
        assert connection.frame_max == agreed[0]


async def test_amqplain_when_that_is_what_is_offered() -> None:
    async def script(peer: Peer) -> None:
        start_ok, _, _ = await peer.handshake(mechanisms=b"AMQPLAIN")
        assert start_ok.mechanism == "AMQPLAIN"
        assert start_ok.response == b"\x05LOGINS\0\0\0\x05guest\x08PASSWORDS\0\0\0\x05guest"

    async with scripted(script) as broker, connect(broker.url):
        pass


async def test_wrong_password_and_missing_virtual_host(url: str) -> None:
    with pytest.raises(AuthenticationFailed, match="403 ACCESS_REFUSED") as caught:
        await connect(url.replace("guest:guest", "guest:wrong"))
    assert caught.value.code == 403
    assert "wrong" not in str(caught.value)
    with pytest.raises(ConnectFailed, match="vhost no-such-vhost not found") as failed:
        await connect(url.rpartition("/")[0] + "/no-such-vhost")
    assert failed.value.code == 530


async def test_a_port_without_a_broker() -> None:
    async with scripted(Peer.hung_up) as broker:
        port = broker.port
    with pytest.raises(ConnectFailed, match=f"cannot connect to amqp://127.0.0.1:{port}//"):
        await connect(f"amqp://guest:secret@127.0.0.1:{port}")


async def test_a_name_without_an_address() -> None:
    with pytest.raises(ConnectFailed, match="cannot connect"):
        await connect("amqp://broker.invalid")


async def test_attempts_and_several_brokers() -> None:
    async def accept(peer: Peer) -> None:
        await peer.handshake()

    async with scripted(refuse, refuse, accept) as broker:
        url = broker.url + "?retry_delay=0.001&connection_attempts="
        with pytest.raises(ConnectFailed):
            await connect(url + "2")
        async with connect(url + "2"):
            assert broker.connections == 3
    async with (
        scripted(refuse) as bad,
        scripted(accept) as good,
        connect([bad.url, good.url]) as connection,
    ):
        assert connection.address.startswith(f"amqp://127.0.0.1:{good.port}")
    with pytest.raises(UsageError):
        await connect([])


async def test_heartbeats_are_sent() -> None:
    done = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.handshake(heartbeat=1)
        await peer.wait_heartbeats(1)
        done.set()

    async with scripted(script) as broker, connect(broker.url):
        await done.wait()


async def test_a_silent_broker_is_given_up_after_two_heartbeats() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake(heartbeat=1)

    async with scripted(script) as broker, connect(broker.url, reconnect=None) as connection:
        channel = asyncio.ensure_future(_open(connection))
        with pytest.raises(ConnectionLost, match="silent for two heartbeats of 1 s"):
            await channel


async def _open(connection: object) -> object:
    return await connection.channel()  # type: ignore[attr-defined]


async def test_blocked_is_visible() -> None:
    events = Events()

    async def script(peer: Peer) -> None:
        await peer.handshake()
        peer.send(0, ConnectionBlocked(reason="low on memory"))
        await peer.expect(ChannelOpen)
        peer.send(0, ConnectionUnblocked())
        peer.send(1, ChannelOpenOk())

    async with scripted(script) as broker, connect(broker.url, on_event=events) as connection:
        assert await events.next(Blocked) == Blocked("low on memory")
        assert connection.blocked == "low on memory"
        await connection.channel()
        assert await events.next(Unblocked) == Unblocked()
        assert connection.blocked is None


async def test_a_broker_short_of_memory_blocks_and_goes_on(name: Name) -> None:
    events = Events()
    with LocalBroker(memory_max=1 << 20) as broker:
        async with connect(broker.url, on_event=events) as connection, connect(broker.url) as other:
            channel, drain = await connection.channel(), await other.channel()
            await channel.declare_queue(name("q"), durable=False)
            async with asyncio.TaskGroup() as group:
                bodies = (bytes(1 << 16) for _ in range(60))
                group.create_task(channel.publish_many(bodies, name("q")))
                blocked = await events.next(Blocked)
                assert blocked.reason == "low on memory"
                assert connection.blocked == "low on memory"
                async with drain.consume(name("q"), prefetch=10) as consumer:
                    for _ in range(60):
                        await (await consumer.receive()).ack()
            while connection.blocked:
                assert isinstance(await events._queue.get(), Blocked | Unblocked)


async def test_the_broker_closes_for_a_reason_that_stays() -> None:
    events = Events()

    async def script(peer: Peer) -> None:
        await peer.handshake()
        await peer.expect(ChannelOpen)
        peer.send(0, ConnectionClose(reply_code=530, reply_text="NOT_ALLOWED - user deleted"))
        await peer.expect(ConnectionCloseOk)

    async with scripted(script) as broker, connect(broker.url, on_event=events) as connection:
        with pytest.raises(ConnectionClosed, match="user deleted"):
            await connection.channel()
        lost = await events.next(Lost)
        assert lost.final
        assert str(lost.error) == "530 NOT_ALLOWED - user deleted"
        with pytest.raises(ConnectionClosed, match="user deleted"):
            await connection.channel()
        assert broker.connections == 1


async def test_the_broker_closes_at_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake()
        peer.send(0, ConnectionClose(reply_code=320, reply_text="CONNECTION_FORCED - shutdown"))

    async with scripted(script) as broker:
        with pytest.raises(ConnectFailed, match="320 CONNECTION_FORCED"):
            async with connect(broker.url, reconnect=None) as connection:
                await connection.channel()


async def test_both_sides_close_a_channel_at_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.expect(ChannelClose)
        peer.send_raw(
            bytes.fromhex("01 0001 0000000b 0014 0028 0194 00 0000 0000 ce".replace(" ", ""))
        )  # channel.close 404, as if it had been under way.
        await peer.expect(ChannelCloseOk)
        peer.send(1, ChannelCloseOk())

    async with scripted(script) as broker, connect(broker.url) as connection:
        channel = await connection.channel()
        await channel.close()


async def test_flow_pauses_publishing() -> None:
    resumed = False

    async def script(peer: Peer) -> None:
        nonlocal resumed
        await peer.greet()
        peer.send(1, ChannelFlow(active=False))
        assert not (await peer.expect(ChannelFlowOk)).active
        await peer.expect(QueueDeclare)
        peer.send(1, QueueDeclareOk(queue="q"))
        resumed = True
        peer.send(1, ChannelFlow(active=True))
        assert (await peer.expect(ChannelFlowOk)).active
        await peer.expect(BasicPublish)

    async with scripted(script) as broker, connect(broker.url) as connection:
        channel = await connection.channel(confirm=False)
        await channel.declare_queue("q")
        await channel.publish("a", "q")
        assert resumed


async def test_confirms_of_every_kind() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet(confirm=True)
        for _ in range(6):
            await peer.expect(BasicPublish)
        peer.send(1, BasicAck(delivery_tag=2))
        peer.send(1, BasicAck(delivery_tag=3, multiple=True))
        peer.send(1, BasicNack(delivery_tag=4))
        peer.send(1, BasicAck(delivery_tag=4))  # A second ack of a settled tag has no effect.
        peer.send(1, BasicAck(delivery_tag=0, multiple=True))

    async with scripted(script) as broker, connect(broker.url) as connection:
        channel = await connection.channel()
        outcomes = await asyncio.gather(
            *(channel.publish(f"{n}", "q") for n in range(1, 7)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [
            type(None), type(None), type(None), Nacked, type(None), type(None)
        ]  # fmt: skip
        assert isinstance(outcomes[3], Nacked)
        assert outcomes[3].message == Message(b"4")


async def test_the_number_of_unconfirmed_publishes_is_bounded() -> None:
    published = 0

    async def script(peer: Peer) -> None:
        nonlocal published
        await peer.greet(confirm=True)
        while published < 9:
            await peer.expect(BasicPublish)
            published += 1
            if published % 3 == 0:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await peer.next_event()
                peer.send(1, BasicAck(delivery_tag=published, multiple=True))

    async with scripted(script) as broker, connect(broker.url) as connection:
        channel = await connection.channel(unconfirmed_max=3)
        assert await channel.publish_many(["x"] * 9, "q") == 9


async def answer_topology(peer: Peer) -> list[object]:
    """Receive declarations up to another method; return the declarations and that method."""
    seen: list[object] = []
    replies = {
        ExchangeDeclare: ExchangeDeclareOk(),
        QueueBind: QueueBindOk(),
        ExchangeBind: ExchangeBindOk(),
        BasicQos: BasicQosOk(),
        TxSelect: TxSelectOk(),
        ConfirmSelect: ConfirmSelectOk(),
        ChannelOpen: ChannelOpenOk(),
    }
    generated = 0
    while True:
        event = await peer.next_event()
        method = event.method  # type: ignore[attr-defined]
        peer.channel = event.channel  # type: ignore[attr-defined]
        seen.append(method)
        if isinstance(method, QueueDeclare):
            generated += 1
            peer.send(
                event.channel,  # type: ignore[attr-defined]
                QueueDeclareOk(queue=method.queue or f"amq.gen-{id(peer)}-{generated}"),
            )
        elif isinstance(method, BasicConsume):
            peer.send(event.channel, BasicConsumeOk(consumer_tag=method.consumer_tag))  # type: ignore[attr-defined]
        elif type(method) in replies:
            peer.send(event.channel, replies[type(method)])  # type: ignore[attr-defined]
        elif not isinstance(method, ChannelClose):
            # The protocol machine answers channel.close by itself.
            return seen


async def test_all_of_the_topology_comes_back() -> None:
    events = Events()
    restored: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()

    async def first(peer: Peer) -> None:
        await peer.handshake()
        seen = await answer_topology(peer)
        assert isinstance(seen[-1], BasicPublish)
        peer.hang_up()

    async def second(peer: Peer) -> None:
        await peer.handshake()
        seen = await answer_topology(peer)
        restored.set_result(seen)
        peer.send(peer.channel, BasicAck(delivery_tag=1))

    async with (
        scripted(first, second) as broker,
        connect(broker.url, reconnect=SOON, on_event=events) as connection,
    ):
        channel = await connection.channel()
        await channel.declare_exchange("ex", "topic", arguments={"a": 1})
        await channel.declare_exchange("up", "fanout", internal=True)
        await channel.bind_exchange("ex", "up", "k")
        await channel.declare_queue("q", arguments={"x-max-length": 3})
        named = (await channel.declare_queue("", exclusive=True)).name
        await channel.bind_queue("q", "ex", "a.b")
        await channel.bind_queue(named, "ex", "c.d", arguments={"z": 1})
        await channel.declare_queue("gone", passive=True)
        await channel.qos(9)
        consumer = channel.consume(named, prefetch=5)
        await consumer.start()
        with pytest.raises(ConfirmLost, match="not confirmed, perhaps taken") as caught:
            await channel.publish("a", "q")
        assert caught.value.message == Message(b"a")
        assert not (await events.next(Lost)).final
        recovered = await events.next(Recovered)
        renamed = recovered.renamed[named]
        await channel.publish("b", "q")
        seen = await restored
    publish = seen.pop()
    assert isinstance(publish, BasicPublish)
    assert seen == [
        ChannelOpen(),
        ExchangeDeclare(exchange="ex", type="topic", durable=True, arguments={"a": 1}),
        ExchangeDeclare(exchange="up", type="fanout", durable=True, internal=True),
        QueueDeclare(queue="q", durable=True, arguments={"x-max-length": 3}),
        QueueDeclare(queue="", durable=True, exclusive=True),
        ExchangeBind(destination="ex", source="up", routing_key="k"),
        QueueBind(queue="q", exchange="ex", routing_key="a.b"),
        QueueBind(queue=renamed, exchange="ex", routing_key="c.d", arguments={"z": 1}),
        ChannelClose(reply_code=200),
        ChannelOpen(),
        ConfirmSelect(),
        BasicQos(prefetch_count=9, global_=True),
        BasicQos(prefetch_count=5),
        BasicConsume(queue=renamed, consumer_tag=consumer.tag),
    ]


async def test_topology_can_be_left_alone() -> None:
    seen: list[object] = []

    async def first(peer: Peer) -> None:
        await peer.handshake()
        await answer_topology(peer)
        peer.hang_up()

    async def second(peer: Peer) -> None:
        await peer.handshake()
        seen.extend(await answer_topology(peer))

    reconnect = Reconnect(delay_s=0.001, topology=False)
    async with scripted(first, second) as broker:
        connection = await connect(broker.url, reconnect=reconnect)
        channel = await connection.channel(confirm=False)
        await channel.declare_queue("q")
        await channel.publish("a", "q")
        while len(seen) < 2:
            try:
                await channel.publish("b", "q")
            except ConnectionLost:
                pass
            await asyncio.sleep(0)
        await connection.close()
    assert seen == [ChannelOpen(), BasicPublish(routing_key="q")]


async def test_lost_publishes_are_sent_again_when_asked() -> None:
    bodies: list[bytes] = []

    async def first(peer: Peer) -> None:
        await peer.greet(confirm=True)
        for _ in range(4):
            await peer.expect(BasicPublish)
        peer.send(1, BasicAck(delivery_tag=2))
        await peer.writer.drain()
        peer.writer.close()

    async def second(peer: Peer) -> None:
        await peer.greet(confirm=True)
        for tag in range(1, 4):
            await peer.expect(BasicPublish)
            assert peer.content is not None
            bodies.append(peer.content.body)
            peer.send(1, BasicAck(delivery_tag=tag))

    async with (
        scripted(first, second) as broker,
        connect(broker.url, reconnect=SOON) as connection,
    ):
        channel = await connection.channel(retry_lost=True)
        await asyncio.gather(*(channel.publish(f"{n}", "q") for n in range(1, 5)))
    assert bodies == [b"1", b"3", b"4"]


async def test_calls_wait_for_the_connection_to_come_back() -> None:
    async def first(peer: Peer) -> None:
        await peer.greet()
        await peer.expect(QueueDeclare)
        peer.hang_up()

    async def last(peer: Peer) -> None:
        await peer.greet()
        await peer.expect(QueueDeclare)
        peer.send(1, QueueDeclareOk(queue="b"))

    events = Events()
    async with (
        scripted(first, refuse, refuse, last) as broker,
        connect(broker.url, reconnect=SOON, on_event=events) as connection,
    ):
        channel = await connection.channel()
        with pytest.raises(ConnectionLost):
            await channel.declare_queue("a")
        assert not connection.is_ready
        assert (await channel.declare_queue("b")).name == "b"
        await events.next(Lost)
        assert (await events.next(Recovered)).attempts == 3


async def test_giving_up_after_the_last_attempt() -> None:
    async def first(peer: Peer) -> None:
        await peer.greet()
        peer.hang_up()

    events = Events()
    reconnect = Reconnect(delay_s=0.001, attempts=3)
    async with (
        scripted(first, refuse) as broker,
        connect(broker.url, reconnect=reconnect, on_event=events) as connection,
    ):
        channel = await connection.channel()
        consumer = channel.consume("q")
        assert not (await events.next(Lost)).final
        with pytest.raises(ConnectFailed):
            await consumer.receive()
        assert (await events.next(Lost)).final
        assert broker.connections == 4
        with pytest.raises(ConnectFailed):
            await connection.channel()


async def test_closing_while_reconnecting() -> None:
    async def first(peer: Peer) -> None:
        await peer.greet()
        peer.hang_up()

    async def silent(peer: Peer) -> None:
        await peer.hung_up()

    events = Events()
    async with scripted(first, silent) as broker:
        connection = await connect(broker.url, reconnect=SOON, on_event=events)
        channel = await connection.channel()
        await events.next(Lost)
        call = asyncio.create_task(channel.declare_queue("q"))
        while broker.connections < 2:
            await asyncio.sleep(0)
        await connection.close()
        with pytest.raises(ConnectionClosed, match="closed by this program"):
            await call


async def test_a_transaction_does_not_survive_its_connection() -> None:
    async def first(peer: Peer) -> None:
        await peer.greet()
        await peer.expect(TxSelect)
        peer.send(1, TxSelectOk())
        await peer.expect(BasicPublish)
        peer.hang_up()

    async def second(peer: Peer) -> None:
        await peer.greet()
        await peer.expect(TxSelect)
        peer.send(1, TxSelectOk())
        await peer.expect(ConnectionClose)  # Neither a publish nor a commit was sent.

    events = Events()
    async with (
        scripted(first, second) as broker,
        connect(broker.url, reconnect=SOON, on_event=events) as connection,
    ):
        channel = await connection.channel()
        with pytest.raises(ConnectionLost):  # noqa: PT012
            async with channel.transaction():
                await channel.publish("a", "q")
                await events.next(Lost)
                await events.next(Recovered)
                with pytest.raises(ConnectionLost):
                    await channel.publish("b", "q")


async def test_deliveries_of_a_lost_connection_cannot_be_acked() -> None:
    async def first(peer: Peer) -> None:
        await peer.greet()
        await peer.expect(BasicQos)
        await peer.expect(BasicConsume)
        peer.send(1, BasicQosOk())
        peer.send(1, BasicConsumeOk(consumer_tag="ctag1.1"))
        for tag in (1, 2, 3):
            peer.send_content(1, BasicDeliver(consumer_tag="ctag1.1", delivery_tag=tag), b"old")
        await peer.expect(BasicAck)
        peer.hang_up()

    async def second(peer: Peer) -> None:
        await peer.greet()
        await peer.expect(BasicQos)
        await peer.expect(BasicConsume)
        peer.send(1, BasicQosOk())
        peer.send(1, BasicConsumeOk(consumer_tag="ctag1.1"))
        deliver = BasicDeliver(consumer_tag="ctag1.1", delivery_tag=1, redelivered=True)
        peer.send_content(1, deliver, b"new")
        assert (await peer.expect(BasicAck)).delivery_tag == 1
        await peer.expect(BasicCancel)
        peer.send(1, BasicCancelOk(consumer_tag="ctag1.1"))

    events = Events()
    async with (
        scripted(first, second) as broker,
        connect(broker.url, reconnect=SOON, on_event=events) as connection,
    ):
        channel = await connection.channel()
        async with channel.consume("q") as consumer:
            assert await (await consumer.receive()).ack()
            stale = await consumer.receive()
            await events.next(Lost)
            await events.next(Recovered)
            assert not await stale.ack()
            fresh = await consumer.receive()  # Not the third of the messages before the loss.
            assert (fresh.body, fresh.redelivered) == (b"new", True)
            assert await fresh.ack()


async def test_a_queue_that_cannot_be_put_back_does_not_stop_the_rest(
    url: str, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program has declared the queue with other properties during the loss."""
    taken, kept = name("taken"), name("kept")
    events = Events()
    reachable = asyncio.Event()

    async def open_later(*arguments: Any) -> Any:
        await reachable.wait()
        return await open_link(*arguments)

    async with (
        connect(url) as other,
        connect(url, reconnect=SOON, on_event=events) as connection,
    ):
        monkeypatch.setattr("headrace.client.connection.brokers.open_link", open_later)
        channel = await connection.channel()
        await channel.declare_queue(taken, auto_delete=True, durable=False)
        await channel.declare_queue(kept, exclusive=True, durable=False)
        doomed = await connection.channel()
        consumer = doomed.consume(taken)
        await consumer.start()
        assert connection._link is not None
        connection._link.fail(ConnectionLost("the network failed"))
        await events.next(Lost)
        while True:
            try:
                async with other.channel() as outside:
                    await outside.declare_queue(taken, durable=False)
                    break
            except PreconditionFailed:
                pass  # The broker has not noticed yet.
        reachable.set()
        await events.next(Recovered)
        assert (await channel.declare_queue(kept, passive=True)).name == kept
        async with other.channel() as outside:
            assert await outside.delete_queue(taken) == 0
        with pytest.raises(ConsumerCancelled):
            await consumer.receive()


async def test_an_exclusive_queue_that_is_still_locked_is_waited_for() -> None:
    async def first(peer: Peer) -> None:
        await peer.handshake()
        await answer_topology(peer)
        peer.hang_up()

    async def locked(peer: Peer) -> None:
        await peer.greet()
        await peer.expect(QueueDeclare)
        still = ChannelClose(reply_code=405, reply_text="RESOURCE_LOCKED - still there")
        peer.send(peer.channel, still)
        await peer.expect(ChannelCloseOk)
        await peer.expect(ConnectionClose)

    async def last(peer: Peer) -> None:
        await peer.handshake()
        seen = await answer_topology(peer)
        assert isinstance(seen[-1], BasicPublish)

    events = Events()
    async with (
        scripted(first, locked, locked, last) as broker,
        connect(broker.url, reconnect=SOON, on_event=events) as connection,
    ):
        channel = await connection.channel(confirm=False)
        await channel.declare_queue("q", exclusive=True)
        await channel.publish("a", "q")
        await events.next(Lost)
        assert (await events.next(Recovered)).attempts == 3
        await channel.publish("a", "q")


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


async def test_tls_is_verified(authority: trustme.CA, tmp_path: Path, name: Name) -> None:
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    cert, key, ca = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem"
    certificate.private_key_pem.write_to_path(str(key))
    for pem in certificate.cert_chain_pems:
        pem.write_to_path(str(cert), append=True)
    authority.cert_pem.write_to_path(str(ca))
    with LocalBroker(tls_port=0, tls_cert=cert, tls_key=key) as broker:
        tls_port = broker.addresses["amqps"].rpartition(":")[2]
        url = f"amqps://localhost:{tls_port}"
        with pytest.raises(ConnectFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await connect(url)
        with pytest.raises(ConnectFailed, match=r"Hostname mismatch|not valid for"):
            await connect(f"{url}?cacertfile={ca}&server_name_indication=example.org")
        with pytest.raises(ConnectFailed, match="TLS files"):
            await connect(f"{url}?cacertfile={tmp_path / 'missing.pem'}")
        async with (
            connect(f"{url}?cacertfile={ca}") as connection,
            connection.channel() as channel,
        ):
            state = await channel.declare_queue("", exclusive=True)
            await channel.publish(bytes(1 << 20), state.name)
            delivery = await channel.get(state.name)
            assert delivery is not None
            assert delivery.body == bytes(1 << 20)
        context = ssl.create_default_context(cafile=str(ca))
        async with connect(url, ssl_context=context) as connection:
            assert connection.is_ready
        with pytest.raises(ConnectFailed):
            await connect(f"amqps://localhost:{broker.port}?cacertfile={ca}")


async def test_a_broker_that_restarts(headrace_process: ChildBroker, name: Name) -> None:
    """Publisher and consumer survive a clean stop and a kill; no confirmed message is lost."""
    queue = name("q")
    url = headrace_process.url
    loop = asyncio.get_running_loop()
    seen: set[str] = set()
    confirmed: set[str] = set()
    events = Events()

    async def consume() -> None:
        async with connect(url, reconnect=SOON) as connection:
            channel = await connection.channel()
            await channel.declare_queue(queue)
            async for delivery in channel.consume(queue, prefetch=20):
                seen.add(delivery.text())
                await delivery.ack()

    consumer = asyncio.create_task(consume())
    async with connect(url, reconnect=SOON, on_event=events) as connection:
        channel = await connection.channel(retry_lost=True)
        await channel.declare_queue(queue)
        for n, how in enumerate([headrace_process.stop, headrace_process.kill]):

            async def publish(first: int = n * 1000) -> None:
                for number in range(first, first + 300):
                    await channel.publish(f"{number}", queue)
                    confirmed.add(f"{number}")

            publishing = asyncio.create_task(publish())
            # And the consumer has received a message.
            while len(confirmed) < n * 300 + 50 or not seen:
                await asyncio.sleep(0)
            await loop.run_in_executor(None, how)
            await loop.run_in_executor(None, headrace_process.start)
            await publishing
            assert isinstance(await events.next(Lost), Lost)
            assert isinstance(await events.next(Recovered), Recovered)
        assert len(confirmed) == 600
        while not seen >= confirmed:
            await asyncio.sleep(0.01)
        while (await channel.declare_queue(queue, passive=True)).message_count:
            await asyncio.sleep(0.01)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer


async def test_a_restarted_broker_without_memory_gets_its_topology_back(
    headrace_broker: LocalBroker, name: Name
) -> None:
    queue, exchange = name("q"), name("ex")
    events = Events()
    loop = asyncio.get_running_loop()
    async with connect(headrace_broker.url, reconnect=SOON, on_event=events) as connection:
        channel = await connection.channel()
        await channel.declare_exchange(exchange, "topic")
        await channel.declare_queue(queue)
        await channel.bind_queue(queue, exchange, "#")
        async with channel.consume(queue) as consumer:
            await channel.publish("before", "a.b", exchange, mandatory=True)
            assert (await consumer.receive()).text() == "before"
            await loop.run_in_executor(None, headrace_broker.restart)
            await events.next(Lost)
            await events.next(Recovered)
            await channel.publish("after", "a.b", exchange, mandatory=True)
            delivery = await consumer.receive()
            assert delivery.text() == "after"
            assert await delivery.ack()
        with pytest.raises(NotFound):
            await (await connection.channel()).declare_queue(name("x"), passive=True)
