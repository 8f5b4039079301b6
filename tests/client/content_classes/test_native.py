# SPDX-License-Identifier: Apache-2.0
"""Features of 0-8 and 0-9 only, by our client: tickets, files, references, redirection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from headrace.client import (
    AuthenticationFailed,
    ChannelClosed,
    ConnectFailed,
    Files,
    Messages,
    NotFound,
    UsageError,
    blocking,
    connect,
)
from headrace.client.content_classes.staged_files import Staged
from headrace.client.errors import ProtocolViolation
from headrace.client.link.login import Login
from headrace.client.url import Settings
from headrace.protocol import codec_0_x
from headrace.protocol.codec_0_x import (
    AccessRequest,
    AccessRequestOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    ChannelFlow,
    ChannelFlowOk,
    ChannelPing,
    ConnectionOpen,
    ConnectionRedirect,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    DtxSelect,
    DtxSelectOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    FileConsume,
    FileConsumeOk,
    FileOpen,
    FileOpenOk,
    FileProperties,
    FilePublish,
    FileStage,
    MessageTransfer,
    MethodBase,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    StreamConsume,
    StreamConsumeOk,
    StreamDeliver,
    StreamProperties,
    StreamPublish,
)
from headrace.protocol.v0_x.connection import Connection
from headrace.protocol.v0_x.handshake import Role
from headrace.protocol.v0_x.upcalls import EventCollector
from headrace.spec.tables import V0_9, Version
from headrace.testing import LocalBroker
from support.brokers import scripted_broker

if TYPE_CHECKING:
    from headrace.client import Channel
    from support.brokers.scripted_broker import Peer

early = pytest.mark.parametrize("version", ["0-8", "0-9"])


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(realms="/data=.*") as running:
        yield running


async def in_channel(url: str, version: str, work: Callable[[Channel], object]) -> None:
    async with connect(f"{url}?version={version}", reconnect=None) as connection:
        async with connection.channel() as channel:
            await work(channel)  # type: ignore[misc]  # A coroutine function.


ANSWERS: list[tuple[type[MethodBase], MethodBase | None]] = [
    (ExchangeDeclare, ExchangeDeclareOk()),
    (QueueDeclare, QueueDeclareOk(queue="q")),
    (QueueBind, QueueBindOk()),
    (BasicPublish, None),
    (BasicGet, BasicGetEmpty()),
    (BasicQos, BasicQosOk()),
    (BasicConsume, BasicConsumeOk(consumer_tag="t")),
    (QueuePurge, QueuePurgeOk()),
    (QueueDelete, QueueDeleteOk()),
    (ExchangeDelete, ExchangeDeleteOk()),
    (FileConsume, FileConsumeOk(consumer_tag="f")),
    (FilePublish, None),
    (StreamConsume, StreamConsumeOk(consumer_tag="s")),
    (StreamPublish, None),
]


class TicketCollector(EventCollector):
    """Records the tickets of publishes along with the events."""

    def __init__(self, version: Version) -> None:
        EventCollector.__init__(self, version, True)
        self.noted: list[int] = []

    def on_ticket(self, channel: object, ticket: int, address: bytes) -> None:
        self.noted.append(ticket)


@pytest.mark.rule(
    "0-9/exchange.declare.ticket#validity",
    "0-9/exchange.delete.ticket#validity",
    "0-9/queue.declare.ticket#validity",
    "0-9/queue.purge.ticket#01",
    "0-9/basic.consume.ticket#01",
    "0-9/basic.publish.ticket#01",
    "0-9/basic.get.ticket#01",
    "0-9/access.request-ok#per-channel",
    "0-9/file.consume.ticket#01",
    "0-9/file.publish.ticket#01",
    "0-9/stream.consume.ticket#01",
    "0-9/stream.publish.ticket#01",
)
async def test_a_ticket_goes_with_everything_on_its_channel() -> None:
    tickets: dict[int, list[int]] = {}

    async def script(peer: Peer) -> None:
        owner = TicketCollector(V0_9)
        peer.machine = Connection(Role.SERVER)
        peer.machine.set_owner(owner)
        await peer.handshake()
        for number in (1, 2):
            await peer.open_channel()
            if number == 1:
                asked = await peer.expect(AccessRequest)
                assert asked.realm == "/data"
                assert asked.read
                peer.send(peer.channel, AccessRequestOk(ticket=77))
            for kind, answer in ANSWERS:
                method = await peer.expect(kind)
                if isinstance(method, BasicPublish):
                    tickets.setdefault(number, []).append(owner.noted.pop() if owner.noted else 0)
                elif hasattr(method, "ticket"):
                    tickets.setdefault(number, []).append(method.ticket)
                if answer is not None:
                    peer.send(peer.channel, answer)

    async with scripted_broker.scripted(script) as server:
        async with connect(f"{server.url}/?version=0-9", reconnect=None) as connection:
            for number in (1, 2):
                channel = await connection.channel(confirm=False)
                if number == 1:
                    assert await channel.request_access() == 77
                await channel.declare_exchange("x")
                await channel.declare_queue("q")
                await channel.bind_queue("q", "x")
                await channel.publish("m", "q")
                assert await channel.get("q") is None
                await channel.consume("q", tag="t").start()
                await channel.purge_queue("q")
                await channel.delete_queue("q")
                await channel.delete_exchange("x")
                await Files(channel).consume("q")
                await channel.send(FilePublish(routing_key="q", identifier="i"))
                await channel.call(StreamConsume(queue="q"))
                await channel.send(StreamPublish(routing_key="q"))
    assert set(tickets[1]) == {77}
    assert set(tickets[2]) == {0}


@early
async def test_access_is_asked_for(broker: LocalBroker, version: str) -> None:
    async def work(channel: Channel) -> None:
        assert await channel.request_access("/data") > 0
        queue = (await channel.declare_queue(f"ticket-{version}")).name
        await channel.publish("x", queue)
        delivery = await channel.get(queue, no_ack=True)
        assert delivery is not None
        await channel.delete_queue(queue)

    await in_channel(broker.url, version, work)

    async def nowhere(channel: Channel) -> None:
        with pytest.raises(ChannelClosed):
            await channel.request_access("/nowhere")

    await in_channel(broker.url, version, nowhere)


async def test_methods_of_the_version(broker: LocalBroker) -> None:
    async def early(channel: Channel) -> None:
        answer = await channel.call(codec_0_x.TestInteger(integer_1=1, integer_2=2, operation=1))
        assert isinstance(answer, codec_0_x.TestIntegerOk)
        answer = await channel.call(codec_0_x.TestString(string_1="a", string_2=b"b", operation=1))
        assert isinstance(answer, codec_0_x.TestStringOk)
        assert isinstance(await channel.call(DtxSelect()), DtxSelectOk)
        with pytest.raises(UsageError, match="0-8 has no"):
            await channel.send(ChannelPing())
        with pytest.raises(UsageError, match="no answer"):
            await channel.call(BasicRecover())

    await in_channel(broker.url, "0-8", early)

    async def late(channel: Channel) -> None:
        with pytest.raises(UsageError, match="0-10 has no"):
            await channel.call(DtxSelect())

    await in_channel(broker.url, "0-10", late)


@early
async def test_files(broker: LocalBroker, version: str) -> None:
    body = bytes(range(256)) * 1000
    properties = FileProperties(content_type="image/png", filename="picture.png")

    async def work(channel: Channel) -> None:
        queue = (await channel.declare_queue(f"files-{version}")).name
        files = Files(channel)
        assert await files.publish(body, queue, properties=properties) == 0
        tag = await files.consume(queue)
        delivery = await files.receive()
        assert delivery.body == body
        assert delivery.properties == properties
        assert (delivery.routing_key, delivery.consumer_tag) == (queue, tag)
        await files.ack(delivery)
        await files.publish(b"", queue)
        empty = await files.receive()
        assert empty.body == b""
        await files.ack(empty)
        await files.cancel(tag)
        await channel.delete_queue(queue)

    await in_channel(broker.url, version, work)


@pytest.mark.rule("0-9/file.open.content-size#01", "0-9/file.open-ok.staged-size#01")
async def test_a_file_goes_on_where_it_stopped() -> None:
    answered = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.greet()
        opened = await peer.expect(FileOpen)
        assert (opened.identifier, opened.content_size) == ("me", 10)
        peer.send(peer.channel, FileOpenOk(staged_size=4))
        await peer.expect(FileStage)
        assert peer.content is not None
        assert peer.content.body == b"456789"
        published = await peer.expect(FilePublish)
        assert published.identifier == "me"
        peer.send(peer.channel, FileOpen(identifier="you", content_size=3))
        answer = await peer.expect(FileOpenOk)
        assert answer.staged_size == 2
        answered.set()

    async with scripted_broker.scripted(script) as server:
        async with connect(f"{server.url}/?version=0-9", reconnect=None) as connection:
            channel = await connection.channel()
            files = Files(channel, {"you": Staged(bytearray(b"ab"))})
            assert await files.publish(b"0123456789", "q", identifier="me") == 4
            receiving = asyncio.create_task(files.receive())
            await answered.wait()
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving


@early
async def test_streams_of_the_multimedia_class(broker: LocalBroker, version: str) -> None:
    async def work(channel: Channel) -> None:
        queue = (await channel.declare_queue(f"stream-{version}")).name
        answer = await channel.call(StreamConsume(queue=queue, consumer_tag="s"))
        assert isinstance(answer, StreamConsumeOk)
        sent = StreamProperties(content_type="audio/x", priority=7)
        await channel.send(StreamPublish(routing_key=queue), properties=sent, body=b"frame")
        arrived = await channel.next_method()
        assert isinstance(arrived.method, StreamDeliver)
        assert arrived.method.queue == queue
        assert (arrived.body, arrived.properties) == (b"frame", sent)
        await channel.delete_queue(queue)

    await in_channel(broker.url, version, work)


async def test_the_message_class_of_0_9(broker: LocalBroker) -> None:
    async def work(channel: Channel) -> None:
        queue = (await channel.declare_queue("message-class")).name
        messages = Messages(channel)
        await messages.transfer("inline", queue)
        async with await messages.open() as reference:
            await reference.append(b"piece by ")
            await reference.append(b"piece")
            await messages.transfer("", queue, reference=reference)
        await messages.consume(queue, "here")
        for wanted in (b"inline", b"piece by piece"):
            received = await messages.receive()
            assert (received.body, received.destination) == (wanted, "here")
            await messages.ok()
        await messages.cancel("here")
        assert not await messages.get(queue)
        await channel.delete_queue(queue)

    await in_channel(broker.url, "0-9", work)


@pytest.mark.rule(
    "0-9/message.open.reference#01",
    "0-9/message.close.reference#01",
    "0-9/message.append.reference#01",
)
@pytest.mark.parametrize("bad", ["twice", "append", "close", "transfer"])
async def test_references_that_are_not_what_they_should(bad: str) -> None:
    from headrace.protocol.codec_0_x import Content, MessageAppend, MessageClose, MessageOpen

    wrong: dict[str, MethodBase] = {
        "twice": MessageOpen(reference=b"r"),
        "append": MessageAppend(reference=b"other", data=b"x"),
        "close": MessageClose(reference=b"other"),
        "transfer": MessageTransfer(body=Content(b"other", True)),
    }

    async def script(peer: Peer) -> None:
        await peer.greet()
        peer.send(peer.channel, MessageOpen(reference=b"r"))
        peer.send(peer.channel, wrong[bad])

    async with scripted_broker.scripted(script) as server:
        async with connect(f"{server.url}/?version=0-9", reconnect=None) as connection:
            channel = await connection.channel()
            with pytest.raises(ProtocolViolation, match="open"):
                await Messages(channel).receive()


def start(version: str) -> ConnectionStart:
    major, minor = (8, 0) if version == "0-8" else (0, 9)
    return ConnectionStart(
        version_major=major, version_minor=minor, mechanisms=b"PLAIN", locales=b"en_US"
    )


@pytest.mark.rule("0-9/connection.start#client-support")
@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1"])
async def test_a_version_that_we_cannot_handle_ends_the_connection(version: str) -> None:
    ended = asyncio.Event()

    async def script(peer: Peer) -> None:
        while not peer.machine.state.value:
            await peer._receive()
        peer.send(0, ConnectionStart(version_minor=1, mechanisms=b"PLAIN", locales=b"en_US"))
        await peer.hung_up()
        ended.set()

    async with scripted_broker.scripted(script) as server:
        with pytest.raises(ConnectFailed, match="suggests version 0-1"):
            await connect(f"{server.url}/?version={version}", reconnect=None)
        await ended.wait()


@pytest.mark.rule("0-9-1/s012", "0-9/connection.start-ok.client-properties#required-fields")
@pytest.mark.parametrize("version", ["0-9", "0-9-1"])
async def test_the_client_says_who_it_is(version: str) -> None:
    said = []

    async def script(peer: Peer) -> None:
        said.append((await peer.handshake())[0].client_properties)

    async with scripted_broker.scripted(script) as server:
        async with connect(f"{server.url}/?version={version}", reconnect=None):
            pass
    assert {"product", "version", "platform", "information"} <= set(said[0])
    assert all(said[0].values())


@pytest.mark.rule("0-9-1/connection.close-ok#01", "0-9-1/channel.close-ok#01")
async def test_ends_without_an_answer_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.reader.read(1)  # Read as bytes: the machine would answer channel.close.
        peer.hang_up()

    async with scripted_broker.scripted(script) as server:
        async with connect(f"{server.url}/", reconnect=None) as connection:
            await (await connection.channel()).close()
    assert "channel 1 ended without channel.close-ok" in caplog.text

    async def second(peer: Peer) -> None:
        await peer.handshake()
        await peer.reader.read(1)
        peer.hang_up()

    async with scripted_broker.scripted(second) as server:
        await (await connect(f"{server.url}/", reconnect=None)).close()
    assert "hung up without connection.close-ok" in caplog.text


@pytest.mark.rule("0-9-1/s099")
async def test_a_consumer_belongs_to_its_channel() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.open_channel()
        await peer.expect(BasicQos)
        peer.send(1, BasicQosOk())
        await peer.expect(BasicConsume)
        peer.send(1, BasicConsumeOk(consumer_tag="t"))
        peer.send_content(2, BasicDeliver(consumer_tag="t", delivery_tag=1), b"stray")

    async with scripted_broker.scripted(script) as server:
        async with connect(f"{server.url}/", reconnect=None) as connection:
            one, _ = await connection.channel(), await connection.channel()
            with pytest.raises(ProtocolViolation, match="unknown consumer 't'"):
                await one.consume("q", tag="t").receive()


@early
@pytest.mark.rule("0-9/connection.redirect#usage")
async def test_a_redirection_is_followed(version: str) -> None:
    there: list[str] = []

    async def second(peer: Peer) -> None:
        _, _, opened = await peer.handshake()
        there.append(opened.virtual_host)

    async with scripted_broker.scripted(second) as target:

        async def first(peer: Peer) -> None:
            while not peer.machine.state.value:
                await peer._receive()
            peer.send(0, start(version))
            await peer.expect(ConnectionStartOk)
            peer.send(0, ConnectionTune(channel_max=10, frame_max=8192))
            await peer.expect(ConnectionTuneOk)
            await peer.expect(ConnectionOpen)
            host = f"127.0.0.1:1, 127.0.0.1:{target.port}"
            peer.send(0, ConnectionRedirect(host="127.0.0.1:1", known_hosts=host))

        async with scripted_broker.scripted(first) as server:
            url = f"{server.url}/place?version={version}"
            async with connect(url, reconnect=None) as connection:
                assert f":{target.port}/" in connection.address
    assert there == ["place"]


async def test_a_redirection_to_nowhere() -> None:
    async def first(peer: Peer) -> None:
        while not peer.machine.state.value:
            await peer._receive()
        peer.send(0, start("0-9"))
        await peer.expect(ConnectionStartOk)
        peer.send(0, ConnectionTune(channel_max=10, frame_max=8192))
        await peer.expect(ConnectionTuneOk)
        await peer.expect(ConnectionOpen)
        peer.send(0, ConnectionRedirect(host="127.0.0.1:1"))

    async with scripted_broker.scripted(first) as server:
        with pytest.raises(ConnectFailed, match="cannot connect"):
            await connect(f"{server.url}/?version=0-9", reconnect=None)


@pytest.mark.rule("0-9/connection.start-ok.mechanism#security", "0-9-1/s013")
def test_the_strongest_mechanism_is_taken() -> None:
    assert Login(Settings(), ["AMQPLAIN", "PLAIN"]).mechanism == "PLAIN"
    assert Login(Settings(), ["SCRAM-SHA-256"]).mechanism == "SCRAM-SHA-256"
    certified = Settings(tls=True, certfile="cert.pem")
    assert Login(certified, ["PLAIN", "EXTERNAL"]).mechanism == "EXTERNAL"
    assert Login(certified, ["PLAIN"]).mechanism == "PLAIN"
    with pytest.raises(AuthenticationFailed):
        Login(Settings(), ["GSSAPI"])


def test_no_password_crosses_a_network_as_it_is_when_that_can_be_avoided() -> None:
    offered = ["PLAIN", "AMQPLAIN", "SCRAM-SHA-256"]
    for host, tls, mechanism in (
        ("broker.example", False, "SCRAM-SHA-256"),
        ("10.0.0.1", False, "SCRAM-SHA-256"),
        ("broker.example", True, "PLAIN"),
        ("localhost", False, "PLAIN"),
        ("::1", False, "PLAIN"),
    ):
        assert Login(Settings(host=host, tls=tls), offered).mechanism == mechanism
    named = Settings(host="broker.example", mechanism="SCRAM-SHA-256")
    with pytest.raises(AuthenticationFailed, match="not SCRAM-SHA-256"):
        Login(named, ["PLAIN"])  # The URL's mechanism is used.


async def test_confirms_of_0_9_follow_an_answered_flow() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        for _ in range(3):
            await peer.expect(BasicPublish)
        flow = await peer.expect(ChannelFlow)
        assert flow.active
        peer.send(peer.channel, ChannelFlowOk(active=True))

    async with scripted_broker.scripted(script) as server:
        async with connect(f"{server.url}/?version=0-9", reconnect=None) as connection:
            channel = await connection.channel()
            assert await channel.publish_many(["a", "b", "c"], "q") == 3
    assert connection.version is V0_9


def test_blocking(broker: LocalBroker) -> None:
    with blocking.connect(f"{broker.url}?version=0-8", reconnect=None) as connection:
        with connection.channel() as channel:
            assert channel.request_access() > 0
            assert isinstance(channel.call(DtxSelect()), DtxSelectOk)
            with pytest.raises(UsageError):
                channel.send(ChannelPing())


async def test_a_channel_of_0_9_goes_on_after_its_connection(broker: LocalBroker) -> None:
    url = f"{broker.url}?version=0-9"
    first = await connect(url, reconnect=None)
    lost = await first.channel()
    queue = (await lost.declare_queue("resumed")).name
    consumer = lost.consume(queue, tag="mine")
    await consumer.start()
    assert lost.channel_id
    assert first._link is not None
    assert first._link._transport is not None
    first._link._transport.abort()
    async with connect(url, reconnect=None) as second:
        while True:
            try:
                channel = await second.channel(resume=lost.channel_id, consumers={"mine": queue})
            except NotFound:  # The broker has not noticed yet.
                continue
            break
        await channel.publish("after", queue)
        delivery = await channel.resumed["mine"].receive()
        assert delivery.text() == "after"
        await delivery.ack()
        await channel.resumed["mine"].cancel()
        await channel.delete_queue(queue)
    async with connect(broker.url, reconnect=None) as modern:
        with pytest.raises(UsageError, match="cannot resume"):
            modern.channel(resume=b"x")
