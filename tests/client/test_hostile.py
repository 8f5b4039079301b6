# SPDX-License-Identifier: Apache-2.0
"""A broker that violates the protocol ends the connection with a clear error."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client import (
    AuthenticationFailed,
    BufferOverflow,
    ChannelClosed,
    ClientError,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    ProtocolViolation,
    connect,
)
from headrace.client.link import link_0_x
from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGetEmpty,
    BasicProperties,
    BasicPublish,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ConfirmSelectOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionStart,
    ConnectionStartOk,
    QueueDeclare,
    QueueDeclareOk,
    QueuePurgeOk,
    encode_method,
)
from headrace.protocol.v0_x.frames import make_frame
from headrace.spec.tables import V0_9_1
from support.brokers.scripted_broker import HungUp, Peer, scripted
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

DELIVER = BasicDeliver(consumer_tag="ctag1.1", delivery_tag=1, routing_key="q")


def deliver_frames(header: bytes, *bodies: bytes, channel: int = 1) -> bytes:
    """Return the frames of a delivery with any payload in its header frame."""
    frames = [
        make_frame(1, channel, encode_method(V0_9_1, DELIVER)),
        make_frame(2, channel, header),
    ]
    return b"".join([*frames, *(make_frame(3, channel, body) for body in bodies)])


NO_PROPERTIES = struct.pack(">HHQH", 60, 0, 3, 0)

BROKEN = {
    "frame larger than negotiated": b"\x01\x00\x01" + struct.pack(">I", 4096 - 7),
    "frame of 4 GiB": b"\x03\x00\x01\xff\xff\xff\xff",
    "unknown frame type": b"\x07\x00\x01\x00\x00\x00\x00\xce",
    "frame without its end": b"\x08\x00\x00\x00\x00\x00\x00\x00",
    "not a frame at all": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "unknown class": make_frame(1, 1, b"\x7f\xff\x00\x0a"),
    "unknown method": make_frame(1, 1, b"\x00\x3c\x7f\xff"),
    "method cut short": make_frame(1, 1, b"\x00\x3c\x00"),
    "short string longer than its frame": make_frame(1, 1, b"\x00\x32\x00\x0b\xffq"),
    "octets after the last field": make_frame(1, 1, encode_method(V0_9_1, QueuePurgeOk()) + b"\0"),
    "a request of clients": make_frame(1, 1, encode_method(V0_9_1, BasicPublish())),
    "a second start": make_frame(1, 0, encode_method(V0_9_1, ConnectionStart())),
    "a reply nobody asked for": make_frame(1, 1, encode_method(V0_9_1, QueuePurgeOk())),
    "content on a channel that is not open": make_frame(3, 9, b"abc"),
    "body without a method": make_frame(3, 1, b"abc"),
    "header without a method": make_frame(2, 1, NO_PROPERTIES),
    "method in the middle of a content": (
        make_frame(1, 1, encode_method(V0_9_1, DELIVER))
        + make_frame(1, 1, encode_method(V0_9_1, QueuePurgeOk()))
    ),
    "header of another class": deliver_frames(struct.pack(">HHQH", 50, 0, 3, 0)),
    "header cut short": deliver_frames(b"\x00\x3c\x00"),
    "body longer than its header says": deliver_frames(NO_PROPERTIES, b"abcd"),
    "delivery to an unknown consumer": deliver_frames(NO_PROPERTIES, b"abc"),
    "confirm of what was not published": make_frame(
        1, 1, encode_method(V0_9_1, BasicAck(delivery_tag=7))
    ),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_a_broken_rule_ends_the_connection(what: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake(frame_max=4096)
        await peer.open_channel()
        await peer.expect(QueueDeclare)
        peer.send_raw(BROKEN[what])

    async with scripted(script) as broker, connect(broker.url) as connection:
        channel = await connection.channel()
        with pytest.raises(ProtocolViolation):
            await channel.declare_queue("q")
        assert connection.is_closed
        with pytest.raises(ProtocolViolation):
            await channel.declare_queue("q")
        with pytest.raises(ProtocolViolation):
            await connection.channel()
        assert broker.connections == 1  # No reconnection to such a broker.


numbers = st.integers(0, 2)
methods = st.sampled_from(
    [
        BasicAck(delivery_tag=1, multiple=True),
        BasicCancel(consumer_tag="ctag1.1"),
        BasicConsumeOk(consumer_tag="ctag1.1"),
        BasicGetEmpty(),
        BasicReturn(reply_code=312, reply_text="NO_ROUTE", routing_key="q"),
        ChannelClose(reply_code=404, reply_text="NOT_FOUND"),
        ChannelCloseOk(),
        ChannelFlow(active=True),
        ConnectionBlocked(reason="x"),
        ConnectionClose(reply_code=320, reply_text="CONNECTION_FORCED"),
        ConnectionCloseOk(),
        ConfirmSelectOk(),
        DELIVER,
        QueueDeclareOk(queue="q"),
    ]
)
frames = st.one_of(
    st.builds(lambda n, method: make_frame(1, n, encode_method(V0_9_1, method)), numbers, methods),
    st.builds(
        lambda n, size: make_frame(2, n, struct.pack(">HHQH", 60, 0, size, 0)), numbers, numbers
    ),
    st.builds(lambda kind, n, payload: make_frame(kind, n, payload), numbers, numbers, st.binary()),
    st.binary(max_size=20),
)


@settings(max_examples=150, deadline=None)
@given(chunks=st.lists(frames, max_size=8))
def test_whatever_comes_every_call_ends(chunks: list[bytes]) -> None:
    """Every call returns or raises ClientError, at the latest when the broker hangs up."""

    async def script(peer: Peer) -> None:
        await peer.greet()
        for _ in range(3):
            await peer.next_event()
        for chunk in chunks:
            peer.send_raw(chunk)
        await peer.writer.drain()
        peer.writer.close()

    async def scenario() -> None:
        async with (
            scripted(script) as broker,
            connect(broker.url, reconnect=None) as connection,
        ):
            channel = await connection.channel()
            outcomes = await asyncio.gather(
                channel.publish("x", "q", mandatory=True),
                channel.consume("q", prefetch=0).receive(),
                channel.declare_queue("q"),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    assert isinstance(outcome, ClientError), outcome

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await scenario()

    asyncio.run(bounded())


async def test_the_broker_is_told_what_it_did_wrong() -> None:
    close_received: asyncio.Future[ConnectionClose] = asyncio.get_running_loop().create_future()

    async def script(peer: Peer) -> None:
        await peer.handshake(frame_max=4096)
        await peer.open_channel()
        peer.send_raw(b"\x01\x00\x01" + struct.pack(">I", 4096 - 7))
        close_received.set_result(await peer.expect(ConnectionClose))

    async with scripted(script) as broker, connect(broker.url) as connection:
        await connection.channel()
        close = await close_received
    assert close.reply_code == 501
    assert "FRAME_ERROR" in close.reply_text


@pytest.mark.parametrize("header", [b"\x00\x3c\x00\x00" + b"\0" * 8 + b"\xff\xff", b""])
async def test_properties_that_cannot_be_decoded(header: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.expect(BasicConsume)
        peer.send(1, BasicConsumeOk(consumer_tag="ctag1.1"))
        peer.send_raw(deliver_frames(header))

    async with scripted(script) as broker, connect(broker.url) as connection:
        channel = await connection.channel()
        with pytest.raises(ProtocolViolation):
            async for _ in channel.consume("q", prefetch=0):
                pass


async def test_a_body_larger_than_the_limit_closes_the_channel() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.expect(BasicConsume)
        peer.send(1, BasicConsumeOk(consumer_tag="ctag1.1"))
        peer.send_raw(deliver_frames(struct.pack(">HHQH", 60, 0, 1 << 40, 0)))
        await peer.expect(ChannelClose)

    async with scripted(script) as broker, connect(broker.url, reconnect=None) as connection:
        channel = await connection.channel()
        with pytest.raises((ChannelClosed, ProtocolViolation)):
            async for _ in channel.consume("q", prefetch=0):
                pass


async def test_a_flood_without_credit_is_bounded() -> None:
    """A full buffer stops the reading; with a pending call it ends the connection."""
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.greet()
        await peer.expect(BasicConsume)
        peer.send(1, BasicConsumeOk(consumer_tag="ctag1.1"))
        while True:
            peer.send_content(1, DELIVER, bytes(100_000), BasicProperties())
            sent += 100_000
            await peer.writer.drain()

    async with (
        scripted(script) as broker,
        connect(broker.url, high_water=1 << 20, held_max=8 << 20) as connection,
    ):
        channel = await connection.channel()
        consumer = channel.consume("q", no_ack=True)
        await consumer.start()
        while connection.backpressure.held <= 1 << 20:
            await asyncio.sleep(0)
        previous_sent = 0
        while previous_sent != sent:  # Until the buffers of the sockets are full.
            previous_sent = sent
            await asyncio.sleep(0.1)
        assert connection.backpressure.held < 3 << 20
        assert (await consumer.receive()).body == bytes(100_000)
        with pytest.raises(BufferOverflow, match="8 MiB"):
            await channel.declare_queue("q")
        assert connection.is_closed


@pytest.mark.parametrize("first", ["consumer", "connection"])
async def test_closing_does_not_wait_for_unread_deliveries(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the test may take.
    monkeypatch.setattr(link_0_x, "CLOSE_TIMEOUT_S", 10 * PATIENCE_S)

    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.expect(BasicConsume)
        peer.send(1, BasicConsumeOk(consumer_tag="ctag1.1"))
        await peer.expect(BasicConsume)
        peer.send(1, BasicConsumeOk(consumer_tag="ctag1.2"))
        for _ in range(300):
            peer.send_content(1, DELIVER, bytes(100_000), BasicProperties())
            await peer.writer.drain()
        if first == "consumer":
            await peer.expect(BasicCancel)
            peer.send(1, BasicCancelOk(consumer_tag="ctag1.2"))
        await peer.expect(ConnectionClose)

    async with scripted(script) as broker:
        connection = await connect(broker.url, high_water=1 << 20)
        channel = await connection.channel()
        consumer = channel.consume("q", no_ack=True)
        await consumer.start()
        other = channel.consume("q", no_ack=True)
        await other.start()
        while connection.backpressure.held <= 1 << 20:
            await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S):
            if first == "consumer":
                await other.cancel()
            await connection.close()


@pytest.mark.parametrize("answer", [b"AMQP\x01\x01\x00\x0a", b"AMQP\x03\x01\x00\x00"])
async def test_a_broker_of_another_protocol(answer: bytes) -> None:
    async def script(peer: Peer) -> None:
        peer.send_raw(answer)

    async with scripted(script) as broker:
        with pytest.raises(ConnectFailed, match="does not speak AMQP 0-9-1"):
            await connect(broker.url)


async def test_a_server_that_is_no_broker() -> None:
    async def script(peer: Peer) -> None:
        peer.send_raw(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")

    async with scripted(script) as broker:
        with pytest.raises(ConnectFailed):
            await connect(broker.url)


async def test_a_server_that_says_nothing() -> None:
    async def script(peer: Peer) -> None:
        await peer.hung_up()

    async with scripted(script) as broker:
        with pytest.raises(ConnectFailed, match=r"within 0.05 s"):
            await connect(broker.url + "?connection_timeout=0.05")


async def test_a_flood_before_the_connection_is_open() -> None:
    async def script(peer: Peer) -> None:
        start = encode_method(V0_9_1, ConnectionStart(mechanisms=b"PLAIN" * 1000))
        while True:
            peer.send_raw(make_frame(1, 0, start))
            await peer.writer.drain()

    async with scripted(script) as broker:
        with pytest.raises(ConnectFailed):
            await connect(broker.url)


async def test_no_mechanism_in_common() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake(mechanisms=b"GSSAPI CRAM-MD5")

    async with scripted(script) as broker:
        with pytest.raises(AuthenticationFailed, match="GSSAPI"):
            await connect(broker.url)


async def test_frames_offered_smaller_than_the_least() -> None:
    async def script(peer: Peer) -> None:
        await peer.handshake(frame_max=1000)

    async with scripted(script) as broker:
        with pytest.raises(ConnectFailed, match="1000"):
            await connect(broker.url)


async def test_a_hang_up_while_logging_in_says_so() -> None:
    async def script(peer: Peer) -> None:
        peer.machine.receive(await peer.reader.readexactly(8))
        peer.send(0, ConnectionStart(version_minor=9, mechanisms=b"PLAIN", locales=b"en_US"))
        await peer.expect(ConnectionStartOk)
        peer.hang_up()

    async with scripted(script) as broker:
        with pytest.raises(ConnectFailed, match="password"):
            await connect(broker.url)


async def hang_up(peer: Peer) -> None:
    peer.hang_up()


async def close_with_error(peer: Peer) -> None:
    peer.send(0, ConnectionClose(reply_code=503, reply_text="COMMAND_INVALID - no", class_id=50))
    await peer.expect(ConnectionCloseOk)


@pytest.mark.parametrize(
    ("end", "error"), [(hang_up, ConnectionLost), (close_with_error, ConnectionClosed)]
)
async def test_whatever_is_under_way_learns_of_the_end(
    end: Callable[[Peer], Awaitable[None]], error: type[Exception]
) -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.expect(BasicConsume)
        peer.send(1, BasicConsumeOk(consumer_tag="ctag1.1"))
        await peer.expect(QueueDeclare)
        await end(peer)

    async with scripted(script) as broker, connect(broker.url, reconnect=None) as connection:
        channel = await connection.channel()
        consumer = channel.consume("q", prefetch=0)
        await consumer.start()
        outcomes = await asyncio.gather(
            channel.declare_queue("q"), consumer.receive(), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [error, error]
        if error is ConnectionClosed:
            assert str(outcomes[0]) == "503 COMMAND_INVALID - no"
            assert outcomes[0].method == (50, 0)


async def test_a_given_up_call_does_not_confuse_the_next() -> None:
    requested = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.greet()
        for name in ("a", "b"):
            assert (await peer.expect(QueueDeclare)).queue == name
            requested.set()
        for name in ("a", "b"):
            peer.send(1, QueueDeclareOk(queue=name))

    async with scripted(script) as broker, connect(broker.url) as connection:
        channel = await connection.channel()
        call = asyncio.create_task(channel.declare_queue("a"))
        await requested.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await channel.declare_queue("b")).name == "b"


async def test_the_scripted_broker_notices_the_end() -> None:
    ended = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.handshake()
        await peer.expect(ConnectionClose)
        peer.send(0, ConnectionCloseOk())
        with pytest.raises(HungUp):
            await peer.next_event()
        ended.set()

    async with scripted(script) as broker:
        async with connect(broker.url):
            pass
        await ended.wait()
